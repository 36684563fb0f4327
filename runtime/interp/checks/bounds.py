"""Accesses to shared or local memory that go beyond the variable from which their address was computed.

Which variables an address can come from follows from the text: a register that is computed from the address of one
variable, with whatever index, leads there. Where an address comes from memory, a parameter or a function, nothing is
known, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ....dialect.ptx.text.syntax import Address, Register, Symbol
from ..machine.storage import RegisterSlot
from ..names import VariablePlace
from .findings import Check

if TYPE_CHECKING:
    from ..machine.kernel import Decoded, DecodedKernel
    from ..machine.state import State
    from ..observers.events import MemoryAccess

Origin: TypeAlias = "frozenset[VariablePlace] | None"
"""The variables that a value can be an address in: none of a number; None where nothing is known."""

_CHOICES = ("selp", "slct", "min", "max")


class Bounds(Check):
    """Compares each access with the variables that its address can come from."""

    name = "bounds"

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        super().begin(state, kernel)
        known = _origins(kernel.code)
        self.variables = [_of_addresses(decoded, known) for decoded in kernel.code]
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
    known: dict[RegisterSlot, Origin] = {}
    changed, steps = True, list(code)
    while changed:
        changed = False
        for decoded in steps:
            if any(slot not in known for slot in decoded.reads):
                continue
            found = _result(decoded, known)
            for slot in decoded.writes:
                joined = _joined(known[slot], found) if slot in known else found
                if slot not in known or joined != known[slot]:
                    known[slot], changed = joined, True
    return known


def _result(decoded: Decoded, known: dict[RegisterSlot, Origin]) -> Origin:
    if not decoded.traits.computes:
        return None
    given = [known[slot] for slot in decoded.reads] + [frozenset([place]) for place in decoded.places]
    if decoded.row.root in _CHOICES:
        result = given[0] if given else frozenset[VariablePlace]()
        for one in given[1:]:
            result = _joined(result, one)
        return result
    some = frozenset[VariablePlace]().union(*(origin for origin in given if origin))
    return some if some or None not in given else None


def _joined(one: Origin, other: Origin) -> Origin:
    """Of two instructions that write a register: a number on one way leaves nothing known."""
    if one == other:
        return one
    return one | other if one and other else None


def _of_addresses(decoded: Decoded, known: dict[RegisterSlot, Origin]) -> frozenset[VariablePlace]:
    """The variables that the addresses of an instruction can come from; none where one is not known."""
    found: set[VariablePlace] = set()
    for operand in decoded.source.operands:
        if isinstance(operand, Address) and isinstance(operand.base, Register):
            name = operand.base.name
            slot = next((s for s in decoded.reads if s.name == name), None)
            found |= (known.get(slot) if slot is not None else None) or frozenset()
        elif isinstance(operand, Address) and isinstance(operand.base, Symbol):
            name = operand.base.name
            found |= {place for place in decoded.places if place.name == name}
    return frozenset(found)
