"""Why an output differs: the product that it lacks or has too much of, or the inputs that it depends on.

An output and its reference are polynomials in the elements of the inputs. If each element of an input is multiplied by
a random factor of its own, a difference that is one product changes by the factor of its element of that input, which
so is named by the quotient of two differences. A difference of several products is cut down first, by setting halves of
the inputs to zero.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ..numerics.array import Array
from .field import PRIMES, Residues, drawn

ROUNDS, SECONDS = 24, 20.0
"""How often inputs are halved at most, and for how long a single product is looked for."""


class Changed(NamedTuple):
    """Numbers that the drawn ones of each input are multiplied with (None: all by 1), and which are set to zero."""

    factors: tuple[Residues | None, ...]
    zeros: tuple[Array | None, ...]


Evaluate = Callable[[Changed], "tuple[Array, Array]"]
"""The residues (4) of one output, of the kernel and of its reference, for changed inputs."""


def _quotient(a: int, b: int, modulus: int) -> int:
    return a * pow(b, -1, modulus) % modulus if b % modulus else 0


class Search:
    """Looks for one product in the difference of an output."""

    def __init__(self, names: Sequence[str], shapes: Sequence[tuple[int, ...] | None], evaluate: Evaluate) -> None:
        self.names, self.shapes, self.evaluate = names, shapes, evaluate
        self.generator = np.random.default_rng(5)
        self.zeros: list[Array | None] = [None if s is None else np.zeros(s, np.bool_) for s in shapes]
        self.ones = tuple(None for _ in shapes)

    def reason(self) -> str:
        """What is wrong, in words; "" if no single product says it."""
        self.modulus, end = PRIMES[0], time.monotonic() + SECONDS
        if dependence := self._dependence():
            return dependence
        for _ in range(ROUNDS):
            if time.monotonic() > end:
                break
            difference = self._difference(self.ones)
            if not difference:
                return ""
            places = self._places(difference)
            if any(place is not None for place in places) and self._explains(difference, places):
                return self._words(places)
            if not self._halve():
                break
        return ""

    def _difference(self, factors: tuple[Residues | None, ...]) -> int:
        got, wanted = self.evaluate(Changed(factors, tuple(self.zeros)))
        return int(got[0] + np.uint64(self.modulus) - wanted[0]) % self.modulus

    def _places(self, difference: int) -> list[tuple[int, ...] | None]:
        """Of each input, the one element that the difference is a multiple of; None where it depends on none."""
        places: list[tuple[int, ...] | None] = []
        for i, shape in enumerate(self.shapes):
            if shape is None:
                places.append(None)
                continue
            factors = drawn(self.generator, shape)
            changed = self._difference(tuple(factors if j == i else None for j in range(len(self.shapes))))
            found = np.argwhere(factors.residues[0] == np.uint64(_quotient(changed, difference, self.modulus)))
            places.append(tuple(int(n) for n in found[0]) if len(found) else None)
            if changed != difference and not len(found):
                return [None] * len(self.shapes)
        return places

    def _explains(self, difference: int, places: Sequence[tuple[int, ...] | None]) -> bool:
        """Whether nothing of the difference is left when the elements named are set to zero."""
        kept = self.zeros
        self.zeros = [None if z is None else z.copy() for z in kept]
        for zero, place in zip(self.zeros, places, strict=True):
            if zero is not None and place is not None:
                zero[place] = True
        left = self._difference(self.ones)
        self.zeros = kept
        return left != difference and left == 0

    def _words(self, places: Sequence[tuple[int, ...] | None]) -> str:
        term = " * ".join(
            f"{name}[{', '.join(map(str, place))}]" for name, place in zip(self.names, places, strict=True) if place
        )
        only = [None if s is None else np.ones(s, np.bool_) for s in self.shapes]
        for mask, place in zip(only, places, strict=True):
            if mask is not None and place is not None:
                mask[place] = False
        kept, self.zeros = self.zeros, only
        got, wanted = self.evaluate(Changed(self.ones, tuple(self.zeros)))
        self.zeros = kept
        have, want = int(got[0]), int(wanted[0])
        if not have:
            return f"lacks {term}"
        if not want:
            return f"has {term}, which it should not"
        times = _quotient(have, want, self.modulus)
        return f"has {term} {times} times" if times < 1 << 10 else f"has {term} with another factor"

    def _halve(self) -> bool:
        """Sets half of the elements that are left of the inputs to zero, so that a difference is left."""
        order = [zero for zero in self.zeros if zero is not None]
        self.generator.shuffle(order)  # pyright: ignore[reportArgumentType]
        for zero in order:
            flat: Array = zero.reshape(-1)
            left: Array = np.flatnonzero(~flat)
            if left.size < 2:
                continue
            self.generator.shuffle(left)
            for half in np.array_split(left, 2):
                flat[half] = True
                if self._difference(self.ones):
                    return True
                flat[half] = False
        return False

    def _dependence(self) -> str:
        """Which inputs one side depends on and the other does not."""
        self.zeros = [None if s is None else np.zeros(s, np.bool_) for s in self.shapes]
        base = self.evaluate(Changed(self.ones, tuple(self.zeros)))
        lacking: list[str] = []
        extra: list[str] = []
        for i, shape in enumerate(self.shapes):
            if shape is None:
                continue
            factors = tuple(drawn(self.generator, shape) if j == i else None for j in range(len(self.shapes)))
            got, wanted = self.evaluate(Changed(factors, tuple(self.zeros)))
            reads, should = (bool(new[0] != old[0]) for new, old in zip((got, wanted), base, strict=True))
            if should and not reads:
                lacking.append(self.names[i])
            if reads and not should:
                extra.append(self.names[i])
        words = [f"does not depend on {', '.join(lacking)}, and should"] if lacking else []
        words += [f"depends on {', '.join(extra)}, and should not"] if extra else []
        return "; ".join(words)
