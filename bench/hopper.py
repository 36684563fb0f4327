"""examples/hopper_matmul.py on a GPU: structures of a Hopper kernel against cuBLAS, bf16 to bf16, in one run.

    bench/with_gpu.sh python bench/hopper.py --sizes 2048 4096 8192
    bench/with_gpu.sh python bench/hopper.py --structure 'm=256 n=128' --structure 'cluster=2'

Method: that of bench/gemm.py. It says which structure the lowering to `wgmma` should choose.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gemm

from warploom.runtime import load_ptx
from warploom.runtime.arguments.launch_values import values
from warploom.runtime.base.launch import Launch, Plan

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import hopper_matmul as hopper


def parse_structure(text: str) -> hopper.Structure:
    """`m=256 n=128` as a structure."""
    pairs = (part.partition("=") for part in text.split())
    return hopper.Structure(**{name: int(value) for name, _, value in pairs})


def measured(torch: Any, timer: gemm.Timer, n: int, structures: list[hopper.Structure]) -> Iterator[gemm.Row]:
    """Each structure, and cuBLAS, on the same operands."""
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    for s in structures:
        if n % (s.m * s.cluster) or n % s.n or n % s.k:
            print(f"{n} is no multiple of the tile of {s}", file=sys.stderr)
            continue
        d = torch.full((n, n), float("nan"), device="cuda", dtype=torch.bfloat16)
        module = load_ptx(hopper.text(s))
        ctas = min(sms, n // s.m * (n // s.n)) // s.cluster * s.cluster
        cluster = (s.cluster, 1, 1) if s.cluster > 1 else None
        launch = Launch("matmul", (ctas, 1, 1), (s.threads, 1, 1), s.shared, tuple(range(6)), cluster=cluster)
        passed = values(module.kernel("matmul"), hopper.arguments(s, a, b, d, (n, n, n)))
        call = module.prepare(Plan((launch,)), passed)
        call()
        call.wait()
        error = gemm.relative_error(torch, a, b, d)
        if not error <= gemm.ERROR_LIMIT["bf16"]:
            raise SystemExit(f"{n}, {s}: relative error {error:.2e}")
        ms = timer.milliseconds(call)
        yield gemm.Row("by hand", str(n), "bf16", "bf16", 2 * n**3 / ms / 1e9, ms, error, str(s), 0)
    ms = timer.milliseconds(lambda: torch.matmul(a, b))
    yield gemm.Row("cuBLAS", str(n), "bf16", "bf16", 2 * n**3 / ms / 1e9, ms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=[2048, 4096, 8192])
    parser.add_argument("--structure", action="append", type=parse_structure, metavar="'FIELD=N ...'")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch = gemm.find_torch("cuBLAS and the random operands")
    timer = gemm.Timer(torch, options.repeats)
    structures = options.structure or [hopper.Structure(), hopper.Structure(m=256, n=128), hopper.Structure(cluster=2)]
    rows = [row for n in options.sizes for row in measured(torch, timer, n, structures)]
    gemm.report(torch, rows, options.json)


if __name__ == "__main__":
    main()
