"""What a CTA has together: rings of stages, warps that execute a part; and what is asked of the arguments of a call."""

from __future__ import annotations

from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType, StringAttr, UnitAttr, i1, i64
from xdsl.ir import Operation
from xdsl.irdl import (
    irdl_attr_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    opt_result_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

from ..mlir.words import irdl_op_definition
from .attributes import enclosing, memory_of
from .op_shapes import CountedType, WarpOp

# Rings of stages of shared memory: `!warp.ring`, `warp.make_ring`, `warp.pipeline`.
#
# Who copies tiles fills one stage after the other, and who multiplies reads them in that order. A ring says how the two
# agree on which stages are full and which may be filled again. `warp-synchronise` makes barriers of it.


@irdl_attr_definition
class RingType(CountedType):
    """A ring of stages of shared memory: `!warp.ring<4>`."""

    name = "warp.ring"

    COUNTED = "stage"


@irdl_op_definition
class MakeRingOp(WarpOp):
    """Makes a ring of stages of shared memory::

        %ring = warp.make_ring {writers = 256 : i64, readers = 8 : i64} : !warp.ring<4>
        %ring = warp.make_ring peers(%a, %b) {writers = 1 : i64, readers = 24 : i64} : !warp.ring<4>
        %ring = warp.make_ring {ahead = 2 : i64} : !warp.ring<4>

    `writers` arrivals make a stage full, and those of `readers` warps empty, or of as many warpgroups with
    `each_warpgroup`, where products alone read. Who has read a stage tells the `peers` as well, other CTAs of the
    cluster, by rank. With `ahead`, all threads of the CTA copy and read, and meet at a barrier for each stage, of which
    so many are on their way while one is read. Threads may use the ring after a `gpu.barrier`.
    """

    name = "warp.make_ring"

    ring = result_def(RingType)
    writers = opt_prop_def(IntegerAttr)
    readers = opt_prop_def(IntegerAttr)
    peers = var_operand_def(IndexType())
    ahead = opt_prop_def(IntegerAttr)
    each_warpgroup = opt_prop_def(UnitAttr)

    traits = traits_def(MemoryWriteEffect())
    assembly_format = "(`peers` `(` $peers^ `)`)? attr-dict `:` type($ring)"

    def verify_(self) -> None:
        numbers = tuple(number is not None for number in (self.writers, self.readers, self.ahead))
        if numbers not in ((True, True, False), (False, False, True)):
            raise VerifyException("expected either the writers and the readers of a stage, or 'ahead'")
        if self.ahead is not None and self.peers:
            raise VerifyException("a barrier of a CTA has no peers")


ACQUIRE, COMMIT, WAIT, RELEASE = "producer_acquire", "producer_commit", "consumer_wait", "consumer_release"
FILLED, READ = "producer_advance", "consumer_advance"

STEPS = (ACQUIRE, COMMIT, WAIT, RELEASE, FILLED, READ)


@irdl_op_definition
class PipelineOp(WarpOp):
    """One step of who fills or reads a stage of a ring; steps have the names that CUTLASS gives them::

        %s = warp.pipeline producer_acquire %ring {bytes = 49152 : i64} : !warp.ring<4> -> index
        warp.pipeline consumer_release %ring {late} : !warp.ring<4>
        warp.pipeline consumer_advance %ring by %n : !warp.ring<4>

    - `producer_acquire` waits until a stage has been read. Tensor copies will fill it with so many `bytes`;
      `consumer_wait` waits until it is full.
    - `producer_commit` comes after copies to a stage were started, if they have no bytes; with `products`, the stage is
      full when the products in tensor memory that were started so far are done.
    - `consumer_release` says that a stage has been read; with `products`, that it will have been when the products in
      tensor memory that were started so far are done; with `late`, that the stage left to it has been, if there is one.
    - `producer_advance` and `consumer_advance` go on to the next stage, or by a number; `late` leaves it to a release.

    Producers and consumers are at a stage each, first at stage 0; branches of `scf.if` go on each for themselves. A
    result is the number of the stage. A step may name it instead, and where it waits the parity of its phase:
    `%ring[%stage] parity %parity`. Of a ring with `ahead`, all threads come to one stage after the other.
    """

    name = "warp.pipeline"

    step = prop_def(StringAttr)
    ring = operand_def(RingType)
    stage = opt_operand_def(IndexType())
    parity = opt_operand_def(IndexType())
    by = opt_operand_def(IndexType())
    bytes = opt_prop_def(IntegerAttr)
    products = opt_prop_def(UnitAttr)
    late = opt_prop_def(UnitAttr)
    number = opt_result_def(IndexType())

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = (
        "custom<BareWord>($step) $ring (`[` $stage^ `]`)? (`parity` $parity^)? (`by` $by^)? attr-dict"
        " `:` type($ring) (`->` type($number)^)?"
    )

    def verify_(self) -> None:
        step = self.step.data
        if step not in STEPS:
            raise VerifyException(f"expected a step of {', '.join(STEPS)}, got '{step}'")
        waits = step in (ACQUIRE, WAIT) and self.stage is not None
        if (self.parity is not None) != waits:
            raise VerifyException(f"expected a parity where a stage is waited for, and nowhere else, in {step}")
        if self.products is not None and step not in (COMMIT, RELEASE):
            raise VerifyException(f"expected products in {COMMIT} or {RELEASE}, got them in {step}")
        if self.bytes is not None and step != ACQUIRE:
            raise VerifyException(f"expected bytes in {ACQUIRE}, got them in {step}")
        if self.late and (step not in (RELEASE, READ) or self.stage or self.by):
            raise VerifyException(f"expected late in {RELEASE} or {READ}, of the stage that it is at, got it in {step}")
        if (self.by is not None or self.stage is not None) and (self.by is None) == (step in (FILLED, READ)):
            raise VerifyException(f"expected 'by' in {FILLED} or {READ}, and a stage in other steps, got {step}")
        if self.number and (step not in (ACQUIRE, WAIT) or self.stage):
            raise VerifyException(f"expected a number of {ACQUIRE} or {WAIT} without a stage, got one of {step}")


SOME_WARPS = "warp.warps"
"""The attribute of an `scf.if` whose region only so many warps of a CTA execute, from the first on."""


OF_SLICES = "warp.of_slices"
"""The attribute of what makes the sum of all slices of K."""


def some_warps(op: Operation) -> int | None:
    """How many warps execute an operation; None if all of the CTA do."""
    counts = (around.attributes.get(SOME_WARPS) for around in enclosing(op))
    return next((count.value.data for count in counts if isinstance(count, IntegerAttr)), None)


@irdl_op_definition
class DisjointOp(WarpOp):
    """Makes a call fail if two views of memory share an element::

        warp.disjoint %written, %read : memref<?x64xf32, strided<[128, 1]>>, memref<64x?xf32, strided<[128, 1]>>
        warp.disjoint %written, %read or_same : memref<?x64xf32, strided<[?, 1]>>, memref<?x64xf32, strided<[?, 1]>>

    The compiler puts it before an operation that writes one view and reads the other, if dynamic sizes decide whether
    they share an element. With `or_same`, the two views may also be the same elements in the same places. Two arguments
    of a function never share memory if one of them is written.
    """

    name = "warp.disjoint"

    written = operand_def(MemRefType)
    read = operand_def(MemRefType)
    or_same = opt_prop_def(UnitAttr)

    assembly_format = "$written `,` $read (`or_same` $or_same^)? attr-dict `:` type($written) `,` type($read)"

    def verify_(self) -> None:
        written, read = memory_of(self.written), memory_of(self.read)
        if written.element_type != read.element_type:
            raise VerifyException(
                f"expected two views of one memory, got elements of {written.element_type} and {read.element_type}"
            )


@irdl_op_definition
class IsDivisibleOp(WarpOp):
    """Whether, in this call, the rows of memory begin at multiples of a number of elements::

        %whole = warp.is_divisible %A by 8 : memref<?x?xbf16>

    It is true if the number divides the size of the contiguous dimension, every other stride, and the address of the
    first element. Where it is true, a `memref.cast` to the same type has the attribute `warp.divisible`, by which an
    argument of a function promises it for each call.
    """

    name = "warp.is_divisible"

    memory = operand_def(MemRefType)
    divisor = prop_def(IntegerAttr[i64])
    answer = result_def(i1)

    traits = traits_def(Pure())
    assembly_format = "$memory `by` $divisor attr-dict `:` type($memory)"

    @property
    def number(self) -> int:
        """The divisor, in elements."""
        return self.divisor.value.data

    def verify_(self) -> None:
        if self.number < 1:
            raise VerifyException(f"expected a divisor of 1 or more, got {self.number}")
