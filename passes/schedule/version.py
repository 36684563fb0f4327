"""`warp-version`: a product whose layout or size only a call tells becomes several versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import isqrt, lcm, prod
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    DenseArrayBase,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    i8,
    i32,
    i64,
)
from xdsl.dialects.linalg.ops import CopyOp, FillOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.isa.row import Target
from ...dialect.mlir.affine import loops_of, number_of, strides_of
from ...dialect.mlir.upstream import CastOp
from ...dialect.schedule import ScheduleError
from ...dialect.warp.attributes import BYTE, Memory, ScheduleAttr, is_memory, memory_of
from ...dialect.warp.cta import IsDivisibleOp
from ...dialect.warp.elements import PointwiseOp
from ...dialect.warp.matmul import USUAL, MatmulOp
from ...dialect.warp.op_shapes import OperandForm
from ...dialect.warp.views import DIVISIBLE
from ..diagnostics import fail
from ..linalg.operand import WIDEST, MatrixOperand
from ..linalg.product import Product, read
from ..patterns import Index, IndexBuilder
from .candidates import key_of
from .model import COPIED_DEPTH, FEW_ROWS, FULL_WAVE, LARGEST_TILE, WORD
from .needs import has_warpgroups
from .warp_schedule import default_schedule, read_tuned, target_for
from .warpgroup_schedule import MIN_PACKED

# A version of a product for rows that begin anywhere: a product of copies whose rows begin at multiples of 16 bytes.
#
# Copies have whole 16 bytes in a row: sizes along which elements are neighbours in A, B or D are rounded up, in each
# operand that has them. What is added to A and B is 0, and what is added to D is not copied back::
#
#     %S = memref.alloc(%m, %k_rounded);  linalg.fill ins(%zero) outs(%S);  linalg.copy ins(%A) outs(%part_of_S)
#     ...
#     warp.matmul ... %S, %T ... into %U
#     linalg.copy ins(%part_of_U) outs(%D)


@dataclass(frozen=True)
class Rounding:
    """The loops of a product whose sizes are rounded up in copies, to multiples of `step`, and the loops of each
    operand in memory. `by_element` says that A or B would be loaded element by element, through registers."""

    loops: frozenset[int]
    step: int
    along: Mapping[SSAValue, tuple[int, ...]]
    by_element: bool

    def sizes(self, index: IndexBuilder) -> list[Index]:
        """The sizes of the loops, the last three of which are m, n and k."""
        of_loop = {loop: (value, at) for value, loops in self.along.items() for at, loop in enumerate(loops)}
        return [index.dim(*of_loop[loop]) for loop in sorted(of_loop) if loop >= 0]

    def pays(self, index: IndexBuilder, sizes: Sequence[Index], batch: int, *, few: bool) -> SSAValue | bool:
        """Whether copies are faster for loops of these sizes, of which the first `batch` are batch dimensions. The
        result is a `bool` if it is known while compiling. With `few`, products of few rows count too, which have no
        kernel of their own."""
        *outer, m, _, k = sizes
        if self.by_element:
            enough = _at_least(index, reduce(index.mul, outer[batch:], k), COPIED_DEPTH)
        else:
            enough = _at_least(index, reduce(index.mul, sizes), MIN_PACKED)
        many = True if few and self.by_element else _at_least(index, m, FEW_ROWS + 1)
        if isinstance(enough, bool):
            return many if enough else False
        if isinstance(many, bool):
            return enough if many else False
        return index.insert(arith.AndIOp(enough, many)).result

    def rounded(self, index: IndexBuilder, sizes: Sequence[Index]) -> list[Index]:
        """The sizes of the loops in copies."""
        return [
            index.mul(index.ceildiv(size, self.step), self.step) if loop in self.loops else size
            for loop, size in enumerate(sizes)
        ]

    def changes(self, value: SSAValue) -> bool:
        """Whether a copy may be larger than the operand."""
        sizes = zip(self.along[value], memory_of(value).get_shape(), strict=True)
        return any(loop in self.loops and (size < 0 or size % self.step) for loop, size in sizes)


def rounding(product: Product, target: Target) -> Rounding | None:
    """How a product is computed from aligned copies; None if it is no product of plain matrices, or copies do not pay.

    They may pay if elements would be loaded one by one, or if warpgroups can only multiply copies.
    """
    op, matrices = product.op, [product.a, product.b, product.d]
    plain = product.sparsity == 1 and not (product.scales or product.b.stored)
    if not plain or any(matrix.memory_bits < BYTE for matrix in matrices):
        return None
    least = WIDEST if has_warpgroups(product, target) else WORD
    if all(matrix.access_bytes >= least for matrix in (product.a, product.b)):
        return None
    map_a, map_b, map_d = (loops_of(map_) for map_ in op.maps)
    of_c = [] if op.c is None else [(op.c, map_d)]
    placed = [(value, loops_of(map_)) for value, map_ in op.placed_operands if is_memory(value.type)]
    along: dict[SSAValue, tuple[int, ...]] = {}
    for value, loops in (*zip((*op.matrices, op.d), (map_a, map_b, map_d), strict=True), *of_c, *placed):
        if along.setdefault(value, tuple(loops)) != tuple(loops):
            return None  # one matrix in two places, which would be rounded otherwise in each
    elements = [memory_of(value).element_type for value in along]
    if not all(isinstance(kind, AnyFloat) or kind in (i8, i32) for kind in elements):
        return None  # which linalg.fill does not write
    step = max(WIDEST * BYTE // matrix.memory_bits for matrix in matrices)
    columns = frozenset(along[matrix.value][matrix.dimensions[1]] for matrix in matrices)
    by_element = any(matrix.access_bytes < WORD for matrix in (product.a, product.b))
    return Rounding(columns, step, along, by_element)


@dataclass
class CopiedOperands:
    """Copies of a product's operands, with the operations that make them and those that copy D back."""

    product: Product
    rounding: Rounding
    sizes: Sequence[Index]
    block: Block = field(default_factory=Block)
    behind: list[Operation] = field(default_factory=list[Operation])

    def __post_init__(self) -> None:
        self.index = IndexBuilder(Builder(InsertPoint.at_end(self.block)))
        self.rounded = self.rounding.rounded(self.index, self.sizes)

    def of_all(self) -> dict[SSAValue, SSAValue]:
        """Copies of the operands that need one."""
        matrices = {m.value: m for m in (self.product.a, self.product.b, self.product.d)}
        return {
            value: self._copy(value)
            for value in self.rounding.along
            if self.rounding.changes(value) or (value in matrices and matrices[value].access_bytes < WIDEST)
        }

    def before(self) -> list[Operation]:
        """The operations before the product."""
        operations = list(self.block.ops)
        for op in operations:
            op.detach()
        return operations

    def _copy(self, value: SSAValue) -> SSAValue:
        """Memory for the copy of an operand. The operand is copied into it if the product reads it."""
        kind, loops = memory_of(value), self.rounding.along[value]
        own = [self.index.dim(value, at) if loop < 0 else 0 for at, loop in enumerate(loops)]
        sizes, padded = (
            [of[loop] if loop >= 0 else size for loop, size in zip(loops, own, strict=True)]
            for of in (self.sizes, self.rounded)
        )
        memory_type = MemRefType(kind.element_type, [n if isinstance(n, int) else DYNAMIC_INDEX for n in padded])
        unknown = [size for size in padded if not isinstance(size, int)]
        memory = self.index.insert(memref.AllocOp(unknown, [], memory_type)).memref
        part = self._part(memory, memory_type, sizes) if self.rounding.changes(value) else memory
        op = self.product.op
        if value != op.d or value == op.c or value in op.epilogue_operands:
            if part is not memory:
                self.index.insert(FillOp([self.index.insert(number_of(kind.element_type)).result], [memory], []))
            self.index.insert(CopyOp([value], [part], []))
        if value == op.d:
            self.behind.append(CopyOp([part], [value], []))
        self.behind.append(memref.DeallocOp.get(memory))
        return self._promised(memory, value.name_hint)

    def _promised(self, memory: SSAValue, name: str | None) -> SSAValue:
        """Memory of dynamic sizes, with the promise that its rows are aligned; memory of static sizes as it is."""
        kind = memory_of(memory)
        memory.name_hint = f"{name or 'operand'}_aligned"
        if DYNAMIC_INDEX not in kind.get_shape():
            return memory
        same = self.index.insert(_assumed(memory, self.rounding.step)).dest
        same.name_hint = memory.name_hint
        return same

    def _part(self, memory: SSAValue, kind: Memory, sizes: Sequence[Index]) -> SSAValue:
        """The part of a copy that the operand uses."""
        place = [0] * len(sizes), sizes, [1] * len(sizes)
        part = memref.SubviewOp.infer_result_type(kind, *place)
        return self.index.insert(memref.SubviewOp.get(memory, *place, part)).result


