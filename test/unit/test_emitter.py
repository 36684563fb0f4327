"""The emitter: one statement per value, as far out as it is known, and none that nothing reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from statements import keep, name
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import DiagnosticException

from warploom.dialect.isa.row import target
from warploom.dialect.ptx.instruction import InstOp, InstructionError
from warploom.dialect.ptx.instructions import find
from warploom.dialect.ptx.ops import CommentOp, LabelOp, RegOp
from warploom.dialect.ptx.text.syntax import Address, Register, Symbol
from warploom.passes.to_ptx import emitter as emitters
from warploom.passes.to_ptx.emitter import (
    At,
    EmittedOperand,
    Emitter,
    VirtualRegister,
    single,
)
from warploom.passes.to_ptx.scalars import common_divisor, divisor_of, split

TILE = Address(Symbol("tile"))


def opcodes(emitter: Emitter) -> list[str]:
    """The opcodes of the function's instructions."""
    return [name(op) for op in emitter.finish() if isinstance(op, InstOp)]


@pytest.fixture
def emitter() -> Emitter:
    return Emitter(target("sm_90a"))


@pytest.fixture
def thread(emitter: Emitter) -> VirtualRegister:
    return emitter.pure("mov.u32", Register("%tid.x"))


def test_a_pure_value_is_emitted_once(emitter: Emitter, thread: VirtualRegister) -> None:
    first = emitter.pure("shr.u32", thread, 5)
    assert emitter.pure("shr.u32", thread, 5) is first
    assert emitter.pure("mov.u32", Register("%tid.x")) is thread
    keep(emitter, first)
    assert opcodes(emitter) == ["mov.u32", "shr.u32", "keep"]


def test_values_differ_by_opcode_form_and_sources(emitter: Emitter, thread: VirtualRegister) -> None:
    shifts = [
        emitter.pure("shr.u32", thread, 5),
        emitter.pure("shl.b32", thread, 5),
        emitter.pure("shr.u32", thread, 4),
    ]
    shifts.append(emitter.pure("shr.u32", shifts[0], 5))
    assert len({id(r) for r in shifts}) == 4


def test_an_instruction_with_effects_is_emitted_each_time(emitter: Emitter) -> None:
    for _ in range(2):
        emitter.emit("bar.sync", 0)
    assert opcodes(emitter) == ["bar.sync", "bar.sync"]


def test_a_pure_value_leaves_the_loops_that_do_not_change_it(emitter: Emitter, thread: VirtualRegister) -> None:
    with emitter.loop():
        assert emitter.level == 1
        counter = emitter.register("b32")
        emitter.emit("mov.b32", counter, 0)
        with emitter.loop():
            inner = emitter.compute("ld.shared.b32", TILE)
            values = [emitter.pure("shr.u32", source, 5) for source in (thread, counter, inner)]
            both = emitter.pure("add.s32", thread, counter)
            keep(emitter, *values, both)
    assert [v.level for v in (*values, both)] == [0, 1, 2, 1]
    assert emitter.level == 0
    assert opcodes(emitter) == [
        *("mov.u32", "shr.u32"),
        *("mov.b32", "shr.u32", "add.s32"),
        *("ld.shared.b32", "shr.u32", "keep", "keep", "keep", "keep"),
    ]


def test_a_value_known_outside_is_used_inside(emitter: Emitter, thread: VirtualRegister) -> None:
    outside = emitter.pure("shr.u32", thread, 5)
    with emitter.loop():
        assert emitter.pure("shr.u32", thread, 5) is outside


def test_a_value_first_needed_inside_is_known_after_the_loop(emitter: Emitter, thread: VirtualRegister) -> None:
    with emitter.loop():
        inside = emitter.pure("shr.u32", thread, 5)
    assert emitter.pure("shr.u32", thread, 5) is inside


def test_values_of_one_loop_are_not_those_of_the_next(emitter: Emitter) -> None:
    with emitter.loop():
        first = emitter.register("b32")
        emitter.pure("shr.u32", first, 5)
    with emitter.loop():
        second = emitter.register("b32")
        emitter.emit("mov.b32", second, 0)
        keep(emitter, emitter.pure("shr.u32", second, 5))
    assert opcodes(emitter) == ["mov.b32", "shr.u32", "keep"]


def test_predicates_stay_where_they_are_used(emitter: Emitter, thread: VirtualRegister) -> None:
    outside = emitter.pure("setp.lt.s32", thread, 5)
    with emitter.loop():
        inside = emitter.pure("setp.lt.s32", thread, 5)
        assert inside is not outside
        assert inside.level == 1
        assert emitter.pure("setp.lt.s32", thread, 5) is inside
        emitter.emit("bar.sync", 0, guard=inside)
    assert opcodes(emitter) == ["mov.u32", "setp.lt.s32", "bar.sync"]


def test_values_of_predicates_stay_with_them(emitter: Emitter, thread: VirtualRegister) -> None:
    with emitter.loop():
        predicate = emitter.pure("setp.lt.s32", thread, 5)
        assert emitter.pure("selp.b32", 16, 0, predicate).level == 1


