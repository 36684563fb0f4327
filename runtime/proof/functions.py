"""Functions that a kernel approximates, recognised by their values in the run.

A kernel computes exp, tanh or a gelu as a polynomial, with integer arithmetic on the bits, or with a reciprocal that
elements share: in the fields that is something else than the function. So the evaluation of the reference says what
its functions of one value are, by the number of that value; and what a kernel has computed from that value alone, and
which in this run is the same up to `TOLERANCE` for many values, is taken for it. How far it was off is kept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..numerics.array import Array
from .field import Residues, add, divide, embedded, subtract

TOLERANCE = 1e-5
"""How far from a function what stands for it may be, relative to the value and to `SMALL` where that is less."""
SMALL = 0.05
SAMPLES = 8
"""Different values at which a function is compared at least."""


class _Known(NamedTuple):
    """A function by the keys of its arguments, its numbers and its values; whether these are odds."""

    keys: Array
    numbers: Residues
    values: Array
    odds: bool = False


class FieldFunctions:
    """The functions of a reference, each by its values at the numbers of its arguments. `deviation` is how far at most
    what stood for them was off, relative to the value; `uses` counts the values that were taken for those of one."""

    def __init__(self) -> None:
        self._known: list[_Known] = []
        self.deviation = 0.0
        self.uses = 0

    def learn(self, arguments: Array, numbers: Residues, shown: Array, *, odd: bool = False) -> None:
        """A function by the keys of its arguments, its numbers and its values in the run. Of an `odd` one from -1 to 1,
        the odds (1 - f) / (1 + f) are learnt too."""
        keys, first = np.unique(arguments.reshape(-1), return_index=True)
        flat = Residues(numbers.residues.reshape(4, -1)[:, first], numbers.exact.reshape(-1)[first])
        values = np.broadcast_to(shown, arguments.shape).reshape(-1)[first]
        self._known.append(_Known(keys, flat, values))
        if odd:
            one = embedded(np.ones(keys.shape))
            odds = divide(subtract(one, flat), add(one, flat))
            with np.errstate(divide="ignore", invalid="ignore"):
                self._known.append(_Known(keys, odds, (1 - values) / (1 + values), odds=True))

    def recognise(self, found: Residues, arguments: Array, shown: Array) -> Residues:
        """The numbers of results: where a function has these values at all arguments that it is known for, and these
        are enough to say so, those of the function."""
        for keys, numbers, values, odds in reversed(self._known):
            at = np.minimum(np.searchsorted(keys, arguments), keys.size - 1)
            known = keys[at] == arguments
            if np.unique(at[known]).size < min(SAMPLES, keys.size):
                continue
            got, expected = shown[known], values[at[known]]
            if odds:  # As the share that they are of: far off from 1 they are as good as 0 or infinity.
                got, expected = 1 / (1 + got), 1 / (1 + expected)
            off = np.abs(got - expected) / np.maximum(np.abs(expected), SMALL)
            if (off < TOLERANCE).all():
                self.deviation, self.uses = max(self.deviation, float(off.max())), self.uses + off.size
                residues = np.where(known, numbers.residues[:, at], found.residues)
                return Residues(residues, np.where(known, numbers.exact[at], found.exact))
        return found
