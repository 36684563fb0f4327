"""Fragment layouts: bit maps that are bijections, and that are the ISA's formulas."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warploom.dialect.isa.mma import LDMATRIX, ROWS, Mma
from warploom.dialect.layouts.layout import LANES, Bit, Layout, accumulator, column, multiplicand, row

A16 = Layout.parse("c1 c2 r0 r1 r2 | c0 r3 c3")
ROLES = "abcd"
HALVES = [r for r in ROWS if r.a.name in ("f16", "bf16") and str(r.shape) in ("m16n8k8", "m16n8k16")]
"""The rows of 9.7.14.5.7 and 9.7.14.5.8 for 16-bit elements."""


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Any permutation of the bits of a matrix of at least 32 elements."""
    rows = draw(st.integers(0, 6))
    columns = draw(st.integers(max(0, 5 - rows), 6))
    bits = draw(st.permutations([*map(row, range(rows)), *map(column, range(columns))]))
    return Layout(tuple(bits[:5]), tuple(bits[5:]))


def places(layout: Layout) -> list[tuple[int, int]]:
    return [layout.position(lane, e) for lane in range(LANES) for e in range(layout.elements)]


# The formulas of PTX ISA 9.7.14.5.7 and 9.7.14.5.8: from (group, thread in group, i) to (row, column).
Formula = Callable[[int, int, int], tuple[int, int]]
FORMULAS: dict[tuple[int, str], Formula] = {
    (8, "a"): lambda g, t, i: (g if i < 2 else g + 8, 2 * t + i % 2),
    (8, "b"): lambda g, t, i: (2 * t + i, g),
    (16, "a"): lambda g, t, i: (g if i < 2 or 4 <= i < 6 else g + 8, 2 * t + i % 2 + (8 if i >= 4 else 0)),
    (16, "b"): lambda g, t, i: (2 * t + i % 2 + (8 if i >= 2 else 0), g),
    **{(k, role): lambda g, t, i: (g if i < 2 else g + 8, 2 * t + i % 2) for k in (8, 16) for role in "cd"},
}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("instruction", HALVES, ids=lambda r: r.spelling)
def test_the_rows_have_the_formulas_of_the_text(instruction: Mma, role: str) -> None:
    formula = FORMULAS[instruction.shape.k, role]
    layout = instruction.layout(role)
    expected = [[formula(lane // 4, lane % 4, i) for i in range(layout.elements)] for lane in range(LANES)]
    assert layout.positions().tolist() == [[list(place) for place in lane] for lane in expected]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("instruction", HALVES, ids=lambda r: r.spelling)
def test_the_rows_cover_their_matrices(instruction: Mma, role: str) -> None:
    m, n, k = instruction.shape
    shape = {"a": (m, k), "b": (k, n)}.get(role, (m, n))
    layout = instruction.layout(role)
    assert (layout.rows, layout.columns) == shape
    assert sorted(places(layout)) == [(r, c) for r in range(shape[0]) for c in range(shape[1])]


def test_ldmatrix_gives_each_lane_a_pair_of_a_row() -> None:
    """Lane l receives elements 2 * (l % 4) and the next of row l // 4; with .trans, of that column."""
    for move in LDMATRIX:
        expected = [(lane // 4, 2 * (lane % 4) + i) for lane in range(LANES) for i in range(2)]
        assert places(move.layout) == [(c, r) if move.transpose else (r, c) for r, c in expected]


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((8, 16, 8), "c2 c3 r0 r1 r2 | c0 c1"),
        ((16, 32, 8), "c2 c3 r0 r1 r2 | c0 c1 r3 c4"),
        ((16, 64, 4), "c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5"),
        ((16, 8, 32), "c0 c1 r0 r1 r2 | r3 c2"),
        ((8, 4, 64), "c0 c1 r0 r1 r2 |"),
    ],
)
def test_one_rule_gives_the_multiplicands_of_other_widths(shape: tuple[int, int, int], text: str) -> None:
    assert str(multiplicand(*shape)) == text


def test_one_rule_gives_the_accumulators() -> None:
    assert str(accumulator(8, 8)) == "c1 c2 r0 r1 r2 | c0"
    assert str(accumulator(16, 8)) == "c1 c2 r0 r1 r2 | c0 r3"
    assert str(accumulator(16, 16)) == "c1 c2 r0 r1 r2 | c0 r3 c3"


@given(layouts())
def test_text_round_trip(layout: Layout) -> None:
    assert Layout.parse(str(layout)) == layout
    assert Layout.parse(f"  {str(layout).replace(' ', '   ')}  ") == layout


@given(layouts())
def test_a_layout_is_a_bijection(layout: Layout) -> None:
    assert layout.rows * layout.columns == LANES * layout.elements
    assert sorted(places(layout)) == [(r, c) for r in range(layout.rows) for c in range(layout.columns)]


@given(layouts())
def test_inverse_finds_lane_and_element(layout: Layout) -> None:
    back = layout.inverse()
    assert len(back) == layout.rows * layout.columns
    assert all(layout.position(*place) == where for where, place in back.items())


@given(layouts(), layouts())
def test_transposed_exchanges_rows_and_columns(layout: Layout, other: Layout) -> None:
    assert layout.transposed().transposed() == layout
    assert (layout.transposed().rows, layout.transposed().columns) == (layout.columns, layout.rows)
    assert places(layout.transposed()) == [(c, r) for r, c in places(layout)]
    assert (layout == other) == (layout.transposed() == other.transposed())


@given(layouts())
def test_offsets_of_elements_do_not_depend_on_the_lane(layout: Layout) -> None:
    for lane in range(LANES):
        start = layout.position(lane, 0)
        for element in range(layout.elements):
            offset = layout.element_offset(element)
            assert layout.position(lane, element) == (start[0] + offset[0], start[1] + offset[1])


@given(layouts(), st.integers(1, 3), st.integers(1, 3))
def test_positions_repeat_the_tile_row_by_row(layout: Layout, down: int, across: int) -> None:
    rows, columns = down * layout.rows, across * layout.columns
    assert layout.tiles(rows, columns) == (down, across)
    positions = layout.positions(rows, columns)
    assert positions.shape == (LANES, down * across * layout.elements, 2)
    for number in range(down * across):
        tile = positions[:, number * layout.elements :][:, : layout.elements]
        corner = (number // across * layout.rows, number % across * layout.columns)
        assert np.array_equal(tile - corner, layout.positions())
    covered = {(int(r), int(c)) for r, c in positions.reshape(-1, 2)}
    assert covered == {(r, c) for r in range(rows) for c in range(columns)}


@pytest.mark.parametrize(("rows", "columns"), [(8, 16), (16, 24), (24, 16), (-16, 16), (16, 1)])
def test_partial_tiles_are_refused(rows: int, columns: int) -> None:
    expected = f"expected a fragment of whole 16x16 tiles, got {rows}x{columns}"
    with pytest.raises(ValueError, match=expected):
        A16.tiles(rows, columns)
    with pytest.raises(ValueError, match=expected):
        A16.positions(rows, columns)


def test_no_tiles_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="expected a fragment of whole 16x16 tiles, got 0x16"):
        A16.tiles(0, 16)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("c1 c2 r0 r1 r2 c0 r3 c3", r"expected a layout 'lane bits \| element bits', got 'c1 c2 r0 r1 r2 c0 r3 c3'"),
        ("c1 | c2 | r0 | r1", r"expected a layout 'lane bits \| element bits', got 'c1 \| c2 \| r0 \| r1'"),
        ("", "expected a layout"),
        ("c1 c2 r0 r1 | c0 r2", r"a warp has 5 lane bits, the layout 'c1 c2 r0 r1 \| c0 r2' gives 4"),
        ("c0 c1 r0 r1 r2 r3 |", r"a warp has 5 lane bits, the layout 'c0 c1 r0 r1 r2 r3 \|' gives 6"),
        ("|", r"a warp has 5 lane bits, the layout ' \|' gives 0"),
        ("c1 c2 r0 r1 r2 | c0 r2", r"must carry each row bit once, got bits \[0, 1, 2, 2\]"),
        ("c1 c2 r0 r1 r2 | c0 r4", r"must carry each row bit once, got bits \[0, 1, 2, 4\]"),
        ("c1 c2 r0 r1 r2 | r3", r"must carry each column bit once, got bits \[1, 2\]"),
        ("x1 c2 r0 r1 r2 | c0", "expected a layout bit such as r0 or c3, got 'x1'"),
        ("c c2 r0 r1 r2 | c0", "expected a layout bit such as r0 or c3, got 'c'"),
        ("c-1 c2 r0 r1 r2 | c0", "expected a layout bit such as r0 or c3, got 'c-1'"),
    ],
)
def test_errors(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Layout.parse(text)


def test_bits_are_spelled_by_axis_and_number() -> None:
    assert [str(row(3)), str(column(0))] == ["r3", "c0"]
    assert row(3) == Bit("r", 3) != column(3)
    assert str(A16) == "c1 c2 r0 r1 r2 | c0 r3 c3"
