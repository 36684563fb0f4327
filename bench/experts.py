"""Products of experts on a GPU: rows of groups whose ends the device has, each group with weights of its own.

    bench/with_gpu.sh python bench/experts.py
    bench/with_gpu.sh python bench/experts.py --sizes 4096x8x4096x28672 --groups even --schedule cta=128x256x64

Method: that of `gemm.py`; sizes are T x E x K x N, tokens, experts, and what each token is multiplied from and to.
Groups are of one size (`even`) or drawn anew, each token for any expert (`random`). Results are checked against
products in float32, and rows behind the last group must stay as they were. The peer is torch._grouped_mm on the same
operands, which waits for nothing either.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import gemm

from warploom.runtime import CompileError, Kernel, WarploomError, compile

SIZES = (
    "4096x8x4096x28672", "16384x8x4096x28672", "8192x64x2048x2816", "32768x32x7168x4096", "128x8x4096x28672",
    "512x128x2880x5760",
)  # fmt: skip
"""Products of experts that models multiply."""

ROWS, COLUMNS, GRADIENT = "rows", "columns", "gradient"
"""What is measured: products with weights (k, n), products with weights (n, k), and the gradient of the weights."""

LIMIT = 1e-2
"""Relative error in the Frobenius norm that a right kernel stays under, its result rounded to bf16."""


class Experts(NamedTuple):
    """A product of so many tokens with the weights of so many experts."""

    tokens: int
    experts: int
    k: int
    n: int

    @staticmethod
    def of(text: str) -> Experts:
        """The product that a text such as 4096x8x4096x28672 says."""
        return Experts(*map(int, text.split("x")))

    def __str__(self) -> str:
        return "x".join(map(str, self))

    @property
    def operations(self) -> int:
        return 2 * self.tokens * self.k * self.n

    def text(self, kind: str = "bf16", *, transposed: bool = False) -> str:
        """The products of rows and weights; with `transposed` weights lie along k."""
        t, e, k, n = self
        rows, columns = (n, k) if transposed else (k, n)
        maps = "(m, k)", "(n, k)" if transposed else "(k, n)", "(m, n)"
        parts = _rows("A", t, k, kind), _matrix("B", e, rows, columns, kind), _rows("D", t, n, kind)
        return _loop(e, kind, maps, parts)

    def gradient_text(self, kind: str = "bf16") -> str:
        """The gradient of the weights: for each expert the sum over its rows."""
        t, e, k, n = self
        parts = _rows("A", t, k, kind), _rows("B", t, n, kind), _matrix("D", e, k, n, kind)
        return _loop(e, kind, ("(k, m)", "(k, n)", "(m, n)"), parts)


class Part(NamedTuple):
    """What the turn of an expert sees of an argument: the types of all and of the part, and the operation."""

    memory: str
    seen: str
    view: str


def _rows(name: str, tokens: int, columns: int, kind: str) -> Part:
    """The rows of an expert."""
    memory = f"memref<{tokens}x{columns}x{kind}>"
    seen = f"memref<?x{columns}x{kind}, strided<[{columns}, 1], offset: ?>>"
    view = f"memref.subview %{name}[%start, 0] [%rows, {columns}] [1, 1] : {memory} to {seen}"
    return Part(memory, seen, f"%{name.lower()} = {view}")


def _matrix(name: str, experts: int, rows: int, columns: int, kind: str) -> Part:
    """The matrix of an expert."""
    memory = f"memref<{experts}x{rows}x{columns}x{kind}>"
    seen = f"memref<{rows}x{columns}x{kind}, strided<[{columns}, 1], offset: ?>>"
    view = f"memref.subview %{name}[%e, 0, 0] [1, {rows}, {columns}] [1, 1, 1] : {memory} to {seen}"
    return Part(memory, seen, f"%{name.lower()} = {view}")


def _loop(experts: int, kind: str, maps: tuple[str, str, str], parts: tuple[Part, Part, Part]) -> str:
    """A loop over experts with a product of A and B into D."""
    a, b, d = parts
    views = "\n    ".join(part.view for part in parts)
    return f"""#a = affine_map<(m, n, k) -> {maps[0]}>
