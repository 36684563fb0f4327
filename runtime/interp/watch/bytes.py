"""Which bytes of a result, in which lanes, are made of bytes that nobody has written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from ....dialect.isa.families import LoadMatrix, StoreMatrix
from ....dialect.isa.mma import Mma
from ....dialect.ptx.instructions import Traits
from ....dialect.ptx.text.syntax import Address, Immediate, Operand, Register, Vector
from ....dialect.ptx.types import PACKED_BITS, REGISTER_BITS
from ...numerics.floats import Array
from ..machine.events import LANES
from ..machine.kernel import Decoded
from ..machine.state import RegisterSlot

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
# numbers to 8 bits where a thread has one. What moves bytes, or computes on packed numbers one by one, is followed
# byte by byte; of every other instruction any byte that was not written makes the whole result count as unwritten.
#
# A set of bytes is a number: bit i stands for byte i.

_INTEGERS = tuple(f"{kind}{bits}" for kind in "bsu" for bits in (16, 32, 64))


def all_bytes(bits: int) -> int:
    """All bytes of a register."""
    return (1 << max(1, bits // 8)) - 1


@dataclass(frozen=True, slots=True)
class _Made:
    """An instruction, what it reads, and which bytes of the registers, by name, nobody has written."""

    traits: Traits
    operands: Sequence[Operand]
    lacking: Mapping[str, Array]

    @property
    def types(self) -> tuple[str, ...]:
        return self.traits.types

    def of(self, operand: Operand) -> Array:
        name = operand.name if isinstance(operand, Register) else ""
        return self.lacking.get(name, np.zeros((), np.uint16))

    @property
    def all(self) -> list[Array]:
        return [self.of(operand) for operand in self.operands]

    @property
    def any(self) -> Array:
        return reduce(np.bitwise_or, self.lacking.values())


Rule = Callable[[_Made], "Array | None"]
"""The bytes of the result, or None where it does not know."""


def passed(decoded: Decoded, lacking: Mapping[str, Array], results: Sequence[int]) -> tuple[Array, ...]:
    """The unwritten bytes of each result, if some bytes of the registers read are unwritten."""
    d, *operands = decoded.source.operands
    made = _Made(decoded.traits, operands, lacking)
    if decoded.row.root == "mov" and isinstance(d, Vector):
        each, parts = max(1, results[0] // 8), made.of(operands[0])
        return tuple(parts >> np.uint16(i * each) & np.uint16(all_bytes(bits)) for i, bits in enumerate(results))
    rule = _RULES.get(decoded.row.root) if len(results) == 1 else None
    lacking_ = None if rule is None else rule(made)
    if lacking_ is not None:
        return (lacking_ & np.uint16(all_bytes(results[0])),)
    return tuple(np.where(made.any != 0, np.uint16(all_bytes(bits)), np.uint16(0)) for bits in results)


def stored(decoded: Decoded) -> tuple[frozenset[str], int]:
    """The registers of which a store takes only the low bytes, and the mask of these bytes."""
    if decoded.row.root != "st" or "T" not in decoded.traits.bindings:
        return frozenset(), 0
    value = decoded.source.operands[1]
    items = value.items if isinstance(value, Vector) else (value,)
    names = frozenset(i.name for i in items if isinstance(i, Register))
    return names, all_bytes(REGISTER_BITS[decoded.traits.bindings["T"]])


def _moved(made: _Made) -> Array | None:
    """`mov`, and of narrow registers into one."""
    (operand,) = made.operands
    if not isinstance(operand, Vector):
        return made.of(operand)
    each = max(1, REGISTER_BITS[made.types[-1]] // (8 * len(operand.items)))
    parts = [made.of(item) << np.uint16(i * each) for i, item in enumerate(operand.items)]
    return reduce(np.bitwise_or, parts)


def _bitwise(made: _Made) -> Array | None:
    """Byte by byte; where a literal of `and` has none but zeros the result is known."""
    bytes_ = reduce(np.bitwise_or, made.all)
    if made.traits.root == "and":
        for operand in made.operands:
            if isinstance(operand, Immediate):
                bytes_ = bytes_ & np.uint16(sum(1 << i for i in range(8) if int(operand.value) >> 8 * i & 0xFF))
    return bytes_


def _shifted(made: _Made) -> Array | None:
    amount = made.operands[1]
    if not isinstance(amount, Immediate) or made.types[-1][0] == "s":
        return None
    by, rest = divmod(min(int(amount.value), 64), 8)
    move = np.left_shift if made.traits.root == "shl" else np.right_shift
    parts = made.of(made.operands[0])
    return move(parts, np.uint16(by)) | (move(parts, np.uint16(by + 1)) if rest else np.uint16(0))


def _carried(made: _Made) -> Array | None:
    """Sums of integers depend on the bytes below; packed numbers on themselves."""
    if made.traits.bindings.get("CC") or made.types[-1] not in _INTEGERS:
        return _packed(made)
    bytes_ = reduce(np.bitwise_or, made.all)
    return bytes_ | np.negative(bytes_)


def _packed(made: _Made) -> Array | None:
    """Two numbers of 16 bits."""
    if not all(type.endswith("16x2") for type in made.types):
        return None
    bytes_ = made.any
    low, high = (np.where(bytes_ & np.uint16(part), np.uint16(part), np.uint16(0)) for part in (3, 12))
    return low | high


def _permuted(made: _Made) -> Array | None:
    first, second, selector = made.operands
    if made.traits.bindings["MODE"] or not isinstance(selector, Immediate):
        return None
    bytes_ = made.of(first) | made.of(second) << np.uint16(4)
    places = [int(selector.value) >> 4 * i & 7 for i in range(4)]
    parts = [(bytes_ >> np.uint16(place) & np.uint16(1)) << np.uint16(i) for i, place in enumerate(places)]
    return reduce(np.bitwise_or, parts)


def _chosen(made: _Made) -> Array | None:
    """`selp`: what is not chosen has been left out."""
    first, second, predicate = made.all
    return np.where(predicate != 0, np.uint16(0xFFFF), first | second)


def _converted(made: _Made) -> Array | None:
    """Narrowing and zero-extension of integers, and packing conversions of two numbers."""
    if len(made.types) != 2:
        return None
    to, of = made.types
    if to in _INTEGERS and of in _INTEGERS and not made.traits.bindings.get("SAT"):
        return made.of(made.operands[0]) & np.uint16(all_bytes(REGISTER_BITS[of])) if "s" not in to + of else None
    if not to.endswith("x2") or _size(to) < 2:
        return None
    if of == "f32" and len(made.operands) == 2:
        high, low = made.all
        return _pair(low, high, _size(to) // 2)
    if of.endswith("x2") and len(made.operands) == 1 and _size(of) > 1:
        parts, each = made.of(made.operands[0]), _size(of) // 2
        return _pair(parts & np.uint16(all_bytes(8 * each)), parts >> np.uint16(each), _size(to) // 2)
    return None


def _size(type: str) -> int:
    """Bytes of a type."""
    return (PACKED_BITS.get(type) or REGISTER_BITS[type]) // 8


def _pair(low: Array, high: Array, each: int) -> Array:
    """The unwritten bytes of two packed numbers. A number is unwritten as a whole if any byte that it depends on is."""
    one = np.uint16(all_bytes(8 * each))
    zero = np.uint16(0)
    return np.where(low, one, zero) | np.where(high, one << np.uint16(each), zero)


_RULES: dict[str, Rule] = {
    "mov": _moved,
    **dict.fromkeys(("and", "or", "xor", "not", "lop3"), _bitwise),
    **dict.fromkeys(("shl", "shr"), _shifted),
    **dict.fromkeys(("add", "sub"), _carried),
    **dict.fromkeys(("mul", "fma", "min", "max", "abs", "neg", "set"), _packed),
    "prmt": _permuted,
    "selp": _chosen,
    "cvt": _converted,
}
