"""Pictures of fragments: every place is drawn once, with the lane and elements that the layout gives it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from xml.etree import ElementTree

import pytest

from warploom.dialect.layouts.layout import LANES, Layout
from warploom.dialect.layouts.pictures import Cell, Panel, Picture, colour, svg
from warploom.dialect.ptx.instructions import FAMILIES
from warploom.runtime.lookup.fragments import Fragment, find, terminal
from warploom.runtime.lookup.pictures import picture

SMALL = Picture(
    "a title & more",
    (
        Panel("first", 2, 4, tuple(Cell(i // 2, i % 2 * 2, 1, 2, i, f"T{i}:x") for i in range(4))),
        Panel("second", 2, 1, (Cell(0, 0, 2, 1, 31, "T31:{x,y}"),), addresses=4),
    ),
    ("what it <is>",),
)  # fmt: skip

SVG = "{http://www.w3.org/2000/svg}"


@cache
def all_fragments() -> tuple[Fragment, ...]:
    """Every operand of every form with a layout of its own."""
    by_picture: dict[tuple[str, str, Layout], Fragment] = {}
    for name, family in FAMILIES.items():
        for form in family():
            for operand in form.layouts:
                at = form.layouts[operand]
                count = getattr(form, "count", 1)
                by_picture.setdefault((f"{name}{count}", operand, at), Fragment(operand, at, (form,)))
    return tuple(by_picture.values())


def elements(label: str) -> list[int]:
    """The numbers of the elements in a label: `T4:{a0..a3}` has 0 to 3."""
    numbers = [int(n) for n in re.findall(r"(?<=[a-z])\d+", label.partition(":")[2])]
    return list(range(numbers[0], numbers[-1] + 1))


def covered(panel: Panel) -> Iterator[tuple[int, int]]:
    for cell in panel.cells:
        yield from ((cell.row + r, cell.column + c) for r in range(cell.height) for c in range(cell.width))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("fragment", all_fragments(), ids=lambda f: f.name)
def test_every_place_is_drawn_once(fragment: Fragment) -> None:
    drawn = picture(fragment)
    for panel in drawn.panels:
        assert (panel.rows, panel.columns) == (fragment.layout.rows, fragment.layout.columns)
        assert sorted(covered(panel)) == [(r, c) for r in range(panel.rows) for c in range(panel.columns)]
    ElementTree.fromstring(svg(drawn))
    assert terminal(drawn, 100).plain.startswith(drawn.title)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fragment", [f for f in all_fragments() if f.operand in "abcdr"], ids=lambda f: f.name)
def test_cells_say_what_the_layout_says(fragment: Fragment) -> None:
    at, drawn = fragment.layout, picture(fragment)
    moved = [panel.addresses is not None for panel in drawn.panels]
    for number, panel in enumerate(drawn.panels):
        shift = number * at.elements if all(moved) else 0
        product = 0 if all(moved) else number
        for cell in panel.cells:
            assert cell.label.startswith(f"T{cell.lane}:")
            places = [at.coordinates(cell.lane, e - shift) for e in elements(cell.label)]
            assert {place["q"] for place in places} == {product}
            assert [(place["r"], place["c"]) for place in places] == sorted(covered(Panel("", 0, 0, (cell,))))


def test_metadata_is_labelled_by_bits() -> None:
    drawn = picture(find("mma.sp.m16n8k32.f16", "metadata"))
    assert [panel.title for panel in drawn.panels] == ["sparsity selector 0", "sparsity selector 1"]
    first, second = ({(c.row, c.column): c.label for c in panel.cells} for panel in drawn.panels)
    assert (first[0, 0], first[0, 4], first[9, 4]) == ("T0:[15:0]", "T1:[15:0]", "T5:[31:16]")
    assert second[9, 0] == "T6:[31:16]"
    assert drawn.notes[0] == "Columns are chunks of 4 elements of a row of A, 2:4 stored; each has 4 bits of metadata."


def test_scales_are_labelled_by_bytes() -> None:
    for name, operand, panels, label in (
        ("mma.m16n8k32.kind::mxf8f6f4.e4m3", "scale_a", 2, "T1:b"),
        ("mma.m16n8k64.kind::mxf4.e2m1", "sfa", 2, "T1:b,b+1"),
        ("mma.m16n8k64.kind::mxf4nvf4.4X", "selector_a", 2, "T1:bytes 0-3"),
        ("mma.m16n8k64.kind::mxf4nvf4.4X", "scale-b", 4, "T4:bytes 0-3"),
    ):
        drawn = picture(find(name, operand))
        assert len(drawn.panels) == panels
        labels = {(c.row, c.column): c.label for c in drawn.panels[0].cells}
        assert labels[(8, 0) if operand != "scale-b" else (0, 1)] == label


def test_moves_say_who_gives_addresses() -> None:
    drawn = picture(find("ldmatrix.m8n8.x4", "D"))
    assert [panel.title for panel in drawn.panels] == [f"matrix {i}" for i in range(4)]
    assert drawn.panels[3].cells[-1].label == "T31:{d6,d7}"
    assert drawn.panels[3].side_notes(1)[-1] == "p: T31"
    assert picture(find("ldmatrix.m16n16.x2.b8", "D")).panels[1].side_notes(4) == [
        "p: T16-T19", "p: T20-T23", "p: T24-T27", "p: T28-T31",
    ]  # fmt: skip


def test_the_grid_of_the_terminal() -> None:
    assert terminal(SMALL).plain.split("\n") == [
        "a title & more",
        "",
        "first",
        "   0-1   2-3",
        "0  T0:x  T1:x ",
        "1  T2:x  T3:x ",
        "",
        "second",
        "         0",
        "0-1  T31:{x,y}  p: T4-T5",
        "",
        "what it <is>",
    ]


def test_columns_that_do_not_fit_follow_below() -> None:
    lines = terminal(Picture("", SMALL.panels[:1]), 12).plain.split("\n")
    assert lines[3:] == ["   0-1", "0  T0:x ", "1  T2:x ", "", "   2-3", "0  T1:x ", "1  T3:x ", ""]


def test_lanes_have_colours_of_their_own() -> None:
    colours = [colour(lane) for lane in range(LANES)]
    assert len(set(colours)) == LANES
    grid = terminal(SMALL)
    assert {str(s.style) for s in grid.spans if "on #" in str(s.style)} == {
        f"#000000 on {colour(lane)}" for lane in (0, 1, 2, 3, 31)
    }


def luminance(rgb: str) -> float:
    parts = [int(rgb[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_labels_can_be_read_on_all_colours() -> None:
    """Contrast with the text, #111, as WCAG defines it; 7 is its highest grade."""
    text = luminance("#111111")
    assert min((luminance(colour(lane)) + 0.05) / (text + 0.05) for lane in range(LANES)) >= 7


def test_an_svg_has_title_numbers_cells_legend_and_notes_as_text() -> None:
    root = ElementTree.fromstring(svg(SMALL))
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert texts[:6] == ["a title & more", "first", "0", "1", "2", "3"]
    assert texts[-1] == "what it <is>"
    assert [text for text in texts if text in {f"T{lane}" for lane in range(LANES)}] == [f"T{i}" for i in range(LANES)]
    assert {"T0:x", "T3:x", "T31:{x,y}", "p: T4", "p: T5"} <= set(texts)


def test_panels_stand_in_even_rows() -> None:
    drawn = svg(picture(find("mma.m8n8k4.row.col.f32.f16.f16.f32", "C")))
    corners = re.findall(r'class="p" x="([\d.]+)" y="([\d.]+)"', drawn)
    assert len({x for x, _ in corners}) == len({y for _, y in corners}) == 2
