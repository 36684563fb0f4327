"""Matrix products on a GPU: our kernels, cuBLAS, and the register-only peak of the instruction, in one run.

    bench/with_gpu.sh python bench/gemm.py --sizes 4096 8192 --types bf16 --json out.json
    bench/with_gpu.sh python bench/gemm.py --sizes 4096 --schedule stages=4 --schedule sync=barrier

Method: operands are drawn N(0, 1); the result is checked against float64 before anything is timed, its
output filled with NaN beforehand; a time is the median over `--repeats` launches between two events, after
three warm-up launches, with the L2 cache flushed before each, and so much for the GPU to do that the host has asked for
all of it before the first event. The peers run through torch: cuBLAS as torch.matmul, with
an output of our type, cuBLASLt as torch._int_mm and torch._scaled_mm, which take B by columns. Integers are
drawn from all values and must be exact. Sizes are N for N x N x N or MxNxK.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import peaks
from gemm_types import KINDS, output

from warploom.dialect.isa.mma import Mma
from warploom.dialect.schedule import Schedule
from warploom.runtime import CompileError, Kernel, compile, load_ptx
from warploom.runtime.cuda.launch import FLUSH_BYTES

ERROR_LIMIT = {"f32": 1e-4, "f16": 2e-3, "bf16": 1e-2, "f64": 1e-14, "i32": 0.0}
"""Relative error in the Frobenius norm that a right kernel stays under, by output type."""

TF32_ERROR = 1e-3
"""What dropping 13 bits of each operand adds to it."""

HOST_CYCLES = 400_000
"""How long the GPU is kept busy while the host asks for what is timed: a quarter of a millisecond."""


@dataclass
class Row:
    """One measurement; `tflops` counts 2*M*N*K operations."""

    name: str
    size: str
    type: str
    out: str
    tflops: float
    milliseconds: float
    relative_error: float | None = None
    schedule: str = ""
    registers: int | None = None


class Timer:
    """Times calls on the current torch stream."""

    def __init__(self, torch: Any, repeats: int) -> None:
        self.torch, self.repeats = torch, repeats
        self.flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")

    def milliseconds(self, call: Callable[[], object]) -> float:
        """The median time of a call, in milliseconds."""
        for _ in range(3):
            call()
        return statistics.median(self.once(call) for _ in range(self.repeats))

    def clear(self) -> None:
        """Leaves nothing of a call in the L2 cache."""
        self.flush.zero_()

    def once(self, call: Callable[[], object]) -> float:
        """The time of one call, in milliseconds."""
        self.clear()
        self.torch.cuda._sleep(HOST_CYCLES)
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end)


def peak(torch: Any, timer: Timer, row: Mma, kind: str, target: str) -> Row:
    """The register-only peak of an instruction: two CTAs of eight warps on each SM."""
    ctas = 2 * torch.cuda.get_device_properties(0).multi_processor_count
    out = torch.empty(32 * peaks.WARPS, device="cuda", dtype=torch.float64)
    module = load_ptx(peaks.ptx_of(row, target))

    def launch() -> None:
        module.launch("peak", grid=(ctas, 1, 1), block=(32 * peaks.WARPS, 1, 1), args=[out], device="cuda")

    ms = timer.milliseconds(launch)
    return Row("register-only peak", "-", kind, row.d.name, peaks.operations(row, ctas) / ms / 1e9, ms)


def product(
    torch: Any,
    timer: Timer,
    size: tuple[int, int, int],
    name: str,
    out: str,
    target: str,
    schedules: Sequence[dict[str, Any]],
    layouts: Sequence[str],
) -> Iterator[Row]:
    """Our kernels, one for each schedule and each way that B lies, and the library on the same operands."""
    (m, n, k), kind = size, KINDS[name]
    label, operations = f"{m}x{n}x{k}", 2 * m * n * k
    a, b = kind.draw(torch, (m, k)), kind.draw(torch, (k, n))
    by_columns = b.t().contiguous()
    c = output(torch, (m, n), out)
    for layout in layouts:
        transposed = layout == "columns" or (layout == "peer" and kind.by_columns)
        for schedule in schedules:
            c.copy_(output(torch, (m, n), out))
            try:
                asked = {**kind.fields, **schedule}
                kernel = compile(kind.text(size, out, transposed), target=target, tf32=kind.tf32, **asked)
            except CompileError as problem:
                print(f"{label} {name}, {schedule}: {problem}", file=sys.stderr)
                continue
            call = kernel.prepare(a, by_columns if transposed else b, c)
            call()
            call.wait()
            error = relative_error(torch, a, b, c)
            if not error <= ERROR_LIMIT[out] + (TF32_ERROR if kind.tf32 else 0):
                raise SystemExit(f"{label} {name} -> {out}, {schedule}: relative error {error:.2e}")
            ms = timer.milliseconds(call)
            number, chosen = product_launch(kernel)
            shown = f"B by {'columns' if transposed else 'rows'}, {chosen}"
            registers = call.kernels[number].registers
            yield Row("warploom", label, name, out, operations / ms / 1e9, ms, error, shown, registers)
    ms = timer.milliseconds(kind.peer(torch, a, b, by_columns, out))
    yield Row(kind.peer_name, label, name, kind.peer_out(out), operations / ms / 1e9, ms)


def product_launch(kernel: Kernel) -> tuple[int, Schedule]:
    """Which launch computes the product, and its schedule; others pack operands before it."""
    return next((i, schedule) for i, schedule in enumerate(kernel.schedule) if schedule is not None)


def relative_error(torch: Any, a: Any, b: Any, c: Any) -> float:
    """||C - A B|| / ||A B||, with the product in float64, some rows at a time."""
    wrong, largest, wide = 0.0, 0.0, b.double()
    for start in range(0, a.shape[0], 1024):
        expected = a[start : start + 1024].double() @ wide
        wrong += float((c[start : start + 1024].double() - expected).square().sum())
        largest += float(expected.square().sum())
    torch.cuda.synchronize()
    return (wrong / largest) ** 0.5


def parse_size(text: str) -> tuple[int, int, int]:
    parts = [int(p) for p in text.split("x")]
    if len(parts) not in (1, 3):
        raise argparse.ArgumentTypeError(f"expected N or MxNxK, got '{text}'")
    m, n, k = parts * 3 if len(parts) == 1 else parts
    return m, n, k


def show(rows: Sequence[Row]) -> None:
    """Prints the table."""
    print(
        f"{'':20} {'size':>16} {'type':>5} {'out':>5} {'TFLOP/s':>8} {'ms':>8} {'rel. error':>10}  registers, schedule"
    )
    for r in rows:
        error = "" if r.relative_error is None else f"{r.relative_error:.1e}"
        extra = "" if r.registers is None else f"{r.registers}, {r.schedule}"
        numbers = f"{r.tflops:8.1f} {r.milliseconds:8.3f} {error:>10}"
        print(f"{r.name:20} {r.size:>16} {r.type:>5} {r.out:>5} {numbers}  {extra}")


def find_torch(why: str) -> Any:
    """PyTorch; ends the program where it is missing, saying what it is for, or finds no GPU."""
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        sys.exit(f"error: this benchmark needs PyTorch, for {why}")
    if not torch.cuda.is_available():
        sys.exit("error: no GPU found; this benchmark needs one")
    return torch


def report(torch: Any, rows: Sequence[Row], path: Path | None) -> None:
    """Prints the table, and writes it to a JSON file if one is asked for."""
    show(rows)
    if path is not None:
        device = torch.cuda.get_device_name(0)
        path.write_text(json.dumps({"device": device, "rows": [asdict(r) for r in rows]}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=parse_size, default=[(4096,) * 3, (8192,) * 3])
    parser.add_argument("--types", nargs="+", default=["bf16"], choices=KINDS)
    parser.add_argument(
        "--out", help="element type of C where the type has it: by default f32, f64, i32, or bf16 of e4m3"
    )
    parser.add_argument(
        "--b", nargs="+", default=["peer"], choices=["peer", "rows", "columns"], help="how B lies; as the peer takes it"
    )
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--schedule", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--sweep", action="append", default=[], metavar="'KEY=VALUE KEY=VALUE'", help="one more schedule"
    )
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch = find_torch("cuBLAS and for events")
    timer = Timer(torch, options.repeats)
    fixed = dict(pair.split("=", 1) for pair in options.schedule)
    schedules = [fixed, *(dict(pair.split("=", 1) for pair in words.split()) for words in options.sweep)]
    rows: list[Row] = []
    for kind in options.types:
        out = options.out if options.out in KINDS[kind].outputs else KINDS[kind].outputs[0]
        rows.append(peak(torch, timer, peaks.dense_row(KINDS[kind].isa), kind, options.target))
        for size in options.sizes:
            rows += product(torch, timer, size, kind, out, options.target, schedules, options.b)
    report(torch, rows, options.json)


if __name__ == "__main__":
    main()
