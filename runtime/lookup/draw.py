"""Pictures of fragments in a terminal: coloured grids."""

from __future__ import annotations

from collections.abc import Iterator

from rich.style import Style
from rich.text import Text

from ...dialect.pictures.cells import Panel, Picture, span
from ...dialect.pictures.shapes import colour


def terminal(picture: Picture, width: int | None = None) -> Text:
    """The picture in text with coloured cells; columns that do not fit `width` characters follow below."""
    out = Text().append(picture.title, "bold")
    for panel in picture.panels:
        for line in _grid(panel, width):
            out.append("\n").append_text(line)
    out.append("\n")
    for note in picture.notes:
        out.append(f"\n{note}")
    return out


def _grid(panel: Panel, width: int | None) -> Iterator[Text]:
    yield Text()
    if panel.title:
        yield Text(panel.title, "italic")
    places = {(cell.row, cell.column): cell for cell in panel.cells}
    label = max(len(cell.label) for cell in panel.cells) + 2
    rows = range(0, panel.rows, panel.height)
    head = max(len(span(row, panel.height)) for row in rows)
    beside = panel.beside(panel.height)
    note = max(map(len, beside), default=0)
    fit = len(range(0, panel.columns, panel.width)) if width is None else max(1, (width - head - 2 - note) // label)
    for first in range(0, panel.columns, panel.width * fit):
        columns = range(first, min(panel.columns, first + panel.width * fit), panel.width)
        if first:
            yield Text()
        yield Text(" " * (head + 1) + "".join(span(c, panel.width).center(label) for c in columns).rstrip(), "dim")
        for row in rows:
            line = Text().append(span(row, panel.height).rjust(head) + " ", "dim")
            for column in columns:
                cell = places[row, column]
                line.append(cell.label.center(label), _style(cell.lane))
            if beside:
                line.append(f" {beside[row // panel.height]}", "dim")
            yield line


def _style(lane: int) -> Style:
    return Style(color="#000000", bgcolor=colour(lane))
