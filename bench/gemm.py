"""Matrix products on a GPU: our kernels, cuBLAS, and the register-only peak of the instruction, in one run.

    bench/with_gpu.sh python bench/gemm.py --sizes 4096 8192 --types bf16 --json out.json
    bench/with_gpu.sh python bench/gemm.py --sizes 4096 --schedule cta=128,256,32 --schedule stages=4

Method: operands are drawn N(0, 1); the result is checked against float64 before anything is timed, its
output filled with NaN beforehand; a time is the median over `--repeats` launches between two events, after
three warm-up launches, with the L2 cache flushed before each. cuBLAS runs through torch.matmul, with an output
of the operands' type. Sizes are N for N x N x N or MxNxK.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from warploom.runtime import compile, load_ptx
from warploom.runtime.errors import CompileError

FLUSH_BYTES = 256 << 20
"""More than any L2; writing it evicts the operands."""

ERROR_LIMIT = {"f32": 1e-4, "f16": 2e-3, "bf16": 1e-2}
"""Relative error in the Frobenius norm that a right kernel stays under, by output type."""

MLIR = """
func.func @matmul(%A: memref<{m}x{k}x{t}>, %B: memref<{k}x{n}x{t}>, %C: memref<{m}x{n}x{o}>) {{
  %zero = arith.constant 0.0 : {o}
  linalg.fill ins(%zero : {o}) outs(%C : memref<{m}x{n}x{o}>)
  linalg.matmul ins(%A, %B : memref<{m}x{k}x{t}>, memref<{k}x{n}x{t}>) outs(%C : memref<{m}x{n}x{o}>)
  return
}}
"""

PEAK_WARPS, PEAK_ACCUMULATORS, PEAK_TURNS = 8, 8, 4096


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
        times: list[float] = []
        for _ in range(self.repeats):
            self.flush.zero_()
            start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        return statistics.median(times)


def peak_ptx(kind: str, target: str) -> str:
    """A kernel that only multiplies: independent accumulators per warp, operands in registers."""
    count = PEAK_ACCUMULATORS
    mma = f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32"
    lines = [".version 8.0", f".target {target}", ".address_size 64", ".visible .entry peak(.param .u64 out)", "{"]
    lines += [".reg .pred %p; .reg .b32 %r<8>; .reg .b64 %d<3>;", f".reg .f32 %f<{4 * count + 1}>;"]
    lines += ["mov.u32 %r0, %tid.x;"]
    # Small distinct numbers: bits 0x3C00 to 0x3CFF are near 1 in f16 and tiny in bf16, and never NaN.
    lines += [f"mad.lo.u32 %r{i}, %r0, {2 * i + 1}, 0x3C003C00;" for i in range(1, 7)]
    lines += [f"mov.f32 %f{i}, 0f00000000;" for i in range(4 * count + 1)]
    lines += ["mov.u32 %r7, 0;", "again:"]
    for i in range(count):
        acc = "{" + ", ".join(f"%f{4 * i + j}" for j in range(4)) + "}"
        lines.append(f"{mma} {acc}, {{%r1, %r2, %r3, %r4}}, {{%r5, %r6}}, {acc};")
    lines += ["add.u32 %r7, %r7, 1;", f"setp.lt.u32 %p, %r7, {PEAK_TURNS};", "@%p bra again;"]
    lines += [f"add.f32 %f{4 * count}, %f{4 * count}, %f{i};" for i in range(4 * count)]
    lines += ["ld.param.u64 %d0, [out];", "mul.wide.u32 %d1, %r0, 4;", "add.u64 %d2, %d0, %d1;"]
    lines += [f"st.global.f32 [%d2], %f{4 * count};", "ret;", "}"]
    return "\n".join(lines)


def peak(torch: Any, timer: Timer, kind: str, target: str) -> Row:
    """The register-only peak: two CTAs of eight warps on each SM."""
    ctas = 2 * torch.cuda.get_device_properties(0).multi_processor_count
    out = torch.empty(32 * PEAK_WARPS, device="cuda")
    module = load_ptx(peak_ptx(kind, target))

    def launch() -> None:
        module.launch("peak", grid=(ctas, 1, 1), block=(32 * PEAK_WARPS, 1, 1), args=[out], device="cuda")

    ms = timer.milliseconds(launch)
    operations = 2 * 16 * 8 * 16 * PEAK_ACCUMULATORS * PEAK_TURNS * PEAK_WARPS * ctas
    return Row("register-only peak", "-", kind, "f32", operations / ms / 1e9, ms)


def product(
    torch: Any, timer: Timer, size: tuple[int, int, int], kind: str, out: str, target: str, schedule: dict[str, Any]
) -> list[Row]:
    """Our kernel and cuBLAS on the same operands."""
    m, n, k = size
    types = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
    a = torch.randn(m, k, device="cuda").to(types[kind])
    b = torch.randn(k, n, device="cuda").to(types[kind])
    c = torch.full((m, n), float("nan"), device="cuda", dtype=types[out])
    kernel = compile(MLIR.format(m=m, n=n, k=k, t=kind, o=out), target=target, **schedule)
    call = kernel.prepare(a, b, c)
    call()
    call.wait()
    error = relative_error(torch, a, b, c)
    if not error < ERROR_LIMIT[out]:
        raise SystemExit(
            f"{m}x{n}x{k} {kind} -> {out}: relative error {error:.2e}, the limit is {ERROR_LIMIT[out]:.0e}"
        )
    label, operations = f"{m}x{n}x{k}", 2 * m * n * k
    ours, theirs = timer.milliseconds(call), timer.milliseconds(lambda: torch.matmul(a, b))
    # Other launches pack operands before the product, or add up its parts after it.
    number = next(i for i, schedule in enumerate(kernel.schedule) if schedule is not None)
    shown, registers = str(kernel.schedule[number]), call.kernels[number].registers
    return [
        Row("warploom", label, kind, out, operations / ours / 1e9, ours, error, shown, registers),
        Row("cuBLAS", label, kind, kind, operations / theirs / 1e9, theirs),
    ]


def relative_error(torch: Any, a: Any, b: Any, c: Any) -> float:
    """||C - A B|| / ||A B||, with the product in float64, some rows at a time."""
    wrong, whole = 0.0, 0.0
    for start in range(0, a.shape[0], 1024):
        expected = a[start : start + 1024].double() @ b.double()
        wrong += float((c[start : start + 1024].double() - expected).square().sum())
        whole += float(expected.square().sum())
    torch.cuda.synchronize()
    return (wrong / whole) ** 0.5


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=parse_size, default=[(4096,) * 3, (8192,) * 3])
    parser.add_argument("--types", nargs="+", default=["bf16"], choices=["bf16", "f16"])
    parser.add_argument("--out", default="f32", help="element type of C: f32 (default), bf16 or f16")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--schedule", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--sweep", action="append", default=[], metavar="'KEY=VALUE KEY=VALUE'", help="one more schedule"
    )
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        sys.exit("error: this benchmark needs PyTorch, for cuBLAS and for events")
    if not torch.cuda.is_available():
        sys.exit("error: no GPU found; this benchmark needs one")
    timer = Timer(torch, options.repeats)
    fixed = dict(pair.split("=", 1) for pair in options.schedule)
    schedules = [fixed, *(dict(pair.split("=", 1) for pair in words.split()) for words in options.sweep)]
    rows: list[Row] = []
    for kind in options.types:
        rows.append(peak(torch, timer, kind, options.target))
        for size in options.sizes:
            for i, schedule in enumerate(schedules):
                try:
                    measured = product(torch, timer, size, kind, options.out, options.target, schedule)
                except CompileError as e:
                    print(f"left out: {e}", file=sys.stderr)
                    continue
                rows += measured if i == 0 else measured[:1]
    show(rows)
    if options.json is not None:
        device = torch.cuda.get_device_name(0)
        options.json.write_text(json.dumps({"device": device, "rows": [asdict(r) for r in rows]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
