"""Groups of neighbours along k brought to one form: dimensions of their own of weights, and one k of the product.

`(k, n) -> (k floordiv 128, n)` beside `(k, n) -> (k, n)` says of an elementwise operation what `(g, i, n) -> (g, n)`
and `(g, i, n) -> (g, i, n)` say of memory with a dimension more. A product summed over g and i is one over k.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from xdsl.dialects import memref
from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, MemRefType, NoneAttr
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.dialects.linalg.ops import GenericOp, IndexOp
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind, AffineConstantExpr, AffineDimExpr, AffineExpr
from xdsl.ir.affine import AffineMap as Map
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.mlir.affine import loops_of, map_along
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.elements import K
from ...dialect.warp.matmul import MatmulOp
from .operand import collapsed, expanded


def expand_groups(op: GenericOp) -> None:
    """Gives groups along one loop a dimension of their own, in an operation that fills memory of its own alone.

    What cannot be said so stays: other maps, sizes that are not known, groups that do not divide the loop.
    """
    maps = [attribute.data for attribute in op.get_indexing_maps()]
    found = {pair for map_ in maps for pair in _quotients(map_)}
    output = op.outputs[0]
    if len(found) != 1 or len(op.outputs) != 1 or not isinstance(output.owner, memref.AllocOp):
        return
    (loop, size), kinds = found.pop(), [value.type for value in op.operands]
    along = loops_of(maps[-1])
    if sorted(along) != list(range(maps[-1].num_dims)) or any(map(_is_other, maps)):
        return
    length = memory_of(output).get_shape()[along.index(loop)]
    plain = all(isinstance(k, MemRefType) and isinstance(k.layout, NoneAttr) and min(k.get_shape()) > 0 for k in kinds)
    parallel = all(iterator == IteratorTypeAttr.parallel() for iterator in op.get_iterator_types())
    if not plain or not parallel or length % size or any(isinstance(o, IndexOp) for o in op.body.walk()):
        return
    _expand(op, loop, size, maps)


def merge_sums(product: MatmulOp) -> MatmulOp:
    """A product that is summed over a loop beside k, over both as one k where they are neighbours in A and in B; else
    the product as it is."""
    views: list[memref.CollapseShapeOp] = []
    if product.outer != 1 or product.batch or any(product.forms) or product.epilogue:
        return product
    for value, map_ in zip((product.a, product.b), product.maps, strict=False):
        loops, held = loops_of(map_), memory_of(value)
        first = loops.index(0)
        if loops[first : first + 2] != (0, 1 + K) or not isinstance(held.layout, NoneAttr) or min(held.get_shape()) < 1:
            return product
        groups = [[d, d + 1] if d == first else [d] for d in range(len(loops)) if d != first + 1]
        shape = [math.prod(held.get_shape()[d] for d in group) for group in groups]
        kind = MemRefType(held.element_type, shape, memory_space=held.memory_space)
        views.append(collapsed(value, kind, groups))
    a, b = (view.result for view in views)
    Rewriter.insert_op(views, InsertPoint.before(product))
    merged = product.like(a=a, b=b, maps=[_without_first(map_) for map_ in product.maps])
    Rewriter.replace_op(product, merged, [])
    return merged


def _without_first(map_: Map) -> Map:
    """The map of the loops behind the first one."""
    return map_along(map_.num_dims - 1, (loop - 1 for loop in loops_of(map_) if loop))


def _expand(op: GenericOp, loop: int, size: int, maps: list[Map]) -> None:
    """Writes the operation with `loop` as two, of which the inner one has `size` turns."""
    output = op.outputs[0]
    inputs = [_apart(value, map_, loop, size, op) for value, map_ in zip(op.inputs, maps, strict=False)]
    kind, groups = _kind(output, maps[-1], loop, size)
    made = memref.AllocOp([], [], kind)
    whole = collapsed(made.memref, memory_of(output), groups)
    Rewriter.insert_op([made, whole], InsertPoint.before(output.owner))  # pyright: ignore[reportArgumentType]
    for use in list(output.uses):
        if isinstance(use.operation, memref.DeallocOp):
            use.operation.operands[use.index] = made.memref
        elif use.operation is not op:
            use.operation.operands[use.index] = whole.result
    after = GenericOp(
        inputs,
        [made.memref],
        op.detach_region(op.body),
        ArrayAttr(AffineMapAttr(_split(map_, loop)) for map_ in maps),
        ArrayAttr([IteratorTypeAttr.parallel()] * (maps[0].num_dims + 1)),
    )
    after.location = op.location
    Rewriter.replace_op(op, after)
    if isinstance(output.owner, memref.AllocOp):
        Rewriter.erase_op(output.owner)


def _apart(value: SSAValue, map_: Map, loop: int, size: int, before: GenericOp) -> SSAValue:
    """An input with the dimension along `loop`, if it has one, as two."""
    if AffineDimExpr(loop) not in map_.results:
        return value
    view = expanded(value, *_kind(value, map_, loop, size))
    Rewriter.insert_op(view, InsertPoint.before(before))
    return view.result


def _kind(value: SSAValue, map_: Map, loop: int, size: int) -> tuple[MemRefType, list[list[int]]]:
    """The type of memory with the dimension along `loop` as two, and which dimensions become of each."""
    held, shape, groups = memory_of(value), list[int](), list[list[int]]()
    for expression, length in zip(map_.results, held.get_shape(), strict=True):
        parts = [length // size, size] if expression == AffineDimExpr(loop) else [length]
        groups.append([len(shape) + i for i in range(len(parts))])
        shape += parts
    return MemRefType(held.element_type, shape, held.layout, held.memory_space), groups


def _split(map_: Map, loop: int) -> Map:
    """The map of the loops that there are when `loop` is two."""
    results: list[AffineExpr] = []
    for expression in map_.results:
        if isinstance(expression, AffineBinaryOpExpr):
            results.append(AffineDimExpr(loop))
        elif isinstance(expression, AffineDimExpr):
            own = expression.position + (expression.position > loop)
            results += [AffineDimExpr(own), *([AffineDimExpr(loop + 1)] if expression.position == loop else [])]
        else:
            results.append(expression)
    return Map(map_.num_dims + 1, 0, tuple(results))


def _quotients(map_: Map) -> Iterator[tuple[int, int]]:
    """The loops that a map divides, with what by."""
    for expression in map_.results:
        if isinstance(expression, AffineBinaryOpExpr) and expression.kind is AffineBinaryOpKind.FloorDiv:
            loop, by = expression.lhs, expression.rhs
            if isinstance(loop, AffineDimExpr) and isinstance(by, AffineConstantExpr) and by.value > 0:
                yield loop.position, by.value


def _is_other(map_: Map) -> bool:
    """Whether a map has more than loops, constants and quotients of loops."""
    plain = sum(isinstance(expression, AffineDimExpr | AffineConstantExpr) for expression in map_.results)
    return plain + len(list(_quotients(map_))) != len(map_.results)
