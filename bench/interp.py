"""How fast the interpreter is and what it takes: the arithmetic of the tensor cores alone, whole matmul kernels,
elementwise PTX; how time grows with the product, and the peak of memory.

    python bench/interp.py --json out.json

Times are the best of `--repeats`, after one run that is not timed. Results are checked before anything is timed. The
arithmetic is compared with the batched model of the package mmasim, where that can be imported: first the words, then
the time, taking the model's fastest size of tile. Peaks of memory are those of processes of their own, Python
included (on Linux).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warploom.dialect.isa.mma import Mma
from warploom.dialect.ptx.instructions import matrix_form
from warploom.dialect.ptx.parser import parse_ptx
from warploom.runtime import compile
from warploom.runtime.arguments.launch_values import values
from warploom.runtime.base.launch import Launch
from warploom.runtime.interp import Stats, load
from warploom.runtime.numerics.product import MatrixProduct

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


PEER = "mmasim"
PEER_VERSION = "2.1.1"
PEER_MISSING = (
    f"{PEER} is not installed, so there is nothing to compare the arithmetic with:\n"
    "  pip install torch --index-url https://download.pytorch.org/whl/cpu\n"
    f"  pip install --no-deps {PEER}=={PEER_VERSION}"
)
MEGABYTE = 10**6


@dataclass(frozen=True)
class Row:
    """One measurement: `rate` in millions of `unit` a second. `bar` is what it must reach, if `met` is not None."""

    name: str
    size: str
    seconds: float
    rate: float
    unit: str
    bar: str = ""
    met: bool | None = None


@dataclass(frozen=True)
class Peak:
    """The largest resident memory of a process that ran one launch, in MB; `limit` is 500 and twice the arrays."""

    name: str
    arrays: float
    peak: float

    @property
    def limit(self) -> float:
        return 2 * self.arrays + 500


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
PEER_NAMES = {80: "Ampere", 90: "Hopper"}


def random_matrices(n: int, *, bfloat: bool) -> tuple[Words, Words]:
    """Normal random A (n, n) and B (n, n), as 16-bit words."""
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((n, n)).astype(np.float32) for _ in range(2))
    if bfloat:
        return (a.view(np.uint32) >> 16).astype(np.uint16), (b.view(np.uint32) >> 16).astype(np.uint16)
    return a.astype(np.float16).view(np.uint16), b.astype(np.float16).view(np.uint16)


def arithmetic_alone(n: int, repeats: int) -> Iterator[Row]:
    """An n x n x n product by m16n8k16, all tiles of a K step together; then the same by the peer."""
    for types, sm in FORMS:
        row = matrix_form(f"mma.sync.aligned.m16n8k16.row.col.{types}")
        assert isinstance(row, Mma)
        name = f"m16n8k16 {types} sm_{sm}"
        a, b = random_matrices(n, bfloat="bf16" in types)
        ours = partial(product, MatrixProduct.on(f"sm_{sm}", row), *tiles(a, b), row.d.bits)
        seconds = best(ours, repeats)
        rate = n**3 / seconds / 1e6
        peer = theirs(sm, f"m16n8k16.{types}", a, b, repeats) if importlib.util.find_spec(PEER) else None
        if peer is None:
            yield Row(f"arithmetic {name}", f"{n}^3", seconds, rate, "multiply-adds")
            continue
        words, slow = peer
        different = int((words != untiled(ours(), n)).sum())
        if different:
            raise SystemExit(f"{name}: {different} of {words.size} words differ from {PEER}'s")
        ratio = slow / seconds
        bar = f"{ratio:.1f} times {PEER}; bar 5, target 10"
        yield Row(f"arithmetic {name}", f"{n}^3", seconds, rate, "multiply-adds", bar, ratio >= 5)
        yield Row(f"  the same by {PEER} {PEER_VERSION}", f"{n}^3", slow, n**3 / slow / 1e6, "multiply-adds")


def tiles(a: Words, b: Words) -> tuple[list[Words], list[Words]]:
    """For each K step, A (k, m, warps) and B (k, n, warps) of every instruction, one warp for each tile of D."""
    n = len(a)
    rows, columns, steps = n // 16, n // 8, n // 16
    left = a.reshape(rows, 16, steps, 16).transpose(2, 3, 1, 0)
    right = b.reshape(steps, 16, columns, 8).transpose(0, 1, 3, 2)
    return (
        [np.repeat(x, columns, axis=-1) for x in left],
        [np.ascontiguousarray(np.tile(x, rows)) for x in right],
    )


def product(model: MatrixProduct, a: list[Words], b: list[Words], bits: int) -> Words:
    """The K loop from zero: (16, 8, warps)."""
    d: Words = np.zeros((16, 8, a[0].shape[-1]), f"u{bits // 8}")
    for x, y in zip(a, b, strict=True):
        d = model(x, y, d)
    return d


def untiled(d: Words, n: int) -> Words:
    """The tiles of D as one matrix."""
    return d.reshape(16, 8, n // 16, n // 8).transpose(2, 0, 3, 1).reshape(n, n)


def theirs(sm: int, instruction: str, a: Words, b: Words, repeats: int) -> tuple[Words, float]:
    """The product by the peer's batched model, and the seconds of its fastest size of tile."""
    torch: Any = importlib.import_module("torch")
    model = importlib.import_module(f"{PEER}.nv_ptx").MMA(PEER_NAMES[sm], instruction)
    kind = torch.bfloat16 if "bf16" in instruction else torch.float16
    left, right = (torch.from_numpy(x.view(np.int16)).view(kind) for x in (a, b))
    result = torch.zeros((len(a), len(a)), dtype=torch.float16 if ".f16.f16.f16.f16" in instruction else torch.float32)

    def run(size: int) -> None:
        for i in range(0, len(a), size):
            for j in range(0, len(a), size):
                d = result[i : i + size, j : j + size]
                d.copy_(model(left[i : i + size], right[:, j : j + size], torch.zeros_like(d)))

    seconds = min(best(partial(run, size), repeats) for size in (16, 32, 64, 128, 256))
    words: Words = result.numpy()
    return words.view(f"u{words.itemsize}"), seconds


