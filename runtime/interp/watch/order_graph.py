"""The order graph of one run: which events happen before which, whatever the order in which warps run.

Agents are the warps of a cluster, and the asynchronous operations that they begin. Agents meet at mbarrier objects,
barriers of a CTA and of a cluster. Each meeting has phases: agents contribute arrivals and bytes to a phase, its end
follows from all of them, and who waits for it happens after that.

One run stands for all orders if its events decide in every order what they decided in this one. By induction over the
events of another order, that holds if

1. a contribution to a phase happens after the end of the phase before, so that no other phase counts it;
2. a wait that tests a parity happens after the end of the phase that would let it pass two phases earlier;
3. a wait happens before some contribution to the phase behind the one that it waits for, so that it cannot be missed;
4. bytes, or further arrivals, are expected before some arrival in their phase that was expected anyway.

Then no event disables another one, and every order ends as this run did (persistence: Karp and Miller, Parallel program
schemata, 1969). Where a rule is broken, there is an order that begins with all that happens before the two events and
takes them the other way round: a `Deviation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from ...numerics.array import Array

_SLOTS = 16


class WarpStep(NamedTuple):
    """Event number `at` of a warp, counted from 1, at an instruction."""

    warp: int
    at: int
    pc: int


ContributionKind: TypeAlias = Literal["arrival", "expected", "expects"]


class Contribution(NamedTuple):
    """What an agent brings to a phase: the step that did it, or that began it if it was `deferred`, and what happens
    before. It arrives; or it is what the phase was told to expect; or it tells it to expect more."""

    step: WarpStep
    past: Array
    kind: ContributionKind
    deferred: bool


class PhaseEnd(NamedTuple):
    """The end of a phase: what happens before it, and what was contributed."""

    past: Array
    contributions: tuple[Contribution, ...]


class Wait(NamedTuple):
    """A wait that passed."""

    step: WarpStep
    past: Array


@dataclass
class Meeting:
    """An mbarrier object, or a barrier. `phase` counts the phases that have ended, `first` is the first since the
    object was initialised; `slot` is where rows say up to which phase a warp knows the ends."""

    slot: int
    phase: int = 0
    first: int = 0
    contributions: list[Contribution] = field(default_factory=list[Contribution])
    waits: list[Wait] = field(default_factory=list[Wait])
    ends: dict[int, PhaseEnd] = field(default_factory=dict[int, PhaseEnd])


class Deviation(NamedTuple):
    """Two events that another order takes the other way round, and the steps with which that order begins.

    `early`: a contribution counts in the phase before its own. `stale`: a wait passes two phases before its own.
    `missed`: a phase ends while a wait still waits for the one before. `unexpected`: a phase ends before a step adds to
    what it expects.
    """

    kind: Literal["early", "stale", "missed", "unexpected"]
    step: WarpStep
    phase: int
    other: WarpStep
    before: Array


class OrderGraph:
    """The events of all warps in flight, in clusters of `each`.

    `rows[w]` says of each warp of the cluster up to which of its events happen before what warp w does now, then of
    each meeting how many phases are known to have ended.
    """

    def __init__(self, warps: int, each: int) -> None:
        self.each = each
        self.rows = np.zeros((warps, each + _SLOTS), np.int32)
        self.steps: list[WarpStep] = []
        self._slots: dict[int, int] = {}

    def meeting(self, warp: int) -> Meeting:
        """A new meeting of a warp's cluster."""
        cluster = warp // self.each
        slot = self._slots[cluster] = self._slots.get(cluster, self.each - 1) + 1
        if slot >= self.rows.shape[1]:
            self.rows = np.pad(self.rows, ((0, 0), (0, self.rows.shape[1])))
        return Meeting(slot)

    # Events

    def step(self, warp: int, pc: int) -> WarpStep:
        """A warp does something that another order may take at another time."""
        column = warp % self.each
        self.rows[warp, column] += 1
        step = WarpStep(warp, int(self.rows[warp, column]), pc)
        self.steps.append(step)
        return step

    def past(self, warp: int) -> Array:
        """What happens before what a warp does next."""
        return self.rows[warp].copy()

    def learn(self, warp: int, past: Array) -> None:
        """A warp goes on behind something."""
        row = self.rows[warp, : past.size]
        np.maximum(row, past, out=row)

    def initialise(self, meeting: Meeting, step: WarpStep) -> None:
        """An object begins, as if a phase ended with it."""
        past = self.past(step.warp)
        meeting.contributions.clear()
        meeting.waits.clear()
        meeting.phase = meeting.first = meeting.phase + 2
        past[meeting.slot] = self.rows[step.warp, meeting.slot] = meeting.phase
        meeting.ends = {meeting.phase - 1: PhaseEnd(past, (Contribution(step, past, "arrival", False),))}

    def contribute(
        self,
        meeting: Meeting,
        step: WarpStep,
        past: Array,
        kind: ContributionKind = "arrival",
        *,
        deferred: bool = False,
    ) -> Deviation | None:
        """A step, behind which `past` happens, adds to the present phase."""
        meeting.contributions.append(Contribution(step, past, kind, deferred))
        return self._behind("early", meeting, meeting.phase - 1, step, past)

    def wait(self, meeting: Meeting, step: WarpStep, *, parity: bool) -> Deviation | None:
        """A step finds that the phase before the present one has ended."""
        past = self.past(step.warp)
        self._learn_end(meeting, step.warp)
        meeting.waits.append(Wait(step, past))
        at = meeting.phase - meeting.first
        return self._behind("stale", meeting, meeting.phase - (2 if parity and at > 1 else at + 1), step, past)

    def _learn_end(self, meeting: Meeting, warp: int) -> None:
        if (end := meeting.ends.get(meeting.phase - 1)) is not None and meeting.phase > meeting.first:
            self.learn(warp, end.past)

    def _behind(
        self, kind: Literal["early", "stale"], meeting: Meeting, phase: int, step: WarpStep, past: Array
    ) -> Deviation | None:
        """Whether a step happens behind the end of a phase: its warp knows of it, or all that ended it came before."""
        end = meeting.ends.get(phase)
        if end is None or (meeting.slot < past.size and past[meeting.slot] > phase):
            return None
        other = next((c for c in end.contributions if c.deferred or not self.before(c.step, past)), None)
        return None if other is None else Deviation(kind, step, phase + 1, other.step, past)

    def end(self, meeting: Meeting) -> Iterator[Deviation]:
        """The present phase ends with what was contributed last."""
        past = merged(c.past for c in meeting.contributions)
        arrivals = merged(c.past for c in meeting.contributions if c.kind == "arrival")
        last = meeting.contributions[-1].step
        for one in meeting.contributions:
            if one.kind == "expects" and not self.before(one.step, arrivals):
                yield Deviation("unexpected", one.step, meeting.phase, last, arrivals)
        for wait in meeting.waits:
            if not self.before(wait.step, past):
                yield Deviation("missed", wait.step, meeting.phase, last, past)
        past = self._marked(past, meeting.slot, meeting.phase + 1)
        meeting.ends[meeting.phase] = PhaseEnd(past, tuple(meeting.contributions))
        meeting.ends.pop(meeting.phase - 3, None)
        meeting.phase += 1
        meeting.contributions, meeting.waits = [], []

    def pass_end(self, meeting: Meeting, warp: int) -> None:
        """A warp goes on behind the last phase of a barrier."""
        self._learn_end(meeting, warp)

    def _marked(self, past: Array, slot: int, phase: int) -> Array:
        """A row that knows of the ends of a meeting's phases before one."""
        marked = np.zeros(max(past.size, slot + 1), np.int32)
        marked[: past.size] = past
        marked[slot] = phase
        return marked

    # Questions

    def before(self, step: WarpStep, past: Array) -> bool:
        """Whether a step is among what `past` knows."""
        column = step.warp % self.each
        return column < past.size and int(past[column]) >= step.at

    def schedule(self, deviation: Deviation) -> list[WarpStep]:
        """The steps, in an order, after which what deviates can come next."""
        cluster = deviation.step.warp // self.each
        mine = (s for s in self.steps if s.warp // self.each == cluster and s != deviation.step)
        return [step for step in mine if self.before(step, deviation.before)]


def merged(pasts: Iterable[Array]) -> Array:
    """What at least one of some rows knows."""
    result = np.zeros(0, np.int32)
    for past in pasts:
        if past.size > result.size:
            result = np.concatenate([result, np.zeros(past.size - result.size, np.int32)])
        np.maximum(result[: past.size], past, out=result[: past.size])
    return result
