"""The `ptx` dialect from Python: building, printing, rows, the verifier."""

from __future__ import annotations

import io

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.test import TestOp
from xdsl.irdl import OpDef
from xdsl.utils.exceptions import VerifyException

from warploom.dialect.isa.row import CONSTANT, SCALAR, VECTOR, Slot
from warploom.dialect.ptx import ops as ptx
from warploom.dialect.ptx.instruction import InstOp, RegisterType
from warploom.dialect.ptx.instructions import canonical, every_row, find, nearest
from warploom.dialect.ptx.ops import PtxEmissionError, RegOp, VariableAttr, VarOp, print_ptx
from warploom.dialect.ptx.printer import PtxTarget
from warploom.dialect.ptx.rows import opaque, tcgen05
from warploom.dialect.ptx.rows.grammar import row, slot
from warploom.dialect.ptx.text.syntax import Variable, compatible


def module(*ops: ptx.FuncOp | VarOp) -> ptx.ModuleOp:
    return ptx.ModuleOp("kernels", ops, version="8.0", target="sm_80")


def large(count: int) -> ptx.ModuleOp:
    r, f = RegOp("b32", "%r", 8), RegOp("f32", "%f", 4)
    d, a = list(f.results), list(r.results)
    form = "{?, ?, ?, ?}, {?, ?, ?, ?}, {?, ?}, {?, ?, ?, ?}"
    opcode = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    return module(ptx.FuncOp("k", [r, f, *(InstOp.of(opcode, form, [*d, *a[:6], *d]) for _ in range(count))]))


def test_names_come_from_the_declaration() -> None:
    r, p = RegOp("b32", "%r", 2), RegOp("pred", "%p")
    copy = InstOp.of("mov.u32", "?, %tid.x", [p.results[0], r.results[1]], "@!")
    text = print_ptx(module(ptx.FuncOp("k", [r, p, copy], parameters=[VariableAttr.of("u64", "a")])))
    assert "@!%p mov.u32 %r1, %tid.x;" in text
    assert ".param .u64 a" in text
    assert r.names() == ["%r0", "%r1"]


def test_variables_come_back() -> None:
    for variable in (
        Variable("shared", "b8", "s", count=0, align=16, linking="extern"),
        Variable("global", "f32", "g", count=6, dimensions=(2, 3), vector=2, init="{1}"),
        Variable("param", "u64", "p", pointer=".ptr .global .align 16"),
    ):
        assert VarOp(variable).variable == variable


