"""All orders in which warps, copies and products may meet: one run is followed, and shown to stand for every other.

The observer makes the `OrderGraph` of what synchronises: mbarrier objects, barriers of a CTA and of a cluster, bulk
copies and `cp.async` that arrive at objects, products of warpgroups, strong accesses. Loops that test an object are
waits: tests that fail change nothing. What data decides is as in this run.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from ....dialect.isa.wgmma import WARPS
from ....dialect.ptx.instructions import traits
from ....dialect.ptx.text.syntax import ranges
from ...numerics.floats import Array
from ..machine.events import LANES, LEFT, Look, MemoryAccess, Selection
from ..machine.flow import CLUSTER_BARRIER
from ..machine.mbarriers import Phases, live
from ..machine.memory import FaultError, InterpreterError, WarpOrder
from .findings import Check, Findings
from .order_graph import ContributionKind, Deviation, Meeting, OrderGraph, WarpStep, merged

FOLLOWED = 64
"""Warps of a launch that are followed, those of the first clusters; one cluster always is."""

STEPS = 1 << 19
"""Events that are followed."""

LISTED_STEPS = 12
"""Lines of a schedule that are shown, the last ones."""

_WORDS = 64
"""Words of one strong access beyond which all are taken to be one."""


class Orders(Check):
    """Follows the meetings of the first clusters, and reports what another order would decide otherwise."""

    name = "all-orders"

    def __init__(self, findings: Findings) -> None:
        super().__init__(findings)
        self._ctas = 0

    # What is followed

    def begun(self) -> None:
        geometry = self.state.geometry
        self.per_cta, self.each = geometry.warps_per_cta, geometry.warps_per_cta * geometry.cluster_size
        left = FOLLOWED - self._ctas * self.per_cta
        clusters = max(left // self.each, int(not self._ctas))
        self.warps = min(max(clusters, 0) * self.each, self.state.warps)
        self._ctas += self.warps // self.per_cta
        self.graph = OrderGraph(self.warps, self.each)
        self.stride = self.state.memory.shared.buffer.size // geometry.ctas
        self.objects: dict[int, Meeting] = {}
        self.barriers: dict[tuple[int, int], Meeting] = {}
        self.tests: dict[int, int] = {}
        self.flying: defaultdict[tuple[int, int], deque[tuple[WarpStep, Array]]] = defaultdict(deque)
        self.words: dict[tuple[int, int, int], Array] = {}
        self.passes: dict[tuple[int, int], int] = {}
        self.pc = 0

    def _of(self, threads: Array) -> list[int]:
        """The warps of threads that are followed."""
        if len(self.graph.steps) >= STEPS:
            return []
        warps = np.unique(threads % self.state.warps)
        return warps[warps < self.warps].tolist()

    def _pairs(self, start: Array, threads: Array) -> Iterator[tuple[int, int, Array]]:
        """Objects with each warp that is followed, and which of the entries those are."""
        warps = threads % self.state.warps
        if len(self.graph.steps) < STEPS:
            for place, warp in sorted(set(zip(start.tolist(), warps.tolist(), strict=True))):
                if warp < self.warps:
                    yield place, warp, (start == place) & (warps == warp)

    def end(self) -> None:
        self._settle()
        x, y, z = self.state.geometry.grid
        geometry = self.state.geometry
        if geometry.first + geometry.ctas >= x * y * z and self.graph.steps:
            self._say_bound(x * y * z)

    def _settle(self) -> None:
        """Completes the pending arrivals at objects that nobody has tested since."""
        try:
            self.state.mbarriers.settle()
        except FaultError as fault:
            self.report(self.pc, fault.message, fault.thread, about="settled")

    def _say_bound(self, total: int) -> None:
        bounds = [f"the first {self._ctas} of {total} CTAs"] if self._ctas < total else []
        bounds += [f"the first {STEPS} events"] if len(self.graph.steps) >= STEPS else []
        if bounds:
            self.bound(f"all orders of {' and '.join(bounds)} are looked at; the others are taken to be alike")

    # mbarrier objects

    def watch(self, pc: int) -> Look | None:
        traits = self.kernel.code[pc].traits
        if traits.means == "mbarrier.test_wait":
            return lambda sel: self.tests.update(dict.fromkeys(self._of(sel.threads), pc))
        if traits.name == "barrier.cluster.wait":
            return self._at(pc)
        if traits.name == "wgmma.mma_async":
            return self._multiply
        return self._at(pc) if traits.on_mbarrier or traits.completes_transactions else None

    def _at(self, pc: int) -> Look:
        def look(sel: Selection) -> None:
            self.pc = pc

        return look

    def access(self, access: MemoryAccess) -> None:
        traits = self.kernel.code[access.pc].traits
        if traits.means == "mbarrier.init":
            for place, warp, _ in self._pairs(access.start, access.threads):
                self._initialise(place, warp, access.pc)
        elif traits.strength and not (traits.on_mbarrier or traits.asynchronous):
            self._tell(access)

    def _initialise(self, place: int, warp: int, pc: int) -> None:
        """Begins an object, which must not be one already. PTX ISA 9.7.13.15.9."""
        step, meeting = self.graph.step(warp, pc), self.objects.get(place)
        if meeting is None:
            meeting = self.objects[place] = self.graph.meeting(warp)
        elif live(self.state.mbarriers.words[place // 8 : place // 8 + 1])[0]:
            text = f"initialises {self._name(place, warp)}, which is one already: no mbarrier.inval is between them"
            self.report(pc, text, warp, about="again")
        self.graph.initialise(meeting, step)

    def defer(self, start: Array, threads: Array) -> None:
        for place, warp, which in self._pairs(start, threads):
            begun = self.graph.step(warp, self.pc), self.graph.past(warp)
            for thread in threads[which].tolist():
                self.flying[place, thread].append(begun)

    def count(self, start: Array, threads: Array, arrivals: Array, transactions: Array, *, deferred: bool) -> None:
        counted: dict[int, tuple[int, int]] = {}
        for place, warp, which in self._pairs(start, threads):
            if (meeting := self.objects.get(place)) is None:
                continue
            arrived, bytes_ = int(arrivals[which].sum()), int(transactions[which].sum())
            before = counted.get(place, (0, 0))
            counted[place] = before[0] + arrived, before[1] + bytes_
            step, past = self._begun(place, threads[which]) if deferred else self._now(warp, self.pc)
            kind = self._kind(step.pc, arrived, bytes_, deferred)
            self._judge(meeting, place, self.graph.contribute(meeting, step, past, kind, deferred=deferred))
        for place, (arrived, bytes_) in counted.items():
            word = Phases.of(self.state.mbarriers.words[place // 8 : place // 8 + 1])
            if int(word.pending[0]) == arrived and int(word.transactions[0]) + bytes_ == 0 and arrived >= 0:
                self._end(self.objects[place], place)

    def _kind(self, pc: int, arrived: int, bytes_: int, deferred: bool) -> ContributionKind:
        """The kind of a contribution. Arrivals of `cp.async` are expected by their own instruction except with
        `.noinc`; those of `tcgen05.commit` are not."""
        if arrived > 0 and (not deferred or self.kernel.code[pc].traits.bindings.get("F", "commit")):
            return "arrival"
        return "expected" if deferred or bytes_ < 0 else "expects"

    def _now(self, warp: int, pc: int) -> tuple[WarpStep, Array]:
        return self.graph.step(warp, pc), self.graph.past(warp)

    def _begun(self, place: int, threads: Array) -> tuple[WarpStep, Array]:
        """The last of the operations that threads began."""
        begun = [self.flying[place, thread].popleft() for thread in threads.tolist()]
        return begun[-1][0], merged(past for _, past in begun)

    def passed(self, start: Array, threads: Array) -> None:
        for place, warp, _ in self._pairs(start, threads):
            if (meeting := self.objects.get(place)) is not None:
                pc = self.tests[warp]
                parity = "F" in self.kernel.code[pc].traits.bindings
                self.passes[place, warp] = meeting.phase
                self._judge(meeting, place, self.graph.wait(meeting, self.graph.step(warp, pc), parity=parity))

    # Barriers

    def come(self, pc: int, number: int, expected: int, threads: Array) -> None:
        for warp in self._of(np.flatnonzero(threads)):
            meeting = self._barrier(number, warp)
            self._judge(meeting, -1 - number, self.graph.contribute(meeting, *self._now(warp, pc)))

    def _barrier(self, number: int, warp: int) -> Meeting:
        scope = warp // (self.each if number == CLUSTER_BARRIER else self.per_cta)
        if (number, scope) not in self.barriers:
            self.barriers[number, scope] = self.graph.meeting(warp)
        return self.barriers[number, scope]

    def join(self, number: int, arrived: Array, waiting: Array) -> None:
        came = {id(m): m for m in (self._barrier(number, w) for w in self._of(np.flatnonzero(arrived)))}
        for meeting in came.values():
            if meeting.contributions:
                self._end(meeting, -1 - number)
        for warp in self._of(np.flatnonzero(waiting)):
            self.graph.learn_end(self._barrier(number, warp), warp)

    # Products of warpgroups, and strong accesses

    def _multiply(self, sel: Selection) -> None:
        """A warpgroup's warps issue a product together: who waits for it knows that all have."""
        for group in sorted({warp // WARPS for warp in self._of(sel.threads)}):
            warps = range(WARPS * group, WARPS * (group + 1))
            past = merged(self.graph.past(warp) for warp in warps)
            self.state.warpgroups.issue(np.array([group]), self._multiplied(warps, past))

    def _multiplied(self, warps: range, past: Array) -> Callable[[Array], None]:
        def finish(_: Array) -> None:
            for warp in warps:
                self.graph.learn(warp, past)

        return finish

    def _tell(self, access: MemoryAccess) -> None:
        """Passes knowledge through words of memory: a read acquires what the writers published."""
        start = access.start if access.start.size <= _WORDS else np.full_like(access.start, -1)
        for place, warp, _ in self._pairs(start, access.threads):
            key = id(access.buffer), place, warp // self.each
            told = self.words.get(key, np.zeros(0, np.int32))
            if access.kind != "store":
                self.graph.learn(warp, told)
            if access.kind != "load":
                self.words[key] = merged((told, self.graph.past(warp)))

    # What is told

    def _end(self, meeting: Meeting, place: int) -> None:
        for deviation in self.graph.end(meeting):
            self._judge(meeting, place, deviation)

    def _judge(self, meeting: Meeting, place: int, deviation: Deviation | None) -> None:
        if deviation is None:
            return
        step, other, phase = deviation.step, deviation.other, deviation.phase - meeting.first
        kind = _FIRST.get((deviation.kind, phase), deviation.kind) if place >= 0 else deviation.kind
        text = _TEXTS[kind].format(
            phase=phase,
            before=phase - 1,
            after=phase + 1,
            object=self._name(place, step.warp),
            other=self._who(other, step),
        )
        about, steps = (kind, other.pc), self._steps(deviation)
        order = WarpOrder(tuple((s.warp, s.pc) for s in steps), -1 if steps[-1:] == [step] else step.warp)
        schedule = self._schedule(steps)
        self.report(step.pc, text, step.warp, about=about, schedule=schedule, order=order, together=kind == "fresh")

    def _name(self, place: int, warp: int) -> str:
        """An object by its first byte, or a barrier by -1 less its number."""
        if place < 0:
            return "the cluster's barrier" if place == -1 - CLUSTER_BARRIER else f"barrier {-1 - place}"
        cta, offset = divmod(place, self.stride)
        away = cta != warp // self.per_cta
        of = f" of CTA {self.state.geometry.cta_index(self.state.geometry.first + cta)}" if away else ""
        return f"the mbarrier object at {offset:#x}{of}"

    def _who(self, step: WarpStep, other: WarpStep) -> str:
        cta, warp, _ = self.state.geometry.place(step.warp)
        own = step.warp // self.per_cta == other.warp // self.per_cta
        return f"{'' if own else f'CTA {cta}, '}warp {warp} (line {self.line(step.pc)})"

    def _warps(self, warps: Iterable[int]) -> str:
        """Warps of one CTA by their numbers, those of several with their CTAs."""
        inside: dict[int, list[int]] = {}
        for warp in sorted(set(warps)):
            inside.setdefault(warp // self.per_cta, []).append(warp % self.per_cta)
        geometry = self.state.geometry
        return " and ".join(
            f"warp{'s' if len(own) > 1 else ''} {ranges(own)}"
            + (f" of CTA {geometry.cta_index(geometry.first + cta)}" if len(inside) > 1 else "")
            for cta, own in inside.items()
        )

    def _steps(self, deviation: Deviation) -> list[WarpStep]:
        """The steps with which an order begins that decides otherwise."""
        steps = self.graph.schedule(deviation)
        return [*steps, deviation.step] if deviation.kind in ("early", "stale") else steps

    def _schedule(self, steps: Sequence[WarpStep]) -> tuple[str, ...]:
        """The steps in words. Consecutive steps of one warp are joined."""
        geometry, several = self.state.geometry, self.each > self.per_cta
        runs: list[tuple[list[int], dict[str, int]]] = []
        for step in steps:
            source = self.kernel.code[step.pc].source
            what = f"line {source.line} {traits(source.opcode).first(2)}"
            if runs and runs[-1][0] == [step.warp]:
                runs[-1][1][what] = runs[-1][1].get(what, 0) + 1
            elif runs and runs[-1][1] == {what: 1} and runs[-1][0][-1] // self.per_cta == step.warp // self.per_cta:
                runs[-1][0].append(step.warp)
            else:
                runs.append(([step.warp], {what: 1}))
        lines: list[str] = []
        for warps, deeds in runs[-LISTED_STEPS:]:
            cta = f"CTA {geometry.place(warps[0])[0]}, " if several else ""
            what = [f"{deed} ({times} times)" if times > 1 else deed for deed, times in deeds.items()]
            lines.append(f"{cta}{self._warps(warps)}: {', '.join(what)}")
        sources = self.kernel.sources
        return tuple(lines if sources is None else map(sources.annotated, lines))

    # Deadlocks

    def explain(self, fault: InterpreterError) -> None:
        """Adds to a deadlock which warp waits for which, by the arrivals at the phase before."""
        if not (fault.findings and fault.findings[0].message.startswith("deadlock")):
            return
        self._settle()
        waits = list(self._waits())
        where = {warp: pc for pc, _, _, warps in waits for warp in warps}
        for pc, place, meeting, warps in waits:
            phase = "" if place < 0 else f"phase {meeting.phase - meeting.first} of "
            what = f"for {phase}{self._name(place, warps[0])}"
            wait = "wait" if len(warps) > 1 else "waits"
            text = f"deadlock: {self._warps(warps)} {wait} {what}; {self._lacks(meeting, where, warps[0])}"
            text += self._overtaken(place, meeting, warps)
            self.report(pc, text, warps[0], about=("deadlock", place % self.stride))

    def _waits(self) -> Iterator[tuple[int, int, Meeting, list[int]]]:
        """Where warps wait: at which instruction, for which meeting, which warps."""
        for one in self.state.mbarriers.sleepers:
            for place in np.unique(one.index).tolist():
                warps = self._of(one.threads[one.index == place])
                if warps and place * 8 in self.objects:
                    yield one.pc, place * 8, self.objects[place * 8], warps
        for one in (b for b in self.state.flow.barriers if b.resume != LEFT):
            warps, number = self._of(np.flatnonzero(one.mask)), one.number
            for meeting in {id(m): m for m in (self._barrier(number, w) for w in warps)}.values():
                yield one.pc, -1 - number, meeting, [w for w in warps if self._barrier(number, w) is meeting]

    def _lacks(self, meeting: Meeting, where: dict[int, int], waiting: int) -> str:
        """The warps that arrived at the phase before and not at this one, and where they are instead."""
        end = meeting.ends.get(meeting.phase - 1)
        if end is None or meeting.phase == meeting.first:
            came = {c.step.warp: c.step for c in meeting.contributions}
            at = WarpStep(waiting, 0, 0)
            others = f"; only {', '.join(self._who(s, at) for s in came.values())} came" if came else ""
            return f"it is the first phase{others or ', to which nobody has come'}"
        here = {c.step.warp for c in meeting.contributions}
        absent = {c.step.warp: c.step for c in end.contributions if c.step.warp not in here}
        if not absent:
            return "all who came to the phase before have come"
        doing: dict[str, list[str]] = {}
        for warp, step in absent.items():
            doing.setdefault(self._does(warp, where), []).append(self._who(step, WarpStep(waiting, 0, 0)))
        return "; ".join(f"{', '.join(who)} came to the phase before, and {does}" for does, who in doing.items())

    def _does(self, warp: int, where: dict[int, int]) -> str:
        if warp in where:
            return f"now waits at line {self.line(where[warp])}"
        return "goes on elsewhere" if self.state.live.reshape(LANES, -1)[:, warp].any() else "then ended"

    def _overtaken(self, place: int, meeting: Meeting, warps: list[int]) -> str:
        """Whether warps missed the phase that they wait for."""
        seen = min(self.passes.get((place, warp), meeting.first) for warp in warps)
        end = meeting.ends.get(meeting.phase - 1)
        if place < 0 or end is None or meeting.phase < seen + 2:
            return ""
        who = self._who(end.contributions[-1].step, WarpStep(warps[0], 0, 0))
        missed = meeting.phase - 2 - meeting.first
        return f"; they have missed the end of phase {missed}: {who} ended phase {missed + 1} before they tested"


_TEXTS = {
    "early": "can come while phase {before} of {object} has not ended, which then counts it; in this run phase {phase} "
    "does: nothing orders it behind {other}",
    "stale": "can pass when phase {before} of {object} has not ended, as the phase two before has its parity: nothing "
    "orders it behind {other}",
    "missed": "can miss the end of phase {before} of {object}: nothing keeps {other} from ending phase {phase} before "
    "this has tested, which then waits for phase {after}",
    "late": "can come when phase 0 of {object} has ended, and then waits for phase 1: nothing keeps "
    "{other} from ending it",
    "fresh": "can come before {other} initialises {object}",
    "unexpected": "comes too late in another order: phase {phase} of {object} can end before, with {other}",
}

_FIRST = {("early", 0): "fresh", ("stale", 0): "fresh", ("missed", 0): "late"}
"""What a deviation at the first phase of an object is."""
