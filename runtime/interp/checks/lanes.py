"""Which lanes of a warp an instruction reads its operands in, where that is not all; and through which instructions
lanes give values to each other.

Lanes that give no row address to `ldmatrix` and `stmatrix`, no metadata to `mma.sp`, and no scale to a block-scaled
`mma` can have anything in the register.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....dialect.isa.mma import Mma
from ....dialect.isa.mma_sp import MmaSparse
from ....dialect.isa.moves import LoadMatrix, StoreMatrix
from ....dialect.ptx.text.syntax import Address, Immediate, Operand, Register, Vector
from ..machine.storage import RegisterSlot
from ..machine.threads import LANES

if TYPE_CHECKING:
    from ...numerics.array import Array
    from ..machine.kernel import Decoded


def lanes_read(decoded: Decoded) -> dict[str, Array]:
    """Masks of the lanes, by the name of the register."""
    row = decoded.form
    if isinstance(row, LoadMatrix | StoreMatrix):
        where = next((o for o in decoded.source.operands if isinstance(o, Address)), None)
        base = where.base if where else None
        return {base.name: np.arange(LANES) < row.addresses} if isinstance(base, Register) else {}
    return _of_mma(row, decoded.named()) if isinstance(row, Mma | MmaSparse) else {}


def _of_mma(row: Mma | MmaSparse, operands: Mapping[str, Operand]) -> dict[str, Array]:
    found: dict[str, Array] = {}
    if isinstance(row, MmaSparse):
        (selector,) = _integers(operands["f"])
        layout = row.metadata
        places = [layout.find(r=r, c=c, f=selector) for r in range(layout.rows) for c in range(layout.columns)]
        _allow(found, operands["e"], [lane for lane, _ in places])
    for role in "ab" if row.scale else "":
        _allow(found, operands[f"scale_{role}"], _scale_lanes(row, role, _integers(operands[f"selector_{role}"])))
    return found


def _scale_lanes(row: Mma | MmaSparse, role: str, selector: list[int]) -> list[int]:
    if row.scale is None:
        return []
    byte_id, thread_id = selector
    layout, (axis, along) = row.scale.layout(role), ("r", "c") if role == "a" else ("c", "r")
    rest = {along: 0, "t": thread_id, "b": row.scale.byte_ids.index(byte_id)}
    return [layout.find(**{axis: i}, **rest)[0] for i in range(layout.extent(axis))]


def _integers(operand: Operand) -> list[int]:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    return [int(item.value) for item in items if isinstance(item, Immediate)]


def _allow(found: dict[str, Array], operand: Operand, lanes: list[int]) -> None:
    """Lanes add up where a register is used twice."""
    (item,) = operand.items if isinstance(operand, Vector) else (operand,)
    if isinstance(item, Register):
        mask = found.setdefault(item.name, np.zeros(LANES, np.bool_))
        mask[lanes] = True


_COLLECTIVE = ("shfl", "vote", "redux", "match")
MULTIPLYING = ("mma", "wmma.mma")
"""Products take values of all lanes as those do, but lanes that are late for them are not told of."""


class Exchanges:
    """The instructions at which lanes exchange values, between one that reads memory and one that writes it.

    A lane that goes on behind such an instruction knows that all lanes that met there had their operands. So what they
    read to compute those has been read, for whatever depends on the result. Which registers depend on which follows
    from the text, over all ways through it; what goes through memory is not followed.
    """

    def __init__(self, code: Sequence[Decoded]) -> None:
        self._used = [(*d.reads, *(() if d.guard is None else (d.guard,))) for d in code]
        self._written = [d.writes for d in code]
        self._exchanging = {
            pc for pc, d in enumerate(code) if d.row.root in _COLLECTIVE or d.traits.name in MULTIPLYING
        }
        self._between: dict[tuple[int, int], frozenset[int]] = {}

    def between(self, read: int, write: int) -> frozenset[int]:
        """Those whose operands depend on what an instruction reads, and on whose results a later one depends."""
        if (read, write) not in self._between:
            behind = _closure(read, self._written, self._used)
            before = _closure(write, self._used, self._written)
            self._between[read, write] = frozenset(behind & before & self._exchanging)
        return self._between[read, write]


def _closure(
    start: int, gives: Sequence[tuple[RegisterSlot, ...]], takes: Sequence[tuple[RegisterSlot, ...]]
) -> set[int]:
    """The instructions that take what one gives, or what those give."""
    takers: dict[RegisterSlot, list[int]] = {}
    for pc, slots in enumerate(takes):
        for slot in slots:
            takers.setdefault(slot, []).append(pc)
    found, new = set[int](), [start]
    while new:
        for slot in gives[new.pop()]:
            for pc in takers.pop(slot, ()):
                if pc not in found:
                    found.add(pc)
                    new.append(pc)
    return found
