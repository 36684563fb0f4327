"""Where warps meet without all stopping at one place: mbarrier objects in shared memory.

A mbarrier counts arrivals; when as many as it expects have come, its phase ends and the next one begins. Phases are
told apart by their parity: the first has parity 0. `warp.make_barriers`, `warp.arrive`, `warp.arrive_copies`,
`warp.await`. Source: PTX ISA 9.7.13.15.
"""

from __future__ import annotations

from xdsl.dialects.builtin import IndexType, IntAttr, IntegerAttr, i64
from xdsl.ir import Attribute, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

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
