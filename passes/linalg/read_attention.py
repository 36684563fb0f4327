"""`warp.attention` and its gradient as passes that lower them read them, their products; and which keys count, by what
scores are scaled, as passes that fuse them read expressions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from xdsl.dialects import memref
from xdsl.dialects.arith import CMPI_COMPARISON_OPERATIONS
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, MemRefType, f32, i32
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.ir.affine import AffineMap

from ...dialect.mlir.affine import loops_of, map_along
from ...dialect.warp.attention import INPUTS, ROWS, AttentionGradientOp, AttentionOp, D, E, Keys, M, N
from ...dialect.warp.attributes import element_name, memory_of
from ...dialect.warp.elements import PointwiseOp, element_type
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.views import MatrixOp, PagedOp
from .operand import KernelArgument, Spread, VectorOperand, each_once
from .product import Product, read

if TYPE_CHECKING:  # which products need not wait for
    from .element_expressions import ElementExpression, Name

FACTORS = ((M, D), (D, N), (N, E), (M, E))
"""The loops that Q, K, V and O run along, as A of Q K^T, B of it, B of P V and D of that do."""

KEYS_OF_BYTES = (0, 2, 3, 1)
"""What becomes of the bits of a key's number, so that a lane has P of bytes as operand A where it has scores."""


