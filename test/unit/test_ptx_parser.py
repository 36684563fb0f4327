"""PTX text: what is read, where errors are, and text -> dialect -> text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warploom.dialect.ptx.ops import print_ptx
from warploom.dialect.ptx.parser import parse_ptx
from warploom.dialect.ptx.printer import import_ptx
from warploom.dialect.ptx.text.reader import OperandReader
from warploom.dialect.ptx.text.syntax import (
    Address,
    Comment,
    Directive,
    Guard,
    Immediate,
    Instruction,
    Label,
    Module,
    Not,
    Pair,
    PtxSyntaxError,
    RegDecl,
    Register,
    Scope,
    Statement,
    Symbol,
    Variable,
    Vector,
    instructions,
    leaves,
)

DATA = Path(__file__).parents[1] / "data/ptx"
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def kernel(body: str) -> tuple[Statement, ...]:
    """The statements of a kernel with this body."""
    parsed = parse_ptx(f"{HEAD}.visible .entry k()\n{{\n{body}\n}}\n").functions["k"].body
    assert parsed is not None
    return parsed


def one(text: str) -> Instruction:
    statement = kernel(text)[0]
    assert isinstance(statement, Instruction)
    return statement


def bare(text: str) -> str:
    """The text without comments and with the least white space."""
    text = re.sub(r'("[^"\n]*")|//[^\n]*|/\*.*?\*/', lambda m: m[1] or "", text, flags=re.DOTALL)
    return re.sub(r" ?([,;{}()\[\]+:<>=|]) ?", r"\1", " ".join(text.split())).strip()


def printed(text: str) -> str:
    module = import_ptx(parse_ptx(text))
    module.verify()
    return print_ptx(module)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("path", sorted(DATA.glob("*.ptx")), ids=lambda p: p.name)
def test_text_of_nvcc_comes_back(path: Path) -> None:
    text = path.read_text()
    assert bare(printed(text)) == bare(text)
    assert printed(printed(text)) == printed(text)


def test_operands() -> None:
    assert one("mov.b64 {%r1, _}, %rd1;").operands == (Vector((Register("%r1"), Symbol("_"))), Register("%rd1"))
    assert one("setp.eq.and.s32 %p|%q, %r1, -1, !%p3;").operands == (
        Pair(Register("%p"), Register("%q")),
        Register("%r1"),
        Immediate("-1"),
        Not(Register("%p3")),
    )
    assert one("ld.global.b32 %r1, [%rd1];").operands[1] == Address(Register("%rd1"), 0)
    assert one("ld.global.b32 %r1, [ %rd1 + 0 ];").operands[1] == Address(Register("%rd1"), 0)
    assert one("ld.global.b32 %r1, [%rd1+-16];").operands[1] == Address(Register("%rd1"), -16)
    assert one("ld.global.b32 %r1, [%rd1+-0x10];").operands[1] == Address(Register("%rd1"), -16)
    assert one("ld.shared.b32 %r1, [smem+8];").operands[1] == Address(Symbol("smem"), 8)
    assert one("mov.u32 %r1, smem+8;").operands[1] == Symbol("smem", 8)
    assert one("mov.u32 %r1, %tid.x;").operands[1] == Register("%tid.x")
    assert one("mov.f32 %f1, 0f3F800000;").operands[1] == Immediate("0f3F800000")
    assert one("add.f64 %d1, %d1, -1.5e-3;").operands[2] == Immediate("-1.5e-3")
    assert one("call.uni (%r1), f, (%r2, 3);").operands == (
        Vector((Register("%r1"),)),
        Symbol("f"),
        Vector((Register("%r2"), Immediate("3"))),
    )
    assert one("ret;").operands == ()


def test_statements() -> None:
    body = kernel(
        """    .reg .b32 %r<3>; .reg .pred p, q;
    .shared .align 16 .b8 s[2][8];
    // a comment of its own
    .loc 1 2 3
    .pragma "no;unroll";