def test_pure_statements_nothing_reads_are_dropped_with_their_sources(
    emitter: Emitter, thread: VirtualRegister
) -> None:
    used = emitter.pure("shr.u32", thread, 5)
    unused = emitter.pure("shl.b32", used, 2)
    emitter.pure("add.s32", unused, 1)
    emitter.compute("ld.shared.b32", TILE)
    assert opcodes(emitter) == ["ld.shared.b32"]


def test_what_a_guard_or_an_address_reads_is_kept(emitter: Emitter, thread: VirtualRegister) -> None:
    guard = emitter.pure("setp.lt.s32", thread, 5)
    emitter.emit("st.shared.b32", At(thread), thread, guard=guard)
    assert opcodes(emitter) == ["mov.u32", "setp.lt.s32", "st.shared.b32"]
    store = emitter.finish()[-1]
    assert isinstance(store, InstOp)
    assert store.spelling() == ("st.shared.b32", "[?], ?", "@")
    assert len(store.operands) == 3


def test_registers_are_declared_by_type_and_numbered_by_appearance(emitter: Emitter, thread: VirtualRegister) -> None:
    halves, wide, zero = emitter.registers("b16", 2), emitter.register("b64"), emitter.register("f32")
    emitter.emit("mov.b32", halves, thread)
    emitter.emit("mov.f32", zero, single(0.0))
    emitter.emit("mov.b64", wide, 0)
    declared = [op for op in emitter.finish() if isinstance(op, RegOp)]
    assert [(op.results[0].name_hint, len(op.results)) for op in declared] == [
        ("h0", 2),
        ("r0", 1),
        ("f0", 1),
        ("rd0", 1),
    ]


def test_labels_and_comments_keep_their_place(emitter: Emitter) -> None:
    names = [emitter.fresh_label(stem) for stem in ("loop", "loop", "end")]
    assert names == ["loop_1", "loop_2", "end_3"]
    emitter.label(names[0])
    emitter.comment("as it is")
    emitter.branch(names[0])
    kinds = [type(op) for op in emitter.finish()]
    assert kinds == [LabelOp, CommentOp, InstOp]


def test_an_empty_function() -> None:
    assert Emitter(target("sm_80")).finish() == []


def test_divisors() -> None:
    register = VirtualRegister("b32", divisor=12)
    assert [divisor_of(v) for v in (register, 8, -8, 0)] == [12, 8, 8, 0]
    assert common_divisor((register, 8)) == common_divisor((8, register, 0)) == 4
    assert common_divisor((0, register)) == 12
    assert common_divisor(()) == 0


def test_split() -> None:
    base = VirtualRegister("b32")
    assert split(7) == (None, 7)
    assert split(base) == (base, 0)
    assert split(VirtualRegister("b32", base=base, offset=-3)) == (base, -3)


def test_what_is_set_follows_from_the_row(emitter: Emitter, thread: VirtualRegister) -> None:
    of = {
        opcode: emitter.compute(opcode, *sources).type
        for opcode, sources in {
            "mul.wide.s32": (thread, 3),
            "setp.lt.u32": (thread, 3),
            "cvt.rn.f32.s32": (thread,),
            "cvt.rn.bf16x2.f32": (single(1.0), single(2.0)),
            "cvt.rn.satfinite.e4m3x2.f32": (single(1.0), single(2.0)),
            "cvt.f64.f32": (single(1.0),),
        }.items()
    }
    assert list(of.values()) == ["b64", "pred", "f32", "b32", "b16", "f64"]
    assert emitter.compute("mov.b32", thread, type="f32").type == "f32"


@pytest.mark.parametrize(
    ("opcode", "sources", "version"),
    [
        ("add.s32", (1, 2), (7, 0)),
        ("mbarrier.test_wait.parity.shared.b64", (TILE, 0), (7, 1)),
        ("mov.u32", (Register("%dynamic_smem_size"),), (7, 0)),
        ("mov.u32", (Register("%reserved_smem_offset_0"),), (7, 6)),
    ],
)
def test_the_version_is_that_of_the_instructions(
    opcode: str, sources: tuple[EmittedOperand, ...], version: tuple[int, int]
) -> None:
    emitter = Emitter(target("sm_80"))
    emitter.compute(opcode, *sources)
    emitter.finish()
    assert emitter.version == version


@pytest.mark.parametrize(
    ("on", "opcode", "sources", "message"),
    [
        ("sm_80", "tanh.approx.bf16x2", (VirtualRegister("b32"),), "needs sm_90 or later; the target is sm_80"),
        ("sm_80", "mov.u32", (Register("%cluster_ctarank"),), "needs sm_90 or later; the target is sm_80"),
        ("sm_90", "setmaxnreg.inc.sync.aligned.u32", (), "expected 1 operands"),
        ("sm_80", "vote.ballot.b32", (VirtualRegister("pred"),), "needs a version before PTX 6.4; the target is sm_80"),
    ],
)
def test_an_instruction_that_the_target_lacks_is_an_error(
    on: str, opcode: str, sources: tuple[EmittedOperand, ...], message: str
) -> None:
    emitter = Emitter(target(on))
    with pytest.raises(InstructionError, match=re.escape(message)):
        emitter.emit(opcode, *((emitter.register("b32"), *sources) if sources else ()))


