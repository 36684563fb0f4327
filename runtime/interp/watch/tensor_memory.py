"""Tensor memory: what is read before it is written, what is not waited for, what nothing orders. PTX ISA 9.7.16.6.

Products and copies of one thread follow each other in order. Everything else is ordered by waits: those of a warp for
its loads and stores, and those for the object that a commit arrives at. Between threads there are a
`tcgen05.fence::before_thread_sync` behind the wait, something that orders the threads, and a
`tcgen05.fence::after_thread_sync`; a commit is a fence of the first kind itself.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial

import numpy as np

from ....dialect.isa.tensor_product import SharedDescriptor
from ....dialect.layouts.tensor_memory import COLUMNS, LANES
from ....dialect.ptx.instructions import TENSOR_CORES
from ...numerics.floats import Array
from ..machine.events import LANES as WARP
from ..machine.events import Look, MemoryAccess, Selection
from .findings import Check, Findings
from .shared import SharedCheck
from .warpgroups import Descriptors, RegistersInFlight

_UNIT = 16
"""Lanes of which one access is kept."""

_LOADS = ("tcgen05.ld", "tcgen05.ld.red", "tcgen05.ld.spcompress")
_MOVES = {**dict.fromkeys(_LOADS, "tcgen05.wait::ld"), "tcgen05.st": "tcgen05.wait::st"}
_REQUESTS, _FREES, _PAIR = "tcgen05.alloc", "tcgen05.dealloc", "cta_group::2"
_DESCRIBED = ("tcgen05.mma", "tcgen05.cp")
"""What names matrices in shared memory."""
_DEEDS = {True: "reads", False: "writes"}


@dataclass(eq=False)
class _Operation:
    """What one thread, or one warp, does with tensor memory; `done` is when that was waited for, 0 before."""

    pc: int
    thread: int
    means: str
    reads: bool
    done: int = 0

    @property
    def moves(self) -> bool:
        """Whether a warp loads or stores; else a thread has issued it."""
        return self.means in _MOVES


class TensorAccesses(SharedCheck):
    """For each 16 lanes of a column: the last writer, and readers by a load and a product; which words are written."""

    name = "tensor"

    def begun(self) -> None:
        self.used = self.kernel.uses(TENSOR_CORES)
        if not self.used:
            return
        self.tensor = self.state.tensor
        words = self.tensor.words.size
        self.written = np.zeros(words, np.bool_)
        self.operations: dict[int, _Operation] = {}
        self.last = {kind: np.zeros(words // _UNIT, np.int32) for kind in ("write", "load", "operand")}
        self.before: list[list[int]] = [[] for _ in range(self.state.warps)]
        """Of each warp, the times of its fences before what orders threads."""
        self.after = np.zeros(self.state.warps, np.int32)
        """And of the last behind it."""
        self.loading: dict[tuple[int, int], list[_Operation]] = {}
        self.descriptors = Descriptors(self, SharedDescriptor.decode)
        self.requests: dict[int, list[tuple[int, int, int]]] = defaultdict(list)

    # Descriptors and fences

    def watch(self, pc: int) -> Look | None:
        decoded = self.kernel.code[pc]
        kind = decoded.traits.bindings.get("K", "") if self.used else ""
        if decoded.traits.means == "tcgen05.commit":
            kind = "fence::before_thread_sync"
        if self.used and decoded.traits.means in _DESCRIBED:
            named = decoded.named().items()
            slots = [slot for name, o in named if name != "z" and (slot := decoded.slot(o)) and slot.bits == 64]
            return lambda sel: self.descriptors.look(pc, slots, sel.threads.tolist())
        if self.used and decoded.traits.bindings.get("G") == _PAIR and decoded.traits.means in (_REQUESTS, _FREES):
            return partial(self._requested if decoded.traits.means == _REQUESTS else self._meets, pc)
        if not kind.startswith("fence::"):
            return None
        before = kind == "fence::before_thread_sync"

        def look(sel: Selection) -> None:
            now = self.shared.clocks.tick()
            if not before:
                self.after[sel.warps] = now
            warps: list[int] = sel.warps.tolist() if before else []
            for warp in warps:
                self.before[warp].append(now)

        return look

    def _requested(self, pc: int, sel: Selection) -> None:
        """When each CTA of a pair requests columns. Who has seen a later time knows that they are allocated."""
        for warp in sel.warps.tolist():
            self.requests[warp // self.state.geometry.warps_per_cta].append((pc, warp, self.shared.clocks.tick()))

    def _meets(self, pc: int, sel: Selection) -> None:
        """What frees columns of a pair against the allocation of the other CTA."""
        clocks = self.shared.clocks
        for warp in sel.warps.tolist():
            other = warp // self.state.geometry.warps_per_cta ^ 1
            waiting = sum(request.cta == other for request in self.tensor.requests)
            granted = self.requests[other][: len(self.requests[other]) - waiting]
            if granted and clocks.seen[warp, granted[-1][1] % clocks.each] < granted[-1][2]:
                line = self.line(granted[-1][0])
                text = f"frees columns of a pair; nothing orders it behind the other CTA's allocation at line {line}"
                self.report(pc, text, warp, about=("pair", line))

    # Accesses

    def access(self, access: MemoryAccess) -> None:
        if not self.used or not access.start.size:
            return
        self.descriptors.access(access)
        if access.buffer is not self.tensor.buffer:
            return
        words, thread = access.start // 4, int(access.threads[0])
        units = np.unique(words // COLUMNS // _UNIT * COLUMNS + words % COLUMNS)
        means, reads = self.kernel.code[access.pc].traits.means, access.kind == "fetch"
        now = _Operation(access.pc, thread, means, reads)
        frees = means == _FREES
        if reads:
            self._unwritten(now, words)
        for kind in ("write",) if reads else ("write", "load", "operand"):
            self._ordered(now, units, kind)
        if frees:
            self.written[words] = False
            for places in self.last.values():
                places[units] = 0
            return
        self._keep(now, units, "write" if not reads else "load" if now.moves else "operand")
        if not reads:
            self.written[words] = True

    def _keep(self, now: _Operation, units: Array, kind: str) -> None:
        number = len(self.operations) + 1
        self.operations[number] = now
        self.last[kind][units] = number
        queue, agent = self.tensor.products, now.thread
        if now.moves:
            queue, agent = self.tensor.moves[_MOVES[now.means][-2:]], now.thread % self.state.warps
            self.loading.setdefault((now.pc, agent), []).append(now)
        queue.issue(np.array([agent]), lambda _: self._over(now))

    def _over(self, operation: _Operation) -> None:
        operation.done = operation.done or self.shared.clocks.tick()

    def loaded(self, pc: int, warp: int) -> None:
        """Completes a load, for one of its registers has been read: the read waits for it."""
        for operation in self.loading.pop((pc, warp), ()):
            self._over(operation)

    def _unwritten(self, now: _Operation, words: Array) -> None:
        lacking = ~self.written[words]
        bad = words[lacking]
        if bad.size and not self._brings(now, lacking, bad):
            lane, column = divmod(int(bad[0]) % (LANES * COLUMNS), COLUMNS)
            text = f"reads lane {lane}, column {column} of tensor memory before anything is written there"
            self.report(now.pc, text, now.thread, about="unwritten", count=int(bad.size))
            self.written[words] = True

    def _brings(self, now: _Operation, lacking: Array, words: Array) -> bool:
        """Marks the registers of a load as unwritten, so that their use is reported. False if that is not possible."""
        registers, lanes = self.shared.registers, WARP
        if registers is None or now.means != "tcgen05.ld" or self.kernel.code[now.pc].traits.bindings["F"]:
            return False
        threads = np.arange(lanes) * self.state.warps + now.thread
        lane, column = divmod(int(words[0]) % (LANES * COLUMNS), COLUMNS)
        where = f"lane {lane}, column {column} of tensor memory"
        return registers.load(now.pc, threads, np.repeat(lacking.reshape(lanes, -1), 4, axis=1), where)

    def _ordered(self, now: _Operation, units: Array, kind: str) -> None:
        numbers: list[int] = np.unique(self.last[kind][units]).tolist()
        for number in numbers:
            earlier = self.operations.get(number)
            what = None if earlier is None else self._lacks(earlier, now)
            if earlier is None or what is None:
                continue
            line, deed = self.line(earlier.pc), _DEEDS[earlier.reads]
            source = self.kernel.code[earlier.pc].traits.first(2)
            mine = "frees" if now.means == _FREES else _DEEDS[now.reads]
            column = int(units[self.last[kind][units] == number][0]) % COLUMNS
            text = f"{mine} column {column} of tensor memory, which the {source} at line {line} {deed}, {what}"
            # Compilers leave these fences out, and GPUs do not seem to mind.
            self.report(now.pc, text, now.thread, about=(line, what), note="fence::" in what)

    def _lacks(self, earlier: _Operation, now: _Operation) -> str | None:
        """What is missing between two accesses; None if nothing is."""
        warps, clocks = self.state.warps, self.shared.clocks
        warp, other = now.thread % warps, earlier.thread % warps
        if not (earlier.moves or now.moves or now.means == _FREES) and earlier.thread == now.thread:
            return None
        if not earlier.done:
            if earlier.moves:
                return f"and no {_MOVES[earlier.means]} has waited for it"
            return "and nobody has seen the arrival of a tcgen05.commit behind it"
        if warp == other:
            return None if earlier.moves or now.means == _FREES else self._fenced_after(warp, earlier.done)
        if warp // clocks.each != other // clocks.each:
            return None
        seen = int(clocks.seen[warp, other % clocks.each])
        if seen < earlier.done:
            return "and nothing orders it behind the wait"
        if now.means == _FREES:
            return None
        told = earlier.done
        if earlier.moves:
            told = next((time for time in self.before[other] if time >= earlier.done), 0)
            if not 0 < told <= seen:
                return "with no tcgen05.fence::before_thread_sync between its wait and what orders the threads"
        return self._fenced_after(warp, told)

    def _fenced_after(self, warp: int, time: int) -> str | None:
        if self.after[warp] >= time:
            return None
        return "with no tcgen05.fence::after_thread_sync behind what orders the threads"

    def end(self) -> None:
        """Reports columns that were not freed."""
        for cta, pc in self.tensor.unreturned() if self.used else ():
            thread = cta * self.state.geometry.warps_per_cta
            self.report(pc, "nobody frees these columns before the kernel ends", thread, about="held")


class LoadedRegisters(Check):
    """Follows the registers that loads from tensor memory bring, until a warp has waited for them."""

    name = "tensor"

    def __init__(self, findings: Findings, accesses: TensorAccesses) -> None:
        super().__init__(findings)
        self.accesses = accesses

    def begun(self) -> None:
        loads = {
            pc: [slot for name, operand in d.named().items() if name[0] == "d" for slot in d.slots(operand)]
            for pc, d in enumerate(self.kernel.code)
            if d.traits.means.startswith("tcgen05.ld")
        }
        self.flying = RegistersInFlight((slot for slots in loads.values() for slot in slots), self.state.warps)
        self.loads = {pc: self.flying.of(slots) for pc, slots in loads.items()}

    def watch(self, pc: int) -> Look | None:
        decoded = self.kernel.code[pc]
        used = {s: deed for deed, slots in (("writes", decoded.writes), ("reads", decoded.reads)) for s in slots}
        deeds = {number: deed for slot, deed in used.items() for number in self.flying.of([slot]).tolist()}
        if not deeds:
            return None

        def look(sel: Selection) -> None:
            warps = sel.warps
            self._touch(pc, deeds, warps)
            if pc in self.loads:
                self.flying.issue(pc, self.loads[pc], warps, self.state.tensor.moves["ld"])

        return look

    def _touch(self, pc: int, deeds: dict[int, str], warps: Array) -> None:
        registers = np.array(list(deeds), np.intp)
        if (conflict := self.flying.find(registers, warps)) is None:
            return
        register, warp, by = conflict
        line, note = self.line(by), deeds[register] == "reads"
        text = (
            f"{deeds[register]} {self.flying.names[register]}, which the tcgen05.ld at line {line} brings, with no "
            "tcgen05.wait::ld between them"
        )
        # Compilers rely on the dependence of the registers where they read: the load is over then.
        self.report(pc, text, warp, about=("loaded", line), note=note, together=note)
        while note and (conflict := self.flying.find(registers, warps)):
            _, warp, by = conflict
            self.flying.count[self.loads[by], warp] = 0
            self.accesses.loaded(by, warp)