class Attention(NamedTuple):
    """The two products of an attention: scores = Q K^T, with the region on scores as its epilogue, and O = P V. Scores
    and P are in no memory: what stands for them there is an allocation in no block."""

    op: AttentionOp
    scores: Product
    values: Product

    @staticmethod
    def of(op: AttentionOp) -> Attention:
        """Reads a verified operation. Raises a located diagnostic for layouts that are not lowered."""
        half, sizes = memory_of(op.v).element_type, op.sizes
        m, n, d, e = (op.batch + loop for loop in (M, N, D, E))
        outer = tuple(range(op.batch))
        q, k, v, o = map(loops_of, op.maps)

        def moved(function: PointwiseOp | None, every: Sequence[int]) -> SSAValue | None:
            """A function, in a product over these loops."""
            order = [every.index(loop) if loop in every else 0 for loop in range(op.maps[0].num_dims)]
            return None if function is None else exchanged(function, order).function

        inner, of_inner = [sizes[loop] for loop in (*outer, m, n)], (*outer, m, n)
        every, of_values = (*outer, m, n, d), (*outer, m, e, n)
        s, p = Along("S", _nowhere(f32, inner), of_inner), Along("P", _nowhere(half, inner), of_inner)
        to, through = Along("O", op.o, o), moved(op.function, of_values)
        scores = _product(op, Along("Q", op.q, q), Along("K", op.k, k), s, every, moved(op.score, every))
        return Attention(op, scores, _product(op, p, Along("V", op.v, v), to, of_values, through))

    @property
    def operands(self) -> tuple[KernelArgument, ...]:
        """Q, K, V, O and the operands of the regions on scores and on results."""
        scores, values = self.scores, self.values
        matrices = (scores.a, scores.b, values.b, values.d)
        return (*matrices, *scores.epilogue_operands, *values.epilogue_operands)

    def tiles(self, rows: int) -> int:
        """The number of tiles of `rows` rows of O; its sizes must be known."""
        return -(-self.scores.m // rows) * math.prod(self.values.batch)

    @property
    def memories(self) -> tuple[KernelArgument, ...]:
        """The operands of the kernel: each memory once."""
        op, (q, k, v, o, *of_scores) = self.op, self.operands
        memories = [_in_memory(operand) for operand in (q, k, v)]
        extra = [("lengths", op.lengths), ("sinks", op.sinks), *zip(("of_m", "of_n"), op.documents, strict=False)]
        named = [*(("pages", view.table) for view in self.paged), *extra, ("ends", op.ends)]
        vectors = [VectorOperand(name, value) for name, value in named if value is not None]
        lse = [] if op.lse is None else [VectorOperand("lse", op.lse)]
        return each_once((*memories, *of_scores, *vectors, o, *lse))

    @property
    def paged(self) -> list[PagedOp]:
        """The views of pages that K and V are."""
        return [view for operand in (self.op.k, self.op.v) if isinstance(view := operand.owner, PagedOp)]

    @property
    def page_rows(self) -> int:
        """Rows of the smallest page of K and V; a number larger than any tile without pages."""
        return min((view.rows for view in self.paged), default=1 << 31)

    @property
    def keys_differ(self) -> bool:
        """Whether keys begin or end at other places for each tile than a diagonal says."""
        op = self.op
        return op.window is not None or bool(op.documents) or (op.lengths, op.ends) != (None, None)


def _in_memory(operand: KernelArgument) -> KernelArgument:
    """The kernel argument for K or V. For a view of pages it is the memory of all pages."""
    view = operand.value.owner
    return VectorOperand(operand.name, view.memory, divisor=operand.divisor) if isinstance(view, PagedOp) else operand


class AttentionGradient(NamedTuple):
    """The products of gradients whose rows are queries (dQ), or keys (dK, dV). With rows r and columns c, those of
    `scores` are S = Q K^T, or its transpose K Q^T, and those of `slopes` are dO V^T, or V dO^T; none if dV is the only
    result. `sums` are the results by name: dS K; dS^T Q and P^T dO. The loops of all begin with those of the batch, in
    the order of `around`: the first `outer` are those that results run along, the others are summed over."""

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
        gradients, batch = op.gradients, op.batch
        outer = tuple(sorted(loop for loop in loops_of(gradients[0].map) if loop < batch))
        around = (*outer, *(loop for loop in range(batch) if loop not in outer))
        every = zip(INPUTS, op.inputs[:4], map(loops_of, op.maps), strict=False)
        q, k, v, do = (Along(*each) for each in every)
        m, n, d, e = (batch + loop for loop in (M, N, D, E))
        (r, c), factors = ((m, n), ((q, k), (do, v))) if op.rows == M else ((n, m), ((k, q), (v, do)))
        inner = (*around, r, c)
        shape = [sizes[loop] for loop in inner]
        in_f32, in_half = (Along("S", _nowhere(kind, shape), inner) for kind in (f32, half))
        scores = _product(op, *factors[0], in_f32, (*around, r, c, d))
        slopes, sums = None, dict[str, Product]()
        if any(gradient.name != "dV" for gradient in gradients):
            slopes = _product(op, *factors[1], in_f32, (*around, r, c, e))
        for name, memory, map_ in gradients:
            column, b = (e, do) if name == "dV" else (d, factors[0][1])
            to = Along(name, memory, loops_of(map_))
            sums[name] = _product(op, in_half, b, to, (*around, r, column, c))
        return AttentionGradient(op, scores, slopes, sums, around, len(outer))

    @property
    def of_queries(self) -> tuple[Spread, Spread]:
        """lse and delta."""
        op = self.op
        lse, delta = (self._spread(*each) for each in zip(ROWS, op.inputs[4:], op.maps[4:], strict=False))
        return lse, delta

    def operands(self, name: str) -> list[Spread | VectorOperand]:
        """What the function of this name reads: numbers, and memory along rows, columns and the batch."""
        placed = [(f"{name}{i}", *each) for i, each in enumerate(self.op.functions[name].placed)]
        return [
            self._spread(*each) if isinstance(each[1].type, MemRefType) else VectorOperand(*each[:2], "")
            for each in placed
        ]

    @property
    def documents(self) -> list[Spread]:
        """The numbers of the documents of queries and of keys, if there are any."""
        return [self._spread(f"of_{name}", *each) for name, each in zip("mn", self.op.keys.documents, strict=False)]

    def _spread(self, name: str, value: SSAValue, map_: AffineMap) -> Spread:
        """A vector along the queries or the keys, or a matrix, and loops of the batch."""
        loops, batch, rows = loops_of(map_), self.op.batch, self.op.rows
        row, column = (loops.index(batch + x) if batch + x in loops else None for x in (rows, M + N - rows))
        return Spread(name, value, (row, column), tuple(self.around.index(loop) for loop in loops if loop < batch))

    @property
    def memories(self) -> tuple[KernelArgument, ...]:
        """The operands of the kernel: each memory once."""
        op, products = self.op, (self.scores, self.slopes, *self.sums.values())
        matrices = {each.value: each for product in products if product is not None for each in (product.a, product.b)}
        named = zip(INPUTS, op.inputs, strict=False)
        inputs = [matrices.get(value) or VectorOperand(name, value) for name, value in named]
        inputs += [VectorOperand(each.name, each.value) for each in self.documents]
        inputs += [each for name in op.functions for each in self.operands(name)]
        return each_once((*inputs, *(product.d for product in self.sums.values())))


def _nowhere(kind: Attribute, shape: Sequence[int]) -> SSAValue:
    """An allocation outside of any block, which stands for a matrix that is never in memory."""
    return memref.AllocOp([], [], MemRefType(kind, shape)).memref


class Along(NamedTuple):
    """A matrix of a product: its name, its memory, and the loops that its dimensions run along."""

    name: str
    value: SSAValue
    loops: Sequence[int]


def _product(
    op: AttentionOp | AttentionGradientOp, a: Along, b: Along, to: Along, loops: Sequence[int],
    through: SSAValue | None = None,
) -> Product:  # fmt: skip
    """A product of an attention over these loops, m, n and k the last, of which the sums start from zero."""
    half = memory_of(op.v).element_type
    names = [element_name(half) or str(half)] * 2
    maps = [map_along(len(loops), map(loops.index, each.loops)) for each in (a, b, to)]
    made = MatmulOp(a.value, b.value, to.value, names, init=FloatAttr(0.0, f32), maps=maps, through=through)
    made.location = op.location
    product = read(made)
    matrices = zip((product.a, product.b, product.d), (a, b, to), strict=True)
    a_, b_, d_ = (replace(operand, name=each.name) for operand, each in matrices)
    return replace(product, a=a_, b=b_, d=d_)


MAX_COLUMNS, MAX_DEPTH = 256, 640
"""Columns of V, padded, that a kernel multiplies together: a lane has registers for its part of O; of Q and K."""


def exchanged(score: PointwiseOp, order: Sequence[int]) -> PointwiseOp:
    """A function of elements with its loops renumbered by `order`."""
    loops = max(order) + 1
    placed = [(value, map_along(loops, (order[loop] for loop in loops_of(map_)))) for value, map_ in score.placed]
    return score.moved(placed, loops, order)


def erase_pages(values: Sequence[SSAValue]) -> None:
    """Erases views of pages, and matrices of them, that no operation of the module uses."""
    memories = [value.owner.memory for value in values if isinstance(value.owner, MatrixOp)]
    for op in dict.fromkeys(value.owner for value in (*values, *memories)):
        paged = op.memory.owner if isinstance(op, MatrixOp) else op
        users = [use.operation for result in op.results for use in result.uses] if isinstance(op, Operation) else []
        if isinstance(op, MatrixOp | PagedOp) and isinstance(paged, PagedOp) and not any(user.parent for user in users):
            # What was read of the attention may still know of them.
            op.detach()
            op.erase(safe_erase=False)


# Which keys count for a query, and by what scores are scaled, as expressions of the product of Q and K say it.

QUERY, KEY, DEPTH, COLUMN = "m", "n", "d", "e"
"""The names of loops; those of the batch are numbers."""


def loop_order(batch: int) -> dict[Name, int]:
    """The numbers of loops behind so many of a batch."""
    return {name: i for i, name in enumerate((*range(batch), QUERY, KEY, DEPTH, COLUMN))}


class KeyRange(NamedTuple):
    """The range of keys of query m: from m - window to m + diagonal, below the sequence's length, and of the same
    document. Each limit is optional."""

    diagonal: int | None = None
    window: int | None = None
    lengths: ElementExpression | None = None
    documents: tuple[ElementExpression, ...] = ()

    def both(self, other: KeyRange) -> KeyRange | None:
        """The keys that are in both; None for two kinds of lengths, or of documents."""
        for one, another in ((self.lengths, other.lengths), (self.documents, other.documents)):
            if one and another and one != another:
                return None
        diagonals, windows = (
            [bound for bound in pair if bound is not None]
            for pair in ((self.diagonal, other.diagonal), (self.window, other.window))
        )
        bounds = min(diagonals, default=None), min(windows, default=None)
        return KeyRange(*bounds, self.lengths or other.lengths, self.documents or other.documents)

    def placed(self, order: Mapping[Name, int]) -> Keys:
        """The keys that count, as an operation has them whose loops stand in this order."""
        from .element_expressions import map_of

        lengths, *documents = (
            None if load is None or load.value is None else (load.value, map_of(load.place, order))
            for load in (self.lengths, *self.documents)
        )
        return Keys(self.diagonal, self.window, lengths, tuple(filter(None, documents)))


class Scores(NamedTuple):
    """Scores: `scale`, above 0, times `rest`, an expression of the product, for the keys of a range."""

    rest: ElementExpression
    scale: float
    keys: KeyRange

    @staticmethod
    def of(x: ElementExpression, *, single: bool, lengths: bool = True) -> Scores:
        """Scores as masks leave them, those by lengths only if `lengths`. `single`: the only query has number 0."""
        inner, keys = _masked(x, single)
        if keys.lengths and not lengths:
            inner, keys = x, keys._replace(lengths=None)
        rest, scale = scaled(inner)
        return Scores(rest, scale, keys) if scale > 0 else Scores(inner, 1.0, keys)


def _masked(x: ElementExpression, single: bool) -> tuple[ElementExpression, KeyRange]:
    """Splits scores into the unmasked scores and the range of keys that the masks leave."""
    rest, keys = _outermost(x, single)
    if keys is None:
        return x, KeyRange()
    inner, others = _masked(rest, single)
    both = keys.both(others)
    return (rest, keys) if both is None else (inner, both)


def _outermost(x: ElementExpression, single: bool) -> tuple[ElementExpression, KeyRange | None]:
    """Scores without the last mask, and the range of keys that the mask keeps."""
    if x.is_op("arith.select"):
        condition, yes, no = x.operands
        for kept, gone, holds in ((no, yes, False), (yes, no, True)):
            keys = _key_range(condition, single, holds=holds) if gone.number == -math.inf else None
            if keys is not None:
                return kept, keys
    if x.is_op("arith.addf"):
        for rest, mask in (x.operands, x.operands[::-1]):
            kept, keys = _outermost(mask, single)
            if keys is not None and kept.number == 0:
                return rest, keys
    if x.is_op("arith.mulf"):
        for rest, factor in (x.operands, x.operands[::-1]):
            kept, keys = _outermost(rest, single)
            if keys is not None and factor.number is not None and factor.number > 0:
                return replace(x, operands=(kept, factor)), keys
    return x, None


def _key_range(condition: ElementExpression, single: bool, *, holds: bool) -> KeyRange | None:
    """The range of keys for which a condition holds, or for which it fails if `holds` is False. None for a condition
    that is not a range."""
    if condition.is_op("arith.andi" if holds else "arith.ori"):
        asked = [side for side in condition.operands if side.kind != "constant" or bool(side.number) != holds]
        if len(asked) == 1:
            return _key_range(asked[0], single, holds=holds)
        one, other = (_key_range(side, single, holds=holds) for side in condition.operands)
        return None if one is None or other is None else one.both(other)
    if not condition.is_op("arith.cmpi") or condition.op is None:
        return None
    predicate = condition.op.properties["predicate"]
    name = CMPI_COMPARISON_OPERATIONS[predicate.value.data] if isinstance(predicate, IntegerAttr) else ""
    if name == ("eq" if holds else "ne"):
        return _of_same_document(condition)
    a, b = (_linear(side, single) for side in condition.operands)
    if a is None or b is None or name[1:] not in ("gt", "ge", "lt", "le"):
        return None
    side, above, equal = _plus(a, b, -1), name[1] == "g", name[2] == "e"
    if (sign := side.pop(KEY, 0)) not in (1, -1):
        return None
    # The key against m' m + c + length: from there on, or up to there, or below a length.
    above, last = above == (sign > 0), {term: -sign * by for term, by in side.items()}
    m, constant, excluded = last.pop(QUERY, 0), last.pop("", 0), not equal if holds else equal
    if last and (name[0] != "s" or len(last) > 1):
        return None
    first, end = constant + excluded, constant - excluded
    if above == holds or not last:
        bound = KeyRange(window=-first) if above == holds else KeyRange(diagonal=end)
        return bound if m == 1 and not last else None
    ((length, by),) = last.items()
    return KeyRange(lengths=length) if (m, by, end) == (0, 1, -1) and not isinstance(length, str) else None


def _of_same_document(condition: ElementExpression) -> KeyRange | None:
    """The keys with the number of the query, if a condition compares two numbers in memory of i32."""
    sides = [side.operands[0] if side.is_op("arith.index_cast") else side for side in condition.operands]
    if any(side.kind != "load" or side.value is None or element_type(side.value) != i32 for side in sides):
        return None
    of_query, of_key = sorted(sides, key=lambda side: KEY in side.place)
    if QUERY not in of_query.place or KEY not in of_key.place:
        return None
    inside = all(isinstance(name, int) and name >= 0 for side in sides for name in set(side.place) - {QUERY, KEY})
    return KeyRange(documents=(of_query, of_key)) if inside and not {QUERY, KEY} <= set(of_key.place) else None


Linear: TypeAlias = "dict[str | ElementExpression, int]"
"""How often an index has m, n, one (``""``), and each number from memory that is the same for all m and n."""


def _plus(a: Linear, b: Linear, sign: int) -> Linear:
    return {term: a.get(term, 0) + sign * b.get(term, 0) for term in {**a, **b}}


def _linear(side: ElementExpression, single: bool) -> Linear | None:
    if side.kind == "index" and side.name in (QUERY, KEY):
        return {str(side.name): int(side.name == KEY or not single)}
    if side.kind == "constant" and isinstance(side.number, int):
        return {"": side.number}
    if side.kind == "load" and side.value is not None and element_type(side.value) == i32:
        return {side: 1} if all(isinstance(name, int) and name >= 0 for name in side.place) else None
    if side.is_op("arith.index_cast", "arith.extsi", "arith.trunci"):
        return _linear(side.operands[0], single)
    if side.is_op("arith.addi", "arith.subi"):
        a, b = (_linear(operand, single) for operand in side.operands)
        return None if a is None or b is None else _plus(a, b, 1 if side.is_op("arith.addi") else -1)
    return None


def scaled(x: ElementExpression) -> tuple[ElementExpression, float]:
    """Scores without a constant that multiplies or divides them, and the constant."""
    if x.is_op("arith.mulf"):
        for rest, factor in (x.operands, x.operands[::-1]):
            if factor.number is not None:
                inner, scale = scaled(rest)
                return inner, scale * factor.number
    if x.is_op("arith.divf") and (divisor := x.operands[1].number):
        inner, scale = scaled(x.operands[0])
        return inner, scale / divisor
    return x, 1.0
