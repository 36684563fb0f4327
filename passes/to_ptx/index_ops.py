"""Indices: arithmetic of `arith`, and where a thread is, of `gpu`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import IndexType, IntegerAttr, i1, i32
from xdsl.ir import Operation

from ...dialect.layouts.layout import LANES
from ...dialect.warp.attributes import FragmentType
from ..diagnostics import fail
from .arguments import INDEX_LIMIT
from .kernel import KernelLowering
from .operands import IndexValue, VirtualRegister
from .registry import lowers
from .scalars import Scalars

Condition = VirtualRegister | bool

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
"""The first predicates of `arith.cmpi`, those of signed numbers; the last four come again for unsigned ones."""


@lowers(arith.ConstantOp)
def _constant(lowering: KernelLowering, op: arith.ConstantOp) -> None:
    if not isinstance(op.value, IntegerAttr):
        fail(op, f"expected an integer constant, got {op.value}")
    number = op.value.value.data
    if not -INDEX_LIMIT <= number < INDEX_LIMIT:
        fail(op, f"indices are 32-bit, got {number}")
    lowering.values[op.result] = number


@lowers(arith.CmpiOp)
def _compare(lowering: KernelLowering, op: arith.CmpiOp) -> None:
    kind, signed = op.predicate.value.data, len(COMPARISONS)
    if op.lhs.type == i1:
        fail(op, f"{op.name} is lowered for indices, got i1; arith.xori compares conditions")
    lhs, rhs = lowering.scalar(op.lhs), lowering.scalar(op.rhs)
    name = COMPARISONS[kind] if kind < signed else COMPARISONS[kind - 4]
    lowering.values[op.result] = lowering.scalars.compare(name, lhs, rhs, signed=kind < signed)


def _logic(kind: type[Operation], compute: Callable[[Scalars, Condition, Condition], Condition]) -> None:
    """Registers an operation on two conditions."""

    def handle(lowering: KernelLowering, op: Operation) -> None:
        (result,) = op.results
        if result.type != i1:
            fail(op, f"{op.name} is lowered for i1, got {result.type}")
        lhs, rhs = map(lowering.predicate, op.operands)
        lowering.values[result] = compute(lowering.scalars, lhs, rhs)

    lowers(kind)(handle)


_logic(arith.OrIOp, Scalars.either)


@lowers(arith.XOrIOp)
def _xor(lowering: KernelLowering, op: arith.XOrIOp) -> None:
    """Of two conditions, or of two indices bit by bit."""
    if op.result.type == i1:
        lowering.values[op.result] = lowering.scalars.differ(*map(lowering.predicate, op.operands))
    elif op.result.type == IndexType():
        lowering.values[op.result] = lowering.scalars.xor(*lowering.indices(op.operands))
    else:
        fail(op, f"{op.name} is lowered for i1 and indices, got {op.result.type}")


@lowers(arith.AndIOp)
def _and(lowering: KernelLowering, op: arith.AndIOp) -> None:
    """Of two conditions, or of two words bit by bit."""
    if op.result.type == i32:
        lowering.values[op.result] = lowering.scalars.bitwise_and(*lowering.indices(op.operands))
    elif op.result.type == i1:
        lowering.values[op.result] = lowering.scalars.both(*map(lowering.predicate, op.operands))
    else:
        fail(op, f"{op.name} is lowered for i1 and i32, got {op.result.type}")


@lowers(arith.SelectOp)
def _select(lowering: KernelLowering, op: arith.SelectOp) -> None:
    condition = lowering.predicate(op.cond)
    if isinstance(op.result.type, FragmentType):
        yes, no = lowering.fragment(op.lhs), lowering.fragment(op.rhs)
        lowering.values[op.result] = lowering.fragments.select(condition, yes, no)
        return
    lowering.values[op.result] = lowering.scalars.select(condition, lowering.scalar(op.lhs), lowering.scalar(op.rhs))


@lowers(arith.IndexCastOp)
def _cast(lowering: KernelLowering, op: arith.IndexCastOp) -> None:
    """An index as a number of 32 bits, which elements are computed with."""
    if op.result.type != i32:
        fail(op, f"{op.name} is lowered to i32, got {op.result.type}")
    source = lowering.scalar(op.input)
    if isinstance(source, int):
        source = lowering.emitter.compute("mov.b32", source)
    lowering.values[op.result] = source


@lowers(gpu.BlockIdOp)
def _block_id(lowering: KernelLowering, op: gpu.BlockIdOp) -> None:
    lowering.values[op.result] = lowering.scalars.special(f"%ctaid.{op.dimension.data}", INDEX_LIMIT)


@lowers(gpu.SubgroupIdOp)
def _subgroup_id(lowering: KernelLowering, op: gpu.SubgroupIdOp) -> None:
    lowering.values[op.result] = lowering.scalars.shift_right(lowering.thread, LANES.bit_length() - 1)


@lowers(gpu.ThreadIdOp)
def _thread_id(lowering: KernelLowering, op: gpu.ThreadIdOp) -> None:
    along_x = op.dimension.data == gpu.DimensionEnum.X
    lowering.values[op.result] = lowering.thread if along_x else 0


@lowers(gpu.LaneIdOp)
def _lane_id(lowering: KernelLowering, op: gpu.LaneIdOp) -> None:
    lowering.values[op.result] = lowering.lane


Binary = Callable[[Scalars, IndexValue, IndexValue], IndexValue]


def _binary(kind: type[Operation], compute: Binary) -> None:
    """Registers an operation on two indices; one that divides does not by a known zero."""
    divides = kind in (arith.DivUIOp, arith.RemUIOp)

    def handle(lowering: KernelLowering, op: Operation) -> None:
        lhs, rhs = lowering.indices(op.operands)
        if divides and rhs == 0:
            fail(op, f"{op.name} divides by zero")
        lowering.values[op.results[0]] = compute(lowering.scalars, lhs, rhs)

    lowers(kind)(handle)


_BINARY: Mapping[type[Operation], Binary] = {
    arith.AddiOp: Scalars.add,
    arith.SubiOp: Scalars.subtract,
    arith.MuliOp: Scalars.multiply,
    arith.DivUIOp: Scalars.quotient,
    arith.RemUIOp: Scalars.remainder,
    arith.MinUIOp: Scalars.minimum,
    arith.MinSIOp: partial(Scalars.minimum, signed=True),
}
for _kind, _compute in _BINARY.items():
    _binary(_kind, _compute)
