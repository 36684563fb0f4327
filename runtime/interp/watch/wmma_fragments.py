"""Fragments of `wmma`, whose elements lie in lanes and registers as the silicon likes (PTX ISA 9.7.14.4.1).

A kernel that counts on an arrangement can be right here and wrong on a GPU. Each register that holds a part of a
fragment is tagged with what it belongs to. Reported is what cannot be right under every arrangement:

- a `wmma` operand whose registers hold parts of another fragment: of another shape, type, role or layout, or in
  another order;
- a fragment that an instruction with an arrangement of its own takes (`mma`, `stmatrix`, `movmatrix`), the result of
  one (`ldmatrix`, `mma`) as an operand of `wmma`, and `shfl` of a fragment;
- arithmetic of an element with a value computed from the thread's place (`%laneid`, `%tid`) that differs between the
  lanes of the warp, or a part of the lanes changed under such a predicate;
- an element stored at addresses that are not evenly spaced over the lanes, as rows and columns of a matrix lie.

Not reported are the same arithmetic for all elements, fragments kept in memory thread by thread, and registers whose
origin is lost (packed halves, values from memory).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from ....dialect.isa.wmma import WmmaMma, WmmaMove
from ....dialect.ptx.text.syntax import Register, Vector
from ...numerics.floats import Array
from ..machine.events import LANES, Look, MemoryAccess, Selection, warps_with
from ..machine.kernel import Decoded
from ..machine.state import SPECIALS, RegisterSlot
from .findings import Check, Findings

_OWN_ARRANGEMENT = ("mma", "stmatrix", "movmatrix", "ldmatrix")

NOTHING, MIXED, PLACE = 0, 1, 2
"""Tags of registers that hold nothing of interest, values of several parts of fragments, and values computed from the
place of the thread. Those of parts are greater."""


class FragmentRegister(NamedTuple):
    """The content of a register: register `number` of a fragment. C and D share an arrangement and have no layout. For
    fragments of instructions other than `wmma`, the role is the first word of the instruction.
    """

    role: str
    shape: str = ""
    type: str = ""
    layout: str = ""
    number: int = 0

    def __str__(self) -> str:
        if not self.shape:
            return f"a result of {self.role}"
        words = [f"register {self.number} of a", self.layout, self.shape, self.type, f"fragment of {self.role}"]
        return " ".join(word for word in words if word)


def parts(row: WmmaMove | WmmaMma, role: str, count: int) -> list[FragmentRegister]:
    """What the registers of an operand hold."""
    if isinstance(row, WmmaMma):
        type, layout = row.element(role).name, {"a": row.a_layout, "b": row.b_layout}.get(role, "")
    else:
        type, layout = row.type.name, row.layout if role in "ab" else ""
    own = role.upper() if role in "ab" else "C or D"
    return [FragmentRegister(own, str(row.shape), type, layout, i) for i in range(count)]


class WmmaFragments(Check):
    """Follows what registers hold, a tag for each register and warp."""

    name = "wmma"

    def __init__(self, findings: Findings) -> None:
        super().__init__(findings)
        self.parts: list[FragmentRegister | None] = [None, None, None]
        self._numbers: dict[FragmentRegister, int] = {}

    def begun(self) -> None:
        self.tags = {bits: np.zeros((n, self.state.warps), np.int32) for bits, n in self.kernel.layout.slots.items()}
        self.used = any(d.row.root == "wmma" for d in self.kernel.code)
        self.every = np.arange(self.state.warps)

    def number(self, part: FragmentRegister) -> int:
        """The tag of a part."""
        if part not in self._numbers:
            self._numbers[part] = len(self.parts)
            self.parts.append(part)
        return self._numbers[part]

    def tag(self, slot: RegisterSlot) -> Array:
        """The tags of a register, one for each warp."""
        return self.tags[slot.bits][slot.index]

    def watch(self, pc: int) -> Look | None:
        if not self.used:
            return None
        decoded = self.kernel.code[pc]
        root = decoded.row.root
        if root == "wmma":
            return self._moved(pc, decoded)
        if decoded.traits.computes:
            return self._computed(pc, decoded)
        if root in (*_OWN_ARRANGEMENT, "shfl"):
            return partial(self._arranged, pc)
        return partial(self._put, decoded.writes, NOTHING) if decoded.writes else None

    def _put(self, slots: Iterable[RegisterSlot], made: int, sel: Selection) -> None:
        """Results of the selected warps, all of one tag."""
        warps = self.warps_of(sel)
        for slot in slots:
            self.tag(slot)[warps] = made

    def _arranged(self, pc: int, sel: Selection) -> None:
        """An instruction that says which lane holds what, or moves values between lanes."""
        warps, decoded = self.warps_of(sel), self.kernel.code[pc]
        own = [number for number, part in enumerate(self.parts) if part is not None and not part.shape]
        for slot in decoded.reads:
            tags = self.tag(slot)
            bad = warps & (tags > PLACE) & ~np.isin(tags, own)
            if bad.any():
                self.tell(pc, slot, bad, "takes {} whose elements lie in lanes as the GPU likes")
        root = decoded.row.root
        self._put(decoded.writes, NOTHING if root == "shfl" else self.number(FragmentRegister(root)), sel)

    def access(self, access: MemoryAccess) -> None:
        """Stores of elements, at addresses by lane."""
        decoded = self.kernel.code[access.pc]
        if not self.used or access.kind != "store" or decoded.row.root != "st":
            return
        warps = self.every.size
        starts = np.full((LANES, warps), -1, np.int64)
        starts.reshape(-1)[access.threads] = access.start
        complete = np.logical_and.reduce(starts >= 0, axis=0)
        steps = np.diff(starts, axis=0)
        uneven = complete & np.logical_or.reduce(steps != steps[0], axis=0)
        if not uneven.any():
            return
        for slot in decoded.slots(decoded.source.operands[1]):
            bad = uneven & (self.tag(slot) > PLACE)
            if bad.any():
                warp = int(np.flatnonzero(bad)[0])
                what = self._what(slot, warp)
                text = f"stores {what} where lanes are not evenly spaced; which elements a lane holds is open"
                self.report(access.pc, text, warp, int(starts[0, warp]), about=slot, count=int(bad.sum()))

    def _what(self, slot: RegisterSlot, warp: int) -> str:
        return f"{slot.name}, {self.parts[int(self.tag(slot)[warp])]},"

    def tell(self, pc: int, slot: RegisterSlot, bad: Array, text: str) -> None:
        """Reports a register in some warps (a mask). `{}` in the text stands for what it holds."""
        warp = int(np.flatnonzero(bad)[0])
        self.report(pc, text.format(self._what(slot, warp)), warp, about=slot, count=int(bad.sum()))

    def warps_of(self, sel: Selection) -> Array:
        """A mask of the warps with selected threads."""
        return np.ones(self.every.size, np.bool_) if sel.mask is None else warps_with(sel.mask)

    # `wmma.load` defines a fragment, `wmma.store` and `wmma.mma` use fragments.

    def _moved(self, pc: int, decoded: Decoded) -> Look | None:
        row, takes, makes = decoded.row, list[tuple[RegisterSlot, int]](), list[tuple[RegisterSlot, int]]()
        if not isinstance(row, WmmaMove | WmmaMma):
            return None
        for wanted, operand in zip(row.operands, decoded.source.operands, strict=False):
            if role := _role(row, wanted.name):
                items = operand.items if isinstance(operand, Vector) else (operand,)
                for item, part in zip(items, parts(row, role, len(items)), strict=True):
                    (makes if wanted.written else takes).extend((s, self.number(part)) for s in decoded.slots(item))

        def look(sel: Selection) -> None:
            warps = self.warps_of(sel)
            for slot, number in takes:
                tags = self.tag(slot)
                bad = warps & (tags > PLACE) & (tags != number)
                if bad.any():
                    self.tell(pc, slot, bad, f"takes {{}} as {self.parts[number]}")
            for slot, number in makes:
                self.tag(slot)[warps] = number

        return look

    # Instructions that compute results of each thread from its operands.

    def _computed(self, pc: int, decoded: Decoded) -> Look:
        reads, operands = tuple(dict.fromkeys(decoded.reads)), decoded.source.operands
        names = {item.name for item in operands if isinstance(item, Register)}
        placed = any(n.startswith(("%tid", "%lane")) for n in names & SPECIALS.keys())
        vector = any(isinstance(item, Vector) for item in operands)

        def look(sel: Selection) -> None:
            warps = self.warps_of(sel)
            result = np.full(warps.size, PLACE if placed else NOTHING, np.int32)
            if reads:
                tags = np.stack([self.tag(slot) for slot in reads])
                some = np.logical_or.reduce(tags == PLACE, axis=0) | placed
                mixed = warps & (tags.max(axis=0) > PLACE) & some
                if mixed.any():
                    self._check_places(pc, reads, tags, mixed)
                result = _combined(tags, some, vector)
            self._check_guard(pc, decoded, sel, warps)
            for slot in decoded.writes:
                self.tag(slot)[warps] = result[warps]

        return look

    def _check_places(self, pc: int, reads: Sequence[RegisterSlot], tags: Array, mixed: Array) -> None:
        """Reports values from the thread's place that differ between the lanes of a warp."""
        for slot, own in zip(reads, tags, strict=True):
            rows = self.state.banks[slot.bits][slot.index].reshape(LANES, -1)
            bad = mixed & (own == PLACE) & np.logical_or.reduce(rows != rows[0], axis=0)
            if bad.any():
                disagreeing = next(s for s, t in zip(reads, tags, strict=True) if (bad & (t > PLACE)).any())
                bad &= self.tag(disagreeing) > PLACE
                if bad.any():
                    text = f"combines {{}} with {slot.name}, which differs between lanes by their place"
                    self.tell(pc, disagreeing, bad, text)

    def _check_guard(self, pc: int, decoded: Decoded, sel: Selection, warps: Array) -> None:
        """Whether some lanes change a part of a fragment because of their place."""
        if decoded.guard is None or sel.mask is None:
            return
        every = np.logical_and.reduce(sel.mask.reshape(LANES, -1), axis=0)
        placed = warps & ~every & (self.tag(decoded.guard) == PLACE)
        for slot in decoded.writes:
            bad = placed & (self.tag(slot) > PLACE)
            if bad.any():
                text = f"changes {{}} in some lanes, which {decoded.guard.name} chooses by their place"
                self.tell(pc, slot, bad, text)


def _combined(tags: Array, some: Array, vector: bool) -> Array:
    """One part of a fragment stays it; without any, a place makes a place, which `some` have."""
    largest, least = tags.max(axis=0), np.where(tags > PLACE, tags, np.iinfo(np.int32).max).min(axis=0)
    is_one = (largest > PLACE) & (least == largest) & (not vector)
    result = np.where(largest > PLACE, np.where(is_one, largest, MIXED), np.where(some, PLACE, NOTHING))
    return np.where(np.logical_or.reduce(tags == MIXED, axis=0), MIXED, result).astype(np.int32)


def _role(row: WmmaMove | WmmaMma, name: str) -> str:
    """The role of an operand; "" of addresses and strides."""
    if isinstance(row, WmmaMma):
        return name
    return row.role if name == "r" else ""
