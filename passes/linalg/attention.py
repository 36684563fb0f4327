"""`warp-fuse-attention`: two products with a softmax between them become one `warp.attention`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects import memref
from xdsl.dialects.builtin import AffineMapAttr, FloatAttr, IntegerAttr, MemRefType, ModuleOp, UnitAttr, bf16, f32, i64
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from ...dialect.mlir.affine import loops_of, map_along, strides_of
from ...dialect.warp.attention import HALVES, AttentionOp, D, E, M, with_maps
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.elements import element_type
from ...dialect.warp.matmul import drop_forms
from ...dialect.warp.views import PagedOp
from ..diagnostics import chose, remark
from ..patterns import apply_patterns, fold_dimension, op_type_rewrite_pattern, rewrite_pattern
from .element_expressions import ROUNDED, ElementExpression, ElementReader, Subscripts, map_of, names_of, read_product
from .element_regions import function_of
from .memory_uses import NotFusedError, Replacement, decline, place_in_block
from .operand import drop_unused, expand, numbered, root
from .read_attention import COLUMN, DEPTH, KEY, MAX_COLUMNS, MAX_DEPTH, QUERY, Scores, exchanged, loop_order, scaled

# What counts is what the elements of the result are, as expressions of those of Q, K and V (`element_expressions.py`),
# not which operations make them, in which order, and with how many memories between. The pattern is::
#
#     O = sum over n of P V,   P = E / L   or   O = (sum over n of E V) / L
#     E = exp(X - M),   M = max over n of X,   L = sum over n of E,   X = f(Q K^T)
#
# f may scale scores, add or multiply what lies in memory, compare indices, and whatever else `arith` and `math` can do
# with one score, its roundings among them: scores that the first product leaves in f16 are rounded to f16. Of E and L
# nothing may be rounded, for a kernel computes them in f32. P is rounded to the type of V, which it may be before or
# after it is divided by L: a kernel does it before.
#
# Where a product of that kind is not fused, `warploom-opt --remarks` says why.

EXPONENTIALS = {"math.exp": 1.0, "math.exp2": math.log(2.0)}
"""What computes E, and the natural logarithm of its base."""

LARGER = ("arith.maximumf", "arith.maxnumf")

ROUNDED_CONSTANT = 1e-6
"""How far a constant may be from the number that it stands for, relative to it."""


class AttentionMatch:
    """An attention, found from `values`, its product of P and V. Raises NotFusedError if it is no attention. The reason
    is empty if it does not even look like one."""

    def __init__(self, values: LinalgStructuredOperation, *, tf32: bool = False) -> None:
        self.values, self.reader, self.tf32 = values, ElementReader(KEY), tf32
        product = read_product(values)
        if product is None:
            decline("")
        of_p, of_v, of_o = (loops_of(map_) for map_ in product.maps)
        batch = len(of_o) - 2
        names = dict(enumerate((*range(batch), QUERY, COLUMN, KEY)))
        p, v = (values.inputs[number] for number in product.inputs)
        self.batch, self.last = batch, values
        shape = memory_of(values.outputs[0]).get_shape()
        self.single = dict(zip(names_of(of_o, names), shape, strict=True)).get(QUERY) == 1
        element = self.reader.element(p, names_of(of_p, names), values).unrounded(memory_of(v).element_type)
        element, nothing = _without_empty_rows(element)
        self.zero_rows = nothing is not None
        if not any(element.leaves("product")) or not (
            element.is_op(*EXPONENTIALS) or self._quotient(element) is not None
        ):
            decline("")
        self.v = self.reader.source(v, names_of(of_v, names), values, widened=tf32)
        self.o = values.outputs[0], names_of(of_o, names)
        self.result: tuple[ElementExpression, ElementExpression] | None = None
        """The element that is stored, and that of the product of P and V, where the first is a function of it."""
        if not self.reader.starts_from(values, 0.0):
            decline("its result does not start from zero")
        if self._quotient(element) is None:
            element = self._divided_behind(element)
        else:
            self._narrowed_behind()
        kept, stored = element_type(self.v[0]), memory_of(self.o[0]).element_type
        if kept == bf16 != element_type(v) and stored != bf16:
            decline(f"P would be rounded to bf16 as V is, and its result is stored as {stored}")
        exponential, total = self._quotient(element) or (element, element)
        _check_unrounded("its exponentials are", exponential)
        _check_unrounded("the sum of each row is", total)
        sink = self._sink(exponential, total)
        self.scores = self._scores(exponential, sink)
        self.sinks = None if sink is None else self._of_rows(exponential, sink)
        if nothing not in (None, exponential.operands[0].operands[1]):
            decline("its rows are 0 where something other than the largest score is minus infinity")
        self._read_factors()
        self.lse = self._logarithm(exponential, total)
        columns = dict(zip(self.v[1], memory_of(self.v[0]).get_shape(), strict=True))[COLUMN]
        depth = dict(zip(self.q[1], memory_of(self.q[0]).get_shape(), strict=True))[DEPTH]
        if min(depth, columns) < 0:
            decline("how many columns its heads have is not known")
        if depth > MAX_DEPTH or (columns > MAX_COLUMNS and (columns % -(-columns // MAX_COLUMNS) or self.lse)):
            decline(
                f"heads have up to {MAX_DEPTH} columns of Q, and {MAX_COLUMNS} of V, or several times as many where no "
                f"logarithms of sums are stored, got {depth} and {columns}"
            )

    def _quotient(self, element: ElementExpression) -> tuple[ElementExpression, ElementExpression] | None:
        """E and L of E / L, or of E * (1 / L)."""
        if element.is_op("arith.divf"):
            return element.operands[0], element.operands[1]
        if element.is_op("arith.mulf"):
            for e, inverse in (element.operands, element.operands[::-1]):
                if inverse.is_op("arith.divf") and inverse.operands[0].number == 1.0:
                    return e, inverse.operands[1]
        return None

    def _divided_behind(self, exponential: ElementExpression) -> ElementExpression:
        """E / L, where an elementwise operation behind the product of E and V divides by L."""
        users = {use.operation for use in self.o[0].uses}
        following = self.values.next_op
        while following is not None and following not in users:
            following = following.next_op
        if (divided := self.reader.behind(*self.o, following)) is None:
            decline("what its result is divided by is not found")
        result, product, to = divided
        element = self._unscaled(result, lambda inner: (self._quotient(inner) or (None,))[0] == product)
        quotient = None if element is None else self._quotient(element)
        if following is None or element is None or quotient is None:
            decline("what follows its result is not the division by the sum of each row")
        self.last, self.o, self.result = following, to, (result, element)
        return ElementExpression("op", "arith.divf", (exponential, quotient[1]))

    def _unscaled(
        self, element: ElementExpression, wanted: Callable[[ElementExpression], bool]
    ) -> ElementExpression | None:
        """The element that satisfies `wanted` below factors that are constant along a row; None if there is none."""
        if wanted(element):
            return element
        for rest, factor in (element.operands, element.operands[::-1]) if element.is_op("arith.mulf") else ():
            if factor.kind in ("load", "outside", "constant") and set(factor.place) <= {*range(self.batch), QUERY}:
                return self._unscaled(rest, wanted)
        return None

    def _narrowed_behind(self) -> None:
        """Includes an operation after the product of P and V that only scales and rounds its result."""
        following, reader = self.reader.sole_reader(self.values, self.o[0]), ElementReader(KEY)
        behind = reader.behind(*self.o, following)
        if (
            following is not None
            and behind is not None
            and self._unscaled(behind[0], lambda inner: inner == behind[1]) is not None
        ):
            self.last, self.o, self.result = following, behind[2], behind[:2]
            self.reader.used |= reader.used

    # Scores

    @staticmethod
    def _sink(exponential: ElementExpression, total: ElementExpression) -> ElementExpression | None:
        """The attention sink: the number whose exponential is added to the sum of a row. None if there is none."""
        of_scores = ElementExpression("reduce", "add", (exponential,))
        if total == of_scores:
            return None
        others = [other for other in total.operands if other != of_scores] if total.is_op("arith.addf") else []
        if len(others) == 1 and others[0].is_op(str(exponential.name)) and exponential.operands[0].is_op("arith.subf"):
            (inner,), largest = others[0].operands, exponential.operands[0].operands[1]
            if inner.is_op("arith.subf") and inner.operands[1] == largest:
                return inner.operands[0]
        decline("what P is divided by is not the sum of each row of it")

    def _of_rows(self, exponential: ElementExpression, sink: ElementExpression) -> tuple[SSAValue, Subscripts]:
        """The memory that sinks are read from, as they are."""
        load, factor = scaled(sink)
        natural = math.isclose(factor * EXPONENTIALS[str(exponential.name)], 1.0, rel_tol=ROUNDED_CONSTANT)
        if load.kind != "load" or load.value is None or not natural:
            decline("what is added to the sum of each row is not the exponential of a number in memory")
        if not set(load.place) <= {*range(self.batch), QUERY}:
            decline("what is added to the sum of each row is not in memory along the batch and the queries")
        return load.value, load.place

    def _scores(self, exponential: ElementExpression, sink: ElementExpression | None) -> Scores:
        """The scores of E = exp(X - M), where M is the maximum of a row's scores and its sink."""
        logarithm = EXPONENTIALS.get(str(exponential.name), 1.0)
        (inner,) = exponential.operands
        _check_unrounded("the exponent is", inner)
        if not inner.is_op("arith.subf"):
            decline("the exponent is no score less the largest of its row")
        x, largest = inner.operands
        sides = [side for side in largest.operands if side != sink] if largest.is_op(*LARGER) else []
        of_scores = sides[0] if len(sides) == 1 and len(sides) < len(largest.operands) else largest
        if of_scores not in [ElementExpression("reduce", name, (x,)) for name in ("max", "maximum")]:
            decline("what is subtracted in the exponent is not the largest score of each row")
        if len(x.leaves("product")) != 1:
            decline("scores depend on several products")
        scores = Scores.of(x, single=self.single)
        return scores._replace(scale=scores.scale * logarithm)

    def _logarithm(
        self, exponential: ElementExpression, total: ElementExpression
    ) -> tuple[LinalgStructuredOperation, SSAValue, Subscripts, float, bool] | None:
        """The operation that stores M + log(L) of each row in f32, for the gradient, its memory, subscripts and factor,
        and whether it is 0 of a row without keys. None if there is no such operation."""
        block, sizes = self.values.parent, dict(zip(self.o[1], memory_of(self.o[0]).get_shape(), strict=True))
        largest = exponential.operands[0].operands[1]
        for op in () if block is None or not exponential.is_op("math.exp") else block.ops:
            if not isinstance(op, LinalgStructuredOperation) or len(op.outputs) != 1 or op.next_op is None:
                continue
            kind = memory_of(op.outputs[0])
            for place in permutations((*range(self.batch), QUERY)) if kind.element_type == f32 else ():
                if kind.get_shape() != tuple(sizes[name] for name in place):
                    continue
                reader = ElementReader(KEY)
                element, factor = scaled(reader.element(op.outputs[0], place, op.next_op))
                element, nothing = _without_empty_rows(element)
                logarithms = [side for side in element.operands if side.is_op("math.log") and side.operands == (total,)]
                is_sum = element.is_op("arith.addf") and len(logarithms) == 1 and largest in element.operands
                if is_sum and nothing in (None, largest):
                    self.reader.used |= reader.used
                    return op, op.outputs[0], place, factor, nothing is not None
        return None

    def _read_factors(self) -> None:
        """Q and K: the memories that scores are a product of, and their places."""
        (product,) = self.scores.rest.leaves("product")
        sides = self.reader.factors(product, DEPTH, widened=self.tf32)
        if sides is None or product.product is None:
            decline("scores are no product")
        self.product = product.product
        self.q, self.k = sorted(sides, key=lambda side: QUERY not in side[1])
        if QUERY not in self.q[1] or KEY not in self.k[1] or QUERY in self.k[1] or KEY in self.q[1]:
            decline("scores are no product of one matrix with a row for each query and one with a row for each key")

    # What becomes of it

    def replace(self) -> None:
        """Replaces all operations by the attention. Raises NotFusedError if that would change another result, or there
        is no such attention."""
        order = loop_order(self.batch)
        keys, (product,) = self.scores.keys.placed(order), self.scores.rest.leaves("product")
        score, through = (self.scores.rest, product), self.result or (product, product)
        placed = filter(None, (self.q, self.k, self.v, keys.lengths, self.sinks, *keys.documents))
        read = {root(value) for value, _ in placed}
        read |= {root(value) for element, of in (score, through) for value in element.memories([of]).values()}
        used = frozenset({*self.reader.used, self.values, self.last})
        results, last = [self.o[0]], self.last
        if self.lse is not None:
            results, last = [*results, self.lse[1]], max(last, self.lse[0], key=place_in_block)
        replacement = Replacement(used, last, frozenset(results), read, self.reader.left)
        if self.product not in replacement.dead:
            decline("others use the scores too, or what becomes of them")
        if self.values not in replacement.dead:
            decline("others use its result before it is divided")
        if root(self.o[0]) in read:
            decline("its result is where Q, K or V is")

        def made() -> AttentionOp:
            matrices = (self.q, self.k, self.v, self.o)
            every = ("scores", "score", *score, f32), ("through", "result", *through, element_type(self.o[0]))
            functions = {
                key: function_of(name, element, [taken], order, kind)
                for key, name, element, taken, kind in every
                if element != taken
            }
            of_rows = with_maps(
                lse=None if self.lse is None else (self.lse[1], map_of(self.lse[2], order)),
                sinks=None if self.sinks is None else (self.sinks[0], map_of(self.sinks[1], order)),
            )
            maps = [map_of(at, order) for _, at in matrices]
            fields = keys.fields(self.scores.scale) | of_rows | functions
            op = AttentionOp(*(value for value, _ in matrices), indexing_maps=maps, **fields)
            op.zero_rows = UnitAttr() if self.zero_rows else None
            if self.lse is not None and self.lse[3] != 1.0:
                op.lse_factor = FloatAttr(self.lse[3], f32)
            op.zero_lse = UnitAttr() if self.lse is not None and self.lse[4] else None
            return op

        replacement.replace(made)


