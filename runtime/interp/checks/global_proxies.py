"""Global memory that is stored through the generic proxy and read through another one, by a bulk or tensor copy.

The copy sees such a store only behind a `fence.proxy.async`, or one of `.global`, that is executed after it: here by
any thread of the CTA that stored, or of the one that copies. PTX ISA 8.6 and 9.7.9.25.

It reads its tensor map through a third proxy. A kernel that makes a map needs a release behind what it stores, which
`tensormap.cp_fenceproxy` has, and an acquire of the place before the copy. PTX ISA 9.7.13.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ....dialect.isa.tensor_map import SIZE
from ....dialect.ptx.text.syntax import Address, Indexed, Operand, Register, Symbol
from ..errors import FaultError
from ..machine.memory import PARAM_WINDOW
from .findings import Check, Findings
from .writers import GlobalWriters

if TYPE_CHECKING:
    from ...numerics.array import Array
    from ..machine.kernel import Decoded, DecodedKernel
    from ..machine.memory import Buffer
    from ..machine.state import State
    from ..machine.threads import Selection
    from ..observers.events import Look, MemoryAccess


class GlobalProxies(Check):
    """Follows fences; `writers` knows who stored what, and is told of every event before this."""

    name = "races"

    def __init__(self, findings: Findings, writers: GlobalWriters) -> None:
        super().__init__(findings)
        self.writers = writers
        self.fenced: Array = np.zeros(0, np.int64)

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        super().begin(state, kernel)
        self.asynchronous = np.array([d.traits.asynchronous for d in kernel.code])
        if not self.fenced.size:
            self.fenced = np.zeros(self.writers.ctas, np.int64)

    def watch(self, pc: int) -> Look | None:
        return self._fence if self.kernel.code[pc].traits.fences_asynchronous("global") else None

    def _fence(self, sel: Selection) -> None:
        threads = sel.threads
        self.fenced[self.writers.who[threads] // self.writers.each] = self.writers.now

    def access(self, access: MemoryAccess) -> None:
        if access.kind != "load" or not self.asynchronous[access.pc] or not access.start.size:
            return
        if (history := self.writers.history(access.buffer)) is None:
            return
        pieces = history.pieces(access.start, access.width)
        piece, thread = pieces.reshape(-1), np.repeat(access.threads, pieces.shape[1])
        known, each = history.stored, self.writers.each
        before = known.who(piece)
        ctas = np.maximum(before, 0) // each, self.writers.who[thread] // each
        fenced = np.maximum(self.fenced[ctas[0]], self.fenced[ctas[1]])
        stored = np.flatnonzero((before >= 0) & (known.time(piece) > fenced))
        bad = stored[~self.asynchronous[known.pc(piece[stored])]]
        if bad.size:
            first = int(piece[bad[0]])
            line, where = self.writers.who_accessed(known, first)
            text = (
                f"reads through the asynchronous proxy what {where} writes at line {line}, and no fence.proxy.async is "
                f"between them; byte {first * history.width} of {access.buffer.name}"
            )
            self.report(access.pc, text, int(thread[bad[0]]), about=("proxy", line), count=int(bad.size))


class TensorMaps(Check):
    """Follows the fences between stores to tensor maps and copies that use them; `writers` as above."""

    name = "races"

    def __init__(self, findings: Findings, writers: GlobalWriters) -> None:
        super().__init__(findings)
        self.writers = writers
        self.released: Array = np.zeros(0, np.int64)
        self.acquired: dict[tuple[int, int], Array] = {}

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        super().begin(state, kernel)
        self.copying = np.array([d.traits.copies_maps for d in kernel.code])
        if not self.released.size:
            self.released = np.zeros(self.writers.ctas, np.int64)

    def watch(self, pc: int) -> Look | None:
        decoded = self.kernel.code[pc]
        side = decoded.traits.fences_maps
        if side == "release":
            return self._release
        place = next((o for o in decoded.source.operands if isinstance(o, Address if side else Indexed)), None)
        base = place.items[0] if isinstance(place, Indexed) else place
        if base is None:
            return None
        if side:
            return lambda sel: self._acquire(decoded, base, sel)
        return (lambda sel: self._use(pc, base, sel)) if decoded.traits.name.endswith(".tensor") else None

    def _release(self, sel: Selection) -> None:
        self.released[self._ctas(sel.threads)] = self.writers.now

    def _acquire(self, decoded: Decoded, base: Operand, sel: Selection) -> None:
        for buffer, start, threads in self._places(decoded, base, sel):
            none = np.zeros(self.writers.ctas, np.int64)
            self.acquired.setdefault((id(buffer), start), none)[self._ctas(threads)] = self.writers.now

    def _ctas(self, threads: Array) -> Array:
        return self.writers.who[threads] // self.writers.each

    def _places(self, decoded: Decoded, operand: Operand, sel: Selection) -> list[tuple[Buffer, int, Array]]:
        """The maps in global memory that threads name, each with these threads: the buffer and the first byte."""
        threads, state = sel.threads, self.state
        base, offset = (operand.base, operand.offset) if isinstance(operand, Address) else (operand, 0)
        if isinstance(base, Register):
            slot = next(s for s in decoded.reads if s.name == base.name)
            addresses: Array = state.banks[slot.bits][slot.index][threads].astype(np.int64) + offset
        elif isinstance(base, Symbol) and (place := next((p for p in decoded.places if p.space == "global"), None)):
            addresses = np.full(threads.size, place.address(state) + offset, np.int64)
        else:
            return []
        found: list[tuple[Buffer, int, Array]] = []
        for address in np.unique(addresses[addresses < PARAM_WINDOW]).tolist():
            mine: Array = threads[addresses == address]
            try:
                (part,) = state.memory.memory.parts(np.array([address], np.uint64), 1, mine[:1])
            except FaultError:  # The instruction says so.
                continue
            found.append((part.buffer, int(part.index[0]), mine))
        return found

    def _use(self, pc: int, base: Operand, sel: Selection) -> None:
        for buffer, start, threads in self._places(self.kernel.code[pc], base, sel):
            if (history := self.writers.history(buffer)) is None or start + SIZE > buffer.size:
                continue
            piece = np.unique((start + np.arange(SIZE)) // history.width)
            known = history.stored
            piece = piece[known.who(piece) >= 0]
            if not piece.size:
                continue
            copied: Array = self.copying[known.pc(piece)]
            none = np.zeros(self.writers.ctas, np.int64)
            acquired = self.acquired.get((id(buffer), start), none)[self._ctas(threads)].min()
            released = self.released[known.who(piece) // self.writers.each]
            for bad, side in (
                (~copied & (known.time(piece) > released), "release"),
                (known.time(piece) > acquired, "acquire"),
            ):
                if bad.any():
                    line, where = self.writers.who_accessed(known, int(piece[bad][0]))
                    text = (
                        f"uses the tensor map that {where} writes at line {line}, and no "
                        f"fence.proxy.tensormap::generic.{side} is between them; byte {start} of {buffer.name}"
                    )
                    self.report(pc, text, int(threads[0]), about=("map", line, side), count=int(threads.size))
                    break
