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
from upstream import ABSENT, mlir_opt, piped
from xdsl.dialects import gpu
from xdsl.dialects.builtin import ModuleOp

from warploom.passes.tile.foreign_kernels import OutlineLaunchesPass
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import TensorMap, WarploomError, load_kernels

PLACE = "test/Integration/GPU/CUDA"


class CudaTest(NamedTuple):
    """A test, the threads of its CTA, the operands of its kernels in the order in which these capture them, made of its
    text, and which of them is the result. `expected` makes it of the operands; without, CHECK lines have it, and
    without a result they have what the kernels print. `options` are those of an `mlir-opt` that makes the IR; a test
    that is wrong in itself is `refused` by checks that say why."""

    name: str
    threads: int | tuple[int, int, int]
    operands: Callable[[str], list[np.ndarray]] = lambda text: []
    result: int | None = None
    expected: Callable[[list[np.ndarray]], np.ndarray] | None = None
    target: str = "sm_80"
    shared: int | None = None
    passed: Callable[[list[np.ndarray]], Sequence[object]] = lambda operands: operands
    grid: int | tuple[int, int, int] = 1
    cluster: tuple[int, int, int] | None = None
    options: tuple[str, ...] = ()
    refused: str = ""


def stored(text: str) -> np.ndarray:
    """What a test stores in `%data`, an element at a time."""
    numbers = {name: float(value) for name, value in re.findall(r"%(cst\d+) = arith.constant ([-\d.]+) :", text)}
    data = np.zeros((2, 6), np.int32 if "memref<2x6xi32>" in text else np.float32)
    for name, row, column in re.findall(r"memref.store %(\w+), %data\[%c(\d), %c(\d)\]", text):
        data[int(row), int(column)] = numbers[name]
    return data


def reduced(name: str, *results: int) -> CudaTest:
    """A test of `gpu.all_reduce` on two rows of six numbers."""

    def operands(text: str) -> list[np.ndarray]:
        data = stored(text)
        return [data, *(np.full(2, -7, data.dtype) for _ in results)]

    return CudaTest(name, 6, operands, results[0], grid=2)


def counted(*shape: int) -> np.ndarray:
    """Columns by their numbers."""
    return np.ascontiguousarray(np.broadcast_to(np.arange(shape[-1]), shape), np.float16)


