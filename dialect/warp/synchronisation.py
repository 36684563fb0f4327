"""Synchronisation: mbarriers, barriers of a CTA and of a cluster, atomic counters, elected lanes."""

from __future__ import annotations

from xdsl.dialects.builtin import IndexType, IntAttr, IntegerAttr, MemRefType, UnitAttr, i1, i32, i64
from xdsl.ir import Attribute, Operation, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

from ..layouts.layout import LANES
from .attributes import SHARED_SPACE, Memory, memory_of, memory_space
from .op_shapes import flag

# Where warps meet without all stopping at one place: mbarrier objects in shared memory.
#
# A mbarrier counts arrivals; when as many as it expects have come, its phase ends and the next one begins. Phases are
# told apart by their parity: the first has parity 0. `warp.make_barriers`, `warp.arrive`, `warp.arrive_copies`,
# `warp.await`. Source: PTX ISA 9.7.13.15.

BARRIER_BYTES = 8
"""The size of a mbarrier object, and its alignment. Source: PTX ISA 9.7.13.15.2."""

BARRIER_SM = 80
"""The first target with mbarrier. Source: PTX ISA 9.7.13.15.9."""

MOST_ARRIVALS = (1 << 20) - 1
"""Source: PTX ISA 9.7.13.15.1."""