def _without_empty_rows(element: ElementExpression) -> tuple[ElementExpression, ElementExpression | None]:
    """Removes the guard of rows without keys. For `select(x == -inf, 0, y)` the result is y and x, for any other
    element that element and None."""
    condition, zero, softmax = element.operands if element.is_op("arith.select") else (element,) * 3
    equal = condition.is_op("arith.cmpf") and str(condition.properties[0][1]).startswith("1 ")
    if equal and zero.number == 0 and condition.operands[1].number == -math.inf:
        return softmax, condition.operands[0]
    return element, None


def _check_unrounded(what: str, part: ElementExpression) -> None:
    """Declines a part of a softmax that the IR rounds to fewer bits than a kernel computes it with."""
    if part.is_op(ROUNDED):
        decline(f"{what} rounded to {part.type}, and would be computed in f32")


@rewrite_pattern
def pack_heads(op: AttentionOp, rewriter: PatternRewriter) -> None:
    """Exchanges the loop over the only query of an attention with the longest one over heads that share K and V. A
    diagonal would be of queries, as numbers of documents are: they stay as they are, and so does their attention."""
    sizes, query = op.sizes, op.batch + M
    of_keys = {loop for map_ in op.maps[1:3] for loop in loops_of(map_)}
    heads = [loop for loop in range(op.batch) if loop not in of_keys and sizes[loop] > 1]
    if op.tile or sizes[query] != 1 or op.diagonal is not None or op.window is not None or not heads:
        return
    if op.lse is not None or op.documents:
        return
    head = max(heads, key=sizes.__getitem__)
    order = list(range(op.maps[0].num_dims))
    order[head], order[query] = query, head
    maps = [map_along(len(order), (order[loop] for loop in loops_of(map_))) for map_ in op.maps]
    _renumber(op, op.matrices, maps, order, rewriter)


