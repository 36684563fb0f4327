"""Loops whose quotients and remainders index memory, each as several loops: patches, and scales of groups.

`mlir-opt` writes the matrix of a convolution's patches as a copy along `(i, j) -> (i floordiv 8 + j floordiv 3, i mod
8 + j mod 3)`. With i as 8 a + b and j as 3 c + d that is `(a, b, c, d) -> (a + c, b + d)`: a window of the image.
`(k, n) -> (k floordiv 128, n)` beside `(k, n) -> (k, n)` says of weights what `(g, i, n) -> (g, n)` and `(g, i, n) ->
(g, i, n)` say of memory with a dimension more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, MemRefType
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind, AffineDimExpr, AffineExpr, AffineMap
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint

from ...dialect.mlir.affine import LinearForm, expression_of, is_plain, linear, map_along, runs_backwards, windows
from ...dialect.nest import Nest, NestAccess, generic
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.elements import shape_of
from ...dialect.warp.views import strides_of
from .contraction import along_loops
from .operand import expand

PARTS = (AffineBinaryOpKind.FloorDiv, AffineBinaryOpKind.Mod)


class Digit(NamedTuple):
    """A loop that stands for a part of another one, of which it is so many indices from one turn to the next."""

    loop: int
    size: int
    weight: int


Digits: TypeAlias = Mapping[int, Sequence[Digit]]
"""The loops that stand for each loop, slowest first."""


class SplitLoops(RewritePattern):
    """Replaces an elementwise operation along quotients and remainders of loops by one along loops alone.

    What cannot be said so stays: other maps, sizes that are not known, remainders that do not divide their loop.
    """

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: GenericOp, rewriter: PatternRewriter) -> None:
        nest = Nest.of(op)
        if len(nest.writes) != 1 or not nest.is_elementwise or nest.indices or not all(map(_is_static, nest.accesses)):
            return
        (written,) = nest.writes
        maps = [access.map for access in nest.reads]
        digits = _digits(maps, dict(zip(written.loops, memory_of(written.value).get_shape(), strict=True)))
        split = [] if digits is None else [_split(map_, digits) for map_ in nest.maps]
        reads = [each for each in split if each is not None]
        if digits is None or len(reads) < len(split):
            return
        *inputs, output = (
            _seen_as(access.value, parts, op, rewriter) for access, (_, parts) in zip(nest.accesses, reads, strict=True)
        )
        maps = [map_ for map_, _ in reads]
        made = generic(op, inputs, [output], op.detach_region(op.body), maps)
        rewriter.replace(op, made)
        for number, map_ in enumerate(maps):
            if not is_plain(map_):
                made.operands[number], loops = along_loops(made, inputs[number], map_)
                maps[number] = map_along(map_.num_dims, loops)
        made.indexing_maps = ArrayAttr(map(AffineMapAttr, maps))


def _is_static(access: NestAccess) -> bool:
    """Whether an operand is memory of which sizes and strides are known."""
    if not isinstance(access.value.type, MemRefType) or min(shape_of(access.value), default=1) < 1:
        return False
    strides = strides_of(memory_of(access.value))
    return strides is not None and None not in strides


def _seen_as(value: SSAValue, parts: Sequence[Sequence[int]], op: GenericOp, rewriter: PatternRewriter) -> SSAValue:
    """An operand with several dimensions of these sizes for each of its own; as it is where there is one for each."""
    if all(len(part) == 1 for part in parts):
        return value
    view = expand(value, parts)
    rewriter.insert(view, InsertPoint.before(op))
    return view.result


def _digits(maps: Sequence[AffineMap], sizes: Mapping[int, int]) -> Digits | None:
    """What loops come to stand for each loop; None if no loop is split, or one cannot be."""
    cuts: dict[int, set[int]] = {loop: {1} for loop in sizes}
    if not all(_cut(expr, cuts) for map_ in maps for expr in map_.results) or all(len(of) == 1 for of in cuts.values()):
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


def _split(map_: AffineMap, digits: Digits) -> tuple[AffineMap, list[list[int]]] | None:
    """A map by the new loops, and the sizes of the dimensions that each dimension is seen as; None if it is no sum of
    new loops.

    A dimension along a loop alone is seen as one for each loop that stands for it, if no other is along a sum.
    """
    loops = [digit for part in digits.values() for digit in part]
    parts: list[Sequence[Digit]] = []
    forms = [_value(expr, digits) for expr in map_.results]
    for expr, form in zip(map_.results, forms, strict=True):
        if form is None:
            return None
        own = digits[expr.position] if isinstance(expr, AffineDimExpr) else ()
        parts.append(own or [digit for digit in loops if form == ({digit.loop: 1}, 0)])
    if all(parts):
        return map_along(len(loops), (d.loop for part in parts for d in part)), [[d.size for d in p] for p in parts]
    along = AffineMap(len(loops), 0, tuple(expression_of(form) for form in forms if form is not None))
    return None if windows(along) is None or runs_backwards(along) else (along, [])


def _value(expr: AffineExpr, digits: Digits) -> LinearForm | None:
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
    return linear(AffineBinaryOpExpr(expr.kind, expression_of(left), expression_of(right)))


def _part(of: LinearForm, by: int, kind: AffineBinaryOpKind, digits: Digits) -> LinearForm | None:
    """The quotient or the remainder of a sum of which some terms are multiples of the divisor, and the others less."""
    sizes = {digit.loop: digit.size for one in digits.values() for digit in one}
    small = {loop: factor for loop, factor in of[0].items() if factor % by}
    if of[1] or min(of[0].values(), default=0) < 0 or sum(f * (sizes[loop] - 1) for loop, f in small.items()) >= by:
        return None
    if kind == AffineBinaryOpKind.Mod:
        return small, 0
    return {loop: factor // by for loop, factor in of[0].items() if loop not in small}, 0
