"""The frozen rows of the ISA: what they say of themselves, how they are found, what bad ones raise."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warploom.dialect.isa import mma, sparse_mma, wgmma
from warploom.dialect.isa.form import BY_MLIR_NAME, ELEMENT_TYPES, Shape, element_type, having
from warploom.dialect.isa.mma import LDMATRIX, LoadMatrix, Mma
from warploom.dialect.isa.row import KIB, TARGETS, UnknownTargetError, target
from warploom.dialect.isa.wgmma import ROW_BYTES, doubled
from warploom.dialect.ptx.instructions import find

F16, BF16, F32 = (element_type(name) for name in ("f16", "bf16", "f32"))


def test_the_rows_are_those_of_the_text() -> None:
    """PTX ISA 9.7.14.5.14: shape, multiplicands, accumulators, first PTX version, lowest target."""
    halves = [r for r in mma.ROWS if r.a.name in ("f16", "bf16") and r.shape in (Shape(16, 8, 8), Shape(16, 8, 16))]
    assert {(str(r.shape), r.a.name, r.c.name, r.ptx, r.sm) for r in halves} == {
        ("m16n8k8", "f16", "f16", (6, 5), 75),
        ("m16n8k8", "f16", "f32", (6, 5), 75),
        ("m16n8k8", "bf16", "f32", (7, 0), 80),
        ("m16n8k16", "f16", "f16", (7, 0), 80),
        ("m16n8k16", "f16", "f32", (7, 0), 80),
        ("m16n8k16", "bf16", "f32", (7, 0), 80),
    }
    assert all(r.b == r.a and r.d == r.c for r in halves)


def test_spellings_are_unique() -> None:
    assert len({row.spelling for row in mma.ROWS}) == len(mma.ROWS)
    assert len({r.spelling for r in LDMATRIX}) == len(LDMATRIX) == 6


def test_spelling_orders_the_types_d_a_b_c() -> None:
    (row,) = having(mma.rows, shape=Shape(16, 8, 16), a=BF16)
    assert row.spelling == "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
    assert LoadMatrix(4, True).spelling == "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"


@pytest.mark.parametrize("row", [*mma.ROWS, *LDMATRIX], ids=lambda r: r.spelling)
def test_the_instruction_rows_know_every_spelling(row: Mma | LoadMatrix) -> None:
    rows = [r for r, _ in find(row.spelling)]
    assert rows
    assert all((r.ptx, r.sm) == (row.ptx, row.sm) for r in rows)


def test_registers_hold_what_the_layout_places_in_a_lane() -> None:
    for row, role in product([*mma.rows(), *sparse_mma.rows()], "abcd"):
        width, placed = max(32, row.element(role).bits), row.layout(role).elements * row.container_bits(role)
        assert row.registers(role) * width == placed, (row.spelling, role)


@pytest.mark.parametrize("row", mma.ROWS, ids=lambda r: r.spelling)
def test_registers_hold_the_matrices_exactly(row: Mma) -> None:
    m, n, k = row.shape
    sizes = {"a": m * k, "b": k * n, "c": m * n, "d": m * n}
    for role, size in sizes.items():
        assert row.registers(role) * 32 * 32 == size * row.element(role).bits
    assert [row.element(role) for role in "abcd"] == [row.a, row.b, row.c, row.d]


shapes = st.builds(Shape, *[st.integers(1, 256)] * 3)


@given(shapes)
def test_shapes_read_what_they_print(shape: Shape) -> None:
    assert Shape.parse(str(shape)) == shape


@pytest.mark.parametrize("text", ["", "m16n8", "m16n8k", "16x8x16", "m16n8k16 ", "m16n8k-1", "M16N8K16"])
def test_what_is_no_shape(text: str) -> None:
    with pytest.raises(ValueError, match=f"expected a shape such as m16n8k16, got '{text}'"):
        Shape.parse(text)


def test_metadata_describes_all_of_a_in_halves_of_chunks() -> None:
    for row in sparse_mma.rows():
        assert row.granularity is not None
        assert row.metadata is not None
        assert row.granularity.chunk == 2 * row.granularity.stored, row.spelling
        described = row.metadata.rows, row.metadata.columns * row.granularity.chunk
        assert described == (row.shape.m, row.shape.k), row.spelling


def test_wgmma_takes_32_bytes_of_each_row_of_a() -> None:
    for row in wgmma.rows():
        for each in (row, doubled(row)):
            assert each.stored_k * each.container_bits("a") == 8 * ROW_BYTES, each.spelling


def test_rows_are_frozen() -> None:
    for row, name in ((mma.ROWS[0], "sm"), (LDMATRIX[0], "count"), (F16, "bits"), (target("sm_80"), "sm")):
        with pytest.raises(FrozenInstanceError):
            setattr(row, name, 0)


@pytest.mark.parametrize("count", [0, 3, 8, -1])
def test_ldmatrix_has_one_two_or_four_matrices(count: int) -> None:
    with pytest.raises(ValueError, match=f"ldmatrix loads 1, 2 or 4 matrices, got {count}"):
        LoadMatrix(count, False)


def test_floats_fit_their_bits() -> None:
    for row in ELEMENT_TYPES.values():
        assert not row.is_float or row.signed + row.exponent + row.mantissa <= row.bits, row.name
    assert replace(F16, exponent=0, mantissa=0).is_float is False


def test_element_types() -> None:
    assert [(t.name, t.bits, t.exponent, t.mantissa) for t in (F16, BF16, F32)] == [
        ("f16", 16, 5, 10),
        ("bf16", 16, 8, 7),
        ("f32", 32, 8, 23),
    ]
    assert [BY_MLIR_NAME[name] for name in ("f16", "bf16", "f32")] == [F16, BF16, F32]
    assert all(t.is_float for t in (F16, BF16, F32))
    with pytest.raises(KeyError, match=r"unknown element type 'f8'; known: .*f16.*"):
        element_type("f8")


def test_targets_name_themselves() -> None:
    assert all(t.name == name == str(t) and target(name) is t for name, t in TARGETS.items())
    assert (target("sm_90a").sm, target("sm_90a").suffix, target("sm_90a").ptx) == (90, "a", (8, 0))


def test_targets_hold_what_the_programming_guide_says() -> None:
    """Shared memory of one CTA, in KiB, by compute capability."""
    sizes = {70: 96, 72: 96, 75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 88: 163, 90: 227, 100: 227, 103: 227, 107: 227,
             110: 227, 120: 99, 121: 99}  # fmt: skip
    assert {t.sm: t.shared // KIB for t in TARGETS.values()} == sizes
    assert all(t.shared % KIB == 0 and t.registers == 65536 and t.sms > 0 for t in TARGETS.values())


def test_specific_targets_come_no_earlier_than_the_plain_one() -> None:
    for t in TARGETS.values():
        assert t.ptx >= target(f"sm_{t.sm}").ptx
        assert not t.suffix or t.sm >= 90


def test_later_targets_keep_what_earlier_ones_have() -> None:
    for row in (*mma.ROWS, *LDMATRIX):
        assert [t.name for t in TARGETS.values() if row.runs_on(t)] == [
            t.name for t in TARGETS.values() if t.sm >= row.sm
        ]


@pytest.mark.parametrize(
    ("name", "hint"), [("sm_91", ""), ("sm_80a", ""), ("hopper", " (a target is written like sm_90a)"), ("90", " (a")]
)
def test_unknown_targets(name: str, hint: str) -> None:
    with pytest.raises(UnknownTargetError) as raised:
        target(name)
    message = str(raised.value)
    assert message.startswith(f"unknown target '{name}'{hint}")
    assert message.endswith(f"; known targets: {', '.join(TARGETS)}") or hint.endswith("(a")
