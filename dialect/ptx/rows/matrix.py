"""Matrix instructions, from the rows of `dialect.isa`: their operands follow from the fragment layouts."""

from __future__ import annotations

from ...isa.mma import ROWS as MMA
from ...isa.mma import Mma
from ...isa.moves import LDMATRIX
from .grammar import Row

_HELD_AS = {"f16": "f16x2", "bf16": "bf16x2", "f32": "f32"}
"""How a 32-bit register holds elements of a type: what decides the register types that are legal."""


def _mma(mma: Mma) -> Row:
    roles = ("d", "a", "b", "c")
    kinds = [f"{role}:{mma.registers(role)}*{_HELD_AS.get(mma.element(role).name, 'b32')}" for role in roles]
    return Row(mma.spelling, ", ".join(kinds), mma.section, mma.ptx, mma.sm)


ROWS = (
    *map(_mma, MMA),
    *(Row(move.spelling, f"d:{move.count}*b32, a:[]", move.section, move.ptx, move.sm) for move in LDMATRIX),
)
