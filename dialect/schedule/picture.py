"""A schedule as a picture: the tile of a CTA with its warps and their instructions, and the stages of the K loop; and
the result of a product in such tiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Protocol

from ..isa.form import Shape
from ..layouts.pictures import FINE, box, colour, document, grid, text

SIDE, RESULT_SIDE = 260.0, 200.0
"""Pixels of the longer side of the CTA tile, and of a result."""

THIN = 14.0
"""Pixels of the K side of an operand's tile, at least."""

LETTER = 6.5
"""Pixels of a letter of a label, about."""

LABELLED = 22.0
"""Pixels from which on there is room for a label."""

MARGIN, TOP, STAGE = 16.0, 30.0, 34.0


class PicturedSchedule(Protocol):
    """The part of a schedule that the picture needs; see `Schedule`."""

    @property
    def cta(self) -> Sequence[int]: ...
    @property
    def warp(self) -> Sequence[int]: ...
    @property
    def mma(self) -> Shape: ...
    @property
    def sliced_k(self) -> int: ...
    @property
    def stages(self) -> int: ...
    @property
    def tiles_ahead(self) -> int: ...
    @property
    def together(self) -> int: ...
    @property
    def warps(self) -> int: ...


def picture(schedule: PicturedSchedule) -> str:
    """The SVG of a schedule: A left of the tile of D, B above it, each warp's part, instructions within the first."""
    (m, n, k), (rows, columns) = schedule.cta, schedule.warp
    scale = SIDE / max(m, n)
    deep = max(k * scale, THIN)
    left, top = MARGIN + deep + 8, TOP + deep + 8
    wide, high = n * scale, m * scale
    bottom = top + high + 20
    body = [
        text(MARGIN, MARGIN + 4, title(schedule), "h"),
        box(MARGIN, top, deep, high, colour(4)), text(MARGIN + deep / 2, top - 4, f"A {m}x{k}"),
        box(left, TOP, wide, deep, colour(8)), *_label_of_b(schedule, left, deep, wide),
        *_slices(schedule, left, top, deep, high, wide),
        *_warps(schedule, left, top, scale),
        *grid(left, top, columns * scale, rows * scale, schedule.mma.n * scale, schedule.mma.m * scale),
        *_stages(schedule, bottom),
    ]  # fmt: skip
    width = max(left + wide, 9.0 * len(title(schedule)), MARGIN + schedule.stages * STAGE + 200) + MARGIN
    return document(width, bottom + 40, body)


def with_table(schedule: PicturedSchedule, fields: Iterable[tuple[str, str, str]]) -> str:
    """The picture, and a table of the fields: name, value and meaning."""
    rows = (f"<tr><th>{name}</th><td>{escape(value)}</td><td>{escape(says)}</td></tr>" for name, value, says in fields)
    return f"{picture(schedule)}<table>{''.join(rows)}</table>"


def title(schedule: PicturedSchedule) -> str:
    """The title of the picture."""
    (m, n, k), (rows, columns) = schedule.cta, schedule.warp
    slices = f" in {schedule.sliced_k} slices of K" if schedule.sliced_k > 1 else ""
    count = schedule.warps // schedule.together
    return f"CTA tile {m}x{n}x{k}, {count} {_member(schedule)}s of {rows}x{columns}{slices}, mma {schedule.mma}"


def _label_of_b(schedule: PicturedSchedule, left: float, deep: float, wide: float) -> Iterator[str]:
    """The size of B's tile, or of each slice of K if there is room."""
    (_, n, k), each = schedule.cta, deep / schedule.sliced_k
    numbered = schedule.sliced_k > 1 and each >= LABELLED
    for part in range(schedule.sliced_k if numbered else 1):
        words = f"B, slice {part}: {k // schedule.sliced_k}x{n}" if numbered else f"B {k}x{n}"
        yield text(left + wide / 2, TOP + (part + 0.5) * (each if numbered else deep) + 4, words)


def _slices(
    schedule: PicturedSchedule, left: float, top: float, deep: float, high: float, wide: float
) -> Iterator[str]:
    """The lines between the slices of K, in A and in B."""
    if schedule.sliced_k > 1:
        yield from grid(MARGIN, top, deep, high, deep / schedule.sliced_k, high)
        yield from grid(left, TOP, wide, deep, wide, deep / schedule.sliced_k)


def _member(schedule: PicturedSchedule) -> str:
    """Who computes a part of the tile."""
    return "warp" if schedule.together == 1 else "warpgroup"


def _warps(schedule: PicturedSchedule, left: float, top: float, scale: float) -> Iterator[str]:
    (m, n, _), (rows, columns) = schedule.cta, schedule.warp
    wide, high = columns * scale, rows * scale
    across = n // columns
    for number in range(m // rows * across):
        x, y = left + number % across * wide, top + number // across * high
        yield box(x, y, wide, high, colour(4 * number))
        if min(wide, high) >= LABELLED:
            # Warps of one slice of K come after those of another.
            numbers = ", ".join(str(number + part * (m // rows * across)) for part in range(schedule.sliced_k))
            words = f"{_member(schedule)}{'s' if schedule.sliced_k > 1 else ''} {numbers}"
            yield text(x + wide / 2, y + high / 2 + 4, words if wide > LETTER * len(words) else numbers)


def _stages(schedule: PicturedSchedule, y: float) -> Iterator[str]:
    """The buffers of the K loop: one is multiplied while copies fill the others."""
    for number in range(schedule.stages):
        filled = 0 < number <= schedule.tiles_ahead
        yield box(MARGIN + number * STAGE, y, STAGE - 4, 18, colour(12) if filled else "#ffffff", FINE)
        yield text(MARGIN + number * STAGE + STAGE / 2 - 2, y + 13, str(number))
    ahead = f", copies {schedule.tiles_ahead} K tiles ahead" if schedule.stages > 1 else ""
    yield text(MARGIN + schedule.stages * STAGE + 6, y + 13, f"{schedule.stages} stages{ahead}", "l")


def result_picture(name: str, m: int, n: int, schedule: PicturedSchedule) -> str:
    """The SVG of the result of a product, m x n, cut into the tiles of CTAs."""
    (down, across), scale = schedule.cta[:2], RESULT_SIDE / max(m, n)
    wide, high = n * scale, m * scale
    tiles = f"{-(-m // down)} x {-(-n // across)} CTA tiles of {down}x{across}"
    body = [
        text(16, 20, f"{name}: {tiles}", "h"),
        box(16, 32, wide, high, colour(0)),
        box(16, 32, min(across * scale, wide), min(down * scale, high), colour(4)),
        *grid(16, 32, wide, high, across * scale, down * scale),
    ]
    return document(max(wide, 320) + 32, high + 48, body)