def eighths(columns: int, period: int = 16) -> np.ndarray:
    """The numbers that the Hopper tests have: each eight times, and again after so many."""
    return (np.arange(128 * columns) // 8 % period).reshape(128, columns).astype(np.float16)


def hopper(_: str) -> list[np.ndarray]:
    """D, A of which the first 64 columns count, and B."""
    a = np.zeros((128, 128), np.float16)
    i, j = np.mgrid[:128, :128]
    a[j, i] = (j * 64 + i) // 8 % 16
    return [np.full((128, 128), np.nan, np.float32), a, eighths(128)]


def mapped(operands: list[np.ndarray]) -> Sequence[object]:
    """As tensor maps: boxes of 128x64 of A, and of 64x64 of B."""
    d, a, b = operands
    return [d, TensorMap(a, (128, 64), swizzle=128), TensorMap(b, (64, 64), swizzle=128)]


def copied(*boxes: tuple[int, int], swizzle: int = 0) -> Callable[[list[np.ndarray]], Sequence[object]]:
    """Matrices as tensor maps with boxes."""
    return lambda operands: [TensorMap(o, box, swizzle=swizzle) for o, box in zip(operands, boxes, strict=True)]


def numbered(*shape: int) -> np.ndarray:
    """Elements by their numbers."""
    return np.arange(np.prod(shape)).reshape(shape).astype(np.float32)


def transformed(name: str, shapes: Sequence[tuple[int, int]], dtype: type) -> CudaTest:
    """A product of numbered elements, of f16 divided by 64, plus C, that upstream makes one of `nvgpu`."""
    unit = 64 if dtype == np.float16 else 1

    def operands(_: str) -> list[np.ndarray]:
        return [(numbered(*shape) / unit).astype(dtype) for shape in shapes]

    def expected(_: list[np.ndarray]) -> np.ndarray:
        a, b, c = (each.astype(np.float64) for each in operands(""))
        return (a @ b + c).astype(dtype).astype(np.float64)

    path = f"TensorCore/sm80/transform-mma-sync-matmul-{name}"
    return CudaTest(path, 32, operands, 2, expected, options=("--transform-interpreter",))


def strided(operands: list[np.ndarray]) -> Sequence[object]:
    """The result, and the source as halves of rows and columns."""
    d, a = operands
    return [TensorMap(a.reshape(2, 64, 2, 64).transpose(0, 2, 1, 3), (2, 2, 64, 64)), d]


TESTS = (
    CudaTest("TensorCore/wmma-matmul-f16", 32, lambda _: [counted(16, 16), np.zeros((16, 16), np.float16)], 0),
    CudaTest(
        "TensorCore/wmma-matmul-f32", 32, lambda _: [np.ones((16, 16), np.float16), np.zeros((16, 16), np.float32)], 1
    ),
    CudaTest(
        "TensorCore/wmma-matmul-f32-bare-ptr", 32,
        lambda _: [np.ones((16, 16), np.float16), np.zeros((16, 16), np.float32)], 1,
        lambda o: np.full((16, 16), 16.0),
    ),
    CudaTest(
        "TensorCore/sm80/wmma-matmul-f64", 32,
        lambda _: [np.ones((8, 4)), np.ones((4, 8)), np.full((8, 8), 3.14), np.full((8, 8), np.nan)], 3,
    ),
    transformed("f32", ((16, 4), (4, 8), (16, 8)), np.float32),
    transformed("f16-f16-accum", ((16, 16), (16, 8), (16, 8)), np.float16),
    CudaTest(
        "async", 2, lambda _: [each for n in (42, 42, -1) for each in (np.full(2, n, np.int32), np.array(2))], 4,
        lambda o: np.full(2, 84.0), options=("--mlir-print-op-generic",),
    ),
    CudaTest(
        "concurrent-kernels", 1, lambda _: [np.zeros((), np.int32).reshape(1)], 0, lambda o: np.full(1, 2.0), grid=2,
        options=("--convert-scf-to-cf",),
    ),
    *(reduced(f"all-reduce-{name}", 1) for name in ("and", "or", "xor", "maxsi", "minsi")),
    reduced("multiple-all-reduce", 1, 2),
    CudaTest(
        "all-reduce-op", (13, 4, 2), lambda _: [np.full((2, 4, 13), -1, np.float32), *map(np.array, (2, 4, 13))], 0,
        lambda o: np.full((2, 4, 13), 104 * 103 / 2),
    ),
    CudaTest(
        "all-reduce-region", 35, lambda _: [np.full(35, -1, np.float32), np.array(35)], 0, lambda o: np.full(35, 35.0)
    ),
    CudaTest("shuffle", 13, lambda _: [np.full(13, np.nan, np.float32), np.array(13)], 0),
    CudaTest("two-modules", 13, lambda _: [np.full(13, -1, np.int32), np.array(13)], 0),
    CudaTest("gpu-to-cubin", 5, lambda _: [np.array(1.0, np.float32), np.full(5, np.nan, np.float32), np.array(5)], 1),
    CudaTest(
        "command-line-arg", 5, lambda _: [np.array(3.0, np.float32), np.full(5, np.nan, np.float32), np.array(5)], 1,
        lambda o: np.full(5, 3.0),
    ),
    CudaTest(
        "dump-sass", 5, lambda _: [np.array(3.0, np.float32), np.full(5, np.nan, np.float32), np.array(5)], 1,
        lambda o: np.full(5, 3.0),
    ),
    CudaTest(
        "alloc-host-shared", 1, lambda _: [np.full(1, 1000, np.int32)], 0, lambda o: np.full(1, 2000.0),
        refused="global access out of bounds: 4 bytes",
    ),
    CudaTest("printf", 2),
    CudaTest("assert", 2, lambda _: [np.array(False), np.array(True)]),
    CudaTest("sm90/cga_cluster", 1, target="sm_90a", grid=(4, 4, 1), cluster=(2, 2, 1)),
    CudaTest(
        "sm90/tma_load_128x64_swizzle128b", 128, lambda _: [eighths(64, 1024)], target="sm_90a",
        passed=copied((128, 64), swizzle=128), refused="deadlock",
    ),
    CudaTest(
        "sm90/tma_load_64x64_swizzle128b", 128, lambda _: [eighths(64, 1024), eighths(128, 1024)[:64].copy()],
        target="sm_90a", shared=0x8000, passed=copied((128, 64), (64, 64), swizzle=128),
    ),
    *(
        CudaTest(
            f"sm90/{name}", 128,
            lambda _: [np.tile(np.arange(8, dtype=np.float32), (64, 1)), np.full((8, 128), 3, np.float32)],
            target="sm_90a", passed=copied((64, 8), (8, 128)), options=options,
        )
        for name, options in (
            ("tma_load_64x8_8x128_noswizzle", ()),
            ("transform-dialect/tma_load_64x8_8x128_noswizzle-transform", ("--transform-interpreter",)),
        )
    ),
    CudaTest(
        "sm90/tma_load_128x128_stride_noswizzle", 128,
        lambda _: [np.full((128, 128), np.nan, np.float16), numbered(128, 128).astype(np.float16)], 0,
        lambda o: o[1].astype(np.float64), "sm_90a", 0x8000, strided,
    ),
    *(
        CudaTest(
            f"sm90/gemm{kind}_f32_f16_f16_128x128x128", 128, hopper, 0,
            lambda o: o[1].astype(np.float64) @ o[2].astype(np.float64), "sm_90a", 0x20000, mapped,
        )
        for kind in ("", "_pred")
    ),
)  # fmt: skip


def checked(text: str) -> np.ndarray:
    """The numbers of a test's CHECK lines that are rows."""
    rows = re.findall(r"// CHECK(?:-NEXT)?:\s*\[([-\d.,\s]+)\]", text)
    return np.array([float(number) for row in rows for number in row.split(",")])


def run(test: CudaTest, text: str) -> tuple[bool, str]:
    """Runs the kernels of a test, one after another. Returns whether the result is right, and what checks say."""
    before = re.sub(r"(?m)^\s*vector\.print .*$", "", text)
    if test.options:
        before = piped(before, ("mlir-opt", "--allow-unregistered-dialect", *test.options))
    ctx = make_context()
    ctx.allow_unregistered = True
    module = parse_mlir(ctx, before, test.name)
    OutlineLaunchesPass().apply(make_context(), module)
    operands, said, printed = test.operands(text), list[str](), list[str]()
    around = [op for op in module.walk() if op.name == "memref.global"]
    for kernels in [op for op in module.walk() if isinstance(op, gpu.ModuleOp)]:
        name = next(op.sym_name.data for op in kernels.walk() if isinstance(op, gpu.FuncOp))
        loaded = load_kernels(ModuleOp([*(op.clone() for op in around), kernels.clone()]), test.target, test.threads)
        for checks in ("all", ()):
            printed.clear()
            passed = [
                each.item() if isinstance(each, np.ndarray) and not each.shape else each
                for each in test.passed(operands)
            ]
            try:
                loaded.launch(
                    name, test.grid, test.threads, passed, test.shared, "interp", cluster=test.cluster, checks=checks,
                    output=printed.append,
                )  # fmt: skip
                break
            except WarploomError as error:
                said.append(re.sub(r";.*", "", str(error)))
                if "trap" in str(error):
                    break
                operands[:] = test.operands(text)
    if test.refused:
        return all(test.refused in each for each in said), "refused: " + "; ".join(said)
    right, line = _printed(text, "".join(printed)) if test.result is None else _result(test, text, operands)
    return right, "; but ".join([line, *said])


def _result(test: CudaTest, text: str, operands: list[np.ndarray]) -> tuple[bool, str]:
    result = operands[test.result or 0].astype(np.float64)
    expected = checked(text)[: result.size].reshape(result.shape) if test.expected is None else test.expected(operands)
    worst = np.abs(result - expected).max()
    right = bool(worst <= 1e-6 * max(1.0, np.abs(expected).max()))
    return right, "right" if right else f"differs by {worst:g}"


def _printed(text: str, printed: str) -> tuple[bool, str]:
    """Whether the kernels print what CHECK lines say, in order; those of the driver's own messages are left out."""
    wanted = [
        line
        for line in re.findall(r"// CHECK(?:-DAG)?:\s*(.*\S)", text)
        if "Assertion" not in line and "[[" not in line
    ]
    at, shown = 0, re.sub(r"[ \t]+", " ", printed)
    for line in wanted:
        position = shown.find(re.sub(r"[ \t]+", " ", line), at)
        if position < 0:
            return False, f"does not print {line[:60]}"
        at = position
    unwanted = [line for line in re.findall(r"// CHECK-NOT:\s*(.*\S)", text) if line in printed]
    return not unwanted and bool(wanted), "right" if not unwanted else f"prints {unwanted[0]}"


def main(folder: Path) -> int:
    places = (folder / "mlir" / PLACE, folder / PLACE)
    tests = next((each for each in places if each.is_dir()), None)
    if tests is None:
        print(f"could not have MLIR's integration tests: there is no {places[0]}")
        return 1
    wrong = 0
    for test in TESTS:
        try:
            if test.options and mlir_opt() is None:
                print(f"{test.name:40} could not be had: {ABSENT}")
                continue
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
