"""The kernel of one product in its plain form: per K tile it copies A and B to shared memory, waits, multiplies, waits.

`warp-pipeline` overlaps the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from xdsl.builder import Builder
from xdsl.dialects import gpu, memref, scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, SSAValue
from xdsl.rewriter import InsertPoint

from ...dialect.warp.mma import MmaOp
from . import raster
from .epilogue import Epilogue
from .index_builder import Index, IndexBuilder
from .metadata import MetadataTiles
from .operands import OperandTiles
from .scales import ScaledSteps, ScaleTiles
from .split import PartialTile, Workspace, share
from .tiling import Tiling

Multiply: TypeAlias = Callable[[IndexBuilder, SSAValue, SSAValue, SSAValue, dict[str, Index]], SSAValue]
"""One step of the instruction: A, B, the accumulators, and where in the tiles A and B are."""


class KernelBuilder:
    """Builds the body of the kernel of one product."""

    def __init__(
        self, tiling: Tiling, body: Block, extents: raster.Extents, workspace: Workspace | None = None
    ) -> None:
        self.tiling, self.extents, self.workspace = tiling, extents, workspace
        self.index = IndexBuilder(Builder(InsertPoint.at_end(body)))
        product = tiling.product
        self.operands = (OperandTiles(tiling, product.a, "a", "mk"), OperandTiles(tiling, product.b, "b", "kn"))
        self.metadata = _metadata(tiling)
        self.scales = _scales(tiling)
        self.epilogue = Epilogue(tiling)

    def build(self) -> None:
        index, schedule, extents = self.index, self.tiling.schedule, self.extents
        cta = raster.cta_number(index)
        if schedule.ctas:
            warp, shared, body = self._warp(index), self._shared_tiles(index), Block(arg_types=[IndexType()])
            inside = index.at(Builder(InsertPoint.at_end(body)))
            tile = body.args[0]
            self._tile(inside, self._origin(inside, tile), warp, shared, self._share(inside, tile))
            inside.insert(scf.YieldOp())
            tiles = index.mul(*raster.grid(index, extents, schedule))
            end, step = index.values([tiles, raster.ctas(index, extents, schedule)])
            index.insert(scf.ForOp(cta, end, step, [], body))
        else:
            share = self._share(index, cta)
            self._tile(index, self._origin(index, cta), self._warp(index), self._shared_tiles(index), share)
        index.insert(gpu.ReturnOp([]))

    def _share(self, index: IndexBuilder, tile: Index) -> PartialTile | None:
        """What this CTA has of a tile whose K several share."""
        if self.workspace is None:
            return None
        (part,) = raster.batch_index(index, self.extents.batch)
        return share(index, self.workspace, self.tiling.schedule, tile, part)

    def _shared_tiles(self, index: IndexBuilder) -> list[SSAValue]:
        return [index.insert(memref.AllocOp([], [], o.shared_type())).memref for o in self._copied()]

    def _origin(self, index: IndexBuilder, tile: Index) -> dict[str, Index]:
        """Where a CTA tile starts."""
        m, n = raster.cta_origin(index, self.extents, self.tiling.schedule, tile)
        starts = {axis: raster.moved_inside(index, self.tiling, axis, at) for axis, at in (("m", m), ("n", n))}
        return starts if self.metadata is None else self.metadata.counted(index, starts)

    def _warp(self, index: IndexBuilder) -> tuple[dict[str, Index], Index]:
        """Where this warp's part of a CTA tile starts, and the number of its slice."""
        schedule = self.tiling.schedule
        m, n = raster.warp_origin(index, schedule)
        place = raster.slice_number(index, schedule)
        starts = {"m": m, "n": n, "k": index.mul(place, schedule.cta[2] // schedule.sliced_k)}
        return starts if self.metadata is None else self.metadata.counted(index, starts), place

    def _tile(
        self, index: IndexBuilder, cta: dict[str, Index], in_cta: tuple[dict[str, Index], Index],
        shared: Sequence[SSAValue], share: PartialTile | None = None
    ) -> None:  # fmt: skip
        """One CTA tile: the accumulators' start, all of K, the way to memory."""
        schedule, (warp, place) = self.tiling.schedule, in_cta
        m, n = (index.add(cta[axis], warp[axis]) for axis in "mn")
        accumulator = self.epilogue.initial(index, m, n)
        loop_body = Block(arg_types=[IndexType(), accumulator.type])
        start, end, step = index.values([0, self.extents.k, schedule.cta[2]])
        loop = scf.ForOp(start, end, step, [accumulator], loop_body)
        inside = index.at(Builder(InsertPoint.at_end(loop_body)))
        self.step(index, inside, loop_body, shared, cta, warp)
        index.insert(loop)
        self.epilogue.finish(index, loop.results[0], m, n, place, share)

    def _copied(self) -> list[OperandTiles | MetadataTiles | ScaleTiles]:
        """What is copied to shared memory."""
        return [*self.operands, *([] if self.metadata is None else [self.metadata]), *self.scales]

    def step(
        self,
        outside: IndexBuilder,
        index: IndexBuilder,
        body: Block,
        tiles: Sequence[SSAValue],
        cta: dict[str, Index],
        warp: dict[str, Index],
    ) -> None:
        """One K tile: copy, barrier, multiply, barrier; what does not change from one to the next is said `outside`."""
        k, accumulator = body.args
        for operand, tile in zip(self._copied(), tiles, strict=True):
            operand.copy(index, cta | {"k": k}, tile)
        index.insert(gpu.BarrierOp())
        schedule, multiply = self.tiling.schedule, self._multiply(tiles)
        for inner in range(0, schedule.cta[2] // schedule.sliced_k, schedule.mma.k):
            at = warp | {"k": outside.add(warp["k"], inner)}
            a, b = (o.load(index, tile, at) for o, tile in zip(self.operands, tiles, strict=False))
            accumulator = multiply(index, a, b, accumulator, at)
        index.insert(gpu.BarrierOp())
        index.insert(scf.YieldOp(accumulator))

    def _multiply(self, tiles: Sequence[SSAValue]) -> Multiply:
        """How the steps of a K tile are multiplied."""
        metadata, shape, words = self.metadata, self.tiling.schedule.mma, self.tiling.product.op.variant.words
        if self.scales:
            return ScaledSteps(self.tiling, self.scales, tiles[len(self.operands) :]).multiply
        if metadata is not None:
            return lambda index, a, b, c, at: metadata.multiply(index, a, b, c, tiles[-1], at)
        return lambda index, a, b, c, _: index.insert(MmaOp(shape, a, b, c, *words)).d


def _metadata(tiling: Tiling) -> MetadataTiles | None:
    """The metadata's way, for a sparse A."""
    metadata = tiling.product.metadata
    return None if metadata is None else MetadataTiles(tiling, metadata)


def _scales(tiling: Tiling) -> list[ScaleTiles]:
    """The ways of the scales of A and B, for a product that has some."""
    if not tiling.product.scales:
        return []
    of_a, of_b = tiling.product.scales
    return [ScaleTiles(tiling, of_a, "a", "m"), ScaleTiles(tiling, of_b, "b", "n")]
