"""The shapes of `shapes.txt`, which language and vision models have: the default kernel of each against cuBLAS, in one
run, and the geometric mean.

    bench/with_gpu.sh python bench/shapes.py --json shapes.json
    bench/with_gpu.sh python bench/shapes.py --only "768 768" --sweep "cta=128,128,64 mma=m64n128k16"
    bench/with_gpu.sh python bench/shapes.py --shapes bench/odd.txt

Method as in `gemm.py`, of operands in bf16 with a C of the same. The two kernels take turns, so that both meet the same
clock. With `--sweep` a shape has the best of several schedules too, which says what the default leaves.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from gemm import ERROR_LIMIT, Timer, find_torch, product_launch, relative_error
from gemm_types import KINDS, output

from warploom.runtime import CompileError, Kernel, compile

SHAPES = Path(__file__).with_suffix(".txt")


@dataclass(frozen=True)
class Shape:
    """A product that a model has."""

    m: int
    n: int
    k: int
    layer: str

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


@dataclass(frozen=True)
class Result:
    """What was measured of a shape, in TFLOP/s; `tried` are other schedules and what they reached."""

    shape: Shape
    ours: float
    peer: float
    schedule: str
    tried: dict[str, float]

    @property
    def ratio(self) -> float:
        return self.ours / self.peer


def read(path: Path = SHAPES) -> list[Shape]:
    """The shapes of a file.

    Raises:
        SystemExit: naming the line that has none.
    """
    shapes: list[Shape] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split(maxsplit=3)
        if len(words) < 4 or not all(word.isdigit() and int(word) for word in words[:3]):
            raise SystemExit(f"{path}:{number}: error: expected M N K and the layer, got '{line}'")
        m, n, k = map(int, words[:3])
        shapes.append(Shape(m, n, k, words[3]))
    return shapes


def alternating(timer: Timer, calls: Sequence[Callable[[], object]]) -> list[float]:
    """The median time of each of several calls that take turns, in milliseconds."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        for _ in range(3):
            call()
    for _ in range(timer.repeats):
        for call, milliseconds in zip(calls, times, strict=True):
            milliseconds.append(timer.once(call))
    return [statistics.median(milliseconds) for milliseconds in times]


def lower(shape: Shape, schedule: dict[str, Any], target: str) -> Kernel | str:
    """Our kernel of a shape, or why its schedule does not fit."""
    try:
        return compile(KINDS["bf16"].text((shape.m, shape.n, shape.k), "bf16", False), target=target, **schedule)
    except CompileError as error:
        return f"{shape}, {schedule}: {error}"


def warm(shapes: Sequence[Shape], schedules: Sequence[dict[str, Any]], target: str) -> None:
    """Compiles everything on all cores, so that it is found on disk later."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for made in [pool.submit(_fill, shape, schedule, target) for shape in shapes for schedule in schedules]:
            made.result()


def _fill(shape: Shape, schedule: dict[str, Any], target: str) -> None:
    lower(shape, schedule, target)


def compiled(
    torch: Any, shape: Shape, schedules: Sequence[dict[str, Any]], target: str, a: Any, b: Any, check: bool
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Calls of our kernels, one for each schedule that fits, and the schedules; checked if asked for."""
    for schedule in schedules:
        if isinstance(kernel := lower(shape, schedule, target), str):
            print(kernel, file=sys.stderr)
            continue
        c = output(torch, (shape.m, shape.n), "bf16")
        call = kernel.prepare(a, b, c)
        call()
        call.wait()
        if check and not (error := relative_error(torch, a, b, c)) <= ERROR_LIMIT["bf16"]:
            raise SystemExit(f"{shape}, {schedule}: relative error {error:.2e}")
        yield str(product_launch(kernel)[1]), call


def measure(torch: Any, timer: Timer, shape: Shape, schedules: Sequence[dict[str, Any]], target: str) -> Result:
    """Our kernels and cuBLAS on the same operands."""
    kind = KINDS["bf16"]
    a, b = kind.draw(torch, (shape.m, shape.k)), kind.draw(torch, (shape.k, shape.n))
    ours = list(compiled(torch, shape, schedules, target, a, b, check=True))
    times = alternating(timer, [*(call for _, call in ours), kind.peer(torch, a, b, None, "bf16")])
    rates = [2 * shape.m * shape.n * shape.k / ms / 1e9 for ms in times]
    tried = {text: rate for (text, _), rate in zip(ours[1:], rates[1:-1], strict=True)}
    return Result(shape, rates[0], rates[-1], ours[0][0], tried)


def show(results: Sequence[Result]) -> None:
    """A line for each shape, the worst last; then the geometric means."""
    for result in sorted(results, key=lambda r: -r.ratio):
        best = max(result.tried.items(), key=lambda item: item[1], default=("", 0.0))
        more = f" | {best[1]:6.1f} by {best[0]}" if best[1] > result.ours else ""
        line = f"{result.shape!s:>17} {result.ours:6.1f} {result.peer:6.1f} {result.ratio:5.2f}  {result.schedule[:58]}"
        print(f"{line}  {result.shape.layer[:28]}{more}")
    mean = statistics.geometric_mean(r.ratio for r in results)
    best = statistics.geometric_mean(max(r.ours, *r.tried.values(), 0.0) / r.peer for r in results)
    print(f"geometric mean of {len(results)} shapes, of cuBLAS: {mean:.3f}; with the best of what was tried {best:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="shapes whose line contains this")
    parser.add_argument("--shapes", type=Path, default=SHAPES, help="a file of shapes")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--sweep", action="append", default=[], metavar="'KEY=VALUE KEY=VALUE'")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch = find_torch("cuBLAS and for events")
    timer = Timer(torch, options.repeats)
    schedules = [{}, *(dict(pair.split("=", 1) for pair in words.split()) for words in options.sweep)]
    wanted = [s for s in read(options.shapes) if options.only in f"{s.m} {s.n} {s.k} {s.layer}"]
    warm(wanted, schedules, options.target)
    results = [measure(torch, timer, shape, schedules, options.target) for shape in wanted]
    show(results)
    if options.json is not None:
        rows = [asdict(result) | {"ratio": result.ratio} for result in results]
        options.json.write_text(json.dumps({"device": torch.cuda.get_device_name(0), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
