"""Dimensions of size 1 that reductions keep: loops and results without them.

A front end reduces `tensor<40x72xf32>` to `tensor<40x1xf32>`, or to `tensor<40xf32>`, which it then expands. Here the
reduction, and the elementwise operations on what it makes, have the first form of neither: a result is expanded behind
its operation, and an operand that was expanded is read as it was before.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects import tensor
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, TensorType, i64
from xdsl.dialects.linalg.ops import FillOp, GenericOp, IndexOp
from xdsl.ir import Attribute, Region, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr, AffineExpr, AffineMap
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.utils.hints import isa

from ...dialect.mlir.affine import FIXED, loops_of
from ...dialect.nest import Nest, NestAccess, generic
from ...dialect.warp.elements import shape_of
from .operand import Groups, groups_of


def reassociation(groups: Groups) -> ArrayAttr[ArrayAttr[IntegerAttr]]:
    """Groups of dimensions as an operation has them."""
    return ArrayAttr(ArrayAttr(IntegerAttr(d, i64) for d in group) for group in groups)


def collapse(value: SSAValue, groups: Groups, sizes: Sequence[int]) -> tensor.CollapseShapeOp:
    """A tensor with one dimension for each group."""
    kind = TensorType(element_of(value), sizes)
    return tensor.CollapseShapeOp.build(
        operands=[value], properties={"reassociation": reassociation(groups)}, result_types=[kind]
    )


def expand(value: SSAValue, groups: Groups, sizes: Sequence[int]) -> tensor.ExpandShapeOp:
    """A tensor with several dimensions for each, of known sizes."""
    kind = TensorType(element_of(value), sizes)
    return tensor.ExpandShapeOp(value, [], reassociation(groups), list(sizes), kind)


def element_of(value: SSAValue) -> Attribute:
    """The type of a tensor's elements."""
    return value.type.element_type if isa(value.type, TensorType[Attribute]) else value.type


def around(kept: Sequence[int], rank: int) -> list[list[int]]:
    """All dimensions in groups with one of those that are kept in each."""
    ends = [*kept[1:], rank]
    starts = [0, *ends[:-1]]
    return [list(range(start, end)) for start, end in zip(starts, ends, strict=True)]


def added_units(value: SSAValue) -> dict[int, int] | None:
    """Of a tensor expanded by dimensions of size 1 alone: which dimension of the source each other one is."""
    op = value.owner
    if not isinstance(op, tensor.ExpandShapeOp):
        return None
    shape, kept = shape_of(value), dict[int, int]()
    for source, group in enumerate(groups_of(op)):
        others = [d for d in group if shape[d] != 1]
        if len(others) > 1:
            return None
        kept[others[0] if others else group[0]] = source
    return kept