#b = affine_map<(m, n, k) -> {maps[1]}>
#d = affine_map<(m, n, k) -> {maps[2]}>
func.func @experts(%A: {a.memory}, %B: {b.memory}, %ends: memref<{experts}xi32>, %D: {d.memory}) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %experts = arith.constant {experts} : index
  %zero = arith.constant 0.0 : {kind}
  scf.for %e = %c0 to %experts step %c1 iter_args(%start = %c0) -> (index) {{
    %last = memref.load %ends[%e] : memref<{experts}xi32>
    %stop = arith.index_cast %last : i32 to index
    %rows = arith.subi %stop, %start : index
    {views}
    linalg.fill ins(%zero : {kind}) outs(%d : {d.seen})
    linalg.matmul indexing_maps = [#a, #b, #d] ins(%a, %b : {a.seen}, {b.seen}) outs(%d : {d.seen})
    scf.yield %stop : index
  }}
  return
}}
"""


def drawn_ends(torch: Any, experts: Experts, groups: str) -> Any:
    """Where the rows of each expert end: of `even` groups, or of tokens that are each drawn for any expert."""
    if groups == "even":
        sizes = torch.full((experts.experts,), experts.tokens // experts.experts, device="cuda")
    else:
        drawn = torch.randint(0, experts.experts, (experts.tokens,), device="cuda")
        sizes = torch.bincount(drawn, minlength=experts.experts)
    return sizes.cumsum(0).to(torch.int32)


def relative_error(torch: Any, name: str, a: Any, b: Any, ends: Any, d: Any) -> float:
    """The error of a result, in the Frobenius norm; infinite where a row behind the groups is no NaN any more."""
    wrong = norm = 0.0
    begin = 0
    for expert, end in enumerate(ends.tolist()):
        if name.startswith(GRADIENT):
            exact, got = a[begin:end].float().t() @ b[begin:end].float(), d[expert]
        else:
            exact, got = a[begin:end].float() @ b[expert].float(), d[begin:end]
        wrong += float((got.float() - exact).square().sum())
        norm += float(exact.square().sum())
        begin = end
    untouched = name.startswith(GRADIENT) or bool(d[begin:].isnan().all())
    return (wrong / max(norm, 1e-30)) ** 0.5 if untouched else float("inf")


class Measured(NamedTuple):
    """What is measured: its kind, its name, the call, and the error of its result."""

    kind: str
    name: str
    call: Callable[[], object]
    error: float | None


def calls(torch: Any, experts: Experts, kernels: Mapping[str, Kernel], groups: str) -> Iterator[Measured]:
    """Each kernel, and torch, on the same operands."""
    t, e, k, n = experts
    a, of_d = (torch.randn(t, size, device="cuda", dtype=torch.bfloat16) for size in (k, n))
    b = torch.randn(e, k, n, device="cuda", dtype=torch.bfloat16)
    by_columns, ends = b.transpose(1, 2).contiguous(), drawn_ends(torch, experts, groups)
    peers = {ROWS: (a, b), COLUMNS: (a, by_columns.transpose(1, 2)), GRADIENT: (a.t(), of_d)}
    rights = {ROWS: b, COLUMNS: by_columns, GRADIENT: of_d}
    for name, kernel in kernels.items():
        kind = name.split()[0]
        d = torch.full((e, k, n) if kind == GRADIENT else (t, n), float("nan"), device="cuda", dtype=torch.bfloat16)
        call = partial(kernel, a, rights[kind], ends, d)
        try:
            call()
            torch.cuda.synchronize()
        except WarploomError as failed:
            print(f"{experts}, {groups}, {name}: {failed}", file=sys.stderr)
            continue
        error = relative_error(torch, name, a, of_d if kind == GRADIENT else b, ends, d)
        if not error <= LIMIT:
            print(f"{experts}, {groups}, {name}: relative error {error:.2e}", file=sys.stderr)
        yield Measured(kind, name, call, error)
    for kind in dict.fromkeys(name.split()[0] for name in kernels):
        left, right = peers[kind]
        yield Measured(kind, f"torch {kind}", partial(torch._grouped_mm, left, right, offs=ends), None)
    if any(name.startswith(ROWS) for name in kernels):
        yield Measured(ROWS, "cuBLAS, one by one", partial(one_by_one, torch, a, b, ends.tolist()), None)


def one_by_one(torch: Any, a: Any, b: Any, ends: list[int]) -> None:
    """A product for each expert, whose rows the host knows."""
    for expert, (begin, end) in enumerate(pairwise([0, *ends])):
        if begin < end:
            torch.mm(a[begin:end], b[expert])


def milliseconds(timer: gemm.Timer, measured: list[Measured]) -> list[float]:
    """The median time of each call; they take turns, so that each is as warm as the others."""
    rounds = [[timer.once(each.call) for each in measured] for _ in range(timer.repeats + 1)]
    return [statistics.median(times) for times in zip(*rounds[1:], strict=True)]


def parse_schedule(text: str) -> dict[str, Any]:
    """`cta=128x256x64,stages=3` as fields."""
    return dict(pair.split("=") for pair in text.split(",")) if text else {}


def compiled(experts: Experts, kinds: list[str], schedules: list[str], target: str) -> dict[str, Kernel]:
    """The kernels to measure, for weights along n (`rows`) and along k (`columns`), and the gradient of the weights."""
    kernels: dict[str, Kernel] = {}
    for kind in kinds:
        text = experts.gradient_text() if kind == GRADIENT else experts.text(transposed=kind == COLUMNS)
        for schedule in schedules:
            try:
                kernels[f"{kind} {schedule}".strip()] = compile(text, target=target, **parse_schedule(schedule))
            except CompileError as error:
                print(f"{experts}, {kind} {schedule}: {error}", file=sys.stderr)
    return kernels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES))
    parser.add_argument("--groups", nargs="+", default=["even", "random"])
    parser.add_argument("--kinds", nargs="+", default=[ROWS, COLUMNS, GRADIENT])
    parser.add_argument("--schedule", action="append", default=[], help="FIELD=VALUE,... beside the default's")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--compile-only", action="store_true", help="fill the cache of kernels, and measure nothing")
    options = parser.parse_args()
    problems = [Experts.of(text) for text in options.sizes]
    kernels = {
        problem: compiled(problem, options.kinds, ["", *options.schedule], options.target) for problem in problems
    }
    if options.compile_only:
        return
    torch = gemm.find_torch("torch._grouped_mm and the random operands")
    timer = gemm.Timer(torch, options.repeats)
    for problem in problems:
        for groups in options.groups:
            measured = list(calls(torch, problem, kernels[problem], groups))
            times = milliseconds(timer, measured)
            peers = {each.kind: ms for each, ms in zip(measured, times, strict=True) if each.name.startswith("torch")}
            for each, ms in zip(measured, times, strict=True):
                error = "" if each.error is None else f"{each.error:.1e}"
                line = f"{1e3 * ms:9.1f} us {problem.operations / ms / 1e9:7.1f} TFLOP/s {peers[each.kind] / ms:6.2f}"
                print(f"{problem!s:20} {groups:7} {each.name:58} {line} {error}", flush=True)
            del measured
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
