"""Pictures of what a schedule does to tiles at the edge, to the order of instructions, and to operands in memory.

Each is read off the PTX, or a level, of a product that is compiled for it.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from warploom.dialect.layouts.pictures import Cell, Panel, Picture
from warploom.passes.pipeline import lower, standard_pipeline
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import Kernel, compile, load_ptx

TARGET = "sm_90a"
LINE = 16
"""Bytes of a line in the picture of memory."""


def product(m: int, n: int, k: int, *, element: str = "f16", result: str = "f32") -> str:
    """A B in MLIR, all row-major."""
    a, b, c = f"memref<{m}x{k}x{element}>", f"memref<{k}x{n}x{element}>", f"memref<{m}x{n}x{result}>"
    return f"""func.func @f(%A: {a}, %B: {b}, %C: {c}) {{
      %zero = arith.constant 0.0 : {result}
      linalg.fill ins(%zero : {result}) outs(%C : {c})
      linalg.matmul ins(%A, %B : {a}, {b}) outs(%C : {c})
      return }}"""


def orders() -> Picture:
    """In which order a warp executes the instructions of its tile."""
    return Picture(
        "A warp tile of 64x32: the order of its instructions m16n8k16 in one step of K",
        tuple(_ordered(order) for order in ("rows", "serpentine")),
        ("Instructions of a row read the same A, those of a column the same B.",),
        legend=False,
    )


def _ordered(order: str) -> Panel:
    tile: dict[str, Any] = {"cta": (64, 32, 16), "warp": (64, 32), "mma": "m16n8k16", "stages": 1}
    ptx = compile(product(64, 32, 16), TARGET, order=order, **tile).ptx
    operands = re.findall(r"mma\.sync\S+ \{[^}]*\}, \{([^}]*)\}, \{([^}]*)\}", ptx)
    rows, columns = (list(dict.fromkeys(side)) for side in zip(*operands, strict=True))
    cells = (
        Cell(rows.index(a), columns.index(b), 1, 1, 4 * rows.index(a), str(number))
        for number, (a, b) in enumerate(operands)
    )
    return Panel(f"order = {order}", len(rows), len(columns), tuple(cells))


UNIT = (8, 4)
"""The part of D that a cell of `edges` stands for."""


def edges() -> Picture:
    """Which CTAs write which part of a D that tiles do not divide."""
    return Picture(
        "D of 40x20 in CTA tiles of 16x8: the numbers of the CTAs that write each part of 8x4",
        tuple(_written(place) for place in ("inside", "predicated")),
        ("Tiles that are moved back compute some elements again, with the same result, and need no bounds.",),
        legend=False,
    )


def _written(entry: str) -> Panel:
    tile: dict[str, Any] = {"cta": (16, 8, 32), "warp": (16, 8), "mma": "m16n8k16", "stages": 1}
    kernel = compile(product(40, 20, 32), TARGET, edges=entry, **tile)
    (launch,) = kernel.launches
    writers: dict[tuple[int, int], list[int]] = {}
    for cta in range(launch.grid[0]):
        for place in np.argwhere(_of_one_cta(kernel, cta)).tolist():
            writers.setdefault((place[0], place[1]), []).append(cta)
    cells = (Cell(r, c, 1, 1, 4 * of[-1], ",".join(map(str, of))) for (r, c), of in writers.items())
    return Panel(f"edges = {entry}", 40 // UNIT[0], 20 // UNIT[1], tuple(cells))


def _of_one_cta(kernel: Kernel, cta: int) -> Any:
    """Which parts of D the CTA of a number writes: the kernel with that number in place of `%ctaid.x`."""
    (launch,) = kernel.launches
    alone = load_ptx(kernel.ptx.replace("%ctaid.x", str(cta)))
    arrays = np.zeros((40, 32), np.float16), np.zeros((32, 20), np.float16), np.full((40, 20), np.nan, np.float32)
    alone.launch(launch.kernel, 1, launch.block, arrays, launch.shared, device="interp")
    return ~np.isnan(arrays[2][:: UNIT[0], :: UNIT[1]])


SHOWN, HALF, SINGLE = 4, 2, 4
"""Rows that a picture of memory shows; bytes of an f16 and an f32."""


def operands() -> Picture:
    """Where rows of B lie as they are given, and in the memory that other kernels make of it."""
    m, n, k = SIZES
    packed, transposed = (_pitch(options) for options in ({"pack": "b"}, {"transpose": "b", "mma": "m64n16k16"}))
    return Picture(
        f"B of a product of {m}x{n}x{k} in memory, {LINE} bytes a line",
        (
            _rows("as it is given, rows", n * HALF, n * HALF, HALF),
            _rows("pack = b, rows", n * HALF, packed * HALF, HALF),
            _rows("transpose = b, columns", k * HALF, transposed * HALF, HALF),
        ),
        (
            "A cell is an element, with the number of its row or column.",
            "Copies of 16 bytes and tensor copies need rows that begin where lines begin.",
        ),
        legend=False,
    )


def results() -> Picture:
    """Where rows of D lie as it is given, and in the memory in which it is computed first."""
    m, n, k = SIZES
    padded = _pitch({"padded": "d", "mma": "m64n16k16"})
    return Picture(
        f"D of a product of {m}x{n}x{k} in memory, {LINE} bytes a line",
        (
            _rows("as it is given, rows", n * SINGLE, n * SINGLE, SINGLE),
            _rows("padded = d, rows", n * SINGLE, padded * SINGLE, SINGLE),
        ),
        ("Tensor stores need rows that begin where lines begin. Another kernel then copies D.",),
        legend=False,
    )


SIZES = 100, 11, 16


def _pitch(options: dict[str, str]) -> int:
    """Elements from one row to the next in the memory that another kernel fills, or reads, for a schedule."""
    context = make_context()
    module = parse_mlir(context, product(*SIZES))
    passes = re.findall(r"[\w-]+(?:\{[^}]*\})?", standard_pipeline(TARGET, {**options, "stages": "3"}))
    names = [one.partition("{")[0] for one in passes]
    lower(module, context, ",".join(passes[: names.index("warp-pack") + 1]))
    match = re.search(r"memref\.alloc\(\) : memref<\d+x(\d+)xf\d+>", str(module))
    if match is None:
        raise ValueError(f"{options} make no other memory any more")
    return int(match[1])


def _rows(title: str, size: int, pitch: int, element: int) -> Panel:
    """The elements of rows of so many bytes, with a gap up to the pitch."""
    cells = (
        Cell(at // LINE, at % LINE, 1, element, 4 * row, str(row))
        for row in range(SHOWN)
        for at in range(row * pitch, row * pitch + size, element)
    )
    return Panel(title, -(-SHOWN * pitch // LINE), LINE, tuple(cells))
