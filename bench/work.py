"""What models consist of, kind by kind, beside the library of each in one run: what README's first table shows.

    bench/with_gpu.sh python bench/work.py --json bench/work-h100.json
    bench/with_gpu.sh python bench/work.py --kinds rows experts

Cases and methods are those of the benchmark of each kind, which checks the results: `shapes.py`, `swiglu.py`,
`convolutions.py`, `rows.py` at rows of 4096, `attention.py`, `decode.py`, `attention_gradient.py`, `experts.py` with
groups of one size, `scaled.py`, and `packed.py` with integers and floats of 4 bits. Times are microseconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import attention
import attention_gradient
import convolutions
import decode
import experts
import packed
import rows
import scaled
import shapes
import swiglu
import torch
import weights
from gemm import Timer
from graphs import Graphs

TARGET = "sm_90a"
COLUMNS, ELEMENTS = 4096, 1 << 26
WEIGHTS = tuple((m, 8192, 8192) for m in (16, 256, 4096))
MODELS = ("r50", "next", "sdxl")
"""Convolutions of ResNet-50, ConvNeXt and SDXL."""


@dataclass(frozen=True)
class Row:
    """One case of a kind: microseconds of ours and of the peer."""

    kind: str
    case: str
    ours: float
    peer: float

    @property
    def speed(self) -> float:
        """Relative to the peer's."""
        return self.peer / self.ours


Cases = Iterator[tuple[str, float, float]]


def products() -> Cases:
    timer = Timer(torch, 15)
    for shape in shapes.read():
        rows = shapes.measure(torch, timer, shape, [{}], TARGET)
        work = 2 * shape.m * shape.n * shape.k / 1e6
        yield str(shape), work / rows.ours, work / rows.peer


def gated() -> Cases:
    bench = Graphs(torch, 9)
    for m in (16, 2048, 8192):
        times = swiglu.measured(torch, bench, (m, 14336, 4096), ())
        yield f"{m} rows", times["default"], times["torch.mm, silu, product"]


def images() -> Cases:
    for layer in convolutions.LAYERS:
        if layer.model in MODELS:
            row = convolutions.measure(torch, layer, search=False)
            yield row.layer, row.ours, row.cudnn


def of_rows() -> Cases:
    for name in rows.CASES:
        row = rows.measure(name, ELEMENTS // COLUMNS, COLUMNS, TARGET)
        yield name, row.ours, row.inductor


def forward() -> Cases:
    for width, length in attention.CASES:
        size = width, length, attention.WIDTH // width, attention.TOKENS // length
        for causal in (False, True):
            times = {row.name: row.microseconds for row in attention.measure(size, causal, TARGET, [{}], 10)}
            yield f"{width} x {length}{', causal' * causal}", times["warploom"], times["cudnn"]


def few_queries() -> Cases:
    rate = decode.copy_rate()
    for case in decode.CASES:
        measured = decode.measure(decode.Case(*map(int, case.split("x"))), [{}], TARGET, rate)
        times = {row.name: row.microseconds for row in measured}
        yield case, times["warploom"], min(times[name] for name in ("cudnn", "flash") if name in times)


def backward() -> Cases:
    for case in attention_gradient.CASES:
        size, causal = attention_gradient.size_of(case)
        measured = attention_gradient.measure(size, causal, TARGET, [], 10, parts=False)
        times = {row.name: row.microseconds for row in measured}
        yield case, times["warploom"], times["cudnn"]


def of_experts() -> Cases:
    timer = Timer(torch, 10)
    for problem in map(experts.Experts.of, experts.SIZES):
        kernels = experts.compiled(problem, [experts.ROWS, experts.GRADIENT], [""], TARGET)
        calls = [one for one in experts.calls(torch, problem, kernels, "even") if "cuBLAS" not in one.name]
        times = experts.milliseconds(timer, calls)
        measured = {one.name: 1e3 * ms for one, ms in zip(calls, times, strict=True)}
        for kind in kernels:
            yield f"{problem}, {kind}", measured[kind], measured[f"torch {kind}"]
        del calls
        torch.cuda.empty_cache()


def blocks() -> Cases:
    timer = Timer(torch, 15)
    for text in scaled.SIZES:
        m, n, k = map(int, text.split("x"))
        kernels = scaled.compiled((m, n, k), [""], TARGET)
        times = {row.name: 1e3 * row.milliseconds for row in scaled.measured(torch, timer, (m, n, k), kernels)}
        yield text, times["ours"], times["torch._scaled_mm"]


def few_bits() -> Cases:
    timer = weights.ReadTimer(torch, 3)
    for m, n, k in WEIGHTS:
        of_integers = packed.Packed(m, n, k, 4, 128)
        for product in (of_integers, of_integers._replace(group=32, points=False, floats=True)):
            times = packed.measured(torch, timer, product, packed.compiled(product, []))
            yield f"{m}x{n}x{k}{', mxfp4' * product.floats}", 1e3 * times[""], 1e3 * times[packed.PEER]


KINDS: dict[str, Callable[[], Cases]] = {
    "products": products,
    "gated": gated,
    "convolutions": images,
    "rows": of_rows,
    "attention": forward,
    "decode": few_queries,
    "gradients": backward,
    "experts": of_experts,
    "blocks": blocks,
    "weights": few_bits,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    compiler: Any = torch._dynamo  # pyright: ignore[reportPrivateUsage]
    compiler.config.recompile_limit = 64
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    made = list[Row]()
    for kind in options.kinds:
        start = time.perf_counter()
        rows = [Row(kind, *case) for case in KINDS[kind]()]
        seconds = time.perf_counter() - start
        speeds = [row.speed for row in rows]
        slowest = min(rows, key=lambda row: row.speed)
        mean = statistics.geometric_mean(speeds)
        least = f"least {slowest.speed:.3f}: {slowest.case}"
        print(f"{kind:12} {len(rows):3} cases, mean {mean:.3f}, {least} ({seconds:.0f} s)", flush=True)
        made += rows
        torch.cuda.empty_cache()
        if options.json is not None:
            table = {"device": torch.cuda.get_device_name(), "rows": [asdict(row) for row in made]}
            options.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