def test_what_nothing_reads_needs_no_version() -> None:
    emitter = Emitter(target("sm_80"))
    emitter.pure("mov.u32", Register("%reserved_smem_offset_0"))
    emitter.finish()
    assert emitter.version == (7, 0)


Wrong = tuple[str, tuple[EmittedOperand, ...], str]

WRONG: list[Wrong] = [
    ("adds.s32", (1, 2), "'adds.s32' is not a PTX instruction known here; the nearest are add"),
    ("add.s32", (1, 2, 3), "expected 3 operands"),
    ("add.s64", (VirtualRegister("b32"), 1), "operand a: expected a register that holds .s64, got .b32"),
    ("add.f32", (single(1.0), 1), "operand b: expected a floating-point literal"),
    (
        "ld.shared.b32",
        (At(VirtualRegister("f64")),),
        "expected an address in a 32 or 64-bit integer register, got a .f64",
    ),
    ("bar.sync", (16,), "operand a: "),
    ("st.global.v2.b32", (At(VirtualRegister("b64")), [VirtualRegister("b32")]), "expected a vector of 2 x .b32"),
]


@pytest.mark.parametrize(("opcode", "operands", "message"), WRONG)
def test_what_no_row_allows_is_an_error(
    emitter: Emitter, opcode: str, operands: tuple[EmittedOperand, ...], message: str
) -> None:
    emit = emitter.compute if opcode[0] in "al" else emitter.emit
    for _ in range(2):
        with pytest.raises(InstructionError, match=re.escape(message)):
            emit(opcode, *operands)
    emitter.operation = ModuleOp([])
    with pytest.raises(
        DiagnosticException, match=f"convert-warp-to-ptx cannot make builtin.module of .*{re.escape(message)}"
    ):
        emit(opcode, *operands)


def test_literals_are_looked_at_each_time(emitter: Emitter) -> None:
    emitter.emit("setmaxnreg.inc.sync.aligned.u32", 232)
    with pytest.raises(InstructionError, match="expected"):
        emitter.emit("setmaxnreg.inc.sync.aligned.u32", 233)
    emitter.emit("setmaxnreg.inc.sync.aligned.u32", 240)


@pytest.mark.parametrize("source", [Register("%clock"), Register("%globaltimer_lo")])
def test_a_value_that_changes_by_itself_is_not_pure(emitter: Emitter, source: Register) -> None:
    assert emitter.compute("mov.u32", source).type == "b32"
    with pytest.raises(InstructionError, match="does not follow from its operands alone"):
        emitter.pure("mov.u32", source)


def test_a_shuffle_is_not_pure(emitter: Emitter, thread: VirtualRegister) -> None:
    with pytest.raises(InstructionError, match="does not follow from its operands alone"):
        emitter.pure("shfl.sync.bfly.b32", thread, 1, 31, -1)


def test_text_is_no_operand(emitter: Emitter) -> None:
    with pytest.raises(TypeError, match="expected an operand of an instruction, got '0'"):
        emitter.emit("bar.sync", "0")  # pyright: ignore[reportArgumentType]


def test_a_guard_is_a_predicate(emitter: Emitter, thread: VirtualRegister) -> None:
    with pytest.raises(InstructionError, match=r"bar\.sync: expected a predicate as guard, got \.b32"):
        emitter.emit("bar.sync", 0, guard=thread)
    with pytest.raises(InstructionError, match=r"bra: expected a predicate as guard, got \.b32"):
        emitter.branch("end", unless=thread)
    emitter.emit("bar.sync", 0, guard=False)
    assert opcodes(emitter) == []


LOWERINGS = sorted(Path(emitters.__file__).parent.glob("*.py"))
EMITS = ("emit", "compute", "pure", "_emit", "_pure", "i", "self")


def written_out(path: Path) -> Iterator[str]:
    """The opcodes that a module emits and that stand there as they are."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in EMITS and isinstance(node.args[0].value, str):
                yield node.args[0].value


def test_opcodes_that_are_written_out_are_in_the_table() -> None:
    opcodes = {opcode for path in LOWERINGS for opcode in written_out(path)}
    assert len(opcodes) > 80
    assert not [opcode for opcode in opcodes if not find(opcode)]


def test_what_elements_are_computed_with_is_pure() -> None:
    """`Instructions` computes the same of the same only once."""
    opcodes = [opcode for path in LOWERINGS if path.stem in ("functions", "elements") for opcode in written_out(path)]
    assert len(opcodes) > 40
    assert not [opcode for opcode in opcodes if not all(row.pure for row, _ in find(opcode))]
