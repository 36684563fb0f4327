"""The order of sums: by which instructions, in which types and in which order an output is computed.

A value has a word that follows from its instruction and the words of its operands, and an element of an input one that
follows from its name and index. Equal words mean equal trees of instructions, but for a probability of 2^-60, and so
equal bits on one GPU.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ..base.errors import ArgumentError
from ..kernel.kernel import Kernel
from ..numerics.floats import Array
from .prove import KernelLaunch, run_of
from .question import Trial, followed

Child: TypeAlias = tuple[int, float]
"""A value by number, and what it is in the run: a number of the program where the first is 0."""
DEEPEST, LINES = 24, 60


@dataclass
class Order:
    """The trees of the outputs of one launch. `words` are those of each array that it writes, by name."""

    trial: Trial
    names: Sequence[str]
    words: Mapping[str, Array]

    def tree(self, name: str, index: tuple[int, ...]) -> str:
        """The tree of one element.

        Raises:
            ArgumentError: for an element that there is not.
        """
        position = list(self.names).index(name) if name in self.words else -1
        shape = self.trial.arrays[position].shape if position >= 0 else ()
        if len(index) != len(shape) or not all(i < size for i, size in zip(index, shape, strict=True)):
            sizes = " or ".join(_element(n, words.shape) for n, words in self.words.items())
            raise ArgumentError(f"--order: expected indices below {sizes}, got {_element(name, index)}")
        arrays = [i for i, array in enumerate(self.trial.arrays) if followed(array) is not None]
        value, shown = self.trial.left[arrays.index(position)]
        lines = [f"{_element(name, index)} ="]
        lines += self._lines((int(value[index]), float(shown[index])), 1)
        more = [f"... {len(lines) - LINES} more lines"] if len(lines) > LINES else []
        return "\n".join([*lines[:LINES], *more])

    def compare(self, other: Order) -> tuple[str, tuple[int, ...]] | None:
        """The first element of the outputs whose trees differ; None if all are equal."""
        for name, mine in self.words.items():
            if name in other.words:
                both = tuple(slice(0, min(a, b)) for a, b in zip(mine.shape, other.words[name].shape, strict=True))
                bad = np.argwhere(mine[both] != other.words[name][both])
                if bad.size:
                    return name, tuple(int(n) for n in bad[0])
        return None

    def _input(self, number: int) -> tuple[str, tuple[int, ...]] | None:
        """The element of an input that a value is."""
        for name, array in zip(self.names, self.trial.index, strict=True):
            if array is not None and array.size and array.reshape(-1)[0] <= number <= array.reshape(-1)[-1]:
                at = np.unravel_index(number - int(array.reshape(-1)[0]), array.shape)
                return name, tuple(int(n) for n in at)
        return None

    def _made(self, number: int) -> tuple[str, list[Child], bool] | None:
        """The instruction and the operands of a value; whether it multiplies matrices."""
        terms = self.trial.table.terms
        place = bisect_right(terms, number, key=lambda term: term[0]) - 1
        if place < 0:
            return None
        first, shape, term = terms[place]
        size = int(np.prod(shape, dtype=np.int64))
        return (term.label, term.of(number - first, shape), term.a is not None) if number < first + size else None

    def _leaf(self, child: Child) -> str:
        number, shown = child
        if not number:
            return f"{shown:g}"
        element = self._input(number)
        if element is not None:
            return _element(*element)
        return "" if self._made(number) else "bits"

    def _lines(self, child: Child, depth: int) -> Iterator[str]:
        """The lines of a tree: an operation, with what it adds to below it; sums of products in one line."""
        margin = "  " * depth
        if leaf := self._leaf(child):
            yield margin + leaf
            return
        label, operands, matrix = self._made(child[0]) or ("", [], False)
        if matrix:
            pairs = list(zip(operands[1::2], operands[2::2], strict=True))
            terms = [(self._leaf(a) or "...", self._leaf(b) or "...") for a, b in pairs if a[0] or b[0]]
            first, last = (" * ".join(terms[i]) for i in (0, -1)) if terms else ("0", "0")
            span = first if len(terms) < 2 else f"{first}, ..., {last}"
            yield f"{margin}{label}: {len(terms)} products {span}, and"
            yield from self._lines(operands[0], depth if depth < DEEPEST else DEEPEST)
            return
        leaves = [self._leaf(each) for each in operands]
        if all(leaves):
            yield f"{margin}{label}: {', '.join(leaves)}"
            return
        yield f"{margin}{label}: {', '.join(leaf or '(below)' for leaf in leaves)}"
        for each, leaf in zip(operands, leaves, strict=True):
            if not leaf:
                yield from self._lines(each, min(depth + 1, DEEPEST))


def _element(name: str, index: Sequence[int]) -> str:
    return f"{name}[{', '.join(map(str, index))}]"


def order(kernel: Kernel | KernelLaunch, arrays: Mapping[str, Array], max_steps: int | None = None) -> Order:
    """The order of the sums of a kernel, or of a launch, on arrays by name.

    Raises:
        InterpreterError: naming the line of what has no order, such as a sum in memory, or of what data decides.
    """
    names = list(arrays)
    trial = Trial(list(arrays.values()), 0, names=names)
    run, target = run_of(kernel, names, trial.arrays, max_steps)
    trial.of_kernel(run, target)
    if trial.fault is not None:
        raise trial.fault
    launched = isinstance(kernel, KernelLaunch)
    written = kernel.written if launched else {names[i] for i in kernel.function.written}
    floats = [n for n, a in zip(names, trial.arrays, strict=True) if followed(a) is not None]
    left = zip(floats, trial.left, strict=True)
    return Order(trial, names, {name: trial.table.tree(values) for name, values in left if name in written})
