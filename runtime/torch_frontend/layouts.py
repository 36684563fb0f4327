"""How the elements of a tensor lie in memory, as far as a kernel takes them: without gaps, in some order of the
dimensions, and the same ones again along dimensions of stride 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .types import Size, UnsupportedError, shape_of, size_of


@dataclass(frozen=True)
class MemoryOrder:
    """Dimensions of a tensor from the outermost to the innermost in memory; others have one element or stride 0.

    The memory is a tensor of its own, in row-major order: `dims` says which dimension of it each of the tensor's is.
    """

    order: tuple[int, ...]
    rank: int

    @property
    def dims(self) -> tuple[int | None, ...]:
        """For each dimension of the tensor the one in memory."""
        return tuple(self.order.index(d) if d in self.order else None for d in range(self.rank))

    def shape(self, sizes: tuple[Any, ...]) -> tuple[Any, ...]:
        """The sizes of the memory, for those of the tensor."""
        return tuple(sizes[d] for d in self.order)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether the elements of a tensor lie like this."""
        expected = 1
        sizes, strides = tensor.shape, tensor.stride()
        for d in reversed(self.order):
            if sizes[d] != 1 and strides[d] != expected:
                return False
            expected *= sizes[d]
        return all(sizes[d] == 1 or strides[d] == 0 for d in range(self.rank) if d not in self.order)

    def made(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor's elements, once each, in memory like this: a copy where they do not lie so."""
        whole = tensor
        for d in range(self.rank):
            if d not in self.order:
                whole = whole.narrow(d, 0, 1)
        others = [d for d in range(self.rank) if d not in self.order]
        return whole.permute(*self.order, *others).contiguous()


def row_major(rank: int) -> MemoryOrder:
    """The order of a contiguous tensor."""
    return MemoryOrder(tuple(range(rank)), rank)


def order_of(tensor: torch.Tensor) -> MemoryOrder:
    """The order that a tensor of a graph has; row-major if its elements lie with gaps, so that they must be copied."""
    sizes = shape_of(tensor)
    strides = tuple(map(size_of, tensor.stride()))
    moving = [d for d in range(len(sizes)) if sizes[d] != 1 and strides[d] != 0]
    order = tuple(sorted(moving, key=lambda d: -_hint(tensor.stride()[d])))
    in_order = order == tuple(d for d in range(len(sizes)) if sizes[d] != 1)
    if in_order or not _without_gaps(order, sizes, strides):
        return row_major(len(sizes))
    return MemoryOrder(order, len(sizes))


def is_row_major(tensor: torch.Tensor) -> bool:
    """Whether a tensor of a graph is contiguous."""
    sizes = shape_of(tensor)
    moving = [d for d in range(len(sizes)) if sizes[d] != 1]
    return _without_gaps(moving, sizes, tuple(map(size_of, tensor.stride())))


def _without_gaps(order: Sequence[int], sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    expected: Size = 1
    for d in reversed(order):
        if strides[d] != expected:
            return False
        expected = expected * sizes[d]
    return True


def _hint(size: Any) -> int:
    """A size, or an example of it.

    Raises:
        UnsupportedError: for one that depends on data.
    """
    hint = size if isinstance(size, int) else size.node.hint
    if hint is None:
        raise UnsupportedError(f"the size {size} depends on data")
    return int(hint)
