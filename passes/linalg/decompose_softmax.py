"""`linalg.softmax` as four `linalg.generic`: the largest of each row, the exponentials, their sum, the quotients.

What the operation computes between its input and its result has no type in the IR. It is f32 for elements of 16 bits,
so that a result is rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, math, memref, tensor
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    FloatAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    TensorType,
    f32,
)
from xdsl.dialects.linalg.ops import FillOp, YieldOp
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.utils.hints import isa

from ...dialect.mlir.affine import map_along
from ...dialect.mlir.bodies import converted
from ...dialect.mlir.generic import SoftmaxOp, TensorOrMemory
from ...dialect.nest import generic
from ..diagnostics import fail


class DecomposeSoftmax(RewritePattern):
    """Replaces one softmax, as MLIR's `softmax` decomposes by its own interface; of 16 bits in f32."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: SoftmaxOp, rewriter: PatternRewriter) -> None:
        rows = _Rows(op, rewriter)
        wide, element = rows.wide, rows.element
        largest = rows.reduced(float("-inf"), op.input, lambda x, m: arith.MaximumfOp(converted(x, wide), m).result)
        powers = rows.elementwise(
            (op.input, largest),
            rows.temporary(range(rows.rank)),
            lambda x, m: math.ExpOp(arith.SubfOp(converted(x, wide), m)).result,
        )
        sums = rows.reduced(0.0, powers, lambda x, s: arith.AddfOp(x, s).result)
        quotients = rows.elementwise(
            (powers, sums), op.output, lambda x, s: converted(arith.DivfOp(x, s).result, element)
        )
        rewriter.replace(op, [], [quotients] if op.results else [])


class _Rows:
    """Builds operations on the rows of a softmax, before it; `wide` is the type that they compute with."""

    def __init__(self, op: SoftmaxOp, rewriter: PatternRewriter) -> None:
        kind = op.input.type
        if not isa(kind, TensorOrMemory) or not isinstance(kind.element_type, AnyFloat):
            fail(op, f"expected a tensor or memory of floating-point numbers, got {kind}")
        self.op, self.rewriter, self.element, self.shape = op, rewriter, kind.element_type, kind.get_shape()
        self.wide: AnyFloat = f32 if self.element.bitwidth < f32.bitwidth else self.element
        self.on_tensors, self.rank, self.along = isinstance(kind, TensorType), len(self.shape), op.dimension.value.data
        self.kept = [d for d in range(self.rank) if d != self.along]
        self.every, self.row = AffineMap.identity(self.rank), map_along(self.rank, self.kept)

    def temporary(self, dimensions: Sequence[int]) -> SSAValue:
        """A tensor to write, or memory, of these dimensions of the input."""
        insert, shape = self.rewriter.insert, [self.shape[d] for d in dimensions]
        sizes: list[SSAValue] = []
        for d in dimensions:
            if self.shape[d] == DYNAMIC_INDEX:
                number = insert(arith.ConstantOp(IntegerAttr(d, IndexType()))).result
                sizes.append(insert((tensor.DimOp if self.on_tensors else memref.DimOp)(self.op.input, number)).result)
        if self.on_tensors:
            return insert(tensor.EmptyOp(sizes, TensorType(self.wide, shape))).tensor
        return insert(memref.AllocOp(sizes, [], MemRefType(self.wide, shape))).memref

    def reduced(self, start: float, value: SSAValue, combine: Callable[[SSAValue, SSAValue], SSAValue]) -> SSAValue:
        """What becomes of each row, from a number on."""
        first = self.rewriter.insert(arith.ConstantOp(FloatAttr(start, self.wide))).result
        into = self.temporary(self.kept)
        filled = FillOp([first], [into], self._results(into))
        filled.location = self.op.location
        self.rewriter.insert(filled)
        into = filled.results[0] if filled.results else into
        return self._generic((value,), into, (self.every, self.row), [self.along], combine)

    def elementwise(
        self, inputs: Sequence[SSAValue], into: SSAValue, compute: Callable[[SSAValue, SSAValue], SSAValue]
    ) -> SSAValue:
        """Each element, from one of the first input and one of a row."""
        return self._generic(inputs, into, (self.every, self.row, self.every), (), compute)

    def _generic(
        self,
        inputs: Sequence[SSAValue],
        into: SSAValue,
        maps: Sequence[AffineMap],
        summed: Sequence[int],
        compute: Callable[[SSAValue, SSAValue], SSAValue],
    ) -> SSAValue:
        kinds = [value.type for value in (*inputs, into)]
        block = Block(arg_types=[kind.element_type for kind in kinds if isa(kind, TensorOrMemory)])
        with ImplicitBuilder(block):
            YieldOp(compute(block.args[0], block.args[1]))
        made = self.rewriter.insert(generic(self.op, inputs, [into], Region(block), maps, summed, self._results(into)))
        return made.results[0] if made.results else into

    def _results(self, into: SSAValue) -> list[Attribute]:
        return [into.type] if self.on_tensors else []
