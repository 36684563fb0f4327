"""Elements that change places within a lane, a register at a time."""

from __future__ import annotations

from collections.abc import Sequence

from .emitter import Emitter, VirtualRegister
from .fragments import Fragment

REGISTER_BITS = 32


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
        into = emitter.register("b32")
        emitter.emit("prmt.b32", f"?, ?, ?, 0x{selector:04X}", into, gathered, other)
        gathered = into
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
            moved = emitter.register("b32")
            emitter.emit(f"sh{'l' if shift > 0 else 'r'}.b32", f"?, ?, {abs(shift)}", moved, register)
        into = emitter.register("b32")
        if gathered is None:
            emitter.emit("and.b32", f"?, ?, 0x{mask:08X}", into, moved)
        else:
            # (moved & mask) | gathered in one instruction: 0xEA is the truth table of a & b | c.
            emitter.emit("lop3.b32", f"?, ?, 0x{mask:08X}, ?, 0xEA", into, moved, gathered)
        gathered = into
    return gathered if gathered is not None else wanted[0][0]
