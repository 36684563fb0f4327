"""Elements that change places within a lane, a register at a time."""

from __future__ import annotations

from collections.abc import Sequence

from .emitter import Emitter
from .fragments import Fragment
from .operands import VirtualRegister, word

REGISTER_BITS = 32

AND_OR = word(0xEA, 2)
"""The truth table of a & b | c."""


def gather(emitter: Emitter, tile: Fragment, places: Sequence[tuple[int, int]], bits: int) -> VirtualRegister:
    """A register of the elements at (register, number within it)."""
    registers = {register for register, _ in places}
    if len(registers) == 1 and [number for _, number in places] == [*range(len(places))]:
        return tile[places[0][0]]
    if bits >= 8:
        parts = bits // 8
        found = [(tile[register], number * parts + i) for register, number in places for i in range(parts)]
        return _bytes(emitter, found)
    return _bits(emitter, [(tile[register], number * bits) for register, number in places], bits)


def _bytes(emitter: Emitter, wanted: Sequence[tuple[VirtualRegister, int]]) -> VirtualRegister:
    """Four bytes gathered by `prmt`, one for each source after the first."""
    first, *others = dict.fromkeys(register for register, _ in wanted)
    gathered = first
    for other in others or [first]:
        # Bytes that wait for a later source are whatever is there.
        selector = 0
        for i, (register, byte) in enumerate(wanted):
            mine = byte + 4 if register is other and other is not first else byte if gathered is first else i
            selector |= mine << 4 * i
        gathered = emitter.compute("prmt.b32", gathered, other, word(selector, 4))
    return gathered


def _bits(emitter: Emitter, wanted: Sequence[tuple[VirtualRegister, int]], bits: int) -> VirtualRegister:
    """Elements gathered by shifts and masks: those that come from one register by one distance move together."""
    masks: dict[tuple[VirtualRegister, int], int] = {}
    for i, (register, at) in enumerate(wanted):
        shift = i * bits - at
        masks[register, shift] = masks.get((register, shift), 0) | ((1 << bits) - 1) << i * bits
    gathered: VirtualRegister | None = None
    for (register, shift), mask in masks.items():
        moved = register
        if shift:
            moved = emitter.compute("shl.b32" if shift > 0 else "shr.b32", register, abs(shift))
        if gathered is None:
            gathered = emitter.compute("and.b32", moved, word(mask))
        else:
            # (moved & mask) | gathered in one instruction.
            gathered = emitter.compute("lop3.b32", moved, word(mask), gathered, AND_OR)
    return gathered if gathered is not None else wanted[0][0]
