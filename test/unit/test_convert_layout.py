"""`warp.convert_layout`, lowered and run: every element ends where the layout says, for any two layouts of a matrix."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from single_warp import ELEMENTS, run

from warploom.dialect.layouts.layout import Bit, Layout, column, row

LANE_BITS = 5
REGISTER_BITS = 32


def layouts(rows: int, columns: int) -> st.SearchStrategy[Layout]:
    """Layouts of a matrix of so many bits of rows and of columns, among the lanes of a warp."""
    bits: list[Bit] = [*map(row, range(rows)), *map(column, range(columns))]
    return st.permutations(bits).map(lambda order: Layout(tuple(order[:LANE_BITS]), tuple(order[LANE_BITS:])))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[int, Layout, Layout, tuple[int, int]]:
    """Bits of an element, two layouts of one tile that fill whole registers, and how many tiles there are."""
    bits = draw(st.sampled_from([8, 16, 32]))
    least = (REGISTER_BITS // bits).bit_length() - 1
    total = LANE_BITS + least + draw(st.integers(0, 2))
    rows = draw(st.integers(0, total))
    either, tiles = layouts(rows, total - rows), st.sampled_from([1, 1, 2])
    return bits, draw(either), draw(either), (draw(tiles), draw(tiles))


@settings(max_examples=40)
@given(pairs(), st.sampled_from(["sm_75", "sm_90a"]))
def test_every_element_moves_to_its_place(asked: tuple[int, Layout, Layout, tuple[int, int]], target: str) -> None:
    """Loaded in one layout, turned into the other, stored."""
    bits, source, result, (down, across) = asked
    kind = {8: np.int8, 16: np.float16, 32: np.float32}[bits]
    shape = source.rows * down, source.columns * across
    matrix = np.random.default_rng().integers(-100, 100, shape).astype(kind)
    stored = np.full_like(matrix, 101)
    element = f"{'x'.join(map(str, shape))}x{ELEMENTS[matrix.dtype.name]}"
    types = [f"!warp.fragment<acc, {element}, [{layout}]>" for layout in (source, result)]
    body = f"""
    %x = warp.load %X[%z, %z] {{in_bounds = [true, true]}} : $X -> {types[0]}
    %y = warp.convert_layout %x : {types[0]} to {types[1]}
    warp.store %y, %Y[%z, %z] {{in_bounds = [true, true]}} : {types[1]}, $Y"""
    run(target, body, X=matrix, Y=stored)
    np.testing.assert_array_equal(stored, matrix)


def test_columns_come_in_another_order() -> None:
    """As an instruction on bytes leaves sums they are operand A of another one, without an exchange between lanes."""
    matrix = np.random.default_rng().integers(-100, 100, (16, 32)).astype(np.int8)
    stored = np.full_like(matrix, 101)
    types = [
        f"!warp.fragment<{role}, 16x32xi8, [{layout}]>"
        for role, layout in (("acc", "c1 c2 r0 r1 r2 | c0 r3 c3 c4"), ("a", "c2 c3 r0 r1 r2 | c0 c1 r3 c4"))
    ]
    body = f"""
    %x = warp.load %X[%z, %z] {{in_bounds = [true, true]}} : $X -> {types[0]}
    %a = warp.convert_layout %x {{columns = array<i64: 0, 2, 3, 1>}} : {types[0]} to {types[1]}
    %y = warp.convert_layout %a : {types[1]} to {types[0]}
    warp.store %y, %Y[%z, %z] {{in_bounds = [true, true]}} : {types[0]}, $Y"""
    run("sm_90", body, X=matrix, Y=stored)
    places = [16 * (k >> 4) + (k & 1) + 4 * (k >> 1 & 3) + 2 * (k >> 3 & 1) for k in range(32)]
    np.testing.assert_array_equal(stored[:, places], matrix)
