"""What the threads of a CTA tell each other and other CTAs: `warp.atomic_inc`, `warp.barrier_any`, `warp.elect`."""

from __future__ import annotations

from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType, i1, i32, i64
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from .attributes import SHARED_SPACE, Memory, memory_of, memory_space
from .clusters import MOST_BARRIERS, verify_threads

SOME_WARPS = "warp.warps"
"""The attribute of an `scf.if` whose region only so many warps of a CTA execute, from the first on."""


def some_warps(op: Operation) -> int | None:
    """How many warps execute an operation; None if all of the CTA do."""
    around = op.parent_op()
    while around is not None:
        if isinstance(held := around.attributes.get(SOME_WARPS), IntegerAttr):
            return held.value.data
        around = around.parent_op()
    return None


def verify_counters(counters: Memory) -> None:
    """Checks that memory is a row of counters that all CTAs see."""
    shape = counters.get_shape()
    if memory_space(counters) == SHARED_SPACE or len(shape) != 1 or min(shape) < 1:
        raise VerifyException(f"expected counters in global memory, of 1 known dimension, got {counters}")
    if counters.element_type != i32:
        raise VerifyException(f"expected counters of i32, got {counters}")


@irdl_op_definition
class AtomicIncOp(IRDLOperation):
    """Adds one to a counter if the condition after `if` is true, and returns the old value. After `limit`, the counter
    wraps to zero::

        %seen = warp.atomic_inc %counters[%tile] to %limit if %first : memref<64xi32>

    If the condition is false, nothing happens and the result is 0. The access is a release and an acquire at the scope
    of the GPU: a thread that sees the count also sees the writes before it. Source: PTX ISA 9.7.13.5, `atom.inc`.
    """

    name = "warp.atomic_inc"

    counters = operand_def(MemRefType)
    number = operand_def(IndexType())
    limit = operand_def(IndexType())
    taken = operand_def(i1)
    seen = result_def(IndexType())

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = "$counters `[` $number `]` `to` $limit `if` $taken attr-dict `:` type($counters)"

    def __init__(self, counters: SSAValue, number: SSAValue, limit: SSAValue, taken: SSAValue):
        super().__init__(operands=[counters, number, limit, taken], result_types=[IndexType()])

    def verify_(self) -> None:
        verify_counters(memory_of(self.counters))


@irdl_op_definition
class SyncLanesOp(IRDLOperation):
    """Makes the lanes of a warp wait for each other, and see each other's earlier writes: `warp.sync_lanes`.

    Source: PTX ISA 9.7.13.2, `bar.warp.sync`.
    """

    name = "warp.sync_lanes"

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = "attr-dict"


@irdl_op_definition
class BarrierAnyOp(IRDLOperation):
    """A barrier of all threads of a CTA, or of some of its warps. The result is true if the operand is true for any of
    the threads::

        %any = warp.barrier_any %mine
        %any = warp.barrier_any %mine {number = 7 : i64, threads = 256 : i64}

    Source: PTX ISA 9.7.13.1, `bar.red.or`.
    """

    name = "warp.barrier_any"

    value = operand_def(i1)
    number = opt_prop_def(IntegerAttr)
    threads = opt_prop_def(IntegerAttr)
    any = result_def(i1)

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$value attr-dict"

    def __init__(self, value: SSAValue, number: int | None = None, threads: int | None = None):
        given = {"number": number, "threads": threads}
        properties = {name: None if held is None else IntegerAttr(held, i64) for name, held in given.items()}
        super().__init__(operands=[value], properties=properties, result_types=[i1])

    def verify_(self) -> None:
        if (self.number is None) != (self.threads is None):
            raise VerifyException("expected the number of a barrier and its threads, or neither")
        if self.number is not None and not 0 < self.number.value.data < MOST_BARRIERS:
            raise VerifyException(
                f"expected a barrier from 1 to {MOST_BARRIERS - 1}, got {self.number.value.data}; "
                "without a number it is that of all threads"
            )
        if self.threads is not None:
            verify_threads(self.threads)


@irdl_op_definition
class ElectOp(IRDLOperation):
    """Elects one lane of each warp. All lanes execute the operation, and its result is true only in the elected lane::

        %chosen = warp.elect
        scf.if %chosen {
          warp.expect %full[%s] {bytes = 16384 : i64} : !warp.barriers<2>
        }

    Inside such a condition, one lane arrives, copies and waits alone. Source: PTX ISA 9.7.13.14, `elect.sync`.
    """

    name = "warp.elect"

    chosen = result_def(i1)

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = "attr-dict"

    def __init__(self):
        super().__init__(result_types=[i1])
