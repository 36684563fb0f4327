"""The kernel of one product in its plain form: per K tile it copies A and B to shared memory, waits, multiplies, waits.

`warp-pipeline` overlaps the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.builder import Builder
from xdsl.dialects import gpu, memref, scf
from xdsl.ir import Block, SSAValue
from xdsl.rewriter import InsertPoint

from ...dialect.warp.mma import MmaOp
from ..index_builder import Index, IndexBuilder
from . import raster
from .epilogue import Epilogue
from .operands import OperandTiles
from .tiling import Tiling

if TYPE_CHECKING:
    from .metadata import MetadataTiles


class KernelBuilder:
    """Builds the body of the kernel of one product."""

    def __init__(self, tiling: Tiling, body: Block) -> None:
        self.tiling = tiling
        self.index = IndexBuilder(Builder(InsertPoint.at_end(body)))
        product = tiling.product
        self.operands = (OperandTiles(tiling, product.a, "a", "mk"), OperandTiles(tiling, product.b, "b", "kn"))
        self.metadata = _metadata(tiling)
        self.epilogue = Epilogue(tiling)

    def build(self) -> None:
        index, product, schedule = self.index, self.tiling.product, self.tiling.schedule
        m, n = raster.cta_origin(index, product, schedule)
        m, n = (raster.moved_inside(index, self.tiling, axis, at) for axis, at in (("m", m), ("n", n)))
        warp_m, warp_n = raster.warp_origin(index, schedule)
        place = raster.slice_number(index, schedule)
        tiles = [index.insert(memref.AllocOp([], [], o.shared_type())).memref for o in self._copied()]
        accumulator = self.epilogue.initial(index, index.add(m, warp_m), index.add(n, warp_n))
        loop_body = Block(arg_types=[index.value(0).type, accumulator.type])
        loop = scf.ForOp(index.value(0), index.value(product.k), index.value(schedule.cta[2]), [accumulator], loop_body)
        inside = index.at(Builder(InsertPoint.at_end(loop_body)))
        origins: list[dict[str, Index]] = [
            {"m": m, "n": n},
            {"m": warp_m, "n": warp_n, "k": index.mul(place, schedule.cta[2] // schedule.slices)},
        ]
        if self.metadata is not None:
            origins = [self.metadata.counted(index, origin) for origin in origins]
        self.step(inside, loop_body, tiles, *origins)
        index.insert(loop)
        m, n = index.add(m, warp_m), index.add(n, warp_n)
        self.epilogue.finish(index, loop.results[0], m, n, place)
        index.insert(gpu.ReturnOp([]))

    def _copied(self) -> list[OperandTiles | MetadataTiles]:
        """What is copied to shared memory."""
        return [*self.operands, *([] if self.metadata is None else [self.metadata])]

    def step(
        self,
        index: IndexBuilder,
        body: Block,
        tiles: Sequence[SSAValue],
        cta: dict[str, Index],
        warp: dict[str, Index],
    ) -> None:
        """One K tile: copy, barrier, multiply, barrier."""
        k, accumulator = body.args
        for operand, tile in zip(self._copied(), tiles, strict=True):
            operand.copy(index, cta | {"k": k}, tile)
        index.insert(gpu.BarrierOp())
        schedule = self.tiling.schedule
        shape = schedule.mma
        for inner in range(0, schedule.cta[2] // schedule.slices, self.tiling.arrangement.step):
            at = warp | {"k": self.index.add(warp["k"], inner)}
            a, b = (o.load(index, tile, at) for o, tile in zip(self.operands, tiles, strict=False))
            if self.metadata is None:
                accumulator = index.insert(MmaOp(shape, a, b, accumulator)).d
            else:
                accumulator = self.metadata.multiply(index, a, b, accumulator, tiles[-1], at)
        index.insert(gpu.BarrierOp())
        index.insert(scf.YieldOp(accumulator))


def _metadata(tiling: Tiling) -> MetadataTiles | None:
    """The metadata's way, for a sparse A; plain products do not wait for its import."""
    if tiling.product.metadata is None:
        return None
    from .metadata import MetadataTiles

    return MetadataTiles(tiling, tiling.product.metadata)
