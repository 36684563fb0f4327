"""Where elements lie: emitted addresses against the swizzle's definition, bounds, widths of accesses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from samples import FULL
from statements import Lanes, keep, run

from warploom.dialect.isa.row import target
from warploom.dialect.layouts.layout import LANES, Layout, column, row
from warploom.dialect.schedule import SHARED_ALIGNMENT, SWIZZLES
from warploom.passes.to_ptx.addressing import Addressing, GlobalMatrix, Position, SharedTile
from warploom.passes.to_ptx.emitter import Emitter, IndexValue, VirtualRegister
from warploom.passes.to_ptx.scalars import Scalars

SYMBOL = "tiles"
START = 7 * SHARED_ALIGNMENT


def offset_of(tile: SharedTile, stage: Lanes | int, r: Lanes, c: Lanes) -> Lanes:
    """The byte offset of an element, by the definition of `#warp.swizzle`."""
    panel, within = np.divmod(c * tile.element_bytes, tile.swizzle)
    offset = stage * tile.rows * tile.columns * tile.element_bytes + tile.offset
    line = r * tile.swizzle + within
    line ^= (line >> 7 & (tile.swizzle // 16 - 1)) << 4
    return offset + panel * tile.rows * tile.swizzle + line


@st.composite
def tiles(draw: st.DrawFn) -> SharedTile:
    """Tiles such as schedules ask for: whole panels, rows a multiple of 8."""
    size, swizzle = draw(st.sampled_from([2, 4])), draw(st.sampled_from(SWIZZLES))
    panels, rows = draw(st.integers(1, 4)), draw(st.sampled_from([8, 16, 24, 32, 64, 128]))
    offset = draw(st.integers(0, 4)) * SHARED_ALIGNMENT
    return SharedTile(offset, draw(st.integers(1, 4)), rows, panels * swizzle // size, size, swizzle)


@dataclass
class Coordinate:
    """A position under construction, and what it is for each thread."""

    position: Position
    expected: Lanes


class Thread:
    """Positions of 32 lanes in the forms that fragments, `ldmatrix` and copies use."""

    def __init__(self, data: st.DataObject) -> None:
        self.draw, self.emitter = data.draw, Emitter(target("sm_80"))
        self.scalars = Scalars(self.emitter)
        self.lane = self.scalars.special("%tid.x", LANES)
        self.addressing = Addressing(self.emitter, self.scalars, SYMBOL, 0, self.lane)
        self.lanes = np.arange(LANES, dtype=np.int64)

    def register(self, divisor: int, turns: int, bound: int | None = None) -> tuple[VirtualRegister, int]:
        """A value of the program: a multiple of what is known to divide it."""
        register = VirtualRegister("b32", self.emitter.level, divisor, bound)
        self.emitter.emit("mov.b32", register, divisor * turns)
        return register, divisor * turns

    def lane_part(self, size: int, step: int) -> tuple[IndexValue, Lanes]:
        """Some run of the lane's bits, moved to a multiple of `step`, below `size`."""
        start, count = self.draw(st.integers(0, 4)), self.draw(st.integers(0, 3))
        value, expected = self.scalars.bits(self.lane, start, count, 0), self.lanes >> start & ((1 << count) - 1)
        assume(int(expected.max()) * step < size)
        return self.scalars.multiply(value, step), expected * step

    def along(self, size: int, step: int, lane_size: int) -> Coordinate:
        """A coordinate below `size`, a multiple of `step`; the lane's part stays below `lane_size`."""
        lane, expected = self.lane_part(min(size, lane_size), step)
        divisor = step * self.draw(st.sampled_from([1, 2, 4, 8, 16]))
        turns = self.draw(st.integers(0, max(0, (size - 1) // divisor)))
        program: IndexValue = 0
        if self.draw(st.booleans()):
            program, more = self.register(divisor, turns)
            expected = expected + more
        left = size - step - int(expected.max())
        assume(left >= 0)
        constant = self.draw(st.integers(0, left // step)) * step
        return Coordinate(Position.of(lane, program, constant), expected + constant)


@settings(max_examples=300 if FULL else 100)
@given(st.data(), tiles())
def test_shared_addresses_are_those_of_the_swizzle(data: st.DataObject, tile: SharedTile) -> None:
    thread = Thread(data)
    step = data.draw(st.sampled_from([16, 16, 8, 4])) // tile.element_bytes
    at_row = thread.along(tile.rows, 1, tile.rows)
    at_column = thread.along(tile.columns, step, tile.swizzle // tile.element_bytes)
    stage, number = data.draw(
        st.sampled_from([(0, 0), (tile.stages - 1, tile.stages - 1), thread.register(1, tile.stages - 1)])
    )
    register, offset = thread.addressing.shared(tile, stage, at_row.position, at_column.position)
    keep(thread.emitter, register)
    got = run(thread.emitter, LANES, {"%tid.x": thread.lanes, SYMBOL: START})[-1]
    expected = offset_of(tile, number, at_row.expected, at_column.expected)
    assert np.array_equal(got + offset, START + expected)


@given(tiles())
def test_no_two_elements_share_an_address(tile: SharedTile) -> None:
    r, c = np.divmod(np.arange(tile.rows * tile.columns, dtype=np.int64), tile.columns)
    offsets = np.concatenate([offset_of(tile, stage, r, c) for stage in range(tile.stages)])
    everything = np.arange(tile.stages * tile.stage_bytes, step=tile.element_bytes) + tile.offset
    assert np.array_equal(np.sort(offsets), everything)


@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_eight_rows_of_a_chunk_lie_in_different_banks(swizzle: int) -> None:
    tile = SharedTile(0, 1, 64, 2 * swizzle // 2, 2, swizzle)
    for first in range(0, tile.rows, 8):
        for chunk in range(0, tile.columns, 8):
            offsets = offset_of(tile, 0, np.arange(first, first + 8), np.full(8, chunk))
            assert len(set(offsets // 16 % 8)) == 8


def test_without_a_swizzle_a_panel_is_one_chunk_wide() -> None:
    tile = SharedTile(0, 1, 8, 16, 2, 16)
    assert (tile.panels, tile.chunks, tile.period, tile.panel_bytes, tile.stage_bytes) == (2, 1, 1, 128, 256)
    assert offset_of(tile, 0, np.array([3]), np.array([9])).tolist() == [128 + 3 * 16 + 2]


@given(st.permutations([*map(row, range(4)), *map(column, range(4))]))
def test_lanes_start_where_the_layout_says(bits: list[tuple[str, int]]) -> None:
    layout = Layout(tuple(bits[:5]), tuple(bits[5:]))  # pyright: ignore[reportArgumentType]
    emitter = Emitter(target("sm_80"))
    scalars = Scalars(emitter)
    place = Addressing(emitter, scalars, SYMBOL, 0, scalars.special("%tid.x", LANES)).lane_position(layout)
    keep(emitter, *(v for v in place if isinstance(v, VirtualRegister)))
    values = iter(run(emitter, LANES, {"%tid.x": np.arange(LANES)}))
    got = [next(values) if isinstance(v, VirtualRegister) else np.full(LANES, v) for v in place]
    assert np.array_equal(np.stack(got, axis=1), [layout.position(lane, 0) for lane in range(LANES)])


@given(st.data(), st.sampled_from([1, 2, 8, 16, 32]), st.integers(1, 200))
def test_bounds(data: st.DataObject, extent: int, size: int) -> None:
    """The lane's part and what the constant has beyond whole extents stay below the extent."""
    thread = Thread(data)
    constant = data.draw(st.integers(0, 4)) * extent + data.draw(st.integers(0, extent - 1))
    lane, expected = thread.lane_part(extent - constant % extent, 1)
    program: IndexValue = 0
    if data.draw(st.booleans()):
        program, more = thread.register(
            data.draw(st.sampled_from([1, 3, extent, 4 * extent])), data.draw(st.integers(0, 40))
        )
        expected = expected + more
    inside = thread.addressing.inside(Position(lane, program, constant), extent, size)
    if isinstance(inside, bool):
        assert np.all((expected + constant < size) == inside)
        return
    keep(thread.emitter, inside)
    got = run(thread.emitter, LANES, {"%tid.x": thread.lanes})[-1]
    assert np.array_equal(got.astype(bool), expected + constant < size)


@given(st.integers(1, 5000), st.sampled_from([2, 4]), st.sampled_from([2, 4, 8, 16]))
def test_the_widest_access_divides_every_row(columns: int, size: int, limit: int) -> None:
    matrix = GlobalMatrix(VirtualRegister("b64"), 1, columns, size)
    widest = matrix.widest_access(limit)
    assert widest == max(
        [w for w in (2, 4, 8, 16) if w <= limit and columns * size % w == 0 and w >= size], default=size
    )


def test_positions_collect_their_constants() -> None:
    base = VirtualRegister("b32")
    moved = VirtualRegister("b32", base=base, offset=24)
    assert Position.of(1, moved, 8) == Position(1, base, 32)
    assert Position.of(1, 16, 8) == Position(1, 0, 24)