def _assumed(memory: SSAValue, divisor: int) -> memref.CastOp:
    """The same memory, of whose rows `warp.is_divisible` holds."""
    return CastOp.create(
        operands=[memory], result_types=[memory.type], attributes={DIVISIBLE: IntegerAttr(divisor, i64)}
    )


def _at_least(index: IndexBuilder, size: Index, least: int) -> SSAValue | bool:
    return size >= least if isinstance(size, int) else index.compare("uge", size, least)


# `warp-version`: a product of which only a call knows how it lies, or how large it is, becomes several.

DONE = (ScheduleAttr.name, USUAL)
"""The attributes of products that have their kernel, or their versions."""


def _divisor(operand: MatrixOperand) -> int:
    """The divisor of a matrix that full accesses need a call to promise; 1 if static sizes already decide."""
    column, memory = operand.dimensions[1], operand.type
    steps = [stride for dimension, stride in enumerate(strides_of(memory) or ()) if dimension != column]
    parts = [None if (size := memory.get_shape()[column]) < 0 else size, memory.get_offset(), *steps]
    each = WIDEST * BYTE // operand.memory_bits
    fits = all(part is None or part % each == 0 for part in parts)
    return each if fits and None in parts and operand.divisor % each else 1


def _promises(product: Product) -> dict[SSAValue, int]:
    """The known divisors of a product's dynamic matrices; empty if neither A nor B has one."""
    divisors: dict[SSAValue, int] = {}
    for matrix in (operand for operand in product.operands if isinstance(operand, MatrixOperand)):
        if (divisor := _divisor(matrix)) > 1:
            divisors[matrix.value] = lcm(divisors.get(matrix.value, 1), divisor)
    return divisors if any(matrix.value in divisors for matrix in (product.a, product.b)) else {}