loop_1: add.s32 %r0, %r1, 1; // shares its line
    @!p bra loop_1;
    { .reg .b32 %r<2>; mov.b32 %r0, /* in between */ %r1; }
    setp.ne.b32 p|q, %r0,
        0;
    """
    )
    assert body[:3] == (RegDecl("b32", "%r", 3, 6), RegDecl("pred", "p", None, 6), RegDecl("pred", "q", None, 6))
    assert body[3] == Variable("shared", "b8", "s", count=16, align=16, line=7, dimensions=(2, 8))
    assert body[4] == Comment(" a comment of its own", 8)
    assert body[5:7] == (Directive(".loc 1 2 3", 9), Directive('.pragma "no;unroll";', 10))
    assert body[7] == Label("loop_1", 11)
    assert isinstance(body[8], Instruction)
    assert (body[8].opcode, body[8].line, body[8].column) == ("add.s32", 11, 9)
    assert body[9] == Instruction("bra", (Symbol("loop_1"),), Guard("p", negated=True), 12, 5)
    assert isinstance(body[10], Scope)
    assert len(body[10].body) == 2
    assert isinstance(body[11], Instruction)
    assert body[11].operands[0] == Pair(Register("p"), Register("q"))


def test_plain_register_names_end_with_their_scope() -> None:
    body = kernel("{ .reg .b32 x; mov.u32 x, 1; } mov.u32 %r1, x;")
    assert isinstance(body[0], Scope)
    inner, outer = body[0].body[1], body[1]
    assert isinstance(inner, Instruction)
    assert isinstance(outer, Instruction)
    assert (inner.operands[0], outer.operands[1]) == (Register("x"), Symbol("x"))


def test_elements_of_arrays_are_addresses() -> None:
    """As ptxas 13.5.37 has them: elements of the type that the declaration names, in vectors too (6.4.2)."""
    lines = """
    .shared .u16 g[8]; .shared .v2 .f32 h[4]; .shared .u32 s;
    { .shared .f64 g[2]; mov.b32 %r1, g[1]; }
    ld.shared.u16 %h1, g[1+1]; st.shared.v2.f32 h[2], {%f1, %f2}; mov.b32 %r1, g[3];"""
    *_, load, store, move = instructions(kernel(lines))
    assert load.operands == (Register("%h1"), Address(Symbol("g"), 4))
    assert store.operands[0] == Address(Symbol("h"), 8)
    assert move.operands == (Register("%r1"), Symbol("g", 6))
    assert next(iter(instructions(kernel(lines)))).operands[1] == Symbol("g", 8)
    for wrong, message in (
        ("ld.shared.u32 %r1, s[1];", "'s[1]': no array 's' is declared"),
        ("ld.shared.u16 %h1, g[%r1];", "expected a constant index; compute the address"),
        ("atom.shared.add.u32 %r1, g[1], 1;", "'g[1]' is not an operand"),
    ):
        with pytest.raises(PtxSyntaxError, match=re.escape(message)):
            kernel(lines + wrong)


def test_labels_may_be_named_like_registers() -> None:
    first, *_, last = instructions(kernel("bra %L; { %M: bra %M; } @%p1 bra %L; %L: ret; mov.b32 %r1, %L;"))
    assert first.operands == (Symbol("%L"),)
    assert last.operands[1] == Register("%L")


def test_functions_and_variables() -> None:
    module = parse_ptx(
        """// before
