"""Dimensions of a tensor merged, dropped and added: reshapes that undo each other, reductions without dimensions of
size 1, and rows of several dimensions as one; and what they are in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from math import prod
from typing import TypeAlias

from xdsl.builder import Builder
from xdsl.dialects import arith, memref, tensor
from xdsl.dialects.builtin import IntegerAttr, MemRefType, NoneAttr, StridedLayoutAttr, TensorType, f32, i64
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import FillOp, GenericOp, IndexOp
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr, AffineExpr, AffineMap
from xdsl.pattern_rewriter import PatternRewriter

from ...dialect.mlir.affine import (
    FIXED,
    Nest,
    NestAccess,
    arithmetic,
    generic,
    is_projection,
    linear,
    loops_of,
    map_along,
    strides_of,
)
from ...dialect.mlir.upstream import CastOp
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.elements import element_type, shape_of
from ..diagnostics import fail
from ..patterns import IndexBuilder, float_value, rewrite_pattern, slice_of
from . import operand
from .contraction import adds_products, around
from .operand import Groups, collapsed, expanded, groups_of, kept_dimensions
from .tensors import LinalgBuilder, Reshape, collapse, expand

# Dimensions of size 1 that reductions keep: loops and results without them.
#
# A front end reduces `tensor<40x72xf32>` to `tensor<40x1xf32>`, or to `tensor<40xf32>`, which it then expands. Here the
# reduction, and the elementwise operations on what it makes, have the first form of neither: a result is expanded
# behind its operation, and an operand that was expanded is read as it was before.


def added_units(value: SSAValue) -> dict[int, int] | None:
    """The source dimension of each dimension of a tensor that was only expanded by dimensions of size 1; else None."""
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


@rewrite_pattern
def drop_unit_loops(op: GenericOp, rewriter: PatternRewriter) -> None:
    """Replaces an operation whose output keeps reduced dimensions of size 1 by one without these dimensions, and drops
    reduction loops of one turn."""
    if len(op.results) != 1 or len(op.outputs) != 1:
        return
    nest = Nest.of(op)
    (written,), shape = nest.writes, shape_of(op.results[0])
    units = [d for d, size in enumerate(shape) if size == 1]
    sizes = {loop: n for access in nest.reads for loop, n in zip(access.loops, shape_of(access.value), strict=True)}
    single = {loop for loop in nest.summed if sizes.get(loop) == 1}
    windows = not all(map(is_projection, nest.maps))  # whose loops are read by their number
    single = single if len(single) < len(nest.summed) and not windows else set[int]()
    expanded = [access for access in nest.reads if _is_expanded(access.value)]
    added = [_added_loops(access) for access in expanded]
    is_reshaped = any(list(shape_of(v)) == list(shape) and not _is_expanded(v) for v in op.inputs)
    dropped = set[int].intersection(*added) if added and nest.is_elementwise and not is_reshaped else set[int]()
    dropped |= {FIXED, *(set(range(nest.loops)) - set(sizes) if nest.summed else ())}
    units = [d for d in units if written.loops[d] in dropped]
    kept = [d for d in range(len(shape)) if d not in units]
    loops = {written.loops[d] for d in units} | single
    unknown = _sizes_of(written.value)
    if not kept or sum(size < 0 for size in shape) != len(unknown) or not loops:
        return
    if loops & set(nest.indices.values()):
        return
    init = _without(written.value, kept, LinalgBuilder(op))
    left = [loop for loop in range(nest.loops) if loop not in loops]
    reads = [_read(access, left) for access in nest.reads]
    maps = [*(map_ for _, map_ in reads), _on(written.map, left, kept)]
    if {loop for map_ in maps for loop in loops_of(map_)} < set(range(len(left))):
        return
    summed = [left.index(loop) for loop in nest.summed if loop in left]
    kind = TensorType(element_type(op.results[0]), [shape[d] for d in kept])
    made = generic(op, [value for value, _ in reads], [init], _body(op, left), maps, summed, [kind])
    if not units:
        rewriter.replace(op, made)
        return
    rewriter.replace(op, expand(rewriter.insert(made).results[0], around(kept, len(shape)), shape, unknown))


def _sizes_of(value: SSAValue) -> Sequence[SSAValue]:
    """The sizes that the type does not tell, of a tensor without contents or a filled one; none of others."""
    op = value.owner.outputs[0].owner if isinstance(value.owner, FillOp) else value.owner
    return op.dynamic_sizes if isinstance(op, tensor.EmptyOp) else ()


def _added_loops(access: NestAccess) -> set[int]:
    """The loops along dimensions of size 1 that were added to an operand."""
    kept = added_units(access.value) or {}
    return {loop for d, loop in enumerate(access.loops) if d not in kept}


def _is_expanded(value: SSAValue) -> bool:
    return isinstance(value.owner, tensor.ExpandShapeOp) and added_units(value) is not None


def _body(op: GenericOp, left: Sequence[int]) -> Region:
    """The body of an operation, with the numbers of the loops that are left."""
    body = op.body.clone()
    for inner in body.block.ops:
        if isinstance(inner, IndexOp):
            inner.dim = IntegerAttr(left.index(inner.dim.value.data) if inner.dim.value.data in left else 0, i64)
    return body


def _on(map_: AffineMap, left: Sequence[int], kept: Sequence[int]) -> AffineMap:
    """The results `kept` of a map, on the loops `left`. The other loops are 0."""
    zero = AffineConstantExpr(0)
    every: list[AffineExpr] = [AffineDimExpr(left.index(d)) if d in left else zero for d in range(map_.num_dims)]
    results = tuple(map_.results[d] for d in kept)
    return AffineMap(map_.num_dims, 0, results).replace_dims_and_symbols(every, [], len(left), 0)


def _read(access: NestAccess, left: Sequence[int]) -> tuple[SSAValue, AffineMap]:
    """An operand as it was before dimensions of size 1 were added that no loop runs along; and its map."""
    added = added_units(access.value)
    if added is None or not isinstance(op := access.value.owner, tensor.ExpandShapeOp):
        return access.value, _on(access.map, left, range(len(access.map.results)))
    return op.src, _on(access.map, left, sorted(added, key=added.__getitem__))


def _without(value: SSAValue, kept: Sequence[int], make: LinalgBuilder) -> SSAValue:
    """What an output starts from, without its dimensions of size 1."""
    if len(kept) == len(shape_of(value)):
        return value
    kind = TensorType(element_type(value), [shape_of(value)[d] for d in kept])
    if isinstance(value.owner, tensor.EmptyOp):
        return make.empty(kind, _sizes_of(value))
    if isinstance(fill := value.owner, FillOp):
        return make.filled(kind, fill.inputs[0], _sizes_of(value))
    return make.insert(collapse(value, around(kept, len(shape_of(value))), list(kind.get_shape()))).result


@rewrite_pattern
def collapse_summed(op: GenericOp, rewriter: PatternRewriter) -> None:
    """Merges several reduction loops into one, if they are contiguous in all operands; products have several."""
    nest = Nest.of(op)
    merged = tuple(nest.summed)
    if len(merged) < 2 or len(op.results) != 1 or nest.combination is None or adds_products(op):
        return
    if {*merged} & {*nest.indices.values(), *(loop for access in nest.writes for loop in access.loops)}:
        return
    if not all(_is_contiguous(access, merged) for access in nest.reads):
        return
    left = [loop for loop in range(nest.loops) if loop not in merged[1:]]
    reads = [_merged(access, merged, left, rewriter) for access in nest.reads]
    maps = [map_ for _, map_ in reads]
    maps += [_on(access.map, left, range(len(access.map.results))) for access in nest.writes]
    inputs, one = [value for value, _ in reads], [left.index(merged[0])]
    rewriter.replace(op, generic(op, inputs, list(op.outputs), _body(op, left), maps, one, op.result_types))


@rewrite_pattern
def sum_in_two(op: GenericOp, rewriter: PatternRewriter) -> None:
    """Sums over loops that are apart in memory, images and pixels of a channel for example, over the last of them
    first: of those, and then of what they give, rows can be made."""
    nest, fill = Nest.of(op), op.outputs[0].owner if len(op.outputs) == 1 else None
    how, summed, first = nest.combination, nest.summed, len(nest.summed) - 1
    adds = how is not None and isinstance(how.by, arith.AddfOp) and how.value.type == f32 and not nest.indices
    if not adds or adds_products(op) or not isinstance(fill, FillOp) or float_value(fill.inputs[0]) != 0:
        return
    while first > 0 and all(_is_contiguous(access, summed[first - 1 :]) for access in nest.reads):
        first -= 1
    is_positive = min(size for access in nest.accesses for size in (1, *shape_of(access.value))) > 0
    if first <= 0 or not is_positive or not op.results or not all(map(is_projection, nest.maps)):
        return
    left = [loop for loop in range(nest.loops) if loop not in summed[first:]]
    kind = TensorType(f32, [place[2] for loop in left if (place := nest.along(loop)) is not None])
    make, maps = LinalgBuilder(op), [*nest.maps[:-1], map_along(nest.loops, left)]
    parts = make.computed(op.inputs, make.filled(kind, fill.inputs[0]), maps, op.body.clone(), summed[first:])
    maps = [AffineMap.identity(len(left)), _on(nest.maps[-1], left, range(len(nest.maps[-1].results)))]
    rest = [left.index(loop) for loop in summed[:first]]
    rewriter.replace(op, [], [make.computed([parts], op.outputs[0], maps, partial(arithmetic, "add"), rest)])


PIXELS = 8
"""Elements that divide the pixels of an image that tensor copies read as a row."""


@rewrite_pattern
def collapse_pixels(op: LinalgStructuredOperation, rewriter: PatternRewriter) -> None:
    """Makes a convolution of single pixels with channels before them a product for each image, of the filter and a
    matrix of channels and pixels."""
    nest, start = Nest.of(op), op.outputs[0].owner if len(op.outputs) == len(op.results) == 1 else None
    if len(nest.reads) != 2 or not isinstance(start, FillOp) or min(len(a.map.results) for a in nest.accesses) < 3:
        return
    image, kernel = sorted(nest.reads, key=lambda access: FIXED not in access.loops)
    (first, feature, *pixels), taps = nest.writes[0].loops, kernel.loops[2:]
    channel, (shape, size) = kernel.loops[1], (shape_of(each) for each in (op.results[0], kernel.value))
    steps = [linear(expr) for expr in image.map.results]
    moves = [[(loop, by) for loop, by in each[0].items() if loop not in taps] for each in steps if each is not None]
    moved = any(each is not None and each[1] for each in steps)
    if moves != [[(loop, 1)] for loop in (first, channel, *pixels)] or moved:
        return
    if not taps or {*size[2:]} != {1} or {channel, *taps} != {*nest.summed} or kernel.loops[0] != feature:
        return
    if shape_of(image.value)[2:] != shape[2:] or prod(shape[2:]) % PIXELS or min(shape) < 0:
        return
    places, flat, make = list(range(2, len(shape))), [*shape[:2], prod(shape[2:])], LinalgBuilder(op)
    weights = make.insert(collapse(kernel.value, [[0], [1, *range(2, len(size))]], size[:2])).result
    rows = make.insert(collapse(image.value, [[0], [1], places], [shape[0], size[1], flat[-1]])).result
    sums = make.filled(TensorType(element_type(op.results[0]), flat), start.inputs[0])
    seen = {image: (rows, (0, 3, 2)), kernel: (weights, (1, 3))}
    maps = [*(map_along(4, seen[access][1]) for access in nest.reads), map_along(4, range(3))]
    made = make.computed([seen[access][0] for access in nest.reads], sums, maps, op.body.clone(), [3])
    rewriter.replace(op, expand(made, [[0], [1], places], shape))


@rewrite_pattern
def collapse_row(op: GenericOp, rewriter: PatternRewriter) -> None:
    """Merges the last loops of an elementwise operation into one if an operand is the same along all of them, as the
    mean of all pixels of an image is, or its neighbours have merged them: what is summed over them and what reads the
    sum then have the same rows."""
    nest = Nest.of(op)
    shape = shape_of(op.results[0]) if len(op.results) == 1 else ()
    plain = nest.is_elementwise and not nest.indices and not nest.writes[0].element.uses
    if not plain or nest.writes[0].loops != tuple(range(nest.loops)) or min(shape, default=-1) < 0:
        return
    first = min((*(_first(access, nest.loops) for access in nest.reads), _merged_from(op)), default=nest.loops)
    merged = tuple(range(first, nest.loops))
    if sum(shape[loop] != 1 for loop in merged) < 2 or not first:
        return
    if not all(_is_contiguous(access, merged) for access in nest.reads):
        return
    left = [*range(first + 1)]
    reads = [_merged(access, merged, left, rewriter) for access in nest.reads]
    kind, make = TensorType(element_type(op.results[0]), [*shape[:first], prod(shape[first:])]), LinalgBuilder(op)
    maps = [*(map_ for _, map_ in reads), AffineMap.identity(len(left))]
    made = make.computed([value for value, _ in reads], make.empty(kind), maps, op.body.clone())
    rewriter.replace(op, expand(made, [*([loop] for loop in range(first)), list(merged)], shape))


def _first(access: NestAccess, loops: int) -> int:
    """The loop from which on an operand is the same, or was merged; the number of loops if there is none."""
    expanded = access.value.owner
    if isinstance(expanded, tensor.ExpandShapeOp) and access.loops == tuple(range(loops)):
        return _first_of_last(groups_of(expanded), loops)
    return max((loop for loop in access.loops if loop != FIXED), default=loops - 1) + 1


def _first_of_last(groups: Groups, rank: int) -> int:
    """The first dimension of the last group, if that alone has several; else the rank. A number has no group."""
    return rank if not groups or any(len(group) > 1 for group in groups[:-1]) else groups[-1][0]


def _merged_from(op: GenericOp) -> int:
    """The loop from which on all that read a result have merged its dimensions; else the number of loops."""
    rank, users = len(shape_of(op.results[0])), [use.operation for use in op.results[0].uses]
    firsts = {_first_of_last(groups_of(u), rank) if isinstance(u, tensor.CollapseShapeOp) else rank for u in users}
    return max(firsts, default=rank)


def _merged(
    access: NestAccess, merged: Sequence[int], left: Sequence[int], rewriter: PatternRewriter
) -> tuple[SSAValue, AffineMap]:
    """An operand with one dimension for merged loops, and its map on the loops that are left."""
    shape, value = shape_of(access.value), access.value
    kept = [d for d, loop in enumerate(access.loops) if loop not in merged[1:]]
    if len(kept) < len(shape):
        groups, expanded = around(kept, len(shape)), value.owner
        if isinstance(expanded, tensor.ExpandShapeOp) and groups_of(expanded) == groups:
            return expanded.src, _on(access.map, left, kept)
        value = rewriter.insert(collapse(value, groups, [prod(shape[d] for d in group) for group in groups])).result
    return value, _on(access.map, left, kept)


def _is_contiguous(access: NestAccess, loops: tuple[int, ...]) -> bool:
    """Whether an operand of known sizes has the dimensions of these loops one after another, or none of them."""
    if min(shape_of(access.value), default=1) < 0 or not is_projection(access.map):
        return False
    at = access.loops.index(loops[0]) if loops[0] in access.loops else 0
    return access.loops[at : at + len(loops)] == loops or not {*loops} & {*access.loops}


@rewrite_pattern
def fold_reshapes(op: tensor.CollapseShapeOp | tensor.ExpandShapeOp, rewriter: PatternRewriter) -> None:
    """Replaces a reshape that undoes another one, but for dimensions of size 1, by what that reshapes."""
    before, after = op.operands[0].owner, shape_of(op.results[0])
    if not isinstance(before, Reshape):
        return
    source, groups = before.operands[0], groups_of(op)
    wide = source if isinstance(before, tensor.CollapseShapeOp) else before.results[0]
    if min(*shape_of(source), *after, 0) < 0:
        undone = source.type == op.results[0].type and groups == groups_of(before)
        if undone and all(len(group) == 1 or min(shape_of(wide)[d] for d in group) >= 0 for group in groups):
            rewriter.replace(op, [], [source])
        return
    sizes = [[size for size in shape if size != 1] for shape in (shape_of(source), after)]
    if sizes[0] == sizes[1] and sizes[0]:
        rewriter.replace(op, [], [with_units(source, after, rewriter)])


def with_units(value: SSAValue, shape: Sequence[int], rewriter: PatternRewriter) -> SSAValue:
    """A tensor of known sizes in a shape that only has other dimensions of size 1."""
    before = shape_of(value)
    if list(before) == list(shape):
        return value
    kept = [[d for d, size in enumerate(each) if size != 1] for each in (before, shape)]
    if len(kept[0]) < len(before):
        narrow = collapse(value, around(kept[0], len(before)), [before[d] for d in kept[0]])
        value = rewriter.insert(narrow).result
    if len(kept[1]) < len(shape):
        value = rewriter.insert(expand(value, around(kept[1], len(shape)), shape)).result
    return value


@rewrite_pattern
def regroup_behind(op: GenericOp, rewriter: PatternRewriter) -> None:
    """Moves a reshape of what follows a sum to dimensions that do not divide those before, as the groups of a group
    norm are no channels, behind the operation on elements that reads it: one kernel can then compute both."""
    nest, shape = Nest.of(op), shape_of(op.results[0]) if len(op.results) == 1 else ()
    order = tuple(range(nest.loops))
    plain = bool(shape) and nest.is_elementwise and not nest.indices and nest.writes[0].loops == order
    if not plain or min(shape, default=-1) < 0 or any(access.loops not in (order, ()) for access in nest.reads):
        return
    chain = next(filter(None, (_regrouped(access.value) for access in nest.reads)), None)
    if chain is None or any(_sums(use.operation) for use in op.results[0].uses):  # whose rows it may be of
        return
    collapsed, expanded = chain
    before, flat, make = shape_of(collapsed.src), shape_of(expanded.src), LinalgBuilder(op)
    inputs, maps = list[SSAValue](), list[AffineMap]()
    for access in nest.reads:
        value, own = access.value, _regrouped(access.value)
        if own is not None and shape_of(own[0].src) == before:
            value = own[0].src
        elif access.loops:
            merged = make.insert(collapse(value, groups_of(expanded), flat)).result
            value = make.insert(expand(merged, groups_of(collapsed), before)).result
        inputs.append(value)
        maps.append(map_along(len(before), range(len(before)) if access.loops else ()))
    empty = make.empty(TensorType(element_type(op.results[0]), before))
    made = make.computed(inputs, empty, [*maps, AffineMap.identity(len(before))], op.body.clone())
    merged = make.insert(collapse(made, groups_of(collapsed), flat)).result
    rewriter.replace(op, expand(merged, groups_of(expanded), shape))


def _sums(op: Operation) -> bool:
    """Whether an operation reduces, and is no product."""
    return isinstance(op, GenericOp) and bool(Nest.of(op).summed) and not adds_products(op)


def follows(value: SSAValue, ends: Callable[[Operation], bool], passes: Callable[[Operation], bool]) -> bool:
    """Whether a value is made by an operation at which a search `ends`, or of such a value by those it `passes`."""
    wanted, visited = [value], set[SSAValue]()
    while wanted:
        visited.add(one := wanted.pop())
        if isinstance(op := one.owner, Operation):
            if ends(op):
                return True
            wanted += [each for each in op.operands if each not in visited] if passes(op) else ()
    return False


def _is_of_elements(op: Operation) -> bool:
    return isinstance(op, Reshape) or (isinstance(op, GenericOp) and Nest.of(op).is_elementwise)


def _regrouped(value: SSAValue) -> tuple[tensor.CollapseShapeOp, tensor.ExpandShapeOp] | None:
    """The reshapes of what follows a sum to dimensions that do not divide those before."""
    expanded = value.owner
    collapsed = expanded.src.owner if isinstance(expanded, tensor.ExpandShapeOp) else None
    if not isinstance(expanded, tensor.ExpandShapeOp) or not isinstance(collapsed, tensor.CollapseShapeOp):
        return None
    before, after = ({prod(shape[d:]) for d in range(len(shape))} for shape in map(shape_of, (collapsed.src, value)))
    return (collapsed, expanded) if not before <= after and follows(collapsed.src, _sums, _is_of_elements) else None


# Views of tensors as views of memory.

Shaped: TypeAlias = Reshape | tensor.ExtractSliceOp | tensor.CastOp
"""What makes a view of a tensor."""


def is_collapsible(source: SSAValue, groups: Sequence[Sequence[int]]) -> bool:
    """Whether the dimensions of each group are known to be contiguous, so that they can become one."""
    kind = memory_of(source)
    strides, shape = strides_of(kind), kind.get_shape()
    if isinstance(kind.layout, NoneAttr) or strides is None:
        return True
    several = ([d for d in group if shape[d] != 1] for group in groups)
    steps = ((strides[a], strides[b], shape[b]) for group in several for a, b in pairwise(group))
    return all(inner is not None and size >= 0 and outer == inner * size for outer, inner, size in steps)


def regroups_static_sizes(op: Reshape, source: MemRefType[Attribute], result: MemRefType[Attribute]) -> bool:
    """Whether the dimensions that a reshape merges, or splits one into, have known sizes."""
    shape = (source if isinstance(op, tensor.CollapseShapeOp) else result).get_shape()
    return all(shape[d] >= 0 for group in groups_of(op) if len(group) > 1 for d in group)


def viewed(op: Shaped, source: SSAValue) -> Operation:
    """The view of memory that corresponds to a view of a tensor."""
    match op:
        case tensor.CollapseShapeOp() if not isinstance(memory_of(source).layout, NoneAttr):
            return operand.collapse(source, groups_of(op))
        case tensor.ExpandShapeOp() if not isinstance(memory_of(source).layout, NoneAttr):
            shape = op.result.type.get_shape()
            return operand.expand(
                source, [[shape[d] for d in group] for group in groups_of(op)], op.dynamic_output_shape
            )
        case tensor.CollapseShapeOp() | tensor.ExpandShapeOp():
            return reshaped(op, source, memory_like(source, op.result))
        case tensor.CastOp():
            return CastOp.build(operands=[source], result_types=[memory_like(source, op.dest)])
        case tensor.ExtractSliceOp():
            return subview_of(op, source, op.result.type.get_shape())


def memory_like(source: SSAValue, view: SSAValue) -> MemRefType[Attribute]:
    """The memory type of a tensor that is a view of the memory of another one."""
    return MemRefType(memory_of(source).element_type, shape_of(view), NoneAttr(), NoneAttr())


def subview_of(
    op: tensor.ExtractSliceOp | tensor.InsertSliceOp, source: SSAValue, shape: Sequence[int]
) -> memref.SubviewOp:
    """The subview of memory that a slice reads or writes, with the rank of `shape`."""
    kind = memory_of(source)
    if strides_of(kind) is None:
        fail(op, f"expected a part of strided memory, got one of {kind}")
    whole = memref.SubviewOp.infer_result_type(kind, *slice_of(op, lambda value: value))
    steps = strides_of(whole) or ()
    layout = StridedLayoutAttr([steps[d] for d in kept_dimensions(whole.get_shape(), shape)], whole.get_offset())
    result = MemRefType(kind.element_type, shape, layout, kind.memory_space)
    return memref.SubviewOp(
        source, op.offsets, op.sizes, op.strides, op.static_offsets, op.static_sizes, op.static_strides, result
    )


def reshaped(op: Reshape, source: SSAValue, kind: MemRefType[Attribute], back: Builder | None = None) -> Operation:
    """A reshape's result as a view of its source's memory; with `back`, which makes sizes, the other way round."""
    groups = groups_of(op)
    if isinstance(op, tensor.CollapseShapeOp) != (back is not None):
        return collapsed(source, kind, groups)
    if back is None:
        return expanded(source, kind, groups, [] if isinstance(op, tensor.CollapseShapeOp) else op.dynamic_output_shape)
    return expanded(source, kind, groups, IndexBuilder(back).unknown_sizes(source))
