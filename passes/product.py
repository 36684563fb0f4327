"""What a matrix product in `linalg` asks for, read once for the passes that lower it."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import DYNAMIC_INDEX, FloatAttr, MemRefType, NoneAttr
from xdsl.dialects.linalg.ops import MatmulOp
from xdsl.ir import SSAValue, TypeAttribute
from xdsl.ir.affine import AffineDimExpr, AffineMap

from ..dialect.isa.types import ElementType
from ..dialect.warp.attributes import element_row
from .diagnostics import fail
from .fold_fill import INITIAL_VALUE

M, N, K = 0, 1, 2
"""The dimensions of a product's iteration space, as `linalg.matmul` numbers them."""


@dataclass(frozen=True)
class Operand:
    """One matrix of a product: its memref, and whether memory holds its transpose."""

    name: str
    value: SSAValue
    type: MemRefType
    element: ElementType
    transposed: bool

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) in memory."""
        rows, columns = self.type.get_shape()
        return rows, columns

    @property
    def element_type(self) -> TypeAttribute:
        return self.type.element_type


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
    initial: FloatAttr | None


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
    initial = op.attributes.get(INITIAL_VALUE)
    return Product(op, m, c.shape[1], k, a, b, c, initial if isinstance(initial, FloatAttr) else None)


def _operand(op: MatmulOp, name: str, value: SSAValue, axes: tuple[int, int], map_: AffineMap) -> Operand:
    kind = value.type
    if not isinstance(kind, MemRefType):
        fail(op, f"expected {name} to be a memref, got {kind}; bufferize tensors first")
    if DYNAMIC_INDEX in kind.get_shape():
        fail(op, f"expected {name} of static size, got {kind}")
    if not isinstance(kind.layout, NoneAttr):
        fail(op, f"expected {name} to be contiguous and row-major, got {kind}")
    element = element_row(kind.element_type)
    if element is None:
        fail(op, f"expected {name} of f16, bf16 or f32, got {kind.element_type}")
    order = tuple(e.position for e in map_.results if isinstance(e, AffineDimExpr))
    if order not in (axes, axes[::-1]):
        fail(op, f"expected {name} to be indexed by d{axes[0]} and d{axes[1]}, got {map_}")
    return Operand(name, value, kind, element, order != axes)
