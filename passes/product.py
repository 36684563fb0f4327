"""What a matrix product in `linalg` asks for, read once for the passes that lower it."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from xdsl.dialects.builtin import DYNAMIC_INDEX, FloatAttr, MemRefType, NoneAttr, StridedLayoutAttr
from xdsl.dialects.linalg.ops import MatmulOp
from xdsl.ir import SSAValue, TypeAttribute
from xdsl.ir.affine import AffineDimExpr, AffineMap

from ..dialect.isa.types import ElementType
from ..dialect.warp.attributes import Memory, element_row, memory_of, memory_space
from .diagnostics import fail
from .fold_fill import INITIAL_VALUE

GLOBAL_SPACE = 0
"""The memory space of operands: none named, or 0."""

PTX_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_$]*|[_$%][A-Za-z0-9_$]+")
"""What an identifier may be (PTX ISA 4.4)."""

M, N, K = 0, 1, 2
"""The dimensions of a product's iteration space, as `linalg.matmul` numbers them."""


@dataclass(frozen=True)
class Operand:
    """One matrix of a product: its memref, and whether memory holds its transpose."""

    name: str
    value: SSAValue
    type: Memory
    element_type: TypeAttribute
    element: ElementType
    transposed: bool

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) in memory."""
        rows, columns = self.type.get_shape()
        return rows, columns


@dataclass(frozen=True)
class Product:
    """C (m x n) = initial + A (m x k) * B (k x n).

    `initial` is the constant that the output starts from, or None for what memory holds.
    """

    op: MatmulOp
    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    c: Operand
    initial: float | None


def read(op: MatmulOp) -> Product:
    """The product that a verified `linalg.matmul` computes.

    Raises a located diagnostic for tensors, dynamic sizes, layouts and element types that are not lowered.
    """
    maps = [attribute.data for attribute in op.get_indexing_maps()]
    a, b, c = (
        _operand(op, name, value, axes, map_)
        for (name, axes), value, map_ in zip(
            (("A", (M, K)), ("B", (K, N)), ("C", (M, N))), (*op.inputs, *op.outputs), maps, strict=True
        )
    )
    if c.transposed:
        fail(op, "linalg.matmul with a transposed C is not lowered; exchange A and B instead")
    if a.element != b.element:
        fail(op, f"expected A and B of one element type, got {a.element.name} and {b.element.name}")
    if a.element.bits != 16:
        fail(op, f"expected A and B of f16 or bf16, got {a.element.name}")
    m, k = a.shape[::-1] if a.transposed else a.shape
    if 0 in c.shape:
        fail(op, f"C is empty, there is nothing to compute: {c.type}")
    return Product(op, m, c.shape[1], k, a, b, c, _initial(op))


def is_contiguous(kind: Memory) -> bool:
    """Whether a memref's elements lie row by row without gaps, from its start."""
    layout = kind.layout
    if isinstance(layout, StridedLayoutAttr):
        rows = [1]
        for size in reversed(kind.get_shape()[1:]):
            rows.insert(0, rows[0] * size)
        return tuple(layout.get_strides()) == tuple(rows) and layout.get_offset() == 0
    return isinstance(layout, NoneAttr)


def fresh_name(wanted: str, taken: Collection[str]) -> str:
    """`wanted`, with a number if it is taken."""
    names = (wanted, *(f"{wanted}_{i}" for i in range(1, len(taken) + 1)))
    return next(name for name in names if name not in taken)


def _initial(op: MatmulOp) -> float | None:
    value = op.attributes.get(INITIAL_VALUE)
    return value.value.data if isinstance(value, FloatAttr) else None


def _operand(op: MatmulOp, name: str, value: SSAValue, axes: tuple[int, int], map_: AffineMap) -> Operand:
    if not isinstance(value.type, MemRefType):
        fail(op, f"expected {name} to be a memref, got {value.type}; bufferize tensors first")
    kind = memory_of(value)
    if DYNAMIC_INDEX in kind.get_shape():
        fail(op, f"expected {name} of static size, got {kind}")
    if not is_contiguous(kind):
        fail(op, f"expected {name} to be contiguous and row-major, got {kind}")
    if memory_space(kind) != GLOBAL_SPACE:
        fail(op, f"expected {name} in global memory, got {kind}")
    element, element_type = element_row(kind.element_type), kind.element_type
    if element is None or not isinstance(element_type, TypeAttribute):
        fail(op, f"expected {name} of f16, bf16 or f32, got {kind.element_type}")
    order = tuple(e.position for e in map_.results if isinstance(e, AffineDimExpr))
    if order not in (axes, axes[::-1]):
        fail(op, f"expected {name} to be indexed by d{axes[0]} and d{axes[1]}, got {map_}")
    return Operand(name, value, kind, element_type, element, order != axes)
