"""Clusters and named barriers: `warp.cluster_rank`, `warp.cluster_barrier` and its halves, `warp.named_barrier`."""

from __future__ import annotations

from ...dialect.warp.clusters import (
    MOST_BARRIERS,
    MOST_CTAS,
    ClusterArriveOp,
    ClusterBarrierOp,
    ClusterRankOp,
    ClusterWaitOp,
    NamedBarrierOp,
)
from ..diagnostics import fail
from .kernel import KernelLowering
from .registry import lowers


@lowers(ClusterRankOp)
def _rank(lowering: KernelLowering, op: ClusterRankOp) -> None:
    lowering.values[op.rank] = lowering.scalars.special("%cluster_ctarank", MOST_CTAS)


@lowers(ClusterArriveOp)
def _arrive(lowering: KernelLowering, _: ClusterArriveOp) -> None:
    lowering.emitter.emit("barrier.cluster.arrive.aligned")


@lowers(ClusterWaitOp)
def _wait(lowering: KernelLowering, _: ClusterWaitOp) -> None:
    lowering.emitter.emit("barrier.cluster.wait.aligned")


@lowers(ClusterBarrierOp)
def _barrier(lowering: KernelLowering, op: ClusterBarrierOp) -> None:
    if op.mbarriers is not None:
        lowering.emitter.emit("fence.mbarrier_init.release.cluster")
    how = "" if op.mbarriers is None else ".relaxed"
    lowering.emitter.emit(f"barrier.cluster.arrive{how}.aligned")
    lowering.emitter.emit("barrier.cluster.wait.aligned")


@lowers(NamedBarrierOp)
def _named(lowering: KernelLowering, op: NamedBarrierOp) -> None:
    number, threads = lowering.scalar(op.number), op.threads.value.data
    if isinstance(number, int) and not 0 < number < MOST_BARRIERS:
        fail(op, f"expected a barrier from 1 to {MOST_BARRIERS - 1}, got {number}; gpu.barrier is the first")
    if threads > lowering.threads:
        fail(op, f"expected at most the {lowering.threads} threads of the kernel, got {threads}")
    lowering.emitter.emit("bar.sync" if op.arrive is None else "bar.arrive", number, threads)
