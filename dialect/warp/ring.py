"""Rings of stages of shared memory: `!warp.ring`, `warp.make_ring`, `warp.pipeline`.

Who copies tiles fills one stage after the other, and who multiplies reads them in that order. A ring says how the two
agree on which stages are full and which may be filled again. `warp-synchronise` makes barriers of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import IndexType, IntAttr, IntegerAttr, StringAttr, UnitAttr, i64
from xdsl.ir import SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
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
    var_operand_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from .op_shapes import BareWord, CountedType, flag


@irdl_attr_definition
class RingType(CountedType):
    """A ring of stages of shared memory: `!warp.ring<4>`."""

    name = "warp.ring"

    COUNTED = "stage"


@irdl_op_definition
class MakeRingOp(IRDLOperation):
    """Makes a ring of stages of shared memory::

        %ring = warp.make_ring {writers = 256 : i64, readers = 8 : i64} : !warp.ring<4>
        %ring = warp.make_ring peers(%a, %b) {writers = 1 : i64, readers = 24 : i64} : !warp.ring<4>
        %ring = warp.make_ring {ahead = 2 : i64} : !warp.ring<4>

    `writers` arrivals make a stage full, and those of `readers` warps empty. Who has read a stage tells the `peers` as
    well, other CTAs of the cluster, by rank. With `ahead`, all threads of the CTA copy and read, and meet at a barrier
    for each stage, of which so many are on their way while one is read. Threads may use the ring after a `gpu.barrier`.
    """

    name = "warp.make_ring"

    peers = var_operand_def(IndexType())
    writers = opt_prop_def(IntegerAttr)
    readers = opt_prop_def(IntegerAttr)
    ahead = opt_prop_def(IntegerAttr)
    ring = result_def(RingType)

    traits = traits_def(MemoryWriteEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "(`peers` `(` $peers^ `)`)? attr-dict `:` type($ring)"

    def __init__(
        self,
        stages: int,
        writers: int | None = None,
        readers: int | None = None,
        *,
        ahead: int | None = None,
        peers: Sequence[SSAValue] = (),
    ):
        numbers = {"writers": writers, "readers": readers, "ahead": ahead}
        properties = {name: None if number is None else IntegerAttr(number, i64) for name, number in numbers.items()}
        super().__init__(operands=[list(peers)], properties=properties, result_types=[RingType.new([IntAttr(stages)])])

    def verify_(self) -> None:
        given = tuple(number is not None for number in (self.writers, self.readers, self.ahead))
        if given not in ((True, True, False), (False, False, True)):
            raise VerifyException("expected either the writers and the readers of a stage, or 'ahead'")
        if self.ahead is not None and self.peers:
            raise VerifyException("a barrier of a CTA has no peers")


ACQUIRE, COMMIT, WAIT, RELEASE = "producer_acquire", "producer_commit", "consumer_wait", "consumer_release"

STEPS = (ACQUIRE, COMMIT, WAIT, RELEASE)


@irdl_op_definition
class PipelineOp(IRDLOperation):
    """One step of who fills or reads a stage of a ring; steps have the names that CUTLASS gives them::

        warp.pipeline producer_acquire %ring[%stage] parity %parity {bytes = 49152 : i64} : !warp.ring<4>
        warp.pipeline producer_commit %ring[%stage] : !warp.ring<4>
        warp.pipeline consumer_wait %ring[%stage] parity %parity : !warp.ring<4>
        warp.pipeline consumer_release %ring[%stage] : !warp.ring<4>

    - `producer_acquire` waits until a stage has been read. Tensor copies will fill it with so many `bytes`.
    - `producer_commit` comes after the copies to a stage were started. Of tensor copies the bytes are enough.
    - `consumer_wait` waits until a stage is full.
    - `consumer_release` says that a stage has been read; with `products`, that it will have been when the products in
      tensor memory that were started so far are done.

    Parities tell phases of a stage apart, as those of `warp.await`. Of a ring with `ahead` no stage is named: all
    threads come to one after the other.
    """

    name = "warp.pipeline"

    step = prop_def(StringAttr)
    ring = operand_def(RingType)
    stage = opt_operand_def(IndexType())
    parity = opt_operand_def(IndexType())
    bytes = opt_prop_def(IntegerAttr)
    products = opt_prop_def(UnitAttr)

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    custom_directives: ClassVar = (BareWord,)
    assembly_format = "custom<BareWord>($step) $ring (`[` $stage^ `]`)? (`parity` $parity^)? attr-dict `:` type($ring)"

    def __init__(
        self,
        step: str,
        ring: SSAValue,
        stage: SSAValue | None = None,
        parity: SSAValue | None = None,
        *,
        bytes: int | None = None,
        products: bool = False,
    ):
        count = None if bytes is None else IntegerAttr(bytes, i64)
        properties = {"step": StringAttr(step), "bytes": count, "products": flag(products)}
        super().__init__(operands=[ring, stage, parity], properties=properties)

    def verify_(self) -> None:
        step = self.step.data
        if step not in STEPS:
            raise VerifyException(f"expected a step of {', '.join(STEPS)}, got '{step}'")
        waits = step in (ACQUIRE, WAIT) and self.stage is not None
        if (self.parity is not None) != waits:
            raise VerifyException(f"expected a parity where a stage is waited for, and nowhere else, in {step}")
        if self.products is not None and step != RELEASE:
            raise VerifyException(f"expected products in {RELEASE}, got them in {step}")
        if self.bytes is not None and step != ACQUIRE:
            raise VerifyException(f"expected bytes in {ACQUIRE}, got them in {step}")
