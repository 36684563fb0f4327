"""Shared memory that copies still read, that another proxy wrote, or beyond a variable."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ....dialect.isa.wgmma import WARPS
from ....dialect.ptx.instructions import PRODUCTS, TENSOR_CORES
from ....dialect.ptx.text.syntax import Address, Symbol
from ...numerics.floats import Array
from ..machine.copies import OperationGroups
from ..machine.events import Look, MemoryAccess, Selection, mask_of
from ..machine.kernel import Decoded, DecodedKernel
from ..machine.names import VariablePlace
from ..machine.state import RegisterSlot, State
from .findings import Check
from .shared import WRITING, SharedCheck

# Shared memory that is written through the generic proxy and read through the asynchronous one.
#
# What `st`, `stmatrix`, `cp.async` and atomics write, `wgmma` and the stores of bulk and tensor copies see only behind
# a `fence.proxy.async`: of the thread that wrote, or of one that is ordered behind it. What bulk and tensor copies
# wrote needs none. PTX ISA 8.6 and 9.7.15.6.
#
# The same holds for the mbarrier objects at which copies complete: `mbarrier.init` writes them. And another CTA of the
# cluster sees an object only if a fence or a release followed the initialisation. `fence.mbarrier_init` does both.

UNIT = 16
"""Bytes of which one writer is kept: as many as asynchronous operations move at once."""


def units_of(access: MemoryAccess) -> tuple[Array, Array]:
    """The units that accesses touch, with the thread of each."""
    first, last = access.start // UNIT, (access.start + access.width - 1) // UNIT
    each = int((last - first).max()) + 1
    units = np.minimum(first[:, None] + np.arange(each), last[:, None])
    return units.reshape(-1), np.repeat(access.threads, each)


class AsynchronousCheck(SharedCheck):
    """A check of accesses through the asynchronous proxy. `units` is 0 in a kernel without such instructions."""

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        super().begin(state, kernel)
        self.buffer = state.memory.shared.buffer
        self.asynchronous = [d.traits.asynchronous for d in kernel.code]
        self.units = self.buffer.size // UNIT if any(self.asynchronous) else 0
        self.pc = np.zeros(self.units, np.int32)


class Proxies(AsynchronousCheck):
    """Follows who wrote each unit of shared memory, and fences."""

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        super().begin(state, kernel)
        self.unfenced = np.zeros(self.units, np.bool_)
        self.writer = np.zeros(self.units, np.int32)
        self.time = np.zeros(self.units, np.int32)

    def watch(self, pc: int) -> Look | None:
        return self._fence if self.kernel.code[pc].traits.fences_asynchronous("shared") else None

    def _fence(self, sel: Selection) -> None:
        """The asynchronous proxy sees what these threads wrote, and what happens before them."""
        units = np.flatnonzero(self.unfenced)
        if not units.size:
            return
        clocks, threads = self.shared.clocks, sel.threads
        writer = self.writer[units]
        fenced = mask_of(threads, self.state.threads)
        times = np.zeros((self.state.warps // clocks.each, clocks.each), np.int32)
        warps = np.unique(threads % clocks.warps)
        np.maximum.at(times, warps // clocks.each, clocks.seen[warps])
        other = writer % clocks.warps
        ordered = self.time[units] <= times[other // clocks.each, other % clocks.each]
        self.unfenced[units[fenced[writer] | ordered]] = False

    def access(self, access: MemoryAccess) -> None:
        if access.buffer is not self.buffer or not self.unfenced.size or not access.start.size:
            return
        units, threads = units_of(access)
        if access.kind in WRITING:
            generic = not self.asynchronous[access.pc]
            self.unfenced[units] = generic
            self.writer[units], self.time[units], self.pc[units] = threads, self.shared.clocks.now, access.pc
        elif self.asynchronous[access.pc]:
            self._look(access.pc, units, threads)

    def _look(self, pc: int, units: Array, threads: Array) -> None:
        bad = np.flatnonzero(self.unfenced[units])
        if not bad.size:
            return
        unit, thread = int(units[bad[0]]), int(threads[bad[0]])
        source = self.kernel.code[int(self.pc[unit])].source
        _, warp, lane = self.state.geometry.place(int(self.writer[unit]))
        text = (
            f"reads through the asynchronous proxy what warp {warp}, lane {lane} writes at line {source.line} "
            f"({source.opcode}), and no fence.proxy.async is between them"
        )
        address = unit * UNIT % self.shared.stride
        self.report(pc, text, thread, address, about=("proxy", source.line), count=int(bad.size))


@dataclass
class _Object:
    """An mbarrier object: the instruction, thread and time of its initialisation, whether the asynchronous proxy can
    see it, and the time of the release behind which other CTAs can, -1 without one."""

    pc: int
    thread: int
    time: int
    fenced: bool = False
    released: int = -1


class InitialisedObjects(SharedCheck):
    """Follows the initialisation of mbarrier objects, by first byte, and the fences behind it."""

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        super().begin(state, kernel)
        self.buffer = state.memory.shared.buffer
        self.objects: dict[int, _Object] = {}
        traits = [d.traits for d in kernel.code]
        self.creates = [t.name == "mbarrier.init" for t in traits]
        self.asynchronous = [t.asynchronous for t in traits]
        self.any = any(self.creates)

    def watch(self, pc: int) -> Look | None:
        traits = self.kernel.code[pc].traits
        if not self.any:
            return None
        fences = traits.fences_objects or traits.fences_asynchronous("shared")
        releases = traits.fences_objects or traits.releases_to_cluster
        return (lambda sel: self._fence(pc, sel, fences, releases)) if fences or releases else None

    def _fence(self, pc: int, sel: Selection, fences: bool, releases: bool) -> None:
        """Applies a fence of these threads to objects that they initialised, or whose initialisation happens before
        it."""
        waiting = [o for o in self.objects.values() if (fences and not o.fenced) or (o.released < 0 and releases)]
        if not waiting:
            return
        clocks, threads = self.shared.clocks, sel.threads
        own = set(threads.tolist())
        warps = np.unique(threads % clocks.warps)
        for one in waiting:
            other = one.thread % clocks.warps
            near = warps[warps // clocks.each == other // clocks.each]
            if one.thread in own or bool((clocks.seen[near, other % clocks.each] >= one.time).any()):
                one.fenced |= fences
                one.released = pc if releases and one.released < 0 else one.released

    def access(self, access: MemoryAccess) -> None:
        if not self.any or access.buffer is not self.buffer or access.kind not in ("store", "atomic"):
            return
        if self.creates[access.pc]:
            now = self.shared.clocks.now
            for start, thread in zip(access.start.tolist(), access.threads.tolist(), strict=True):
                self.objects[start] = _Object(access.pc, thread, now)
        elif access.kind == "atomic":
            self._uses(access)

    def _uses(self, access: MemoryAccess) -> None:
        """Checks that copies, and other CTAs, see the objects that they name as initialised."""
        start, threads = access.start, access.threads
        if not self.asynchronous[access.pc]:
            if self.state.geometry.cluster_size == 1:
                return
            away = np.flatnonzero(start // self.shared.stride != self._cta(threads))
            start, threads = start[away], threads[away]
        for place, thread in zip(start.tolist(), threads.tolist(), strict=True):
            if (one := self.objects.get(place)) is not None:
                self._use(access.pc, place, thread, one)

    def _cta(self, threads: Array) -> Array:
        return threads % self.state.warps // self.state.geometry.warps_per_cta

    def arrive(self, start: Array, threads: Array, copy: int | None = None) -> None:
        """A copy to several CTAs arrives at objects that its instruction does not name."""
        place = int(start[0])
        if copy is not None and self.asynchronous[copy] and (one := self.objects.get(place)) is not None:
            self._use(copy, place, int(threads[0]), one)

    def _use(self, pc: int, start: int, thread: int, one: _Object) -> None:
        """A thread uses an object."""
        away = start // self.shared.stride != int(self._cta(np.array(thread)))
        for lacks, what, fence in (
            (
                self.asynchronous[pc] and not one.fenced,
                "through the asynchronous proxy",
                "fence.proxy.async or fence.mbarrier_init",
            ),
            (away and one.released in (-1, pc), "from another CTA", "fence.mbarrier_init or release for the cluster"),
        ):
            if lacks:
                line, who = self.line(one.pc), self.name_of(one.thread)
                text = (
                    f"uses {what} the mbarrier object that {who} initialises at line {line}, and no {fence} is between "
                    "them"
                )
                note = not away  # Compilers leave this fence out, and GPUs do not mind.
                self.report(pc, text, thread, start % self.shared.stride, about=("object", line, what), note=note)


# Shared memory that asynchronous operations still read: `wgmma`, `tcgen05`, and the stores of bulk and tensor copies.
#
# A product of a warpgroup reads its operands until a `wgmma.wait_group` covers it, one of a tensor core, or a copy to
# tensor memory, until somebody has seen the arrival of a `tcgen05.commit` behind it, a store its source until a
# `cp.async.bulk.wait_group` (`.read` will do) covers it. Before that nobody may write there; afterwards who writes
# must be ordered behind one of those that waited. A product's operands are read by its warpgroup: any of its warps
# will do. A thread that ends leaves nobody who could wait for its stores, and its CTA's shared memory goes with the
# CTA.


@dataclass(eq=False)
class _Read:
    """A read of an asynchronous operation: its instruction, its units, its thread, and whether the thread exited before
    it completed."""

    pc: int
    units: Array
    thread: int
    ended: bool = False


class _Readers:
    """Those that read asynchronously in one way: warpgroups, of `warps` each, or threads."""

    def __init__(self, queue: OperationGroups, warps: int, units: int, each: int) -> None:
        self.queue = queue
        self.warps = warps
        self.done = np.zeros((units, -(-each // warps)), np.int32)
        """When each warpgroup, or warp, of a cluster last was done with a unit."""


class PendingReads(AsynchronousCheck):
    """Follows pending asynchronous reads, in the machine's own groups."""

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        super().begin(state, kernel)
        each = self.shared.clocks.each
        self.pending = np.zeros(self.units, np.int16)
        self.reads: list[_Read] = []
        self.products = _Readers(state.warpgroups, WARPS, self.units, each)
        self.stores = _Readers(state.bulk_groups, 1, self.units, each)
        self.in_tensor_memory = [d.traits.root == TENSOR_CORES for d in kernel.code]
        queue = state.tensor.products if any(self.in_tensor_memory) else OperationGroups(0)
        self.tensor = _Readers(queue, 1, self.units, each)
        self.multiplies = [d.traits.root in (PRODUCTS, TENSOR_CORES) for d in kernel.code]
        if self.units:
            state.flow.on_exit.append(self._exits)

    def access(self, access: MemoryAccess) -> None:
        if access.buffer is not self.buffer or not self.pending.size or not access.start.size:
            return
        units, threads = units_of(access)
        if access.kind in WRITING:
            self._written(access, units, threads)
        elif access.kind == "fetch" and self.in_tensor_memory[access.pc]:
            self._begin(self.tensor, int(threads[0]), _Read(access.pc, np.unique(units), int(threads[0])))
        elif access.kind == "fetch":
            groups = threads % self.state.warps // WARPS
            for group in np.unique(groups).tolist():
                mine = groups == group
                self._begin(self.products, group, _Read(access.pc, np.unique(units[mine]), int(threads[mine][0])))
        elif self.asynchronous[access.pc] and self.kernel.code[access.pc].traits.is_grouped:
            for thread in np.unique(threads).tolist():
                self._begin(self.stores, thread, _Read(access.pc, np.unique(units[threads == thread]), thread))

    def _begin(self, readers: _Readers, agent: int, read: _Read) -> None:
        self.pending[read.units] += 1
        self.pc[read.units] = read.pc
        self.reads.append(read)

        def finish(_: Array) -> None:
            clocks = self.shared.clocks
            self.pending[read.units] -= 1
            self.reads.remove(read)
            column = read.thread % clocks.warps % clocks.each // readers.warps
            readers.done[read.units, column] = clocks.tick()

        readers.queue.issue(np.array([agent]), finish)

    def _exits(self) -> None:
        """Looks at the stores of threads that have just ended."""
        for read in self.reads:
            if not (read.ended or self.multiplies[read.pc]) and not self.state.live[read.thread]:
                read.ended = True
                text = "its thread ends before a cp.async.bulk.wait_group covers it; its source may be gone by then"
                self.report(read.pc, text, read.thread, int(read.units[0]) * UNIT % self.shared.stride, about="ended")

    # Writes

    def _written(self, access: MemoryAccess, units: Array, threads: Array) -> None:
        pending = self.pending[units] > 0
        late = np.zeros_like(pending)
        for readers in (self.products, self.stores, self.tensor):
            late |= ~pending & self._unordered(readers, units, threads)
        for bad, end in ((pending, "which has not been waited for"), (late, "and nothing orders it behind the wait")):
            if bad.any():
                self._tell(access.pc, units[bad], threads[bad], end)

    def _unordered(self, readers: _Readers, units: Array, threads: Array) -> Array:
        """Whether writers do not know that reads of units are done."""
        clocks = self.shared.clocks
        done = readers.done[units]
        if int(done.max()) <= clocks.floor:
            return np.zeros(units.size, np.bool_)
        warps = threads % clocks.warps
        seen = clocks.seen[warps]
        seen[np.arange(warps.size), warps % clocks.each] = clocks.now
        unknown: Array = done > seen.reshape(warps.size, -1, readers.warps).max(axis=2)
        return np.logical_or.reduce(unknown, axis=1)

    def _tell(self, pc: int, units: Array, threads: Array, end: str) -> None:
        unit = int(units[0])
        read = next((r for r in reversed(self.reads) if unit in r.units), None)
        source = self.kernel.code[int(self.pc[unit]) if read is None else read.pc].source
        text = f"overwrites what the {source.opcode} at line {source.line} reads, {end}"
        address = unit * UNIT % self.shared.stride
        self.report(pc, text, int(threads[0]), address, about=("read", source.line, end), count=units.size)


