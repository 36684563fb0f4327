"""Block scaling: the scales of A and B, who holds them, and which selectors are legal.

Source: PTX ISA 9.7.14.3 (Block Scaling), tables 36 and 37, figures 43 to 45.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ..layouts.layout import Bit, Layout
from .form import SCALAR, SELECTOR, FormOperand
from .types import ElementType

SCALES_OF_WORD = 4
"""Scales that a lane has in a register."""

BYTE_IDS = {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}
"""Table 37: the legal byte-ids by scales per row; scale s of a row is byte `byte-id + s` of its lane's word."""

THREAD_IDS = {"a": (0, 1), "b": (0, 1, 2, 3)}
"""Table 37: which thread-ids are legal, by operand."""

_LAYOUTS = {
    # Lane 4g + 2 * thread-id + h holds the scales of row g + 8h of A (m x vector).
    "a": {
        1: Layout.parse("r3 t0 r0 r1 r2 | b0 b1", "rctb"),
        2: Layout.parse("r3 t0 r0 r1 r2 | c0 b0", "rctb"),
        4: Layout.parse("r3 t0 r0 r1 r2 | c0 c1", "rctb"),
    },
    # Lane 4n + thread-id holds the scales of column n of B (vector x n).
    "b": {
        1: Layout.parse("t0 t1 c0 c1 c2 | b0 b1", "rctb"),
        2: Layout.parse("t0 t1 c0 c1 c2 | r0 b0", "rctb"),
        4: Layout.parse("t0 t1 c0 c1 c2 | r0 r1", "rctb"),
    },
}

THREAD_BITS = {role: (len(legal) - 1).bit_length() for role, legal in THREAD_IDS.items()}


@cache
def _layout(role: str, vector: int, tiles: int) -> Layout:
    alone = _LAYOUTS[role][vector]
    if not 0 <= tiles <= THREAD_BITS[role]:
        raise ValueError(f"words of {1 << tiles} matrices share a register, {1 << THREAD_BITS[role]} at most can")
    axis, size = ("r", alone.rows) if role == "a" else ("c", alone.columns)
    tile, bits = size.bit_length() - 1, range(THREAD_BITS[role])
    names = {Bit("t", i): Bit(axis, tile + i) if i < tiles else Bit("t", i - tiles) for i in bits}
    return Layout(tuple(names.get(bit, bit) for bit in alone.lane), alone.element)


OPERANDS = (
    FormOperand("scale_a", SCALAR),
    FormOperand("selector_a", SELECTOR, "u16"),
    FormOperand("scale_b", SCALAR),
    FormOperand("selector_b", SELECTOR, "u16"),
)
"""What a block-scaled product takes after its other operands."""


@dataclass(frozen=True, slots=True)
class BlockScale:
    """How the multiplicands are scaled: `vector` scales of type `type` for each row of A and each column of B.

    `written` says whether the spelling names `.scale_vec::nX` or leaves it to the default of its kind.
    """

    vector: int
    type: ElementType
    written: bool = True

    def __post_init__(self) -> None:
        if self.vector not in BYTE_IDS:
            raise ValueError(f"a row has 1, 2 or 4 scales, got {self.vector}")

    @property
    def qualifiers(self) -> str:
        """The part of the spelling before the types."""
        return f".block_scale.scale_vec::{self.vector}X" if self.written else ".block_scale"

    @property
    def byte_ids(self) -> tuple[int, ...]:
        """The legal values of byte-id-a and byte-id-b."""
        return BYTE_IDS[self.vector]

    def shared_by(self, role: str, layout: Layout) -> int:
        """The `tiles` for which `layout(role, tiles)` is a layout; 0 if it is no layout of these scales."""
        return next((i for i in range(THREAD_BITS[role], 0, -1) if self.layout(role, i) == layout), 0)

    def thread_ids(self, role: str) -> tuple[int, ...]:
        """The legal values of thread-id-a (role "a") or thread-id-b."""
        return THREAD_IDS[role]

    def layout(self, role: str, tiles: int = 0) -> Layout:
        """Who holds the scales of A (m x vector) or B (vector x n): each element of a lane is a byte of its word.

        The axis `t` is the thread-id; the axis `b` is the byte-id, counted among the legal ones. The words of 2**tiles
        matrices may share a register, those of neighbours along m or n: the low bits of the thread-id then say which.

        Raises:
            ValueError: if the thread-id has fewer bits.
        """
        return _layout(role, self.vector, tiles)
