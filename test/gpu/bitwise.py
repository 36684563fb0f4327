"""The same PTX on the interpreter and on a GPU, word for word. Run as a script it prints a table."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from warploom.runtime import DeviceUnavailableError, Kernel, compile
from warploom.runtime.arguments.arrays import DTYPES
from warploom.runtime.cuda.driver import GpuDevice, gpu

Array = np.ndarray[Any, np.dtype[Any]]

SIZES = (
    (1, 1, 1),
    (7, 5, 3),
    (16, 8, 16),
    (100, 77, 53),
    (129, 257, 65),
    (256, 320, 192),
    (511, 257, 255),  # packed, with odd rows of C
    (128, 128, 4096),  # K in parts
    (512, 512, 256),  # K tiles in slices
)
SM_90 = 90
"""The tensor cores whose arithmetic the interpreter is known to have, word for word."""


@dataclass(frozen=True)
class Case:
    """A product of size (m, n, k): C starts as NaN and is cleared, or starts from random values and is added to."""

    size: tuple[int, int, int]
    operand: str
    result: str
    filled: bool

    def __str__(self) -> str:
        size = "x".join(map(str, self.size))
        return f"{size}-{self.operand}-{self.result}-{'filled' if self.filled else 'added'}"

    @property
    def mlir(self) -> str:
        m, n, k = self.size
        a, b, c = f"memref<{m}x{k}x{self.operand}>", f"memref<{k}x{n}x{self.operand}>", f"memref<{m}x{n}x{self.result}>"
        clear = f"%zero = arith.constant 0.0 : {self.result}\n  linalg.fill ins(%zero : {self.result}) outs(%C : {c})"
        return f"""func.func @product(%A: {a}, %B: {b}, %C: {c}) {{
  {clear if self.filled else ""}
  linalg.matmul ins(%A, %B : {a}, {b}) outs(%C : {c})
  return
}}"""

    def arrays(self, seed: int = 0) -> list[Array]:
        """A, B and C. The exponents of A and B spread over 12 binades, so that every bit of the sums matters."""
        m, n, k = self.size
        random = np.random.default_rng(seed)
        a, b = (
            (random.standard_normal(shape) * 2.0 ** random.integers(-6, 6, shape)).astype(DTYPES[self.operand])
            for shape in ((m, k), (k, n))
        )
        c = np.full((m, n), np.nan) if self.filled else random.standard_normal((m, n))
        return [a, b, c.astype(DTYPES[self.result])]


def cases() -> Iterator[Case]:
    """Every size with f16 and bf16 operands, f32 results and results of the operands' type, cleared and added to."""
    for size in SIZES:
        for operand in ("f16", "bf16"):
            for result in ("f32", operand):
                for filled in (False, True):
                    yield Case(size, operand, result, filled)


@dataclass(frozen=True)
class Outcome:
    """`different` words of `words`; `first` describes the first one."""

    words: int
    different: int
    first: str
    interp_s: float
    cuda_s: float


def words(array: Array) -> Array:
    """The bits of an array's elements."""
    return array.view(f"u{array.dtype.itemsize}")


def _timed(kernel: Kernel, arrays: list[Array], device: str) -> float:
    start = time.perf_counter()
    kernel(*arrays, device=device)
    return time.perf_counter() - start


def compare(case: Case, target: str) -> Outcome:
    """Compile a case once and run it on both."""
    kernel = compile(case.mlir, target)
    here, there = case.arrays(), case.arrays()
    interp_s, cuda_s = _timed(kernel, here, "interp"), _timed(kernel, there, "cuda")
    ours, theirs = words(here[2]), words(there[2])
    differing = np.argwhere(ours != theirs)
    first = ""
    if len(differing):
        at = tuple(int(i) for i in differing[0])
        first = f"at {at}: interpreter {int(ours[at]):#x}, GPU {int(theirs[at]):#x}"
    return Outcome(ours.size, len(differing), first, interp_s, cuda_s)


def find_device() -> GpuDevice:
    """The GPU. Raises DeviceUnavailableError if there is none."""
    return gpu().device


def main() -> int:
    """Compare every case and print a line for each; 1 if a word differs."""
    try:
        device = find_device()
    except DeviceUnavailableError as error:
        print(f"skipped: {error}")
        return 0
    if device.sm != SM_90:
        print(f"skipped: {device}; the interpreter is held against sm_90 only")
        return 0
    print(device)
    failed = 0
    for case in cases():
        outcome = compare(case, device.target)
        verdict = f"{outcome.different} words differ, {outcome.first}" if outcome.different else "equal"
        times = f"interp {outcome.interp_s:6.2f} s, cuda {outcome.cuda_s:5.2f} s"
        print(f"{case!s:34} {outcome.words:6} words  {times}  {verdict}", flush=True)
        failed += bool(outcome.different)
    print(f"{failed} cases differ" if failed else "every word is equal")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
