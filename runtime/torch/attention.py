"""Attention: operations of ATen that compute softmax(scale Q K^T + mask) V as two contractions and what is between."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Node
from xdsl.dialects import arith
from xdsl.dialects.linalg.ops import IndexOp

from ...dialect.mlir.contraction import ContractOp
from .builder import FunctionBuilder
from .options import aten
from .scalars import RULES, Body, ElementValue, Size, UnsupportedError, Value, shape_of
from .views import expanded, reordered

HEADS = 1
"""The dimension of heads in (batch, heads, rows, columns)."""


@dataclass(frozen=True)
class AttentionForm:
    """Where an operation has its mask and whether the future is masked, by position among its arguments."""

    mask: int | None = None
    causal: int = 5


FORMS: Mapping[object, AttentionForm] = {
    aten.scaled_dot_product_attention.default: AttentionForm(mask=3),
    aten._scaled_dot_product_flash_attention.default: AttentionForm(causal=4),
    aten._scaled_dot_product_flash_attention_for_cpu.default: AttentionForm(causal=4),
    aten._scaled_dot_product_efficient_attention.default: AttentionForm(mask=3, causal=6),
    aten._scaled_dot_product_cudnn_attention.default: AttentionForm(mask=3, causal=6),
}
"""Operations that are attention; all but the first have several results, of which the first is it."""


def is_attention(node: Node) -> bool:
    """Whether a node is attention."""
    return node.op == "call_function" and node.target in FORMS


def argument(node: Node, name: str, position: int | None, default: Any = None) -> Any:
    """An argument of an operation, by name or position."""
    if name in node.kwargs:
        return node.kwargs[name]
    return node.args[position] if position is not None and position < len(node.args) else default


def attend(
    builder: FunctionBuilder,
    like: torch.Tensor,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None,
    *,
    causal: bool,
    scale: float | None,
) -> Value:
    """softmax(scale Q K^T + mask) V of (batch, heads, rows, columns); several heads of Q may share one of K and V. The
    result lies in memory as `like` does.

    Raises:
        UnsupportedError: for sizes or strides that are not lowered.
    """
    if len(q.shape) != 4:
        raise UnsupportedError(f"attention of {len(q.shape)} dimensions is not lowered; 4 are")
    if causal and q.shape[2] == 1:
        raise UnsupportedError("attention of one query to its first key alone is not lowered")
    heads, shared = q.shape[HEADS], k.shape[HEADS]
    if not isinstance(heads, int) or heads % shared or not isinstance(q.shape[3], int):
        raise UnsupportedError(f"attention of {heads} heads that share {shared} is not lowered")
    split = (shared, heads // shared)
    sizes = (q.shape[0], *split, q.shape[2])
    loops = _loops(sizes)
    outer = tuple(sizes[d] for d in loops)
    of_k = tuple(loops.index(d) for d in (0, 1) if d in loops)
    rank = len(outer)
    extents = (*outer, k.shape[2], q.shape[3])
    rows = reordered(_split(builder, q, split), [*loops, 4])
    keys, values = (reordered(x, [*(d for d in (0, 1) if d in loops), 2, 3]) for x in (k, v))
    first = builder.operand(rows, (*range(rank), rank + 1), extents)
    second = builder.operand(keys, (*of_k, rank, rank + 1), extents)
    wide = torch.float64 if like.dtype == torch.float64 else torch.float32
    scores = builder.product(ContractOp, (first, second), extents[:-1], wide, {})
    factor = q.shape[3] ** -0.5 if scale is None else scale
    weights = _softmax(builder, _masked(builder, scores, _mask(builder, mask, sizes, loops), loops, causal, factor), v)
    extents = (*outer, v.shape[3], k.shape[2])
    first = builder.operand(weights, (*range(rank), rank + 1), extents)
    second = builder.operand(values, (*of_k, rank + 1, rank), extents)
    order = [*(loops.index(d) for d in _order(like) if d in loops), rank]
    out = builder.product(ContractOp, (first, second), extents[:-1], like.dtype, {}, order)
    return _joined(builder, out, loops, shape_of(like))


BATCH, SHARED, SHARING, ROW = range(4)
"""The loops around the keys: the batch, heads of K, the heads of Q that share one, rows of Q."""


def _loops(sizes: tuple[Size, ...]) -> list[int]:
    """The loops that have more than one index; of those that rows of Q^T may run along, one at least."""
    loops = [d for d, size in enumerate(sizes) if size != 1]
    return loops if ROW in loops or SHARING in loops else [*loops, ROW]


def _joined(builder: FunctionBuilder, out: Value, loops: Sequence[int], shape: tuple[Size, ...]) -> Value:
    """A result along loops and columns as (batch, heads, rows, columns)."""
    places = {loop: out.dims[at] for at, loop in enumerate(loops)} | {ROW + 1: out.dims[-1]}
    full, at = out.full, places.get(SHARED)
    if at is not None and SHARING in places:
        groups = [[d] for d in range(at)] + [[at, at + 1]] + [[d] for d in range(at + 2, len(full.shape))]
        full = builder.reshaped(full, tuple(math.prod(full.shape[d] for d in group) for group in groups), groups)
        places = {loop: d if d is None or d <= at else d - 1 for loop, d in places.items() if loop != SHARING}
    heads = places.get(SHARED, places.get(SHARING))
    return replace(full, dims=(places.get(BATCH), heads, places.get(ROW), places[ROW + 1]), shape=shape)


def _split(builder: FunctionBuilder, value: Value, split: tuple[int, int]) -> Value:
    """Heads as two dimensions: those of K and V, and those that share one."""
    place = value.dims[HEADS]
    if place is None:
        raise UnsupportedError("heads that are repeated are not lowered")
    full = value.full
    shape = (*full.shape[:place], *split, *full.shape[place + 1 :])
    groups = [[d + (d > place)] if d != place else [d, d + 1] for d in range(len(full.shape))]
    tensor = builder.reshaped(full, shape, groups)
    moved = [d if d is None else d + (d > place) for d in value.dims]
    dims = (*moved[:HEADS], place, place + 1, *moved[HEADS + 1 :])
    return replace(tensor, dims=dims, shape=(*value.shape[:HEADS], *split, *value.shape[HEADS + 1 :]))


def _order(like: torch.Tensor) -> list[int]:
    """The loops in the order of a result's memory; UnsupportedError for a result whose columns are apart."""
    strides = like.stride()
    if strides[3] != 1:
        raise UnsupportedError("a result whose columns are apart is not lowered")
    rows_first = like.shape[2] > 1 and strides[2] > strides[1]
    return [BATCH, ROW, SHARED, SHARING] if rows_first else [BATCH, SHARED, SHARING, ROW]


