"""How fast the interpreter is: the tensor-core arithmetic alone, whole matmul kernels, elementwise PTX.

    python bench/interp.py --json out.json

Times are the best of `--repeats`, after one run that is not timed. Results are checked before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warploom.dialect.isa.mma import BY_SPELLING
from warploom.passes.ptx_parser import parse_ptx
from warploom.runtime import compile
from warploom.runtime.interp import load
from warploom.runtime.interp.product import MatrixProduct

Words = NDArray[Any]

MATMUL = """
func.func @matmul(%A: memref<{n}x{n}x{t}>, %B: memref<{n}x{n}x{t}>, %C: memref<{n}x{n}xf32>) {{
  linalg.matmul ins(%A, %B : memref<{n}x{n}x{t}>, memref<{n}x{n}x{t}>) outs(%C : memref<{n}x{n}xf32>)
  return
}}
"""

ELEMENTWISE = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry axpy(.param .u64 x, .param .u64 y, .param .u64 z, .param .u32 n)
{
    .reg .pred %p; .reg .b32 %r<8>; .reg .f32 %f<8>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u64 %rd3, [z]; ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.s32 %p, %r5, %r1;
    @%p bra done;
    mul.wide.s32 %rd4, %r5, 4; add.s64 %rd5, %rd1, %rd4; add.s64 %rd6, %rd2, %rd4; add.s64 %rd7, %rd3, %rd4;
    ld.global.f32 %f1, [%rd5]; ld.global.f32 %f2, [%rd6]; mov.f32 %f5, 0f3F000000;
    fma.rn.f32 %f3, %f1, %f5, %f2; max.f32 %f4, %f3, %f1; mul.rn.f32 %f6, %f4, %f3;
    xor.b32 %r6, %r5, 85; and.b32 %r6, %r6, 127; shl.b32 %r6, %r6, 2; cvt.rn.f32.s32 %f7, %r6;
    add.rn.f32 %f6, %f6, %f7;
    st.global.f32 [%rd7], %f6;
done:
    ret;
}
"""


@dataclass(frozen=True)
class Row:
    """One measurement: `rate` in millions of `unit` a second."""

    name: str
    size: str
    seconds: float
    rate: float
    unit: str


def best(work: Callable[[], object], repeats: int) -> float:
    """Seconds of the fastest run."""
    work()
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


FORMS = (("f32.f16.f16.f32", 90), ("f32.bf16.bf16.f32", 90), ("f16.f16.f16.f16", 90), ("f32.f16.f16.f32", 80))


def operands(tiles: int, bfloat: bool) -> tuple[Words, Words]:
    """Normal random A and B of each warp's instruction, as words (k, rows, warps)."""
    random = np.random.default_rng(0)
    values = [random.standard_normal((16, size, tiles)).astype(np.float32) for size in (16, 8)]
    if bfloat:
        left, right = ((x.view(np.uint32) >> 16).astype(np.uint16) for x in values)
    else:
        left, right = (x.astype(np.float16).view(np.uint16) for x in values)
    return left, right


def arithmetic_alone(n: int, repeats: int) -> Iterator[Row]:
    """An n x n x n product as the instructions of one warp each, all warps of a K step together."""
    tiles = (n // 16) * (n // 8)
    for types, arch in FORMS:
        row = BY_SPELLING[f"mma.sync.aligned.m16n8k16.row.col.{types}"]
        model = MatrixProduct.on(f"sm_{arch}", row)
        a, b = operands(tiles, "bf16" in types)
        zero = np.zeros((16, 8, tiles), f"u{row.d.bits // 8}")
        seconds = best(partial(accumulate, model, a, b, zero, n // 16), repeats)
        yield Row(f"arithmetic m16n8k16 {types} sm_{arch}", f"{n}^3", seconds, n**3 / seconds / 1e6, "multiply-adds")


def accumulate(model: MatrixProduct, a: Words, b: Words, c: Words, steps: int) -> Words:
    """The K loop."""
    for _ in range(steps):
        c = model(a, b, c)
    return c


def whole_kernels(sizes: list[int], repeats: int) -> Iterator[Row]:
    """Our own kernels, from PTX text in memory to the result."""
    random = np.random.default_rng(0)
    for n in sizes:
        kernel = compile(MATMUL.format(n=n, t="f16"), target="sm_90a")
        a, b = (random.standard_normal((n, n)).astype(np.float16) for _ in range(2))
        c = np.zeros((n, n), np.float32)
        kernel(a, b, c, device="interp")
        exact = a.astype(np.float64) @ b.astype(np.float64)
        error = float(np.linalg.norm(c - exact) / np.linalg.norm(exact))
        if not error < 1e-5:
            raise SystemExit(f"matmul {n}: relative error {error:.2e}")
        seconds = best(partial(kernel, a, b, c, device="interp"), repeats)
        yield Row("matmul f16 -> f32, whole run", f"{n}^3", seconds, n**3 / seconds / 1e6, "multiply-adds")


def elementwise(n: int, repeats: int) -> Iterator[Row]:
    """Loads, integer and floating-point instructions, a store."""
    program = load(parse_ptx(ELEMENTWISE), "axpy.ptx")
    x, y = (np.random.default_rng(i).standard_normal(n).astype(np.float32) for i in range(2))
    z = np.full(n, np.nan, np.float32)
    grid = (-(-n // 256), 1, 1)
    stats = program.launch("axpy", grid, (256, 1, 1), [x, y, z, n])
    if np.isnan(z).any():
        raise SystemExit("elementwise: elements were not written")
    seconds = best(lambda: program.launch("axpy", grid, (256, 1, 1), [x, y, z, n]), repeats)
    yield Row("elementwise PTX", f"{n} threads", seconds, stats.threads / seconds / 1e6, "lane-instructions")


def table(rows: list[Row]) -> str:
    """The rows as text."""
    lines = [f"{'what':<48} {'size':>16} {'ms':>9} {'million/s':>10}"]
    lines += [f"{r.name:<48} {r.size:>16} {r.seconds * 1e3:>9.1f} {r.rate:>10.0f} {r.unit}" for r in rows]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="*", default=[128, 256, 512], help="of whole kernels")
    parser.add_argument("--threads", type=int, default=1_000_000, help="of the elementwise kernel")
    parser.add_argument("--json", type=Path, help="write the rows there")
    arguments = parser.parse_args()
    rows = [
        *arithmetic_alone(256, arguments.repeats),
        *whole_kernels(arguments.sizes, arguments.repeats),
        *elementwise(arguments.threads, arguments.repeats),
    ]
    print(table(rows))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(r) for r in rows], indent=2) + "\n")


if __name__ == "__main__":
    main()
