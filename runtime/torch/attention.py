"""Attention: operations of ATen that compute softmax(scale Q K^T + mask) V, or its gradients, as contractions and what
is between them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch.fx import Node
from xdsl.dialects import arith
from xdsl.dialects.linalg.ops import IndexOp

from ...dialect.mlir.contraction import ContractOp
from .builder import FunctionBuilder
from .options import aten
from .scalars import COMPARISONS, RULES, Body, ElementValue, Size, UnsupportedError, Value, shape_of
from .views import expanded, reordered, reshape, unsqueezed

KINDS = ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")

ATTENTIONS = frozenset(
    {aten.scaled_dot_product_attention.default, *(getattr(aten, f"_scaled_dot_product_{k}").default for k in KINDS)}
)
"""Operations that are attention. All but the first have several results: the attention, for each row the logarithm of
the sum of the exponentials of its scores, and the state of dropout."""

GRADIENTS = frozenset(getattr(aten, f"_scaled_dot_product_{kind}_backward").default for kind in KINDS)
"""Operations that compute the gradients of Q, K, V and a mask."""

SEQUENCES = "torch_attn._varlen_attn.default", "torch_attn._varlen_attn_backward.default"
"""Attention of sequences that follow one another, whose ends are in memory, and its gradients; torch has them once a
module is imported."""

Results: TypeAlias = Sequence[Callable[[], Value]]
"""What writes each result of an operation."""


def is_attention(node: Node) -> bool:
    """Whether a node is attention, or computes its gradients."""
    attention = node.target in ATTENTIONS or is_gradient(node) or str(node.target) in SEQUENCES
    return node.op == "call_function" and attention


def is_gradient(node: Node) -> bool:
    """Whether a node computes the gradients of an attention."""
    return node.target in GRADIENTS or str(node.target) == SEQUENCES[1]


def most_kernels(node: Node) -> int:
    """How many kernels a fused attention has at most: of gradients one for sums of rows, and one for each result; of
    sequences another one each for the keys of each tile, and one for the numbers of sequences each of queries and of
    keys."""
    own, of_sequences = arguments_of(node), str(node.target) in SEQUENCES
    numbers = len({own["cu_seq_q"], own["cu_seq_k"]}) if of_sequences else 0
    return (4 + 3 * of_sequences if is_gradient(node) else 1 + of_sequences) + numbers


def results_of(node: Node) -> tuple[Node, ...]:
    """The results of attention that are used, in order, without the state of dropout: the first two are none."""
    if isinstance(node.meta["val"], torch.Tensor):
        return (node,)
    count = len(node.meta["val"]) if is_gradient(node) else 2
    users: list[Any] = [user for user in node.users if user.target is operator.getitem and user.users]
    return tuple(sorted((user for user in users if user.args[1] < count), key=lambda user: user.args[1]))


def arguments_of(node: Node) -> dict[str, Any]:
    """The arguments of attention by the names of its schema, without the state of dropout."""
    target: Any = node.target
    schema = target._schema.arguments
    passed = {**dict(zip((each.name for each in schema), node.args, strict=False)), **node.kwargs}
    own = {each.name.rstrip("_"): passed.get(each.name, each.default_value) for each in schema}
    return {name: own[name] for name in READ if name in own}


READ = (
    *("query", "key", "value", "attn_mask", "attn_bias", "grad_out", "out", "logsumexp", "lse"),
    *("dropout_p", "is_causal", "scale"),
    *("cu_seq_q", "cu_seq_k", "window_size", "seqused_k", "block_table"),
)
"""Names of the arguments on which results depend where nothing is dropped."""


def lower(builder: FunctionBuilder, node: Node, values: Mapping[Node, Value]) -> Results:
    """Functions that compute the results of an attention, or of its gradients.

    Raises:
        UnsupportedError: for sizes, strides or options that are not lowered.
    """
    own = {name: values[x] if isinstance(x, Node) else x for name, x in arguments_of(node).items()}
    if own.get("dropout_p"):
        raise UnsupportedError("dropout is not lowered")
    if str(node.target) in SEQUENCES:
        return _of_sequences(builder, own, node.meta["val"], trains=is_gradient(node))
    attention, likes = _Attention(builder, own, trains=node.target in GRADIENTS), node.meta["val"]
    if node.target in GRADIENTS:
        made = attention.gradients(own["grad_out"], own["out"], own["logsumexp"], likes)
        if len(made) in [user.args[1] for user in results_of(node)]:
            raise UnsupportedError("the gradient of a mask is not lowered")
        return made
    return attention.results([likes] if isinstance(likes, torch.Tensor) else likes)


def _of_sequences(
    builder: FunctionBuilder, own: Mapping[str, Any], likes: Sequence[torch.Tensor], *, trains: bool
) -> Results:
    """What writes attention of (tokens, heads, columns), where a query sees the keys of its own sequence, and the
    logarithms of sums, of (heads, tokens); or the gradients."""
    ends, window = (own["cu_seq_q"], own["cu_seq_k"]), tuple(own["window_size"] or (-1, -1))
    causal = bool(own["is_causal"]) or window == (-1, 0)
    if own.get("seqused_k") is not None or own.get("block_table") is not None or window not in ((-1, -1), (-1, 0)):
        raise UnsupportedError("windows, pages and lengths of sequences that follow one another are not lowered")
    if causal and ends[0] is not ends[1]:
        raise UnsupportedError("a causal mask of sequences that have other keys than queries is not lowered")
    tokens = own["query"].shape[0], own["key"].shape[0]
    if tokens[0] == 1:
        raise UnsupportedError("a sequence of one query among others is not lowered")
    matrices = [name for name in ("query", "key", "value", "grad_out", "out") if name in own]
    heads = {name: reordered(unsqueezed(own[name], 0), (0, 2, 1, 3)) for name in matrices}
    attention = _Attention(builder, {**heads, "is_causal": causal, "scale": own["scale"]}, trains=trains)
    of_rows = _begun(builder, ends[0], tokens[0])
    attention.numbers = [of_rows, of_rows if ends[0] is ends[1] else _begun(builder, ends[1], tokens[1])]
    tensors = (like.unsqueeze(0) for like in likes)
    of_heads = [like.transpose(1, 2) if len(like.shape) > len(SEQUENCE) else like for like in tensors]
    if not trains:
        result, logarithm = attention.results(of_heads)
        return [lambda: reordered(result(), SEQUENCE), lambda: reordered(logarithm(), (1, 2))]
    made = attention.gradients(heads["grad_out"], heads["out"], unsqueezed(own["lse"], 0), of_heads)
    return [lambda gradient=gradient: reordered(gradient(), SEQUENCE) for gradient in made]


def _begun(builder: FunctionBuilder, starts: Value, tokens: Size) -> Value:
    """How many of the sequences that start somewhere have begun at each token."""

    def counted(inside: Body, elements: Sequence[ElementValue]) -> ElementValue:
        begun = COMPARISONS["le"](inside, [elements[0], inside.index(0)])
        return RULES["add"](inside, [inside.convert(begun, torch.int32), elements[1]])

    return builder.reduce(expanded(starts, (tokens, starts.shape[0])), [1], 0, counted)


SEQUENCE = (2, 1, 3)
"""The dimensions of (batch, heads, rows, columns) as those of sequences that follow one another."""

HEADS = 1
"""The dimension of heads in (batch, heads, rows, columns)."""

BATCH, SHARED, SHARING, ROW, KEY, DEPTH, COLUMN = range(7)
"""Loops: the batch, heads of K, heads of Q that share one, rows of Q, rows of K, columns of Q and K, columns of V."""

Looped: TypeAlias = tuple[Value, tuple[int, ...]]
"""A value, and the loops that its dimensions run along."""


class _Attention:
    """Scores scale Q K^T + mask of (batch, heads, rows, columns), and what is computed of them; several heads of Q may
    share one of K and V."""

    def __init__(self, builder: FunctionBuilder, own: Mapping[str, Any], *, trains: bool) -> None:
        q, k, v = (own[name] for name in ("query", "key", "value"))
        mask, self.causal = own.get("attn_mask", own.get("attn_bias")), bool(own["is_causal"])
        if len(q.shape) != 4:
            raise UnsupportedError(f"attention of {len(q.shape)} dimensions is not lowered; 4 are")
        if self.causal and q.shape[2] == 1:
            raise UnsupportedError("attention of one query to its first key alone is not lowered")
        heads, shared = q.shape[HEADS], k.shape[HEADS]
        if heads != shared and not (isinstance(heads, int) and isinstance(shared, int) and heads % shared == 0):
            raise UnsupportedError(f"attention of {heads} heads that share {shared} is not lowered")
        if not isinstance(q.shape[3], int):
            raise UnsupportedError("attention of heads of dynamic size is not lowered")
        self.builder, self.half = builder, v.dtype
        self.wide = torch.float64 if v.dtype == torch.float64 else torch.float32
        self.scale = q.shape[3] ** -0.5 if own["scale"] is None else own["scale"]
        sharing = 1 if heads == shared else heads // shared
        self.sizes: tuple[Size, ...] = (q.shape[0], shared, sharing, q.shape[2], *k.shape[2:], v.shape[3])
        # Of the loops around the keys those with more than one index; of those that rows of Q run along, one at least.
        loops = tuple(d for d in range(KEY) if self.sizes[d] != 1 or (trains and d == ROW))
        self.loops = loops if ROW in loops or SHARING in loops else (*loops, ROW)
        self.around, self.of_keys = (*self.loops, KEY), tuple(d for d in (BATCH, SHARED) if d in self.loops)
        self.q, self.k, self.v = self._of_heads(q, DEPTH), self._of_keys(k, DEPTH), self._of_keys(v, COLUMN)
        self.mask: Value | None = mask
        self.numbers: Sequence[Value] = ()
        """Numbers of the sequences of rows of Q, and of keys, of which each row sees its own."""

    def results(self, likes: Sequence[torch.Tensor]) -> Results:
        """What writes softmax(scores) V, and the logarithm of the sum of each row, in memory as tensors are."""
        scores = self._scores()
        largest = self._reduced("maximum", scores, -math.inf)
        above = self._computed("exp", self._computed("sub", scores, largest))
        total = self._reduced("add", above, 0.0)

        def result() -> Value:
            weights = self._computed("div", above, total)
            if self.mask is not None:
                rows = [weights, unsqueezed(largest, len(largest.shape))]
                weights = self.builder.generic(rows, weights.shape, weights.dtype, _with_keys)
            weights = self.builder.converted(weights, self.half)
            return self._sum((weights, self.around), self.v, (*self.loops, COLUMN), likes[0])

        def logarithm() -> Value:
            order = _order(likes[1], self.loops)
            ordered = [reordered(value, order) for value in (largest, total)]
            self._check_rows(shape_of(likes[1]))
            written = self._computed("add", ordered[0], self._computed("log", ordered[1]))
            return self._joined(written, [self.loops[at] for at in order], shape_of(likes[1]))

        return [result, logarithm]

    def gradients(self, slope: Value, out: Value, logarithm: Value, likes: Sequence[torch.Tensor]) -> Results:
        """What writes the gradients of Q, K and V for that of the result, in memory as tensors are: the sums of the
        exponentials of scores are computed before, the scores again."""
        self._check_rows(logarithm.shape)
        logs, rows = self._of_heads(reordered(logarithm, range(3)))[0], self._of_heads(slope, COLUMN)

        weighed = self._computed("mul", *(self.builder.converted(x, self.wide) for x in (slope, out)))
        delta = self._of_heads(self._reduced("add", weighed, 0.0))[0]
        weights = self._computed("exp", self._computed("sub", self._scores(), logs))
        slopes = self._computed("sub", self._product(rows, self.v, self.around, self.wide), delta)
        scaled = self._computed("mul", self._computed("mul", weights, slopes), self.scale)
        p, ds = ((self.builder.converted(x, self.half), self.around) for x in (weights, scaled))
        return [
            lambda: self._sum(ds, self.k, (*self.loops, DEPTH), likes[0]),
            lambda: self._sum(ds, self.q, (*self.of_keys, KEY, DEPTH), likes[1]),
            lambda: self._sum(p, rows, (*self.of_keys, KEY, COLUMN), likes[2]),
        ]

    def _check_rows(self, shape: tuple[Size, ...]) -> None:
        if shape[2] != self.sizes[ROW]:
            raise UnsupportedError("sums of rows that torch pads to a multiple are not lowered")

    def _computed(self, rule: str, first: Value, *others: Value | float) -> Value:
        """A primitive operation on elements of values and numbers, of the type and shape of the first. A value with a
        dimension less has a number for each row."""
        tensors, rank = [first, *(x for x in others if isinstance(x, Value))], len(first.shape)
        values = [x if len(x.shape) == rank else unsqueezed(x, rank - 1) for x in tensors]
        numbers = [x for x in others if not isinstance(x, Value)]
        return self.builder.generic(values, first.shape, first.dtype, lambda body, x: RULES[rule](body, [*x, *numbers]))

    def _reduced(self, rule: str, value: Value, start: float) -> Value:
        return self.builder.reduce(value, [len(value.shape) - 1], start, RULES[rule])

    def _of_heads(self, value: Value, *columns: int) -> Looped:
        """(batch, heads, rows, columns) along the loops of Q, or (batch, heads, rows)."""
        rows = reordered(_split(self.builder, value, self.sizes[SHARED:ROW]), [*self.loops, *([4] if columns else [])])
        return rows, (*self.loops, *columns)

    def _of_keys(self, value: Value, column: int) -> Looped:
        """(batch, heads, rows, columns) along the loops of K."""
        return reordered(value, [*self.of_keys, 2, 3]), (*self.of_keys, KEY, column)

    def _product(
        self, a: Looped, b: Looped, along: Sequence[int], dtype: torch.dtype, order: Sequence[int] | None = None
    ) -> Value:
        """A product with the loops `along`, summed over the other loops of A."""
        loops = [*along, *(loop for loop in a[1] if loop not in along)]
        extents = tuple(self.sizes[loop] for loop in loops)
        operands = [self.builder.operand(value, [loops.index(x) for x in own], extents) for value, own in (a, b)]
        return self.builder.product(ContractOp, operands, extents[: len(along)], dtype, {}, order)

    def _sum(self, a: Looped, b: Looped, along: Sequence[int], like: torch.Tensor) -> Value:
        """The product along some loops as (batch, heads, rows, columns), in memory as a tensor is.

        Raises:
            UnsupportedError: for a tensor whose columns are apart.
        """
        if like.stride()[3] != 1:
            raise UnsupportedError("a result whose columns are apart is not lowered")
        out = self._product(a, b, along, like.dtype, _order(like, along))
        return self._joined(out, along, shape_of(like))

    def _joined(self, out: Value, along: Sequence[int], shape: tuple[Size, ...]) -> Value:
        """A result along some loops as (batch, heads, rows, columns), or (batch, heads, rows)."""
        places = dict(zip(along, out.dims, strict=True))
        full, at = out.full, places.get(SHARED)
        if at is not None and SHARING in places:
            full = reshape(
                self.builder, full, (*full.shape[:at], math.prod(full.shape[at : at + 2]), *full.shape[at + 2 :])
            )
            places = {loop: d if d is None or d <= at else d - 1 for loop, d in places.items() if loop != SHARING}
        heads, rows = (places.get(first, places.get(second)) for first, second in ((SHARED, SHARING), (ROW, KEY)))
        dims = (places.get(BATCH), heads, rows, places.get(DEPTH, places.get(COLUMN)))
        return replace(full, dims=dims[: len(shape)], shape=shape)

    def _scores(self) -> Value:
        """scale Q K^T, with a mask added or where it is true, and minus infinity where a key comes after the query."""
        mask, scores = self.mask, self._product(self.q, self.k, self.around, self.wide)
        masks = [] if mask is None else [self._mask(mask)]

        def body(inside: Body, elements: Sequence[ElementValue]) -> ElementValue:
            score = RULES["mul"](inside, [elements[0], self.scale])
            for other in elements[1 : 1 + len(masks)]:
                if mask is not None and mask.dtype == torch.bool:
                    score = RULES["where"](inside, [other, score, -math.inf])
                else:
                    score = RULES["add"](inside, [score, inside.convert(other, scores.dtype)])
            if self.causal and ROW in self.loops:
                row, column = (inside.insert(IndexOp(self.around.index(loop))).result for loop in (ROW, KEY))
                after = ElementValue(inside.insert(arith.CmpiOp(column, row, "sgt")).result)
                score = RULES["where"](inside, [after, -math.inf, score])
            if self.numbers:
                score = RULES["where"](inside, [COMPARISONS["ne"](inside, elements[-2:]), -math.inf, score])
            return score

        places = [[0 if loop == along else None for loop in self.around] for along in (ROW, KEY)]
        numbers = [
            replace(value, dims=tuple(dims), shape=scores.shape)
            for value, dims in zip(self.numbers, places, strict=False)
        ]
        return self.builder.generic([scores, *masks, *numbers], scores.shape, scores.dtype, body)

    def _mask(self, mask: Value) -> Value:
        """A mask along the loops of scores."""
        batch, shared, sharing, rows = self.sizes[:KEY]
        full = expanded(mask, (batch, shared * sharing, rows, mask.shape[-1]))
        if full.dims[HEADS] is not None:
            over = _split(self.builder, full, (shared, sharing))
        else:
            dims = (*full.dims[:HEADS], None, None, *full.dims[HEADS + 1 :])
            over = replace(full, dims=dims, shape=(*self.sizes[:KEY], mask.shape[-1]))
        return reordered(over, [*self.loops, 4])


def _with_keys(inside: Body, x: Sequence[ElementValue]) -> ElementValue:
    """A weight, or 0 where the largest score is minus infinity: of a row without keys, as in eager mode."""
    return RULES["where"](inside, [COMPARISONS["eq"](inside, [x[1], -math.inf]), 0.0, x[0]])


def _split(builder: FunctionBuilder, value: Value, split: tuple[Size, ...]) -> Value:
    """Splits the heads into two dimensions: the heads of K and V, and the heads that share one of them."""
    place = value.dims[HEADS]
    if place is None:
        raise UnsupportedError("heads that are repeated are not lowered")
    heads = (*value.shape[:HEADS], *split, *value.shape[HEADS + 1 :])
    if split[1] == 1:
        return replace(value, dims=(*value.dims[: HEADS + 1], None, *value.dims[HEADS + 1 :]), shape=heads)
    full = value.full
    tensor = reshape(builder, full, (*full.shape[:place], *split, *full.shape[place + 1 :]))
    moved = [d if d is None else d + (d > place) for d in value.dims]
    dims = (*moved[:HEADS], place, place + 1, *moved[HEADS + 1 :])
    return replace(tensor, dims=dims, shape=heads)


def _order(like: torch.Tensor, along: Sequence[int]) -> list[int]:
    """The places of loops in the order of a result's memory, where heads and rows may change places."""
    strides = like.stride()
    rows_first = like.shape[2] > 1 and strides[2] > strides[1]
    order = (BATCH, ROW, KEY, SHARED, SHARING) if rows_first else (BATCH, SHARED, SHARING, ROW, KEY)
    return [along.index(loop) for loop in (*order, DEPTH, COLUMN) if loop in along]
