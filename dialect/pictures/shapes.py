"""What pictures are drawn with: SVG as text, and the colours of lanes."""

from __future__ import annotations

import colorsys
from collections.abc import Iterable, Iterator
from html import escape
from math import ceil

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


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """A line of text; `kind` is its class."""
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{number(x)}" y="{number(y)}">{escape(words)}</text>\n'


def grid(x: float, y: float, width: float, height: float, across: float, down: float) -> Iterator[str]:
    """Thin lines that cut a rectangle into parts of across x down pixels, unless they would run together."""
    if min(across, down) < 3:
        return
    columns, rows = ceil(width / across - 1e-6), ceil(height / down - 1e-6)
    lines = [f"M{number(x + i * across)} {number(y)}v{number(height)}" for i in range(1, columns)]
    lines += [f"M{number(x)} {number(y + i * down)}h{number(width)}" for i in range(1, rows)]
    yield f'<path d="{"".join(lines)}" fill="none" stroke="#666" stroke-width="{FINE}"/>\n'


def number(value: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")
