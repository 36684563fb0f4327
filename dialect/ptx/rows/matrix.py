"""Matrix instructions, from the rows of `dialect.isa`: their operands follow from the fragment layouts."""

from __future__ import annotations

from ...isa.mma import ROWS as MMA
from ...isa.mma import Mma
from ...isa.moves import LDMATRIX
from .grammar import Row


def _mma(mma: Mma) -> Row:
    kinds = (
        f"{role}:{mma.registers(role)}*{'f32' if mma.element(role).name == 'f32' else 'b32'}"
        for role in ("d", "a", "b", "c")
    )
    return Row(mma.spelling, ", ".join(kinds), mma.section, mma.ptx, mma.sm)


ROWS = (
    *map(_mma, MMA),
    *(Row(move.spelling, f"d:{move.count}*b32, a:[]", move.section, move.ptx, move.sm) for move in LDMATRIX),
)
