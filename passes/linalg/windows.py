"""Memory seen along the loops of an operation, a dimension for each; and two of its dimensions seen as one."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType, NoneAttr, StridedLayoutAttr
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.rewriter import InsertPoint
from xdsl.utils.exceptions import VerifyException

from ...dialect.warp.attributes import memory_of
from ...dialect.warp.loops import loops_of, shape_of
from ...dialect.warp.view import strides_of
from ...dialect.warp.window import WindowOp, windows
from ..diagnostics import fail
from .views import collapsed


def is_plain(map_: AffineMap) -> bool:
    """Whether each dimension of an operand runs along a loop of its own."""
    found = loops_of(map_)
    return -1 not in found and len(set(found)) == len(found)


def along_loops(
    op: LinalgStructuredOperation, value: SSAValue, map_: AffineMap, more: Sequence[int] = ()
) -> tuple[SSAValue, tuple[int, ...]]:
    """A window of an operand with a dimension for each loop of its map, and of `more`, along which it repeats; and
    these loops, in order.

    Raises a located diagnostic for a map that no strides follow, or a loop whose length no operand tells.
    """
    forms = windows(map_)
    if forms is None:
        fail(op, f"expected every dimension of an input along a sum of loops times constants, got {map_}")
    loops = [*more, *sorted({loop for by, _ in forms for loop in by})]
    found = [_length(op, loop) for loop in loops]
    builder, sizes = Builder(InsertPoint.before(op)), list[SSAValue]()
    for memory, dimension, size in found:
        if size < 0:
            number = builder.insert(arith.ConstantOp(IntegerAttr(dimension, IndexType()))).result
            sizes.append(builder.insert(memref.DimOp(memory, number)).result)
    places = {loop: AffineDimExpr(place) for place, loop in enumerate(loops)}
    every: list[AffineDimExpr] = [places.get(loop, places[loops[0]]) for loop in range(map_.num_dims)] if loops else []
    along = map_.replace_dims_and_symbols(every, [], len(loops), 0)
    try:
        window = builder.insert(WindowOp(value, along, [size for _, _, size in found], sizes))
    except VerifyException as error:
        fail(op, f"{op.name}: {error}")
    window.location = op.location
    return window.result, tuple(loops)


def length(op: LinalgStructuredOperation, loop: int) -> int:
    """How many indices a loop has, -1 if that is not known."""
    return _length(op, loop)[2]


def _length(op: LinalgStructuredOperation, loop: int) -> tuple[SSAValue, int, int]:
    """An operand and the dimension of it that runs along a loop, and its size."""
    unknown: tuple[SSAValue, int, int] | None = None
    for value, attribute in zip(op.operands, op.get_indexing_maps(), strict=True):
        loops = loops_of(attribute.data)
        if loop in loops:
            size = shape_of(value)[loops.index(loop)]
            unknown = unknown or (value, loops.index(loop), size)
            if size >= 0:
                return value, loops.index(loop), size
    if unknown is None:
        fail(op, f"expected a dimension of an operand along d{loop} alone, which tells its length")
    return unknown


def joined(op: Operation, value: SSAValue, first: int) -> SSAValue:
    """Memory with a dimension and the next one as one, seen so before an operation."""
    kind = memory_of(value)
    shape, strides = list(kind.get_shape()), list(strides_of(kind) or ())
    shape[first : first + 2], strides[first : first + 2] = [shape[first] * shape[first + 1]], [strides[first + 1]]
    layout = NoneAttr() if isinstance(kind.layout, NoneAttr) else StridedLayoutAttr(strides, kind.get_offset())
    groups = [[d] for d in range(first)] + [[first, first + 1]] + [[d] for d in range(first + 2, len(shape) + 1)]
    view = collapsed(value, MemRefType(kind.element_type, shape, layout, kind.memory_space), groups)
    return Builder(InsertPoint.before(op)).insert(view).result
