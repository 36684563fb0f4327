"""Operands of instructions to emit, and their text: here it is written, and nowhere else.

Besides registers, numbers and addresses, operands are `dialect.ptx.text.syntax`'s: literals in a spelling of their own,
symbols (labels, variables, parameters, `_`), special registers, and `[parameter]`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ...dialect.ptx.text.operands import operand_text
from ...dialect.ptx.text.syntax import Address, Immediate, Register, Symbol


@dataclass(eq=False, slots=True)
class VirtualRegister:
    """One register. `level` is the loop level it is set at; -1 while nothing is known of it.

    `divisor` divides its value; `bound`, if known, is larger than its value as an unsigned number.
    `base` and `offset` say that it was computed as base + offset.
    """

    type: str
    level: int = 0
    divisor: int = 1
    bound: int | None = None
    base: VirtualRegister | None = None
    offset: int = 0


IndexValue: TypeAlias = VirtualRegister | int
"""What an index is at this level: a register, or a number known while compiling."""


class At(NamedTuple):
    """The memory `offset` bytes behind what a register points to."""

    base: VirtualRegister
    offset: int = 0

    def behind(self, bytes: int) -> At:
        """The address so many bytes further on."""
        return At(self.base, self.offset + bytes)


class Second(NamedTuple):
    """The second of two results, a predicate; the first is discarded."""

    predicate: VirtualRegister


class TensorBox(NamedTuple):
    """The box of a tensor map that begins at coordinates, the fastest first."""

    map: VirtualRegister
    coordinates: Sequence[IndexValue]


ScalarOperand: TypeAlias = VirtualRegister | int | Immediate | Symbol | Register | Address
"""An operand with at most one register."""

EmittedOperand: TypeAlias = ScalarOperand | At | Second | TensorBox | list[VirtualRegister] | tuple[int, ...]
"""An operand. Several registers, or several numbers, are a vector, in braces."""

SINK = Symbol("_")
"""What takes a result that nobody wants."""


def word(bits: int, digits: int = 8) -> Immediate:
    """Bits as a literal, in hexadecimal."""
    return Immediate(f"0x{bits:0{digits}X}")


WARP = (word(0x1F, 2), word(0xFFFFFFFF))
"""The last operands of a shuffle: all lanes take part, and none is beyond the end of its segment."""


def floating(bits: int, width: int = 32) -> Immediate:
    """The f32, or the f64, of some bits as a literal."""
    return Immediate(f"0f{bits:08X}" if width == 32 else f"0d{bits:016X}")


def single(value: float) -> Immediate:
    """An f32 as a literal."""
    return floating(struct.unpack("<I", struct.pack("<f", value))[0])


class Written(NamedTuple):
    """Operands as text, with `?` for each of the registers. `kinds` says what decides whether an instruction takes
    them: types of registers, and where literals and symbols stand."""

    form: str
    registers: tuple[VirtualRegister, ...]
    kinds: tuple[object, ...]


def write(operands: Iterable[EmittedOperand]) -> Written:
    """The text of operands.

    Raises:
        TypeError: for what is no operand, such as text.
    """
    texts: list[str] = []
    registers: list[VirtualRegister] = []
    kinds: list[object] = []
    for operand in operands:
        if type(operand) is VirtualRegister:
            texts.append("?")
            registers.append(operand)
            kinds.append(operand.type)
        elif type(operand) is list:
            texts.append(_VECTORS[len(operand)])
            registers += operand
            kinds.append(tuple([item.type for item in operand]))
        elif type(operand) is At:
            base, offset = operand
            texts.append(f"[?+{offset}]" if offset > 0 else f"[?{offset}]" if offset else "[?]")
            registers.append(base)
            kinds.append(_ADDRESSES[base.type])
        elif type(operand) is int:
            texts.append(str(operand))
            kinds.append("#")
        else:
            texts.append(_write_other(operand, registers, kinds))
    return Written(", ".join(texts), tuple(registers), tuple(kinds))


_ADDRESSES = {type: f"[{type}]" for type in ("pred", "b16", "b32", "f32", "f64", "b64")}
_VECTORS = ["{" + ", ".join("?" * count) + "}" for count in range(257)]


def _write_other(operand: EmittedOperand, registers: list[VirtualRegister], kinds: list[object]) -> str:
    match operand:
        case TensorBox():
            registers.append(operand.map)
            along, held, given = write(operand.coordinates)
            registers += held
            kinds += ("box", operand.map.type, given)
            return f"[?, {{{along}}}]"
        case Second():
            registers.append(operand.predicate)
            kinds += ("_|", operand.predicate.type)
            return "_|?"
        case Immediate():
            kinds.append("0f" if isinstance(operand.value, float) else "#")
        case Symbol():
            kinds.append("_" if operand == SINK else "symbol")
        case Address():
            kinds.append("[symbol]")
        case Register():
            kinds.append(operand.name)
        case tuple() if all(type(item) is int for item in operand):
            kinds.append(("#",) * len(operand))
            return f"{{{', '.join(map(str, operand))}}}"
        case _:
            raise TypeError(f"expected an operand of an instruction, got {operand!r}")
    return operand_text(operand)
