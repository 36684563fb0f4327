"""The operands of a product: matrices, vectors and numbers, and how they lie in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.ir import SSAValue, TypeAttribute

from ...dialect.isa.types import ElementType
from ...dialect.warp.attributes import BYTE, Memory
from ...dialect.warp.stored import StoredIntegers
from ...dialect.warp.view import strides_of
from . import extents

MatrixPlace: TypeAlias = tuple[SSAValue, tuple[int | None, int | None], tuple[int, ...]]
"""Memory, the dimensions that are the rows and columns of a matrix in it, and the loops of the others."""


@dataclass(frozen=True)
class MatrixOperand:
    """One matrix of a product, or a batch of them: its memref, and whether memory holds its transpose.

    `element` is the type that it is multiplied, added or stored as; of one that is converted on the way, `stored` says
    what memory holds. `dimensions` are those of the memref that are the rows and the columns in memory, where
    neighbours in a row are neighbours in memory; `batch` says for each other dimension, in order, which loop it runs
    along. `samples` has a number for each dimension, instead of the size
    where that is not known (`extents.py`), and `divisor` divides those of columns, strides and offset.
    """

    name: str
    value: SSAValue
    type: Memory
    element_type: TypeAttribute
    element: ElementType
    transposed: bool
    dimensions: tuple[int, int] = (0, 1)
    batch: tuple[int, ...] = ()
    samples: tuple[int, ...] = ()
    divisor: int = 1
    stored: StoredIntegers | None = None

    @property
    def memory_bits(self) -> int:
        """Bits of an element in memory."""
        return (self.element if self.stored is None else self.stored.element).memory_bits

    @property
    def sizes(self) -> tuple[int, ...]:
        """The size of each dimension, or a sample."""
        return tuple(s if s >= 0 else self.samples[i] for i, s in enumerate(self.type.get_shape()))

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) in memory."""
        row, column = self.dimensions
        return self.sizes[row], self.sizes[column]

    @property
    def loops(self) -> tuple[int, int]:
        """The dimensions of the memref along the first and the second loop of the operand."""
        row, column = self.dimensions
        return (column, row) if self.transposed else (row, column)

    @property
    def pitch(self) -> int | None:
        """Elements from one row to the next; None if they are not known."""
        strides = strides_of(self.type)
        return None if strides is None else strides[self.dimensions[0]]

    @property
    def is_compact(self) -> bool:
        """Whether the memref is the matrix, of known size, row by row without gaps, from the start of an allocation."""
        strides = strides_of(self.type) or (None,)
        known = self.is_whole and min(self.type.get_shape()) >= 0
        return known and strides[0] == self.shape[1] and self.type.get_offset() == 0

    @property
    def aligned_bits(self) -> int:
        """Bits that divide the length of every row, and the place of each in memory."""
        row = -(-self.shape[1] * self.memory_bits // BYTE) * BYTE
        return math.gcd(row, self.pitch_bits)

    @property
    def pitch_bits(self) -> int:
        """Bits that divide the place of every row in memory."""
        return extents.pitch(self.type, self.dimensions[1], self.divisor, self.sizes) * self.memory_bits

    @property
    def place(self) -> MatrixPlace:
        """What tells the matrix from others in the same memory."""
        return self.value, self.dimensions, self.batch

    @property
    def is_whole(self) -> bool:
        """Whether the memref is the matrix, row by row."""
        return not self.batch and self.dimensions == (0, 1)


@dataclass(frozen=True)
class VectorOperand:
    """An epilogue operand that is no matrix: a number, or a vector along one of D's axes, "m" or "n"."""

    name: str
    value: SSAValue
    axis: str = ""
    divisor: int = 1


@dataclass(frozen=True)
class Spread:
    """An epilogue operand that lies otherwise than D: transposed, with gaps, the same for all rows or all
    columns, another for each of a batch. `dimensions` are those of the memref along m and n, None where it has none;
    `batch` says for each other, in order, which loop it runs along."""

    name: str
    value: SSAValue
    dimensions: tuple[int | None, int | None]
    batch: tuple[int, ...]
    divisor: int = 1

    @property
    def place(self) -> MatrixPlace:
        """What tells the matrix from others in the same memory."""
        return self.value, self.dimensions, self.batch

    @property
    def is_whole(self) -> bool:
        """It is always seen through `warp.matrix`."""
        return False


KernelArgument: TypeAlias = MatrixOperand | VectorOperand | Spread
"""What a kernel is given."""


def each_once(operands: Iterable[KernelArgument]) -> tuple[KernelArgument, ...]:
    """The first operand of each memory and of each number."""
    found: dict[SSAValue, KernelArgument] = {}
    for operand in operands:
        found.setdefault(operand.value, operand)
    return tuple(found.values())
