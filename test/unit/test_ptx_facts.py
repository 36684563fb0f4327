"""What the table says of instructions before they are made: purity, versions, types of results."""

from __future__ import annotations

import pytest

from warploom.dialect.isa.row import ANYTHING, LABEL, TARGETS, Row, target
from warploom.dialect.ptx.instruction import InstructionError, UnavailableError, facts_of, has, result_type, storage
from warploom.dialect.ptx.instructions import every_row, nearest
from warploom.dialect.ptx.rows.grammar import PatternRow
from warploom.dialect.ptx.text.syntax import PACKED_BITS, REGISTER_BITS, bits_of, compatible

SM_90A = target("sm_90a")

CONSTANT = ("const", "param", "param::entry")
"""Spaces that nobody writes while a kernel runs."""

TOGETHER = ("sync", "aligned", "warp", "cluster")
"""Words of instructions that several threads do together."""


def reads_memory(row: Row) -> bool:
    """Whether a row has an address among its operands."""
    return any(slot.is_address for slot in row.operands)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("row", [row for row in every_row() if row.pure], ids=lambda row: row.spelling)
def test_a_pure_row_sets_registers_from_operands_alone(row: Row) -> None:
    written = [slot for slot in row.operands if slot.written]
    assert written == [row.operands[0]]
    assert not any(slot.kind in (LABEL, ANYTHING) for slot in row.operands)
    assert not any(word in row.spelling.split(".") for word in TOGETHER)
    assert "cc" not in row.spelling.split(".")
    assert row.root not in ("addc", "subc", "madc")
    if reads_memory(row):
        assert isinstance(row, PatternRow)
        spaces = {bindings["P"] for spelling in row.samples() if (bindings := row.match(spelling)) is not None}
        assert row.root == "ld"
        assert spaces <= set(CONSTANT)


@pytest.mark.parametrize(
    ("opcode", "form", "types"),
    [
        ("shfl.sync.bfly.b32", "?, ?, 1, 31, -1", ("b32", "b32")),
        ("ld.shared.b32", "?, [?]", ("b32", "b32")),
        ("ld.global.nc.b32", "?, [?]", ("b32", "b64")),
        ("add.cc.u32", "?, ?, 1", ("b32", "b32")),
        ("addc.u32", "?, ?, 1", ("b32", "b32")),
        ("mov.u32", "?, %clock", ("b32",)),
        ("mov.u64", "?, %globaltimer", ("b64",)),
        ("activemask.b32", "?", ("b32",)),
        ("atom.global.add.u32", "?, [?], 1", ("b32", "b64")),
        ("bar.sync", "0", ()),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "{?, ?, ?, ?}, {?, ?, ?, ?}, {?, ?}, {?, ?, ?, ?}",
         ("f32",) * 4 + ("b32",) * 6 + ("f32",) * 4),
    ],
)  # fmt: skip
def test_what_has_effects_or_reads_what_others_write_is_not_pure(
    opcode: str, form: str, types: tuple[str, ...]
) -> None:
    assert not facts_of(opcode, form, types, SM_90A).pure


@pytest.mark.parametrize(
    ("opcode", "form", "types"),
    [
        ("mov.u32", "?, %tid.x", ("b32",)),
        ("ld.param.u64", "?, [size]", ("b64",)),
        ("cvta.to.global.u64", "?, ?", ("b64", "b64")),
        ("mapa.shared::cluster.u32", "?, ?, 1", ("b32", "b32")),
        ("prmt.b32", "?, ?, ?, 0x5410", ("b32", "b32", "b32")),
        ("lop3.b32", "?, ?, ?, ?, 0xEA", ("b32",) * 4),
        ("rcp.approx.ftz.f32", "?, ?", ("f32", "f32")),
    ],
)
def test_arithmetic_and_what_does_not_change_is_pure(opcode: str, form: str, types: tuple[str, ...]) -> None:
    assert facts_of(opcode, form, types, SM_90A).pure


@pytest.mark.parametrize("on", TARGETS)
def test_versions_are_those_of_the_rows_and_the_target(on: str) -> None:
    facts = facts_of("add.s32", "?, ?, 1", ("b32", "b32"), TARGETS[on])
    assert facts.since == (1, 0)
    if TARGETS[on].sm >= 90:
        assert facts_of("elect.sync", "_|?, -1", ("pred",), TARGETS[on]).since == (8, 0)
    else:
        with pytest.raises(UnavailableError, match=f"elect.sync, which needs sm_90 or later; the target is {on}$"):
            facts_of("elect.sync", "_|?, -1", ("pred",), TARGETS[on])


@pytest.mark.parametrize("type", [type for type in (*REGISTER_BITS, *PACKED_BITS) if type != "pred"])
def test_a_register_for_a_type_holds_it(type: str) -> None:
    assert compatible(type, storage(type), wider=bits_of(type) < 16)
    assert storage("pred") == "pred"


@pytest.mark.parametrize("opcode", ["bar.sync", "st.global.b32", "ldmatrix.sync.aligned.m8n8.x4.shared.b16"])
def test_what_sets_no_single_value_has_no_type(opcode: str) -> None:
    with pytest.raises(InstructionError, match="sets no value"):
        result_type(opcode)


def test_a_word_that_is_none_is_told_with_the_nearest() -> None:
    with pytest.raises(InstructionError, match=r"'fmaa\.rn\.f32' is not a PTX instruction known here; .* fma"):
        result_type("fmaa.rn.f32")


@pytest.mark.parametrize(
    ("opcode", "first"),
    [
        ("wgmma.fense.sync.aligned", "wgmma.fence.sync.aligned"),
        ("tcgen05.fence::after_thread", "tcgen05.fence::after_thread_sync"),
        ("cp.async.wait_al", "cp.async.wait_all"),
        ("add.f33", "add.f32"),
    ],
)
def test_the_nearest_has_a_word_that_begins_like_the_wrong_one(opcode: str, first: str) -> None:
    assert nearest(opcode)[0] == first


@pytest.mark.parametrize(
    ("opcode", "first"),
    [
        ("cp.async.commit_group", "sm_80"),
        ("cvt.rn.f16x2.f32", "sm_80"),
        ("cvt.rn.f16.f32", "sm_75"),
        ("mbarrier.try_wait.parity.shared.b64", "sm_90"),
        ("mbarrier.test_wait.parity.shared.b64", "sm_80"),
        ("wgmma.fence.sync.aligned", "sm_90a"),
        ("mbarrier.sleep.shared.b64", ""),
    ],
)
def test_targets_have_what_their_rows_say(opcode: str, first: str) -> None:
    having = [name for name in ("sm_75", "sm_80", "sm_89", "sm_90", "sm_90a") if has(target(name), opcode)]
    assert (having or [""])[0] == first
