"""Bits of memory: `warp.load_bits`, `warp.store_bits`, `warp.funnel_shift`."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerType
from xdsl.ir import SSAValue

from ...dialect.warp.bits import BitsAccess, FunnelShiftOp, LoadBitsOp, StoreBitsOp
from .kernel import KernelLowering
from .operands import At, VirtualRegister
from .registry import lowers

WORD_BITS = 32


def _place(lowering: KernelLowering, op: BitsAccess) -> tuple[At, VirtualRegister | bool]:
    """The address, and whether it is accessed."""
    base = lowering.matrix(op, op.memory, bits=True).base
    terms = [(lowering.scalar(index), stride) for index, stride in op.terms]
    guard = True if op.taken is None else lowering.predicate(op.taken)
    return lowering.scalars.address(base, [*terms, (op.start, 1)]), guard


def _width(kind: object) -> int:
    return kind.bitwidth if isinstance(kind, IntegerType) else 0


def _held(lowering: KernelLowering, value: SSAValue, bits: int) -> VirtualRegister:
    """The register of a value, or one that is set to a constant."""
    found = lowering.scalar(value)
    kind = _register_of(bits)
    return lowering.emitter.compute(f"mov.{kind}", found) if isinstance(found, int) else found


def _register_of(bits: int) -> str:
    return "b32" if bits == WORD_BITS else "b16"


@lowers(LoadBitsOp)
def _load(lowering: KernelLowering, op: LoadBitsOp) -> None:
    (place, guard), bits = _place(lowering, op), _width(op.result.type)
    into = lowering.emitter.register(_register_of(bits))
    if guard is not True and not _is_stored_alike(op):
        lowering.emitter.clear([into])
    lowering.emitter.load("global", [into], place, f"b{bits}", guard=guard)
    lowering.values[op.result] = into


def _is_stored_alike(op: LoadBitsOp) -> bool:
    """Whether what is read is only stored, and only where it is read."""
    users = [use.operation for use in op.result.uses]
    return all(isinstance(user, StoreBitsOp) and user.taken == op.taken for user in users)


@lowers(StoreBitsOp)
def _store(lowering: KernelLowering, op: StoreBitsOp) -> None:
    (place, guard), bits = _place(lowering, op), _width(op.values[0].type)
    held = [_held(lowering, value, bits) for value in op.values]
    lowering.emitter.store("global", held, place, f"b{bits}", guard=guard)


@lowers(FunnelShiftOp)
def _shift(lowering: KernelLowering, op: FunnelShiftOp) -> None:
    low, high = (_held(lowering, value, WORD_BITS) for value in (op.low, op.high))
    lowering.values[op.result] = lowering.emitter.compute("shf.r.wrap.b32", low, high, lowering.scalar(op.bits))