@rewrite_pattern
def split_values(op: AttentionOp, rewriter: PatternRewriter) -> None:
    """Makes a loop of the batch over parts of V's columns, and of O's, where a lane has no registers for all of them. K
    and V of one latent matrix are 576 and 512 columns: the CTAs of both parts multiply Q and K."""
    columns, last = op.sizes[op.batch + E], op.batch + E
    parts = -(-columns // MAX_COLUMNS)
    along = () if op.function is None else (loop for _, map_ in op.function.placed for loop in loops_of(map_))
    if op.tile or parts < 2 or columns % parts or op.lse is not None:
        return
    if last in along or not all(strides_of(memory_of(value)) for value in (op.v, op.o)):
        return
    order = [*range(op.batch), *range(op.batch + 1, last + 2)]

    def moved(map_: AffineMap) -> AffineMap:
        return map_along(len(order) + 1, (order[loop] for loop in loops_of(map_)))

    matrices, maps = list(op.matrices), list(map(moved, op.maps))
    for number in (2, 3):
        loops, shape = loops_of(op.maps[number]), memory_of(matrices[number]).get_shape()
        sizes = [[parts, size // parts] if loop == last else [size] for loop, size in zip(loops, shape, strict=True)]
        paged = matrices[number].owner
        split = _split_pages(paged, sizes) if isinstance(paged, PagedOp) else [expand(matrices[number], sizes)]
        matrices[number] = [rewriter.insert(each) for each in split][-1].results[0]
        at, places = loops.index(last), list(loops_of(maps[number]))
        maps[number] = map_along(len(order) + 1, (*places[:at], op.batch, *places[at:]))
    values = op.v
    _renumber(op, matrices, maps, order, rewriter)
    drop_unused(values)


def _split_pages(view: PagedOp, sizes: Sequence[Sequence[int]]) -> list[memref.ExpandShapeOp | PagedOp]:
    """A view of pages with each dimension split into several of these sizes; that of keys is not."""
    shape, dims = memory_of(view.memory).get_shape(), numbered(sizes)
    parts = [sizes[d] if len(sizes[d]) > 1 else [size] for d, size in zip(view.loops, shape, strict=True)]
    split, places = expand(view.memory, parts), numbered(parts)
    page, slot = (None if d is None else places[d][0] for d in view.dimensions)
    along, of_table = ([new for d in old for new in dims[d]] for old in (view.loops, view.table_along.get_values()))
    return [split, PagedOp(split.result, view.table, along, of_table, page or 0, slot)]


PANEL = 64
"""Columns of a tile that lie together in shared memory: a line of 16-bit elements."""


@rewrite_pattern
def values_of_keys(op: AttentionOp, rewriter: PatternRewriter) -> None:
    """Marks an attention whose V is columns of K, of which a CTA then has one tile for both products."""
    if not op.tile and op.of_keys is None and (first := _first_of_keys(op)) is not None:
        op.of_keys = IntegerAttr(first, i64)
        rewriter.notify_op_modified(op)


def _first_of_keys(op: AttentionOp) -> int | None:
    """The column of K that V begins with; None where V is something else, or is not whole lines of a tile of K."""
    kinds, depth, columns = [memory_of(op.k), memory_of(op.v)], op.batch + D, op.batch + E
    begins, every = [kind.get_offset() for kind in kinds], [strides_of(kind) for kind in kinds]
    tables = {view.table if isinstance(view := value.owner, PagedOp) else None for value in (op.k, op.v)}
    if (
        root(op.k) is not root(op.v)
        or len(tables) > 1
        or None in begins
        or None in every
        or not isinstance(kinds[1].element_type, HALVES)
    ):
        return None
    maps = zip(op.maps[1:3], every, strict=True)
    of_k, of_v = (dict(zip(loops_of(map_), steps or (), strict=True)) for map_, steps in maps)
    first, width, end = (begins[1] or 0) - (begins[0] or 0), op.sizes[columns], op.sizes[depth]
    steps_along, parts = (of_k.pop(depth), of_v.pop(columns)), [loop for loop in of_v if loop not in of_k]
    if any(of_v.pop(loop) != width for loop in parts) or len(parts) > 1 or of_v != of_k or steps_along != (1, 1):
        return None
    last = end - width * math.prod(op.sizes[loop] for loop in parts)
    apart = all(not step or step >= end for step in of_k.values() if step is not None)
    return first if apart and first % PANEL == width % PANEL == 0 <= first <= last else None


def _renumber(
    op: AttentionOp, matrices: Sequence[SSAValue], maps: Sequence[AffineMap], order: Sequence[int],
    rewriter: PatternRewriter,
) -> None:  # fmt: skip
    """Replaces an attention by one on `matrices`, with its loops renumbered. `order` maps old loop numbers to new
    ones."""

    def moved(map_: AffineMapAttr | None) -> AffineMap | None:
        return None if map_ is None else map_along(maps[0].num_dims, (order[loop] for loop in loops_of(map_.data)))

    functions = op.functions
    new = op.like(
        **dict(zip("qkvo", matrices, strict=True)),
        indexing_maps=maps,
        lengths_map=moved(op.lengths_map),
        sinks_map=moved(op.sinks_map),
        documents_maps=list(map(moved, op.documents_maps or ())),
        **{name: rewriter.insert(exchanged(function, order)).function for name, function in functions.items()},
    )
    rewriter.replace(op, new)
    drop_forms([function.function for function in functions.values()])


@dataclass(frozen=True)
class FuseAttention(RewritePattern):
    """Replaces a product, with the softmax and the product before it, by `warp.attention`."""

    tf32: bool = False

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: LinalgStructuredOperation, rewriter: PatternRewriter) -> None:
        if len(op.inputs) != 2 or not all(isinstance(v.type, MemRefType) for v in op.operands):
            return
        try:
            AttentionMatch(op, tf32=self.tf32).replace()
            chose(op, FuseAttentionPass.name, "two products and the softmax between them are one kernel")
            rewriter.has_done_action = True
        except NotFusedError as declined:
            if reason := str(declined):
                remark(op, FuseAttentionPass.name, f"it is not fused into an attention: {reason}")


@dataclass(frozen=True)
class FuseAttentionPass(ModulePass):
    """Replaces two products with a softmax between them by one `warp.attention`, which keeps the scores in registers.
    The operations must be `linalg` operations on memory in one block. `warp-bufferize` converts functions on tensors.
    With `tf32`, a softmax in f32 that multiplies a V of f16, extended to f32, is rounded to f16; to bf16 if V and the
    result are of it."""

    name = "warp-fuse-attention"

    tf32: bool = False

    needs: ClassVar = (*EXPONENTIALS, AttentionOp.name)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        paged = list[RewritePattern]()
        if any(isinstance(each, memref.LoadOp) for each in op.walk()):
            from .pages import read_pages  # keys that a table names

            paged.append(read_pages)
        every = (fold_dimension, FuseAttention(self.tf32), pack_heads, *paged, split_values, values_of_keys)
        for pattern in every:
            apply_patterns([pattern], op)
        every_linalg = (each for each in op.walk() if isinstance(each, LinalgStructuredOperation))
        if products := [each for each in every_linalg if len(each.inputs) == 2 and not each.results]:
            from .attention_gradient import fuse_gradients  # with operations that most functions do not have

            fuse_gradients(products, self.name)
