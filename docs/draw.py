"""Writes pictures/: what pages show of pipelines, tiles and layouts, drawn from the compiler and its traces.

python docs/draw.py            # or: make docs
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from textwrap import wrap
from typing import Any

import numpy as np
from choices import edges, operands, orders, results
from levels import ATTENTION_IN_TURNS, EXAMPLE, HERE, WARPGROUPS, WARPS, Walk, quoted

from warploom.dialect.isa.wgmma import UNIT, MatrixDescriptor
from warploom.dialect.layouts.pictures import Cell, Panel, Picture, box, colour, document, number, svg, text
from warploom.runtime import compile
from warploom.runtime.interp.watch.timeline import trace_svg
from warploom.runtime.kernel.binding import launch_values

FOLDER = HERE / "pictures"

LINE, ROWS = 128, 8
"""Bytes of a line of the 32 banks; rows that an instruction reads together."""


def pictures() -> dict[str, str]:
    """Every picture, by its name in the folder."""
    return {
        "pipeline-mma.svg": trace_svg(WARPS.trace()),
        "pipeline-wgmma.svg": trace_svg(WARPGROUPS.trace()),
        "attention-wgmma.svg": trace_svg(ATTENTION_IN_TURNS.trace()),
        "tiles-mma.svg": tiles(WARPS),
        "tiles-wgmma.svg": tiles(WARPGROUPS),
        "tiles-sliced.svg": tiles(SLICED),
        "swizzle.svg": svg(swizzles()),
        **{name: trace_svg(walk.trace()) for name, walk in CHANGED.items()},
        "grid.svg": svg(grids()),
        "clusters.svg": svg(clusters()),
        "orders.svg": svg(orders()),
        "edges.svg": svg(edges()),
        "operands.svg": svg(operands()),
        "padded.svg": svg(results()),
        "way.svg": lowering_levels(),
    }


def tiles(walk: Walk) -> str:
    """The tiles of CTA, warps and instructions, and the stages."""
    (schedule,) = compile(EXAMPLE.read_text(), "sm_90a", **dict(walk.options)).schedule  # pyright: ignore[reportArgumentType]
    if schedule is None:
        raise ValueError("the product has no schedule")
    return schedule._repr_svg_()


def swizzles() -> Picture:
    """Where the 16-byte chunks of eight rows lie, for every width of the swizzle."""
    return Picture(
        "Rows of a tile in shared memory, 128 bytes a line: where the 16-byte chunks of each row lie",
        tuple(_panel(width, row) for width, row in ((16, 128), (128, 128), (64, 64), (32, 32))),
        (
            "r2:c1 is chunk 1 of row 2. Columns are bytes of a line: chunks in one column lie in the same banks.",
            "ldmatrix and wgmma read a chunk of each of eight rows at a time, such as c0 of r0 to r7.",
            "Without a swizzle these lie in one column where rows have 128 bytes, with one in eight columns.",
        ),
        legend=False,
    )


def _panel(width: int, row: int) -> Panel:
    layout = MatrixDescriptor(0, 0, 0, width if width > UNIT else 0)
    cells = tuple(
        Cell(place // LINE, place % LINE, 1, UNIT, 4 * r, f"r{r}:c{chunk}")
        for r in range(ROWS)
        for chunk in range(row // UNIT)
        for place in [layout.swizzled(r * row + chunk * UNIT)]
    )
    what = "no swizzle" if width == UNIT else f"swizzle of {width} bytes"
    return Panel(f"swizzle = {width}: {what}, rows of {row} bytes", ROWS * row // LINE, LINE, cells)


def grids() -> Picture:
    """Which CTA computes which tile, for some fields of the grid."""
    return Picture(
        f"The {TILES}x{TILES} CTA tiles of D: the number of the CTA that computes each tile",
        tuple(_launched(name, options) for name, options in GRIDS.items()),
        (
            "A GPU starts CTAs in the order of their numbers. So the CTAs of a group run at about the same time,",
            "and find the same parts of A and B in L2. Persistent CTAs compute one tile after another.",
        ),
        legend=False,
    )


SLICED = Walk((*WARPS.options[:2], ("warp", "32,64"), ("sliced_k", "2"), ("stages", "3")))

CHANGED = {
    "stages.svg": Walk((*WARPS.options[:3], ("stages", "1"))),
    "prefetch.svg": Walk((*WARPS.options, ("prefetch", "1"))),
    "split_k.svg": Walk((*WARPS.options, ("split_k", "3"))),
}
"""Pipelines over time that differ from that of `WARPS` in one field."""

TILES, TILE = 6, (16, 8, 32)
GRIDS = {"group = 1": {"group": 1}, "group = 2": {"group": 2}, "ctas = 4, group = 2": {"ctas": 4, "group": 2}}


WARPGROUP_TILE = (64, 16, 64)


def clusters() -> Picture:
    """Which tiles the CTAs of a cluster compute."""
    shapes = {"cluster = 2, 1": (2, 1), "cluster = 1, 2": (1, 2), "cluster = 2, 2": (2, 2)}
    return Picture(
        f"The {TILES}x{TILES} CTA tiles of D: the number of the cluster that computes each tile",
        tuple(
            _launched(name, {"mma": "m64n16k16", "stages": 3, "ctas": 0, "cluster": shape}, WARPGROUP_TILE, prod(shape))
            for name, shape in shapes.items()
        ),
        (
            "CTAs of a cluster in one column of tiles need the same tile of B, those in one row the same tile of A.",
            "One of them copies it, or a part of it, to the shared memory of all of them.",
        ),
        legend=False,
    )


def _launched(title: str, options: dict[str, Any], tile: tuple[int, int, int] = TILE, together: int = 1) -> Panel:
    """Who writes which tile, as launches of the first CTA, the first two, and so on show; of clusters, `together` CTAs
    at a time."""
    (m, n, k), shape = tile, [TILES * size for size in tile[:2]]
    a, b, c = f"memref<{shape[0]}x{k}xf16>", f"memref<{k}x{shape[1]}xf16>", f"memref<{shape[0]}x{shape[1]}xf32>"
    text = f"""func.func @f(%A: {a}, %B: {b}, %C: {c}) {{
      %zero = arith.constant 0.0 : f32
      linalg.fill ins(%zero : f32) outs(%C : {c})
      linalg.matmul ins(%A, %B : {a}, {b}) outs(%C : {c})
      return }}"""
    kernel = compile(text, "sm_90a", **{"cta": tile, "warp": tile[:2], "mma": "m16n8k16", "stages": 1, **options})
    arrays = (
        np.zeros((shape[0], k), np.float16),
        np.zeros((k, shape[1]), np.float16),
        np.full(shape, np.nan, np.float32),
    )
    values = launch_values(kernel.function, arrays)
    plan = kernel.plan_for(values)
    (launch,) = plan.launches
    cells = dict[tuple[int, int], Cell]()
    for turn in range(launch.grid[0] // together):
        kernel.binary.run(
            plan._replace(launches=(replace(launch, grid=((turn + 1) * together, 1, 1)),)), values, device="interp"
        )
        for row, column in np.argwhere(~np.isnan(arrays[2][::m, ::n])).tolist():
            cells.setdefault((row, column), Cell(row, column, 1, 1, 4 * turn, str(turn)))
    return Panel(title, TILES, TILES, tuple(cells.values()))


def lowering_levels() -> str:
    """A product on its way down, a box for each level with what stands there for it."""
    levels = (
        ("linalg: what is asked for", 1, EXAMPLE.read_text(), ["linalg.fill", "linalg.matmul"]),
        ("warp: one operation, all choices in an attribute", 3, WARPS.level("warp-schedule"), [r"warp\.matmul"]),
        (
            "warp: a kernel over fragments",
            1,
            WARPS.level("warp-pipeline"),
            ["scf.for", "warp.load", r"warp\.copy.*async", r"warp\.mma ", "warp.store"],
        ),
        ("ptx: instructions", 1, WARPS.ptx(), ["cp.async.cg", "ldmatrix.sync", "mma.sync", "st.global"]),
    )
    body, y = list[str](), 16.0
    for i, (title, limit, level, patterns) in enumerate(levels):
        shown = [line.strip() for line in quoted(level, patterns, 400).splitlines() if line.strip() != "..."]
        lines = [part for line in shown for part in wrap(line, LETTERS, max_lines=limit, placeholder=" ...")]
        body += _level(title, lines, y, colour(4 * i))
        y += 34 + 15 * len(lines)
        body.append(text(WIDTH / 2, y + 12, "\N{DOWNWARDS ARROW}" if i < len(levels) - 1 else "", "a"))
        y += 20
    body += [
        *_end(16, y, "a GPU, by the driver or ptxas"),
        *_end(WIDTH / 2 + 8, y, "a CPU, with the same words in C"),
    ]
    return document(WIDTH, y + 46, body, STYLE)


WIDTH, LETTERS = 760.0, 100
STYLE = (
    "text{fill:#111}.h{font-size:12px;font-weight:bold}.c{font-family:monospace;font-size:11px}"
    ".a{text-anchor:middle;font-size:14px}.e{text-anchor:middle;font-size:12px;font-weight:bold}"
)


def _level(title: str, lines: Sequence[str], y: float, fill: str) -> Iterator[str]:
    yield box(16, y, WIDTH - 32, 30 + 15 * len(lines), fill, 0.8)
    yield text(26, y + 17, title, "h")
    for i, line in enumerate(lines):
        yield text(26, y + 34 + 15 * i, line, "c")


def _end(x: float, y: float, words: str) -> Iterator[str]:
    yield box(x, y, WIDTH / 2 - 24, 30, "#ffffff", 0.8)
    yield text(float(number(x + WIDTH / 4 - 12)), y + 19, words, "e")


def write() -> None:
    """Writes the pictures, and removes those that there are no more."""
    made = pictures()
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*"):
        if old.name not in made:
            old.unlink()
    for name, picture in made.items():
        (FOLDER / name).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    write()
