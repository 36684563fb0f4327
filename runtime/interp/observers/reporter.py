"""The observer that counts what a launch does, for a `LaunchReport`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ....dialect.isa.mma import Mma
from ....dialect.isa.mma_sp import MmaSparse
from ....dialect.isa.wmma import WmmaMma
from ....dialect.ptx.traits import traits
from ...launch_report import Executed, GlobalAccess, LaunchReport, MatrixProducts, SharedAccess
from ...numerics.array import Array
from ...problem import Problem
from ..instructions.calls import RETURN
from ..machine.kernel import Decoded, DecodedKernel
from ..machine.memory import SPAN_BITS
from ..machine.state import State
from ..machine.threads import LANES, Selection
from .events import Look, MemoryAccess
from .observer import Observer
from .traffic import sectors, wavefronts

OPAQUE = "the ISA leaves open which lane accesses what"


class _Cost:
    """What the requests of one instruction to one space took, summed up."""

    def __init__(self) -> None:
        self.requests = self.units = self.ideal = self.worst = 0

    def add(self, units: Array, ideal: Array) -> None:
        """Requests: of each, the wavefronts or sectors, and the fewest."""
        self.requests += units.size
        self.units += int(units.sum())
        self.ideal += int(ideal.sum())
        self.worst = max(self.worst, int(units.max(initial=0)))


class Reporter(Observer):
    """Counts; `report` says what was found once the launch is over."""

    def __init__(self) -> None:
        self.kernel: DecodedKernel | None = None
        self._code: tuple[Decoded, ...] = ()
        self._pending: list[MemoryAccess] = []
        self._shared: dict[tuple[int, str], _Cost] = {}
        self._global: dict[tuple[int, str], _Cost] = {}

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        """Counts go on from one batch of CTAs to the next."""
        self._settle()
        if self.kernel is None:
            self._warps, self._lanes = (np.zeros(len(kernel.code), np.int64) for _ in range(2))
            self._met = np.zeros((len(kernel.code), 2), np.int64)
        self.kernel, self.state, self._code = kernel, state, kernel.code

    # What is executed

    def issue(self, pc: int) -> Look:
        """Warps count whatever their guard."""

        def look(sel: Selection) -> None:
            self._warps[pc] += self._count(sel)

        return look

    def watch(self, pc: int) -> Look:
        """Lanes count if their guard holds. What the last instruction accessed is complete."""

        def look(sel: Selection) -> None:
            self._lanes[pc] += sel.count
            if self._pending:
                self._settle()

        return look

    def meet(self, pc: int, threads: Selection, members: Array, lanes: Array) -> None:
        """Lanes that waited were counted as they came; they execute together."""
        self._met[pc] += (self._count(threads), threads.count)

    def _count(self, sel: Selection) -> int:
        if sel.mask is None:
            return self.state.warps
        return int(np.count_nonzero(sel.mask.reshape(LANES, -1).any(axis=0)))

    # What is accessed

    def access(self, access: MemoryAccess) -> None:
        """Accesses of one instruction may come in several parts: they are looked at together."""
        self._pending.append(access)

    def _settle(self) -> None:
        """Counts what the last instruction accessed."""
        found, self._pending = self._pending, []
        for kind in dict.fromkeys(access.kind for access in found):
            some = [access for access in found if access.kind == kind and access.threads.size]
            if some and self._code[some[0].pc].row.root != "wmma":
                self._request(kind, some)

    def _request(self, kind: str, accesses: list[MemoryAccess]) -> None:
        memory, pc = self.state.memory, accesses[0].pc
        for a in accesses:
            if a.buffer is memory.shared.buffer:
                lanes, warps = np.divmod(a.threads, self.state.warps)
                cost = self._shared.setdefault((pc, kind), _Cost())
                cost.add(*wavefronts(a.start, a.width, warps, lanes, alone=kind == "atomic"))
        others = (memory.shared.buffer, memory.local.buffer, memory.param.buffer)
        outside = [a for a in accesses if a.buffer not in others]
        if outside and self._code[pc].traits.space != "const":
            self._global.setdefault((pc, kind), _Cost()).add(*self._sectors(outside))

    def _sectors(self, accesses: list[MemoryAccess]) -> tuple[Array, Array]:
        """Those of accesses to several buffers, each of which has addresses of its own."""
        buffers = list({id(a.buffer): a.buffer for a in accesses}.values())
        start = np.concatenate([a.start + (buffers.index(a.buffer) << SPAN_BITS) for a in accesses])
        widths = np.concatenate([np.full(a.start.size, a.width) for a in accesses])
        return sectors(start, widths, np.concatenate([a.threads for a in accesses]) % self.state.warps)

    # What was found

    def report(self) -> LaunchReport:
        """What the launch did.

        Raises:
            ValueError: if none was observed.
        """
        if self.kernel is None:
            raise ValueError("no launch was observed")
        self._settle()
        done = tuple(self._executed(self.kernel))
        code = [d.source for d in self.kernel.code]
        return LaunchReport(
            self.kernel.name,
            self.state.geometry.grid,
            self.state.geometry.block,
            done,
            tuple(
                SharedAccess(s.line, s.column, s.opcode, kind, cost.requests, cost.units, cost.ideal, cost.worst)
                for (s, kind), cost in (((code[pc], kind), cost) for (pc, kind), cost in sorted(self._shared.items()))
            ),
            tuple(
                GlobalAccess(s.line, s.column, s.opcode, kind, cost.requests, cost.units, cost.ideal)
                for (s, kind), cost in (((code[pc], kind), cost) for (pc, kind), cost in sorted(self._global.items()))
            ),
            _products(done),
            tuple(f"line {d.line}: {d.opcode}: {OPAQUE}" for d in done if traits(d.opcode).name in _OPAQUE),
        )

    def _executed(self, kernel: DecodedKernel) -> Iterator[Executed]:
        # The last instruction is the `ret` that every kernel gets, written or not.
        for pc, decoded in enumerate(kernel.code[:-1]):
            warps, lanes = self._met[pc] if self._met[pc, 0] else (self._warps[pc], self._lanes[pc])
            source = decoded.source
            if warps and source.opcode != RETURN:
                yield Executed(source.line, source.column, source.opcode, int(warps), int(lanes))


_OPAQUE = ("wmma.load", "wmma.store")


def _products(done: Sequence[Executed]) -> tuple[MatrixProducts, ...]:
    """The matrix products among the instructions, by opcode."""
    found: dict[str, MatrixProducts] = {}
    for item in done:
        row = traits(item.opcode).form
        if isinstance(row, Mma | MmaSparse | WmmaMma):
            before = found[item.opcode].warps if item.opcode in found else 0
            side_by_side = row.products if isinstance(row, Mma) else 1
            found[item.opcode] = MatrixProducts(item.opcode, Problem(*row.shape), side_by_side, before + item.warps)
    return tuple(found.values())
