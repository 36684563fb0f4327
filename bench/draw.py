"""Products of sizes that nobody chose: M, N and K log-uniform between 8 and 16384, bf16 A B^T as of `nn.Linear`, the
default kernel of each against cuBLAS (`torch.mm`).

    bench/with_gpu.sh python bench/draw.py 1 200 --json draw.json
    bench/with_gpu.sh python bench/draw.py 1 200 --any
    bench/with_gpu.sh python bench/draw.py 1 200 --compile      # on all cores, nothing is measured
    bench/with_gpu.sh python bench/draw.py 1 0 --size 777x8192x8192 --sweep "cta=128,192,64 mma=m64n192k16"

Sizes are multiples of 8, or any integers with `--any`. A figure is the median of replays of a CUDA graph: launches in a
row over sets of random operands that take turns, together larger than the L2 cache where at most `MAX_SETS` are; the
two kernels' graphs take turns, too. Before that the first and last rows are compared with float64, on an output that
was poisoned. `--seconds` ends a run that takes longer, and the table says how many shapes it has.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from gemm import ERROR_LIMIT, find_torch, parse_size, product_launch
from gemm_types import KINDS
from graphs import Graphs, Size
from shapes import read

from warploom.runtime import CompileError, Kernel, compile

MIN, MAX = 8, 16384
ROWS_CHECKED, FEW_ROWS = 64, 128


@dataclass(frozen=True)
class Result:
    """Microseconds of a shape by cuBLAS, and of ours by the text of its schedule, the default first."""

    size: Size
    peer: float
    ours: dict[str, float]

    @property
    def ratio(self) -> float:
        return self.peer / next(iter(self.ours.values()))

    @property
    def best(self) -> float:
        return self.peer / min(self.ours.values())


def draw(seed: int, count: int, step: int) -> list[Size]:
    """Sizes, each a multiple of `step`."""
    source, low, high = random.Random(seed), math.log(MIN), math.log(MAX)

    def one() -> int:
        return max(MIN, round(math.exp(source.uniform(low, high)) / step) * step)

    return [(one(), one(), one()) for _ in range(count)]


def lower(size: Size, fields: dict[str, Any], target: str) -> Kernel | str:
    """Our kernel, or why its schedule does not fit."""
    try:
        return compile(KINDS["bf16"].text(size, "bf16", transposed=True), target=target, **fields)
    except CompileError as error:
        return f"{'x'.join(map(str, size))} {fields}: {str(error).splitlines()[0]}"


def _fill(size: Size, fields: dict[str, Any], target: str) -> None:
    from warploom.runtime.cuda.driver import gpu

    if isinstance(kernel := lower(size, fields, target), Kernel):
        gpu().load(kernel.ptx)  # the driver keeps the machine code on disk


def fill(sizes: Sequence[Size], schedules: Callable[[Size], Sequence[dict[str, Any]]], target: str) -> None:
    """Compiles everything on all cores."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for made in [pool.submit(_fill, size, fields, target) for size in sizes for fields in schedules(size)]:
            made.result()


class Bench(Graphs):
    """Our kernels and cuBLAS on the same operands."""

    def check(self, size: Size, operands: tuple[Any, Any, Any], what: str) -> None:
        """Compares rows with float64, and looks for what nothing wrote."""
        a, b, out = operands
        for rows in (slice(0, ROWS_CHECKED), slice(-ROWS_CHECKED, None)):
            expected = a[rows].double() @ b.double().t()
            error = float((out[rows].double() - expected).norm() / expected.norm())
            if not (error <= ERROR_LIMIT["bf16"] and bool(out.isfinite().all())):
                raise SystemExit(f"{size}, {what}: relative error {error:.2e}")

    def measure(self, size: Size, schedules: Sequence[dict[str, Any]], target: str) -> Result:
        """Our kernels and cuBLAS on the same operands."""
        torch, sets, graphs, names = self.torch, self.sets(size), list[tuple[Any, int]](), list[str]()
        alive: list[object] = []  # what prepared calls keep in memory, their graphs use
        with torch.cuda.stream(self.stream):
            for fields in schedules:
                if isinstance(kernel := lower(size, fields, target), str):
                    print(kernel, file=sys.stderr)
                    continue
                sets[0][2].fill_(float("nan"))
                alive += (calls := [kernel.prepare(*operands) for operands in sets])
                for call in calls[:2]:
                    call()
                self.stream.synchronize()
                self.check(size, sets[0], str(fields))
                graphs.append(self.graph(size, calls))
                names.append(str(product_launch(kernel)[1]))
            peers = [lambda a=a, b=b, out=out: torch.mm(a, b.t(), out=out) for a, b, out in sets]
            for peer in peers[:2]:
                peer()
            self.stream.synchronize()
            graphs.append(self.graph(size, peers))
            *ours, peer = self.microseconds(graphs)
        return Result(size, peer, dict(zip(names, ours, strict=True)))


