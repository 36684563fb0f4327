"""Which reductions are matrix products, which of their loops are m, n, k and batch, and how their windows lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from itertools import product as combinations
from typing import NamedTuple, NoReturn, TypeAlias

from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, MemRefType
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation, NamedOperation
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind, AffineDimExpr, AffineExpr, AffineMap
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.utils.exceptions import VerifyException

from ...dialect.isa import wgmma
from ...dialect.isa.form import having
from ...dialect.mlir.affine import (
    Factor,
    LinearForm,
    Nest,
    NestAccess,
    Weighted,
    expression_of,
    factors,
    generic,
    is_plain,
    linear,
    loops_of,
    map_along,
    runs_backwards,
    strides_of,
    weighted,
    windows,
)
from ...dialect.warp.attributes import element_row, is_memory, memory_of, target_of
from ...dialect.warp.elements import element_type, shape_of
from ...dialect.warp.views import WindowOp
from ..diagnostics import fail
from ..patterns import IndexBuilder, constant_value, rewrite_pattern
from .operand import collapse, expand


def along_loops(
    op: LinalgStructuredOperation,
    value: SSAValue,
    map_: AffineMap,
    more: Sequence[int] = (),
    *,
    backwards: bool = False,
) -> tuple[SSAValue, tuple[int, ...]]:
    """A window of an operand with a dimension for each loop of its map, and of `more`, along which it repeats; and
    these loops, in order. It may run `backwards` along some. Raises a located diagnostic for a map that no strides
    follow, or a loop whose length no operand tells."""
    forms = windows(map_)
    if forms is None or (runs_backwards(map_) and not backwards):
        fail(op, f"expected every dimension of an input along a sum of loops times constants, got {map_}")
    loops = [*more, *sorted({loop for by, _ in forms for loop in by})]
    lengths = [_length(op, loop) for loop in loops]
    index = IndexBuilder(op)
    sizes = [index.value(index.dim(memory, dimension)) for memory, dimension, size in lengths if size < 0]
    places = {loop: AffineDimExpr(place) for place, loop in enumerate(loops)}
    every: list[AffineDimExpr] = [places.get(loop, places[loops[0]]) for loop in range(map_.num_dims)] if loops else []
    along = map_.replace_dims_and_symbols(every, [], len(loops), 0)
    try:
        return index.insert(WindowOp(value, along, [size for _, _, size in lengths], sizes)).result, tuple(loops)
    except VerifyException as error:
        fail(op, f"{op.name}: {error}")


def _length(op: LinalgStructuredOperation, loop: int) -> tuple[SSAValue, int, int]:
    """An operand and the dimension of it that runs along a loop, and its size."""
    if (along := Nest.of(op).along(loop)) is None:
        fail(op, f"expected a dimension of an operand along d{loop} alone, which tells its length")
    access, dimension, size = along
    return access.value, dimension, size


IMAGE_BITS = 16
"""Bits of elements of images that tensor copies read in im2col mode."""


class Contraction(NamedTuple):
    """C += A * B. The loops are those of the batch, other reduction loops, m, n, k. `operands` are A, B and C, with
    `maps`. `inputs` are the numbers of A and B among the inputs. `unsigned` says whose integers are zero-extended.
    `body` is what is added to C. The map of a vector has one result more than the vector has dimensions: a loop of size
    1, m or n, comes first."""

    operands: tuple[SSAValue, SSAValue, SSAValue]
    maps: tuple[AffineMap, AffineMap, AffineMap]
    inputs: tuple[int, int]
    unsigned: tuple[bool, bool]
    body: Weighted


class Side(NamedTuple):
    """An operand, and the loop that each of its dimensions runs along."""

    value: SSAValue
    loops: tuple[int, ...]
    factor: Factor

    def step(self, loop: int | None) -> int | None:
        """The stride of a loop in elements. It is 1 for a loop that this side lacks."""
        strides = strides_of(memory_of(self.value))
        return 1 if loop is None else None if strides is None else strides[self.loops.index(loop)]

    def size(self, loop: int) -> int:
        return memory_of(self.value).get_shape()[self.loops.index(loop)]


INSTRUCTION_ROWS = 16
"""Rows of A in an instruction, at least."""


class LoopKinds(NamedTuple):
    """The loops of a product: those of A and C alone, of B and C alone, of A and B alone, and the others of C."""

    own: tuple[list[int], list[int]]
    summed: list[int]
    shared: list[int]

    @staticmethod
    def of(a: Side, b: Side, c: Side) -> LoopKinds:
        of_a, of_b = (
            [loop for loop in c.loops if loop in side.loops and loop not in other.loops]
            for side, other in ((a, b), (b, a))
        )
        summed = [loop for loop in a.loops if loop not in c.loops]
        return LoopKinds((of_a, of_b), summed, [loop for loop in c.loops if loop not in (*of_a, *of_b)])


def multiplies_images(op: Operation, a: SSAValue, b: SSAValue) -> bool:
    """Whether warpgroups can multiply A and B from images: elements of 16 bits, which they take in any layout, and
    static sizes."""
    target, kinds = target_of(op), [memory_of(value) for value in (a, b)]
    elements = [element_row(kind.element_type) for kind in kinds]
    static = all(kind.has_static_shape() for kind in kinds)
    if target is None or not static or any(element is None or element.bits != IMAGE_BITS for element in elements):
        return False
    return any(row.runs_on(target) for row in having(wgmma.dense_rows, a=elements[0], b=elements[1]))


class SeparateProductsError(Exception):
    """Neighbours in memory of an operand are of products of their own."""


def read(op: LinalgStructuredOperation) -> Contraction:
    """Reads an operation with a sum as a product of matrices.

    A is the factor whose own loop comes first in C. If A and C have several loops in common, m is the one along which
    elements are contiguous, where that is required, else the last one in C. The others are a batch over which B
    repeats. The same holds for n. One of the reduction loops is k, and the others are loops around it. A factor without
    a loop of its own is a vector; it is A, a matrix of one row.

    Operands whose dimensions run along sums of loops, as in convolutions, or that lack a loop that both need, are read
    through windows.

    Raises a located diagnostic if it is no such product. Raises SeparateProductsError if operands do not lie as
    matrices.
    """
    zeros, points = _zeros(op), range(2, len(op.inputs)) if isinstance(op, NamedOperation) else ()
    if (point := next((n for n in points if n not in zeros), None)) is not None:
        fail(op, f"the zero point of {'AB'[point - 2]} is not the constant 0")
    body, maps = weighted(op.body.block, zeros), [attribute.data for attribute in op.get_indexing_maps()]
    if body is None or {f.argument for f in body.factors} != {0, 1} or len(op.outputs) != 1:
        _refuse(op, "its body does not add the product of its two inputs to its output")
    if not is_plain(maps[-1]):
        _refuse(op, f"expected every dimension of the output to run along a loop of its own, got {maps[-1]}")
    c = Side(op.outputs[0], loops_of(maps[-1]), Factor(len(maps) - 1))
    a, b = _repeated(op, [_side(op, factor, maps) for factor in body.factors], c)
    loops = LoopKinds.of(a, b, c)
    windows_of = [isinstance(side.value.owner, WindowOp) for side in (b, a)]
    convolves = not loops.shared and any(w and len(own) == 1 for w, own in zip(windows_of, loops.own, strict=True))
    if not convolves or not multiplies_images(op, a.value, b.value):
        a, b = _joined(op, a, b, c)
        loops = LoopKinds.of(a, b, c)
    if not loops.summed:
        _refuse(op, "nothing is summed over, the output has every loop of the inputs")
    if _place(loops.own[1], c) < _place(loops.own[0], c):
        a, b, loops = b, a, LoopKinds((loops.own[1], loops.own[0]), loops.summed, loops.shared)
    own, k = _chosen(a, b, c, loops)
    for name, side, pair in zip("ABC", (a, b, c), ((own[0], k), (own[1], k), own), strict=True):
        _check_neighbours(name, side, pair, loops)
    # A loop that a vector lacks gets a number that no other loop has.
    m, n = (maps[-1].num_dims + place if loop is None else loop for place, loop in enumerate(own))
    summed = [loop for loop in sorted(loops.summed) if loop != k]
    order = [*(loop for loop in c.loops if loop not in (m, n)), *summed, m, n, k]
    added = [loop for loop, loop_of_own in zip((m, n), own, strict=True) if loop_of_own is None]
    map_a, map_b, map_c = (
        map_along(len(order), map(order.index, (*(loop for loop in added if loop != other), *names)))
        for names, other in ((a.loops, n), (b.loops, m), (c.loops, None))
    )
    inputs, signs = (a.factor.argument, b.factor.argument), (a.factor.unsigned, b.factor.unsigned)
    return Contraction((a.value, b.value, c.value), (map_a, map_b, map_c), inputs, signs, body)


def adds_products(op: LinalgStructuredOperation) -> bool:
    """Whether an operation adds products of two inputs, of types that tensor cores know, to its only output."""
    body, values = weighted(op.body.block, _zeros(op)), (*op.inputs[:2], *op.outputs)
    two = body is not None and {f.argument for f in body.factors} == {0, 1} and len(op.outputs) == 1
    return two and all(element_row(element_type(value)) is not None for value in values if is_memory(value.type))


def is_simple(op: LinalgStructuredOperation) -> bool:
    """Whether an operation adds plain products over one reduction loop, and reads its operands without windows. `read`
    then makes no new operations."""
    maps = [attribute.data for attribute in op.get_indexing_maps()]
    if len(maps) != 3 or not all(map(is_plain, maps)) or factors(op.body.block) is None:
        return False
    a, b, c = map(set, map(loops_of, maps))
    return len((a | b) - c) == len((a & b) - c) == 1 and c <= a | b


def _zeros(op: LinalgStructuredOperation) -> list[int]:
    """The inputs that are the number 0, such as zero points after A and B."""
    return [i for i, value in enumerate(op.inputs) if constant_value(value) == 0]


def _side(op: LinalgStructuredOperation, factor: Factor, maps: Sequence[AffineMap]) -> Side:
    """A factor along its loops: a window where its dimensions run along anything but a loop each. Dimensions of one
    index, which no loop runs along, are left out."""
    value, map_ = op.inputs[factor.argument], maps[factor.argument]
    rank, shape = len(map_.results), memory_of(value).get_shape()
    kept = [d for d, by in enumerate(map_.results) if shape[d] != 1 or by.used_dims()]
    if 0 < len(kept) < rank:
        value = IndexBuilder(op).insert(collapse(value, around(kept, rank))).result
        map_ = AffineMap(map_.num_dims, 0, tuple(map_.results[d] for d in kept))
    if is_plain(map_):
        return Side(value, loops_of(map_), factor)
    backwards = runs_backwards(map_) and multiplies_images(op, *op.inputs[:2])
    return Side(*along_loops(op, value, map_, backwards=backwards), factor)


def around(kept: Sequence[int], rank: int) -> list[list[int]]:
    """All dimensions in groups, each with one of the kept dimensions."""
    ends = [*kept[1:], rank]
    starts = [0, *ends[:-1]]
    return [list(range(start, end)) for start, end in zip(starts, ends, strict=True)]


def _repeated(op: LinalgStructuredOperation, sides: Sequence[Side], c: Side) -> tuple[Side, Side]:
    """Both sides, each with the other's reduction loops added as repetitions. A vector is also repeated along a loop of
    C that neither side has."""
    a, b = sides
    wanted = [[loop for loop in other.loops if loop not in (*c.loops, *own.loops)] for own, other in ((a, b), (b, a))]
    free = [loop for loop in c.loops if loop not in (*a.loops, *b.loops)]
    for more, own, other in zip(wanted, (a, b), (b, a), strict=True):
        if free and not any(loop in c.loops and loop not in other.loops for loop in own.loops):
            more.append(free.pop(0))
    first, second = (_along_more(op, side, more) for side, more in zip((a, b), wanted, strict=True))
    return first, second


def _along_more(op: LinalgStructuredOperation, side: Side, more: Sequence[int]) -> Side:
    if not more:
        return side
    loops = op.get_indexing_maps().data[-1].data.num_dims
    map_ = AffineMap(loops, 0, tuple(map(AffineDimExpr, side.loops)))
    return Side(*along_loops(op, side.value, map_, more), side.factor)


def _joined(op: LinalgStructuredOperation, a: Side, b: Side, c: Side) -> tuple[Side, Side]:
    """A and B with two loops that are summed over as one, wherever both step from the last index of the second to the
    next of the first as between any two."""
    summed = LoopKinds.of(a, b, c).summed
    for first, second in combinations(summed, summed):
        if first != second and _joins(a, first, second) and _joins(b, first, second):
            return _joined(op, _join(op, a, first), _join(op, b, first), c)
    return a, b


def _joins(side: Side, first: int, second: int) -> bool:
    if second not in side.loops[side.loops.index(first) + 1 :][:1]:
        return False
    inner, size = side.step(second), side.size(second)
    return inner is not None and size > 0 and side.size(first) > 0 and side.step(first) == inner * size


def _join(op: LinalgStructuredOperation, side: Side, first: int) -> Side:
    loops = tuple(loop for loop in side.loops if loop != first)
    at, rank = side.loops.index(first), len(side.loops)
    view = collapse(side.value, [[at, at + 1] if d == at else [d] for d in range(rank) if d != at + 1])
    return Side(IndexBuilder(op).insert(view).result, loops, side.factor)


def _place(own: Sequence[int], c: Side) -> int:
    return c.loops.index(own[-1]) if own else -1


def _chosen(a: Side, b: Side, c: Side, loops: LoopKinds) -> tuple[tuple[int | None, int | None], int]:
    """The loops m and n (None for a vector) and k. It prefers loops along which all operands are contiguous, best of
    all A and B along k, and then loops that fill the rows and columns of an instruction."""

    def worth(choice: tuple[int | None, int | None, int]) -> tuple[int, int, int, int]:
        m, n, k = choice
        pairs = ((a, m, k), (b, n, k), (c, m, n))
        lie = sum(1 in (side.step(first), side.step(second)) for side, first, second in pairs)
        filled = sum(_filled(side, loop) for side, loop in ((a, m), (b, n)))
        return lie, sum(side.step(k) == 1 for side in (a, b)), a.size(k), filled

    first, second = (own[::-1] or [None] for own in loops.own)
    m, n, k = max(combinations(first, second, sorted(loops.summed)), key=worth)
    return (m, n), k


def _filled(side: Side, loop: int | None) -> int:
    """How many rows of an instruction the indices of a loop fill."""
    size = 1 if loop is None else side.size(loop)
    return INSTRUCTION_ROWS if size < 0 else min(size, INSTRUCTION_ROWS)


def _check_neighbours(name: str, side: Side, pair: tuple[int | None, int | None], loops: LoopKinds) -> None:
    """Rejects an operand whose contiguous elements belong to separate products, as in a depthwise convolution with
    channels last."""
    along = [loop for loop in loops.shared if loop in side.loops and side.step(loop) == 1]
    if along and not any(side.step(loop) == 1 for loop in pair if loop is not None) and side.size(along[0]) != 1:
        raise SeparateProductsError(
            f"elements of {name} that are neighbours in memory lie along d{along[0]}, each index of which has a "
            "product of its own; expected neighbours along rows, columns, or a loop that is summed over"
        )


def _refuse(op: LinalgStructuredOperation, why: str) -> NoReturn:
    fail(op, f"{op.name} sums, but is no product of matrices: {why}")


# Loops whose quotients and remainders index memory, each as several loops: patches, and scales of groups.
#
# `mlir-opt` writes the matrix of a convolution's patches as a copy along `(i, j) -> (i floordiv 8 + j floordiv 3, i mod
# 8 + j mod 3)`. With i as 8 a + b and j as 3 c + d that is `(a, b, c, d) -> (a + c, b + d)`: a window of the image.
# `(k, n) -> (k floordiv 128, n)` beside `(k, n) -> (k, n)` says of weights what `(g, i, n) -> (g, n)` and `(g, i, n) ->
# (g, i, n)` say of memory with a dimension more.


PARTS = (AffineBinaryOpKind.FloorDiv, AffineBinaryOpKind.Mod)


class Digit(NamedTuple):
    """A loop that stands for a part of another loop. One step of it is `weight` steps of that loop."""

    loop: int
    size: int
    weight: int


Digits: TypeAlias = Mapping[int, Sequence[Digit]]
"""The loops that stand for each loop, slowest first."""


@rewrite_pattern
def split_loops(op: GenericOp, rewriter: PatternRewriter) -> None:
    """Replaces quotients and remainders of loops in an elementwise operation by loops of their own. It leaves
    operations with other maps, dynamic sizes, or remainders that do not divide their loop."""
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
        rewriter.insert(expand(access.value, parts)).result if any(len(part) > 1 for part in parts) else access.value
        for access, (_, parts) in zip(nest.accesses, reads, strict=True)
    )
    maps = [map_ for map_, _ in reads]
    made = generic(op, inputs, [output], op.detach_region(op.body), maps)
    rewriter.replace(op, made)
    others = [number for number, map_ in enumerate(maps) if not is_plain(map_)]
    seen = [along_loops(made, inputs[number], maps[number]) for number in others]
    for number, (window, loops) in zip(others, seen, strict=True):
        made.operands[number], maps[number] = window, map_along(maps[number].num_dims, loops)
    made.indexing_maps = ArrayAttr(map(AffineMapAttr, maps))


def _is_static(access: NestAccess) -> bool:
    """Whether an operand is memory with static sizes and strides."""
    if not isinstance(access.value.type, MemRefType) or min(shape_of(access.value), default=1) < 1:
        return False
    strides = strides_of(memory_of(access.value))
    return strides is not None and None not in strides


def _digits(maps: Sequence[AffineMap], sizes: Mapping[int, int]) -> Digits | None:
    """The loops that replace each loop; None if no loop is split, or one cannot be."""
    cuts: dict[int, set[int]] = {loop: {1} for loop in sizes}
    if not all(_cut(expr, cuts) for map_ in maps for expr in map_.results) or all(len(of) == 1 for of in cuts.values()):
        return None
    digits: dict[int, list[Digit]] = {}
    first = 0
    for loop, size in sorted(sizes.items()):
        weights = [*sorted(weight for weight in cuts[loop] if weight < size or weight == 1), size]
        if any(after % before for before, after in pairwise(weights)):
            return None
        pairs = list(pairwise(weights))[::-1]
        digits[loop] = [Digit(first + n, after // before, before) for n, (before, after) in enumerate(pairs)]
        first += len(pairs)
    return digits


def _cut(expr: AffineExpr, cuts: Mapping[int, set[int]]) -> bool:
    """Notes where quotients and remainders cut loops; False for those of anything but a loop."""
    if not isinstance(expr, AffineBinaryOpExpr):
        return True
    if expr.kind in PARTS:
        return _quotient(expr, cuts) is not None
    return _cut(expr.lhs, cuts) and _cut(expr.rhs, cuts)


def _quotient(expr: AffineExpr, cuts: Mapping[int, set[int]]) -> tuple[int, int] | None:
    """The loop of nested quotients and remainders, and the product of the divisors."""
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
    """The map in terms of the new loops, and for each old dimension the sizes of the dimensions that replace it; None
    if the map is no sum of new loops. A dimension along one loop becomes a dimension for each loop that replaces it,
    unless another dimension is along a sum."""
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
    """The quotient or remainder of a linear form. All terms but those whose sum is less than the divisor must be
    multiples of it; otherwise None."""
    sizes = {digit.loop: digit.size for one in digits.values() for digit in one}
    small = {loop: factor for loop, factor in of[0].items() if factor % by}
    if of[1] or min(of[0].values(), default=0) < 0 or sum(f * (sizes[loop] - 1) for loop, f in small.items()) >= by:
        return None
    if kind == AffineBinaryOpKind.Mod:
        return small, 0
    return {loop: factor // by for loop, factor in of[0].items() if loop not in small}, 0
