"""Layouts as pictures: SVG shapes, the colours of lanes, matrices as cells, and the names of the cells."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import product
from math import ceil
from typing import Any, Protocol

LANES = 32

FONT = 10

FINE, BOLD = 0.6, 1.4
"""Widths of lines, in pixels."""

STYLE = "text{text-anchor:middle;fill:#111}.h{font-size:13px;font-weight:bold;text-anchor:start}.l{text-anchor:start}"


def colour(lane: int) -> str:
    """The colour of a lane, or of a thread of a warpgroup as its lane, light enough for black text: "#rrggbb"."""
    group, within = divmod(lane % LANES, 4)
    red, green, blue = colorsys.hls_to_rgb(_HUES[group], 0.93 - 0.06 * within, 0.75)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


_HUES = tuple(degrees / 360 for degrees in (212, 28, 130, 350, 265, 55, 180, 310))
"""Of the eight groups of four lanes; neighbours are far apart."""


def document(width: float, height: float, body: Iterable[str], style: str = STYLE) -> str:
    """An SVG document with a white background: text stays text, everything is styled by classes."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(width)} {number(height)}" '
        f'width="{number(width)}" height="{number(height)}" font-family="Helvetica,Arial,sans-serif" '
        f'font-size="{FONT}">\n'
        f"<style>{style}</style>\n"
        f'<rect width="100%" height="100%" fill="#fff"/>\n'
        f"{''.join(body)}</svg>\n"
    )


def box(x: float, y: float, width: float, height: float, fill: str, line: float = BOLD) -> str:
    """A rectangle."""
    size = f'width="{number(width)}" height="{number(height)}"'
    return f'<rect x="{number(x)}" y="{number(y)}" {size} fill="{fill}" stroke="#222" stroke-width="{line}"/>\n'


def bar(x: float, y: float, width: float, height: float, fill: str, title: str = "") -> str:
    """A rectangle without a line; `title` is shown to who points at it."""
    size = f'width="{number(width)}" height="{number(height)}"'
    shown = f"><title>{escape(title)}</title></rect>" if title else "/>"
    return f'<rect x="{number(x)}" y="{number(y)}" {size} fill="{fill}"{shown}\n'


def text(x: float, y: float, words: str, kind: str = "", end: str = "\n") -> str:
    """A line of text; `kind` is its class."""
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{number(x)}" y="{number(y)}">{escape(words)}</text>{end}'


def grid(x: float, y: float, width: float, height: float, across: float, down: float) -> Iterator[str]:
    """Thin lines that divide a rectangle into parts of across x down pixels, unless they are too dense."""
    if min(across, down) < 3:
        return
    columns, rows = ceil(width / across - 1e-6), ceil(height / down - 1e-6)
    lines = [f"M{number(x + i * across)} {number(y)}v{number(height)}" for i in range(1, columns)]
    lines += [f"M{number(x)} {number(y + i * down)}h{number(width)}" for i in range(1, rows)]
    yield f'<path d="{"".join(lines)}" fill="none" stroke="#666" stroke-width="{FINE}"/>\n'


