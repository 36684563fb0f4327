"""`warp-fuse-attention`: two products with a softmax between them become one `warp.attention`.

What counts is what the elements of the result are, as expressions of those of Q, K and V (`element_expressions.py`),
not which operations make them, in which order, and with how many memories between. The pattern is::

    O = sum over n of P V,   P = E / L   or   O = (sum over n of E V) / L
    E = exp(X - M),   M = max over n of X,   L = sum over n of E,   X = f(Q K^T)

f may scale scores, add or multiply what lies in memory, compare indices, and whatever else `arith` and `math` can do
with one score, its roundings among them: scores that the first product leaves in f16 are rounded to f16. Of E and L
nothing may be rounded, for a kernel computes them in f32. P is rounded to the type of V, which it may be before or
after it is divided by L: a kernel does it before.

Where a product of that kind is not fused, `warploom-opt --remarks` says why.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from xdsl.context import Context
from xdsl.dialects.builtin import MemRefType, ModuleOp, f32
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from ...dialect.warp.attention import AttentionOp
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.loops import element_type, loops_of
from ...dialect.warp.pointwise import PointwiseOp
from ..diagnostics import remark
from .element_expressions import ROUNDED, ElementExpression, ElementReader, Name, Subscripts, names_of, read_product
from .element_regions import NotFusedError, decline, map_of, region_of
from .extents import fold_dimensions
from .overlap import check_attention
from .replacement import Replacement
from .scores import COLUMN, DEPTH, KEY, QUERY, masked, scaled
from .views import root

EXPONENTIALS = {"math.exp": 1.0, "math.exp2": math.log(2.0)}
"""What computes E, and the natural logarithm of its base."""


class Scores(NamedTuple):
    """What scores are: `scale` times `rest`, an expression of the product; `diagonal` as in `warp.attention`."""

    rest: ElementExpression
    scale: float
    diagonal: int | None


class AttentionMatch:
    """An attention around the product of P and V, `values`.

    Raises:
        NotFusedError: if it is none, for a reason that is empty if it does not look like one.
    """

    def __init__(self, values: LinalgStructuredOperation) -> None:
        self.values, self.reader = values, ElementReader(KEY)
        found = read_product(values)
        if found is None:
            decline("")
        of_p, of_v, of_o = (loops_of(map_) for map_ in found.maps)
        batch = len(of_o) - 2
        names: dict[int, Name] = {i: i for i in range(batch)}
        names |= {batch: QUERY, batch + 1: COLUMN, batch + 2: KEY}
        p, v = (values.inputs[number] for number in found.inputs)
        self.batch, self.last = batch, values
        element = self.reader.element(p, names_of(of_p, names), values).unrounded(memory_of(v).element_type)
        if not any(element.leaves("product")) or not (
            self._is_exponential(element) or self._quotient(element) is not None
        ):
            decline("")
        self.v = self._memory(v, names_of(of_v, names), values)
        self.o = values.outputs[0], names_of(of_o, names)
        if not self.reader.starts_from(values, 0.0):
            decline("its result does not start from zero")
        if self._quotient(element) is None:
            element = self._divided_behind(element)
        exponential, total = self._quotient(element) or (element, element)
        _check_unrounded("its exponentials are", exponential)
        _check_unrounded("the sum of each row is", total)
        if total != ElementExpression("reduce", "add", (exponential,)):
            decline("what P is divided by is not the sum of each row of it")
        self.scores = self._scores(exponential)
        self._read_factors()
        rest = self.scores.rest
        self.score_operands = {
            leaf: value for leaf in (*rest.leaves("load"), *rest.leaves("outside")) if (value := leaf.value)
        }

    @staticmethod
    def _is_exponential(element: ElementExpression) -> bool:
        return element.is_op(*EXPONENTIALS)

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
        temporary, at = self.o
        users = {use.operation for use in temporary.uses}
        following = self.values.next_op
        while following is not None and following not in users:
            following = following.next_op
        if not isinstance(following, LinalgStructuredOperation) or len(following.outputs) != 1:
            decline("what its result is divided by is not found")
        output = following.outputs[0]
        loops = loops_of(following.get_indexing_maps().data[following.inputs.index(temporary)].data)
        names = dict(zip(loops, at, strict=True))
        written = loops_of(following.get_indexing_maps().data[-1].data)
        if len(names) != following.get_num_loops() or -1 in (*loops, *written):
            decline("what its result is divided by is not found")
        place = names_of(written, names)
        probe = following.next_op or following
        result = self.reader.element(output, place, probe)
        product = ElementExpression("product", product=self.values, place=at)
        quotient = self._quotient(result.unrounded(memory_of(output).element_type))
        if quotient is None or quotient[0] != product:
            decline("what follows its result is not the division by the sum of each row")
        self.last, self.o = following, (output, place)
        return ElementExpression("op", "arith.divf", (exponential, quotient[1]))

    # Scores

    def _scores(self, exponential: ElementExpression) -> Scores:
        """What is behind E = exp(X - M)."""
        logarithm = EXPONENTIALS.get(str(exponential.name), 1.0)
        (inner,) = exponential.operands
        _check_unrounded("the exponent is", inner)
        if not inner.is_op("arith.subf"):
            decline("the exponent is no score less the largest of its row")
        x, largest = inner.operands
        if largest not in [ElementExpression("reduce", name, (x,)) for name in ("max", "maximum")]:
            decline("what is subtracted in the exponent is not the largest score of each row")
        if len(x.leaves("product")) != 1:
            decline("scores depend on several products")
        rest, diagonal = masked(x)
        rest, scale = scaled(rest)
        if rest.kind != "product" and scale <= 0:
            rest, scale = x, 1.0
        if scale <= 0:
            decline(f"scores are scaled by {scale:g}")
        return Scores(rest, scale * logarithm, diagonal)

    def _read_factors(self) -> None:
        """Q and K: the memories that scores are a product of, and their places."""
        (product,) = self.scores.rest.leaves("product")
        op, at = product.product, product.place
        found = None if op is None else read_product(op)
        if op is None or found is None:
            decline("scores are no product")
        of_a, of_b, of_c = (loops_of(map_) for map_ in found.maps)
        names: dict[int, Name] = {**dict(zip(of_c, at, strict=True)), len(of_c): DEPTH}
        a, b = (op.inputs[number] for number in found.inputs)
        sides = [
            self._memory(a, names_of(of_a, names), op),
            self._memory(b, names_of(of_b, names), op),
        ]
        self.product = op
        self.q, self.k = sorted(sides, key=lambda side: QUERY not in side[1])
        if QUERY not in self.q[1] or KEY not in self.k[1] or QUERY in self.k[1] or KEY in self.q[1]:
            decline("scores are no product of one matrix with a row for each query and one with a row for each key")

    def _memory(self, value: SSAValue, at: Subscripts, before: Operation) -> tuple[SSAValue, Subscripts]:
        """The memory that an operand of a product is read from: where it is copied or transposed from, if it is."""
        reader = ElementReader(KEY)
        found = reader.element(value, at, before)
        if found.kind == "load" and (memory := found.value) is not None:
            place = found.place
            if memory_of(memory).element_type == memory_of(value).element_type and -1 not in place:
                self.reader.used |= reader.used
                return memory, place
        return value, at

    # What becomes of it

    def replace(self) -> None:
        """Puts the attention in place of all operations.

        Raises:
            NotFusedError: if without them something is not as it was, or there is no such attention.
        """
        read = {root(value) for value, _ in (self.q, self.k, self.v)}
        read |= {root(value) for value in self.score_operands.values()}
        used = frozenset({*self.reader.used, self.values, self.last})
        found = Replacement(used, self.last, self.o[0], read)
        if self.product not in found.dead:
            decline("others use the scores too, or what becomes of them")
        if self.values not in found.dead:
            decline("others use its result before it is divided")
        if root(self.o[0]) in read:
            decline("its result is where Q, K or V is")
        found.replace(self._attention, check_attention)

    def _attention(self) -> AttentionOp:
        """The operation that comes to stand for all."""
        loops = (*range(self.batch), QUERY, KEY, DEPTH, COLUMN)
        order: dict[Name, int] = {name: i for i, name in enumerate(loops)}
        matrices, plain = (self.q, self.k, self.v, self.o), self.scores.rest.kind == "product"
        (product,) = self.scores.rest.leaves("product")
        given = {product: f32, **{leaf: element_type(value) for leaf, value in self.score_operands.items()}}
        inputs = [(value, map_of(leaf.place, order)) for leaf, value in self.score_operands.items()]
        score = None if plain else PointwiseOp(inputs, region_of(self.scores.rest, given, indices=order))
        if score is not None:
            score.function.name_hint = "score"
        return AttentionOp(
            [value for value, _ in matrices],
            [map_of(at, order) for _, at in matrices],
            scale=self.scores.scale,
            diagonal=self.scores.diagonal,
            scores=None if score is None else score.function,
        )


def _check_unrounded(what: str, part: ElementExpression) -> None:
    """Declines a part of a softmax that the IR rounds to fewer bits than a kernel computes it with."""
    if part.is_op(ROUNDED):
        decline(f"{what} rounded to {part.type}, and would be computed in f32")


class FuseAttentionPass(ModulePass):
    """Replaces two products with a softmax between them by one `warp.attention`, which keeps the scores in registers.

    The operations must be `linalg` operations on memory in one block. `warp-bufferize` converts functions on tensors.
    """

    name = "warp-fuse-attention"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        fold_dimensions(op)
        for found in list(op.walk()):
            if not isinstance(found, LinalgStructuredOperation) or found.parent is None:
                continue
            if len(found.inputs) != 2 or not all(isinstance(v.type, MemRefType) for v in found.operands):
                continue
            try:
                AttentionMatch(found).replace()
            except NotFusedError as declined:
                if reason := str(declined):
                    remark(found, self.name, f"it is not fused into an attention: {reason}")
