"""Loops whose quotients and remainders index memory, each as several loops: copies of patches, as im2col makes them.

`mlir-opt` writes the matrix of a convolution's patches as a copy along `(i, j) -> (i floordiv 8 + j floordiv 3,
i mod 8 + j mod 3)`. With i as 8 a + b and j as 3 c + d that is `(a, b, c, d) -> (a + c, b + d)`: a window of the image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from xdsl.dialects import memref
from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, MemRefType, NoneAttr, StridedLayoutAttr
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
)
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.warp.attributes import memory_of
from ...dialect.warp.loops import loops_of, map_along
from ...dialect.warp.view import strides_of
from ...dialect.warp.window import LinearForm, linear, windows
from .views import expanded
from .windows import along_loops, is_plain

PARTS = (AffineBinaryOpKind.FloorDiv, AffineBinaryOpKind.Mod)


class Digit(NamedTuple):
    """A loop that stands for a part of another one, of which it is so many indices from one turn to the next."""

    loop: int
    size: int
    weight: int


def split_copy(op: Operation) -> None:
    """Replaces a copy along quotients and remainders of loops by one along loops alone.

    What cannot be said so stays: other maps, sizes that are not known, remainders that do not divide their loop.
    """
    if not isinstance(op, GenericOp) or not _copies(op):
        return
    maps = [attribute.data for attribute in op.get_indexing_maps()]
    kind = memory_of(op.outputs[0])
    sizes = dict(zip(loops_of(maps[1]), kind.get_shape(), strict=True))
    digits = _digits(maps[0], sizes)
    seen = _along_digits(maps[0], digits) if digits else None
    if (
        digits is None
        or seen is None
        or windows(seen) is None
        or any(stride is None for stride in strides_of(kind) or ())
    ):
        return
    parts = [digits[loop] for loop in loops_of(maps[1])]
    view = _in_parts(op.outputs[0], parts)
    written = map_along(seen.num_dims, (digit.loop for one in parts for digit in one))
    Rewriter.insert_op(view, InsertPoint.before(op))
    made = GenericOp(
        list(op.inputs),
        [view.result],
        op.detach_region(op.body),
        ArrayAttr([AffineMapAttr(seen), AffineMapAttr(written)]),
        ArrayAttr([IteratorTypeAttr.parallel()] * seen.num_dims),
    )
    made.location = op.location
    Rewriter.replace_op(op, made)
    window, loops = along_loops(made, made.inputs[0], seen)
    made.operands[0] = window
    made.indexing_maps = ArrayAttr([AffineMapAttr(map_along(seen.num_dims, loops)), AffineMapAttr(written)])


def _copies(op: GenericOp) -> bool:
    """Whether an operation writes elements of one memory to another, all of whose sizes are known."""
    kinds = [value.type for value in op.operands]
    if len(op.inputs) != 1 or len(op.outputs) != 1 or not all(isinstance(kind, MemRefType) for kind in kinds):
        return False
    if any(iterator != IteratorTypeAttr.parallel() for iterator in op.get_iterator_types()):
        return False
    block, written = op.body.block, op.get_indexing_maps().data[1].data
    value = block.last_op.operands[0] if block.last_op and block.last_op is block.first_op else None
    whole = is_plain(written) and len(written.results) == written.num_dims
    return (
        whole
        and isinstance(value, BlockArgument)
        and value.index == 0
        and min(memory_of(op.outputs[0]).get_shape()) > 0
    )


def _digits(map_: AffineMap, sizes: Mapping[int, int]) -> dict[int, list[Digit]] | None:
    """What loops come to stand for each loop, slowest first; None if no loop is split, or one cannot be."""
    cuts: dict[int, set[int]] = {loop: {1} for loop in range(map_.num_dims)}
    if not all(_cut(expr, cuts) for expr in map_.results) or all(len(of) == 1 for of in cuts.values()):
        return None
    found: dict[int, list[Digit]] = {}
    first = 0
    for loop, size in sorted(sizes.items()):
        weights = [*sorted(weight for weight in cuts[loop] if weight < size or weight == 1), size]
        if any(after % before for before, after in pairwise(weights)):
            return None
        pairs = list(pairwise(weights))[::-1]
        found[loop] = [Digit(first + n, after // before, before) for n, (before, after) in enumerate(pairs)]
        first += len(pairs)
    return found


def _cut(expr: AffineExpr, cuts: Mapping[int, set[int]]) -> bool:
    """Notes where quotients and remainders cut loops; False for those of anything but a loop."""
    if not isinstance(expr, AffineBinaryOpExpr):
        return True
    if expr.kind in PARTS:
        return _quotient(expr, cuts) is not None
    return _cut(expr.lhs, cuts) and _cut(expr.rhs, cuts)


def _quotient(expr: AffineExpr, cuts: Mapping[int, set[int]]) -> tuple[int, int] | None:
    """The loop that quotients and remainders are of, and what it has been divided by."""
    if isinstance(expr, AffineDimExpr):
        return expr.position, 1
    if not isinstance(expr, AffineBinaryOpExpr) or expr.kind not in PARTS:
        return None
    inner, by = _quotient(expr.lhs, cuts), linear(expr.rhs)
    if inner is None or by is None or by[0] or by[1] < 1:
        return None
    loop, divided = inner
    cuts[loop].add(divided * by[1])
    return loop, divided * by[1] if expr.kind == AffineBinaryOpKind.FloorDiv else divided


def _along_digits(map_: AffineMap, digits: Mapping[int, Sequence[Digit]]) -> AffineMap | None:
    """A map by the new loops; None if it is no sum of them."""
    loops = sum(map(len, digits.values()))
    found = [_value(expr, digits) for expr in map_.results]
    known = [form for form in found if form is not None]
    return AffineMap(loops, 0, tuple(map(_expression, known))) if len(known) == len(found) else None


def _value(expr: AffineExpr, digits: Mapping[int, Sequence[Digit]]) -> LinearForm | None:
    """What an expression is, as a sum of new loops times constants."""
    if isinstance(expr, AffineDimExpr):
        return {digit.loop: digit.weight for digit in digits[expr.position]}, 0
    if not isinstance(expr, AffineBinaryOpExpr):
        return linear(expr)
    left, right = _value(expr.lhs, digits), _value(expr.rhs, digits)
    if left is None or right is None:
        return None
    if expr.kind in PARTS:
        return _part(left, right[1], expr.kind, digits) if not right[0] else None
    return linear(AffineBinaryOpExpr(expr.kind, _expression(left), _expression(right)))


def _part(
    of: LinearForm, by: int, kind: AffineBinaryOpKind, digits: Mapping[int, Sequence[Digit]]
) -> LinearForm | None:
    """The quotient or the remainder of a sum of which some terms are multiples of the divisor, and the others less."""
    sizes = {digit.loop: digit.size for one in digits.values() for digit in one}
    small = {loop: factor for loop, factor in of[0].items() if factor % by}
    if of[1] or min(of[0].values(), default=0) < 0 or sum(f * (sizes[loop] - 1) for loop, f in small.items()) >= by:
        return None
    if kind == AffineBinaryOpKind.Mod:
        return small, 0
    return {loop: factor // by for loop, factor in of[0].items() if loop not in small}, 0


def _expression(form: LinearForm) -> AffineExpr:
    total: AffineExpr = AffineConstantExpr(form[1])
    for loop, factor in form[0].items():
        term = AffineDimExpr(loop) if factor == 1 else AffineDimExpr(loop) * factor
        total = term if total == AffineConstantExpr(0) else total + term
    return total


def _in_parts(value: SSAValue, parts: Sequence[Sequence[Digit]]) -> memref.ExpandShapeOp:
    """Memory with a dimension for each of the loops that stand for one of its dimensions."""
    kind = memory_of(value)
    shape = [digit.size for one in parts for digit in one]
    steps = [
        step * digit.weight for step, one in zip(strides_of(kind) or (), parts, strict=True) for digit in one if step
    ]
    layout = NoneAttr() if isinstance(kind.layout, NoneAttr) else StridedLayoutAttr(steps, kind.get_offset())
    places = iter(range(len(shape)))
    groups = [[next(places) for _ in one] for one in parts]
    return expanded(value, MemRefType(kind.element_type, shape, layout, kind.memory_space), groups)
