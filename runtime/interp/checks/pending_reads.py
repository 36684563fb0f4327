"""Shared memory that asynchronous operations still read: `wgmma`, and the stores of bulk and tensor copies.

A product reads its operands until a `wgmma.wait_group` covers it, a store its source until a
`cp.async.bulk.wait_group` (`.read` will do) covers it. Before that nobody may write there; afterwards who writes must
be ordered behind one of those that waited. A product's operands are read by its warpgroup: any of its warps will do.
A thread that ends leaves nobody who could wait for its stores, and its CTA's shared memory goes with the CTA.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....dialect.isa.wgmma import WARPS
from ....dialect.ptx.text.syntax import Immediate
from ....dialect.ptx.traits import BULK, PRODUCTS
from ..machine.operation_groups import OperationGroups
from .proxies import UNIT, AsynchronousCheck, units_of
from .shared import WRITING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...numerics.array import Array
    from ..machine.kernel import DecodedKernel
    from ..machine.state import State
    from ..machine.threads import Selection
    from ..observers.events import Look, MemoryAccess


@dataclass(eq=False)
class _Read:
    """Units that one operation reads, its instruction and thread, and whether that thread ended before it was done."""

    pc: int
    units: Array
    thread: int
    ended: bool = False


class _Readers:
    """Those that read asynchronously in one way: warpgroups, of `warps` each, or threads."""

    def __init__(self, agents: int, warps: int, units: int, each: int) -> None:
        self.queue = OperationGroups(agents)
        self.warps = warps
        self.done = np.zeros((units, -(-each // warps)), np.int32)
        """When each warpgroup, or warp, of a cluster last was done with a unit."""


class PendingReads(AsynchronousCheck):
    """Follows what is being read."""

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        super().begin(state, kernel)
        each = self.shared.clocks.each
        self.pending = np.zeros(self.units, np.int16)
        self.reads: list[_Read] = []
        self.products = _Readers(-(-state.warps // WARPS), WARPS, self.units, each)
        self.stores = _Readers(state.threads, 1, self.units, each)
        self.multiplies = [d.traits.root == PRODUCTS for d in kernel.code]
        if self.units:
            state.flow.on_exit.append(self._exits)

    # Groups of operations

    def watch(self, pc: int) -> Look | None:
        decoded = self.kernel.code[pc]
        commits, awaits = decoded.traits.commits, decoded.traits.awaits
        if (commits or awaits) not in (PRODUCTS, BULK):
            return None
        product = PRODUCTS in (commits, awaits)
        queue = (self.products if product else self.stores).queue
        agents: Callable[[Selection], Array] = self._warpgroups if product else lambda sel: sel.threads
        if commits:
            return lambda sel: queue.commit(agents(sel))
        (keep,) = (int(o.value) for o in decoded.source.operands if isinstance(o, Immediate))
        return lambda sel: queue.wait(agents(sel), keep)

    def _warpgroups(self, sel: Selection) -> Array:
        return np.unique(sel.threads % self.state.warps // WARPS)

    def access(self, access: MemoryAccess) -> None:
        if access.buffer is not self.buffer or not self.pending.size or not access.start.size:
            return
        units, threads = units_of(access)
        if access.kind in WRITING:
            self._written(access, units, threads)
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
        readers.queue.issue(np.array([agent]), self._finish(readers, read))

    def _finish(self, readers: _Readers, read: _Read) -> Callable[[Array], None]:
        def finish(_: Array) -> None:
            clocks = self.shared.clocks
            self.pending[read.units] -= 1
            self.reads.remove(read)
            column = read.thread % clocks.warps % clocks.each // readers.warps
            readers.done[read.units, column] = clocks.tick()

        return finish

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
        for readers in (self.products, self.stores):
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
        known = clocks.seen[warps]
        known[np.arange(warps.size), warps % clocks.each] = clocks.now
        unknown: Array = done > known.reshape(warps.size, -1, readers.warps).max(axis=2)
        return np.logical_or.reduce(unknown, axis=1)

    def _tell(self, pc: int, units: Array, threads: Array, end: str) -> None:
        unit = int(units[0])
        read = next((r for r in reversed(self.reads) if unit in r.units), None)
        source = self.kernel.code[int(self.pc[unit]) if read is None else read.pc].source
        text = f"overwrites what the {source.opcode} at line {source.line} reads, {end}"
        address = unit * UNIT % self.shared.stride
        self.report(pc, text, int(threads[0]), address, about=("read", source.line, end), count=units.size)