def matmul(n: int) -> tuple[Callable[[], object], float]:
    """Our own kernel of an n x n x n product, checked, and the bytes of its arrays."""
    random = np.random.default_rng(0)
    kernel = compile(MATMUL.format(n=n, t="f16"), target="sm_90a")
    a, b = (random.standard_normal((n, n)).astype(np.float16) for _ in range(2))
    c = np.zeros((n, n), np.float32)
    kernel(a, b, c, device="interp")
    exact = a.astype(np.float64) @ b.astype(np.float64)
    error = float(np.linalg.norm(c - exact) / np.linalg.norm(exact))
    if not error < 1e-5:
        raise SystemExit(f"matmul {n}: relative error {error:.2e}")
    return partial(kernel, a, b, c, device="interp"), a.nbytes + b.nbytes + c.nbytes


def whole_kernels(sizes: list[int], repeats: int) -> Iterator[Row]:
    """Our own kernels, from PTX text in memory to the result."""
    for n in sizes:
        run, _ = matmul(n)
        seconds = best(run, repeats)
        bar, met = ("at most 1500 ms", seconds <= 1.5) if n == 256 else ("", None)
        yield Row("matmul f16 -> f32, whole run", f"{n}^3", seconds, n**3 / seconds / 1e6, "multiply-adds", bar, met)


def growth(rows: list[Row]) -> Iterator[str]:
    """How the time of a multiply-add changes from the smallest whole kernel to the others."""
    kernels = [row for row in rows if row.name.startswith("matmul")]
    for row in kernels[1:]:
        ratio = kernels[0].rate / row.rate
        yield f"a multiply-add at {row.size} takes {ratio:.2f} of the time that it takes at {kernels[0].size}"


