"""Clusters and named barriers: `warp.cluster_rank`, `warp.cluster_barrier` and its halves, `warp.named_barrier`."""

from __future__ import annotations

from xdsl.ir import Operation

from ...dialect.isa.targets import Version
from ...dialect.warp.clusters import (
    CLUSTER_SM,
    MOST_BARRIERS,
    MOST_CTAS,
    ClusterArriveOp,
    ClusterBarrierOp,
    ClusterRankOp,
    ClusterWaitOp,
    NamedBarrierOp,
)
from ..diagnostics import fail
from .emitter import VirtualRegister
from .kernel import KernelLowering
from .registry import lowers

VERSION: Version = (7, 8)


def require(lowering: KernelLowering, op: Operation, what: str = "") -> None:
    """Raises a located diagnostic on targets that lack clusters."""
    if lowering.target.sm < CLUSTER_SM:
        fail(op, f"{lowering.target} has no {what or op.name.removeprefix('warp.')}; sm_{CLUSTER_SM} and later have it")
    lowering.emitter.require(VERSION)


@lowers(ClusterRankOp)
def _rank(lowering: KernelLowering, op: ClusterRankOp) -> None:
    require(lowering, op)
    lowering.values[op.rank] = lowering.scalars.special("%cluster_ctarank", MOST_CTAS)


@lowers(ClusterArriveOp)
def _arrive(lowering: KernelLowering, op: ClusterArriveOp) -> None:
    require(lowering, op)
    lowering.emitter.emit("barrier.cluster.arrive.aligned", "")


@lowers(ClusterWaitOp)
def _wait(lowering: KernelLowering, op: ClusterWaitOp) -> None:
    require(lowering, op)
    lowering.emitter.emit("barrier.cluster.wait.aligned", "")


@lowers(ClusterBarrierOp)
def _barrier(lowering: KernelLowering, op: ClusterBarrierOp) -> None:
    require(lowering, op)
    lowering.emitter.emit("barrier.cluster.arrive.aligned", "")
    lowering.emitter.emit("barrier.cluster.wait.aligned", "")


@lowers(NamedBarrierOp)
def _named(lowering: KernelLowering, op: NamedBarrierOp) -> None:
    number, threads = lowering.scalar(op.number), op.threads.value.data
    if isinstance(number, int) and not 0 < number < MOST_BARRIERS:
        fail(op, f"expected a barrier from 1 to {MOST_BARRIERS - 1}, got {number}; gpu.barrier is the first")
    if threads > lowering.threads:
        fail(op, f"expected at most the {lowering.threads} threads of the kernel, got {threads}")
    held = [number] if isinstance(number, VirtualRegister) else []
    how = "sync" if op.arrive is None else "arrive"
    lowering.emitter.emit(f"bar.{how}", f"{'?' if held else number}, {threads}", *held)
