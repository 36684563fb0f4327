"""`warp-fuse-attention`: the products around a softmax's gradient become `warp.attention_gradient`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain, count
from typing import NamedTuple

from xdsl.dialects.builtin import bf16, f16, f32, i8, i32
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap

from ...dialect.mlir.affine import FIXED, factors, is_projection, loops_of
from ...dialect.warp.attention import INPUTS, AttentionGradientOp
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.elements import element_type
from ..diagnostics import chose, remark
from .element_expressions import ElementExpression, ElementReader, Name, Subscripts, map_of, names_of, writer_before
from .element_regions import function_of
from .memory_uses import NotFusedError, Replacement, decline, place_in_block
from .operand import root
from .product import padded
from .read_attention import COLUMN, DEPTH, KEY, MAX_COLUMNS, QUERY, Scores, loop_order, scaled

# As of attention, what counts is what the elements of a factor are, as expressions. With S a product of Q and K, X a
# function of it, masked, dP a product of dO and V, lse and delta memory with a number for each query::
#
#     dV = sum over m of P dO      dK = sum over m of dS Q      dQ = sum over n of dS K
#     P = exp(X - lse)             dS = g(S, P * (dP - delta))
#
# g is linear in its second argument: the chain rule multiplies by what X says of S, whatever that is, and kernels
# compute it as it is written. Each result is recognised alone. dK and dV become one kernel, where a thread has
# registers for both.

NEAR = 1e-5
"""How far the factor of dS may be from the scale of scores, relative to it, to be taken for that."""

SCORE, WEIGHED = (ElementExpression("outside", name) for name in ("S", "P * (dP - delta)"))
"""What stands for S and for P * (dP - delta) in functions of them."""


class Softmax(NamedTuple):
    """P as an expression: Q, K and lse with their places, and the scores, of S."""

    q: tuple[SSAValue, Subscripts]
    k: tuple[SSAValue, Subscripts]
    lse: tuple[SSAValue, Subscripts]
    scores: Scores


class Slope(NamedTuple):
    """dO, V and delta, with their places, and dS as an expression of S and of P * (dP - delta). Where dS
    is only the latter times the scale of the scores, the expression is that product alone."""

    do: tuple[SSAValue, Subscripts]
    v: tuple[SSAValue, Subscripts]
    delta: tuple[SSAValue, Subscripts]
    slopes: ElementExpression


class GradientReader(ElementReader):
    """Reads elements back to products, or to memory that holds sums: delta may have been computed before."""

    def __init__(self) -> None:
        super().__init__("")

    def _reduced(self, op: LinalgStructuredOperation, at: Subscripts) -> ElementExpression | None:
        return None

    def stored(self, element: ElementExpression) -> ElementExpression:
        """An element as it is in memory that it was stored to; itself if it was to none, or is there alone."""
        for (value, at, before), other in self._expressions.items():
            if other == element and element.kind == "op" and (writer := writer_before(value, before)) is not None:
                self.left.add(writer)
                self.used.pop(writer, None)
                return ElementExpression("load", value=value, place=at)
        return element


class GradientMatch:
    """A product that makes a gradient of an attention: its name, its probabilities P, the operands of dS, dO, and the
    result. Raises NotFusedError if it makes no such gradient. The reason is empty if it does not even look like one."""

    def __init__(self, op: LinalgStructuredOperation) -> None:
        maps = [attribute.data for attribute in op.get_indexing_maps()]
        if len(maps) != 3 or factors(op.body.block) is None:
            decline("")
        places = [_loops_along(*each) for each in zip(op.operands, maps, strict=True)]
        self.op, self.last, self.of_c, loops = op, op, places[2], 1 + max(chain(*places), default=-1)
        # Once to see which loop runs over queries, and again with the names that masks are read by.
        names: dict[int, Name] = {loop: loop for loop in range(loops)}
        for number in range(2):
            self.a, self.b = (op.inputs[i] for i in (number, 1 - number))
            of_a, self.of_b = places[number], places[1 - number]
            if made := self._factors(of_a, names):
                break
        else:
            decline("")
        query, key = self._loops(made, loops)
        others = [loop for loop in self.of_b if loop in self.of_c and loop not in of_a]
        summed = {loop for loop in of_a if loop not in self.of_c}
        if len(others) != 1 or not summed & {query, key} or not summed <= {query, key, *self.of_b}:
            decline("it is no sum over queries or keys, and over loops that both of its factors have")
        inner: dict[int, Name] = {query: QUERY, key: KEY, others[0]: DEPTH if len(made) > 1 else COLUMN}
        (_, of_q), (_, of_k), _ = self._scores(made[0])
        listed = dict.fromkeys((*of_q, *of_k, *range(loops)))
        batch = [name for name in listed if isinstance(name, int) and name not in inner]
        names = {**{loop: place for place, loop in enumerate(batch)}, **inner}
        p, *others = self._factors(of_a, names)
        self.softmax = self._softmax(p)
        self.slope = self._slope(p, *others) if others else None
        self.name = "dV" if self.slope is None else "dQ" if query in self.of_c else "dK"
        self.batch = len(batch)
        self.factor = self.reader.source(self.b, names_of(self.of_b, names), op)
        self.result = op.outputs[0], names_of(self.of_c, names)
        expected = {"dV": None, "dK": self.softmax.q, "dQ": self.softmax.k}[self.name]
        if expected is not None and self.factor != expected:
            decline(f"what dS is multiplied with is not the {'Q' if self.name == 'dK' else 'K'} of its scores")
        shapes = (dict(zip(at, memory_of(v).get_shape(), strict=True)) for v, at in (self.softmax.q, self.result))
        widest = max(shape.get(name, 0) for shape in shapes for name in (DEPTH, COLUMN))
        if widest > MAX_COLUMNS:
            decline(f"heads have up to {MAX_COLUMNS} columns, got {widest}")
        if not self.reader.starts_from(op, 0.0):
            decline("its result does not start from zero")
        if element_type(self.result[0]) == f32:
            self._rounded_behind()

    def _rounded_behind(self) -> None:
        """Includes an operation that rounds the result, and does nothing else."""
        following, reader = self.reader.sole_reader(self.op, self.result[0]), GradientReader()
        behind = reader.behind(*self.result, following)
        if following is not None and behind is not None and behind[0] == behind[1]:
            self.last, self.result = following, behind[2]
            self.reader.used |= reader.used

    def _factors(self, of_a: Sequence[int], names: Mapping[int, Name]) -> Sequence[ElementExpression]:
        """P; or P, dP - delta and dS as a function of their product; nothing of something else."""
        self.reader = GradientReader()
        element = self.reader.element(self.a, names_of(of_a, names), self.op).unrounded(memory_of(self.b).element_type)
        if not any(element.leaves("product")):
            return []
        return [element] if element.is_op("math.exp") else _weighed(element)

    def _loops(self, made: Sequence[ElementExpression], loops: int) -> tuple[int, int]:
        """The loops over queries and over keys."""
        *sides, (lse, of_lse) = self._scores(made[0])
        of_q, of_k = ({name for name in place if isinstance(name, int)} for _, place in sides)
        queries = [name for name in of_lse if name in of_q - of_k]
        keys = of_k - of_q
        if not queries or len(keys) != 1 or max(*keys, *of_q) >= loops:
            decline("it is not clear which of its loops run over queries and keys")
        # Heads that share K run along Q and lse too; of what several loops may be, the longest is.
        compared = {leaf.name for leaf in made[0].leaves("index")}
        likely = [name for name in queries if name not in self.of_c] or queries
        likely = [name for name in likely if name in compared] or likely
        sizes = dict(zip(of_lse, memory_of(lse).get_shape(), strict=True))
        return int(str(max(reversed(likely), key=lambda name: sizes[name]))), keys.pop()

    def _scores(
        self, p: ElementExpression
    ) -> tuple[tuple[SSAValue, Subscripts], tuple[SSAValue, Subscripts], tuple[SSAValue, Subscripts]]:
        """Q, K and lse of P. Q is the one that more loops of lse index."""
        (exponent,) = p.operands
        products = list(exponent.leaves("product"))
        lse = self.reader.stored(exponent.operands[1]) if exponent.is_op("arith.subf") else exponent
        if len(products) != 1 or lse.kind != "load" or lse.value is None:
            decline("P is no exponential of a score less a number of each query, in memory")
        a, b = sorted(self._pair(products[0]), key=lambda side: -len(set(lse.place) & set(side[1])))
        return a, b, (lse.value, lse.place)

    def _softmax(self, p: ElementExpression) -> Softmax:
        """The softmax of which P is the result."""
        q, k, lse = self._scores(p)
        scores, (product,) = Scores.of(p.operands[0].operands[0], single=False, lengths=False), p.leaves("product")
        return Softmax(q, k, lse, scores._replace(rest=_with(scores.rest, product, SCORE)))

    def _slope(self, p: ElementExpression, slope: ElementExpression, whole: ElementExpression) -> Slope:
        product, delta = slope.operands[0], self.reader.stored(slope.operands[1])
        if product.kind != "product" or delta.kind != "load" or delta.value is None:
            decline("P is multiplied with something else than a product less a number of each query")
        whole = _with(whole, next(iter(p.leaves("product"))), SCORE)
        if any(whole.leaves("product")):
            decline("dS is a function of another product than P and dP are")
        inner, factor = scaled(whole)
        near = abs(factor - self.softmax.scores.scale) <= NEAR * self.softmax.scores.scale
        whole = inner if inner == WEIGHED and near and self.softmax.scores.rest == SCORE else whole
        a, b = self._pair(product, COLUMN)
        do, v = (a, b) if QUERY in a[1] else (b, a)
        if QUERY not in do[1] or KEY not in v[1] or KEY in do[1] or QUERY in v[1]:
            decline("dP is no product of one matrix with a row for each query and one with a row for each key")
        return Slope(do, v, (delta.value, delta.place), whole)

    def _pair(self, element: ElementExpression, over: Name = DEPTH) -> list[tuple[SSAValue, Subscripts]]:
        """The memories that an element of a product is of, and their places."""
        sides = self.reader.factors(element, over)
        if sides is None:
            decline("")
        return sides


def _loops_along(value: SSAValue, map_: AffineMap) -> tuple[int, ...]:
    """The loops that memory runs along: behind those of a map one more for each dimension of size 1 that it is at 0 of,
    as of a group of one head."""
    behind, loops = count(map_.num_dims), loops_of(map_)
    if not is_projection(map_) or any(
        loop == FIXED and size != 1 for loop, size in zip(loops, memory_of(value).get_shape(), strict=True)
    ):
        decline("")
    return tuple(next(behind) if loop == FIXED else loop for loop in loops)


def _with(element: ElementExpression, old: ElementExpression, new: ElementExpression) -> ElementExpression:
    """An expression with one of its elements replaced."""
    if element == old:
        return new
    operands = tuple(_with(operand, old, new) for operand in element.operands)
    return element if operands == element.operands else replace(element, operands=operands)


def _shared(element: ElementExpression, other: ElementExpression) -> ElementExpression:
    """What an element and another one are both functions of, in place of S, so that it is computed once."""
    parts = [operand for operand in element.operands if SCORE in operand.leaves("outside")]
    if len(parts) == 0 or SCORE not in _with(other, element, WEIGHED).leaves("outside"):
        return element
    return _shared(parts[0], other) if len(parts) == 1 else SCORE


def _weighed(element: ElementExpression) -> Sequence[ElementExpression]:
    """P, dP - delta, and an element as a function of their product, in which it is linear; nothing for another one."""
    factors = _multiplied(element)
    p = [factor for factor in factors if factor.is_op("math.exp") and any(factor.leaves("product"))]
    slopes = [factor for factor in factors if factor.is_op("arith.subf") and factor.operands[0].kind == "product"]
    if p and len(factors) > 1 and all(factor.number is not None for factor in factors if factor != p[0]):
        decline("P is scaled")
    if p and slopes:
        for each in (p[0], slopes[0]):
            factors.remove(each)
        return p[0], slopes[0], reduce(lambda made, other: replace(element, operands=(made, other)), factors, WEIGHED)
    linear = LINEAR.get(str(element.name), ()) if element.kind == "op" else ()
    parts = {at: made for at in linear if (made := _weighed(element.operands[at]))}
    others = [element.operands[at].number for at in linear if at not in parts]
    if len({made[:2] for made in parts.values()}) != 1 or (element.is_op("arith.mulf") and len(parts) > 1):
        return ()
    if not element.is_op("arith.mulf") and any(number != 0 for number in others):
        return ()
    operands = (parts[at][2] if at in parts else operand for at, operand in enumerate(element.operands))
    return *next(iter(parts.values()))[:2], replace(element, operands=tuple(operands))


LINEAR = {
    **dict.fromkeys(("arith.mulf", "arith.addf", "arith.subf"), (0, 1)),
    **dict.fromkeys(("arith.divf", "arith.negf"), (0,)),
    "arith.select": (1, 2),
}
"""Operations that are linear in these operands: in one of a product, in all of others."""


def _multiplied(element: ElementExpression) -> list[ElementExpression]:
    """The factors of an element."""
    if not element.is_op("arith.mulf"):
        return [element]
    return [factor for side in element.operands for factor in _multiplied(side)]


def _fuse(matches: Sequence[GradientMatch], slope: Slope) -> None:
    """Replaces the products of one result, or of dK and dV, by one operation. `slope` is that of dV too. Raises
    NotFusedError if that would change another result, or there is no such operation."""
    matches = sorted(matches, key=lambda match: match.name)
    softmax, written = matches[0].softmax, [match.result for match in matches]
    names = [match.name for match in matches]
    inputs = [softmax.q, softmax.k, slope.v, slope.do, softmax.lse, slope.delta]
    order = loop_order(matches[0].batch)
    of_product, scale, of_keys = softmax.scores
    keys = of_keys.placed(order)

    def made() -> AttentionGradientOp:
        maps = [map_of(place, order) for _, place in (*inputs, *written)]
        read_, outputs = ([value for value, _ in each] for each in (inputs, written))
        shared = _shared(of_product, slope.slopes)
        scores, slopes = (_with(element, shared, SCORE) for element in (of_product, slope.slopes))
        functions = {
            "products": function_of("products", shared, [SCORE], order),
            "scores": function_of("scores", scores, [SCORE], order),
            "slopes": None if names == ["dV"] else function_of("slopes", slopes, [SCORE, WEIGHED], order),
        }
        named = dict(zip(map(str.lower, INPUTS), read_, strict=True))
        return AttentionGradientOp(**named, outputs=outputs, indexing_maps=maps, **keys.fields(scale), **functions)

    used = frozenset({op for match in matches for op in (*match.reader.used, match.op, match.last)})
    last = max((match.last for match in matches), key=place_in_block)
    results, left = frozenset(value for value, _ in written), {op for match in matches for op in match.reader.left}
    read_from = {root(value) for value, _ in (*inputs, *keys.documents)}
    beside = [value for each in (of_product, slope.slopes) for value in each.memories([SCORE, WEIGHED]).values()]
    if other := next((kind for kind in map(element_type, beside) if kind not in (f32, f16, bf16, i32, i8)), None):
        decline(f"its scores are a function of elements of {other}; of f32, f16, bf16, i32 and i8 they may be")
    read_from.update(map(root, beside))
    Replacement(used, last, results, read_from, left).replace(made)


def fuse_gradients(operations: Iterable[LinalgStructuredOperation], by: str) -> None:
    """Replaces the products, among operations of two inputs, that compute gradients of an attention. `by` is the pass
    that emits the remarks."""
    every = list[GradientMatch]()
    for op in operations:
        try:
            every.append(GradientMatch(op))
        except NotFusedError as declined:
            if reason := str(declined):
                remark(op, by, f"{NOT_FUSED}: {reason}")
    slopes = [match for match in every if match.slope is not None]
    taken: list[GradientMatch] = []
    for match in (*slopes, *(match for match in every if match.slope is None)):
        like = [other for other in slopes if other.softmax == match.softmax]
        like = [other for other in like if match.slope is not None or _do(other) == match.factor]
        if match in taken:
            continue
        slope = match.slope or next((other.slope for other in like), None)
        if slope is None:
            remark(match.op, by, f"{NOT_FUSED}: {ALONE}")
            continue
        partners = [other for other in every if _together(match, other)]
        taken += [match, *partners]
        try:
            _fuse([match, *partners], slope)
            names = " and ".join(each.name for each in (match, *partners))
            chose(match.op, by, f"{names}, gradients of an attention, are one kernel")
        except NotFusedError as declined:
            remark(match.op, by, f"{NOT_FUSED}: {declined}")


NOT_FUSED = "it is not fused into the gradient of an attention"

ALONE = "P is known, and no product of the function says what dO and V it comes from"
"""Why P alone is not enough."""


def _do(match: GradientMatch) -> tuple[SSAValue, Subscripts] | None:
    """dO of a match of dQ or dK."""
    return None if match.slope is None else match.slope.do


def _together(match: GradientMatch, other: GradientMatch) -> bool:
    """Whether dV is made by the kernel of dK."""
    columns = sum(padded(memory_of(each.result[0]).get_shape()[-1]) for each in (match, other))
    both = (match.name, other.name) == ("dK", "dV") and match.softmax == other.softmax and _do(match) == other.factor
    around = [{name for name in each.result[1] if isinstance(name, int)} for each in (match, other)]
    # Slopes of scores take registers: both of 128 columns would spill 500 bytes with a soft cap (ptxas).
    kept = match.slope is not None and SCORE in match.slope.slopes.leaves("outside")
    most = MAX_COLUMNS // 2 if kept else MAX_COLUMNS
    return both and columns <= most and around[0] == around[1] and match.op.parent is other.op.parent
