"""Rows of the warp-level matrix moves: `ldmatrix`.

Source: PTX ISA 9.7.14.5.15 (ldmatrix).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..layout import Layout
from .targets import Target, Version


@dataclass(frozen=True, slots=True)
class LoadMatrix:
    """One form of `ldmatrix`: `count` matrices of 8 rows of 16 bytes from shared memory.

    Lane 8*j + i gives the address of row i of matrix j; matrix j arrives in register j of each lane.
    """

    count: int
    transpose: bool
    ptx: Version = (6, 5)
    sm: int = 75
    section: str = "9.7.14.5.15"

    def __post_init__(self) -> None:
        if self.count not in (1, 2, 4):
            raise ValueError(f"ldmatrix loads 1, 2 or 4 matrices, got {self.count}")

    @property
    def spelling(self) -> str:
        """The PTX opcode for an address in the shared window."""
        trans = ".trans" if self.transpose else ""
        return f"ldmatrix.sync.aligned.m8n8.x{self.count}{trans}.shared.b16"

    @property
    def layout(self) -> Layout:
        """Where the elements of one 8x8 matrix of 16-bit elements arrive, rows being rows in memory."""
        plain = Layout.parse("c1 c2 r0 r1 r2 | c0")
        return plain.transposed() if self.transpose else plain

    def runs_on(self, target: Target) -> bool:
        return target.sm >= self.sm


LDMATRIX: tuple[LoadMatrix, ...] = tuple(LoadMatrix(n, t) for t in (False, True) for n in (1, 2, 4))