def show(results: Sequence[Result], worst: int = 10) -> None:
    """The worst shapes with their schedules, and what the others are like."""
    ratios = sorted(result.ratio for result in results)
    for result in sorted(results, key=lambda r: r.ratio)[:worst]:
        (schedule, ours), *others = result.ours.items()
        best, least = min(others, key=lambda item: item[1], default=("", ours))
        more = f" | {least:.1f} by {best}" if least < ours else ""
        size = "x".join(map(str, result.size))
        print(f"{size:>18} {ours:8.1f} us, cuBLAS {result.peer:8.1f}, {result.ratio:5.2f}  {schedule[:90]}{more}")
    above = sum(ratio > 0.95 for ratio in ratios) / len(ratios)
    mean = statistics.geometric_mean(ratios)
    best = statistics.geometric_mean(result.best for result in results)
    for number in range(1, max(len(result.ours) for result in results)):
        others = [(r.size, [*r.ours.values()]) for r in results if len(r.ours) > number]
        for what, few in (("of at most 128 rows", True), ("of more rows", False)):
            part = sorted(ours[0] / ours[number] for (m, _, _), ours in others if (m <= FEW_ROWS) == few)
            if part:
                print(f"schedule {number}, of the first, {what}: mean {statistics.mean(part):.3f}, least {part[0]:.2f}")
    print(
        f"{len(ratios)} shapes, of cuBLAS: geometric mean {mean:.3f}, mean {statistics.mean(ratios):.3f}, above 0.95 "
        f"{above:.1%}, least {ratios[0]:.2f}; with the best of what was tried {best:.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--any", action="store_true", help="any integers, not multiples of 8")
    parser.add_argument("--size", nargs="+", type=parse_size, default=[], help="further shapes, MxNxK")
    parser.add_argument("--shapes", type=Path, help="a file of further shapes, as `shapes.txt` is one")
    parser.add_argument("--sweep", action="append", default=[], metavar="'KEY=VALUE KEY=VALUE'")
    parser.add_argument("--compile", action="store_true", help="compile on all cores, measure nothing")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    listed = [] if options.shapes is None else [(s.m, s.n, s.k) for s in read(options.shapes)]
    sizes = [*options.size, *listed, *draw(options.seed, options.count, 1 if options.any else 8)]
    schedules = [{}, *(dict(pair.split("=", 1) for pair in words.split()) for words in options.sweep)]
    if options.compile:
        fill(sizes, lambda _: schedules, options.target)
        return
    run(sizes, lambda _: schedules, options)


def run(sizes: Sequence[Size], schedules: Callable[[Size], Sequence[dict[str, Any]]], options: Any) -> None:
    """Measures as many shapes as there is time for, and prints the table."""
    torch, end = find_torch("cuBLAS and for events"), time.monotonic() + options.seconds
    bench, results = Bench(torch, options.repeats), list[Result]()
    device = torch.cuda.get_device_name(0)
    print(f"{device}, torch {torch.__version__}")
    for size in sizes:
        if time.monotonic() > end:
            break
        results.append(bench.measure(size, schedules(size), options.target))
        if options.json is not None:
            rows = [{"size": r.size, "peer": r.peer, "ratio": r.ratio, "ours": r.ours} for r in results]
            options.json.write_text(json.dumps({"device": device, "rows": rows}, indent=1) + "\n")
    show(results)


if __name__ == "__main__":
    main()
