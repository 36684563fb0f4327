"""Opaque fragments of `wmma`: `warp.wmma.load`, `warp.wmma.store`, `warp.wmma.mma`."""

from __future__ import annotations

from ...dialect.isa import wmma
from ...dialect.warp.opaque import OpaqueType, opaque_of
from ...dialect.warp.wmma import WmmaLoadOp, WmmaMmaOp, WmmaStoreOp
from ..diagnostics import fail
from .emitter import divisor_of
from .kernel import KernelLowering
from .matrix_ops import result_registers
from .operands import At
from .registry import lowers


def _opaque_address(lowering: KernelLowering, op: WmmaLoadOp | WmmaStoreOp, kind: OpaqueType) -> tuple[At, int]:
    """The address of the first element, and the stride."""
    matrix, (row, column) = lowering.matrix(op, op.memory, bits=True), lowering.indices(op.indices)
    bits, pitch = kind.element.bits, matrix.row_bytes
    if not isinstance(pitch, int):
        fail(op, f"expected rows a known number of bytes apart, got {op.memory.type}")
    stride = pitch * 8 // bits
    whole = max(1, 8 // bits)
    if divisor_of(column) % whole:
        fail(op, f"expected a column that is a multiple of {whole}, for {kind.element.name} start at whole bytes")
    along = lowering.scalars.quotient(column, whole)
    terms = [(row, stride * bits // 8), (along, max(1, bits // 8))]
    needed = wmma.alignment(kind.product, kind.role.data, kind.element)
    if isinstance(along, int) and along * terms[1][1] % needed:
        fail(op, f"expected an address that is a multiple of {needed} bytes, got column {column}")
    return lowering.scalars.address(matrix.base, terms), stride


@lowers(WmmaLoadOp)
def _wmma_load(lowering: KernelLowering, op: WmmaLoadOp) -> None:
    kind, row = op.fragment.type, op.row
    place, stride = _opaque_address(lowering, op, kind)
    into = lowering.result(op.fragment)
    lowering.emitter.emit(row.spelling, into, place, stride)
    lowering.values[op.fragment] = into


@lowers(WmmaStoreOp)
def _wmma_store(lowering: KernelLowering, op: WmmaStoreOp) -> None:
    row, held = op.row, lowering.fragment(op.fragment)
    place, stride = _opaque_address(lowering, op, opaque_of(op.fragment))
    lowering.emitter.emit(row.spelling, place, held, stride)


@lowers(WmmaMmaOp)
def _wmma_mma(lowering: KernelLowering, op: WmmaMmaOp) -> None:
    a, b, row = lowering.fragment(op.a), lowering.fragment(op.b), op.row
    c, d = result_registers(lowering, op, op.c, op.d)
    lowering.emitter.emit(row.spelling, d, a, b, c)
    lowering.values[op.d] = d
