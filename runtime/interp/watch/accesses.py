"""Shared memory that copies still read, that another proxy wrote, or beyond a variable."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from ....dialect.isa.wgmma import WARPS
from ....dialect.ptx.instructions import TENSOR_CORES
from ....dialect.ptx.text.syntax import Address
from ...numerics.floats import Array
from ..machine.decode import VariablePlace
from ..machine.events import Look, MemoryAccess, Selection
from ..machine.kernel import Decoded
from ..machine.mbarriers import OperationGroups
from ..machine.state import RegisterSlot
from .clocks import Fences
from .findings import Check
from .shared import UNWAITED, WRITING, SharedCheck

# Shared memory that is written through the generic proxy and read through the asynchronous one.
#
# What `st`, `stmatrix`, `cp.async` and atomics write, `wgmma` and the stores of bulk and tensor copies see only behind
# a `fence.proxy.async`: of the thread that wrote, or of one that is ordered behind it; so do bulk and tensor copies to
# shared memory go over it only then. What they wrote needs none. What the generic proxy read they may go over without
# one, as kernels do in each turn of a pipeline. PTX ISA 8.6 and 9.7.15.6.
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


class Proxies(SharedCheck):
    """Compares what the asynchronous proxy reads, or goes over, with the last writes there, and the fences behind them;
    and its uses, and other CTAs', of mbarrier objects with their initialisation, and the fences and releases that show
    it. It listens before `shared`, which has the last writes."""

    def begun(self) -> None:
        traits = [d.traits for d in self.kernel.code]
        self.asynchronous = np.array([t.asynchronous for t in traits])
        # what tcgen05.alloc writes, compilers let copies go over without a fence
        self.generic = np.array([not t.asynchronous and t.root != TENSOR_CORES for t in traits])
        self.creates = np.array([t.name == "mbarrier.init" for t in traits])
        self.releases = [t.fences_objects or t.releases_to_cluster for t in traits]
        self.fences, self.shown, self.released = (Fences(self.shared.clocks) for _ in range(3))

    def watch(self, pc: int) -> Look | None:
        traits = self.kernel.code[pc].traits
        fences = traits.fences_asynchronous("shared")
        kinds = [self.fences] * fences + [self.shown] * (fences or traits.fences_objects)
        kinds += [self.released] * (self.releases[pc] and not traits.on_mbarrier)

        def look(sel: Selection) -> None:
            for kind in kinds:
                kind.execute(sel.threads)

        return look if kinds else None

    def access(self, access: MemoryAccess) -> None:
        if access.buffer is not self.shared.buffer or not access.start.size:
            return
        asynchronous, writes = bool(self.asynchronous[access.pc]), access.kind in WRITING
        if asynchronous and (access.kind == "copy" or not writes):
            self._compare(access, "writes {} over" if writes else "reads {}")
        elif access.kind == "atomic" and (asynchronous or self.state.geometry.cluster_size > 1):
            self._use(access.pc, access.start, access.threads)
        if writes and self.releases[access.pc]:  # What it accesses itself, its own release does not show.
            self.released.execute(access.threads)

    def _compare(self, access: MemoryAccess, deed: str) -> None:
        """Compares accesses through the asynchronous proxy with the last writes through the generic one."""
        shadow = self.shared.shadow
        pieces, threads = shadow.pieces(access.start, access.width, access.threads)
        time, writer, pcs = shadow.write_time[pieces], shadow.writer[pieces], shadow.write_pc[pieces]
        unfenced = (time > 0) & (time != UNWAITED) & self.generic[pcs] & ~self.fences.cover(writer, time)
        if not unfenced.any():
            return
        first = int(np.flatnonzero(unfenced)[0])
        source = self.kernel.code[int(pcs[first])].source
        _, warp, lane = self.state.geometry.place(int(writer[first]))
        text = (
            f"{deed.format('through the asynchronous proxy')} what warp {warp}, lane {lane} writes at line "
            f"{source.line} ({source.opcode}), and no fence.proxy.async is between them"
        )
        address, count = int(pieces[first]) * shadow.width % self.shared.stride, int(np.count_nonzero(unfenced))
        self.report(access.pc, text, int(threads[first]), address, about=("proxy", source.line), count=count)

    def arrive(self, start: Array, threads: Array, copy: int | None = None) -> None:
        """A copy to several CTAs arrives at objects that its instruction does not name."""
        if copy is not None and self.asynchronous[copy]:
            self._use(copy, start[:1], threads[:1])

    def _use(self, pc: int, start: Array, threads: Array) -> None:
        """Checks that copies, and other CTAs, see the objects that they name as initialised, of which that is the last
        write."""
        shadow = self.shared.shadow
        pieces = start // shadow.width
        time, writer, pcs = shadow.write_time[pieces], shadow.writer[pieces], shadow.write_pc[pieces]
        away = start // self.shared.stride != threads % self.state.warps // self.state.geometry.warps_per_cta
        for lacks, what, fence in (
            (
                self.asynchronous[pc] & ~self.shown.cover(writer, time),
                "through the asynchronous proxy",
                "fence.proxy.async or fence.mbarrier_init",
            ),
            (
                away & ~self.released.cover(writer, time),
                "from another CTA",
                "fence.mbarrier_init or release for the cluster",
            ),
        ):
            for i in np.flatnonzero(lacks & self.creates[pcs] & (time > 0)).tolist():
                line, who = self.line(int(pcs[i])), self.name_of(int(writer[i]))
                text = (
                    f"uses {what} the mbarrier object that {who} initialises at line {line}, and no {fence} is between "
                    "them"
                )
                place, note = int(start[i]) % self.shared.stride, not away[i]
                # Compilers leave the fence out in one CTA, and GPUs do not mind.
                self.report(pc, text, int(threads[i]), place, about=("object", line, what), note=note)


# Shared memory that asynchronous operations still read: `wgmma`, `tcgen05`, and the stores of bulk and tensor copies.
#
# A product of a warpgroup reads its operands until a `wgmma.wait_group` covers it, one of a tensor core, or a copy to
# tensor memory, until somebody has seen the arrival of a `tcgen05.commit` behind it, a store its source until a
# `cp.async.bulk.wait_group` (`.read` will do) covers it, a copy to another CTA its source until somebody has seen its
# arrival. Before that nobody may write there; afterwards who writes must be ordered behind one of those that waited. A
# product's operands are read by its warpgroup: any of its warps will do. A thread that ends leaves nobody who could
# wait for its stores, and its CTA's shared memory goes with the CTA.


@dataclass(eq=False)
class _Read:
    """A read of an operation: its instruction, units and thread, and whether the thread exited before it completed."""

    pc: int
    units: Array
    thread: int
    ended: bool = False


class PendingReads(SharedCheck):
    """Follows pending asynchronous reads, in the machine's own groups. `units` is 0 in a kernel without any."""

    def begun(self) -> None:
        self.buffer = self.state.memory.shared.buffer
        self.asynchronous = [d.traits.asynchronous for d in self.kernel.code]
        self.units = self.buffer.size // UNIT if any(self.asynchronous) else 0
        self.pc = np.zeros(self.units, np.int32)
        self.pending = np.zeros(self.units, np.int16)
        self.reads: list[_Read] = []
        each, self.per_cta = self.shared.clocks.each, self.state.geometry.warps_per_cta
        self.done = {n: np.zeros((self.units, -(-each // n)), np.int32) for n in (1, WARPS, self.per_cta)}
        """When reads of each unit last were done, as each `n` warps of a cluster know together."""
        self.in_tensor_memory = [d.traits.root == TENSOR_CORES for d in self.kernel.code]
        self.grouped = [d.traits.is_grouped for d in self.kernel.code]
        if self.units:
            self.state.flow.on_exit.append(self._exits)

    def access(self, access: MemoryAccess) -> None:
        if access.buffer is not self.buffer or not self.pending.size or not access.start.size:
            return
        units, threads = units_of(access)
        if access.kind in WRITING:
            self._written(access, units, threads)
        elif access.kind == "fetch" and self.in_tensor_memory[access.pc]:
            thread = int(threads[0])
            self._begin(self.state.tensor.products, thread, _Read(access.pc, np.unique(units), thread))
        elif access.kind == "fetch":
            groups = threads % self.state.warps // WARPS
            for group in np.unique(groups).tolist():
                mine = groups == group
                read = _Read(access.pc, np.unique(units[mine]), int(threads[mine][0]))
                self._begin(self.state.warpgroups, group, read, WARPS)
        elif self.asynchronous[access.pc]:
            queue = self.state.bulk_groups if self.grouped[access.pc] else None
            for thread in np.unique(threads).tolist():
                self._begin(queue, thread, _Read(access.pc, np.unique(units[threads == thread]), thread))

    def _begin(self, queue: OperationGroups | None, agent: int, read: _Read, together: int = 1) -> None:
        self.pending[read.units] += 1
        self.pc[read.units] = read.pc
        self.reads.append(read)
        if queue is not None:
            finish = partial(self._finish, read, read.thread % self.state.warps, together)
            queue.issue(np.array([agent]), lambda _: finish(self.shared.clocks.tick()))

    def _finish(self, read: _Read, warp: int, together: int, time: int) -> None:
        """A read is done at a time, which who is ordered behind `warp` knows, or another of those `together`."""
        self.pending[read.units] -= 1
        self.reads.remove(read)
        self.done[together][read.units, warp % self.shared.clocks.each // together] = time

    def arrive(self, start: Array, threads: Array, copy: int | None = None) -> None:
        """A copy to another CTA, which can wait for it, is done with its source."""
        read = next((r for r in self.reads if (r.pc, r.thread) == (copy, int(threads[0]))), None)
        if read is not None:
            first = int(start[0]) // self.shared.stride * self.per_cta
            self._finish(read, first, self.per_cta, self.shared.clocks.now)

    def _exits(self) -> None:
        """Looks at the stores of threads that have just ended."""
        for read in self.reads:
            if self.grouped[read.pc] and not read.ended and not self.state.live[read.thread]:
                read.ended = True
                text = "its thread ends before a cp.async.bulk.wait_group covers it; its source may be gone by then"
                self.report(read.pc, text, read.thread, int(read.units[0]) * UNIT % self.shared.stride, about="ended")

    # Writes

    def _written(self, access: MemoryAccess, units: Array, threads: Array) -> None:
        pending = self.pending[units] > 0
        late = np.zeros_like(pending)
        for together, done in self.done.items():
            late |= ~pending & self._unordered(done[units], together, threads)
        for bad, end in ((pending, "which has not been waited for"), (late, "and nothing orders it behind the wait")):
            if bad.any():
                self._tell(access.pc, units[bad], threads[bad], end)

    def _unordered(self, done: Array, together: int, threads: Array) -> Array:
        """Whether writers do not know that reads are done."""
        clocks = self.shared.clocks
        if int(done.max()) <= clocks.floor:
            return np.zeros(threads.size, np.bool_)
        warps = threads % clocks.warps
        seen = clocks.seen[warps]
        seen[np.arange(warps.size), warps % clocks.each] = clocks.now
        unknown: Array = done > seen.reshape(warps.size, -1, together).max(axis=2)
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

    def begun(self) -> None:
        origins = _origins(self.kernel.code)
        self.variables = [_of_addresses(decoded, origins) for decoded in self.kernel.code]
        memory = self.state.memory
        per_cta = memory.shared.buffer.size // self.state.geometry.ctas
        per_thread = memory.local.buffer.size // self.state.threads
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
    operands, bindings = decoded.source.operands, decoded.traits.bindings
    for slot, operand in zip(decoded.row.signature(bindings, len(operands)), operands, strict=False):
        if isinstance(operand, Address):
            places = {place for place in decoded.places if place.name == getattr(operand.base, "name", "")}
            if (register := decoded.slot(operand.base)) is not None:
                places = origins.get(register)
            if not places and bindings.get(slot.type, slot.type) != "global":
                return frozenset()
            variables |= places or set()
    return frozenset(variables)
