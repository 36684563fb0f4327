"""Products with weights of 8 and 4 bits, converted on the way in, on a GPU: time, and the share of memory's bandwidth.

    bench/with_gpu.sh python bench/weights.py --size 16x8192x8192 --json out.json
    bench/with_gpu.sh python bench/weights.py --kinds w4 --type f16 --schedule stages=6

Method: as bench/gemm.py's, but the L2 cache is flushed by reading: what `gemm.py` writes for that goes to memory while
the kernel reads, and takes as much of its bandwidth as 8-bit weights do. `GB/s` counts the bytes of the weights alone.
Beside them are kernels that only read as many bytes (`reading.py`), which is what the product cannot pass, and one that
does nothing: the time between two events without work. `in a row` is the time of one of many calls that follow on each
other in a CUDA graph, each with other weights, which the L2 cache does not hold together: without the launch. The copy
is torch's, of as many bytes as the 8-bit weights have, each read and written: its bandwidth counts both. The peer is
cuBLAS on weights that were converted to bf16 before.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import reading
from gemm import Timer

from warploom.runtime import CompileError, Kernel, compile

LIMIT = 1e-2
"""Relative error in the Frobenius norm that a right kernel stays under, its result rounded to bf16."""

ROTATED_BYTES, REPLAYS, IN_A_ROW = 256 << 20, 3, 24
"""Bytes of weights that calls in a row read before the first ones come again; how often these are measured, and how
many they are at least."""


@dataclass(frozen=True)
class Weights:
    """Weights of so many bits, (n, k) or (k, n) in memory, with a scale for each column or for groups along k."""

    bits: int
    by_columns: bool
    group: int = 0
    kind: str = "bf16"
    unrounded: bool = False
    """Whether the sums may be scaled in place of the weights."""

    @property
    def name(self) -> str:
        """What the table calls them."""
        groups = f" g{self.group}" if self.group else ""
        return (
            f"W{self.bits}A16 {self.kind} {'(n, k)' if self.by_columns else '(k, n)'}{groups}{' sums' * self.unrounded}"
        )

    def scale_shape(self, n: int, k: int) -> tuple[int, ...]:
        """The sizes of the scales."""
        if not self.group:
            return (n,)
        return (n, k // self.group) if self.by_columns else (k // self.group, n)

    def each(self, scales: Any) -> Any:
        """The scale of each weight, or of each column, as k x n, or n."""
        if not self.group:
            return scales
        return (scales.t() if self.by_columns else scales).repeat_interleave(self.group, 0)

    def text(self, m: int, n: int, k: int) -> str:
        """The product: weights are converted and scaled by an operation of their own."""
        shape = f"{n}x{k}" if self.by_columns else f"{k}x{n}"
        axes = "n, k" if self.by_columns else "k, n"
        kind = self.kind
        shape_type, wide = f"memref<{shape}xi{self.bits}>", f"memref<{shape}x{kind}>"
        along = axes.replace("k", f"k floordiv {self.group}") if self.group else "n"
        scales = f"memref<{'x'.join(map(str, self.scale_shape(n, k)))}x{kind}>"
        a, c = f"memref<{m}x{k}x{kind}>", f"memref<{m}x{n}x{kind}>"
        return f"""#w = affine_map<({axes}) -> ({axes})>