class DropUnitLoops(RewritePattern):
    """Replaces an operation whose output has dimensions of size 1, because a reduction kept them, by one without."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: GenericOp, rewriter: PatternRewriter) -> None:
        if len(op.results) != 1 or len(op.outputs) != 1:
            return
        nest = Nest.of(op)
        (written,), shape = nest.writes, shape_of(op.results[0])
        units = [d for d, size in enumerate(shape) if size == 1]
        kept = [d for d in range(len(shape)) if d not in units]
        loops = {written.loops[d] for d in units}
        follows = any((added_units(v) or {}).keys() ^ set(range(len(shape_of(v)))) for v in op.inputs if _expanded(v))
        if not kept or not units or not (FIXED in loops or (follows and nest.is_elementwise)) or min(shape) < 0:
            return
        if loops & set(nest.indices.values()) or (init := _without(written.value, kept, rewriter)) is None:
            return
        left = [loop for loop in range(nest.loops) if loop not in loops]
        reads = [_read(access, left) for access in nest.reads]
        maps = [*(map_ for _, map_ in reads), _on(written.map, left, kept)]
        if {loop for map_ in maps for loop in loops_of(map_)} < set(range(len(left))):
            return
        summed = [left.index(loop) for loop in nest.summed if loop in left]
        kind = TensorType(element_of(op.results[0]), [shape[d] for d in kept])
        made = generic(op, [value for value, _ in reads], [init], _body(op, left), maps, summed, [kind])
        wide = expand(rewriter.insert(made).results[0], around(kept, len(shape)), shape)
        wide.location = op.location
        rewriter.replace(op, wide)


def _expanded(value: SSAValue) -> bool:
    return isinstance(value.owner, tensor.ExpandShapeOp) and added_units(value) is not None


def _body(op: GenericOp, left: Sequence[int]) -> Region:
    """The body of an operation, with the numbers of the loops that are left."""
    body = op.body.clone()
    for inner in body.block.ops:
        if isinstance(inner, IndexOp):
            inner.dim = IntegerAttr(left.index(inner.dim.value.data) if inner.dim.value.data in left else 0, i64)
    return body


def _on(map_: AffineMap, left: Sequence[int], kept: Sequence[int]) -> AffineMap:
    """Some results of a map, of the loops that are left; the others are at 0."""
    zero = AffineConstantExpr(0)
    every: list[AffineExpr] = [
        AffineDimExpr(left.index(loop)) if loop in left else zero for loop in range(map_.num_dims)
    ]
    results = tuple(map_.results[d] for d in kept)
    return AffineMap(map_.num_dims, 0, results).replace_dims_and_symbols(every, [], len(left), 0)


def _read(access: NestAccess, left: Sequence[int]) -> tuple[SSAValue, AffineMap]:
    """An operand as it was before dimensions of size 1 were added that no loop runs along; and its map."""
    added = added_units(access.value)
    if added is None or not isinstance(op := access.value.owner, tensor.ExpandShapeOp):
        return access.value, _on(access.map, left, range(len(access.map.results)))
    return op.src, _on(access.map, left, sorted(added, key=added.__getitem__))


def _without(value: SSAValue, kept: Sequence[int], rewriter: PatternRewriter) -> SSAValue | None:
    """What an output starts from, without its dimensions of size 1."""
    kind = TensorType(element_of(value), [shape_of(value)[d] for d in kept])
    if isinstance(value.owner, tensor.EmptyOp):
        return rewriter.insert(tensor.EmptyOp([], kind)).tensor
    if isinstance(fill := value.owner, FillOp):
        empty = rewriter.insert(tensor.EmptyOp([], kind)).tensor
        made = FillOp(fill.inputs, [empty], [kind])
        made.location = fill.location
        return rewriter.insert(made).results[0]
    return rewriter.insert(collapse(value, around(kept, len(shape_of(value))), list(kind.get_shape()))).result


class CollapseSummed(RewritePattern):
    """Replaces a reduction along several loops, along which its operands lie together, by one along a single loop."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: GenericOp, rewriter: PatternRewriter) -> None:
        nest = Nest.of(op)
        summed = list(nest.summed)
        if (
            len(summed) < 2
            or len(op.results) != 1
            or nest.combination is None
            or set(summed) & {*nest.indices.values()}
        ):
            return
        if any(set(summed) & set(access.loops) for access in nest.writes) or len(op.inputs) != 1:
            return
        (read,) = nest.reads
        shape, at = shape_of(read.value), read.loops.index(summed[0]) if summed[0] in read.loops else FIXED
        if at == FIXED or read.loops[at : at + len(summed)] != tuple(summed) or min(shape) < 0:
            return
        behind = at + len(summed)
        groups = around([*range(at + 1), *range(behind, len(shape))], len(shape))
        sizes = [prod(shape[d] for d in group) for group in groups]
        left = [loop for loop in range(nest.loops) if loop not in summed[1:]]
        source = rewriter.insert(collapse(read.value, groups, sizes))
        source.location = op.location
        maps = [_on(read.map, left, [group[0] for group in groups])]
        maps += [_on(access.map, left, range(len(access.map.results))) for access in nest.writes]
        one = [left.index(summed[0])]
        rewriter.replace(
            op, generic(op, [source.result], list(op.outputs), op.body.clone(), maps, one, op.result_types)
        )


PATTERNS: tuple[RewritePattern, ...] = (DropUnitLoops(), CollapseSummed())
