"""The emitter: one statement per value, as far out as it is known, and none that nothing reads."""

from __future__ import annotations

import pytest
from statements import keep

from warploom.dialect.ptx.declarations import RegOp
from warploom.dialect.ptx.instruction import InstOp
from warploom.dialect.ptx.ops import CommentOp, LabelOp
from warploom.passes.to_ptx.emitter import Emitter, VirtualRegister, common_divisor, divisor_of, split


def opcodes(emitter: Emitter) -> list[str]:
    """The opcodes of the function's instructions."""
    return [op.spelling()[0] for op in emitter.finish() if isinstance(op, InstOp)]


@pytest.fixture
def emitter() -> Emitter:
    return Emitter()


@pytest.fixture
def thread(emitter: Emitter) -> VirtualRegister:
    return emitter.pure("b32", "mov.u32", "%tid.x")


def test_a_pure_value_is_emitted_once(emitter: Emitter, thread: VirtualRegister) -> None:
    first = emitter.pure("b32", "shr.u32", "?, 5", thread)
    assert emitter.pure("b32", "shr.u32", "?, 5", thread) is first
    assert emitter.pure("b32", "mov.u32", "%tid.x") is thread
    keep(emitter, first)
    assert opcodes(emitter) == ["mov.u32", "shr.u32", "keep"]


def test_values_differ_by_opcode_form_and_sources(emitter: Emitter, thread: VirtualRegister) -> None:
    shifts = [
        emitter.pure("b32", "shr.u32", "?, 5", thread),
        emitter.pure("b32", "shl.b32", "?, 5", thread),
        emitter.pure("b32", "shr.u32", "?, 4", thread),
    ]
    shifts.append(emitter.pure("b32", "shr.u32", "?, 5", shifts[0]))
    assert len({id(r) for r in shifts}) == 4


def test_an_instruction_with_effects_is_emitted_each_time(emitter: Emitter) -> None:
    for _ in range(2):
        emitter.emit("bar.sync", "0")
    assert opcodes(emitter) == ["bar.sync", "bar.sync"]


def test_a_pure_value_leaves_the_loops_that_do_not_change_it(emitter: Emitter, thread: VirtualRegister) -> None:
    with emitter.loop():
        assert emitter.level == 1
        counter = emitter.register("b32")
        emitter.emit("mov.b32", "?, 0", counter)
        with emitter.loop():
            inner = emitter.register("b32")
            emitter.emit("ld.shared.b32", "?, [0]", inner)
            values = [emitter.pure("b32", "shr.u32", "?, 5", source) for source in (thread, counter, inner)]
            both = emitter.pure("b32", "add.s32", "?, ?", thread, counter)
            keep(emitter, *values, both)
    assert [v.level for v in (*values, both)] == [0, 1, 2, 1]
    assert emitter.level == 0
    assert opcodes(emitter) == [
        *("mov.u32", "shr.u32"),
        *("mov.b32", "shr.u32", "add.s32"),
        *("ld.shared.b32", "shr.u32", "keep", "keep", "keep", "keep"),
    ]


def test_a_value_known_outside_is_used_inside(emitter: Emitter, thread: VirtualRegister) -> None:
    outside = emitter.pure("b32", "shr.u32", "?, 5", thread)
    with emitter.loop():
        assert emitter.pure("b32", "shr.u32", "?, 5", thread) is outside


def test_a_value_first_needed_inside_is_known_after_the_loop(emitter: Emitter, thread: VirtualRegister) -> None:
    with emitter.loop():
        inside = emitter.pure("b32", "shr.u32", "?, 5", thread)
    assert emitter.pure("b32", "shr.u32", "?, 5", thread) is inside


def test_values_of_one_loop_are_not_those_of_the_next(emitter: Emitter) -> None:
    with emitter.loop():
        first = emitter.register("b32")
        emitter.pure("b32", "shr.u32", "?, 5", first)
    with emitter.loop():
        second = emitter.register("b32")
        emitter.emit("mov.b32", "?, 0", second)
        keep(emitter, emitter.pure("b32", "shr.u32", "?, 5", second))
    assert opcodes(emitter) == ["mov.b32", "shr.u32", "keep"]


def test_predicates_stay_where_they_are_used(emitter: Emitter, thread: VirtualRegister) -> None:
    outside = emitter.pure("pred", "setp.lt.s32", "?, 5", thread)
    with emitter.loop():
        inside = emitter.pure("pred", "setp.lt.s32", "?, 5", thread)
        assert inside is not outside
        assert inside.level == 1
        assert emitter.pure("pred", "setp.lt.s32", "?, 5", thread) is inside
        emitter.emit("bar.sync", "0", guard=inside)
    assert opcodes(emitter) == ["mov.u32", "setp.lt.s32", "bar.sync"]


def test_values_of_predicates_stay_with_them(emitter: Emitter, thread: VirtualRegister) -> None:
    with emitter.loop():
        predicate = emitter.pure("pred", "setp.lt.s32", "?, 5", thread)
        assert emitter.pure("b32", "selp.b32", "16, 0, ?", predicate).level == 1


def test_pure_statements_nothing_reads_are_dropped_with_their_sources(
    emitter: Emitter, thread: VirtualRegister
) -> None:
    used = emitter.pure("b32", "shr.u32", "?, 5", thread)
    unused = emitter.pure("b32", "shl.b32", "?, 2", used)
    emitter.pure("b32", "add.s32", "?, 1", unused)
    emitter.emit("ld.shared.b32", "?, [0]", emitter.register("b32"))
    assert opcodes(emitter) == ["ld.shared.b32"]


def test_what_a_guard_or_an_address_reads_is_kept(emitter: Emitter, thread: VirtualRegister) -> None:
    guard = emitter.pure("pred", "setp.lt.s32", "?, 5", thread)
    emitter.emit("st.shared.b32", "[?], ?", thread, thread, guard=guard)
    assert opcodes(emitter) == ["mov.u32", "setp.lt.s32", "st.shared.b32"]
    store = emitter.finish()[-1]
    assert isinstance(store, InstOp)
    assert store.spelling() == ("st.shared.b32", "[?], ?", "@")
    assert len(store.operands) == 3


def test_registers_are_declared_by_type_and_numbered_by_appearance(emitter: Emitter, thread: VirtualRegister) -> None:
    halves, wide, single = emitter.registers("b16", 2), emitter.register("b64"), emitter.register("f32")
    emitter.emit("mov.b32", "{?, ?}, ?", *halves, thread)
    emitter.emit("mov.f32", "?, 0f00000000", single)
    emitter.emit("mov.b64", "?, 0", wide)
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
    emitter.emit("bra", names[0])
    kinds = [type(op) for op in emitter.finish()]
    assert kinds == [LabelOp, CommentOp, InstOp]


def test_an_empty_function() -> None:
    assert Emitter().finish() == []


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