def number(value: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


# Matrices as pictures: cells that lanes hold, in panels side by side.
#
# A `Picture` has panels, a panel is a matrix whose places are covered by cells; a cell is one or several neighbouring
# elements that one lane holds together. Every lane has its colour: one hue for the four lanes of a group.


@dataclass(frozen=True, slots=True)
class Cell:
    """height x width elements from (row, column) on, held by `lane`."""

    row: int
    column: int
    height: int
    width: int
    lane: int
    label: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A matrix of rows x columns, covered by cells of one size. Lane `addresses` + i gives the address of row i, where
    the matrix is in memory."""

    title: str
    rows: int
    columns: int
    cells: tuple[Cell, ...]
    addresses: int | None = None

    @property
    def height(self) -> int:
        """Rows of a cell."""
        return self.cells[0].height

    @property
    def width(self) -> int:
        """Columns of a cell."""
        return self.cells[0].width

    def side_notes(self, together: int) -> list[str]:
        """Notes beside groups of `together` rows: the lanes that give their addresses."""
        if self.addresses is None:
            return []
        firsts = range(self.addresses, self.addresses + self.rows, together)
        return [f"p: T{lane}" + (f"-T{lane + together - 1}" if together > 1 else "") for lane in firsts]


@dataclass(frozen=True, slots=True)
class Picture:
    """Panels under a title, with lines of explanation below; `legend` is whether the colours of lanes are told."""

    title: str
    panels: tuple[Panel, ...]
    notes: tuple[str, ...] = ()
    legend: bool = True


def span(start: int, count: int) -> str:
    """The numbers from `start` on: "4" or "4-7"."""
    return str(start) if count == 1 else f"{start}-{start + count - 1}"


LETTER = 5.9
"""Width of a letter of the labels, about, in pixels: digits, braces and commas of a sans-serif at size FONT."""

TITLE_LETTER = 8.6
"""Width of a letter of the title, about."""

MARGIN = 16
GAP = 28
PAGE = 1150
"""Panels stand side by side up to this width."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Where things of a panel are, in pixels from its corner; labels have up to `letters` letters."""

    panel: Panel
    letters: int

    @property
    def column(self) -> float:
        """Width of a column."""
        return max(self.letters * LETTER + 10, 30) / self.panel.width

    @property
    def row(self) -> float:
        """Height of a row."""
        return (22 if self.panel.height == 1 else 26) / self.panel.height

    @property
    def left(self) -> float:
        """Room for the row numbers."""
        return 10 + LETTER * max(len(text) for _, text in self.row_labels())

    @property
    def top(self) -> float:
        """Room for the panel's title and the column numbers."""
        return 36 if self.panel.title else 18

    @property
    def width(self) -> float:
        labels = max((len(text) * LETTER + 8 for _, text in self.side_notes()), default=0)
        return max(self.left + self.column * self.panel.columns + labels, len(self.panel.title) * LETTER + 8)

    @property
    def height(self) -> float:
        return self.top + self.row * self.panel.rows

    def row_labels(self) -> list[tuple[float, str]]:
        """Labels of rows as (middle in rows, text). Rows share a label where there is not enough space."""
        return _labels(self.panel.rows, self.together)

    @property
    def together(self) -> int:
        """The number of rows that share a label."""
        return 1 if self.row >= 11 else self.panel.height

    def side_notes(self) -> list[tuple[float, str]]:
        """Notes beside the rows, as (middle in rows, text)."""
        texts = self.panel.side_notes(self.together)
        return [((i + 0.5) * self.together, text) for i, text in enumerate(texts)]


def _labels(count: int, step: int) -> list[tuple[float, str]]:
    return [(start + step / 2, span(start, step)) for start in range(0, count, step)]


def svg(picture: Picture) -> str:
    """The picture as an SVG document: text stays text, everything is styled by classes."""
    letters = max(len(cell.label) for panel in picture.panels for cell in panel.cells)
    placed, width, bottom = _placed([_Sizes(panel, letters) for panel in picture.panels])
    legend = _legend(MARGIN, bottom + 14) if picture.legend else ()
    below = bottom + (74 if picture.legend else 26)
    notes = (text(MARGIN, below + 16 * i, note, "n") for i, note in enumerate(picture.notes))
    words = (len(picture.title) * TITLE_LETTER, *(len(note) * 5.6 for note in picture.notes))
    width = max(width, MARGIN + 16 * 30, *(MARGIN + word for word in words)) + MARGIN
    height = below + 16 * len(picture.notes)
    lanes = "".join(f".t{lane}{{fill:{colour(lane)}}}" for lane in range(LANES))
    body = "".join("".join(_panel(sizes, x, y)) for sizes, x, y in placed)
    heading = text(MARGIN, MARGIN + 12, picture.title, "h")
    return document(width, height, (heading, body, *legend, *notes), f"{_CSS}{lanes}")


_CSS = (
    "text{text-anchor:middle;fill:#111}path{stroke:#555;stroke-width:.6}"
    ".h{font-size:15px;font-weight:bold;text-anchor:start}.p{font-size:12px;text-anchor:start;font-style:italic}"
    ".l{text-anchor:start}.r{text-anchor:end;fill:#666}.c{fill:#666}.n{font-size:11px;text-anchor:start}"
    ".f{fill:none;stroke:#222;stroke-width:1.4}"
)


def _placed(panels: Sequence[_Sizes]) -> tuple[list[tuple[_Sizes, float, float]], float, float]:
    """The panels with their corners, rows of equally many; the right edge, the bottom."""
    wide, high = max(sizes.width for sizes in panels) + GAP, max(sizes.height for sizes in panels) + GAP / 2
    fit = max(1, int(PAGE // wide))
    across = max(count for count in range(1, fit + 1) if len(panels) % count == 0)
    placed = [(sizes, MARGIN + i % across * wide, MARGIN + 26 + i // across * high) for i, sizes in enumerate(panels)]
    down = len(panels) // across
    return placed, MARGIN + across * wide - GAP, MARGIN + 26 + down * high - GAP / 2


def _panel(sizes: _Sizes, x: float, y: float) -> Iterator[str]:
    panel = sizes.panel
    if panel.title:
        yield text(x, y + 14, panel.title, "p")
    left, top = x + sizes.left, y + sizes.top
    fits = sizes.column >= 4 + LETTER * len(str(panel.columns))
    for middle, label in _labels(panel.columns, 1 if fits else panel.width):
        yield text(left + middle * sizes.column, top - 5, label, "c", "")
    for middle, label in sizes.row_labels():
        yield text(left - 5, top + middle * sizes.row + 3.5, label, "r", "")
    wide, high = sizes.column * panel.width, sizes.row * panel.height
    yield "\n"
    for lane in sorted({cell.lane for cell in panel.cells}):
        corners = ((left + c.column * sizes.column, top + c.row * sizes.row) for c in panel.cells if c.lane == lane)
        yield f'<path class="t{lane % LANES}" d="{_boxes(corners, wide, high)}"/>\n'
    for cell in panel.cells:
        middle, down = left + cell.column * sizes.column + wide / 2, top + cell.row * sizes.row + high / 2
        yield text(middle, down + 3.5, cell.label, end="")
    frame = _boxes([(left, top)], sizes.column * panel.columns, sizes.row * panel.rows)
    yield f'\n<path class="f" d="{frame}"/>\n'
    label_x = left + sizes.column * panel.columns + 6
    for middle, note in sizes.side_notes():
        yield text(label_x, top + middle * sizes.row + 3.5, note, "l")


def _boxes(corners: Iterable[tuple[float, float]], wide: float, high: float) -> str:
    return "".join(f"M{number(x)} {number(y)}h{number(wide)}v{number(high)}h-{number(wide)}z" for x, y in corners)


def _legend(x: float, y: float) -> Iterator[str]:
    """The colours of the lanes, in two rows."""
    for lane in range(LANES):
        at = x + lane % 16 * 30, y + lane // 16 * 18
        yield f'<path class="t{lane}" d="{_boxes([at], 30, 18)}"/>'
        yield text(at[0] + 15, at[1] + 12.5, f"T{lane}", end="")
    yield "\n"


class LaneLayout(Protocol):
    """A layout, as far as a picture asks: a bit of an element is the axis and the number of a bit of its place."""

    @property
    def rows(self) -> Any: ...  # an int, which may be a cached property

    @property
    def columns(self) -> Any: ...

    @property
    def element(self) -> Sequence[tuple[str, int]]: ...

    def extent(self, axis: str) -> int: ...

    def find(self, **coordinates: int) -> tuple[int, int]: ...


Label = Callable[[int, int], str]
"""From the number of the first element and how many there are to the part of a label after the lane."""


def elements(letter: str) -> Label:
    def label(first: int, count: int) -> str:
        if count == 1:
            return f"{letter}{first}"
        between = "," if count == 2 else ".."
        return f"{{{letter}{first}{between}{letter}{first + count - 1}}}"

    return label


def panels(layout: LaneLayout, label: Label, axes: dict[str, str]) -> tuple[Panel, ...]:
    """A panel for each value on the axes named; others but row and column stay at 0."""
    used = [axis for axis in axes if layout.extent(axis) > 1]
    return tuple(
        Panel(
            ", ".join(f"{axes[axis]} {value}" for axis, value in zip(used, values, strict=True)),
            layout.rows,
            layout.columns,
            tuple(cells(layout, label, dict(zip(used, values, strict=True)))),
        )
        for values in product(*(range(layout.extent(axis)) for axis in used))
    )


def cells(layout: LaneLayout, label: Label, at: dict[str, int]) -> Iterator[Cell]:
    """The cells of a picture. Elements that are consecutive in a lane and in the matrix are one cell."""
    axis, bits = layout.element[0][0] if layout.element else "r", 0
    while axis in "rc" and layout.element[bits : bits + 1] == ((axis, bits),):
        bits += 1
    together = 1 << bits
    height, width = (together, 1) if axis == "r" else (1, together)
    for r, c in product(range(0, layout.rows, height), range(0, layout.columns, width)):
        lane, first = layout.find(r=r, c=c, **at)
        yield Cell(r, c, height, width, lane, f"T{lane}:{label(first, together)}")
