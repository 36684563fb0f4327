"""MLIR's own CUDA integration tests, as far as their kernels are lowered here, on the interpreter under all checks.

    python test/upstream_cuda.py FOLDER     # a checkout of llvm-project, or its folder `mlir`; prints a table

A test's IR goes in as it is before `gpu-lower-to-nvvm`: launches become kernels, what the host does around them is done
by numpy, and what the kernels write is what the test's own CHECK lines say, or a product in float64. Lines of the host
that print vectors are left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from xdsl.dialects import gpu
from xdsl.dialects.builtin import ModuleOp

from warploom.passes.tile.outline_launches import OutlineLaunchesPass
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import TensorMap, WarploomError, load_kernels

PLACE = "test/Integration/GPU/CUDA"


class CudaTest(NamedTuple):
    """A test, the threads of its CTA, the operands of its kernels in the order in which these capture them, and which
    of them is the result. `expected` makes it of the operands; without, CHECK lines have it."""

    name: str
    threads: int
    operands: Callable[[], list[np.ndarray]]
    result: int
    expected: Callable[[list[np.ndarray]], np.ndarray] | None = None
    target: str = "sm_80"
    shared: int = 0
    passed: Callable[[list[np.ndarray]], Sequence[object]] = lambda operands: operands


def counted(*shape: int) -> np.ndarray:
    """Columns by their numbers."""
    return np.ascontiguousarray(np.broadcast_to(np.arange(shape[-1]), shape), np.float16)


def eighths(columns: int) -> np.ndarray:
    """The numbers that the Hopper product has: 16 different ones, eight times each."""
    return (np.arange(128 * columns) // 8 % 16).reshape(128, columns).astype(np.float16)


def hopper() -> list[np.ndarray]:
    """D, A of which the first 64 columns count, and B."""
    a = np.zeros((128, 128), np.float16)
    i, j = np.mgrid[:128, :128]
    a[j, i] = (j * 64 + i) // 8 % 16
    return [np.full((128, 128), np.nan, np.float32), a, eighths(128)]


def mapped(operands: list[np.ndarray]) -> Sequence[object]:
    """As tensor maps: boxes of 128x64 of A, and of 64x64 of B."""
    d, a, b = operands
    return [d, TensorMap(a, (128, 64), swizzle=128), TensorMap(b, (64, 64), swizzle=128)]


TESTS = (
    CudaTest("TensorCore/wmma-matmul-f16", 32, lambda: [counted(16, 16), np.zeros((16, 16), np.float16)], 0),
    CudaTest(
        "TensorCore/wmma-matmul-f32", 32, lambda: [np.ones((16, 16), np.float16), np.zeros((16, 16), np.float32)], 1
    ),
    CudaTest(
        "TensorCore/sm80/wmma-matmul-f64",
        32,
        lambda: [np.ones((8, 4)), np.ones((4, 8)), np.full((8, 8), 3.14), np.full((8, 8), np.nan)],
        3,
    ),
    CudaTest("two-modules", 13, lambda: [np.full(13, -1, np.int32), np.array(13)], 0),
    CudaTest("gpu-to-cubin", 5, lambda: [np.array(1.0, np.float32), np.full(5, np.nan, np.float32), np.array(5)], 1),
    CudaTest(
        "sm90/gemm_f32_f16_f16_128x128x128",
        128,
        hopper,
        0,
        lambda o: o[1].astype(np.float64) @ o[2].astype(np.float64),
        "sm_90a",
        0x20000,
        mapped,
    ),
)


def checked(text: str) -> np.ndarray:
    """The numbers of a test's CHECK lines that are rows."""
    rows = re.findall(r"// CHECK(?:-NEXT)?:\s*\[([-\d.,\s]+)\]", text)
    return np.array([float(number) for row in rows for number in row.split(",")])


def run(test: CudaTest, text: str) -> tuple[bool, str]:
    """Runs the kernels of a test, one after another. Returns whether the result is right, and what checks say."""
    module = parse_mlir(make_context(), re.sub(r"(?m)^\s*vector\.print .*$", "", text), test.name)
    OutlineLaunchesPass().apply(make_context(), module)
    operands, said = test.operands(), list[str]()
    around = [op for op in module.ops if not isinstance(op, gpu.ModuleOp) and op.name == "memref.global"]
    for kernels in [op for op in module.walk() if isinstance(op, gpu.ModuleOp)]:
        name = next(op.sym_name.data for op in kernels.walk() if isinstance(op, gpu.FuncOp))
        loaded = load_kernels(ModuleOp([*(op.clone() for op in around), kernels.clone()]), test.target, test.threads)
        passed = [
            each.item() if isinstance(each, np.ndarray) and not each.shape else each for each in test.passed(operands)
        ]
        try:
            loaded.launch(name, 1, test.threads, passed, test.shared, device="interp", checks="all")
        except WarploomError as error:
            said.append(re.sub(r";.*", "", str(error)))
            operands[:] = test.operands()
            passed = _plain(test.passed(operands))
            loaded.launch(name, 1, test.threads, passed, test.shared, device="interp")
    result = operands[test.result].astype(np.float64)
    expected = checked(text).reshape(result.shape) if test.expected is None else test.expected(operands)
    worst = np.abs(result - expected).max()
    right = worst <= 1e-6 * max(1.0, np.abs(expected).max())
    return right, "; but ".join(["right" if right else f"differs by {worst:g}", *said])


def _plain(values: Sequence[object]) -> list[object]:
    """Arguments, with arrays of no dimension as numbers."""
    return [each.item() if isinstance(each, np.ndarray) and not each.shape else each for each in values]


def main(folder: Path) -> int:
    places = (folder / "mlir" / PLACE, folder / PLACE)
    tests = next((each for each in places if each.is_dir()), None)
    if tests is None:
        print(f"could not have MLIR's integration tests: there is no {places[0]}")
        return 1
    wrong = 0
    for test in TESTS:
        try:
            right, line = run(test, (tests / f"{test.name}.mlir").read_text(encoding="utf-8"))
        except Exception as error:
            right, line = False, f"{type(error).__name__}: {error}".splitlines()[0]
        wrong += not right
        print(f"{test.name:40} {line}", flush=True)
    others = sorted(str(f.relative_to(tests)) for f in tests.rglob("*.mlir"))
    print(f"{len(TESTS) - wrong} of {len(TESTS)} right; {len(others)} tests in all")
    return wrong


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("could not have MLIR's test files: name a checkout of llvm-project")
    sys.exit(main(Path(sys.argv[1])))
