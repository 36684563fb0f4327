"""What rows combine to so far: `cumsum` and `cumprod` of ATen, as loop nests that go along rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import torch
from torch.fx import Node
from xdsl.dialects.linalg.ops import YieldOp
from xdsl.ir import Operation, Region

from ...dialect.mlir.affine import generic, map_along
from .builder import FunctionBuilder, plain
from .options import aten
from .scalars import HALVES, RULES, Body, Lowering, Value, shape_of

MAX_SCANNED = 1 << 18
"""Elements of a row that the CTAs of a cluster hold."""


def is_scan_of_rows(node: Node) -> bool:
    """Whether a node combines elements of floats with those before along the last dimension, in rows that are held."""
    value, dim = cast("tuple[Node, int]", node.args[:2])
    source, result = value.meta["val"], node.meta["val"]
    last = bool(result.dim()) and dim % result.dim() == result.dim() - 1
    floats = all(x.dtype in (*HALVES, torch.float32) for x in (source, result))
    *rows, length = shape_of(result) if last else (0,)
    return floats and last and isinstance(length, int) and length <= MAX_SCANNED and any(size != 1 for size in rows)


def _scan(rule: str, start: float) -> Lowering:
    """What rows combine to so far, in f32, rounded once."""

    def handler(builder: FunctionBuilder, like: torch.Tensor, value: Value, *_: object, **__: object) -> Value:
        rank, kinds = len(value.shape), (value.dtype, like.dtype, torch.float32)
        operand, every = builder.operand(value, range(rank), value.shape), tuple(range(rank))
        result = plain(builder.empty(value.shape, like.dtype), value.shape, like.dtype)
        last = builder.filled(value.shape[:-1], torch.float32, start)
        inside, (element, _unread, so_far) = Body.of(kinds)
        total = RULES[rule](inside, [inside.convert(element, torch.float32), so_far])
        inside.insert(YieldOp(inside.stored(inside.convert(total, like.dtype), like.dtype), total.value))
        maps = [map_along(rank, loops) for loops in (operand.loops, every, every[:-1])]
        begun, tensors = cast("Operation", last.tensor.owner), [result.tensor, last.tensor]
        types = [tensor.type for tensor in tensors]
        op = generic(begun, [operand.value.tensor], tensors, Region(inside.block), maps, {rank - 1}, types)
        return replace(result, tensor=builder.insert(op).results[0])

    return handler


SCANS: Mapping[object, Lowering] = {aten.cumsum.default: _scan("add", 0.0), aten.cumprod.default: _scan("mul", 1.0)}
"""Operations that `is_scan_of_rows` may hold for."""
