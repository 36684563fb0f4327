"""What a matrix product in `linalg` asks for, read once for the passes that lower it."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType
from xdsl.ir import Operation, SSAValue, TypeAttribute
from xdsl.ir.affine import AffineMap

from ...dialect.isa import mma
from ...dialect.isa.mma import Variant
from ...dialect.isa.types import ELEMENT_TYPES, ElementType
from ...dialect.layouts.layout import LANES
from ...dialect.warp.attributes import BYTE, Memory, element_row, memory_of, memory_space
from ...dialect.warp.loops import OPERAND_LOOPS, K, M, N, loops_of
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.view import strides_of
from ..diagnostics import fail
from . import extents
from .operand import KernelArgument, MatrixOperand, Spread, VectorOperand, each_once

METADATA_ROWS, NIBBLES = 16, 8
"""Rows of a sparse A that one word of each lane describes, and codes in a word."""

MOST_MATRICES = 65535
"""The largest z of a grid (CUDA Programming Guide, Technical Specifications per Compute Capability)."""

GLOBAL_SPACE = 0
"""The memory space of operands: none named, or 0."""

RESULTS = {"s32": ("s32",), "f64": ("f64",)}
"""The types of C and D by that of the accumulators; other accumulators are converted to every type of f16 to f32."""

PTX_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_$]*|[_$%][A-Za-z0-9_$]+")
"""What an identifier may be (PTX ISA 4.4)."""


@dataclass(frozen=True)
class Product:
    """D (m x n) = C + A (m x k) * B (k x n), or D = initial + A * B where there is no C; then the epilogue.

    `element_type` is what an element of the product is rounded to before it is stored, or taken by the epilogue with
    one of each extra. Of a sparse A the m x k/2 stored elements are in memory, and `metadata` says where they belong.
    `scales` are those of the blocks of A's rows and of B's columns, or none; `group_scales` those of groups along k of
    a B of integers, in memory as B.
    `batch` are the sizes of the loops around the product, `summed` those of the loops that are summed over beside k.

    `dynamic` are the loops, by number, whose sizes are not known: there is a sample for each (`extents.py`), which
    nothing but its divisors may be concluded from.
    """

    op: MatmulOp
    m: int
    n: int
    k: int
    a: MatrixOperand
    b: MatrixOperand
    c: MatrixOperand | None
    d: MatrixOperand
    initial: float | None
    element_type: TypeAttribute
    epilogue_operands: tuple[KernelArgument, ...] = ()
    metadata: MatrixOperand | None = None
    scales: tuple[MatrixOperand, ...] = ()
    group_scales: MatrixOperand | None = None
    batch: tuple[int, ...] = ()
    summed: tuple[int, ...] = ()
    dynamic: frozenset[int] = frozenset()

    def is_known(self, axis: str) -> bool:
        """Whether the size along "m", "n" or "k" is known; of "k", also those of the other loops that are summed."""
        first = len(self.batch) + len(self.summed)
        beside = range(len(self.batch), first) if axis == "k" else ()
        return self.dynamic.isdisjoint((first + "mnk".index(axis), *beside))

    @property
    def depth(self) -> int:
        """How many products are added up for an element of D."""
        return self.k * math.prod(self.summed)

    def k_tiles(self, cta_k: int) -> int:
        """K tiles of this depth: those of one k, for each index of the other loops that are summed."""
        return -(-self.k // cta_k) * math.prod(self.summed)

    @property
    def group(self) -> int:
        """How many neighbours along k have a scale of their own in each column of B; 0 where none do."""
        return 0 if self.group_scales is None else self.k // self.group_scales.type.get_shape()[self.group_axis]

    @property
    def group_axis(self) -> int:
        """The dimension of the scales of groups that runs along k."""
        return loops_of(self.op.group_map).index(K)

    @property
    def sparsity(self) -> int:
        """How many elements of A there are for each that is stored: 2 if A is sparse, else 1."""
        return self.op.sparsity

    @property
    def variant(self) -> Variant:
        """What tells its instructions from others for the same element types."""
        return self.op.variant

    @property
    def operands(self) -> tuple[KernelArgument, ...]:
        """The operands of the operation, in order."""
        of_b = (self.b, self.group_scales)
        every = (self.a, self.metadata, *of_b, *self.scales, self.c, self.d, *self.epilogue_operands)
        return tuple(operand for operand in every if operand is not None)

    @property
    def memories(self) -> tuple[KernelArgument, ...]:
        """The operands of the kernel: each memory and each number once."""
        return each_once(self.operands)


def read(op: MatmulOp) -> Product:
    """The product that a verified `warp.matmul` computes.

    Raises a located diagnostic for layouts and element types that are not lowered.
    """
    type_a, type_b = (ELEMENT_TYPES[name] for name in op.multiplied)
    map_a, map_b, map_d = op.maps[:3]
    sizes, dynamic = _sizes(op)
    a = _operand(op, "A", op.a, OPERAND_LOOPS[0], sizes, map_a, type_a)
    b = replace(_operand(op, "B", op.b, OPERAND_LOOPS[1], sizes, map_b, type_b), stored=op.b_stored)
    c = None if op.c is None else _operand(op, "C", op.c, OPERAND_LOOPS[2], sizes, map_d)
    d = _operand(op, "C" if op.c in (None, op.d) else "D", op.d, OPERAND_LOOPS[2], sizes, map_d)
    if d.transposed:
        fail(op, "a product with a transposed C is not lowered; exchange A and B instead")
    results = {} if c is None else {c.name: c.element_type}
    results[d.name if op.epilogue is None else "the product"] = _type(op)
    _check_types(op, a, b, results)
    _check_packed(op, a, b)
    *outer, m, n, k = (sizes[loop] for loop in range(len(sizes)))
    if 0 in d.type.get_shape():
        fail(op, f"C is empty, there is nothing to compute: {d.type}")
    initial = None if op.init is None else float(op.init.value.data)
    if op.e is not None and (dynamic or DYNAMIC_INDEX in memory_of(op.e).get_shape()):
        fail(op, f"a sparse A and its metadata need static sizes, got {op.a.type} and {op.e.type}")
    metadata = None if op.e is None else _operand(op, "E", op.e, (0, 1), {})
    if metadata is not None and (a.transposed or metadata.transposed):
        fail(op, "a sparse A is stored row by row, it cannot be transposed")
    if metadata is not None and op.outer:
        fail(op, "a sparse A in a batch is not lowered; write a product for each matrix")
    if op.scales and op.outer > op.batch:
        fail(op, "a scaled product that is summed over several loops is not lowered; write a product for each")
    known = math.prod(sizes[loop] for loop in range(op.batch) if loop not in dynamic)
    if known > MOST_MATRICES:
        fail(op, f"a batch has at most {MOST_MATRICES} matrices, the z of a grid, got {known}")
    product = Product(
        op, m, n, k, a, b, c, d, initial, _type(op), _extras(op, sizes), metadata, _scales(op),
        _group_scales(op),
        tuple(outer[: op.batch]), tuple(outer[op.batch :]), dynamic,
    )  # fmt: skip
    _check_metadata(product)
    _check_scales(product)
    return product


def _scales(op: MatmulOp) -> tuple[MatrixOperand, ...]:
    given = zip("AB", op.scales, (M, N), op.scale_maps, strict=False)
    return tuple(_operand(op, f"S{name}", value, (own, K), {}, map_) for name, value, own, map_ in given)


def _group_scales(op: MatmulOp) -> MatrixOperand | None:
    if op.group_scales is None:
        return None
    return _operand(op, "SG", op.group_scales, OPERAND_LOOPS[1], {}, op.group_map)


def _check_scales(product: Product) -> None:
    """Refuses scaled products whose operands do not lie as the instruction names the elements of a block."""
    op = product.op
    if not product.scales:
        return
    for name, operand, along_k in (("A", product.a, not product.a.transposed), ("B", product.b, product.b.transposed)):
        if not along_k:
            where = "by rows" if name == "A" else "by columns"
            fail(op, f"expected {name} of a scaled product {where}, along which it is scaled, got {operand.type}")
    for operand in product.scales:
        if operand.transposed:
            fail(op, f"expected the scales of a row or a column side by side in memory, got {operand.type}")
    if product.dynamic or any(DYNAMIC_INDEX in operand.type.get_shape() for operand in product.scales):
        fail(op, f"a scaled product needs static sizes, got {op.a.type} and {op.b.type}")
    if product.metadata is not None:
        fail(op, "a sparse A with scales is not lowered")


def _type(op: MatmulOp) -> TypeAttribute:
    kind = op.product_type
    if element_row(kind) is None:
        fail(op, f"a product rounded to {kind} is not lowered")
    return kind


def _extras(op: MatmulOp, sizes: Mapping[int, int]) -> tuple[KernelArgument, ...]:
    found: list[KernelArgument] = []
    axes = {op.outer + loop: name for loop, name in zip(OPERAND_LOOPS[2], "mn", strict=True)}
    for number, (value, map_) in enumerate(zip(op.epilogue_operands, op.maps[len(OPERAND_LOOPS) :], strict=True)):
        name = f"X{number}"
        if not isinstance(value.type, MemRefType):
            found.append(VectorOperand(name, value, ""))
        else:
            found.append(_memory_extra(op, name, value, map_, axes, sizes))
    return tuple(found)


def _memory_extra(
    op: MatmulOp, name: str, value: SSAValue, map_: AffineMap, axes: Mapping[int, str], sizes: Mapping[int, int]
) -> KernelArgument:
    """An epilogue operand in memory; `axes` names the loops of the product."""
    loops, kind, row = loops_of(map_), memory_of(value), element_row(memory_of(value).element_type)
    strides, what = strides_of(kind), f"epilogue operand {name.removeprefix('X')}"
    if memory_space(kind) != GLOBAL_SPACE or strides is None:
        fail(op, f"expected {what} in global memory, strided, got {kind}")
    if row is None or row.bits < BYTE:
        fail(op, f"expected elements of a byte or more of {what}, got {kind}")
    m, n = (loops.index(loop) if loop in loops else None for loop in axes)
    if n is not None and m is not None and strides[n] == 1:
        # Where D has one row, the operand may lie as a column.
        found = _operand(op, name, value, OPERAND_LOOPS[2], sizes, map_)
        if not found.transposed:
            return found
    if len(loops) == 1 and loops[0] in axes and strides == (1,) and min(kind.get_shape()) >= 0 and row.bits > BYTE:
        return VectorOperand(name, value, axes[loops[0]])
    others = tuple(loop for loop in loops if loop not in axes)
    return Spread(name, value, (m, n), others, extents.divisor_of(value))


def metadata_span(element: ElementType) -> int:
    """Columns of a sparse A that the metadata words of a warp describe, 16 rows of them (PTX ISA 9.7.14.6.1)."""
    from ...dialect.sparsity.patterns import pattern_of

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


def _check_types(op: MatmulOp, a: MatrixOperand, b: MatrixOperand, results: Mapping[str, TypeAttribute]) -> None:
    """Refuses element types that no instruction multiplies, or whose products go to another type."""
    if a.element.name == b.element.name == "f32":
        fail(op, "no instruction multiplies f32 x f32 whole; as tf32, which drops 13 of the 23 bits of each fraction, "
             "it is multiplied if asked for: warp-raise-matmul{tf32=true}, compile(tf32=True), run --tf32")  # fmt: skip
    rows = mma.of_types(a.element.name, b.element.name, op.variant)
    if not rows:
        like = sorted({y for x, y in mma.pairs(op.variant) if x == a.element.name})
        instead = f"; {a.element.name} is multiplied with {', '.join(like)}" if like else ""
        kind = f" of kind {op.variant.kind}" if op.variant.kind else ""
        fail(op, f"no mma{kind} multiplies {a.element.name} x {b.element.name}{instead}")
    stored = RESULTS.get(rows[0].d.name, ("f16", "bf16", "f32"))
    for name, kind in results.items():
        row = element_row(kind)
        if row is None or row.name not in stored:
            fail(op, f"expected {name} of {' or '.join(stored)} for a product of {a.element.name} x {b.element.name}, "
                 f"got {kind if row is None else row.name}")  # fmt: skip


def _check_packed(op: MatmulOp, a: MatrixOperand, b: MatrixOperand) -> None:
    """Refuses operands that no load can turn: elements that share a byte must be neighbours along k."""
    for name, operand, along_k in (("A", a, not a.transposed), ("B", b, b.transposed)):
        if operand.element.name in ("b1", "e2m1") and not along_k:
            where = f"neighbours along k side by side in memory ({'A by rows' if name == 'A' else 'B by columns'})"
            fail(op, f"expected {name} of {operand.element.name} with {where}, got {operand.type}")


def fresh_name(wanted: str, taken: Collection[str]) -> str:
    """`wanted`, with a number if it is taken."""
    names = (wanted, *(f"{wanted}_{i}" for i in range(1, len(taken) + 1)))
    return next(name for name in names if name not in taken)


def _sizes(op: MatmulOp) -> tuple[dict[int, int], frozenset[int]]:
    """The size of each loop, a sample for those that no operand tells, and which these are."""
    sizes: dict[int, int] = {}
    divisors = dict.fromkeys(range(op.outer + len(OPERAND_LOOPS)), 1)
    for operand, map_ in zip((op.a, op.b, op.d), op.maps, strict=False):
        kind = memory_of(operand)
        strides = strides_of(kind) or (None,) * kind.get_num_dims()
        for loop, size, stride in zip(loops_of(map_), kind.get_shape(), strides, strict=True):
            if size >= 0:
                sparse = operand is op.a and loop == op.outer + K
                sizes[loop] = size * op.sparsity if sparse else size
            elif stride == 1:
                divisors[loop] = math.lcm(divisors[loop], extents.divisor_of(operand))
    dynamic = frozenset(divisors.keys() - sizes.keys())
    return {loop: sizes.get(loop, extents.sample(divisor)) for loop, divisor in divisors.items()}, dynamic


def _operand(
    op: MatmulOp,
    name: str,
    value: SSAValue,
    loops: tuple[int, int],
    sizes: Mapping[int, int],
    map_: AffineMap | None = None,
    element: ElementType | None = None,
) -> MatrixOperand:
    kind = memory_of(value)
    if memory_space(kind) != GLOBAL_SPACE:
        fail(op, f"expected {name} in global memory, got {kind}")
    stored, element_type = element_row(kind.element_type), kind.element_type
    if stored is None or not isinstance(element_type, TypeAttribute):
        fail(op, f"expected {name} of a type that matrix instructions know, got {kind.element_type}")
    found = range(2) if map_ is None else loops_of(map_)
    axes = tuple(found.index(op.outer * (map_ is not None) + loop) for loop in loops)
    row, column = lie_in_memory(op, name, kind, (axes[0], axes[1]))
    batch = tuple(loop for dimension, loop in enumerate(found) if dimension not in axes)
    lengths = tuple(s if s >= 0 else sizes[found[i]] for i, s in enumerate(kind.get_shape()))
    types = (element_type, element or stored)
    turned = (row, column) != axes
    return MatrixOperand(name, value, kind, *types, turned, (row, column), batch, lengths, extents.divisor_of(value))


def lie_in_memory(op: Operation, name: str, kind: Memory, axes: tuple[int, int]) -> tuple[int, int]:
    """Two dimensions of memory in the order (rows, columns) in which they lie there.

    Raises a located diagnostic if neighbours along neither are neighbours in memory.
    """
    strides = strides_of(kind)
    for row, column in (axes, axes[::-1]) if axes[0] < axes[1] else (axes[::-1], axes):
        if strides is not None and strides[column] == 1:
            return row, column
    fail(op, f"expected the elements of the rows or of the columns of {name} side by side in memory, got {kind}")
