"""`linalg.softmax` as four `linalg.generic`: the largest of each row, the exponentials, their sum, the quotients.

What the operation computes between its input and its result has no type in the IR. It is f32 for elements of 16 bits,
so that a result is rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects import arith, math, memref, tensor
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AffineMapAttr,
    AnyFloat,
    ArrayAttr,
    FloatAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    TensorType,
    f32,
)
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.dialects.linalg.ops import FillOp, GenericOp, YieldOp
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from ...dialect.mlir.generic import SoftmaxOp, TensorOrMemory
from ..diagnostics import fail


def decompose(op: SoftmaxOp) -> None:
    """Replaces one softmax, as MLIR's `softmax` decomposes by its own interface; of 16 bits in f32."""
    builder = _Softmax(op)
    largest = builder.rows(float("-inf"), lambda x, m: arith.MaximumfOp(builder.wide(x), m).result, op.input)
    powers = builder.elements(
        lambda x, m: math.ExpOp(arith.SubfOp(builder.wide(x), m)).result,
        (op.input, largest),
        builder.temporary(builder.shape),
    )
    sums = builder.rows(0.0, lambda x, s: arith.AddfOp(x, s).result, powers)
    result = builder.elements(lambda x, s: builder.stored(arith.DivfOp(x, s).result), (powers, sums), op.output)
    Rewriter.replace_op(op, [], [result] if op.results else [])


class _Softmax:
    """Builds operations before a softmax."""

    def __init__(self, op: SoftmaxOp) -> None:
        kind = op.input.type
        if not isa(kind, TensorOrMemory) or not isinstance(kind.element_type, AnyFloat):
            fail(op, f"expected a tensor or memory of floating-point numbers, got {kind}")
        self.op, self.element, self.shape = op, kind.element_type, kind.get_shape()
        self.inner: AnyFloat = f32 if self.element.bitwidth < f32.bitwidth else self.element
        self.on_tensors = isinstance(kind, TensorType)
        self.builder = Builder(InsertPoint.before(op))
        at, rank = op.dimension.value.data, len(self.shape)
        self.kept = [d for d in range(rank) if d != at]
        self.whole, self.row = AffineMap.identity(rank), AffineMap(rank, 0, tuple(map(AffineDimExpr, self.kept)))
        self.reduction = [IteratorType.REDUCTION if d == at else IteratorType.PARALLEL for d in range(rank)]

    def wide(self, value: SSAValue) -> SSAValue:
        """An element in the type that is computed with."""
        return value if value.type == self.inner else arith.ExtFOp(value, self.inner).result

    def stored(self, value: SSAValue) -> SSAValue:
        """A value in the type of the result."""
        return value if value.type == self.element else arith.TruncFOp(value, self.element).result

    def temporary(self, shape: Sequence[int]) -> SSAValue:
        """A tensor to write, or memory; its dynamic sizes are those of the input."""
        dimensions = range(len(self.shape)) if len(shape) == len(self.shape) else self.kept
        sizes = [self._size(d) for d, size in zip(dimensions, shape, strict=True) if size == DYNAMIC_INDEX]
        if self.on_tensors:
            return self.builder.insert(tensor.EmptyOp(sizes, TensorType(self.inner, shape))).tensor
        return self.builder.insert(memref.AllocOp(sizes, [], MemRefType(self.inner, shape))).memref

    def _size(self, dimension: int) -> SSAValue:
        number = self.builder.insert(arith.ConstantOp(IntegerAttr(dimension, IndexType()))).result
        kind = tensor.DimOp if self.on_tensors else memref.DimOp
        return self.builder.insert(kind(self.op.input, number)).result

    def rows(self, start: float, combine: Callable[[SSAValue, SSAValue], SSAValue], value: SSAValue) -> SSAValue:
        """What becomes of each row, from a number on."""
        first = self.builder.insert(arith.ConstantOp(FloatAttr(start, self.inner))).result
        into = self.temporary([self.shape[d] for d in self.kept])
        fill = FillOp([first], [into], [into.type] if self.on_tensors else [])
        fill.location = self.op.location
        self.builder.insert(fill)
        filled = fill.results[0] if self.on_tensors else into
        return self._generic(combine, (value,), filled, (self.whole, self.row), self.reduction)

    def elements(
        self, compute: Callable[[SSAValue, SSAValue], SSAValue], inputs: Sequence[SSAValue], into: SSAValue
    ) -> SSAValue:
        """Each element, from one of the first input and one of a row."""
        parallel = [IteratorType.PARALLEL] * len(self.shape)
        return self._generic(compute, inputs, into, (self.whole, self.row, self.whole), parallel)

    def _generic(
        self,
        compute: Callable[[SSAValue, SSAValue], SSAValue],
        inputs: Sequence[SSAValue],
        into: SSAValue,
        maps: Sequence[AffineMap],
        iterators: Sequence[IteratorType],
    ) -> SSAValue:
        block = Block(arg_types=[_element(value) for value in (*inputs, into)])
        with ImplicitBuilder(block):
            YieldOp(compute(block.args[0], block.args[1]))
        results: list[Attribute] = [into.type] if self.on_tensors else []
        generic = GenericOp(
            inputs,
            [into],
            Region(block),
            ArrayAttr(map(AffineMapAttr, maps)),
            ArrayAttr(map(IteratorTypeAttr, iterators)),
            results,
        )
        generic.location = self.op.location
        self.builder.insert(generic)
        return generic.results[0] if self.on_tensors else into


def _element(value: SSAValue) -> Attribute:
    """The type of the elements of a tensor, or of memory."""
    return value.type.element_type if isa(value.type, TensorOrMemory) else value.type
