"""Whether a kernel computes a function: both are evaluated in the fields, and every output is compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided
from xdsl.dialects import func

from ..arguments.arrays import borrow, element_of
from ..base.launch import describe
from ..interp.machine.memory import InterpreterError
from ..interp.watch.findings import CheckError
from ..numerics.floats import Array
from . import field as fields
from .counterexample import CHECKS, ENDED, KINDS, Counterexample, KernelCall, copied, fault_of
from .field import PRIMES, Residues, drawn
from .mirror import PlaneMemory
from .reference import FieldEvaluation
from .rules import rule_of
from .shadow import FieldShadow
from .values import PLANES, Table, codes_of, elements, planes_of

# Why an output differs: the product that it lacks or has too much of, or the inputs that it depends on.
#
# An output and its reference are polynomials in the elements of the inputs. If each element of an input is multiplied
# by a random factor of its own, a difference that is one product changes by the factor of its element of that input,
# which so is named by the quotient of two differences. A difference of several products is cut down first, by setting
# halves of the inputs to zero.


ROUNDS, SECONDS = 24, 20.0
"""How often inputs are halved at most, and for how long a single product is looked for."""


class Changed(NamedTuple):
    """Factors of the drawn numbers of inputs, and masks of those that are set to zero, by the number of the input."""

    factors: Mapping[int, Residues]
    zeros: Mapping[int, Array]


Evaluate = Callable[[Changed], "tuple[int, int]"]
"""The first residue of one output, of the kernel and of its reference, for changed inputs."""
Place: TypeAlias = tuple[int, ...]


def _quotient(a: int, b: int) -> int:
    return a * pow(b, -1, PRIMES[0]) % PRIMES[0]


def _marked(masks: Mapping[int, Array], places: Mapping[int, Place], value: bool) -> dict[int, Array]:
    """The masks with another value at one place each."""
    made = {i: mask.copy() for i, mask in masks.items()}
    for i, place in places.items():
        made[i][place] = value
    return made


class Search:
    """Looks for one product in the difference of an output. `shapes` are those of the inputs, by their numbers."""

    def __init__(self, names: Sequence[str], shapes: Mapping[int, tuple[int, ...]], evaluate: Evaluate) -> None:
        self.names, self.shapes, self.evaluate = names, shapes, evaluate
        self.generator = np.random.default_rng(5)
        self.zeros: dict[int, Array] = {i: np.zeros(shape, np.bool_) for i, shape in shapes.items()}

    def reason(self) -> str:
        """What is wrong, in words; "" if no single product says it."""
        end = time.monotonic() + SECONDS
        if dependence := self._dependence():
            return dependence
        for _ in range(ROUNDS):
            if time.monotonic() > end:
                break
            difference = self._difference(self.zeros)
            if not difference:
                return ""
            places = self._places(difference)
            if places and not self._difference(_marked(self.zeros, places, True)):
                return self._words(places)
            if not self._halve():
                break
        return ""

    def _difference(self, zeros: Mapping[int, Array], factors: Mapping[int, Residues] | None = None) -> int:
        got, wanted = self.evaluate(Changed(factors or {}, zeros))
        return (got - wanted) % PRIMES[0]

    def _places(self, difference: int) -> dict[int, Place]:
        """The one element of each input that a difference depends on and is a multiple of; {} if one has none."""
        places: dict[int, Place] = {}
        for i, shape in self.shapes.items():
            factors = drawn(self.generator, shape)
            changed = self._difference(self.zeros, {i: factors})
            found = np.argwhere(factors.residues[0] == np.uint64(_quotient(changed, difference)))
            if len(found):
                places[i] = tuple(int(n) for n in found[0])
            elif changed != difference:
                return {}
        return places

    def _words(self, places: Mapping[int, Place]) -> str:
        term = " * ".join(f"{self.names[i]}[{', '.join(map(str, place))}]" for i, place in places.items())
        everything = {i: np.ones(shape, np.bool_) for i, shape in self.shapes.items()}
        have, want = self.evaluate(Changed({}, _marked(everything, places, False)))
        if not have:
            return f"lacks {term}"
        if not want:
            return f"has {term}, which it should not"
        times = _quotient(have, want)
        return f"has {term} {times} times" if times < 1 << 10 else f"has {term} with another factor"

    def _halve(self) -> bool:
        """Sets half of the remaining elements of an input to zero if a difference remains."""
        order = list(self.zeros.values())
        self.generator.shuffle(order)  # pyright: ignore[reportArgumentType]
        for zero in order:
            flat: Array = zero.reshape(-1)
            left: Array = np.flatnonzero(~flat)
            if left.size < 2:
                continue
            self.generator.shuffle(left)
            for half in np.array_split(left, 2):
                flat[half] = True
                if self._difference(self.zeros):
                    return True
                flat[half] = False
        return False

    def _dependence(self) -> str:
        """Which inputs one side depends on and the other does not."""
        base = self.evaluate(Changed({}, self.zeros))
        lacking: list[str] = []
        extra: list[str] = []
        for i, shape in self.shapes.items():
            changed = self.evaluate(Changed({i: drawn(self.generator, shape)}, self.zeros))
            reads, should = (new != old for new, old in zip(changed, base, strict=True))
            if should and not reads:
                lacking.append(self.names[i])
            if reads and not should:
                extra.append(self.names[i])
        words = [f"does not depend on {', '.join(lacking)}, and should"] if lacking else []
        words += [f"depends on {', '.join(extra)}, and should not"] if extra else []
        return "; ".join(words)


PROVEN, PARTLY, REFUTED, UNDECIDED = "proven", "proven in part", "refuted", "undecided"


@dataclass(frozen=True)
class Difference:
    """A differing element of an output: the argument, its index, and the difference."""

    argument: str
    index: tuple[int, ...]
    count: int
    reason: str = ""

    def __str__(self) -> str:
        place = f"{self.argument}[{', '.join(map(str, self.index))}]"
        others = f" (and {self.count - 1} more elements differ)" if self.count > 1 else ""
        return f"{place} {self.reason or 'differs'}{others}"


@dataclass(frozen=True)
class Proof:
    """A verdict. `outcome` is "proven", "proven in part" (for the branches of one run), "refuted" or "undecided";
    `text` says exactly what holds, or why nothing does."""

    outcome: str
    text: str
    differences: tuple[Difference, ...] = ()
    compared: tuple[int, ...] = field(default=())

    def __str__(self) -> str:
        return f"{self.outcome}: {self.text}"

    def __bool__(self) -> bool:
        return self.outcome == PROVEN


class Trial(FieldShadow):
    """One run of a kernel and of a function on the same numbers. The floating-point elements of the arrays are drawn
    from a seed and modified by `changed`. With `names` they follow from the name and index of each, and the order of
    operations matters."""

    def __init__(
        self, arrays: Sequence[Array], seed: int, changed: Changed | None = None, names: Sequence[str] = ()
    ) -> None:
        super().__init__(Table(ordered=bool(names)), rule_of)
        self.checks: Sequence[str] = ()
        self.unsure: dict[int, Array] = {}
        self.seen: tuple[Array, Array] | None = None
        self.arrays = [copied(array) for array in arrays]
        self.left: dict[int, tuple[Array, Array]] = {}
        self.fault: CheckError | None = None
        generator = np.random.default_rng([seed, 77])
        self.index: list[Array | None] = []
        for i, array in enumerate(self.arrays):
            kind = followed(array)
            if kind is None:
                self.index.append(None)
                continue
            numbers = fields.drawn(generator, array.shape)
            if names:
                places = np.indices(array.shape, np.uint64)
                numbers = fields.hashed(f"input {names[i]}", *[places[axis] for axis in range(array.ndim)])
            if changed is not None and (factors := changed.factors.get(i)) is not None:
                numbers = fields.multiply(numbers, factors)
            if changed is not None and (zeros := changed.zeros.get(i)) is not None:
                numbers.residues[:, zeros] = 0
                array[zeros] = 0
            self.index.append(self.table.add(numbers, kind, array.astype(np.float64)))

    def lines(self, of: Iterable[int]) -> str:
        """Lines of the PTX, with those of the source."""
        text = ", ".join(f"line {line}" for line in sorted(of))
        return text if self.sources is None else self.sources.annotated(text)

    def of_kernel(self, run: KernelCall) -> list[Array]:
        """The keys of all elements as the kernel leaves them."""
        self.memory = PlaneMemory()
        mine = [copied(array) for array in self.arrays]
        for array, index in zip(mine, self.index, strict=True):
            if array.ndim:
                planes = self.memory.of(borrow(array).array())
                if index is not None:
                    words = np.ascontiguousarray(planes_of(index, array.itemsize))
                    _bytes_of(planes, array)[...] = words.view(np.uint8).reshape(PLANES, *array.shape, array.itemsize)
        try:
            run(mine, self, self.checks)
        except CheckError as error:
            if any(finding.check in ENDED for finding in error.findings):
                raise
            self.fault = error
        self.left.clear()
        return list(map(self._left, range(len(mine)), mine))

    def _left(self, i: int, array: Array) -> Array:
        if followed(array) is None:
            return fields.embedded(array.astype(np.float64)).key
        planes = np.ascontiguousarray(_bytes_of(self.memory.of(borrow(array).array()), array))
        codes = codes_of(planes.view(f"u{array.itemsize}").reshape(PLANES, *array.shape))
        raw = np.ascontiguousarray(array).view(f"u{array.itemsize}").reshape(-1)
        index = self.table.read_as(codes.value, KINDS[element_of(array.dtype)])
        self.unsure[i] = self.table.unknown[index] | codes.mixed | self.unsure.get(i, False)
        (shown,) = elements(raw, KINDS[element_of(array.dtype)], 1)
        self.left[i] = codes.value, shown.reshape(array.shape)
        numbers = self.table.numbers_or(index, shown.reshape(array.shape))
        if (bits := self.table.is_kind(index, "bits") & (index > 0)).any():
            numbers = self.recognise(numbers, np.where(bits, self.table.root[index], 0), self.left[i][1])
        key = numbers.key
        return np.where(codes.mixed | (codes.first > 0), np.uint64(0xFFFFFFFFFFFFFFFF), key)

    def of_function(self, function: func.FuncOp) -> list[Array]:
        """The keys of all elements as the function leaves them."""
        inputs: list[Array] = []
        for array, index in zip(self.arrays, self.index, strict=True):
            integer = array.dtype.kind in "iu" and not array.ndim
            made = fields.embedded(array.astype(np.float64))
            inputs.append(array if integer else index if index is not None
                         else self.table.add(made, "bits", array.astype(np.float64)))  # fmt: skip
        evaluation = FieldEvaluation(self.table, self.functions, self.seen)
        indices = evaluation.run(function, inputs, [array.dtype for array in self.arrays])
        return [self.table.numbers(index).key for index in indices]


def followed(array: Array) -> str | None:
    """The element type of arrays whose values a proof follows; None for other arrays and for scalars."""
    return KINDS.get(element_of(array.dtype)) if array.ndim else None


def _bytes_of(planes: Array, array: Array) -> Array:
    """The planes (planes, ..., bytes of an element) of the elements of an array, by those of its memory."""
    return as_strided(planes, (PLANES, *array.shape, array.itemsize), (planes.strides[0], *array.strides, 1))


class _OtherError(Exception):
    """The kernel to compare with ended early, or did something wrong."""


@dataclass(frozen=True)
class Question:
    """Two sides with the same arrays. `names` are the names of the arguments, `outputs` the positions that are
    compared, `filled` those that both sides overwrite before they read them. With `explain`, a difference is traced to
    a missing term. `counterexample` searches for numbers that refute what was not proven."""

    names: Sequence[str]
    arrays: Sequence[Array]
    outputs: Sequence[int]
    filled: frozenset[int]
    left: Evaluator
    right: Evaluator
    counterexample: Counterexample
    seed: int = 0
    explain: bool = True

    def decide(self) -> Proof:
        """Proves or refutes that both sides leave the same in the arrays."""
        trial = self._trial(None)
        try:
            got, wanted = self._compare(trial)
            if trial.functions.seen()[0].size and any((got[i] != wanted[i]).any() for i in self.outputs):
                # Rounded otherwise, comparisons may have other outcomes, and functions other values.
                trial = self._trial(None, trial.functions.seen())
                got, wanted = self._compare(trial)
        except _OtherError as error:
            return Proof(UNDECIDED, f"the kernel to compare with cannot be followed: {error}")
        except InterpreterError as error:
            return self._open(trial, str(error), ended=error)
        differences: list[Difference] = []
        for i in self.outputs:
            bad = np.argwhere(got[i] != wanted[i])
            if bad.size:
                index = tuple(int(n) for n in bad[0])
                reason = "" if differences or trial.decided or not self.explain else self._reason(i, index)
                differences.append(Difference(self.names[i], index, len(bad), reason))
        text = "; ".join(map(str, differences))
        unsure = all(trial.unsure[i][got[i] != wanted[i]].all() for i in self.outputs if i in trial.unsure)
        if differences and unsure and not differences[0].reason:
            where = f" ({trial.lines(sorted(trial.unknown)[:4])})" if trial.unknown else ""
            why = f"bits of data are computed with{where}, which may be another way to compute what differs"
            return self._open(trial, f"{why}: {text}", differences)
        if differences and trial.decided:
            where = trial.lines(sorted(trial.decided)[:4])
            return self._open(trial, f"on the way that data decides ({where}): {text}", differences)
        if differences:
            return Proof(REFUTED, text, tuple(differences), tuple(sorted(trial.compared)))
        if trial.fault is not None:
            return self._open(trial, str(trial.fault), ended=trial.fault)
        theorem = self._theorem(trial)
        if (trial.compared or trial.functions.uses) and self.counterexample.accumulator is not None:
            if wrong := self._wrong(zeros=False):
                return Proof(REFUTED, wrong, (), tuple(sorted(trial.compared)))
            theorem += "; results are within the bound of float64 on the numbers drawn and on larger ones"
        return Proof(PARTLY if trial.decided else PROVEN, theorem, (), tuple(sorted(trial.compared)))

    def _open(
        self, trial: Trial, text: str, differences: Sequence[Difference] = (), ended: InterpreterError | None = None
    ) -> Proof:
        """The verdict without a proof: refuted on numbers, or undecided. An error `ended` that is no limit of the proof
        occurs on numbers too, and on all inputs if no data decided anything before it."""
        lines, wrong = tuple(sorted(trial.compared)), self._wrong()
        if not wrong:
            return Proof(UNDECIDED, text, tuple(differences), lines)
        fault = None if ended is None else fault_of(ended)
        if fault is not None and not lines and str(fault) in wrong:
            wrong = f"the run fails on all inputs: {fault}"
        return Proof(REFUTED, wrong, tuple(differences), lines)

    def _wrong(self, *, zeros: bool = True) -> str:
        return self.counterexample.search(self.names, self.arrays, self.outputs, self.filled, zeros=zeros)

    def _trial(self, changed: Changed | None, seen: tuple[Array, Array] | None = None) -> Trial:
        """The inputs of one trial for both sides; `seen` are numbers of a run of the kernel, for the function too."""
        trial = Trial([_small(array) for array in self.arrays], self.seed, changed)
        trial.seen = seen
        trial.checks = CHECKS if changed is None else ()
        return trial

    def _compare(self, trial: Trial) -> tuple[list[Array], list[Array]]:
        """What both sides leave in the arrays."""
        try:
            wanted = self.right(trial)
        except InterpreterError as error:
            raise _OtherError(str(error)) from error
        if trial.fault is not None:
            raise _OtherError(str(trial.fault))
        return self.left(trial), wanted

    def _reason(self, argument: int, index: tuple[int, ...]) -> str:
        inputs = {i: a.shape for i, a in enumerate(self.arrays) if followed(a) is not None}

        def evaluate(changed: Changed) -> tuple[int, int]:
            got, wanted = self._compare(self._trial(changed))
            return int(got[argument][index]) >> 30, int(wanted[argument][index]) >> 30

        return Search(self.names, inputs, evaluate).reason()

    def _theorem(self, trial: Trial) -> str:
        sizes = ", ".join(f"%{name}: {_described(array)}" for name, array in zip(self.names, self.arrays, strict=True))
        count = sum(prod(self.arrays[i].shape) for i in self.outputs)
        fixed = [n for n, a in zip(self.names, self.arrays, strict=True) if followed(a) is None]
        but = " but by comparisons" if trial.compared else ""
        path = f"no branch, address or predicate of a store depends on data{but}"
        if trial.decided:
            path = f"no address depends on data{but}; branches and stores that data decides "
            path += f"({trial.lines(trial.decided)}) went as in this run"
            if single := [line for line, ways in trial.decided.items() if len(ways) == 1]:
                path += f", and one way only at {trial.lines(single)}"
        seen = "comparisons of data had the outcomes of this run" if trial.compared else "no comparison depends on data"
        if trial.functions.uses:
            seen += f"; functions computed otherwise were the same within {trial.functions.deviation:.1e} in this run"
        integers = f"; {', '.join(f'%{n}' for n in fixed)} as given" if fixed else ""
        return (
            f"for {sizes}, and all values of the floating-point elements, the {count} outputs are equal as real "
            f"functions, but with a probability of at most (d / 2^29)^2 for each, d being its degree, given that "
            f"roundings are ignored; {path}; nothing races in the order of this run; {seen}{integers}"
        )


def _described(array: Array) -> str:
    strides = "" if borrow(array).contiguous or not array.ndim else ", strided"
    return describe(array.shape, element_of(array.dtype)) + strides


Evaluator: TypeAlias = "Callable[[Trial], list[Array]]"
"""Evaluates one side on the numbers of a trial: the keys of all elements as it leaves them."""


def _small(array: Array) -> Array:
    """Finite floats near 0, so that no sum leaves the range of its type: a proof is of all values."""
    if element_of(array.dtype) not in KINDS or array.dtype.itemsize == 1 or not array.ndim:
        return array
    made = copied(array)
    values = np.nan_to_num(made.astype(np.float64), nan=0.5, posinf=4.0, neginf=-4.0)
    made[...] = (values * 0.3).astype(made.dtype)
    return made
