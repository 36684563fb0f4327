"""How operands lie in shared memory and registers: layouts that fit, and no two lanes at one bank."""

from __future__ import annotations

from itertools import product

import pytest

from warploom.dialect.isa import mma
from warploom.dialect.isa.mma import Mma
from warploom.dialect.layouts.layout import column, labels
from warploom.dialect.schedule import ScheduleError
from warploom.dialect.warp.attributes import FragmentType, type_of_element
from warploom.dialect.warp.fragments import MatrixMove, matrices, unit
from warploom.passes.schedule.defaults import LANES, PIECES, Delivery, arrange, stored

ROWS = [r for pair in mma.pairs() for r in mma.of_types(*pair) if r.a.name != "b1"]
BANKS = 8
"""Groups of 16 bytes that shared memory serves at once."""

LINE = 16 * BANKS


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.spelling)
def test_operands_agree(row: Mma) -> None:
    for a_along, b_along in product((True, False), repeat=2):
        arrangement = arrange(row, (64, 64), a_along, b_along)
        a, b = labels(arrangement.a.layout, row.layout("a")), labels(arrangement.b.layout, row.layout("b"))
        c = labels(arrangement.accumulator, row.layout("c"))
        assert a is not None
        assert b is not None
        assert c is not None
        assert (a.rows, b.columns, a.columns) == (c.rows, c.columns, b.rows)
        assert arrangement.a.layout.columns == arrangement.b.layout.rows == row.shape.k
        assert {*stored(arrangement.accumulator).element} == {*arrangement.accumulator.element}


def bank(row: int, byte: int, skip: int) -> int:
    """Which group of banks a byte of a tile with lines of 128 bytes lies in."""
    return (byte // 16 ^ row >> skip) % BANKS


def way_and_memory(row: Mma, role: str, along_k: bool) -> tuple[Delivery, FragmentType, bool]:
    """How an operand is loaded, the fragment that arrives, and whether memory holds its transpose."""
    arrangement = arrange(row, (64, 64), along_k, along_k)
    delivery = arrangement.a if role == "a" else arrangement.b
    kind = FragmentType.of(
        role,
        delivery.delivered.rows,
        delivery.delivered.columns,
        type_of_element(row.element(role)),
        delivery.delivered,
    )
    return delivery, kind, along_k == (role == "b")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("along_k", [True, False])
@pytest.mark.parametrize("role", ["a", "b"])
@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.spelling)
def test_lanes_meet_at_no_bank(row: Mma, role: str, along_k: bool) -> None:
    delivery, kind, swapped = way_and_memory(row, role, along_k)
    layout = delivery.delivered.transposed() if swapped else delivery.delivered
    if delivery.how == LANES:
        size, wide = row.a.bits // 8, column(0) in layout.element
        at_once = LINE // (size << wide)
        for first in range(0, 32, at_once):
            places = [layout.position(lane, 0) for lane in range(first, first + at_once)]
            units = {(bank(r, c * size, delivery.skip), c * size % 16 // (size << wide)) for r, c in places}
            assert len(units) == at_once
        return
    (rows, *_) = MatrixMove(4, layout.lane[0].axis == "r", delivery.how == PIECES, "").loads(row.a.bits)
    addresses = matrices(kind, swapped, unit(rows, row.a.bits))
    assert addresses
    for matrix in addresses:
        places = [sum((i >> bit & 1) << to for bit, to in enumerate(matrix.rows)) for i in range(8)]
        assert len({bank(matrix.row + r, matrix.column * row.a.bits // 8, delivery.skip) for r in places}) == BANKS


def test_a_warp_tile_holds_what_moves_together() -> None:
    (row,) = (r for r in mma.of_types("s4", "s4") if str(r.shape) == "m16n8k64")
    with pytest.raises(ScheduleError, match="elements of 4 bits in rows along n move 4 at once to as many tiles: the "
                       "warp tile must be a multiple of 32 along n, got 16"):  # fmt: skip
        arrange(row, (64, 16), True, False)
