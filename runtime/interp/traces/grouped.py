"""Asynchronous operations that warps, or warpgroups, commit in groups and wait for."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field


@dataclass
class TracedGroup:
    """Operations that are committed together: issued from `start` on, done at `end`.

    `pc` is the first instruction, `amount` the bytes or instructions, `busy` the cycles of a unit. `released` is when
    their sources in shared memory may be written again.
    """

    pc: int
    start: int
    end: int
    amount: int
    busy: int = 0
    released: int = 0

    def add(self, other: TracedGroup) -> None:
        """One more operation."""
        self.end, self.released = max(self.end, other.end), max(self.released, other.released)
        self.amount, self.busy = self.amount + other.amount, self.busy + other.busy


@dataclass
class GroupQueue:
    """The groups of all agents: one that is open, and those that were committed, some of them empty."""

    open: dict[int, TracedGroup] = field(default_factory=dict[int, TracedGroup])
    committed: dict[int, list[TracedGroup | None]] = field(
        default_factory=lambda: defaultdict[int, list["TracedGroup | None"]](list)
    )

    def issue(self, agent: int, operation: TracedGroup) -> None:
        """An operation that joins the open group."""
        if agent in self.open:
            self.open[agent].add(operation)
        else:
            self.open[agent] = operation

    def commit(self, agent: int) -> None:
        """Closes the open group."""
        self.committed[agent].append(self.open.pop(agent, None))

    def wait(self, agent: int, keep: int) -> list[TracedGroup]:
        """All groups but the latest `keep`; they are forgotten."""
        mine = self.committed[agent]
        count = max(0, len(mine) - keep)
        done, self.committed[agent] = mine[:count], mine[count:]
        return [group for group in done if group is not None]

    def rest(self, agent: int) -> list[TracedGroup]:
        """All groups, the open one too; they are forgotten."""
        self.commit(agent)
        return self.wait(agent, 0)

    def agents(self) -> list[int]:
        """Who has groups."""
        return sorted({*self.open, *self.committed})
