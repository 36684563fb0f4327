"""Matrix moves of epilogues: `warp.stmatrix`, `warp.movmatrix`."""

from __future__ import annotations

from ...dialect.isa.moves import MOVMATRIX
from ...dialect.warp.attributes import fragment_of
from ...dialect.warp.moves import MovmatrixOp, StmatrixOp
from .kernel import KernelLowering
from .matrix_ops import move_shared
from .registry import lowers


@lowers(StmatrixOp)
def _stmatrix(lowering: KernelLowering, op: StmatrixOp) -> None:
    kind = fragment_of(op.fragment)
    move_shared(lowering, op, op.memory, op.indices, "store", kind, lowering.fragment(op.fragment))


@lowers(MovmatrixOp)
def _movmatrix(lowering: KernelLowering, op: MovmatrixOp) -> None:
    source, result = lowering.fragment(op.input), lowering.result(op.fragment)
    if any(register in source for register in result):
        result = lowering.fresh(op.fragment.type)
    for before, after in op.blocks():
        lowering.emitter.emit(MOVMATRIX.spelling, result[after], source[before])
    lowering.values[op.fragment] = result
