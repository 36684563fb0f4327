"""Sparse products and their metadata: `warp.mma_sp`, `warp.load_metadata`."""

from __future__ import annotations

from ...dialect.layouts.layout import LANES
from ...dialect.warp.mma_sp import MmaSparseOp
from ...dialect.warp.sparse import METADATA_ROWS, LoadMetadataOp
from .addressing import Position
from .fragments import TrailingOperand
from .kernel import KernelLowering
from .matrix_ops import STAGED, product, stage_text
from .operands import word
from .registry import lowers

FIRST_TWO = word(0x44444444)
"""A word of metadata that names elements 0 and 1 of each chunk (PTX ISA 9.7.14.6.1)."""


@lowers(MmaSparseOp)
def _mma_sp(lowering: KernelLowering, op: MmaSparseOp) -> None:
    selector = op.selector.value.data
    product(lowering, op, (TrailingOperand([(metadata, selector) for metadata in lowering.fragment(op.e)]),))


@lowers(LoadMetadataOp)
def _load_metadata(lowering: KernelLowering, op: LoadMetadataOp) -> None:
    into, tile, layout = lowering.result(op.fragment), lowering.tile(op, op.memory), op.fragment.type.layout.data
    found = lowering.indices(op.indices)
    stage, row, column = found if len(found) == STAGED else (0, *found)
    place = stage_text(stage if len(found) == STAGED else None, "the stage to multiply")
    warps = layout.threads // LANES
    lowering.emitter.comment(f"{op.name}: metadata of {METADATA_ROWS * warps * len(into)} rows from {place}")
    holder = lowering.addressing.holder(layout, lowering.lane)
    warp = lowering.scalars.quotient(holder, LANES) if warps > 1 else 0
    for i, register in enumerate(into):
        where = Position.of(warp, row, i * warps), Position.of(lowering.lane, column, 0)
        lowering.emitter.load("shared", [register], lowering.addressing.shared(tile, stage, *where))
        if op.padded is not None:
            absent = lowering.emitter.compute("setp.eq.b32", register, 0)
            lowering.emitter.emit("selp.b32", register, FIRST_TWO, register, absent)
    lowering.values[op.fragment] = into
