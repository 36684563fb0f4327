"""Convolutions of images whose channels come first, by those of images with channels last.

Images, filter and result change their layout in launches of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from xdsl.builder import Builder
from xdsl.dialects import memref
from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, DenseArrayBase, MemRefType, i64
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import CopyOp, FillOp, GenericOp, TransposeOp
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.mlir.affine import FIXED, loops_of, map_along
from ...dialect.nest import Nest, NestAccess, generic
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.elements import shape_of
from ..diagnostics import chose
from ..patterns import IndexBuilder, operations_between
from .constants import permuted
from .contraction import multiplies_images
from .element_expressions import writer_before
from .image_windows import ALIGNED, Padded
from .operand import root, users_of


def _orders(op: LinalgStructuredOperation) -> dict[NestAccess, list[int]] | None:
    """The order of the dimensions of images, filter and result that has channels last; None for operations that are no
    convolution, or none that is computed so.

    The loop of groups is that of images, filter and result. Where each channel is a group, it is that of channels.
    """
    nest = Nest.of(op)
    if len(nest.reads) != 2 or len(nest.writes) != 1:
        return None
    image, kernel = sorted(nest.reads, key=lambda access: FIXED not in access.loops)
    written, shared = nest.writes[0], {*image.loops} & {*kernel.loops} - {FIXED}
    groups, channels = shared & {*written.loops}, shared & {*nest.summed}
    features = ({*kernel.loops} & {*written.loops}) - groups
    count = len(groups), len(channels), len(features)
    if FIXED in (*kernel.loops, *written.loops) or image.loops[0] not in written.loops or max(count) > 1:
        return None
    if count == (1, 0, 0):
        filter_ = _order(kernel, [], groups)
    elif count[1:] == (1, 1) and multiplies_images(op, *op.inputs):
        sizes = dict(zip(image.loops, shape_of(image.value), strict=True))
        size = prod(sizes[loop] for loop in shared)
        if image.loops[-1] in channels or (size >= ALIGNED and size % ALIGNED):
            return None
        filter_ = _order(kernel, [*groups, *features], channels)
    else:
        return None
    last = [*groups, *channels], [*groups, *features]
    return {image: _order(image, [], last[0]), kernel: filter_, written: _order(written, [], last[1])}


def _order(access: NestAccess, first: Collection[int], last: Collection[int]) -> list[int]:
    """The dimensions of an access in an order that begins and ends with those of these loops."""
    others = [d for d, loop in enumerate(access.loops) if loop not in (*first, *last)]
    return [*map(access.loops.index, first), *others, *map(access.loops.index, last)]


def with_channels_last(op: LinalgStructuredOperation) -> LinalgStructuredOperation | None:
    """Puts a convolution of images with channels last in the place of one with channels before pixels; None for any
    other operation, and for channels that tensor copies do not read."""
    orders = _orders(op) or {}
    changed = {access: order for access, order in orders.items() if order != sorted(order)}
    if not changed:
        return None
    nest, (image, kernel, written) = Nest.of(op), list(orders)
    what = "images, filter and result change their" if image in changed else "the filter changes its"
    chose(op, "warp-raise-matmul", f"{what} layout, for channels last")
    builder, moved = Builder(InsertPoint.before(op)), {access: access.value for access in orders}
    ends = 0, *(d for d, loop in enumerate(image.loops) if loop in kernel.loops)
    padded = Padded.of(image.value, op, ends) if image in changed else None
    padded = None if padded is None or padded.copy is None else padded
    fill = writer_before(written.value, op)
    for access in (access for access in (kernel, image, written) if access in changed):
        order = changed[access]
        if access is written and isinstance(fill, FillOp) and fill.outputs[0] is written.value:
            moved[access] = _allocated(builder, access.value, order)
            builder.insert(FillOp(list(fill.inputs), [moved[access]], []))
        else:
            moved[access] = transposed(builder, access.value, order) if access is not image else _images(
                builder, access.value, padded, order)  # fmt: skip
    maps = [AffineMap(nest.loops, 0, tuple(access.map.results[d] for d in orders[access])) for access in nest.accesses]
    inputs = [moved[access] for access in nest.reads]
    made = builder.insert(generic(op, inputs, [moved[written]], op.body.clone(), maps, nest.summed))
    if written in changed:
        end, sums, last = op, written.value, moved[written]
        while (follower := _follower(op, fill, sums)) is not None:
            end, sums, last = follower, *_moved_behind(follower, sums, last, orders[written])
        _turn_back(Builder(InsertPoint.after(end)), last, sums, orders[written])
    Rewriter.erase_op(op)
    if isinstance(fill, FillOp) and written in changed:
        between = operations_between(fill, made)
        if between is not None and users_of(root(written.value)).isdisjoint(between):
            Rewriter.erase_op(fill)
    if padded is not None:
        padded.drop_unused(padded.images())
    return made


def _follower(op: LinalgStructuredOperation, fill: Operation | None, sums: SSAValue) -> GenericOp | None:
    """The elementwise operation that alone reads the result of another, in its order."""
    readers = users_of(root(sums)) - {op, fill}
    follower = next(iter(readers), None)
    if len(readers) != 1 or not isinstance(follower, GenericOp) or not isinstance(sums.owner, memref.AllocOp):
        return None
    nest = Nest.of(follower)
    orders = {access.loops for access in (*nest.reads, *nest.writes) if access.value is sums or access in nest.writes}
    plain = nest.is_elementwise and len(nest.writes) == 1 and not nest.writes[0].element.uses and not nest.indices
    return follower if plain and orders == {tuple(range(nest.loops))} and follower.parent is op.parent else None


def _moved_behind(op: GenericOp, sums: SSAValue, moved: SSAValue, order: Sequence[int]) -> tuple[SSAValue, SSAValue]:
    """Makes an elementwise operation read permuted sums, and write its result so. Returns the memory of its result, and
    that of the permuted one."""
    builder, maps, whole = Builder(InsertPoint.before(op)), list(op.indexing_maps.data), range(len(order))
    (written,) = op.outputs
    for number, (value, map_) in enumerate(zip(op.operands, maps, strict=True)):
        if loops_of(map_.data) == tuple(whole):
            made = moved if value is sums else _allocated if value is written else transposed
            op.operands[number] = made if isinstance(made, SSAValue) else made(builder, value, order)
            maps[number] = AffineMapAttr(map_along(len(order), order))
    op.properties["indexing_maps"] = ArrayAttr(maps)
    return written, op.operands[-1]


def _turn_back(builder: Builder, value: SSAValue, into: SSAValue, order: Sequence[int]) -> None:
    back = [order.index(d) for d in range(len(order))]
    builder.insert(TransposeOp(value, into, DenseArrayBase.from_list(i64, back)))


def _allocated(builder: Builder, value: SSAValue, order: Sequence[int]) -> SSAValue:
    """Memory with the dimensions of other memory in an order."""
    kind, index = memory_of(value), IndexBuilder(builder)
    sizes = [size for d in order if not isinstance(size := index.dim(value, d), int)]
    shape = [kind.get_shape()[d] for d in order]
    return builder.insert(memref.AllocOp(sizes, [], MemRefType(kind.element_type, shape))).memref


def transposed(builder: Builder, value: SSAValue, order: Sequence[int]) -> SSAValue:
    """A copy of memory with its dimensions in an order; of a constant another constant."""
    if (constant := permuted(value, order)) is not None:
        return builder.insert(constant).memref
    made = _allocated(builder, value, order)
    builder.insert(TransposeOp(value, made, DenseArrayBase.from_list(i64, order)))
    return made


def _images(builder: Builder, value: SSAValue, padded: Padded | None, order: Sequence[int]) -> SSAValue:
    """A copy of images in an order; of images among zeros one that is copied among zeros."""
    if padded is None or padded.copy is None:
        return transposed(builder, value, order)
    inner, larger = transposed(builder, padded.copy.inputs[0], order), _allocated(builder, value, order)
    first, kind = (0, *padded.low, *[0] * (len(order) - 1 - len(padded.low))), memory_of(inner)
    builder.insert(FillOp(list(padded.fill.inputs), [larger], []))
    part = memref.SubviewOp.from_static_parameters(larger, memory_of(larger), first, kind.get_shape(), [1] * len(order))
    builder.insert(CopyOp([inner], [builder.insert(part).result], []))
    return larger
