"""`warp-fragments`: how a warp multiplies its part of the tiles in shared memory.

Each way is a class with a file of its own: `DenseProduct`, `SparseProduct`, `ScaledProduct`, `WarpgroupProduct`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from xdsl.ir import SSAValue

from ...dialect.warp.attributes import FragmentType
from ...dialect.warp.copy import CopyOp
from ...dialect.warp.mma import MmaOp
from ...dialect.warp.tile_mma import TileMmaOp
from ..linalg.multiplied import TileProduct
from .index_builder import Index, IndexBuilder
from .operands import FactorTiles
from .tiling import Fragments, schedule_of

KEPT_REGISTERS = 32
"""Registers of the fragments of a tile that stays that a lane keeps; of more, they are loaded again in each turn."""

Place = dict[str, Index]
"""Where something begins, by the product's axes."""


class Multiplication(ABC):
    """One way to multiply a warp's part of the tiles of a CTA."""

    def __init__(self, op: TileMmaOp) -> None:
        self.op = op
        self.tiling = Fragments(TileProduct.of(op), schedule_of(op))
        self.operands = FactorTiles.both(self.tiling)
        self.tiles = op.matrices

    @staticmethod
    @abstractmethod
    def multiplies(op: TileMmaOp) -> bool:
        """Whether this is the way for a product with its schedule."""

    def counted(self, index: IndexBuilder, at: Place) -> Place:
        """A place of a tile, with what follows from it and is the same for all of K."""
        return at

    @abstractmethod
    def multiply(self, outside: IndexBuilder, index: IndexBuilder, warp: Place, accumulator: SSAValue) -> SSAValue:
        """The accumulators after one K tile, of the part that begins at `warp`; what does not change from one to the
        next is said `outside`."""


class FragmentProduct(Multiplication):
    """Products of fragments that a warp loads from shared memory, step by step of the instruction."""

    def multiply(self, outside: IndexBuilder, index: IndexBuilder, warp: Place, accumulator: SSAValue) -> SSAValue:
        tile = self.tiling.schedule.tile
        return self.steps(outside, index, warp, accumulator, range(0, tile.cta[2] // tile.sliced_k, self.tiling.step))

    def steps(
        self, outside: IndexBuilder, index: IndexBuilder, warp: Place, accumulator: SSAValue, every: range
    ) -> SSAValue:
        """The accumulators after steps of the instruction, those at `every` k of the warp's part."""
        for inner in every:
            at = warp | {"k": outside.add(warp["k"], inner)}
            a, b = (
                o.load(outside if self._stays(tile) and self._fit(o) else index, tile, at)
                for o, tile in zip(self.operands, self.tiles, strict=True)
            )
            accumulator = self.step(index, a, b, accumulator, at)
        return accumulator

    def _stays(self, tile: SSAValue) -> bool:
        """Whether a tile in shared memory is the same in all turns of the loop around."""
        return not isinstance(tile.type, FragmentType) and not any(
            isinstance(use.operation, CopyOp) and use.operation.parent is self.op.parent for use in tile.uses
        )

    def _fit(self, operand: FactorTiles) -> bool:
        """Whether a lane has registers for all fragments of a tile."""
        schedule = self.tiling.schedule
        steps = schedule.tile.cta[2] // schedule.tile.sliced_k // self.tiling.step
        return self.tiling.fragment(operand.role).registers * steps <= KEPT_REGISTERS

    @abstractmethod
    def step(self, index: IndexBuilder, a: SSAValue, b: SSAValue, accumulator: SSAValue, at: Place) -> SSAValue:
        """One step of the instruction at `at` in the tiles: the new accumulators."""


class DenseProduct(FragmentProduct):
    """`warp.mma`."""

    @staticmethod
    def multiplies(op: TileMmaOp) -> bool:
        return op.metadata is None and not op.scales and op.groups is None and schedule_of(op).tile.together == 1

    def step(self, index: IndexBuilder, a: SSAValue, b: SSAValue, accumulator: SSAValue, at: Place) -> SSAValue:
        words = self.op.variant.words
        return index.insert(MmaOp(self.tiling.schedule.tile.mma, a, b, accumulator, *words)).d