@irdl_attr_definition
class BarriersType(ParametrizedAttribute, TypeAttribute):
    """An array of mbarrier objects in shared memory, such as one for each stage of a pipeline: `!warp.barriers<8>`."""

    name = "warp.barriers"

    count: IntAttr

    def verify(self) -> None:
        if self.count.data < 1:
            raise VerifyException(f"expected at least one barrier, got {self.count.data}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            return [IntAttr(parser.parse_integer(allow_boolean=False))]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(str(self.count.data))


@irdl_op_definition
class MakeBarriersOp(IRDLOperation):
    """Allocates mbarriers, each of which expects `arrivals` arrivals in a phase. Threads may use them after a
    `gpu.barrier`::

    %full = warp.make_barriers {arrivals = 256 : i64} : !warp.barriers<8>
    """

    name = "warp.make_barriers"

    arrivals = prop_def(IntegerAttr)
    barriers = result_def(BarriersType)

    traits = traits_def(MemoryWriteEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "attr-dict `:` type($barriers)"

    def __init__(self, count: int, arrivals: int):
        super().__init__(
            properties={"arrivals": IntegerAttr(arrivals, i64)}, result_types=[BarriersType(IntAttr(count))]
        )

    def verify_(self) -> None:
        if not 0 < self.arrivals.value.data <= MOST_ARRIVALS:
            raise VerifyException(f"expected 1 to {MOST_ARRIVALS} arrivals, got {self.arrivals.value.data}")


@irdl_op_definition
class ArriveOp(IRDLOperation):
    """Arrives once for each warp that executes it. After the phase, other warps may overwrite memory that its lanes
    have read::

        warp.arrive %empty[%stage] : !warp.barriers<8>

    With `at`, it arrives at the same barrier of another CTA of the cluster, the CTA with that rank::

        warp.arrive %empty[%stage] at %rank : !warp.barriers<8>
    """

    name = "warp.arrive"

    barriers = operand_def(BarriersType)
    number = operand_def(IndexType())
    cta = opt_operand_def(IndexType())

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = "$barriers `[` $number `]` (`at` $cta^)? attr-dict `:` type($barriers)"

    def __init__(self, barriers: SSAValue, number: SSAValue, cta: SSAValue | None = None):
        super().__init__(operands=[barriers, number, cta])


@irdl_op_definition
class ArriveCopiesOp(IRDLOperation):
    """Makes each thread arrive when the asynchronous copies that it has started so far are done. The thread does not
    wait::

        warp.arrive_copies %full[%stage] : !warp.barriers<8>

    Source: PTX ISA 9.7.13.15.15.
    """

    name = "warp.arrive_copies"

    barriers = operand_def(BarriersType)
    number = operand_def(IndexType())

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = "$barriers `[` $number `]` attr-dict `:` type($barriers)"

    def __init__(self, barriers: SSAValue, number: SSAValue):
        super().__init__(operands=[barriers, number])


@irdl_op_definition
class AwaitOp(IRDLOperation):
    """Waits until the phase with a parity, 0 or 1, has ended. For a new barrier, the phase with parity 1 has already
    ended::

        warp.await %full[%stage] parity %parity : !warp.barriers<8>

    Source: PTX ISA 9.7.13.15.16.
    """

    name = "warp.await"

    barriers = operand_def(BarriersType)
    number = operand_def(IndexType())
    parity = operand_def(IndexType())

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = "$barriers `[` $number `]` `parity` $parity attr-dict `:` type($barriers)"

    def __init__(self, barriers: SSAValue, number: SSAValue, parity: SSAValue):
        super().__init__(operands=[barriers, number, parity])


# Clusters of CTAs: `warp.cluster_rank`, `warp.cluster_barrier` and its halves; and barriers of some warps of a CTA.
#
# Source: PTX ISA 9.7.13.1 and 9.7.13.3.

CLUSTER_SIZE = "gpu.known_cluster_size"
"""The attribute of a kernel that says how many CTAs along x, y and z a cluster has: `array<i32: 2, 1, 1>`."""


CLUSTER_SM = 90
"""The first target with clusters. Source: PTX ISA 9.7.13.3."""

MOST_CTAS = 16
"""CTAs of a cluster; more than 8 need a launch that says so. Source: CUDA programming guide, Thread Block Clusters."""


@irdl_op_definition
class ClusterRankOp(IRDLOperation):
    """The number of the CTA in its cluster: `%rank = warp.cluster_rank`. Source: PTX ISA 10.14, `%cluster_ctarank`."""

    name = "warp.cluster_rank"

    rank = result_def(IndexType())

    traits = traits_def(Pure())
    assembly_format = "attr-dict"

    def __init__(self):
        super().__init__(result_types=[IndexType()])


class _ClusterWide(IRDLOperation):
    """An operation of all threads of a cluster, without operands."""

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = "attr-dict"


@irdl_op_definition
class ClusterBarrierOp(_ClusterWide):
    """A barrier of all threads of a cluster. After it, each thread sees the writes of the others. With `mbarriers`, it
    sees only the mbarriers that the others initialised, which needs no fence of all memory::

        warp.cluster_barrier {mbarriers}

    Source: PTX ISA 9.7.13.3, 9.7.13.4.
    """

    name = "warp.cluster_barrier"

    mbarriers = opt_prop_def(UnitAttr)

    irdl_options = (ParsePropInAttrDict(),)

    def __init__(self, *, mbarriers: bool = False):
        super().__init__(properties={"mbarriers": flag(mbarriers)})


@irdl_op_definition
class ClusterArriveOp(_ClusterWide):
    """The first half of `warp.cluster_barrier`: publishes the earlier accesses of the threads, and does not wait."""

    name = "warp.cluster_arrive"


@irdl_op_definition
class ClusterWaitOp(_ClusterWide):
    """The second half of `warp.cluster_barrier`: waits until all threads of the cluster have arrived."""

    name = "warp.cluster_wait"


MOST_BARRIERS = 16
"""Barriers of a CTA; the first is that of `gpu.barrier`. Source: PTX ISA 9.7.13.1."""


def verify_threads(threads: IntegerAttr) -> None:
    """Checks that those who come to a barrier are whole warps."""
    count = threads.value.data
    if count < LANES or count % LANES or count > 1024:
        raise VerifyException(f"expected whole warps, {LANES} to 1024 threads, got {count}")


@irdl_op_definition
class NamedBarrierOp(IRDLOperation):
    """Makes some warps of a CTA, `threads` threads together, wait for each other at one of the barriers 1 to 15::

        warp.named_barrier %number {threads = 128 : i64}
        warp.named_barrier %number {threads = 256 : i64, arrive}

    With `arrive`, they arrive and do not wait for the others. Source: PTX ISA 9.7.13.1, `bar.sync` and `bar.arrive`.
    """

    name = "warp.named_barrier"

    number = operand_def(IndexType())
    threads = prop_def(IntegerAttr)
    arrive = opt_prop_def(UnitAttr)

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$number attr-dict"

    def __init__(self, number: SSAValue, threads: int, *, arrive: bool = False):
        properties = {"threads": IntegerAttr(threads, i64), "arrive": flag(arrive)}
        super().__init__(operands=[number], properties=properties)

    def verify_(self) -> None:
        verify_threads(self.threads)


# What the threads of a CTA tell each other and other CTAs: `warp.atomic_inc`, `warp.barrier_any`, `warp.elect`.

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
