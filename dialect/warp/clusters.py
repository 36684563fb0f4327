"""Clusters of CTAs: `warp.cluster_rank`, `warp.cluster_barrier` and its halves; and barriers of some warps of a CTA.

Source: PTX ISA 9.7.13.1 and 9.7.13.3.
"""

from __future__ import annotations

from xdsl.dialects.builtin import IndexType, IntegerAttr, UnitAttr, i64
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

from ..layouts.layout import LANES
from .op_shapes import flag

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
