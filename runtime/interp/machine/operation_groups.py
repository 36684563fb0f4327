"""Asynchronous operations that are committed in groups and waited for by how many of those are left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ...numerics.array import Array


@dataclass
class _Pending:
    """An operation on its way: of which agents, in which of their groups (-1: not committed), and what it does."""

    agents: Array
    committed: Array
    execute: Callable[[Array], None]


@dataclass
class OperationGroups:
    """The operations in flight of `count` agents, warpgroups or threads; groups count from 0 in each."""

    count: int
    pending: list[_Pending] = field(default_factory=list[_Pending])

    def __post_init__(self) -> None:
        self.open = np.zeros(self.count, np.int64)

    def issue(self, agents: Array, execute: Callable[[Array], None]) -> None:
        """An operation begins; `execute` is told for which of the agents it is done."""
        self.pending.append(_Pending(agents, np.full(agents.size, -1), execute))

    def commit(self, agents: Array) -> None:
        """The operations that are in no group yet become one group, of each agent."""
        chosen = np.zeros(self.count, np.bool_)
        chosen[agents] = True
        for operation in self.pending:
            mine = chosen[operation.agents] & (operation.committed < 0)
            operation.committed[mine] = self.open[operation.agents[mine]]
        self.open[agents] += 1

    def wait(self, agents: Array, keep: int) -> None:
        """Completes all but the `keep` latest groups, in the order of issue."""
        limit = np.full(self.count, -1, np.int64)
        limit[agents] = self.open[agents] - keep
        left: list[_Pending] = []
        for operation in self.pending:
            done = (operation.committed >= 0) & (operation.committed < limit[operation.agents])
            if done.any():
                operation.execute(operation.agents[done])
            if not done.all():
                left.append(_Pending(operation.agents[~done], operation.committed[~done], operation.execute))
        self.pending = left
