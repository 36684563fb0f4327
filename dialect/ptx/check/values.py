"""What registers of a PTX function are known to hold: constants, addresses, and values that the lane decides.

Only what can be proved is known: a register that is written once, without a guard, from what is known. Values are
those of the first warp of a CTA, lane by lane; addresses are offsets from a symbol.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...layouts.layout import LANES
from ..rows.comparison import COMPARISONS, UNSIGNED
from ..text.syntax import (
    Address,
    Function,
    Immediate,
    Instruction,
    Not,
    Operand,
    Register,
    Scope,
    Statement,
    Symbol,
    instructions,
    members,
)
from ..traits import Traits, traits
from ..types import REGISTER_BITS, bits_of


@dataclass(frozen=True, slots=True)
class Known:
    """A value: `symbol` plus one number for all lanes, or a number for each lane; "" for a plain number."""

    symbol: str
    numbers: tuple[int, ...]

    @property
    def uniform(self) -> int | None:
        """The number that all lanes have; None if they differ."""
        return self.numbers[0] if len(set(self.numbers)) == 1 else None


def _number(value: int) -> Known:
    return Known("", (value,))


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul.lo": operator.mul,
    "mul.wide": operator.mul,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << min(b, 64),
    "shr": lambda a, b: a >> min(b, 64),
    "div": lambda a, b: a // b,
    "rem": lambda a, b: a % b,
    "min": min,
    "max": max,
}
"""What instructions compute of numbers that are not negative."""

_KEEPING = frozenset(("mov", "cvt", "cvta", "cvta.to"))
"""Names of instructions whose result is the number or the address that they read."""

_TYPES = frozenset(("pred", *(f"{kind}{bits}" for kind in "bus" for bits in (16, 32, 64))))
_PLAIN = frozenset(("T", "D", "S", "P", "PART", "IS"))
"""What a row may bind of an instruction that is followed: types, a space, the half of a product, a comparison."""


class Values:
    """What the registers of one function hold."""

    def __init__(self, function: Function) -> None:
        self._writers: dict[str, Instruction | None] = {}
        self._known: dict[str, Known | None] = dict(_special(function))
        _collect(function.body or (), self._writers)

    def of(self, operand: Operand) -> Known | None:
        """What an operand is known to be; of an address, where it points."""
        match operand:
            case Immediate():
                value = operand.value
                return _number(value) if isinstance(value, int) else None
            case Symbol():
                return Known(operand.name, (operand.offset,))
            case Register():
                return self._register(operand.name)
            case Address():
                base = self.of(operand.base)
                return base and Known(base.symbol, tuple(n + operand.offset for n in base.numbers))
            case Not():
                inner = self._register(operand.register.name)
                return inner and Known("", tuple(1 - n for n in inner.numbers))
            case _:
                return None

    def _register(self, name: str) -> Known | None:
        if name not in self._known:
            # A register that depends on itself is not known.
            self._known[name] = None
            writer = self._writers.get(name)
            self._known[name] = None if writer is None else self._result(writer)
        return self._known[name]

    def _result(self, writer: Instruction) -> Known | None:
        found = traits(writer.opcode)
        if not _is_followed(found) or len(writer.operands) not in (2, 3):
            return None
        sources = [self.of(operand) for operand in writer.operands[1:]]
        known = [s for s in sources if s is not None]
        if len(known) != len(sources):
            return None
        if found.name in _KEEPING:
            return known[0] if len(known) == 1 else None
        return _computed(found, *known) if len(known) == 2 else None


def _is_followed(found: Traits) -> bool:
    """Whether it is known what an instruction computes: of integers, in the plain way, and not cut off."""
    types = found.types
    if not types or types[0] not in _TYPES or types[-1] not in REGISTER_BITS or bits_of(types[-1]) > bits_of(types[0]):
        return False
    plain = all(not value or name in _PLAIN for name, value in found.bindings.items())
    return plain and (found.name in _KEEPING or found.name == "setp" or found.name in _ARITHMETIC)


def _computed(found: Traits, a: Known, b: Known) -> Known | None:
    name, type = found.name, found.types[0]
    if name == "setp":
        word = found.bindings["IS"]
        compare = COMPARISONS.get(word) or UNSIGNED.get(word)
        return None if compare is None or a.symbol or b.symbol else _lanewise(lambda x, y: int(compare(x, y)), a, b)
    if a.symbol or b.symbol:
        # Of addresses, sums alone are addresses.
        return _lanewise(operator.add, a, b) if name == "add" and not (a.symbol and b.symbol) else None
    if min(*a.numbers, *b.numbers) < 0 or (name in ("div", "rem") and 0 in b.numbers):
        return None
    result = _lanewise(_ARITHMETIC[name], a, b)
    bits = 1 if type == "pred" else int(type[1:]) * (2 if name == "mul.wide" else 1)
    return result if all(0 <= n < 1 << (bits - (type[0] == "s")) for n in result.numbers) else None


def _lanewise(compute: Callable[[int, int], int], a: Known, b: Known) -> Known:
    length = max(len(a.numbers), len(b.numbers))
    pairs = zip(a.numbers * (length // len(a.numbers)), b.numbers * (length // len(b.numbers)), strict=True)
    return Known(a.symbol or b.symbol, tuple(compute(x, y) for x, y in pairs))


def _special(function: Function) -> Iterable[tuple[str, Known]]:
    """The special registers that are known; the thread's place only where the CTA's size says it."""
    lanes = tuple(range(LANES))
    yield "%laneid", Known("", lanes)
    size = function.numbers(".reqntid")
    if not size:
        return
    x, y, z = (*size, 1, 1)[:3]
    for axis, extent in zip("xyz", (x, y, z), strict=True):
        yield f"%ntid.{axis}", _number(extent)
    if x >= LANES:
        yield "%tid.x", Known("", lanes)
        yield from ((f"%tid.{axis}", _number(0)) for axis in "yz")


def _collect(body: Sequence[Statement], writers: dict[str, Instruction | None]) -> None:
    """The instruction that writes each register; None where it is not one, or not certain to."""
    for statement in body:
        if isinstance(statement, Instruction):
            for name in written(statement):
                writers[name] = None if name in writers or statement.guard else statement
    # Names may be declared anew in a scope: what is written there is not followed.
    for instruction in instructions([statement for statement in body if isinstance(statement, Scope)]):
        writers.update(dict.fromkeys(written(instruction)))


def written(instruction: Instruction) -> Iterable[str]:
    """Registers that an instruction may write."""
    if not instruction.operands:
        return
    row = traits(instruction.opcode).row
    slots = () if row is None else row.slots
    known = bool(slots) and slots[0].kind != "..."
    for i, operand in enumerate(instruction.operands):
        if known and i < len(slots) and not slots[i].written:
            continue
        for member in members(operand):
            if isinstance(member, Register):
                yield member.name
