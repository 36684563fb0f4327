"""What a matrix product in `linalg` asks for, read once for the passes that lower it."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from xdsl.dialects.builtin import DYNAMIC_INDEX, NoneAttr, StridedLayoutAttr
from xdsl.ir import SSAValue, TypeAttribute
from xdsl.ir.affine import AffineMap

from ..dialect.isa import mma
from ..dialect.isa.types import ELEMENT_TYPES, ElementType
from ..dialect.layout import LANES
from ..dialect.warp.attributes import Memory, element_row, memory_of, memory_space
from ..dialect.warp.matmul import OPERAND_LOOPS, MatmulOp, loops_of
from .diagnostics import fail

METADATA_ROWS, NIBBLES = 16, 8
"""Rows of a sparse A that one word of each lane describes, and codes in a word."""

GLOBAL_SPACE = 0
"""The memory space of operands: none named, or 0."""

RESULTS = {"s32": ("s32",), "f64": ("f64",)}
"""The types of C and D by that of the accumulators; other accumulators are converted to every type of f16 to f32."""

PTX_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_$]*|[_$%][A-Za-z0-9_$]+")
"""What an identifier may be (PTX ISA 4.4)."""


@dataclass(frozen=True)
class Operand:
    """One matrix of a product: its memref, and whether memory holds its transpose.

    `element` is the type that it is multiplied, added or stored as.
    """

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
    """D (m x n) = C + A (m x k) * B (k x n), or D = initial + A * B where there is no C.

    Of a sparse A the m x k/2 stored elements are in memory, and `metadata` says where they belong.
    """

    op: MatmulOp
    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    c: Operand | None
    d: Operand
    initial: float | None
    metadata: Operand | None = None

    @property
    def sparsity(self) -> int:
        """How many elements of A there are for each that is stored: 2 if A is sparse, else 1."""
        return self.op.sparsity

    @property
    def memories(self) -> tuple[Operand, ...]:
        """The operands of the kernel: each memory once."""
        found = {
            operand.value: operand for operand in (self.a, self.metadata, self.b, self.c, self.d) if operand is not None
        }
        return tuple(found.values())


def read(op: MatmulOp) -> Product:
    """The product that a verified `warp.matmul` computes.

    Raises a located diagnostic for dynamic sizes, layouts and element types that are not lowered.
    """
    map_a, map_b, map_d = op.maps
    type_a, type_b = (ELEMENT_TYPES[name] for name in op.multiplied)
    a = _operand(op, "A", op.a, OPERAND_LOOPS[0], map_a, type_a)
    b = _operand(op, "B", op.b, OPERAND_LOOPS[1], map_b, type_b)
    c = None if op.c is None else _operand(op, "C", op.c, OPERAND_LOOPS[2], map_d)
    d = _operand(op, "C" if op.c in (None, op.d) else "D", op.d, OPERAND_LOOPS[2], map_d)
    if d.transposed:
        fail(op, "a product with a transposed C is not lowered; exchange A and B instead")
    _check_types(op, a, b, (d,) if c is None else (c, d))
    m, stored = a.shape[::-1] if a.transposed else a.shape
    k = stored * op.sparsity
    if 0 in d.shape:
        fail(op, f"C is empty, there is nothing to compute: {d.type}")
    initial = None if op.init is None else float(op.init.value.data)
    metadata = None if op.e is None else _operand(op, "E", op.e, (0, 1))
    if metadata is not None and a.transposed:
        fail(op, "a sparse A is stored row by row, it cannot be transposed")
    product = Product(op, m, d.shape[1], k, a, b, c, d, initial, metadata)
    _check_metadata(product)
    return product


def metadata_span(element: ElementType) -> int:
    """Columns of a sparse A that the metadata words of a warp describe, 16 rows of them (PTX ISA 9.7.14.6.1)."""
    from ..dialect.sparsity.patterns import pattern_of

    chunks = LANES * NIBBLES // METADATA_ROWS
    return chunks * pattern_of(element.name).chunk


def _check_metadata(product: Product) -> None:
    """Refuses metadata that is not the words of exactly the product's A."""
    if product.metadata is None:
        return
    rows, columns = -(-product.m // METADATA_ROWS), -(-product.k // metadata_span(product.a.element)) * LANES
    if product.metadata.shape != (rows, columns):
        fail(product.op, f"expected metadata of {rows}x{columns} words for a sparse A of {product.m}x{product.k} "
             f"{product.a.element.name}, got {product.metadata.type}")  # fmt: skip


def _check_types(op: MatmulOp, a: Operand, b: Operand, results: Collection[Operand]) -> None:
    """Refuses element types that no instruction multiplies, or whose products go to another type."""
    if a.element.name == b.element.name == "f32":
        fail(op, "no instruction multiplies f32 x f32 whole; as tf32, which drops 13 of the 23 bits of each fraction, "
             "it is multiplied if asked for: warp-raise-matmul{tf32=true}, compile(tf32=True), run --tf32")  # fmt: skip
    rows = mma.of_types(a.element.name, b.element.name)
    if not rows:
        like = sorted({y for x, y in mma.pairs() if x == a.element.name})
        instead = f"; {a.element.name} is multiplied with {', '.join(like)}" if like else ""
        fail(op, f"no mma multiplies {a.element.name} x {b.element.name}{instead}")
    stored = RESULTS.get(rows[0].d.name, ("f16", "bf16", "f32"))
    for operand in results:
        if operand.element.name not in stored:
            fail(op, f"expected {operand.name} of {' or '.join(stored)} for a product of {a.element.name} x "
                 f"{b.element.name}, got {operand.element.name}")  # fmt: skip


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


def _operand(
    op: MatmulOp,
    name: str,
    value: SSAValue,
    loops: tuple[int, int],
    map_: AffineMap | None = None,
    element: ElementType | None = None,
) -> Operand:
    kind = memory_of(value)
    if DYNAMIC_INDEX in kind.get_shape():
        fail(op, f"expected {name} of static size, got {kind}")
    if not is_contiguous(kind):
        fail(op, f"expected {name} to be contiguous and row-major, got {kind}")
    if memory_space(kind) != GLOBAL_SPACE:
        fail(op, f"expected {name} in global memory, got {kind}")
    stored, element_type = element_row(kind.element_type), kind.element_type
    if stored is None or not isinstance(element_type, TypeAttribute):
        fail(op, f"expected {name} of a type that matrix instructions know, got {kind.element_type}")
    return Operand(name, value, kind, element_type, element or stored, map_ is not None and loops_of(map_) != loops)
