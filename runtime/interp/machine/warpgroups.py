"""The asynchronous products of warpgroups in flight: PTX ISA 9.7.15."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ...numerics.array import Array


@dataclass
class _Pending:
    """A product on its way: of which warpgroups, in which group of products (-1: not committed), and what it does."""

    groups: Array
    committed: Array
    execute: Callable[[Array], None]


@dataclass
class Warpgroups:
    """The products in flight of all warpgroups; groups of products count from 0 in each."""

    count: int
    pending: list[_Pending] = field(default_factory=list[_Pending])

    def __post_init__(self) -> None:
        self.open = np.zeros(self.count, np.int64)

    def issue(self, groups: Array, execute: Callable[[Array], None]) -> None:
        """A product begins; `execute` is told for which of the warpgroups it is done."""
        self.pending.append(_Pending(groups, np.full(groups.size, -1), execute))

    def commit(self, groups: Array) -> None:
        """The products that are in no group yet become one group, of each warpgroup."""
        chosen = np.zeros(self.count, np.bool_)
        chosen[groups] = True
        for product in self.pending:
            mine = chosen[product.groups] & (product.committed < 0)
            product.committed[mine] = self.open[product.groups[mine]]
        self.open[groups] += 1

    def wait(self, groups: Array, keep: int) -> None:
        """Completes all but the `keep` latest groups of products, in the order of issue."""
        limit = np.full(self.count, -1, np.int64)
        limit[groups] = self.open[groups] - keep
        left: list[_Pending] = []
        for product in self.pending:
            done = (product.committed >= 0) & (product.committed < limit[product.groups])
            if done.any():
                product.execute(product.groups[done])
            if not done.all():
                left.append(_Pending(product.groups[~done], product.committed[~done], product.execute))
        self.pending = left
