"""`prove`: a kernel against a function, or against another kernel; `order`: the order of its sums."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from typing import TypeAlias

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from ..arguments.launch_values import LaunchValue
from ..base.errors import ArgumentError
from ..base.launch import Options, Plan, Signature
from ..interp.machine.kernel import Observer
from ..kernel.binding import launch_values
from ..kernel.compile import SUFFIX, UNNAMED, text_or_file
from ..kernel.kernel import Kernel
from ..kernel.lowering import chosen, parse, signature_of
from ..kernel.module import LaunchPlace, PtxModule, may_write
from ..numerics.floats import Array
from ..reference.functions import accumulator_of
from .counterexample import Counterexample, KernelCall
from .question import Proof, Question, Trial


@dataclass(frozen=True)
class KernelLaunch:
    """A launch of a kernel of a PTX module. An argument that is a string names an array of the question; one that is a
    function is called with the arrays by name, such as `lambda arrays: TensorMap(arrays["A"], (64, 64))`; every other
    is passed as it is."""

    module: PtxModule
    kernel: str
    grid: int | Sequence[int]
    block: int | Sequence[int]
    args: Sequence[object]
    shared: int | None = None
    cluster: int | Sequence[int] | None = None

    def run(self, names: Sequence[str], max_steps: int | None = None) -> partial[LaunchPlace]:
        """What runs it on arrays of these names, as `_run` says.

        Raises:
            ArgumentError: for an argument that names no array.
        """
        for arg in self.args:
            if isinstance(arg, str) and arg not in names:
                raise ArgumentError(f"{self.kernel}: no array is called {arg}; there are {', '.join(names)}")

        def planned(arrays: Sequence[Array]) -> tuple[Plan, Sequence[LaunchValue]]:
            by_name = dict(zip(names, arrays, strict=True))
            passed = [by_name[a] if isinstance(a, str) else a(by_name) if callable(a) else a for a in self.args]
            return self.module.planned(self.kernel, self.grid, self.block, passed, self.shared, self.cluster)

        return partial(_run, self.module, planned, max_steps)

    @property
    def written(self) -> frozenset[str]:
        """The names of the arrays that the kernel may write."""
        function = self.module.kernel(self.kernel)
        written = may_write(function)
        pairs = zip(function.parameters, self.args, strict=False)
        return frozenset(arg for p, arg in pairs if isinstance(arg, str) and p.name in written)


def _run(
    module: PtxModule, planned: Callable[[Sequence[Array]], tuple[Plan, Sequence[LaunchValue]]], max_steps: int | None,
    arrays: Sequence[Array], observer: Observer | None, checks: Sequence[str], *, report: bool = False,
) -> LaunchPlace:  # fmt: skip
    """Interprets the launches `planned` for arrays, watched by an observer and by the checks of these names."""
    options = Options(observer=observer, checks=checks, max_steps=max_steps, report=report)
    return module.run(*planned(arrays), device="interp", options=options)


def prove(
    kernel: Kernel | KernelLaunch,
    against: str | PathLike[str] | ModuleOp | KernelLaunch,
    arrays: Mapping[str, Array] | None = None,
    *,
    function: str | None = None,
    names: Sequence[str] = (),
    seed: int = 0,
    explain: bool = True,
    max_steps: int | None = None,
) -> Proof:
    """Prove that a kernel computes a function of `linalg`, or what another kernel does, for all inputs of these sizes.

    - `kernel`: what `compile` gives, or a `KernelLaunch` of PTX from any compiler.
    - `against`: MLIR text, the path of a file, a module, or another launch.
    - `arrays`: the arguments by name, for their sizes, strides and integers; numbers in floating point do not matter.
      Those of a function that are left out are drawn, if their sizes are known.
    - `function`: the function to prove, if the module has several.
    - `names`: what the launch calls the arguments of the function, in order; by default as the function does.
    - `explain`: whether to look for the product that the first output that differs lacks, which takes some more runs.
    - `max_steps`: end a launch after so many steps, in case it does not end.

    Returns:
        The verdict, which is true if it is a proof.

    Raises:
        HostError: for a function with an operation that has no meaning here.
        ArgumentError: for arrays that do not fit.
    """
    if isinstance(against, KernelLaunch):
        return _between(kernel, against, arrays or {}, (seed, explain), max_steps)
    if isinstance(against, ModuleOp):
        module, file = against.clone(), UNNAMED
    else:
        text, file = text_or_file(against, SUFFIX, UNNAMED)
        module = parse(text, file)
    meant = chosen(module, function or (kernel.function.name if isinstance(kernel, Kernel) else None))
    signature = signature_of(meant)
    names = list(names) or [p.name for p in signature.parameters]
    if len(names) != len(signature.parameters):
        raise ArgumentError(f"@{signature.name} has {len(signature.parameters)} arguments, got {', '.join(names)}")
    renamed = tuple(replace(p, name=name) for p, name in zip(signature.parameters, names, strict=True))
    arguments = _arguments(signature._replace(parameters=renamed), arrays or {}, seed)
    run = run_of(kernel, names, arguments, max_steps)
    sides = partial(Trial.of_kernel, run=run), partial(Trial.of_function, function=meant)
    accumulator = accumulator_of(kernel.schedule, kernel.target) if isinstance(kernel, Kernel) else None
    refuted = Counterexample(run, meant, accumulator)
    return Question(
        names, arguments, sorted(signature.written), signature.filled, *sides, refuted, seed, explain
    ).decide()


def run_of(
    kernel: Kernel | KernelLaunch, names: Sequence[str], arrays: Sequence[Array], max_steps: int | None
) -> KernelCall:
    """What runs a kernel on the arguments of a function."""
    if isinstance(kernel, KernelLaunch):
        return kernel.run(names, max_steps)
    called = kernel.called_with(*arrays)

    def planned(mine: Sequence[Array]) -> tuple[Plan, Sequence[LaunchValue]]:
        return called.plan, launch_values(called.function, mine)

    return partial(_run, called.binary, planned, max_steps)


def _arguments(signature: Signature, arrays: Mapping[str, Array], seed: int) -> list[Array]:
    """The arguments of a function: those given, others drawn."""
    from ..reference.inputs import arrays as drawn

    for name in arrays:
        if name not in [p.name for p in signature.parameters]:
            raise ArgumentError(f"@{signature.name} has no argument {name}")
    texts = [f"{name}=random:{'x'.join(map(str, a.shape))}" for name, a in arrays.items() if a.ndim]
    arguments = [
        a if a.ndim or a.dtype.kind in "iu" else np.array(abs(a), a.dtype) for a in drawn(signature, texts, seed)
    ]
    return [arrays.get(p.name, array) for p, array in zip(signature.parameters, arguments, strict=True)]


def _between(
    left: Kernel | KernelLaunch, right: KernelLaunch, arrays: Mapping[str, Array], how: tuple[int, bool],
    max_steps: int | None,
) -> Proof:  # fmt: skip
    if isinstance(left, Kernel):
        raise ArgumentError("two kernels are compared by their launches; give a KernelLaunch of the first one, too")
    names, values = list(arrays), list(arrays.values())
    written = left.written | right.written
    outputs = [i for i, name in enumerate(names) if name in written]
    runs = [side.run(names, max_steps) for side in (left, right)]
    one, other = (partial(Trial.of_kernel, run=run) for run in runs)
    return Question(names, values, outputs, frozenset(), one, other, Counterexample(runs[0], runs[1]), *how).decide()


# The order of sums: by which instructions, in which types and in which order an output is computed.
#
# A value has a word that follows from its instruction and the words of its operands, and an element of an input one
# that follows from its name and index. Equal words mean equal trees of instructions, but for a probability of 2^-60,
# and so equal bits on one GPU.

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
        value, shown = self.trial.left[position]
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
    trial.of_kernel(run_of(kernel, names, trial.arrays, max_steps))
    if trial.fault is not None:
        raise trial.fault
    launched = isinstance(kernel, KernelLaunch)
    written = kernel.written if launched else {names[i] for i in kernel.function.written}
    left = {names[i]: values for i, values in trial.left.items() if names[i] in written}
    return Order(trial, names, {name: trial.table.tree(values) for name, values in left.items()})