def test_what_is_accepted_is_not_verified_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by its own verifier nor by that of all operations, which takes a fifth of a compilation."""
    again = InstOp.of("mov.u32", "?, %ctaid.y", [RegOp("b32", "%r", 1).results[0]])
    again.verify()

    def verify(*_: object) -> None:
        raise AssertionError("verified again")

    monkeypatch.setattr(OpDef, "verify", verify)
    again.clone().verify()
    with pytest.raises(AssertionError, match="again"):
        InstOp.of("mov.u32", "?, %ctaid.z", [RegOp("b32", "%r", 1).results[0]]).verify()


def test_an_accepted_instruction_does_not_vouch_for_another_target() -> None:
    r = RegOp("b32", "%r", 1)
    load = InstOp.of("ldmatrix.sync.aligned.m8n8.x1.shared.b16", "{?}, [?]", [r.results[0]] * 2)
    kernel = module(ptx.FuncOp("k", [r, load]))
    kernel.verify()
    old = ptx.ModuleOp("old", kernel.detach_region(kernel.body), version="8.0", target="sm_70")
    with pytest.raises(VerifyException, match="needs sm_75 or later, the module's target is sm_70"):
        old.verify()


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (ptx.FuncOp("k", [], linking="hidden"), 'expected linking "", visible, weak or extern, got "hidden"'),
        (InstOp.of("ret", "", [], "%"), "takes 1 registers, got 0"),
        (InstOp.of("ret", "?"), "takes 1 registers, got 0"),
        (InstOp.of("mov.u32", "[?", [RegOp("b32", "%r", 1).results[0]]), "expected an address"),
    ],
)
def test_errors(op: ptx.FuncOp | InstOp, message: str) -> None:
    with pytest.raises(VerifyException, match=message.replace("[", r"\[")):
        op.verify()


def test_guard_is_one_of_two() -> None:
    with pytest.raises(VerifyException, match='expected the guard "@" or "@!"'):
        InstOp.of("ret", "", [RegOp("pred", "%p").results[0]], "%").verify()


def test_two_blocks_are_no_function() -> None:
    function = ptx.FuncOp("k", [ptx.LabelOp("a")])
    other = ptx.FuncOp("o", [ptx.LabelOp("b")])
    function.body.add_block(other.body.detach_block(0))
    with pytest.raises(VerifyException):
        function.verify()


def test_registers_of_one_declaration_have_one_type() -> None:
    op = RegOp.create(
        properties=RegOp("b32", "%r", 2).properties, result_types=[RegisterType.of("b32"), RegisterType.of("f32")]
    )
    with pytest.raises(VerifyException, match="must have one type"):
        op.verify()


def test_printing_errors() -> None:
    r = RegOp("b32", "%r", 1)
    with pytest.raises(
        PtxEmissionError, match=r"operand 0 of 'mov.u32' is a register that no ptx.reg above it declares"
    ):
        print_ptx(module(ptx.FuncOp("k", [InstOp.of("mov.u32", "?, 1", [r.results[0]])])))
    with pytest.raises(PtxEmissionError, match=r"'test.op' is not an operation of the ptx dialect"):
        print_ptx(module(ptx.FuncOp("k", [TestOp()])))
    with pytest.raises(PtxEmissionError, match=r"'test.op' cannot stand at the top of a PTX module"):
        print_ptx(ptx.ModuleOp("m", [TestOp()], version="8.0", target="sm_80"))


def test_target_selects_a_module() -> None:
    first, second = large(1), ptx.ModuleOp("second", [], version="8.0", target="sm_90")
    both = ModuleOp([first, second])
    out = io.StringIO()
    PtxTarget(module="second").emit(Context(), both, out)
    assert ".target sm_90" in out.getvalue()
    with pytest.raises(PtxEmissionError, match="found 2: @kernels, @second"):
        PtxTarget().emit(Context(), both, out)
    with pytest.raises(PtxEmissionError, match=r"there is no ptx.module @third; found: kernels, second"):
        PtxTarget(module="third").emit(Context(), both, out)
    with pytest.raises(PtxEmissionError, match="has not been lowered"):
        PtxTarget().emit(Context(), ModuleOp([]), out)


def test_grammar() -> None:
    example = row("op{.x,.y}.{a,b}{V=.v2}.T{u16,u32}", "d|p:T, a:V*T+, ?n:imm(1/2)", "1")
    assert (example.root, example.size, len(example.samples())) == ("op", 24, 6)
    assert example.match("op.x.b.v2.u32") == {"V": "v2", "T": "u32"}
    assert example.match("op.a.u16") == {"V": "", "T": "u16"}
    assert example.match("op.x.u16") is None
    d, n = Slot("d", type="T", written=True, pair="|"), Slot("n", CONSTANT, optional=True, span="1/2")
    vector = Slot("a", VECTOR, "T", size="V", braces=True, wider=True)
    assert example.operands == (d, vector, n)
    (bound,) = example.signatures_of({"V": "v2", "T": "u32"})
    assert bound[1] == Slot("a", VECTOR, "u32", 2, braces=True, wider=True, own=True)
    assert example.signatures_of({"V": "", "T": "u16"})[0][1].kind == SCALAR
    with pytest.raises(ValueError, match="expected an operand such as d:T, got 'd'"):
        slot("d")


def test_qualifiers_in_any_order() -> None:
    """But types and state spaces keep theirs among themselves, and the opcode's name stays what it is."""
    example = row("op{.x.y,.z}.A{u16,f16}.B{u16,f16}{.global,.local}.shared", "d:A, a:B", "1")
    assert example.match("op.shared.u16.y.f16") is None
    assert example.match("op.global.u16.y.f16.x.shared") == {"A": "u16", "B": "f16"}
    assert example.match("op.shared.f16.global.u16") is None
    assert example.match("op.f16.shared.z.u16") == {"A": "f16", "B": "u16"}
    assert example.match("op.f16.shared.z.z.u16") is None
    assert example.canonical("op.global.u16.y.f16.x.shared") == "op.x.y.u16.f16.global.shared"
    assert example.canonical("op.x.y.u16.f16.shared") == "op.x.y.u16.f16.shared"
    assert canonical("mad.lo.u32.cc") == "mad.lo.cc.u32"
    assert canonical("wmma.load.a.aligned.sync.f16.m8n32k16.row") == "wmma.load.a.sync.aligned.row.m8n32k16.f16"
    assert canonical("nothing.at.all") == "nothing.at.all"
    assert not find("mad.u32.lo.cc")


def test_rows_are_well_formed() -> None:
    for each in every_row():
        assert each.section.startswith("9.7."), each
        assert each.operands is not None
        assert all(each.match(spelling) is not None for spelling in each.samples())


def test_rows_that_are_imported_when_asked_for_begin_as_no_other() -> None:
    rare = (*tcgen05.TENSOR_CORE_ROWS, *opaque.TEXTURE_ROWS, *opaque.FABRIC_ROWS)
    others = every_row()[: -len(rare)]
    assert every_row()[-len(rare) :] == rare
    assert {row.root for row in rare}.isdisjoint(row.root for row in others)


def test_nearest_names_what_exists() -> None:
    for wrong in (
        "add.s8",
        "ld.global.v3.b32",
        "mma.sync.aligned.m16n8k16.row.col.f64.f16.f16.f64",
        "ldmatrix.sync.b16",
    ):
        assert nearest(wrong)
        assert all(find(close) for close in nearest(wrong))
    assert nearest("ad.s32")
    assert nearest("zzzz") == ()


@pytest.mark.parametrize(
    ("instruction", "register", "wider", "fits"),
    [
        ("u32", "s32", False, True),
        ("u32", "b32", False, True),
        ("f32", "b32", False, True),
        ("f32", "u32", False, False),
        ("u32", "b64", False, False),
        ("b16", "f32", False, False),
        ("u8", "u32", True, True),
        ("u64", "u32", True, False),
        ("bf16x2", "b32", False, True),
        ("bf16x2", "u32", False, False),
        ("pred", "b32", False, False),
    ],
)
def test_register_compatibility(instruction: str, register: str, wider: bool, fits: bool) -> None:
    assert compatible(instruction, register, wider=wider) == fits
