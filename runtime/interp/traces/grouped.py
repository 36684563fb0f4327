"""Asynchronous operations that warps, or warpgroups, commit in groups and wait for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ....dialect.ptx.traits import Traits
from ..machine.threads import Selection
from ..observers.events import Look, MemoryAccess
from .cycles import Pipe
from .timeline import Timeline, Traced


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


class TracedGroups(Traced, ABC):
    """Operations of one `kind`, as `Traits.commits` names it, which agents of so many warps `together` commit."""

    kind: ClassVar[str]
    together: ClassVar[int] = 1

    def __init__(self, timeline: Timeline) -> None:
        super().__init__(timeline)
        self.begun()

    def begun(self) -> None:
        self.ways: defaultdict[int, Pipe] = defaultdict(Pipe)
        self.groups = GroupQueue()

    @abstractmethod
    def record(self, agent: int, done: list[TracedGroup]) -> None:
        """Groups that are waited for now, or that nobody waits for."""

    def until(self, done: TracedGroup, traits: Traits) -> int:
        """When an instruction with these traits no longer waits for a group."""
        return done.end

    def waiting(self, traits: Traits) -> str:
        """The name of a wait."""
        return traits.name

    def look(self, pc: int, traits: Traits) -> Look | None:
        if traits.commits == self.kind:
            return self._commit
        return self._wait(pc, traits) if traits.awaits == self.kind else None

    def agents(self, sel: Selection) -> list[int]:
        """The agents that execute an instruction."""
        return np.unique(self.timeline.of(sel) // self.together).tolist()

    def bytes_of_warps(self, access: MemoryAccess) -> Iterator[tuple[int, int]]:
        """The warps of an access that are followed, and how much each accesses."""
        warps, counts = np.unique(access.threads % self.timeline.state.warps, return_counts=True)
        for warp, count in zip(warps.tolist(), counts.tolist(), strict=True):
            if warp < self.timeline.warps:
                yield warp, count * access.width

    def end(self) -> None:
        """What nobody waits for is over as well."""
        for agent in self.groups.agents():
            self.record(agent, self.groups.rest(agent))
        self.groups = GroupQueue()

    def _commit(self, sel: Selection) -> None:
        for agent in self.agents(sel):
            self.groups.commit(agent)

    def _wait(self, pc: int, traits: Traits) -> Look:
        keep = None if traits.awaits_all else self.timeline.constant(pc)

        def look(sel: Selection) -> None:
            for agent in self.agents(sel):
                done = self.groups.rest(agent) if keep is None else self.groups.wait(agent, keep)
                until = max((self.until(one, traits) for one in done), default=0)
                for warp in range(self.together * agent, self.together * (agent + 1)):
                    self.timeline.wait(warp, pc, self.waiting(traits), until)
                self.record(agent, done)

        return look
