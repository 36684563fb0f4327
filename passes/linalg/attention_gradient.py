"""`warp.attention_gradient`: what it asks for, read once for the passes that lower it, and what becomes one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from xdsl.dialects import memref
from xdsl.dialects.builtin import FloatAttr, MemRefType, ModuleOp, f32
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.ir.affine import AffineMap

from ...dialect.mlir.affine import FIXED, is_plain, loops_of, map_along
from ...dialect.mlir.generic import factors
from ...dialect.warp.attention import D, E, Keys, M, N
from ...dialect.warp.attention_gradient import MATRICES, ROWS, AttentionGradientOp
from ...dialect.warp.attributes import element_row, memory_of
from ...dialect.warp.matmul import MatmulOp
from ..diagnostics import chose, remark
from .element_expressions import (
    ElementExpression,
    ElementReader,
    Name,
    NotFusedError,
    Subscripts,
    decline,
    map_of,
    names_of,
    read_product,
)
from .elementwise import check_gradient
from .fuse_epilogue import Replacement, place_in_block
from .operand import KernelArgument, Spread, VectorOperand, each_once, root
from .product import Product, padded, read
from .score_masks import COLUMN, DEPTH, KEY, QUERY, KeyRange, masked, scaled


class AttentionGradient(NamedTuple):
    """The products of gradients whose rows are queries (dQ), or keys (dK, dV).

    With rows r and columns c, those of `scores` are S = Q K^T, or its transpose K Q^T, and those of `slopes` are
    dO V^T, or V dO^T; none if dV is the only result. `sums` are the results by name: dS K; dS^T Q and P^T dO. The
    loops of all begin with those of the batch, in the order of `around`: the first `outer` are those that results run
    along, the others are summed over.
    """

    op: AttentionGradientOp
    scores: Product
    slopes: Product | None
    sums: dict[str, Product]
    around: tuple[int, ...]
    outer: int

    @staticmethod
    def of(op: AttentionGradientOp) -> AttentionGradient:
        """Reads a verified operation. Raises a located diagnostic for layouts that are not lowered."""
        half, sizes = memory_of(op.q).element_type, op.sizes
        row = element_row(half)
        names = [row.name if row is not None else str(half)] * 2
        gradients, batch = op.gradients, op.batch
        outer = tuple(sorted(loop for loop in loops_of(gradients[0].map) if loop < batch))
        around = (*outer, *(loop for loop in range(batch) if loop not in outer))
        q, k, v, do = ((value, loops_of(map_)) for value, map_ in zip(op.inputs[:4], op.maps, strict=False))
        m, n, d, e = (batch + loop for loop in (M, N, D, E))
        (r, c), factors = ((m, n), ((q, k), (do, v))) if op.rows == M else ((n, m), ((k, q), (v, do)))
        inner = (*around, r, c)
        shape = [sizes[loop] for loop in inner]

        def product(
            a: tuple[SSAValue, Sequence[int]], b: tuple[SSAValue, Sequence[int]], to: tuple[SSAValue, Sequence[int]],
            loops: Sequence[int],
        ) -> Product:  # fmt: skip
            maps: list[AffineMap] = [map_along(len(loops), map(loops.index, each)) for _, each in (a, b, to)]
            made = MatmulOp(a[0], b[0], to[0], names, init=FloatAttr(0.0, f32), maps=maps)
            made.location = op.location
            return read(made)

        scores = product(*factors[0], (_nowhere(f32, shape), inner), (*around, r, c, d))
        slopes, sums = None, dict[str, Product]()
        if any(gradient.name != "dV" for gradient in gradients):
            slopes = product(*factors[1], (_nowhere(f32, shape), inner), (*around, r, c, e))
        for name, memory, map_ in gradients:
            column, b = (e, do) if name == "dV" else (d, factors[0][1])
            to = memory, loops_of(map_)
            sums[name] = product((_nowhere(half, shape), inner), b, to, (*around, r, column, c))
        return AttentionGradient(op, scores, slopes, sums, around, len(outer))

    @property
    def of_queries(self) -> tuple[Spread, Spread]:
        """lse and delta."""
        op, batch = self.op, self.op.batch

        def spread(name: str, value: SSAValue, map_: AffineMap) -> Spread:
            loops = loops_of(map_)
            along = loops.index(batch + M)
            place = (along, None) if op.rows == M else (None, along)
            return Spread(name, value, place, tuple(self.around.index(loop) for loop in loops if loop != batch + M))

        lse, delta = (spread(*each) for each in zip(ROWS, op.inputs[4:], op.maps[4:], strict=False))
        return lse, delta

    @property
    def memories(self) -> tuple[KernelArgument, ...]:
        """The operands of the kernel: each memory once."""
        op, products = self.op, (self.scores, self.slopes, *self.sums.values())
        matrices = {each.value: each for product in products if product is not None for each in (product.a, product.b)}
        names = (*MATRICES, *ROWS)
        inputs = [
            replace(matrices[value], name=name) if value in matrices else VectorOperand(name, value)
            for name, value in zip(names, op.inputs, strict=True)
        ]
        return each_once((*inputs, *(replace(product.d, name=name) for name, product in self.sums.items())))


def _nowhere(kind: Attribute, shape: Sequence[int]) -> SSAValue:
    """An allocation outside of any block, which stands for a matrix that is never in memory."""
    return memref.AllocOp([], [], MemRefType(kind, shape)).memref


# `warp-fuse-attention`: products of what softmax and its gradient are become `warp.attention_gradient`.
#
# As of attention, what counts is what the elements of a factor are, as expressions. With S a product of Q and K, X its
# scores, scaled and masked, dP a product of dO and V, lse and delta memory with a number for each query::
#
#     dV = sum over m of P dO      dK = sum over m of dS Q      dQ = sum over n of dS K
#     P = exp(X - lse)             dS = scale * P * (dP - delta)
#
# Each result is recognised alone. dK and dV become one kernel, where a thread has registers for both.

MOST_TOGETHER = 256
"""Columns of dK and dV, padded, that one kernel makes."""

NEAR = 1e-5
"""How far the factor of dS may be from the scale of scores, relative to it."""


class Softmax(NamedTuple):
    """P as an expression says it: Q, K and lse with their places, what scores are scaled by, and which count."""

    q: tuple[SSAValue, Subscripts]
    k: tuple[SSAValue, Subscripts]
    lse: tuple[SSAValue, Subscripts]
    scale: float
    keys: KeyRange


class Slope(NamedTuple):
    """What dS is beside P: dO, V and delta with their places."""

    do: tuple[SSAValue, Subscripts]
    v: tuple[SSAValue, Subscripts]
    delta: tuple[SSAValue, Subscripts]


class GradientReader(ElementReader):
    """Reads elements up to products and to memory that sums were stored to: delta may be computed before."""

    def __init__(self) -> None:
        super().__init__("")

    def _reduced(self, op: LinalgStructuredOperation, at: Subscripts) -> ElementExpression | None:
        return None

    def memory(self, value: SSAValue, at: Subscripts, before: Operation) -> tuple[SSAValue, Subscripts]:
        """The memory that an operand of a product is read from: where it is copied or transposed from, if it is."""
        element = self.element(value, at, before)
        if element.kind != "load" or element.value is None or FIXED in element.place:
            return value, at
        same = memory_of(element.value).element_type == memory_of(value).element_type
        return (element.value, element.place) if same else (value, at)


class GradientMatch:
    """A product that makes a gradient of an attention: its name, its probabilities P, the operands of dS, dO, and the
    result.

    Raises:
        NotFusedError: if it makes no such gradient. The reason is empty if it does not even look like one.
    """

    def __init__(self, op: LinalgStructuredOperation) -> None:
        maps = [attribute.data for attribute in op.get_indexing_maps()]
        places = [loops_of(map_) for map_ in maps]
        if len(maps) != 3 or not all(map(is_plain, maps)) or factors(op.body.block) is None:
            decline("")
        self.op, self.of_c, loops = op, places[2], maps[0].num_dims
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
            decline("")
        inner: dict[int, Name] = {query: QUERY, key: KEY, others[0]: DEPTH if len(made) > 1 else COLUMN}
        (_, of_q), (_, of_k), _ = self._scores(made[0])
        listed = dict.fromkeys((*of_q, *of_k, *range(loops)))
        batch = [name for name in listed if isinstance(name, int) and name not in inner]
        names = {**{loop: place for place, loop in enumerate(batch)}, **inner}
        p, *slopes = self._factors(of_a, names)
        self.softmax = self._softmax(p)
        self.slope = self._slope(slopes[0]) if slopes else None
        self.name = "dV" if self.slope is None else "dQ" if query in self.of_c else "dK"
        self.batch = len(batch)
        self.factor = self.reader.memory(self.b, names_of(self.of_b, names), op)
        self.result = op.outputs[0], names_of(self.of_c, names)
        expected = {"dV": None, "dK": self.softmax.q, "dQ": self.softmax.k}[self.name]
        if expected is not None and self.factor != expected:
            decline(f"what dS is multiplied with is not the {'Q' if self.name == 'dK' else 'K'} of its scores")
        if not self.reader.starts_from(op, 0.0):
            decline("its result does not start from zero")

    def _factors(self, of_a: Sequence[int], names: Mapping[int, Name]) -> list[ElementExpression]:
        """P; or P and dP - delta, if A is scale * P * (dP - delta); nothing of something else."""
        self.reader = GradientReader()
        half = memory_of(self.b).element_type
        element = self.reader.element(self.a, names_of(of_a, names), self.op).unrounded(half)
        every, self.factor_of_slope = _multiplied(element)
        p = [factor for factor in every if factor.is_op("math.exp")]
        slopes = [factor for factor in every if factor.is_op("arith.subf")]
        if len(p) != 1 or len(slopes) > 1 or len(every) != len(p) + len(slopes) or not any(p[0].leaves("product")):
            return []
        if not slopes and self.factor_of_slope != 1.0:
            decline("P is scaled")
        return [*p, *slopes]

    def _loops(self, made: Sequence[ElementExpression], loops: int) -> tuple[int, int]:
        """The loops over queries and over keys."""
        *sides, lse = self._scores(made[0])
        of_q, of_k = ({name for name in place if isinstance(name, int)} for _, place in sides)
        queries = [name for name in lse.place if name in of_q - of_k]
        keys = of_k - of_q
        if not queries or len(keys) != 1 or max(*keys, *of_q) >= loops:
            decline("it is not clear which of its loops run over queries and keys")
        compared = {leaf.name for leaf in made[0].leaves("index")}
        query = next((name for name in queries if name in compared), queries[-1])
        return int(str(query)), keys.pop()

    def _scores(
        self, p: ElementExpression
    ) -> tuple[tuple[SSAValue, Subscripts], tuple[SSAValue, Subscripts], ElementExpression]:
        """Q, K and lse of P. Q is the one that more loops of lse index."""
        (exponent,) = p.operands
        products = list(exponent.leaves("product"))
        if not exponent.is_op("arith.subf") or len(products) != 1:
            decline("")
        lse = exponent.operands[1]
        if lse.kind != "load":
            decline("")
        a, b = sorted(self._pair(products[0]), key=lambda side: -len(set(lse.place) & set(side[1])))
        return a, b, lse

    def _softmax(self, p: ElementExpression) -> Softmax:
        """What P is."""
        q, k, lse = self._scores(p)
        inner, keys = masked(p.operands[0].operands[0], single=False)
        rest, scale = scaled(inner)
        if lse.value is None or rest.kind != "product" or scale <= 0 or keys.lengths or keys.documents:
            decline("the gradient of what scores go through is not lowered, beside scales, diagonals and windows")
        return Softmax(q, k, (lse.value, lse.place), scale, keys)

    def _slope(self, slope: ElementExpression) -> Slope:
        product, delta = slope.operands
        if product.kind != "product" or delta.kind != "load" or delta.value is None:
            decline("P is multiplied with something else than a product less a number of each query")
        if abs(self.factor_of_slope - self.softmax.scale) > NEAR * self.softmax.scale:
            decline(f"dS is scaled by {self.factor_of_slope:g}, scores by {self.softmax.scale:g}")
        a, b = self._pair(product, COLUMN)
        do, v = (a, b) if QUERY in a[1] else (b, a)
        if QUERY not in do[1] or KEY not in v[1] or KEY in do[1] or QUERY in v[1]:
            decline("dP is no product of one matrix with a row for each query and one with a row for each key")
        return Slope(do, v, (delta.value, delta.place))

    def _pair(self, element: ElementExpression, over: Name = DEPTH) -> list[tuple[SSAValue, Subscripts]]:
        """The memories that an element of a product is of, and their places."""
        op = element.product
        product = None if op is None else read_product(op)
        if op is None or product is None:
            decline("")
        of_a, of_b, of_c = (loops_of(map_) for map_ in product.maps)
        names: dict[int, Name] = {**dict(zip(of_c, element.place, strict=True)), len(of_c): over}
        sides = zip(product.inputs, (of_a, of_b), strict=True)
        return [self.reader.memory(op.inputs[number], names_of(loops, names), op) for number, loops in sides]


def _multiplied(element: ElementExpression) -> tuple[list[ElementExpression], float]:
    """The variable factors of an element, and the product of its constant factors."""
    if element.kind == "constant" and element.number is not None:
        return [], float(element.number)
    if not element.is_op("arith.mulf"):
        return [element], 1.0
    sides = [_multiplied(side) for side in element.operands]
    return [factor for every, _ in sides for factor in every], math.prod(number for _, number in sides)


def _fuse(matches: Sequence[GradientMatch], slope: Slope) -> None:
    """Replaces the products of one result, or of dK and dV, by one operation. `slope` is that of dV too.

    Raises:
        NotFusedError: if that would change another result, or there is no such operation.
    """
    matches = sorted(matches, key=lambda match: match.name)
    softmax, written = matches[0].softmax, [match.result for match in matches]
    inputs = [softmax.q, softmax.k, slope.v, slope.do, softmax.lse, slope.delta]
    order: dict[Name, int] = {name: i for i, name in enumerate((*range(matches[0].batch), QUERY, KEY, DEPTH, COLUMN))}
    keys = Keys(softmax.keys.diagonal, softmax.keys.window)

    def made() -> AttentionGradientOp:
        maps = [map_of(place, order) for _, place in (*inputs, *written)]
        read_, outputs = ([value for value, _ in each] for each in (inputs, written))
        return AttentionGradientOp(read_, outputs, maps, scale=softmax.scale, keys=keys)

    used = frozenset({op for match in matches for op in (*match.reader.used, match.op)})
    last = max((match.op for match in matches), key=place_in_block)
    results, read_from = frozenset(value for value, _ in written), {root(value) for value, _ in inputs}
    Replacement(used, last, results, read_from).replace(made, check_gradient)


def fuse_gradients(module: ModuleOp, by: str) -> None:
    """Replaces the products that make gradients of an attention in each block; `by` is the pass that remarks."""
    every = list[GradientMatch]()
    for op in module.walk():
        if isinstance(op, LinalgStructuredOperation) and len(op.inputs) == 2 and not op.results:
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
    return both and columns <= MOST_TOGETHER and around[0] == around[1] and match.op.parent is other.op.parent
