"""The 64 bits of an mbarrier object, whose layout PTX leaves open (ISA 9.7.13.15.1 to .5).

From the low end: 20 bits of arrivals still missing in the current phase, 20 bits of arrivals a phase takes, 21 bits
(two's complement) of transactions still missing, 2 bits that count phases, 1 bit that is set while the object lives.
The last tells an object from memory that was never initialised, the second of the phase bits a stale state from one
that may still be waited for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...numerics.array import Array

MOST = (1 << 20) - 1
"""The greatest number of arrivals, and the greatest distance of the transaction count from 0."""

_COUNT, _TX, _PHASE, _LIVE = 20, 40, 61, 63
_TX_SIGN = 1 << 20


@dataclass(slots=True)
class Phases:
    """Some objects taken apart: one int64 of each for every object. `phase` counts modulo 4."""

    pending: Array
    expected: Array
    transactions: Array
    phase: Array

    @staticmethod
    def of(words: Array) -> Phases:
        """Takes uint64 words apart."""
        bits = words.view(np.int64)
        transactions = ((bits >> _TX & (2 * _TX_SIGN - 1)) ^ _TX_SIGN) - _TX_SIGN
        return Phases(bits & MOST, bits >> _COUNT & MOST, transactions, bits >> _PHASE & 3)

    def words(self) -> Array:
        """Puts them together again."""
        transactions = self.transactions & (2 * _TX_SIGN - 1)
        bits = self.pending | self.expected << _COUNT | transactions << _TX | self.phase << _PHASE
        return bits.view(np.uint64) | np.uint64(1 << _LIVE)

    def complete(self) -> Array:
        """Begins the next phase of the objects that lack nothing; returns which those are."""
        done = (self.pending == 0) & (self.transactions == 0)
        self.pending = np.where(done, self.expected, self.pending)
        self.phase = (self.phase + done) & 3
        return done


def fresh(counts: Array) -> Array:
    """Words of new objects that take int64 `counts` arrivals."""
    zero = np.zeros_like(counts)
    return Phases(counts, counts, zero, zero).words()


def live(words: Array) -> Array:
    """Which words are objects."""
    return words.view(np.int64) < 0


def pending(words: Array) -> Array:
    """The arrivals missing."""
    return words & np.uint64(MOST)


def phase(words: Array) -> Array:
    """The number of the current phase, modulo 4."""
    return words >> np.uint64(_PHASE) & np.uint64(3)