def _mask(builder: FunctionBuilder, mask: Value | None, sizes: tuple[Size, ...], loops: Sequence[int]) -> Value | None:
    """A mask along the loops of scores."""
    if mask is None:
        return None
    full = expanded(mask, (sizes[BATCH], sizes[SHARED] * sizes[SHARING], sizes[ROW], mask.shape[-1]))
    if full.dims[HEADS] is not None:
        over = _split(builder, full, (sizes[SHARED], sizes[SHARING]))
    else:
        dims = (*full.dims[:HEADS], None, None, *full.dims[HEADS + 1 :])
        over = replace(full, dims=dims, shape=(*sizes, mask.shape[-1]))
    return reordered(over, [*loops, 4])


def _masked(
    builder: FunctionBuilder, scores: Value, mask: Value | None, loops: Sequence[int], causal: bool, scale: float
) -> Value:
    """Scaled scores, with a mask added or where it is true, and minus infinity where a key comes after the query."""

    def body(inside: Body, elements: Sequence[ElementValue]) -> ElementValue:
        score = RULES["mul"](inside, [elements[0], scale])
        for other in elements[1:]:
            if mask is not None and mask.dtype == torch.bool:
                score = RULES["where"](inside, [other, score, -math.inf])
            else:
                score = RULES["add"](inside, [score, inside.convert(other, scores.dtype)])
        if causal and ROW in loops:
            row, column = (inside.insert(IndexOp(d)).result for d in (loops.index(ROW), len(loops)))
            after = ElementValue(inside.insert(arith.CmpiOp(column, row, "sgt")).result)
            score = RULES["where"](inside, [after, -math.inf, score])
        return score

    return builder.generic([scores, *([] if mask is None else [mask])], scores.shape, scores.dtype, body)


def _softmax(builder: FunctionBuilder, scores: Value, like: Value) -> Value:
    """exp(X - M) / L along the last dimension, rounded to the type of another value."""
    last = [len(scores.shape) - 1]

    def reduced(rule: str, value: Value, start: float) -> Value:
        found = builder.reduce(value, last, start, lambda body, x: RULES[rule](body, list(x)))
        return replace(found, dims=(*found.dims, None), shape=(*found.shape, 1))

    largest = reduced("maximum", scores, -math.inf)

    def exponential(body: Body, x: Sequence[ElementValue]) -> ElementValue:
        return RULES["exp"](body, [RULES["sub"](body, list(x))])

    above = builder.generic([scores, largest], scores.shape, scores.dtype, exponential)
    total = reduced("add", above, 0.0)
    quotient = builder.generic([above, total], scores.shape, scores.dtype, lambda body, x: RULES["div"](body, list(x)))
    return builder.converted(quotient, like.dtype)