def axpy(n: int) -> tuple[Callable[[], Stats], float]:
    """Loads, integer and floating-point instructions, a store, for each of n threads; and the bytes of the arrays."""
    module = parse_ptx(ELEMENTWISE)
    program = load(module, "axpy.ptx")
    x, y = (np.random.default_rng(i).standard_normal(n).astype(np.float32) for i in range(2))
    z = np.full(n, np.nan, np.float32)
    launch = Launch("axpy", (-(-n // 256), 1, 1), (256, 1, 1), 0, (0, 1, 2, 3))
    run = partial(program.launch, launch, values(module.functions["axpy"], [x, y, z, n]))
    run()
    if np.isnan(z).any():
        raise SystemExit("elementwise: elements were not written")
    return run, x.nbytes + y.nbytes + z.nbytes


def elementwise(n: int, repeats: int) -> Iterator[Row]:
    """A wide grid."""
    run, _ = axpy(n)
    threads, seconds = run().threads, best(run, repeats)
    rate = threads / seconds / 1e6
    yield Row("elementwise PTX", f"{n} threads", seconds, rate, "lane-instructions", "at least 50", rate >= 50)


def peaks(sizes: list[int], threads: int) -> Iterator[Peak]:
    """The peaks of memory of launches in fresh processes."""
    for work, size, name in [*(("matmul", n, f"{n}^3") for n in sizes), ("axpy", threads, f"{threads} threads")]:
        command = [sys.executable, __file__, "--child", work, str(size)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        yield Peak(f"{work} {name}", **json.loads(done.stdout))


def child(work: str, size: int) -> None:
    """One launch; prints the sizes of the arrays and the peak of memory in MB."""
    _, arrays = matmul(size) if work == "matmul" else axpy(size)
    # Not getrusage: Linux keeps its peak across exec, so it would be that of the parent.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak = int(status["VmHWM"].split()[0]) * 1024
    print(json.dumps({"arrays": arrays / MEGABYTE, "peak": peak / MEGABYTE}))


def table(rows: list[Row]) -> str:
    """The rows as text."""
    lines = [f"{'what':<48} {'size':>16} {'ms':>9} {'million/s':>10}"]
    for r in rows:
        bar = "" if r.met is None else f" ({r.bar}: {'met' if r.met else 'MISSED'})"
        lines.append(f"{r.name:<48} {r.size:>16} {r.seconds * 1e3:>9.1f} {r.rate:>10.0f} {r.unit}{bar}")
    return "\n".join(lines)


def memory_table(rows: list[Peak]) -> str:
    """The peaks as text."""
    lines = [f"{'peak of memory, MB':<48} {'arrays':>16} {'peak':>9} {'limit':>10}"]
    for p in rows:
        verdict = "met" if p.peak <= p.limit else "MISSED"
        lines.append(f"{p.name:<48} {p.arrays:>16.1f} {p.peak:>9.0f} {p.limit:>10.0f} {verdict}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="*", default=[128, 256, 512], help="of whole kernels")
    parser.add_argument("--threads", type=int, default=1_000_000, help="of the elementwise kernel")
    parser.add_argument("--memory", type=int, nargs="*", default=[128, 256, 512, 1024], help="sizes to take peaks of")
    parser.add_argument("--json", type=Path, help="write the rows there")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child[0], int(arguments.child[1]))
        return
    rows = [
        *arithmetic_alone(256, arguments.repeats),
        *whole_kernels(arguments.sizes, arguments.repeats),
        *elementwise(arguments.threads, arguments.repeats),
    ]
    grown, memory = list(growth(rows)), list(peaks(arguments.memory, arguments.threads))
    print(table(rows), "", *grown, "", memory_table(memory), sep="\n")
    if importlib.util.find_spec(PEER) is None:
        print(f"\n{PEER_MISSING}")
    if arguments.json:
        record = {"speed": [asdict(r) for r in rows], "growth": grown, "memory": [asdict(p) for p in memory]}
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