# Accesses to shared or local memory that go beyond the variable from which their address was computed.
#
# Which variables an address can come from follows from the text: a register that is computed from the address of one
# variable, with whatever index, leads there. Where an address comes from memory, a parameter or a function, nothing is
# known, and nothing is said.

Origin: TypeAlias = "frozenset[VariablePlace] | None"
"""The variables that a value can be an address in: none of a number; None where nothing is known."""

_CHOICES = ("selp", "slct", "min", "max")


class Bounds(Check):
    """Compares each access with the variables that its address may come from."""

    name = "bounds"

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        super().begin(state, kernel)
        origins = _origins(kernel.code)
        self.variables = [_of_addresses(decoded, origins) for decoded in kernel.code]
        memory = state.memory
        per_cta = memory.shared.buffer.size // state.geometry.ctas
        per_thread = memory.local.buffer.size // state.threads
        self.windows = ((memory.shared.buffer, "shared", per_cta), (memory.local.buffer, "local", per_thread))

    def access(self, access: MemoryAccess) -> None:
        if not self.variables[access.pc] or not access.start.size:
            return
        for buffer, space, each in self.windows:
            if access.buffer is buffer:
                self._compare(access, space, access.start % each)

    def _compare(self, access: MemoryAccess, space: str, start: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        places = [p for p in self.variables[access.pc] if p.space == space]
        if not places or any(p.extent == 0 for p in places):
            return
        inside = np.zeros(start.size, np.bool_)
        for place in places:
            first = place.address(self.state)
            inside |= (start >= first) & (start + access.width <= first + place.extent)
        if inside.all():
            return
        bad = np.flatnonzero(~inside)
        at, place = int(start[bad[0]]), min(places, key=lambda p: p.address(self.state))
        offset = at - place.address(self.state)
        names = " or ".join(sorted({f"{p.name} ({p.extent} bytes)" for p in places}))
        where = f"{-offset} bytes before it" if offset < 0 else f"at byte {offset} of {place.name}"
        text = f"{access.width} bytes {where}, beyond the variable that the address is computed from, {names}"
        self.report(access.pc, text, int(access.threads[bad[0]]), at, count=bad.size)


def _origins(code: Iterable[Decoded]) -> dict[RegisterSlot, Origin]:
    """What each register can be an address in, over all instructions that write it."""
    origins: dict[RegisterSlot, Origin] = {}
    changed, steps = True, list(code)
    while changed:
        changed = False
        for decoded in steps:
            if any(slot not in origins for slot in decoded.reads):
                continue
            origin = _result(decoded, origins)
            for slot in decoded.writes:
                joined = _joined(origins[slot], origin) if slot in origins else origin
                if slot not in origins or joined != origins[slot]:
                    origins[slot], changed = joined, True
    return origins


def _result(decoded: Decoded, origins: dict[RegisterSlot, Origin]) -> Origin:
    if not decoded.traits.computes:
        return None
    sources = [origins[slot] for slot in decoded.reads] + [frozenset([place]) for place in decoded.places]
    if decoded.row.root in _CHOICES:
        result = sources[0] if sources else frozenset[VariablePlace]()
        for one in sources[1:]:
            result = _joined(result, one)
        return result
    some = frozenset[VariablePlace]().union(*(origin for origin in sources if origin))
    return some if some or None not in sources else None


def _joined(one: Origin, other: Origin) -> Origin:
    """Joins the origins of a register on two paths. If one path has a number, the origin is unknown."""
    if one == other:
        return one
    return one | other if one and other else None


def _of_addresses(decoded: Decoded, origins: dict[RegisterSlot, Origin]) -> frozenset[VariablePlace]:
    """The variables that the addresses of an instruction may point into; empty if an origin is unknown."""
    variables: set[VariablePlace] = set()
    for operand in decoded.source.operands:
        if not isinstance(operand, Address):
            continue
        if (slot := decoded.slot(operand.base)) is not None:
            variables |= origins.get(slot) or frozenset()
        elif isinstance(operand.base, Symbol):
            variables |= {place for place in decoded.places if place.name == operand.base.name}
    return frozenset(variables)