def _made_of(values: Sequence[SSAValue]) -> Iterator[Operation]:
    """The operations that make operands of a product from memory, in the order of their dependences."""
    for value in values:
        if isinstance(value.owner, OperandForm | PointwiseOp):
            yield from _made_of(value.owner.operands)
            yield value.owner


def _either(condition: SSAValue, product: MatmulOp, other: Sequence[Operation]) -> None:
    """Uses another version of a product, with the operations that it needs, if a condition holds."""
    then, otherwise = Block([*other, scf.YieldOp()]), Block()
    Rewriter.insert_op(scf.IfOp(condition, [], Region(then), Region(otherwise)), InsertPoint.before(product))
    product.detach()
    otherwise.add_ops([product, scf.YieldOp()])


def _by_rows(product: MatmulOp, divisors: dict[SSAValue, int]) -> MatmulOp:
    """Makes a version for rows whose first elements have these divisors."""
    index = IndexBuilder(product)
    answers = [index.insert(IsDivisibleOp(memory, divisor)).answer for memory, divisor in divisors.items()]
    all_hold = reduce(lambda a, b: index.insert(arith.AndIOp(a, b)).result, answers)
    assumed = [_assumed(memory, divisor) for memory, divisor in divisors.items()]
    mapped: dict[SSAValue, SSAValue] = {}
    for op in assumed:
        op.dest.name_hint = op.source.name_hint
        mapped[op.source] = op.dest
    made = [op.clone(mapped) for op in _made_of(product.operands)]
    _either(all_hold, product, [*assumed, *made, chosen := product.clone(mapped)])
    return chosen


def _by_copies(product: MatmulOp, read: Product, how: Rounding, *, few: bool) -> MatmulOp:
    """Makes a version that multiplies aligned copies, for the sizes for which that is faster. If the sizes are known,
    there is only this version, or none. Returns the product of the other sizes, if there are any."""
    index = IndexBuilder(product)
    sizes = how.sizes(index)
    if (pays := how.pays(index, sizes, read.op.batch, few=few)) is False:
        return product
    copies = CopiedOperands(read, how, sizes)
    mapped = copies.of_all()
    made = [op.clone(mapped) for op in _made_of(product.operands)]
    chosen = product.clone(mapped)
    other = [*copies.before(), *made, chosen, *copies.behind]
    _say_usual(chosen, read.m, read.n)
    if pays is True:
        Rewriter.replace_op(product, other, [])
        return chosen
    _either(pays, product, other)
    return product


