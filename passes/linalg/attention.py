"""`warp-fuse-attention`: two products with a softmax between them become one `warp.attention`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import ClassVar, NamedTuple

from xdsl.context import Context
from xdsl.dialects import memref
from xdsl.dialects.builtin import FloatAttr, MemRefType, ModuleOp, UnitAttr, f16, f32
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from ...dialect.mlir.affine import loops_of, map_along
from ...dialect.nest import Nest
from ...dialect.warp.attention import AttentionOp, D, E, Keys, M, N
from ...dialect.warp.attributes import element_row, memory_of
from ...dialect.warp.elements import PointwiseOp, element_type
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.views import PagedOp
from ..diagnostics import chose, remark
from ..patterns import FoldDimension, apply_patterns
from .element_expressions import (
    ROUNDED,
    ElementExpression,
    ElementReader,
    Name,
    NotFusedError,
    Subscripts,
    decline,
    map_of,
    names_of,
    read_product,
    region_of,
)
from .elementwise import check_attention
from .fuse_epilogue import Replacement, place_in_block
from .operand import KernelArgument, VectorOperand, each_once, root
from .pack_heads import PackHeads
from .product import Product, read
from .score_masks import COLUMN, DEPTH, KEY, QUERY, KeyRange, masked, scaled

# What `warp.attention` asks for, read once for the passes that lower it: its two products.

FACTORS = ((M, D), (D, N), (N, E), (M, E))
"""The loops that Q, K, V and O run along, as A of Q K^T, B of it, B of P V and D of that do."""


class Attention(NamedTuple):
    """The two products of an attention: scores = Q K^T, with the region on scores as its epilogue, and O = P V.

    Scores and P are in no memory: what stands for them there is an allocation in no block.
    """

    op: AttentionOp
    scores: Product
    values: Product

    @staticmethod
    def of(op: AttentionOp) -> Attention:
        """Reads a verified operation. Raises a located diagnostic for layouts that are not lowered."""
        half, sizes = memory_of(op.v).element_type, op.sizes
        m, n, d, e = (op.batch + loop for loop in (M, N, D, E))
        outer = tuple(range(op.batch))
        row = element_row(half)
        names = [row.name if row is not None else str(half)] * 2
        q, k, v, o = map(loops_of, op.maps)

        def along(every: Sequence[int], *operands: Sequence[int]) -> list[AffineMap]:
            """The maps of a product over these loops."""
            return [map_along(len(every), map(every.index, loops)) for loops in operands]

        changed = None
        if op.score is not None:
            inputs = [(value, map_along(len(outer) + 3, loops_of(map_))) for value, map_ in op.score.placed]
            changed = op.score.moved(inputs, len(outer) + 3, 0).function
        inner = [sizes[loop] for loop in (*outer, m, n)]
        scores = MatmulOp(
            *(op.q, op.k, _nowhere(f32, inner), names),
            init=FloatAttr(0.0, f32),
            maps=along((*outer, m, n, d), q, k, (*outer, m, n)),
            through=changed,
        )
        maps = along((*outer, m, e, n), (*outer, m, n), v, o)
        values = MatmulOp(_nowhere(half, inner), op.v, op.o, names, init=FloatAttr(0.0, f32), maps=maps)
        scores.location = values.location = op.location
        return Attention(op, read(scores), read(values))

    @property
    def operands(self) -> tuple[KernelArgument, ...]:
        """Q, K, V, O and what the region on scores takes."""
        scores, values = self.scores, self.values
        matrices = zip("QKVO", (scores.a, scores.b, values.b, values.d), strict=True)
        return (*(replace(operand, name=name) for name, operand in matrices), *scores.epilogue_operands)

    @property
    def lengths(self) -> VectorOperand | None:
        """How many keys each sequence has, where memory says it."""
        return None if self.op.lengths is None else VectorOperand("lengths", self.op.lengths)

    def tiles(self, rows: int) -> int:
        """How many tiles of so many rows O has; the sizes are known."""
        return -(-self.scores.m // rows) * math.prod(self.values.batch)

    @property
    def memories(self) -> tuple[KernelArgument, ...]:
        """The operands of the kernel: each memory once."""
        q, k, v, o, *of_scores = self.operands
        lengths = [] if self.lengths is None else [self.lengths]
        pages = [VectorOperand("pages", view.table) for view in self.paged]
        lse = [] if self.op.lse is None else [VectorOperand("lse", self.op.lse)]
        sinks = [] if self.op.sinks is None else [VectorOperand("sinks", self.op.sinks)]
        given = [_in_memory(operand) for operand in (q, k, v)]
        documents = [VectorOperand(f"of_{axis}", v) for axis, v in zip("mn", self.op.documents, strict=False)]
        return each_once((*given, *of_scores, *pages, *lengths, *sinks, *documents, o, *lse))

    @property
    def paged(self) -> list[PagedOp]:
        """The views of pages that K and V are."""
        return [view for operand in (self.op.k, self.op.v) if isinstance(view := operand.owner, PagedOp)]


def _in_memory(operand: KernelArgument) -> KernelArgument:
    """What a kernel takes for K or V: of a view of pages, all pages."""
    view = operand.value.owner
    return VectorOperand(operand.name, view.memory, divisor=operand.divisor) if isinstance(view, PagedOp) else operand


def _nowhere(kind: Attribute, shape: Sequence[int]) -> SSAValue:
    """Memory that stands for a matrix which is never in memory."""
    return memref.AllocOp([], [], MemRefType(kind, shape)).memref


# `warp-fuse-attention`: two products with a softmax between them become one `warp.attention`.
#
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


class Scores(NamedTuple):
    """What scores are: `scale` times `rest`, an expression of the product, for the keys that count."""

    rest: ElementExpression
    scale: float
    keys: KeyRange


class AttentionMatch:
    """An attention around the product of P and V, `values`.

    Raises:
        NotFusedError: if it is none, for a reason that is empty if it does not look like one.
    """

    def __init__(self, values: LinalgStructuredOperation, *, tf32: bool = False) -> None:
        self.values, self.reader, self.tf32 = values, ElementReader(KEY), tf32
        found = read_product(values)
        if found is None:
            decline("")
        of_p, of_v, of_o = (loops_of(map_) for map_ in found.maps)
        batch = len(of_o) - 2
        names: dict[int, Name] = {i: i for i in range(batch)}
        names |= {batch: QUERY, batch + 1: COLUMN, batch + 2: KEY}
        p, v = (values.inputs[number] for number in found.inputs)
        self.batch, self.last = batch, values
        shape = memory_of(values.outputs[0]).get_shape()
        self.single = dict(zip(names_of(of_o, names), shape, strict=True)).get(QUERY) == 1
        element = self.reader.element(p, names_of(of_p, names), values).unrounded(memory_of(v).element_type)
        element, nothing = _without_empty_rows(element)
        self.zero_rows = nothing is not None
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
        else:
            self._narrowed_behind()
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

    def _narrowed_behind(self) -> None:
        """Lets an operation behind the product of P and V that only rounds its result be part of it."""
        temporary, at = self.o
        users = {use.operation for use in temporary.uses} - {*self.reader.used, self.values}
        following = users.pop() if len(users) == 1 else None
        if not isinstance(following, LinalgStructuredOperation) or temporary not in following.inputs:
            return
        output, nest = following.outputs[0], Nest.of(following)
        if not nest.is_elementwise or following.parent is not self.values.parent:
            return
        loops = loops_of(nest.maps[following.inputs.index(temporary)])
        names = dict(zip(loops, at, strict=True))
        if set(names) != set(range(nest.loops)):
            return
        place = names_of(nest.writes[0].loops, names)
        reader = ElementReader(KEY)
        result = reader.element(output, place, following.next_op or following)
        kind = memory_of(output).element_type
        if result == ElementExpression("product", product=self.values, place=at).rounded(kind):
            self.last, self.o = following, (output, place)
            self.reader.used |= reader.used

    # Scores

    @staticmethod
    def _sink(exponential: ElementExpression, total: ElementExpression) -> ElementExpression | None:
        """The number whose exponential a row's sum has beside those of its scores, if there is one."""
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
        """What is behind E = exp(X - M), where M may be the largest of a row's scores and its sink."""
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
        inner, keys = masked(x, single=self.single)
        rest, scale = scaled(inner)
        if rest.kind != "product" and scale <= 0:
            rest, scale = inner, 1.0
        if scale <= 0:
            decline(f"scores are scaled by {scale:g}")
        return Scores(rest, scale * logarithm, keys)

    def _logarithm(
        self, exponential: ElementExpression, total: ElementExpression
    ) -> tuple[LinalgStructuredOperation, SSAValue, Subscripts] | None:
        """What else makes M + log(L) of each row, in f32, and where: what its gradient is computed from."""
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
                element = reader.element(op.outputs[0], place, op.next_op)
                logarithms = [side for side in element.operands if side.is_op("math.log") and side.operands == (total,)]
                if element.is_op("arith.addf") and len(logarithms) == 1 and largest in element.operands:
                    self.reader.used |= reader.used
                    return op, op.outputs[0], place
        return None

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
        sides = [self._memory(a, names_of(of_a, names), op), self._memory(b, names_of(of_b, names), op)]
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
            kinds = memory_of(memory).element_type, memory_of(value).element_type
            # As tf32, f32 has a fraction of 10 bits, which f16 has too.
            if -1 not in place and (kinds[0] == kinds[1] or (self.tf32 and kinds == (f16, f32))):
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
        lengths = self.scores.keys.lengths
        read |= {root(lengths.value)} if lengths is not None and lengths.value is not None else set()
        read |= {root(self.sinks[0])} if self.sinks is not None else set()
        read |= {root(side.value) for side in self.scores.keys.documents if side.value is not None}
        used = frozenset({*self.reader.used, self.values, self.last})
        results, last = [self.o[0]], self.last
        if self.lse is not None:
            results, last = [*results, self.lse[1]], max(last, self.lse[0], key=place_in_block)
        found = Replacement(used, last, frozenset(results), read)
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
        made = AttentionOp(
            [value for value, _ in matrices],
            [map_of(at, order) for _, at in matrices],
            scale=self.scores.scale,
            keys=self._keys(order),
            scores=None if score is None else score.function,
            lse=None if self.lse is None else (self.lse[1], map_of(self.lse[2], order)),
            sinks=None if self.sinks is None else (self.sinks[0], map_of(self.sinks[1], order)),
        )
        made.zero_rows = UnitAttr() if self.zero_rows else None
        return made

    def _keys(self, order: Mapping[Name, int]) -> Keys:
        """The keys that count, as the operation has them."""
        found = self.scores.keys
        lengths, *documents = (
            None if load is None or load.value is None else (load.value, map_of(load.place, order))
            for load in (found.lengths, *found.documents)
        )
        return Keys(found.diagonal, found.window, lengths, tuple(filter(None, documents)))