.version 8.1
.target sm_90a, debug
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.visible .global .align 4 .f32 w[2][3] = {{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}};
.extern .shared .align 16 .b8 dynamic[];
.weak .func g() .noreturn { ret; }
.entry k(.param .u64 .ptr .global .align 16 p, .param .align 64 .b8 map[128])
.maxntid 256, 1, 1
.minnctapersm 2
{ ret; }
.section .debug_abbrev { .b8 1 }
"""
    )
    assert isinstance(module, Module)
    assert (module.version, module.targets, module.preamble) == ((8, 1), ("sm_90a", "debug"), (Comment(" before", 1),))
    assert set(module.functions) == {"g", "k"}
    k = module.functions["k"]
    assert k.entry
    assert k.directives == (".maxntid 256, 1, 1", ".minnctapersm 2")
    assert k.parameters[0].pointer == ".ptr .global .align 16"
    assert (k.parameters[1].count, k.parameters[1].align) == (128, 64)
    w, dynamic = module.items[1], module.items[2]
    assert isinstance(w, Variable)
    assert isinstance(dynamic, Variable)
    assert (w.dimensions, w.count, w.init) == ((2, 3), 6, "{{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}}")
    assert (dynamic.linking, dynamic.count) == ("extern", 0)
    assert module.functions["g"].directives == (".noreturn",)


def test_prototypes_and_repeated_externs_come_back() -> None:
    text = (
        HEAD
        + ".func f(.param .b32 a);\n.extern .shared .b8 s[];\n.extern .shared .b8 s[];\n"
        + ".func f(.param .b32 a)\n{ ret; }\n"
    )
    assert bare(printed(text)) == bare(text)


ERRORS = {
    "ret": (6, 1, "expected a statement that ends in ';', got 'ret'"),
    "add.s32 %r1, %r2, ;": (6, 1, "add.s32: an operand is missing at a comma"),
    "  ld.global.b32 %r1, [%r2*4];": (6, 3, "ld.global.b32: expected an address such as [%rd1+16], got '[%r2*4]'"),
    "add.u32 %r1, %r1, %r1\nmov.u32 %r2, %r1;": (
        6,
        1,
        "add.u32: '%r1 mov.u32 %r2' is not an operand; a semicolon may be missing in it",
    ),
    "mov.u32 %r1, 3x;": (6, 1, "mov.u32: '3x' is not an operand"),
    "mov.u32 %r1, %r2+4;": (6, 1, "mov.u32: '%r2+4': an offset needs brackets around a register, as in [%r2+4]"),
    "setp.eq.and.b32 p, 1, 2, !q;": (6, 1, "setp.eq.and.b32: '!q' negates something that is not a predicate register"),
    ".reg .bf16 %h;": (6, 7, "'.bf16' is not a register type; expected one of .pred, .b8"),
    ".shared .b32;": (6, 13, "expected the name of a variable, got ';'"),
    ".reg .b32 %r<2>": (7, 1, "expected ';' after the declaration, got '}'"),
    "{ ret;": (5, 1, "the '{' of 'k' is not closed"),
    "ret;\n\n?;": (8, 1, "expected a statement that ends in ';', got '?;'"),
}


@pytest.mark.parametrize("body", ERRORS)
def test_errors_say_where(body: str) -> None:
    line, column, message = ERRORS[body]
    with pytest.raises(PtxSyntaxError) as error:
        parse_ptx(f"{HEAD}.visible .entry k()\n{{\n{body}\n}}\n", "a.ptx")
    assert (error.value.file, error.value.line, error.value.column) == ("a.ptx", line, column)
    assert error.value.message.startswith(message)
    assert str(error.value).startswith(f"a.ptx:{line}:{column}: error: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file has no .version;"),
        (".version 8.0\n", "the file has no .target;"),
        (".version eight\n", "expected a version such as 8.0, got 'eight'"),
        (HEAD + "hello", "expected a directive, a variable or a function, got 'hello'"),
        (HEAD + ".reg .b32 %r;", "a .reg declaration must stand inside a function"),
        (HEAD + ".entry k(.param u64 x) { }", "expected a parameter such as '.param .u64 name', got '.param u64 x'"),
        (HEAD + ".entry k() ret;", "expected '{' to open the body of 'k', or ';' after its declaration, got 'ret;'"),
        (HEAD + ".pragma", "expected a directive that ends in ';', got '.pragma'"),
    ],
)
def test_errors_outside_functions(text: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError) as error:
        parse_ptx(text)
    assert error.value.message.startswith(message)


def test_import_names_an_undeclared_guard() -> None:
    with pytest.raises(PtxSyntaxError, match=r"a.ptx:4:12: error: no .reg declares the guard '%p'"):
        import_ptx(parse_ptx(HEAD + ".entry k(){@%p bra L; L: ret; }"), file="a.ptx")


NAMES = st.sampled_from(["%r1", "%f3", "%p", "%tid.x", "x", "$L_1", "_"])
ATOMS = st.one_of(NAMES, st.integers(-(2**31), 2**32).map(str), st.sampled_from(["0f3F800000", "0xFF", "1.5"]))
OPERANDS = st.one_of(
    ATOMS,
    st.lists(ATOMS, min_size=1, max_size=4).map(lambda items: "{" + ", ".join(items) + "}"),
    st.tuples(st.sampled_from(["%r1", "x"]), st.integers(-64, 64)).map(lambda a: f"[{a[0]}+{a[1]}]"),
    st.just("%p|%p"),
    st.just("!%p"),
)
OPCODES = st.sampled_from(["mov.b32", "ld.shared::cta.v2.b32", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"])
GUARDS = st.sampled_from(["", "@%p ", "@!%p "])
INSTRUCTIONS = st.tuples(GUARDS, OPCODES, st.lists(OPERANDS, max_size=4)).map(
    lambda i: f"{i[0]}{i[1]} {', '.join(i[2])}".rstrip() + ";"
)
SPACES = st.sampled_from([" ", "\n", "\t\t", "  /* ; } */ ", " // } ;\n"])


@given(st.lists(st.tuples(INSTRUCTIONS, SPACES), max_size=12))
def test_any_instructions_come_back(lines: list[tuple[str, str]]) -> None:
    registers = ".reg .b32 %r<4>; .reg .f32 %f<4>; .reg .pred %p;"
    text = f"{HEAD}.entry k() {{ {registers} " + "".join(line + space for line, space in lines) + " }"
    assert bare(print_ptx(import_ptx(parse_ptx(text)))) == bare(text)


@given(st.text(alphabet='.;{}[]()@%:,|!+-/*"\n abr019$_', max_size=60))
def test_any_text_is_read_or_has_an_error_with_a_place(text: str) -> None:
    place = (1, 1)
    try:
        parse_ptx(HEAD + ".entry k() {" + text)
    except PtxSyntaxError as error:
        place = (error.line, error.column)
    assert min(place) >= 1


def test_blanks_before_qualifiers_are_no_part_of_an_opcode() -> None:
    """As TileLang's inline assembly has them."""
    text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() {\n.reg .b32 %r<3>;\n"
    module = parse_ptx(f"{text}add .s32\n  .x %r0, %r1, %r2;\nret;\n}}\n")
    body = module.functions["k"].body or ()
    assert [each.opcode for each in body if isinstance(each, Instruction)] == ["add.s32.x", "ret"]


def test_leaves_of_operands_stand_in_the_order_of_the_text() -> None:
    operands = OperandReader().read("{%r1, 7, _}, [%rd1+8], !%p1, %r2|%p2, [map, {%r3, %tid.x}], L, [smem]")
    names = [getattr(leaf, "name", None) or getattr(leaf, "text", "") for o in operands for leaf in leaves(o)]
    assert names == ["%r1", "7", "_", "%rd1", "%p1", "%r2", "%p2", "map", "%r3", "%tid.x", "L", "smem"]
