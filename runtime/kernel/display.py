"""Kernels as notebooks show them: a table, the PTX folded away, and the picture of what a CTA computes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ...dialect.layouts.pictures import box, colour, document, grid, text
from ...dialect.schedule import Schedule
from ..arguments.signature import Signature
from ..base.launch import Launch, Problem

SIDE = 200.0
"""Pixels of the longer side of a result."""


def table(function: Signature, target: str, launches: Sequence[tuple[Launch, Schedule | None]], ptx: str) -> str:
    """A kernel as HTML."""
    rows = [("function", str(function)), ("target", target)]
    for launch, schedule in launches:
        sizes = ("x".join(map(str, size)) for size in (launch.grid, launch.block))
        rows.append((launch.kernel, "grid {}, block {}, {} bytes of shared memory".format(*sizes, launch.shared)))
        rows += [] if schedule is None else [("schedule", str(schedule))]
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    lines = len(ptx.splitlines())
    return f"<table>{cells}</table><details><summary>PTX, {lines} lines</summary><pre>{escape(ptx)}</pre></details>"


def result(problem: Problem, schedule: Schedule) -> str:
    """The SVG of a product's result, cut into the tiles of CTAs."""
    m, n, _ = schedule.cta
    scale = SIDE / max(problem.m, problem.n)
    wide, high = problem.n * scale, problem.m * scale
    tiles = f"{-(-problem.m // m)} x {-(-problem.n // n)} CTA tiles of {m}x{n}"
    body = [
        text(16, 20, f"{problem}: {tiles}", "h"),
        box(16, 32, wide, high, colour(0)),
        box(16, 32, min(n * scale, wide), min(m * scale, high), colour(4)),
        *grid(16, 32, wide, high, n * scale, m * scale),
    ]
    return document(max(wide, 320) + 32, high + 48, body)
