"""Which bytes of a result, in which lanes, are made of bytes that nobody has written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from itertools import product

import numpy as np

from ....dialect.isa.families import LoadMatrix, StoreMatrix
from ....dialect.isa.mma import Mma
from ....dialect.ptx.text.syntax import Address, Immediate, Operand, Register, Vector
from ....dialect.ptx.types import REGISTER_BITS
from ...numerics.floats import Array
from ..machine.events import LANES, BoundStep, Selection
from ..machine.kernel import Decoded
from ..machine.state import RegisterSlot, State

# Which lanes of a warp an instruction reads its operands in, where that is not all; and through which instructions
# lanes give values to each other.
#
# Lanes that give no row address to `ldmatrix` and `stmatrix`, no metadata to `mma.sp`, and no scale to a block-scaled
# `mma` can have anything in the register.


def lanes_read(decoded: Decoded) -> dict[str, Array]:
    """Masks of the lanes, by the name of the register."""
    row = decoded.row
    if isinstance(row, LoadMatrix | StoreMatrix):
        where = next((o for o in decoded.source.operands if isinstance(o, Address)), None)
        base = where.base if where else None
        return {base.name: np.arange(LANES) < row.addresses} if isinstance(base, Register) else {}
    return _of_mma(row, decoded.named()) if isinstance(row, Mma) else {}


def _of_mma(row: Mma, operands: Mapping[str, Operand]) -> dict[str, Array]:
    lanes_of: dict[str, Array] = {}
    if (layout := row.metadata) is not None:
        (selector,) = _integers(operands["f"])
        places = [layout.find(r=r, c=c, f=selector) for r in range(layout.rows) for c in range(layout.columns)]
        _allow(lanes_of, operands["e"], [lane for lane, _ in places])
    for role in "ab" if row.scale else "":
        _allow(lanes_of, operands[f"scale_{role}"], _scale_lanes(row, role, _integers(operands[f"selector_{role}"])))
    return lanes_of


def _scale_lanes(row: Mma, role: str, selector: list[int]) -> list[int]:
    if row.scale is None:
        return []
    byte_id, thread_id = selector
    layout, (axis, along) = row.scale.layout(role), ("r", "c") if role == "a" else ("c", "r")
    rest = {along: 0, "t": thread_id, "b": row.scale.byte_ids.index(byte_id)}
    return [layout.find(**{axis: i}, **rest)[0] for i in range(layout.extent(axis))]


def _integers(operand: Operand) -> list[int]:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    return [int(item.value) for item in items if isinstance(item, Immediate)]


def _allow(masks: dict[str, Array], operand: Operand, lanes: list[int]) -> None:
    """Lanes add up where a register is used twice."""
    (item,) = operand.items if isinstance(operand, Vector) else (operand,)
    if isinstance(item, Register):
        mask = masks.setdefault(item.name, np.zeros(LANES, np.bool_))
        mask[lanes] = True


_COLLECTIVE = ("shfl", "vote", "redux", "match")
MULTIPLYING = ("mma", "wmma.mma")
"""Products take values of all lanes as those do, but lanes that are late for them are not told of."""


class Exchanges:
    """The instructions at which lanes exchange values, between a read of memory and a later write.

    A lane that has passed such an instruction knows that all lanes that met there had their operands. So the memory
    reads behind those operands are complete, for anything that depends on the result. The dependences follow from the
    text, over all paths. Values that pass through memory are not followed.
    """

    def __init__(self, code: Sequence[Decoded]) -> None:
        self._used = [(*d.reads, *(() if d.guard is None else (d.guard,))) for d in code]
        self._written = [d.writes for d in code]
        self._exchanging = {
            pc for pc, d in enumerate(code) if d.row.root in _COLLECTIVE or d.traits.name in MULTIPLYING
        }
        self._between: dict[tuple[int, int], frozenset[int]] = {}

    def between(self, read: int, write: int) -> frozenset[int]:
        """The exchanges whose operands depend on the read, and on whose results the write depends."""
        if (read, write) not in self._between:
            behind = _closure(read, self._written, self._used)
            before = _closure(write, self._used, self._written)
            self._between[read, write] = frozenset(behind & before & self._exchanging)
        return self._between[read, write]


def _closure(
    start: int, gives: Sequence[tuple[RegisterSlot, ...]], takes: Sequence[tuple[RegisterSlot, ...]]
) -> set[int]:
    """The instructions that depend on a result of `start`, directly or not."""
    takers: dict[RegisterSlot, list[int]] = {}
    for pc, slots in enumerate(takes):
        for slot in slots:
            takers.setdefault(slot, []).append(pc)
    reached, new = set[int](), [start]
    while new:
        for slot in gives[new.pop()]:
            for pc in takers.pop(slot, ()):
                if pc not in reached:
                    reached.add(pc)
                    new.append(pc)
    return reached


# Which bytes of a result are made of bytes that nobody has written.
#
# Compilers pack narrow numbers into registers of which they fill a part, and drop the rest again: Triton converts four
# numbers to 8 bits where a thread has one. An instruction that moves bits is tried: executed on registers of its own
# with the unwritten bytes of each operand as zeros and as ones, it shows which bytes of its results depend on them.
# Sums depend on the bytes below, packed numbers on those of their half, and every other result on any byte at all.
#
# A set of bytes is a number: bit i stands for byte i.

_BITWISE = frozenset((
    "mov", "and", "or", "xor", "not", "lop3", "shl", "shr", "shf", "prmt", "bfe", "bfi", "selp", "cvt",
))  # fmt: skip
_TRIED = 4
"""Operands of which all combinations are tried."""
_INTEGERS = tuple(f"{kind}{bits}" for kind in "bsu" for bits in (16, 32, 64))


def is_bitwise(decoded: Decoded) -> bool:
    """Whether each bit of a result is one of an operand, or depends on bits at one place."""
    return decoded.row.root in _BITWISE and decoded.row.means not in ("cvt.to_integer", "cvt.from_integer")


def all_bytes(bits: int) -> int:
    """All bytes of a register."""
    return (1 << max(1, bits // 8)) - 1


class Trials:
    """Executes instructions on registers that are no thread's, made when the first one is tried."""

    def __init__(self, state: State, slots: dict[int, int]) -> None:
        self._state, self._slots = state, slots
        self._steps: dict[int, BoundStep] = {}

    @cached_property
    def _probe(self) -> State:
        return State(self._state.geometry, self._slots, self._state.memory, self._state.addresses)

    def passed(self, pc: int, decoded: Decoded, lacking: Mapping[RegisterSlot, Array], sel: Selection) -> list[Array]:
        """The unwritten bytes of each result in the selected threads, if some bytes of the registers read are
        unwritten."""
        if is_bitwise(decoded) and len(lacking) <= _TRIED and all(slot.bits > 1 for slot in lacking):
            where = [bad[:, None] >> np.arange(max(1, slot.bits // 8)) & 1 == 1 for slot, bad in lacking.items()]
            trials = [
                self.results(pc, decoded, sel, dict(zip(lacking, zip(where, tried, strict=True), strict=True)))
                for tried in product((0x00, 0xFF), repeat=len(lacking))
            ]
            return [_differing(results) for results in zip(*trials, strict=True)]
        every, types = reduce(np.bitwise_or, lacking.values()), decoded.traits.types
        if decoded.row.root in ("add", "sub") and types[-1] in _INTEGERS and not decoded.traits.bindings.get("CC"):
            made = every | np.negative(every)
        elif len(decoded.writes) == 1 and all(type.endswith("16x2") for type in types):
            low, upper = (np.where(every & np.uint16(half), np.uint16(half), np.uint16(0)) for half in (3, 12))
            made = low | upper
        else:
            made = np.where(every != 0, np.uint16(0xFFFF), np.uint16(0))
        return [made & np.uint16(all_bytes(slot.bits)) for slot in decoded.writes]

    def results(
        self, pc: int, decoded: Decoded, sel: Selection, replaced: Mapping[RegisterSlot, tuple[Array, Array | int]]
    ) -> list[Array]:
        """The results, (selected threads, bytes), with the bytes of operands that masks (selected threads, bytes) name
        replaced by others."""
        if pc not in self._steps:
            self._steps[pc] = decoded.action(self._probe)
        for slot in decoded.reads:
            row = self._probe.banks[slot.bits][slot.index]
            row[...] = self._state.banks[slot.bits][slot.index]
            if slot in replaced:
                mask, bytes_ = replaced[slot]
                parts = row.view(np.uint8).reshape(row.size, -1)
                parts[sel.threads] = np.where(mask, bytes_, parts[sel.threads])
        self._steps[pc](sel)
        results = (sel.pick(self._probe.banks[slot.bits][slot.index]) for slot in decoded.writes)
        return [result.copy().view(np.uint8).reshape(sel.count, -1) for result in results]


def _differing(results: Sequence[Array]) -> Array:
    """Which bytes differ between results, (threads, bytes) each: a set for each thread."""
    differ: Array = np.logical_or.reduce([result != results[0] for result in results])
    width: int = differ.shape[1]
    return np.left_shift(differ, np.arange(width)).sum(axis=1).astype(np.uint16)


def stored(decoded: Decoded) -> tuple[frozenset[str], int]:
    """The registers of which a store takes only the low bytes, and the mask of these bytes."""
    if decoded.row.root != "st" or "T" not in decoded.traits.bindings:
        return frozenset(), 0
    names = frozenset(slot.name for slot in decoded.slots(decoded.source.operands[1]))
    return names, all_bytes(REGISTER_BITS[decoded.traits.bindings["T"]])
