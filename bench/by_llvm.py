"""Kernels as this compiler prints them, and as LLVM does after `convert-warp-to-nvvm`, which take turns on one GPU.

    python bench/by_llvm.py FOLDER --write                        # where LLVM is: its PTX, by a hash of ours
    bench/with_gpu.sh python3 bench/by_llvm.py FOLDER --json out.json

Operands are random, results poisoned beforehand, and the bytes of both must be the same before anything is timed. A
time is the median of 20 launches, with the L2 cache emptied before each; a figure the median of `--turns` such times,
in microseconds. `spread` is how far the turns of this compiler's own text lie apart, in percent.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "test"))

from attention import source as attention
from products import Product, Types
from upstream_out import kept_by_llvm

from warploom.runtime import Kernel, compile
from warploom.runtime.reference.inputs import arrays

LARGE = (4096, 4096, 4096)
BF16, TF32, F64 = Types("bf16", "bf16", "f32"), Types("f32", "f32", "f32"), Types("f64", "f64", "f64")
S8, E4M3 = Types("i8", "i8", "i32"), Types("f8E4M3FN", "f8E4M3FN", "bf16")
PINS = Path(__file__).parents[1] / "test" / "data" / "pins"


@dataclass(frozen=True)
class Case:
    """A kernel: its MLIR, its target, its schedule, and the sizes of arguments that its text leaves open."""

    family: str
    name: str
    text: str
    target: str = "sm_90a"
    options: dict[str, Any] = field(default_factory=dict[str, Any], hash=False)
    sizes: tuple[str, ...] = ()

    def compile(self) -> Kernel:
        return compile(self.text, target=self.target, **self.options)


def cases() -> Iterator[Case]:
    """All families, at sizes that fill a GPU."""
    for target, family in (("sm_80", "products of warps"), ("sm_90a", "products of warpgroups")):
        for types, form, lies, size in (
            (BF16, "cleared", "A B", LARGE), (TF32, "cleared", "A Bt", LARGE), (S8, "cleared", "A Bt", LARGE),
            (BF16, "gelu by tanh", "A B", LARGE), (BF16, "cleared", "A B", (1024, 1024, 1024)),
            (BF16, "cleared", "A B", (4095, 4095, 4095)), (BF16, "cleared", "A B", (128, 128, 8192)),
            (BF16, "dynamic", "A B", (1000, 1000, 1000)),
        ):  # fmt: skip
            product = Product(types, form, lies, size)
            sizes = tuple(f"{i}=random:{size[a]}x{size[b]}" for i, (a, b) in enumerate(((0, 2), (2, 1), (0, 1))))
            options = {"tf32": True} if types is TF32 else {}
            yield Case(family, str(product), product.mlir, target, options, sizes if form == "dynamic" else ())
        sparse = Product(BF16, "sparse", "A B", LARGE)
        yield Case("sparse", f"{sparse} {target}", sparse.mlir, target)
        for causal in (False, True):
            yield Case("attention", f"16x4096x128 {causal=} {target}", attention(16, 4096, 128, causal), target)
    for types, lies in ((F64, "A B"), (E4M3, "A Bt")):
        product = Product(types, "cleared", lies, LARGE)
        yield Case("products of warpgroups" if types is E4M3 else "products of warps", str(product), product.mlir)
    for name, old, new in (
        ("softmax", "5x7xf16", "8192x4096xbf16"), ("softmax_shared", "2x16500", "2048x16500"),
        ("two_results", "9x100", "8192x4096"),
    ):  # fmt: skip
        text = (PINS / f"{name}.mlir").read_text(encoding="utf-8")
        yield Case("rows", name, text.replace(old, new))
    x = "random:8192x4096"
    text = (PINS / "layer_norm.mlir").read_text(encoding="utf-8")
    yield Case("rows", "layer_norm", text, sizes=(f"x={x}", "w=random:4096", "b=random:4096", f"y={x}"))


def in_turn() -> list[Case]:
    """The kernels, families in turn."""
    count = Counter[str]()
    places: dict[Case, int] = {}
    for case in cases():
        places[case] = count[case.family]
        count[case.family] += 1
    return sorted(places, key=lambda case: places[case])


def write(folder: Path) -> None:
    """Has LLVM print all kernels."""
    folder.mkdir(parents=True, exist_ok=True)
    for case in cases():
        kept_by_llvm(case.compile().ptx, folder)


def drawn(case: Case, kernel: Kernel) -> list[Any]:
    """Arguments on the GPU: random ones, metadata of a sparse A that means something, poisoned results."""
    import torch

    function, generator = kernel.function, torch.Generator("cuda").manual_seed(0)
    kept = {*(each.position for each in function.sparse), *function.filled}
    sizes = [text.replace("random", "zeros") for text in case.sizes]
    zeros = sizes if sizes else [f"{i}=zeros" for i in range(len(function.parameters)) if i not in kept]
    values: list[Any] = []
    for i, number in enumerate(arrays(function, zeros, 0)):
        if not number.ndim:
            values.append(number)
            continue
        tensor = torch.from_numpy(number.view(f"i{number.itemsize}")).cuda().view(getattr(torch, number.dtype.name))
        if i not in kept and tensor.is_floating_point():
            tensor.copy_(torch.randn(tensor.shape, device="cuda", generator=generator))
        elif i not in kept:
            tensor.copy_(torch.randint(-8, 8, tensor.shape, device="cuda", generator=generator))
        values.append(tensor)
    return values


def measure(case: Case, kernels: Sequence[Kernel], turns: int) -> dict[str, Any]:
    """The times of one kernel by both, after its words were compared."""
    import torch

    from warploom.runtime.cuda.driver import gpu
    from warploom.runtime.cuda.launch import timer

    results: list[list[bytes]] = []
    calls: list[Any] = []
    for kernel in kernels:
        values = drawn(case, kernel)
        calls.append(prepared := kernel.prepare(*values))
        prepared()
        prepared.wait()
        torch.cuda.synchronize()
        written = [values[i] for i in sorted(kernel.function.written)]
        results.append([v.view(torch.uint8).cpu().numpy().tobytes() for v in written])
    times: list[list[float]] = [[], []]
    with timer(gpu()) as microseconds:
        for _ in range(turns):
            for i, prepared in enumerate(calls):
                times[i].append(microseconds(prepared))
    first, second = map(statistics.median, times)
    return {
        "family": case.family, "name": case.name, "target": case.target, "same": results[0] == results[1],
        "ours": first, "llvm": second, "ratio": second / first, "spread": 100 * (max(times[0]) / min(times[0]) - 1),
        "registers": [[k.registers for k in prepared.kernels] for prepared in calls],
    }  # fmt: skip


def loaded(case: Case, folder: Path) -> tuple[Case, list[Kernel]]:
    """The kernel by both, compiled and loaded."""
    from warploom.runtime.cuda.driver import gpu

    ours = case.compile()
    kernels = [ours, replace(ours, ptx=kept_by_llvm(ours.ptx, folder)[0])]
    for kernel in kernels:
        gpu().load(kernel.ptx)
    return case, kernels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help="have LLVM print all kernels")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1e9, help="wait for no kernel after so many")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.write:
        return write(asked.folder)
    started, rows = time.monotonic(), list[dict[str, Any]]()
    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(loaded, case, asked.folder) for case in in_turn()]:
            try:
                case, kernels = future.result(max(0.1, asked.seconds + started - time.monotonic()))
                rows.append(row := measure(case, kernels, asked.turns))
            except Exception as error:
                print(f"{type(error).__name__}: {error}"[:300], flush=True)
                continue
            text = "{family:23}{name:48}{target:7}{same!s:6}{ours:8.1f}{llvm:8.1f}{ratio:7.3f}{spread:5.1f} {registers}"
            print(text.format(**row), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
