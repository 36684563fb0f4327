"""Elementwise operations on tensors behind one another: computed for each of these, and for the part of another tensor
that stands beside it."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import tensor
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir import Attribute, SSAValue
from xdsl.pattern_rewriter import (
    GreedyRewritePatternApplier,
    PatternRewriter,
    PatternRewriteWalker,
    RewritePattern,
    op_type_rewrite_pattern,
)
from xdsl.utils.hints import isa

from ...dialect.nest import Nest, generic
from ...dialect.warp.elements import shape_of

MOST = 4
"""Tensors behind one another that an operation is computed for one by one."""


def _elementwise(op: object) -> Nest | None:
    """The nest of an operation that computes each element of one new tensor once, in order; None for other
    operations."""
    if not isinstance(op, GenericOp) or len(op.results) != 1 or not isinstance(op.outputs[0].owner, tensor.EmptyOp):
        return None
    nest = Nest.of(op)
    in_order = nest.writes[0].loops == tuple(range(nest.loops)) and not nest.summed and not nest.indices
    reads = all(len(set(read.loops)) == len(read.loops) and min(read.loops, default=0) >= 0 for read in nest.reads)
    static = min(shape_of(op.results[0]), default=0) > 0
    return nest if in_order and reads and static and not nest.writes[0].element.uses else None


def _on_part(op: GenericOp, inputs: Sequence[SSAValue], shape: Sequence[int], rewriter: PatternRewriter) -> SSAValue:
    """The operation on parts of its inputs, of which the result is one of a shape."""
    part = _with_shape(op, shape)
    empty = rewriter.insert(tensor.EmptyOp([], part)).tensor
    maps = [attribute.data for attribute in op.indexing_maps]
    return rewriter.insert(generic(op, inputs, [empty], op.body.clone(), maps, results=[part])).results[0]


def _with_shape(op: GenericOp, shape: Sequence[int]) -> TensorType[Attribute]:
    kind = op.results[0].type
    if not isa(kind, TensorType[Attribute]):
        raise ValueError(f"{kind} is no tensor")
    return TensorType(kind.element_type, shape)


class ComputeParts(RewritePattern):
    """Replaces an elementwise operation on tensors behind one another by one on each."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: GenericOp, rewriter: PatternRewriter) -> None:
        nest = _elementwise(op)
        for read in nest.reads if nest is not None else ():
            joined = read.value.owner
            if nest is None or not isinstance(joined, tensor.ConcatOp) or len(joined.inputs) > MOST:
                continue
            loop, start, parts = read.loops[joined.dim.value.data], 0, list[SSAValue]()
            for source in joined.inputs:
                size = shape_of(source)[joined.dim.value.data]
                inputs = list[SSAValue]()
                for other in nest.reads:
                    if other.value is joined.result and other.loops == read.loops:
                        inputs.append(source)
                    elif loop in other.loops:
                        inputs.append(_slice(other.value, other.loops.index(loop), start, size, rewriter))
                    else:
                        inputs.append(other.value)
                shape = list(shape_of(op.results[0]))
                shape[loop] = size
                parts.append(_on_part(op, inputs, shape, rewriter))
                start += size
            made = tensor.ConcatOp(parts, loop, _with_shape(op, shape_of(op.results[0])))
            made.location = op.location
            rewriter.replace(op, made)
            if not joined.result.uses:
                rewriter.erase(joined)
            return


def _slice(value: SSAValue, dimension: int, start: int, size: int, rewriter: PatternRewriter) -> SSAValue:
    shape = shape_of(value)
    offsets = [start if d == dimension else 0 for d in range(len(shape))]
    sizes = [size if d == dimension else each for d, each in enumerate(shape)]
    return rewriter.insert(tensor.ExtractSliceOp.from_static_parameters(value, offsets, sizes)).result


class ComputeSlice(RewritePattern):
    """Replaces a slice of what an elementwise operation makes by the operation on slices, if nobody reads the rest."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: tensor.ExtractSliceOp, rewriter: PatternRewriter) -> None:
        source, offsets = op.source.owner, list(op.static_offsets.iter_values())
        sizes, steps = list(op.static_sizes.iter_values()), list(op.static_strides.iter_values())
        nest, users = _elementwise(source), [use.operation for use in op.source.uses]
        plain = not any((op.offsets, op.sizes, op.strides)) and len(op.result.type.get_shape()) == len(sizes)
        if nest is None or not isinstance(source, GenericOp) or not plain:
            return
        if not all(isinstance(user, tensor.ExtractSliceOp) for user in users):
            return
        inputs = list[SSAValue]()
        for read in nest.reads:
            first, count, step = ([numbers[loop] for loop in read.loops] for numbers in (offsets, sizes, steps))
            part = tensor.ExtractSliceOp.from_static_parameters(read.value, first, count, step)
            inputs.append(rewriter.insert(part).result)
        rewriter.replace(op, [], [_on_part(source, inputs, sizes, rewriter)])
        if not source.results[0].uses:
            rewriter.erase(source)


def compute_parts(module: ModuleOp) -> None:
    """Applies the patterns to a module, in place, as often as they apply."""
    PatternRewriteWalker(GreedyRewritePatternApplier([ComputeParts(), ComputeSlice()])).rewrite_module(module)
