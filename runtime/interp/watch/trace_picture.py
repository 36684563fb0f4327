"""A trace as a picture: what one CTA does over time, row by row, as SVG."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from ....dialect.layouts.pictures import bar, document, number, text
from .timeline import DESCRIPTION, LaunchTrace, TraceEvent, TraceKind, TraceRow, rows

COLOURS: dict[TraceKind, str] = {
    "tensor copy": "#7fb2e5",
    "cp.async": "#7fb2e5",
    "product": "#4f9d5d",
    "wait": "#dcdcdc",
    "store": "#e69a4c",
}
UNDER_WAY = "#bfe3c5"
"""Products of a warpgroup from their issue to the wait that covers them; the part in the colour of products is when
tensor cores multiply."""

LEFT, MARGIN, WIDTH, TOP = 150, 16, 960, 62
THICK, THIN, SPACE = 16, 8, 4
"""Heights of a warp's own row and of those of asynchronous events, and what is between."""

LEGEND = (
    ("copies, from issue to arrival", COLOURS["tensor copy"]),
    ("products", COLOURS["product"]),
    ("products of a warpgroup, from issue to wait", UNDER_WAY),
    ("waits", COLOURS["wait"]),
    ("stores", COLOURS["store"]),
)

STYLE = (
    "text{fill:#111}.h{font-size:13px;font-weight:bold}.r{text-anchor:end}.t{text-anchor:middle;fill:#666}.n{fill:#444}"
)


@dataclass(frozen=True)
class _Band:
    """Rows with one label: of one warp, or of neighbours that do the same."""

    label: str
    rows: tuple[TraceRow, ...]

    @property
    def height(self) -> int:
        return THICK if len(self.rows) == 1 else (THIN + 1) * len(self.rows)


def trace_svg(launch: LaunchTrace) -> str:
    """The picture of the first CTA."""
    events = launch.of_cta(0)
    bands = list(_bands(events))
    notes = textwrap.wrap(f"Time: {DESCRIPTION}.", 165)
    bottom = TOP + sum(band.height + SPACE for band in bands)
    place = ", ".join(map(str, launch.places[0]))
    body = [
        text(MARGIN, 20, f"{launch.kernel}, CTA ({place}) of {launch.total}: {launch.cycles:,} cycles", "h"),
        *_legend(events, 36),
        *_axis(max(launch.cycles, 1), bottom),
        *_drawn(bands, max(launch.cycles, 1)),
        *(text(MARGIN, bottom + 40 + 14 * i, note, "n") for i, note in enumerate(notes)),
    ]
    return document(LEFT + WIDTH + 2 * MARGIN, bottom + 40 + 14 * len(notes), body, STYLE)


def _bands(events: Sequence[TraceEvent]) -> Iterator[_Band]:
    """Warps next to each other whose own rows are alike and that begin nothing asynchronous share a row."""
    rows_ = list(rows(events))
    for alike, group in groupby(rows_, key=lambda row: _alike(row, rows_)):
        mine = list(group)
        if alike and len({row.warp for row in mine}) > 1:
            yield _Band(f"warps {mine[0].warp}-{mine[-1].warp}", (mine[0],))
            continue
        for label, band in groupby(mine, key=lambda row: row.name.partition(" (")[0]):
            yield _Band(label, tuple(band))


def _alike(row: TraceRow, rows_: Sequence[TraceRow]) -> tuple[object, ...]:
    own = row.name == f"warp {row.warp}"
    busy = any(other.warp == row.warp and other is not row for other in rows_)
    if not own or busy:
        return ()
    return tuple((event.kind, event.name, event.start, event.end) for event in row.events)


def _legend(events: Sequence[TraceEvent], y: float) -> Iterator[str]:
    """The legend, with the colours that the picture uses."""
    colours = {COLOURS[event.kind] for event in events}
    if any(event.asynchronous and event.kind == "product" for event in events):
        colours.add(UNDER_WAY)
    x = float(MARGIN)
    for words, fill in LEGEND:
        if fill in colours:
            yield bar(x, y, 14, 10, fill)
            yield text(x + 19, y + 9, words)
            x += 40 + 5.0 * len(words)


def _axis(cycles: int, bottom: float) -> Iterator[str]:
    """A line and a number every so many cycles."""
    step = next(s for s in (10**k * m for k in range(1, 12) for m in (1, 2, 5)) if cycles / s <= 12)
    for at in range(0, cycles + 1, step):
        x = LEFT + MARGIN + WIDTH * at / cycles
        yield f'<path d="M{number(x)} {TOP - 4}V{number(bottom)}" stroke="#ccc" stroke-width=".6"/>\n'
        yield text(x, bottom + 14, f"{at:,}", "t")


def _drawn(bands: Sequence[_Band], cycles: int) -> Iterator[str]:
    y = float(TOP)
    for band in bands:
        yield text(LEFT + MARGIN - 8, y + band.height / 2 + 3.5, band.label, "r")
        for i, row in enumerate(band.rows):
            high = THICK if len(band.rows) == 1 else THIN
            for event in row.events:
                yield from _event(event, y + i * (THIN + 1), high, WIDTH / cycles)
        y += band.height + SPACE


def _event(event: TraceEvent, y: float, high: float, scale: float) -> Iterator[str]:
    x, wide = LEFT + MARGIN + event.start * scale, (event.end - event.start) * scale
    if not (event.asynchronous and event.kind == "product"):
        yield bar(x, y, max(wide, 0.5), high, COLOURS[event.kind], event.name)
        return
    done, busy = event.details["done"], event.details["busy"]
    start = max(event.start, done - busy)
    yield bar(x, y, wide, high, UNDER_WAY, event.name)
    yield bar(LEFT + MARGIN + start * scale, y, (done - start) * scale, high, COLOURS["product"])
