"""A schedule as a picture: the tile of a CTA with its warps and their instructions, and the stages of the K loop."""

from __future__ import annotations

from collections.abc import Iterator

from ..layouts.pictures import FINE, box, colour, document, grid, text
from .records import LoopSchedule, TileSchedule

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
        box(left, TOP, wide, deep, colour(8)), *_label_of_b(tile, left, deep, wide),
        *_slices(tile, left, top, deep, high, wide),
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


def _label_of_b(tile: TileSchedule, left: float, deep: float, wide: float) -> Iterator[str]:
    """The size of B's tile, or of each slice of K if there is room."""
    (_, n, k), each = tile.cta, deep / tile.sliced_k
    numbered = tile.sliced_k > 1 and each >= LABELLED
    for part in range(tile.sliced_k if numbered else 1):
        words = f"B, slice {part}: {k // tile.sliced_k}x{n}" if numbered else f"B {k}x{n}"
        yield text(left + wide / 2, TOP + (part + 0.5) * (each if numbered else deep) + 4, words)


def _slices(tile: TileSchedule, left: float, top: float, deep: float, high: float, wide: float) -> Iterator[str]:
    """The lines between the slices of K, in A and in B."""
    if tile.sliced_k > 1:
        yield from grid(MARGIN, top, deep, high, deep / tile.sliced_k, high)
        yield from grid(left, TOP, wide, deep, wide, deep / tile.sliced_k)


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
            # Warps of one slice of K come after those of another.
            numbers = ", ".join(str(number + part * (m // rows * across)) for part in range(tile.sliced_k))
            words = f"{_member(tile)}{'s' if tile.sliced_k > 1 else ''} {numbers}"
            yield text(x + wide / 2, y + high / 2 + 4, words if wide > LETTER * len(words) else numbers)


def _stages(loop: LoopSchedule, y: float) -> Iterator[str]:
    """The buffers of the K loop: the one that is multiplied, and those that copies fill meanwhile."""
    for number in range(loop.stages):
        filled = 0 < number <= loop.tiles_ahead
        yield box(MARGIN + number * STAGE, y, STAGE - 4, 18, colour(12) if filled else "#ffffff", FINE)
        yield text(MARGIN + number * STAGE + STAGE / 2 - 2, y + 13, str(number))
    ahead = f", copies {loop.tiles_ahead} K tiles ahead" if loop.stages > 1 else ""
    yield text(MARGIN + loop.stages * STAGE + 6, y + 13, f"{loop.stages} stages{ahead}", "l")
