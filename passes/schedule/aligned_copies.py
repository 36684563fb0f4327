"""A version of a product for rows that begin anywhere: a product of copies whose rows begin at multiples of 16 bytes.

Copies have whole 16 bytes in a row: sizes along which elements are neighbours in A, B or D are rounded up, in each
operand that has them. What is added to A and B is 0, and what is added to D is not copied back::

    %S = memref.alloc(%m, %k_rounded);  linalg.fill ins(%zero) outs(%S);  linalg.copy ins(%A) outs(%part_of_S)
    ...
    warp.matmul ... %S, %T ... into %U
    linalg.copy ins(%part_of_U) outs(%D)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from xdsl.builder import Builder
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    MemRefType,
    StridedLayoutAttr,
    i8,
    i32,
)
from xdsl.dialects.linalg.ops import CopyOp, FillOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint

from ...dialect.isa.targets import Target
from ...dialect.warp.attributes import BYTE, Memory, is_memory, memory_of
from ...dialect.warp.divisible import AssumeDivisibleOp
from ...dialect.warp.loops import loops_of
from ..linalg.operand import MatrixOperand
from ..linalg.product import Product
from ..tile.index_builder import Index, IndexBuilder
from .h200 import COPIED_DEPTH, FEW_ROWS
from .packing import WIDEST, WORD, access_bytes
from .resources import warpgroup_rows
from .warpgroup import LEAST_PACKED


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
        found = {loop: (value, at) for value, loops in self.along.items() for at, loop in enumerate(loops)}
        return [index.dim(*found[loop]) for loop in sorted(found) if loop >= 0]

    def pays(self, index: IndexBuilder, sizes: Sequence[Index], batch: int, *, few: bool) -> SSAValue | bool:
        """Whether copies are faster where loops have these sizes, the first of which are a batch; if that is known
        already, as a `bool`. With `few` also for a few rows: those have no other kernel of their own."""
        *outer, m, _, k = sizes
        if self.by_element:
            enough = _at_least(index, reduce(index.mul, outer[batch:], k), COPIED_DEPTH)
        else:
            enough = _at_least(index, reduce(index.mul, sizes), LEAST_PACKED)
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
    """How a product is made of copies; None if it is none of plain matrices, or copies are no faster.

    They may be if elements would be loaded one by one, or if warpgroups can multiply copies and nothing else.
    """
    op, matrices = product.op, [product.a, product.b, product.d]
    plain = product.sparsity == 1 and not (product.scales or product.b.stored)
    if not plain or any(matrix.memory_bits < BYTE for matrix in matrices):
        return None
    least = WIDEST if any(row.runs_on(target) for row in warpgroup_rows(product)) else WORD
    if all(access_bytes(matrix) >= least for matrix in (product.a, product.b)):
        return None
    map_a, map_b, map_d = (loops_of(map_) for map_ in op.maps)
    of_c = [] if op.c is None else [(op.c, map_d)]
    beside = [(value, loops_of(map_)) for value, map_ in op.placed_operands if is_memory(value.type)]
    along: dict[SSAValue, tuple[int, ...]] = {}
    for value, loops in (*zip((*op.matrices, op.d), (map_a, map_b, map_d), strict=True), *of_c, *beside):
        if along.setdefault(value, tuple(loops)) != tuple(loops):
            return None  # one matrix in two places, which would be rounded otherwise in each
    if not all(_is_zeroed(memory_of(value)) for value in along):
        return None
    step = max(WIDEST * BYTE // matrix.memory_bits for matrix in matrices)
    columns = frozenset(along[matrix.value][matrix.dimensions[1]] for matrix in matrices)
    by_element = any(access_bytes(matrix) < WORD for matrix in (product.a, product.b))
    return Rounding(columns, step, along, by_element)


@dataclass
class CopiedOperands:
    """The operands of a product of copies, and the operations that make them and take D back."""

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
            if self.rounding.changes(value) or _begins_badly(matrices.get(value))
        }

    def before(self) -> list[Operation]:
        """The operations before the product."""
        found = list(self.block.ops)
        for op in found:
            op.detach()
        return found

    def _copy(self, value: SSAValue) -> SSAValue:
        """Memory for what an operand has, with that in it if the product reads it."""
        kind, loops = memory_of(value), self.rounding.along[value]
        own = [self.index.dim(value, at) if loop < 0 else 0 for at, loop in enumerate(loops)]
        sizes, whole = (
            [of[loop] if loop >= 0 else size for loop, size in zip(loops, own, strict=True)]
            for of in (self.sizes, self.rounded)
        )
        memory_type = MemRefType(kind.element_type, [_static(size) for size in whole])
        unknown = [size for size in whole if not isinstance(size, int)]
        memory = self.index.insert(memref.AllocOp(unknown, [], memory_type)).memref
        part = self._part(memory, memory_type, sizes) if self.rounding.changes(value) else memory
        op = self.product.op
        if value != op.d or value == op.c or value in op.epilogue_operands:
            if part is not memory:
                self.index.insert(FillOp([self._zero(kind)], [memory], []))
            self.index.insert(CopyOp([value], [part], []))
        if value == op.d:
            self.behind.append(CopyOp([part], [value], []))
        self.behind.append(memref.DeallocOp.get(memory))
        return self._promised(memory, value.name_hint)

    def _promised(self, memory: SSAValue, name: str | None) -> SSAValue:
        """The memory, if it is not all known, as one whose rows are known to be whole."""
        kind = memory_of(memory)
        memory.name_hint = f"{name or 'operand'}_aligned"
        if DYNAMIC_INDEX not in kind.get_shape():
            return memory
        same = self.index.insert(AssumeDivisibleOp(memory, self.rounding.step)).same
        same.name_hint = memory.name_hint
        return same

    def _part(self, memory: SSAValue, kind: Memory, sizes: Sequence[Index]) -> SSAValue:
        """The part of a copy that the operand takes."""
        steps: list[int | None] = [1]
        for size in kind.get_shape()[:0:-1]:
            steps.insert(0, None if steps[0] is None or size < 0 else steps[0] * size)
        layout = StridedLayoutAttr(steps, 0)
        part = MemRefType(kind.element_type, [_static(size) for size in sizes], layout)
        rank = len(sizes)
        return self.index.insert(memref.SubviewOp.get(memory, [0] * rank, list(sizes), [1] * rank, part)).result

    def _zero(self, kind: Memory) -> SSAValue:
        element = kind.element_type
        if isinstance(element, AnyFloat):
            return self.index.insert(arith.ConstantOp(FloatAttr(0.0, element))).result
        assert isinstance(element, IntegerType)
        return self.index.insert(arith.ConstantOp(IntegerAttr(0, element.bitwidth))).result


def _at_least(index: IndexBuilder, size: Index, least: int) -> SSAValue | bool:
    if isinstance(size, int):
        return size >= least
    return index.insert(arith.CmpiOp(size, index.value(least), "uge")).result


def _is_zeroed(kind: Memory) -> bool:
    """Whether `linalg.fill` writes 0 to the elements: constants of integers have no sign."""
    return isinstance(kind.element_type, AnyFloat) or kind.element_type in (i8, i32)


def _begins_badly(matrix: MatrixOperand | None) -> bool:
    return matrix is not None and access_bytes(matrix) < WIDEST


def _static(size: Index) -> int:
    return size if isinstance(size, int) else DYNAMIC_INDEX
