"""Sparse products and their metadata: `warp.mma_sp`, `warp.load_metadata`."""

from __future__ import annotations

from ...dialect.layouts.layout import LANES
from ...dialect.warp.mma_sp import MmaSparseOp
from ...dialect.warp.words import LoadMetadataOp
from ..linalg.product import METADATA_ROWS
from .addressing import Position
from .fragments import TrailingOperand
from .kernel import KernelLowering
from .matrix_ops import STAGED, product, stage_text
from .registry import lowers
from .scalars import at

FIRST_TWO = "0x44444444"
"""A word of metadata that names elements 0 and 1 of each chunk (PTX ISA 9.7.14.6.1)."""


@lowers(MmaSparseOp)
def _mma_sp(lowering: KernelLowering, op: MmaSparseOp) -> None:
    words = [(word, f"?, {op.selector.value.data}") for word in lowering.fragment(op.e)]
    product(lowering, op, (TrailingOperand(words),))


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
        base, offset = lowering.addressing.shared(tile, stage, *where)
        lowering.emitter.emit("ld.shared.b32", f"?, {at('?', offset)}", register, base)
        if op.padded is not None:
            absent = lowering.emitter.register("pred")
            lowering.emitter.emit("setp.eq.b32", "?, ?, 0", absent, register)
            lowering.emitter.emit("selp.b32", f"?, {FIRST_TWO}, ?, ?", register, register, absent)
    lowering.values[op.fragment] = into
