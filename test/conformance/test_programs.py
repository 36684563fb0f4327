"""Programs changed in one place where no instruction is: declarations, parameters, scopes, labels, calls, addresses.

Each is judged by ptxas and by us. A template is a program with a gap, and stands beside what is put there; what differs
without a reason fails.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import permutations, product

import pytest
from refused import reason
from samples import FULL
from test_ptx_rows import PTXAS
from verdicts import ptxas

from warploom.dialect.ptx.check.module import check_text

pytestmark = pytest.mark.skipif(PTXAS is None, reason="ptxas is not installed (extra: test)")

SAMPLE = 4
"""Programs of each group that are tried where not all are."""
TARGET = "sm_90a"
HEAD = f".version 9.5\n.target {TARGET}\n.address_size 64\n"
ENTRY = """.func f() { ret; }
.visible .entry k(.param .b64 p)
GAP
{ ret; }
"""
MODULE = """.global .b32 g[4]; .const .b32 c = 1; .shared .b32 s[4]; .extern .global .b32 e[]; .func f() { ret; }
GAP
.visible .entry k() { ret; }
"""
BODY = """.global .b32 g[4]; .const .b32 c = 1; .global .v4 .f32 gv; .extern .shared .align 16 .b8 dyn[];
.func (.param .b32 r) f(.param .b32 a) { st.param.b32 [r], 1; ret; }
.func vf() { ret; } .func fa(.param .align 8 .b8 a[16]) { ret; } .extern .func nr() .noreturn;
.func (.reg .b32 r) fr(.reg .b32 a, .reg .f32 b) { mov.b32 r, a; ret; }
.visible .entry other(.param .b64 q) { ret; }
.visible .entry k(.param .b64 p, .param .align 16 .b8 ps[32]) {
.reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .f32 %f<8>; .reg .pred %p<4>; .reg .b16 %h<4>; .reg .v4 .b32 %v;
.shared .align 16 .b8 sm[64]; .local .align 8 .b8 l[32]; .param .b32 pa; .param .b32 pr; .param .align 8 .b8 pb[16];
GAP
ret; }
"""
TYPES = ("b8", "s16", "u32", "b64", "f32", "f64", "f16", "b128", "bf16", "pred")
SPACES = ("global", "const", "shared", "local", "param", "reg")


def initial_values() -> Iterator[str]:
    """Literals of every type, braces of every shape, addresses."""
    literals = ("1", "-1.5", "0f3F800000", "{1}", "1U", "WARP_SZ", "~0", "(1)", "1?2:3", "{}", "")
    yield from (f".global .{type} x = {value};" for type, value in product(TYPES, literals))
    shapes = ("x", "x[2]", "x[]", "x[2][2]", "x[][2]", "x[0]", "x[2][]", "x[2][2][2]")
    braces = ("1", "{1}", "{1,2,3}", "{{1}}", "{{1},{2}}", "{{1,2},3}", "{{{1,2}},{{3}}}", "{}", "{{}}", "{1,}")
    for vector, shape, value in product(("", ".v2 "), shapes, braces):
        yield f".global {vector}.b32 {shape} = {value};"
    addresses = ("g", "g+4", "generic(g)+4", "s", "e", "f", "f+4", "0xFF(g)", "0xFF(7)", "0xF0(g)", "k", "x", "g-4")
    yield from (f".global .{type} x = {value};" for type, value in product(("u8", "u32", "u64", "b64"), addresses))


def variables() -> Iterator[str]:
    """Spaces, linking, extents, alignments and attributes of variables of a module."""
    for linking, space, rest in product(
        ("", ".extern ", ".visible ", ".common "), SPACES, ("x", "x[]", "x[4]", "x, y", "x<2>", "x = 1")
    ):
        yield f"{linking}.{space} .b32 {rest};"
    for number in ("0", "3", "-1", "64", "4294967296", "1+1", "WARP_SZ", "0x10", "1.5", "2U", "08"):
        yield from (f".const .b8 x[{number}];", f".global .align {number} .b8 x[4];", f".global .b32 x<{number}>;")
    for one, two in product(("", ".extern ", ".visible ", ".weak "), repeat=2):
        yield f"{one}.global .b32 x; {two}.global .b32 x;"
    for rest in (".align 8 .b32 x", ".b64 x", ".b32 x[1]", ".v2 .b32 x", ".u32 x"):
        yield f".extern .global .b32 x; .visible .global {rest};"
    for rest in ("managed", "unified", "unified(1,2)", "managed,.unified(1,2)", "bogus", "managed(1)"):
        yield f".global .attribute(.{rest}) .b32 x;"
    yield from (f".global .b32 {name};" for name in ("1x", "$x", "%x", "_x", "_", "%", "x.y", "WARP_SZ", "%tid", "f"))


def functions() -> Iterator[str]:
    """Parameters, results, linking and aliases of functions."""
    for space, type, name in product(
        (*SPACES[:3], *SPACES[4:]), TYPES[:6] + TYPES[-1:], ("a", "a[4]", "a[]", "_", "a<2>")
    ):
        yield f".func h(.{space} .{type} {name}) {{ ret; }}"
        yield f".func (.{space} .{type} {name}) h() {{ ret; }}"
        yield f".entry h(.{space} .{type} {name}) {{ ret; }}"
    for one, two in product(("", ".visible ", ".extern ", ".weak "), repeat=2):
        yield from (f"{one}.func h(); {two}.func h() {{ ret; }}", f"{one}.func h(); {two}.func h();")
    for a, b in product((".param .b32 a", ".param .u32 a", ".reg .b32 a", ".param .align 8 .b32 a", ""), repeat=2):
        yield f".func h({a}); .func h({b}) {{ ret; }}"
        yield f".func h({a}) {{ ret; }} .func i({b}); .alias i, h;"
    for alias in ("a, f", "a, k", "f, f", "a, g", "a", "a f", "nothing, f"):
        yield f".func a(); .alias {alias};"
    for uses in ("call h;", ".reg .b64 r; mov.b64 r, h;", ".reg .b32 r; ld.global.b32 r, [y];", "call i;"):
        yield f".func i() {{ {uses} ret; }} .func h() {{ ret; }} .global .b32 y;"


def calls() -> Iterator[str]:
    """Calls by name and through registers, with arguments and results that fit and do not."""
    for target, results, arguments in product(
        ("f", "vf", "fa", "fr", "other", "g", "L", "nothing", "f+4"), ("", "(%r0), ", "(pr), ", "(%f0), "),
        ("", ", ()", ", (1)", ", (pa)", ", (pb)", ", (%r1, %f1)", ", (ps)", ", (%r1), P"),
    ):  # fmt: skip
        yield f"call {results}{target}{arguments}; L:"
    lists = (
        ".callprototype _ ()", ".callprototype _ (.param .b32 _)", ".callprototype (.reg .b32 _) _ (.reg .b32 x)",
        ".callprototype (.shared .b32 _) _ ()", ".callprototype x ()", ".callprototype _ () .noreturn",
        ".callprototype (.param .b32 _) _ () .noreturn", ".callprototype _ () .maxnreg 3", ".calltargets vf",
        ".calltargets f", ".calltargets vf, f", ".calltargets g", ".calltargets k", ".calltargets", ".branchtargets L",
    )  # fmt: skip
    for one, use in product(
        lists, ("%rd0", "%f0", "%rd0, (%r0)", "(%r1), %rd0, (%r0)", "%rd0, (%rd1)", "%rd0, (1, 2)")
    ):
        yield f"P: {one}; call {use}, P; L:"
    yield from (
        "call %rd0;",
        "call %rd0, g;",
        "call %rd0, vf;",
        "P: call %rd0, P;",
        "call %rd0, P; P: .calltargets vf;",
    )


def labels() -> Iterator[str]:
    """Labels, scopes, lists of labels and guards."""
    uses = ("bra L", "bra.uni L", "bra L+4", "bra L, L", "brx.idx %r0, L", "call L", "mov.b64 %rd0, L", "@%p0 bra L")
    places = ("L: {};", "{}; L:", "L: L: {};", "L: {{ L: {}; }}", "{{ L: }} {};", "{{ {}; }} L:", ".reg .b32 L; L: {};",
              "L: .branchtargets M; M: {};")  # fmt: skip
    yield from (place.format(use) for place, use in product(places, uses))
    for names, index in product(("L", "L, M", "L<2>", "M", "k", "g", "%r0", "", "P"), ("%r0", "0", "%rd0", "%f0")):
        yield f"L: L0: L1: P: .branchtargets {names}; brx.idx {index}, P;"
    yield from (f"{name}: ret;" for name in ("g", "k", "p", "sm", "vf", "$L", "1", "_"))
    yield from (f"@{guard} bra L; L:" for guard in ("%p0", "!%p0", "!!%p0", "%r0", "p", "1", "%p9", "%p0 @%p1"))
    yield from (".callprototype _ ();", "P: .callprototype _ (); bra P;", ".calltargets vf;", "{ ret;", "ret; }", ";")


def scopes() -> Iterator[str]:
    """Declarations in a body, twice, in scopes, before and behind their use."""
    for space, rest in product(
        (*SPACES, "extern .shared"), ("x", "x[]", "x[4]", "x<2>", "x = 1", "g", "k", "p", "%r0", "_", "WARP_SZ")
    ):
        yield f".{space} .b32 {rest};"
    for first, second in product((".reg .b32 x;", ".reg .b64 x;", ".shared .b32 x;", ".param .b32 x;"), repeat=2):
        yield from (f"{first} {second}", f"{first} {{ {second} }}", f"{{ {first} }} mov.b32 x, 1;")
    for type in ("b8", "pred", "b128", "bf16", "f16x2", "b1"):
        yield from (f".reg .{type} x;", f".reg .v2 .{type} x;", f".reg .v4 .{type} x<2>;", f".local .{type} x;")
    yield from (".reg .b32 x<3>; mov.b32 x2, 1;", ".reg .b32 x<3>; mov.b32 x3, 1;", "mov.b32 x, 1; .reg .b32 x;")


def parameters() -> Iterator[str]:
    """Which parameters of calls and kernels are read, written, or have an address."""
    accesses = (
        *(f"ld.param{where}.b32 %r0, [{{}}];" for where in ("", "::func", "::entry")),
        *("st.param.b32 [{}], %r0;", "st.param::func.b32 [{}], 1;", "mov.b64 %rd0, {};", "cvta.param.u64 %rd0, {};"),
        *("call (pr), f, (pa); ld.param.b32 %r0, [{}];", "call (pr), f, ({});", "call ({}), f, (1);"),
    )
    for access, name in product(accesses, ("p", "ps", "pa", "pr", "pb", "sm", "ps+4", "nothing")):
        yield access.format(name)


def addresses() -> Iterator[str]:
    """Addresses, their offsets, and addresses that are values."""
    offsets = ["+4", "+-4", "-4", "+%rd1", "+4.0", "+WARP_SZ", "+9223372036854775807"]
    others = [
        "g",
        "g+4",
        "g+%rd0",
        "sm+4",
        "dyn",
        "l",
        "p",
        "c",
        "gv.x",
        "k",
        "%f0",
        "%p0",
        "%v.x",
        "%v",
        "4",
        "1.0",
        "{%rd0}",
        "%rd0,4",
        "_",
    ]
    places = ("%rd0", *(f"%rd0{offset}" for offset in offsets), *others, "")
    accesses = ("ld.global.b32 %r0, [{}];", "ld.shared.b32 %r0, [{}];", "ld.b32 %r0, [{}];", "st.local.b32 [{}], 1;")
    yield from (access.format(place) for access, place in product(accesses, places))
    values = [
        "%rd1",
        "%v",
        "%v.x",
        "g",
        "g+4",
        "sm",
        "dyn",
        "p",
        "c",
        "gv.x",
        "k",
        "vf",
        "nothing",
        "_",
        "%tid",
        "%tid.x",
        "%ctaid.w",
        "{%rd1}",
        "{1,2}",
        "{%r0,%r1}",
        "{%tid.x,%r1}",
        "!%p1",
        "1+2",
        "4294967296",
        "g[",
        "%r1.x",
    ]
    moves = ("mov.b64 %rd0, {};", "mov.u32 %r0, {};", "cvta.global.u64 %rd0, {};", "mov.b32 %r0, {};")
    yield from (move.format(value) for move, value in product(moves, values))


def headers() -> Iterator[str]:
    """Versions, targets with options, sizes of addresses, and their order."""
    order = ".version {}\n.target {}\n.address_size {}"
    for version in ("9.", ".5", "9.5.1", "9.05", "1.0", "9.5f", '"9.5"', "-9.5", "9 .5", "8.9", "7.9", "9.0"):
        yield order.format(version, TARGET, 64)
    options = ("debug", "texmode_unified", "texmode_independent", "map_f64_to_f32", "sm_90", "bogus", "", "sm_90a")
    yield from (order.format("9.5", f"sm_90a, {one}, {two}", 64) for one, two in product(options, repeat=2))
    for target in ("sm_91", "90a", "SM_90a", "sm_9", "sm_90f", "sm_75", "sm_90a sm_90a", *options[1:4], "compute_90"):
        yield from (order.format("9.5", target, size) for size in ("64", "128", "6 4", "", "-64", "64.0", "0x40"))
    lines = (".version 9.5", ".target sm_90a", ".address_size 64", ".global .b32 x;", "// x", ";")
    yield from ("\n".join(some) for some in permutations(lines, 4))


def function_directives() -> Iterator[str]:
    """Directives behind the header of a kernel: their numbers, twice, beside each other."""
    names = (".maxntid", ".reqntid", ".maxnreg", ".minnctapersm", ".maxnctapersm", ".maxclusterrank",
             ".reqnctapercluster", ".explicitcluster", ".noreturn", ".blocksareclusters", ".abi_preserve",
             ".minperctamemory", ".bogus")  # fmt: skip
    numbers = ("0", "1", "300", "-1", "1.5", "WARP_SZ", "0x20", "2+2", "4294967296", "4, 2, 1", "4, 2, 1, 1", "4 2",
               "4;", "{4}", "4,", "")  # fmt: skip
    yield from (f"{name} {number}" for name, number in product(names, numbers))
    yield from (f"{one} 4 {two} 4" for one, two in product(names[:7], repeat=2))
    yield from (f"{one} {two} 2" for one, two in product(names[7:10], names))


def sources() -> Iterator[str]:
    """Files, sections and pragmas of a module."""
    for index, name, end in product(("1", "0", "-1", "1U", "4294967296", "x", ""), ('"x"', "x", '"x'), ("", ", 1, 2")):
        yield f".file {index} {name}{end}"
    yield from ('.file 1 "x" .file 1 "x"', '.file 1 "x"\n.file 1 "y"', '.file 1 "x";', '# 1 "x"', ".pragma x;")
    for type, value in product(("b8", "b16", "b32", "b64", "u8", "f32"), ("1", "-129", "256", "1.5", "x", "x+4", "1,")):
        yield f".section .debug_info {{ .{type} {value} }}"
    for name in (".text", "debug", ".1", ".debug.x", ".debug {", ""):
        yield from (f".section {name} {{ {data} }}" for data in ("x: .b8 1", ".b8 1 .b8 2", "", ";"))


def places() -> Iterator[str]:
    """Places in files, pragmas and sections in a body."""
    for numbers in ("1 1 1", "1 1", "1 -1 1", "a 1 1", "1 1 1.0", "1 1 1 1", "1 1 4294967296", "0x1 01 1U", ""):
        for end in ("", ";", " ret;", ", function_name x", ", inlined_at 1 1 1", ", function_name x, inlined_at 1 2 1"):
            yield f".loc {numbers}{end}"
    names = ("nounroll", "enable_smem_spilling", "frequency 5", "used_bytes_mask 0xf", "bogus", "", "mma_throughput x")
    yield from (form.format(n) for n, form in product(names, ('.pragma "{}";', '.pragma "{}"', "L: .pragma {};")))
    yield from ('.file 1 "x"', ".section .debug_str { .b8 0 }", ".version 9.5", ".address_size 64", ".alias f, f;")


def literals() -> Iterator[str]:
    """Numbers as they may be written, constant expressions, and text between statements."""
    integers = ("00", "010", "08", "0b101", "0b2", "0x", "0xfF", "1u", "1UL", "1l", "1e3", "1.", ".5", "0f3F80000",
                "0F3f800000", "0d3FF", "1_000", "'a'", "+1", "--1", "- 1", "18446744073709551616", "nan", "0x1p3",
                "1e400", "-0.0", "1 2", "1/**/", "1#", "0f7F800000", "0d7FF0000000000000", "1.0f")  # fmt: skip
    moves = ("mov.u32 %r0, {};", "mov.b64 %rd0, {};", "add.f32 %f0, %f1, {};", ".local .b8 x[{}];")
    yield from (move.format(text) for move, text in product(moves, integers))
    operators = ("+", "-", "*", "/", "%", "<<", ">>", "<", ">=", "==", "!=", "&", "|", "^", "&&", "||", "?", "(")
    for operator, (one, two) in product(
        operators, (("7", "2"), ("7.0", "2.0"), ("7", "0"), ("7", "2.0"), ("-7", "~2"))
    ):
        yield from (move.format(f"{one} {operator} {two}") for move in moves[:3])
    for text in (
        "(s64)1",
        "(.s64)-1",
        "!1",
        "1?2",
        "0?1:2?3:4",
        "1.0?2:3",
        "1<<64",
        "1<<-1",
        "%tid.x+1",
        "4+sm",
        "1,2",
    ):
        yield from (move.format(text) for move in moves)
    yield from ("/* a", "a */", "// x", "#pragma", "ret", "ret;;", "RET;", "r et;", "mov.u32%r0,1;", "mov .u32 %r0, 1;",
                "@%p0ret;", "@ ! %p0 ret;", "@%p0 @%p1 ret;", "{}", "{;}", "mov.u32 %r0 1;", "mov.u32 %r0,, 1;",
                "L : ret;", ":ret;", "mov.u32 %R0, 1;", "mov.u32 %r00, 1;", "%r0: ret;")  # fmt: skip


def vectors() -> Iterator[str]:
    """Vector registers, their parts, and vectors in braces."""
    values = ("%v", "%v.x", "%v.r", "%v.q", "%v.xy", "%v0", "{%v.x, %v.y}", "{%v}", "{%v, %v}", "{%v.x,%v.y,%v.z,%v.w}",
              "{%r0,%r1}", "{%r0,%f1}", "{%p0,%p1}", "{1,2}", "{_,%r1}", "{_,_}", "{}", "{%r0,}", "{{%r0,%r1}}",
              "%r0.x", "%p0.x")  # fmt: skip
    uses = ("mov.b64 %rd0, {};", "mov.b64 {}, %rd0;", "ld.global.v2.b32 {}, [%rd0];", "st.global.v4.b32 [%rd0], {};",
            "mov.b32 %r0, {};", "mov.v4.b32 %v, {};", "mov.v4.b32 {}, %v;", "add.u32 %r0, %r1, {};")  # fmt: skip
    yield from (use.format(value) for use, value in product(uses, values))


def guards() -> Iterator[str]:
    """Guards, right and wrong, in front of statements of all kinds."""
    forms = ("@%p0", "@!%p0", "@!!%p0", "@ ! %p0", "@-%p0", "@(%p0)", "@%p0,", "@1", "@%r0", "@p", "@_", "@%tid.x",
             "@%v.x", "@[%p0]", "@@%p0", "!%p0", "@")  # fmt: skip
    statements = ("ret;", "bra L; L:", "call vf;", ".reg .b32 z;", "{ ret; }", "L2: ret;", "bar.sync 0;")
    yield from (f"{form} {statement}" for form, statement in product(forms, statements))


def special_registers() -> Iterator[str]:
    """Special registers, those that there are and others, read in several widths and written."""
    names = ("%tid", "%tid.x", "%tid.w", "%tid.q", "%ntid.y", "%laneid", "%laneid.x", "%clock", "%clock64", "%gridid",
             "%envreg0", "%envreg32", "%pm0_64", "%pm8", "%clusterid.x", "%is_explicit_cluster", "%current_graph_exec",
             "%reserved_smem_offset_2", "%perctamemorysize", "%locality_domain_id", "%bogus", "%TID.x")  # fmt: skip
    uses = ("mov.u32 %r0, {};", "mov.u64 %rd0, {};", "mov.b16 %h0, {};", "mov.pred %p0, {};", "cvt.u64.u32 %rd0, {};",
            "add.u32 %r0, %r1, {};", "mov.u32 {}, %r0;", "mov.v4.u32 %v, {};")  # fmt: skip
    yield from (use.format(name) for use, name in product(uses, names))


GROUPS = {
    each.__name__: (template, each)
    for template, some in (
        (f"{HEAD}{MODULE}", (initial_values, variables, functions, sources)),
        (
            f"{HEAD}{BODY}",
            (calls, labels, scopes, parameters, addresses, places, literals, vectors, guards, special_registers),
        ),
        (f"{HEAD}{ENTRY}", (function_directives,)),
        (f"GAP\n{MODULE.replace('GAP', '')}", (headers,)),
    )
    for each in some
}
EXPLAINED = {
    r"a \.f16x2 variable has no initial value": "5.4.4: initialisers are for all types but .f16, .f16x2, .pred",
    r"the parameters of a kernel are no vectors": "11.2.1: parameters are base types, and arrays of them",
    r"there is no label 'P' here": "11.3.1: the list names labels of control flow; ptxas takes the list's own label",
    r"an offset needs brackets around a register": "6.4.1: a register with an offset is an address, which has brackets",
    r"'\.alias' stands outside of functions": "11.2.3: .alias is a directive of a module; ptxas takes it in a body",
    r"unknown target": "11.1.2: .target names one of the architectures there are; ptxas takes what begins like one",
    r"expected \.address_size 32 or 64": "11.1.3: .address_size is 32 or 64; ptxas takes other spellings of 64",
    r"'%r\d' is declared twice": "5.4.7: %r<8> declares %r0 to %r7, and a name stands once in a scope",
    r"no \.reg declares '%r0\d'": "5.4.7: the names are %r0 to %r7; ptxas reads the digits as a number",
    r"the address of '\w+' takes 64 bits": "9.7.9.3: of an address of 64 bits .u32 holds half; ptxas takes one with +4",
}
"""What we refuse and ptxas takes, by our message, with the sentence that says so."""


def explained(message: str) -> bool:
    opcode = re.match(r"'?([a-z][\w.:]*?)(?:'|: )", message)
    return any(re.search(pattern, message) for pattern in EXPLAINED) or bool(
        reason(opcode[1] if opcode else "", message, TARGET)
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("group", GROUPS)
def test_programs_changed_in_one_place(group: str) -> None:
    template, changes = GROUPS[group]
    every = list(dict.fromkeys(changes()))
    wrong: list[str] = []
    for change in every if FULL else random.Random(group).sample(every, SAMPLE):
        text = template.replace("GAP", change)
        said, failed = ptxas(text, TARGET)
        ours = next((d.message for d in check_text(text).diagnostics), "")
        crashed = failed and "error" not in said and "fatal   : " not in said
        if failed != bool(ours) and not crashed and not (ours and explained(ours)):
            wrong.append(f"{change}: {ours or said}")
    assert not wrong
