"""Indices: arithmetic of `arith`, and where a thread is, of `gpu`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from xdsl.dialects import arith, gpu
from xdsl.ir import Operation

from ...dialect.layouts.layout import LANES
from ..diagnostics import fail
from .arguments import INDEX_LIMIT
from .emitter import Value
from .matrix_ops import Handler, handler
from .scalars import Scalars

if TYPE_CHECKING:
    from .kernel import KernelLowering

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
"""What `arith.cmpi` calls its first predicates, which are those of signed numbers."""


def _compare(lowering: KernelLowering, op: arith.CmpiOp) -> None:
    kind = op.predicate.value.data
    if kind >= len(COMPARISONS):
        fail(op, "expected a signed comparison of indices")
    lhs, rhs = lowering.scalar(op.lhs), lowering.scalar(op.rhs)
    lowering.values[op.result] = lowering.scalars.compare(COMPARISONS[kind], lhs, rhs)


def _select(lowering: KernelLowering, op: arith.SelectOp) -> None:
    yes, no = lowering.scalar(op.lhs), lowering.scalar(op.rhs)
    lowering.values[op.result] = lowering.scalars.select(lowering.predicate(op.cond), yes, no)


def _block_id(lowering: KernelLowering, op: gpu.BlockIdOp) -> None:
    lowering.values[op.result] = lowering.scalars.special(f"%ctaid.{op.dimension.data}", INDEX_LIMIT)


def _subgroup_id(lowering: KernelLowering, op: gpu.SubgroupIdOp) -> None:
    lowering.values[op.result] = lowering.scalars.shift_right(lowering.thread, LANES.bit_length() - 1)


def _thread_id(lowering: KernelLowering, op: gpu.ThreadIdOp) -> None:
    along_x = op.dimension.data == gpu.DimensionEnum.X
    lowering.values[op.result] = lowering.thread if along_x else 0


def _lane_id(lowering: KernelLowering, op: gpu.LaneIdOp) -> None:
    lowering.values[op.result] = lowering.lane


def _binary(compute: Callable[[Scalars, Value, Value], Value]) -> Handler:
    def handle(lowering: KernelLowering, op: Operation) -> None:
        lhs, rhs = lowering.indices(op.operands)
        lowering.values[op.results[0]] = compute(lowering.scalars, lhs, rhs)

    return handle


def _multiply(scalars: Scalars, a: Value, b: Value) -> Value:
    return scalars.multiply(a, b)


def _divide(compute: Callable[[Scalars, Value, Value], Value]) -> Handler:
    handle = _binary(compute)

    def checked(lowering: KernelLowering, op: Operation) -> None:
        if lowering.scalar(op.operands[1]) == 0:
            fail(op, f"{op.name} divides by zero")
        handle(lowering, op)

    return checked


HANDLERS: Mapping[type[Operation], Handler] = dict(
    (
        (arith.AddiOp, _binary(Scalars.add)),
        (arith.SubiOp, _binary(Scalars.subtract)),
        (arith.MuliOp, _binary(_multiply)),
        (arith.DivUIOp, _divide(Scalars.quotient)),
        (arith.RemUIOp, _divide(Scalars.remainder)),
        (arith.MinUIOp, _binary(Scalars.minimum)),
        handler(arith.CmpiOp, _compare),
        handler(arith.SelectOp, _select),
        handler(gpu.BlockIdOp, _block_id),
        handler(gpu.SubgroupIdOp, _subgroup_id),
        handler(gpu.ThreadIdOp, _thread_id),
        handler(gpu.LaneIdOp, _lane_id),
    )
)
"""What each operation becomes."""
