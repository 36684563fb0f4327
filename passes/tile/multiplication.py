"""How the tiles of a CTA are multiplied: what is copied to shared memory, and what warps do with it there.

Each way is a class with a file of its own: `DenseProduct`, `SparseProduct`, `ScaledProduct`, `WarpgroupProduct`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import SSAValue

from ...dialect.warp.mma import MmaOp
from .index_builder import Index, IndexBuilder
from .operands import OperandTiles
from .tiling import Tiling

Place = dict[str, Index]
"""Where something begins, by the product's axes."""


class CopiedTiles(Protocol):
    """Something that has a tile in shared memory for each K tile."""

    def shared_type(self) -> MemRefType:
        """The tile."""
        ...

    def copy(self, index: IndexBuilder, at: Place, tile: SSAValue) -> None:
        """Copies the tile whose first element lies at `at` to shared memory."""
        ...


class Multiplication(ABC):
    """One way to multiply the tiles of a CTA."""

    def __init__(self, tiling: Tiling) -> None:
        self.tiling = tiling
        product = tiling.product
        self.operands = (OperandTiles(tiling, product.a, "a", "mk"), OperandTiles(tiling, product.b, "b", "kn"))

    @staticmethod
    @abstractmethod
    def multiplies(tiling: Tiling) -> bool:
        """Whether this is the way for a product with its schedule."""

    @property
    def copied(self) -> Sequence[CopiedTiles]:
        """What is copied to shared memory, A and B first."""
        return self.operands

    def counted(self, index: IndexBuilder, at: Place) -> Place:
        """A place of a tile, with what follows from it and is the same for all of K."""
        return at

    def copies_done(self, index: IndexBuilder) -> None:
        """What is done after the copies of a K tile, before the barrier; nothing here."""
        del index

    @abstractmethod
    def multiply(
        self, outside: IndexBuilder, index: IndexBuilder, tiles: Sequence[SSAValue], warp: Place, accumulator: SSAValue
    ) -> SSAValue:
        """The accumulators after one K tile; what does not change from one to the next is said `outside`."""


class FragmentProduct(Multiplication):
    """Products of fragments that a warp loads from shared memory, step by step of the instruction."""

    def multiply(
        self, outside: IndexBuilder, index: IndexBuilder, tiles: Sequence[SSAValue], warp: Place, accumulator: SSAValue
    ) -> SSAValue:
        schedule = self.tiling.schedule
        for inner in range(0, schedule.tile.cta[2] // schedule.tile.sliced_k, schedule.tile.mma.k):
            at = warp | {"k": outside.add(warp["k"], inner)}
            a, b = (o.load(index, tile, at) for o, tile in zip(self.operands, tiles, strict=False))
            accumulator = self.step(index, a, b, accumulator, tiles, at)
        return accumulator

    @abstractmethod
    def step(
        self, index: IndexBuilder, a: SSAValue, b: SSAValue, accumulator: SSAValue, tiles: Sequence[SSAValue], at: Place
    ) -> SSAValue:
        """One step of the instruction at `at` in the tiles: the new accumulators."""


class DenseProduct(FragmentProduct):
    """`warp.mma`."""

    @staticmethod
    def multiplies(tiling: Tiling) -> bool:
        return tiling.product.metadata is None and not tiling.product.scales and tiling.schedule.tile.together == 1

    def step(
        self, index: IndexBuilder, a: SSAValue, b: SSAValue, accumulator: SSAValue, tiles: Sequence[SSAValue], at: Place
    ) -> SSAValue:
        words = self.tiling.product.op.variant.words
        return index.insert(MmaOp(self.tiling.schedule.tile.mma, a, b, accumulator, *words)).d
