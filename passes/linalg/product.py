"""What a matrix product in `linalg` asks for, read once for the passes that lower it."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import SSAValue, TypeAttribute
from xdsl.ir.affine import AffineMap

from ...dialect.isa import mma
from ...dialect.isa.form import ELEMENT_TYPES, IN_BYTES, ElementType
from ...dialect.isa.mma import Variant
from ...dialect.mlir.affine import loops_of, map_along, strides_of
from ...dialect.warp.attributes import BYTE, element_row, memory_of, memory_space
from ...dialect.warp.elements import OPERAND_LOOPS, K, M, N, companion_loops
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.mma import TileMmaOp
from ...dialect.warp.operands import METADATA_ROWS, PairedOp
from ...dialect.warp.stored import StoredIntegers
from ...dialect.warp.tensor_maps import Im2colOp
from ..diagnostics import fail
from . import operand as extents
from .operand import GLOBAL_SPACE, KernelArgument, MatrixOperand, Spread, VectorOperand, each_once, read_matrix

MatrixFactor: TypeAlias = "MatrixOperand | TileFactor"
"""A or B."""

Multiplied: TypeAlias = "Product | TileProduct"
"""A product by its factors."""


def along_k(product: Multiplied, role: str) -> bool:
    """Whether k runs along the rows of operand "a" or "b" in memory."""
    return not product.a.transposed if role == "a" else product.b.transposed


def block(product: Multiplied) -> int:
    """How many elements along k share a scale; 0 where there are none."""
    return mma.blocks()[product.variant] if product.variant.scale_type else 0


def shared_bits(product: Multiplied, factor: MatrixFactor) -> int:
    """Bits of an element of A or B in shared memory; some instructions need a byte for each."""
    element = factor.element if factor.stored is None else factor.stored.element
    return BYTE if product.variant.kind in IN_BYTES else element.memory_bits


class TileFactor(NamedTuple):
    """A tile of A or B in shared memory."""

    element: ElementType
    transposed: bool
    stored: StoredIntegers | None = None
    packed: bool = False


class TileProduct(NamedTuple):
    """The product of tiles that a verified `warp.tile_mma` computes."""

    op: TileMmaOp
    a: TileFactor
    b: TileFactor
    variant: Variant
    sparsity: int

    @staticmethod
    def of(op: TileMmaOp) -> TileProduct:
        """The tile product of an operation."""
        turned = (op.transposed_a is not None, op.transposed_b is not None)
        a = TileFactor(ELEMENT_TYPES[op.multiplied[0]], turned[0])
        b = TileFactor(ELEMENT_TYPES[op.multiplied[1]], turned[1], op.b_stored, op.is_packed)
        return TileProduct(op, a, b, op.variant, op.sparsity)


def read_scales(
    op: MatmulOp, a: MatrixOperand, b: MatrixOperand, sizes: Mapping[int, int]
) -> tuple[MatrixOperand, ...]:
    """The scales of A and B. `sizes` are those of the product's loops. Raises a located diagnostic for scaled products
    that are not lowered, because operands do not lie in the order in which the instruction numbers the elements of a
    block."""
    if op.outer > op.batch:
        fail(op, "a scaled product that is summed over several loops is not lowered; write a product for each")
    if any(memory_of(each).get_shape()[-1] < 0 for each in (*op.matrices, *op.scales)):
        fail(op, f"a scaled product needs a static size along k, got {a.type} and {b.type}")
    operands = zip("AB", op.scales, (M, N), op.maps, strict=False)
    along = [(n, s, own, map_along(op.outer + 3, companion_loops(m, own, op.outer))) for n, s, own, m in operands]
    scales = tuple(read_matrix(op, f"S{name}", s, (own, K), sizes, map_) for name, s, own, map_ in along)
    for name, operand, along_k in (("A", a, not a.transposed), ("B", b, b.transposed)):
        if not along_k:
            where = "by rows" if name == "A" else "by columns"
            fail(op, f"expected {name} of a scaled product {where}, along which it is scaled, got {operand.type}")
    for operand in scales:
        if operand.transposed:
            fail(op, f"expected the scales of a row or a column side by side in memory, got {operand.type}")
    return scales


def read_metadata(op: MatmulOp, value: SSAValue, a: MatrixOperand, sizes: Mapping[int, int]) -> MatrixOperand:
    """The metadata of a sparse A. Raises a located diagnostic if it is not lowered."""
    if any(memory_of(each).get_shape()[-1] < 0 for each in (op.matrices[0], value)):
        fail(op, f"a sparse A and its metadata need a static size along k, got {a.type} and {value.type}")
    if op.outer > op.batch:
        fail(op, "a product of a sparse A that is summed over several loops is not lowered; write a product for each")
    loops, row = map_along(op.outer + 3, companion_loops(op.maps[0], M, op.outer)), op.outer + M
    # Of a number of rows that is not known nothing may be concluded: an odd one divides no tile.
    words = {**sizes, row: -(-sizes[row] // METADATA_ROWS) | 1}
    metadata = read_matrix(op, "E", value, (M, K), words, loops)
    if a.transposed or metadata.transposed:
        fail(op, "a sparse A is stored row by row, it cannot be transposed")
    return metadata


LARGEST_GRID = (1 << 31) - 1
"""The largest x of a grid (CUDA Programming Guide, Technical Specifications per Compute Capability)."""

RESULTS = {"s32": ("s32",), "f64": ("f64",)}
"""The types of C and D by that of the accumulators; other accumulators are converted to every type of f16 to f32."""

PTX_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_$]*|[_$%][A-Za-z0-9_$]+")
"""What an identifier may be (PTX ISA 4.4)."""


@dataclass(frozen=True)
class Product:
    """D (m x n) = C + A (m x k) * B (k x n), or D = initial + A * B where there is no C; then the epilogue.

    `element_type` is what an element of the product is rounded to before it is stored, or taken by the epilogue with
    one of each epilogue operand. Of a sparse A the m x k/2 stored elements are in memory, and `metadata` says where
    they belong.
    `scales` are those of the blocks of A's rows and of B's columns, or none; `group_scales` those of groups along k of
    a B of integers, in memory as B.
    `batch` are the sizes of the loops around the product, `summed` those of the loops that are summed over beside k.

    A B of two matrices has a `second` one: then n counts the columns of both, and D has half as many.

    With `short_sums`, sums of 8-bit floats may be those of the instruction, which cuts them short; if it is to be
    `batch_invariant`, the sums of a row are in the same order for every m.
    `block_scales` are scales of f32 of blocks of A and B.
    `ends` are those of the groups that the rows of A and D, or those along k, belong to: the batch is then one of
    groups, and m or k the usual size of one.
    `dynamic` are the loops, by number, whose sizes are not known: there is a sample for each (`operand.sample`), which
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
    short_sums: bool = False
    ends: VectorOperand | None = None
    block_scales: tuple[Spread, ...] = ()
    batch_invariant: bool = False
    second: MatrixOperand | None = None
    zero_points: MatrixOperand | None = None

    def is_known(self, axis: str) -> bool:
        """Whether the size along "m", "n" or "k" is static; for "k", also the sizes of the other reduction loops."""
        first = len(self.batch) + len(self.summed)
        other_sums = range(len(self.batch), first) if axis == "k" else ()
        return self.dynamic.isdisjoint((first + "mnk".index(axis), *other_sums))

    @cached_property
    def convolves(self) -> bool:
        """Whether A, B or D are the matrices of images, which tensor copies alone read and write."""
        return any(images_of(operand) for operand in (self.a, self.b, self.d))

    @property
    def matrices(self) -> int:
        """How many matrices D has: more than one in a batch."""
        return math.prod(self.batch)

    def tiles(self, rows: int, columns: int) -> int:
        """Tiles of a size of D, in all matrices of a batch."""
        return -(-self.m // rows) * -(-self.n // columns) * self.matrices

    def matrices_of(self, operand: MatrixOperand) -> int:
        """The number of different matrices of an operand that a batch reads."""
        return math.prod(self.batch[loop] for loop in operand.batch if loop < len(self.batch))

    @property
    def depth(self) -> int:
        """How many products are added up for an element of D."""
        return self.k * math.prod(self.summed)

    def k_tiles(self, cta_k: int) -> int:
        """The number of K tiles of this depth, over k and the other reduction loops."""
        return -(-self.k // cta_k) * math.prod(self.summed)

    @property
    def group(self) -> int:
        """How many neighbours along k share a scale in each column of B; 0 where none, or all to be rounded, do."""
        groups = 0 if self.group_scales is None else self.group_scales.type.get_shape()[self.group_axis]
        return self.k // groups if groups > 1 or (groups and not (self.b.stored and self.b.stored.rounded)) else 0

    @property
    def group_axis(self) -> int:
        """The dimension of the scales of groups that runs along k."""
        return loops_of(self.op.maps[1]).index(K)

    @property
    def blocks(self) -> tuple[int, int, int]:
        """Rows of A, columns of B and elements along k that share scales of f32; 0 where none do."""
        if not self.block_scales:
            return 0, 0, 0
        (down, along), (across, _) = (form.blocks for form in self.op.block_scales)
        return self.m // down if down > 0 and self.is_known("m") else 1, self.n // across, self.k // along

    @cached_property
    def sparsity(self) -> int:
        """Elements of A for each stored element: 2 if A is sparse, 1 otherwise."""
        return self.op.sparsity

    @cached_property
    def variant(self) -> Variant:
        """What distinguishes its instructions from others with the same element types."""
        return self.op.variant

    @cached_property
    def products(self) -> int:
        """The number of products behind D. A tile has the same number of columns of each, side by side."""
        return self.op.products

    @property
    def factors(self) -> tuple[tuple[KernelArgument, ...], tuple[KernelArgument, ...]]:
        """A and B, each with the operands that are read with it."""
        side_operands = self.metadata, self.group_scales or self.second
        of_a, of_b = self.block_scales or self.scales or side_operands
        return (self.a, *([of_a] if of_a else ())), tuple(o for o in (self.b, of_b, self.zero_points) if o)

    @property
    def operands(self) -> tuple[KernelArgument, ...]:
        """The operands of the operation, in order."""
        of_b = (self.b, self.second, self.group_scales, self.zero_points)
        side_operands = (*self.scales, *self.block_scales, self.ends)
        every = (self.a, self.metadata, *of_b, *side_operands, self.c, self.d, *self.epilogue_operands)
        return tuple(operand for operand in every if operand is not None)

    @property
    def parted(self) -> tuple[MatrixOperand | Spread, ...]:
        """The operands whose rows belong to groups."""
        if self.op.grouped != M:
            return () if self.op.grouped is None else (self.a, self.b)
        others = [o for o in self.epilogue_operands if isinstance(o, MatrixOperand | Spread)]
        others = [o for o in others if isinstance(o, MatrixOperand) or o.dimensions[0] is not None]
        return (self.a, *([] if self.c is None else [self.c]), self.d, *others)

    @property
    def memories(self) -> tuple[KernelArgument, ...]:
        """The operands of the kernel: each memory and each number once."""
        return each_once(self.operands)


def padded(columns: int) -> int:
    """Columns of Q, K or V of an attention in a tile, of as many in memory: a power of two, or panels of 64."""
    return max(16, 1 << (columns - 1).bit_length()) if columns <= 128 else -(-columns // 64) * 64


def images_of(operand: MatrixOperand) -> Im2colOp | None:
    """The `warp.im2col` that makes an operand; None for any other operand."""
    made = operand.value.owner
    return made if isinstance(made, Im2colOp) else None


def read(op: MatmulOp) -> Product:
    """The product that a verified `warp.matmul` computes. Raises a located diagnostic for layouts and element types
    that are not lowered."""
    type_a, type_b = (ELEMENT_TYPES[name] for name in op.multiplied)
    map_a, map_b, map_d = op.maps
    sizes, dynamic = _sizes(op)
    matrix_a, matrix_b = op.matrices
    a = read_matrix(op, "A", matrix_a, OPERAND_LOOPS[0], sizes, map_a, type_a)
    b = read_matrix(op, "B", matrix_b, OPERAND_LOOPS[1], sizes, map_b, type_b)
    b = replace(b, stored=op.b_stored, packed=op.is_packed)
    if back := next((o for o in (a, b) if any((step or 0) < 0 for step in strides_of(o.type) or ())), None):
        fail(op, f"{back.name} runs backwards: {back.type}; warp-im2col lets tensor copies read it")
    c = None if op.c is None else read_matrix(op, "C", op.c, OPERAND_LOOPS[2], sizes, map_d)
    d = read_matrix(op, "C" if op.c in (None, op.d) else "D", op.d, OPERAND_LOOPS[2], sizes, map_d)
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
    matrices = math.prod(sizes[loop] for loop in range(op.batch) if loop not in dynamic)
    if matrices > LARGEST_GRID:
        fail(op, f"a batch has at most {LARGEST_GRID} matrices, each of at least one CTA of a grid, got {matrices}")
    metadata = None if op.metadata is None else read_metadata(op, op.metadata, a, sizes)
    scales = read_scales(op, a, b, sizes) if op.scales else ()
    form, second = op.forms[1], None
    if isinstance(form, PairedOp):
        second = read_matrix(op, "B2", form.second, OPERAND_LOOPS[1], sizes, map_b, type_b)
    blocks = (Spread(f"S{name}", each.scales, (0, 1) if each.across is None else (1, 0), ())
              for name, each in zip("AB", op.block_scales, strict=False))  # fmt: skip
    product = Product(
        op, m, n * op.products, k, a, b, c, d, initial, _type(op), _epilogue_operands(op, sizes), metadata, scales,
        _group_matrix(op, "SG", op.group_scales),
        tuple(outer[: op.batch]), tuple(outer[op.batch :]), dynamic, op.is_approximate,
        None if op.ends is None else VectorOperand("ends", op.ends), tuple(blocks),
        second=second, zero_points=_group_matrix(op, "Z", op.zero_points),
    )  # fmt: skip
    _check_groups(product)
    return product


def _check_groups(product: Product) -> None:
    """Refuses rows of groups that are no rows in memory."""
    if product.op.grouped is None:
        return
    sides = {"A": product.a.transposed, "D": False} if product.op.grouped == M else {
        "A": not product.a.transposed, "B": product.b.transposed}  # fmt: skip
    for name, across in sides.items():
        if across:
            fail(product.op, f"expected the rows of groups of {name} one after another in memory")


def _group_matrix(op: MatmulOp, name: str, value: SSAValue | None) -> MatrixOperand | None:
    return None if value is None else read_matrix(op, name, value, OPERAND_LOOPS[1], {}, op.maps[1])


def _type(op: MatmulOp) -> TypeAttribute:
    kind = op.product_type
    if element_row(kind) is None:
        fail(op, f"a product rounded to {kind} is not lowered")
    return kind


def _epilogue_operands(op: MatmulOp, sizes: Mapping[int, int]) -> tuple[KernelArgument, ...]:
    operands: list[KernelArgument] = []
    axes = {op.outer + loop: name for loop, name in zip(OPERAND_LOOPS[2], "mn", strict=True)}
    for number, (value, map_) in enumerate(op.placed_operands):
        name = f"X{number}"
        if not isinstance(value.type, MemRefType):
            operands.append(VectorOperand(name, value, ""))
        else:
            operands.append(_epilogue_memory(op, name, value, map_, axes, sizes))
    return tuple(operands)


def _epilogue_memory(
    op: MatmulOp, name: str, value: SSAValue, map_: AffineMap, axes: Mapping[int, str], sizes: Mapping[int, int]
) -> KernelArgument:
    """An epilogue operand in memory; `axes` names the loops of the product."""
    loops, kind, row = loops_of(map_), memory_of(value), element_row(memory_of(value).element_type)
    strides, what = strides_of(kind), f"epilogue operand {name.removeprefix('X')}"
    if memory_space(kind) != GLOBAL_SPACE or strides is None:
        fail(op, f"expected {what} in global memory, strided, got {kind}")
    if row is None:
        fail(op, f"{what} of {kind.element_type} is not lowered; integers of 8 and 32 bits and floats are")
    if row.bits < BYTE:
        instead = "; truth values have a byte each (i8)" if row.bits == 1 else ""
        fail(op, f"expected elements of a byte or more of {what}, got {kind}{instead}")
    m, n = (loops.index(loop) if loop in loops else None for loop in axes)
    if n is not None and m is not None and strides[n] == 1:
        # Where D has one row, the operand may lie as a column.
        matrix = read_matrix(op, name, value, OPERAND_LOOPS[2], sizes, map_)
        if not matrix.transposed:
            return matrix
    grouped = op.ends is not None and loops == (op.outer + M,)
    plain = len(loops) == 1 and strides == (1,) and min(kind.get_shape()) >= 0 and row.bits > BYTE
    if plain and loops[0] in axes and not grouped:
        return VectorOperand(name, value, axes[loops[0]])
    others = tuple(loop for loop in loops if loop not in axes)
    return Spread(name, value, (m, n), others, extents.divisor_of(value))


def _check_types(op: MatmulOp, a: MatrixOperand, b: MatrixOperand, results: Mapping[str, TypeAttribute]) -> None:
    """Checks that an instruction multiplies these element types and has the type of the result."""
    if a.element.name == b.element.name == "f32":
        fail(op, "no instruction multiplies f32 x f32 with all bits; to allow tf32, which drops 13 of the 23 bits of "
             "each fraction, use warp-raise-matmul{tf32=true}, compile(tf32=True) or run --tf32")  # fmt: skip
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
    """Rejects operands that loads cannot transpose: elements that share a byte must be contiguous along k."""
    for name, operand, along_k in (("A", a, not a.transposed), ("B", b, b.transposed)):
        if operand.element.name in ("b1", "e2m1") and not along_k:
            where = f"neighbours along k side by side in memory ({'A by rows' if name == 'A' else 'B by columns'})"
            fail(op, f"expected {name} of {operand.element.name} with {where}, got {operand.type}")


def fresh_name(wanted: str, taken: Collection[str]) -> str:
    """`wanted`, with a number if it is taken."""
    names = (wanted, *(f"{wanted}_{i}" for i in range(1, len(taken) + 1)))
    return next(name for name in names if name not in taken)


def _sizes(op: MatmulOp) -> tuple[dict[int, int], frozenset[int]]:
    """The size of each loop, with samples for dynamic ones, and the set of dynamic loops."""
    sizes: dict[int, int] = {}
    divisors = dict.fromkeys(range(op.outer + len(OPERAND_LOOPS)), 1)
    for name, operand, map_ in zip("ABD", (*op.matrices, op.d), op.maps, strict=False):
        kind = memory_of(operand)
        strides = strides_of(kind) or (None,) * kind.get_num_dims()
        along = () if name == "B" and op.is_packed else zip(loops_of(map_), kind.get_shape(), strides, strict=True)
        for loop, size, stride in along:
            if size >= 0:
                sparse = name == "A" and loop == op.outer + K
                sizes[loop] = size * op.sparsity if sparse else size
            elif stride == 1:
                divisors[loop] = math.lcm(divisors[loop], extents.divisor_of(operand))
    if (grouped := op.grouped) is not None:
        # Groups have any number of rows.
        loop = op.outer + grouped
        rows, groups = sizes.pop(loop, 0), sizes.get(0, 1)
        usual = {loop: -(-rows // groups)} if rows else {}
        dynamic = frozenset(divisors.keys() - sizes.keys())
        return sizes | {o: extents.sample(1, (usual | op.usual).get(o, extents.USUAL)) for o in dynamic}, dynamic
    dynamic = frozenset(divisors.keys() - sizes.keys())
    for loop in dynamic:
        sizes[loop] = extents.sample(divisors[loop], op.usual.get(loop, extents.USUAL))
    return sizes, dynamic