#s = affine_map<({axes}) -> ({along})>
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> ({axes})>
#c = affine_map<(m, n, k) -> (m, n)>
func.func @f(%A: {a}, %Q: {shape_type}, %S: {scales}, %C: {c}) {{
  %zero = arith.constant 0.0 : {kind}
  %W = memref.alloc() : {wide}
  linalg.generic {{indexing_maps = [#w, #s, #w], iterator_types = ["parallel", "parallel"]}}
      ins(%Q, %S : {shape_type}, {scales}) outs(%W : {wide}) {{
  ^bb0(%q: i{self.bits}, %s: {kind}, %old: {kind}):
    %0 = arith.sitofp %q : i{self.bits} to {kind}
    %1 = arith.mulf %0, %s{" fastmath<contract>" * self.unrounded} : {kind}
    linalg.yield %1 : {kind}
  }}
  linalg.fill ins(%zero : {kind}) outs(%C : {c})
  linalg.matmul indexing_maps = [#a, #b, #c] ins(%A, %W : {a}, {wide}) outs(%C : {c})
  return
}}
"""

    def draw(self, torch: Any, n: int, k: int) -> tuple[Any, Any]:
        """The weights as they lie in memory, and as integers, k x n."""
        half = 1 << self.bits - 1
        q = torch.randint(-half, half, (n, k), device="cuda", dtype=torch.int8)
        codes = q if self.by_columns else q.t().contiguous()
        if self.bits == 4:
            codes = (codes[:, ::2] & 15) | (codes[:, 1::2] << 4)
        return codes.contiguous(), q.t()


KINDS = {
    f"w{bits}{'' if by_columns else 'r'}{f'g{group}' if group else ''}": Weights(bits, by_columns, group)
    for bits in (8, 4)
    for by_columns in (True, False)
    for group in (0, 128)
}


@dataclass
class Row:
    """One measurement; `gigabytes` are those of the weights in a second."""

    name: str
    milliseconds: float
    gigabytes: float
    relative_error: float | None = None
    schedule: str = ""
    registers: int | None = None
    in_a_row: float | None = None
    """Milliseconds of one of many calls that follow on each other."""


class ReadTimer(Timer):
    """Times calls with nothing of theirs, and nothing that has yet to be written, in the L2 cache."""

    def clear(self) -> None:
        self.flush.view(self.torch.int32).sum()


def in_a_row(torch: Any, calls: Callable[[], list[Callable[[], object]]]) -> float:
    """Milliseconds of one of the calls, which are made for the stream that is current then; at least `IN_A_ROW` follow
    on each other."""
    return in_turns(torch, [calls])[0]


def in_turns(torch: Any, contenders: Sequence[Callable[[], list[Callable[[], object]]]]) -> list[float]:
    """The same of several contenders by turns: the card throttles as it warms up, and the last one would be slowest."""
    stream, graphs = torch.cuda.Stream(), list[tuple[Any, list[Callable[[], object]]]]()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for calls in contenders:
            made = calls()
            for call in made:
                call()
            stream.synchronize()
            graph, calls_of_graph = torch.cuda.CUDAGraph(), made * -(-IN_A_ROW // len(made))
            with torch.cuda.graph(graph, stream=stream):
                for call in calls_of_graph:
                    call()
            graphs.append((graph, calls_of_graph))
        times: list[list[float]] = []
        for _ in range(REPLAYS + 1):
            times.append([])
            for graph, calls_of_graph in graphs:
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                graph.replay()
                end.record()
                end.synchronize()
                times[-1].append(start.elapsed_time(end) / len(calls_of_graph))
    return [statistics.median(each) for each in zip(*times[1:], strict=True)]


def measure(
    torch: Any, timer: Timer, size: tuple[int, int, int], weights: Weights, options: Sequence[dict[str, Any]]
) -> list[Row]:
    """A kernel for each schedule."""
    (m, n, k), kind = size, torch.bfloat16 if weights.kind == "bf16" else torch.float16
    a, (packed, q) = torch.randn((m, k), device="cuda", dtype=kind), weights.draw(torch, n, k)
    scales = torch.rand(weights.scale_shape(n, k), device="cuda", dtype=kind) / 64
    each = weights.each(scales.double())
    exact = a.double() @ (q.double() * each)
    rows: list[Row] = []
    for chosen in options:
        try:
            kernel = compile(weights.text(m, n, k), target="sm_90a", **chosen)
        except CompileError as error:
            print(f"{weights.name} {chosen}: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        rows.append(_row(torch, timer, weights, kernel, (a, packed, scales), exact))
    return rows


def _row(torch: Any, timer: Timer, weights: Weights, kernel: Kernel, arguments: tuple[Any, ...], exact: Any) -> Row:
    a, packed, scales = arguments
    out = torch.full(exact.shape, float("nan"), device="cuda", dtype=a.dtype)
    prepared = kernel.prepare(a, packed, scales, out)
    prepared()
    torch.cuda.synchronize()
    error = float((out.double() - exact).norm() / exact.norm())
    if not error < LIMIT:
        raise SystemExit(f"{weights.name}: relative error {error:.1e} with {kernel.schedule}")
    ms = timer.milliseconds(prepared)
    copies = [packed.clone() for _ in range(max(1, ROTATED_BYTES // packed.numel()))]
    row = in_a_row(torch, lambda: [kernel.prepare(a, each, scales, out) for each in copies])
    registers = max(loaded.registers for loaded in prepared.kernels)
    schedule = str(kernel.schedule[-1])
    return Row(weights.name, ms, packed.numel() / ms / 1e6, error, schedule, registers, row)


def peers(torch: Any, timer: Timer, size: tuple[int, int, int]) -> list[Row]:
    """A copy, and cuBLAS on weights that were converted before."""
    m, n, k = size
    a, w = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in ((m, k), (n, k)))
    source, target = (torch.zeros(n * k, device="cuda", dtype=torch.int8) for _ in range(2))
    copied, multiplied = timer.milliseconds(lambda: target.copy_(source)), timer.milliseconds(lambda: a @ w.t())
    others = [w, w.clone()]
    row = in_a_row(torch, lambda: [lambda each=each: a @ each.t() for each in others])
    return [
        *_reads(torch, timer, n * k),
        Row("copy", copied, 2 * n * k / copied / 1e6),
        Row("cuBLAS, bf16", multiplied, 2 * n * k / multiplied / 1e6, in_a_row=row),
    ]


def _reads(torch: Any, timer: Timer, count: int) -> list[Row]:
    """Kernels that read as many bytes as weights of 4 and of 8 bits have, where those are whole pieces."""
    into, rows = torch.zeros(1, dtype=torch.int32, device="cuda"), list[Row]()
    for size in (count // 2, count):
        if size % reading.WHOLE:
            continue
        memory = torch.randint(-128, 128, (max(1, ROTATED_BYTES // size), size), dtype=torch.int8, device="cuda")
        made = [reading.calls(part, into) for part in memory]
        for name, call in made[0].items():
            ms, row = timer.milliseconds(call), in_a_row(torch, lambda name=name, made=made: [of[name] for of in made])
            bandwidth = 0.0 if name == reading.NOTHING else size / ms / 1e6
            rows.append(Row(f"{size >> 20} MiB, {name}", ms, bandwidth, in_a_row=row))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="16x8192x8192", metavar="MxNxK")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument(
        "--schedule", action="append", default=[], metavar="FIELDS", help="one more, such as 'stages=6'"
    )
    parser.add_argument("--type", default="bf16", choices=("bf16", "f16"), help="of activations and scales")
    parser.add_argument("--unrounded", action="store_true", help="scale sums in place of weights")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    import torch

    timer = ReadTimer(torch, args.repeats)
    m, n, k = (int(part) for part in args.size.split("x"))
    options = [{}, *(dict(field.split("=") for field in text.split()) for text in args.schedule)]
    rows = peers(torch, timer, (m, n, k))
    for name in args.kinds:
        rows += measure(
            torch, timer, (m, n, k), replace(KINDS[name], kind=args.type, unrounded=args.unrounded), options
        )
    for row in rows:
        error = "" if row.relative_error is None else f"{row.relative_error:.1e}"
        in_turn = "" if row.in_a_row is None else f"{row.in_a_row * 1e3:.1f} us"
        shown = f"{row.name:24} {row.milliseconds * 1e3:8.1f} us {row.gigabytes:7.0f} GB/s, in a row {in_turn:8}"
        print(f"{shown} {error:8} {row.registers or '':4} {row.schedule}")
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
