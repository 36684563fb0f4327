"""A schedule as a picture: the tile of a CTA with its warps and their instructions, and the stages of the K loop."""

from __future__ import annotations

from collections.abc import Iterator

from ..pictures.shapes import FINE, box, colour, document, grid, text
from .loop import LoopSchedule
from .tile import TileSchedule

SIDE = 260.0
"""Pixels of the longer side of the CTA tile."""

THIN = 14.0
"""Pixels of the K side of an operand's tile, at least."""

LETTER = 6.5
"""Pixels of a letter of a label, about."""

LABELLED = 22.0
"""Pixels from which on there is room for a label."""

MARGIN, TOP, STAGE = 16.0, 30.0, 34.0


def picture(tile: TileSchedule, loop: LoopSchedule) -> str:
    """The SVG of a schedule: A left of the tile of D, B above it, each warp's part, instructions within the first."""
    m, n, k = tile.cta
    scale = SIDE / max(m, n)
    deep = max(k * scale, THIN)
    left, top = MARGIN + deep + 8, TOP + deep + 8
    wide, high = n * scale, m * scale
    bottom = top + high + 20
    body = [
        text(MARGIN, MARGIN + 4, title(tile), "h"),
        box(MARGIN, top, deep, high, colour(4)), text(MARGIN + deep / 2, top - 4, f"A {m}x{k}"),
        box(left, TOP, wide, deep, colour(8)), text(left + wide / 2, TOP + deep / 2 + 4, f"B {k}x{n}"),
        *_warps(tile, left, top, scale),
        *grid(left, top, tile.warp[1] * scale, tile.warp[0] * scale, tile.mma.n * scale, tile.mma.m * scale),
        *_stages(loop, bottom),
    ]  # fmt: skip
    width = max(left + wide, 9.0 * len(title(tile)), MARGIN + loop.stages * STAGE + 200) + MARGIN
    return document(width, bottom + 40, body)


def title(tile: TileSchedule) -> str:
    """What the picture shows."""
    (m, n, k), (rows, columns) = tile.cta, tile.warp
    slices = f" in {tile.sliced_k} slices of K" if tile.sliced_k > 1 else ""
    count = tile.warps // tile.together
    return f"CTA tile {m}x{n}x{k}, {count} {_member(tile)}s of {rows}x{columns}{slices}, mma {tile.mma}"


def _member(tile: TileSchedule) -> str:
    """Who computes a part of the tile."""
    return "warp" if tile.together == 1 else "warpgroup"


def _warps(tile: TileSchedule, left: float, top: float, scale: float) -> Iterator[str]:
    (m, n, _), (rows, columns) = tile.cta, tile.warp
    wide, high = columns * scale, rows * scale
    across = n // columns
    for number in range(m // rows * across):
        x, y = left + number % across * wide, top + number // across * high
        yield box(x, y, wide, high, colour(4 * number))
        if min(wide, high) >= LABELLED:
            words = f"{_member(tile)} {number}"
            yield text(x + wide / 2, y + high / 2 + 4, words if wide > LETTER * len(words) else str(number))


def _stages(loop: LoopSchedule, y: float) -> Iterator[str]:
    """The buffers of the K loop: the one that is multiplied, and those that copies fill meanwhile."""
    for number in range(loop.stages):
        filled = 0 < number <= loop.tiles_ahead
        yield box(MARGIN + number * STAGE, y, STAGE - 4, 18, colour(12) if filled else "#ffffff", FINE)
        yield text(MARGIN + number * STAGE + STAGE / 2 - 2, y + 13, str(number))
    ahead = f", copies {loop.tiles_ahead} K tiles ahead" if loop.stages > 1 else ""
    yield text(MARGIN + loop.stages * STAGE + 6, y + 13, f"{loop.stages} stages{ahead}", "l")
