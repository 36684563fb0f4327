"""How the operators `torch.ops.warploom` compute on `DTensor`: which parts of operands give which parts of results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from .products import warploom

Sharding: TypeAlias = tuple[Sequence[Any], Sequence[Any]]
"""Placements of the results, and of the arguments, None for those that are no tensors."""


def _matmul(a: Any, b: Any) -> list[Sharding]:
    """By rows of A, by columns of B, or along k, which leaves sums to be added."""
    first, second = a.ndim, b.ndim
    result = max(first, second)
    shardings: list[Sharding] = [
        ([Replicate()], [Replicate(), Replicate()]),
        ([Shard(result - 2)], [Shard(first - 2), Replicate()]),
        ([Shard(result - 1)], [Replicate(), Shard(second - 1)]),
        ([Partial()], [Shard(first - 1), Shard(second - 2)]),
    ]
    if first == second:
        same = [d for d in range(first - 2) if a.shape[d] == b.shape[d]]
        shardings += [([Shard(d)], [Shard(d), Shard(d)]) for d in same]
    return shardings


def _linear(x: Any, weight: Any, bias: Any = None, activation: str = "none") -> list[Sharding]:
    """By any dimension of x but the last, by rows of the weight (columns of the result), or along the last of x."""
    last = x.ndim - 1

    def taken(of_x: Any, of_weight: Any, of_bias: Any) -> list[Any]:
        return [of_x, of_weight, None if bias is None else of_bias, None]

    shardings: list[Sharding] = [
        ([Replicate()], taken(Replicate(), Replicate(), Replicate())),
        ([Shard(last)], taken(Replicate(), Shard(0), Shard(0))),
        *(([Shard(d)], taken(Shard(d), Replicate(), Replicate())) for d in range(last)),
    ]
    if activation == "none":
        shardings.append(([Partial()], taken(Shard(last), Shard(1), Partial())))
    return shardings


def _scaled(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, out_dtype: Any = None) -> list[Sharding]:
    """By rows of A with their scales, or by columns of B with theirs."""
    rows = Shard(0) if scale_a.ndim == 2 and scale_a.shape[0] == a.shape[0] != 1 else Replicate()
    columns = Shard(1) if scale_b.ndim == 2 and scale_b.shape[1] == b.shape[1] != 1 else Replicate()
    added, of_columns = (None, None) if bias is None else (Replicate(), Shard(0))
    return [
        ([Replicate()], [Replicate(), Replicate(), Replicate(), Replicate(), added, None]),
        ([Shard(0)], [Shard(0), Replicate(), rows, Replicate(), added, None]),
        ([Shard(1)], [Replicate(), Shard(1), Replicate(), columns, of_columns, None]),
    ]


def _sparse(values: Any, metadata: Any, b: Any) -> list[Sharding]:
    """By columns of B."""
    return [
        ([Replicate()], [Replicate(), Replicate(), Replicate()]),
        ([Shard(1)], [Replicate(), Replicate(), Shard(1)]),
    ]


RULES: Sequence[tuple[Any, Callable[..., list[Sharding]]]] = (
    (warploom.matmul.default, _matmul),
    (warploom.linear.default, _linear),
    (warploom.scaled_matmul.default, _scaled),
    (warploom.sparse_matmul.default, _sparse),
)


def register_torch_sharding() -> None:
    """Register the sharding rules with `torch.distributed.tensor`, so that the operators accept a `DTensor`."""
    for operator, rule in RULES:
        register_sharding(operator)(rule)
