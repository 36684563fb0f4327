"""What a kernel of the corpus is: its source, how it is launched, and a judge that does not know the kernel's code.

A case is a function of the kernel's name in the C++ or Triton source. It takes a random generator and gives the
arguments and a judge, a function that raises AssertionError unless the arrays among the arguments are right after the
launch. It is called again for each launch and gives the same arguments each time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Random: TypeAlias = np.random.Generator
Judge: TypeAlias = Callable[[], None]
Setup: TypeAlias = Callable[[Random], tuple[list[Any], Judge]]
Shape: TypeAlias = int | tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """One launch of one kernel.

    `file` is the stem of the source. `sm` is the least target that has what the kernel uses. `differs` says why a GPU
    may give other words than the interpreter; empty where every word of every array is defined. `printed` gives what
    the launch prints. `sample` puts it into the part that always runs.
    """

    name: str
    file: str
    grid: Shape
    block: Shape
    setup: Setup
    shared: int = 0
    cluster: Shape | None = None
    sm: int = 80
    differs: str = ""
    refused: str = ""
    sample: bool = False
    cooperative: bool = False
    printed: Callable[[], str] | None = None

    def arguments(self) -> tuple[list[Any], Judge]:
        """Fresh arguments, the same each time, and their judge."""
        return self.setup(np.random.default_rng(sum(self.name.encode())))


CASES: list[Case] = []
"""Every case, in the order of the files."""


def kernels_of(file: str) -> Callable[..., Callable[[Setup], Setup]]:
    """A decorator that makes cases of the kernels in one source file."""

    def case(grid: Shape = 1, block: Shape = 32, **options: Any) -> Callable[[Setup], Setup]:
        def register(setup: Setup) -> Setup:
            CASES.append(Case(getattr(setup, "__name__", ""), file, grid, block, setup, **options))
            return setup

        return register

    return case


POISON = 0xA5
"""Every byte of an output before the launch."""


def output(shape: Shape, dtype: Any) -> Array:
    """An array that holds nothing a kernel would write."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.full(size, POISON, np.uint8).view(dtype).reshape(shape)


def equal(*pairs: tuple[Array, Any]) -> Judge:
    """A judge: every array has exactly these values; NaN equals NaN, and zeros have their signs."""

    def judge() -> None:
        for i, (got, wanted) in enumerate(pairs):
            expected = np.asarray(wanted).astype(got.dtype).reshape(got.shape)
            bad = _words(got) != _words(expected)
            if got.dtype.kind not in "iub":
                bad &= ~(np.isnan(got.astype(np.float64)) & np.isnan(expected.astype(np.float64)))
            _report(i, got, expected, bad)

    return judge


def close(*pairs: tuple[Array, Any], rtol: float, atol: float = 0.0) -> Judge:
    """A judge: every array is near these values."""

    def judge() -> None:
        for i, (got, wanted) in enumerate(pairs):
            expected = np.asarray(wanted, np.float64).reshape(got.shape)
            bad = ~np.isclose(got.astype(np.float64), expected, rtol=rtol, atol=atol, equal_nan=True)
            _report(i, got, expected, bad)

    return judge


def bounded(got: Array, a: Array, b: Array, unit: float, then: Callable[[Array], Array] = lambda x: x) -> Judge:
    """A judge of a product, A of M x K and B of N x K: within a part of the sum of the products' magnitudes."""

    def judge() -> None:
        x, y = a.astype(np.float64), b.astype(np.float64)
        expected = then(x @ y.T)
        wrong = ~(np.abs(got.astype(np.float64) - expected) <= unit * (np.abs(x) @ np.abs(y).T))
        _report(0, got, expected, wrong)

    return judge


def both(*judges: Judge) -> Judge:
    """A judge that is content when all are."""

    def judge() -> None:
        for one in judges:
            one()

    return judge


def _words(array: Array) -> Array:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}") if array.dtype.kind != "c" else array


def _report(position: int, got: Array, expected: Array, bad: Array) -> None:
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise AssertionError(
            f"array {position} differs in {int(bad.sum())} of {bad.size} elements, first at {at}: "
            f"got {got[at]!r}, expected {expected[at]!r}"
        )