@dataclass(frozen=True)
class Sizes:
    """Products of at most `most` results, or rows if `rows`, which typically are `m` x `n`."""

    limit: int
    m: int
    n: int
    rows: bool = False

    def holds(self, index: IndexBuilder, product: Product) -> SSAValue:
        """Whether a call's sizes are these."""
        d = product.d
        dimensions = d.dimensions[:1] if self.rows else range(len(d.sizes))
        size = reduce(index.mul, (index.dim(d.value, dimension) for dimension in dimensions), 1)
        return index.compare("ule", size, self.limit)


def _sizes(product: Product, target: Target) -> Iterator[Sizes]:
    """Sizes that may need other tiles than large results: a few rows, where reading B dominates, and results with fewer
    large tiles than SMs."""
    m_known, n_known = product.is_known("m"), product.is_known("n")
    if not m_known:
        yield Sizes(FEW_ROWS, FEW_ROWS, product.n, rows=True)
    batch = product.matrices
    full = int(FULL_WAVE * target.sms * prod(LARGEST_TILE)) // batch
    half = full // 2
    m = product.m if m_known else isqrt(half) if not n_known else half // product.n
    n = product.n if n_known else half // max(1, m)
    if min(m, n) > 0 and (m_known or m > FEW_ROWS):
        yield Sizes(full * batch, m, n)


def _by_size(product: MatmulOp, product_read: Product, target: Target) -> None:
    """Makes a version for each of several ranges of sizes whose default schedules differ."""
    taken = [default_schedule(product_read, target)]
    # Of nibbles ptxas spills in the kernel for a few tiles (sm_100a: 8 bytes, with 96 registers).
    is_fixed = (product_read.is_known("m") and product_read.is_known("n")) or product_read.a.element.bits < BYTE
    for sizes in () if is_fixed else _sizes(product_read, target):
        _say_usual(product, sizes.m, sizes.n)
        if (schedule := default_schedule(read(product), target)) not in taken:
            taken.append(schedule)
            index = IndexBuilder(product)
            _either(sizes.holds(index, product_read), product, [product.clone()])
    _say_usual(product, product_read.m, product_read.n)


def _say_usual(product: MatmulOp, m: int, n: int) -> None:
    product.attributes[USUAL] = DenseArrayBase.from_list(i64, [m, n])


@dataclass(frozen=True)
class VersionPass(ModulePass):
    """Makes several kernels for a product with dynamic strides or sizes. Each call chooses one of them.

    - With dynamic strides or offsets, one kernel requires rows that begin at multiples of 16 bytes, as tensor copies
      and 16-byte accesses do. Another kernel takes any rows. Unless they are very small, products of unaligned rows are
      computed from aligned copies, which other kernels make.
    - With dynamic sizes of the result, there are kernels for a few rows, for a few tiles, and for larger results, if
      their default schedules differ.

    The pass leaves a product that has a schedule, or for which the file `tuned` of `warploom tune` has one.
    """

    name = "warp-version"
    needs: ClassVar = ("dynamic",)

    tuned: str | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        tuned = read_tuned(op, self.tuned)
        products = [inner for inner in op.walk() if isinstance(inner, MatmulOp)]
        for product in [each for each in products if each.attributes.keys().isdisjoint(DONE)]:
            read_product = read(product)
            divisors = _promises(read_product)
            if read_product.ends is not None or (not read_product.dynamic and not divisors):
                continue
            target = target_for(product)
            if tuned is not None and tuned.best(target.name, key_of(read_product)) is not None:
                continue
            try:
                by_rows = _by_rows(product, divisors) if divisors else None
                _say_usual(product, read_product.m, read_product.n)
                if (how := rounding(read_product, target)) is not None:
                    product = _by_copies(product, read_product, how, few=by_rows is not None)
                sized = product if by_rows is None else by_rows
                _by_size(sized, read(sized), target)
            except ScheduleError as error:
                fail(product, f"schedule: {error}")