def _without_empty_rows(element: ElementExpression) -> tuple[ElementExpression, ElementExpression | None]:
    """What is 0 where something is minus infinity, and that; else what is given, and None."""
    condition, zero, softmax = element.operands if element.is_op("arith.select") else (element,) * 3
    equal = condition.is_op("arith.cmpf") and str(condition.properties[0][1]).startswith("1 ")
    if equal and zero.number == 0 and condition.operands[1].number == -math.inf:
        return softmax, condition.operands[0]
    return element, None


def _check_unrounded(what: str, part: ElementExpression) -> None:
    """Declines a part of a softmax that the IR rounds to fewer bits than a kernel computes it with."""
    if part.is_op(ROUNDED):
        decline(f"{what} rounded to {part.type}, and would be computed in f32")


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
    With `tf32`, a softmax in f32 that multiplies a V of f16, extended to f32, is rounded to f16.
    """

    name = "warp-fuse-attention"

    tf32: bool = False

    needs: ClassVar = ("linalg.*", "memref.dim", AttentionOp.name)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        apply_patterns([FoldDimension()], op)
        apply_patterns([FuseAttention(self.tf32)], op)
        apply_patterns([PackHeads()], op)
        from .attention_gradient import fuse_gradients  # with operations that most functions do not have

        fuse_gradients(op, self.name)
