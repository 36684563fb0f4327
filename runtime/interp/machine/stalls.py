"""Launches in which every thread left goes round in a loop, or waits, and nothing changes any more.

Where threads have run and all registers, all memory and all places are what they were before, the same follows again:
loops that poll a word which nobody will write do not end. Loops that count, or read a clock, may end: they go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ....dialect.ptx.text.syntax import Address, Register, Symbol
from ....dialect.ptx.types import bits_of
from ...numerics.array import Array
from ..errors import FaultError
from .kernel import Decoded
from .memory import GlobalBuffers
from .state import State
from .threads import Selection

FIRST = 64
"""Turns of groups of threads after which a launch is looked at, and again after twice as many, and so on."""

_EVERY, _LOOKS = 37, 16
"""Turns between two looks, and how many looks there are each time."""


class Standstill:
    """Compares what the CTAs in flight are with what they were."""

    def __init__(self, state: State, memory: GlobalBuffers, code: Sequence[Decoded]) -> None:
        self._state = state
        self._memory = memory
        self._code = code
        self._turns, self._saved_at = 0, FIRST
        self._ran: set[int] = set()
        self._places: list[tuple[int, bytes]] = []
        self._registers: list[Array] = []
        self._bytes: list[Array] | None = None

    def turn(self, pc: int) -> bool:
        """A group of threads has run from `pc`; whether nothing will change any more."""
        self._turns += 1
        if self._turns < FIRST:
            return False
        self._ran.add(pc)
        if self._turns == self._saved_at:
            self._places, self._registers = self._where(), [bank.copy() for bank in self._state.banks.values()]
            self._bytes, self._saved_at = None, 2 * self._turns
            self._ran.clear()
            return False
        looks, rest = divmod(self._turns - self._saved_at // 2, _EVERY)
        return not rest and looks <= _LOOKS and self._is_as_before()

    def _is_as_before(self) -> bool:
        """Whether all is as when it was saved, and all who can run have run since. Those who wait at mbarrier objects
        alone are a deadlock, which is found when they sleep."""
        same = self._places == self._where() and all(
            np.array_equal(a.view(np.uint8), b.view(np.uint8))
            for a, b in zip(self._registers, self._state.banks.values(), strict=True)
        )
        ready = self._state.flow.ready
        if not same or not self._ran.issuperset(ready) or all(map(self._waits, ready)):
            return False
        memory = self._state.memory
        buffers = (memory.shared.buffer, memory.local.buffer, *self._memory.buffers())
        found = [buffer.data for buffer in buffers if buffer.writable]
        before, self._bytes = self._bytes, [data.copy() for data in found]
        self._ran.clear()
        if before is None or len(before) != len(found):
            return False
        return all(np.array_equal(a, b) for a, b in zip(before, found, strict=True))

    def _waits(self, pc: int) -> bool:
        """Whether threads at `pc` are in a loop around a wait for an mbarrier object."""
        last = self._state.flow.loops.get(pc, pc)
        return any(decoded.traits.on_mbarrier for decoded in self._code[max(pc - 1, 0) : last + 1])

    def _where(self) -> list[tuple[int, bytes]]:
        """Where the threads are, and what is on its way to them."""
        flow, mbarriers = self._state.flow, self._state.mbarriers
        waiting = [(b.pc, b.mask) for b in flow.barriers] + mbarriers.waiting() + self._state.cluster_barrier.parked
        places = [*flow.ready.items(), *flow.parked.items(), *waiting, (-1, self._state.cluster_barrier.arrived)]
        flying = (len(mbarriers.deferred), len(mbarriers.bulk), self._state.copies.serial)
        return [*sorted((pc, mask.tobytes()) for pc, mask in places), *((n, b"") for n in flying)]


def polled(state: State, code: Sequence[Decoded], loops: Mapping[int, int], pc: int, thread: int) -> Iterator[str]:
    """What a thread reads again and again in the loop that begins at `pc`, and what is there."""
    for decoded in code[pc : loops.get(pc, pc) + 1]:
        where = next((o for o in decoded.source.operands if isinstance(o, Address)), None)
        traits = decoded.traits
        if where is None or traits.root not in ("ld", "atom") or traits.space in ("param", "const", "local"):
            continue
        source = decoded.source
        yield f"{_word(state, decoded, where, thread)} at line {source.line} ({source.opcode})"


def _word(state: State, decoded: Decoded, where: Address, thread: int) -> str:
    """The word at the address of a thread's operand, as messages name it."""
    width, shared = bits_of(decoded.traits.types[-1]) // 8, decoded.traits.space == "shared"
    slot = next((s for s in decoded.reads if isinstance(where.base, Register) and s.name == where.base.name), None)
    place = decoded.places[0] if isinstance(where.base, Symbol) and decoded.places else None
    if slot is None and place is None:
        return "memory"
    start = int(state.banks[slot.bits][slot.index][thread]) if slot else place.address(state) if place else 0
    shared |= place is not None and place.space == "shared"
    one = Selection(np.arange(state.threads) == thread, state.threads)
    addresses = np.array([start + where.offset], np.int64 if shared else np.uint64)
    try:
        (part,) = (state.memory.cluster if shared else state.memory.memory).parts(addresses, width, one.lanes)
    except FaultError:  # The thread finds it out when it runs.
        return "memory"
    at = int(part.index[0]) * width
    value = int.from_bytes(part.buffer.data[at : at + width].tobytes(), "little")
    if part.buffer is state.memory.shared.buffer:
        return f"shared memory at {at % (part.buffer.size // state.geometry.ctas):#x}, where {value} is,"
    return f"byte {at} of {part.buffer.name}, where {value} is,"
