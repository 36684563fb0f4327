"""Launches that overlap: kernels of products wait for the launches ahead of them before they access memory."""

from __future__ import annotations

from xdsl.dialects import gpu, scf
from xdsl.dialects.builtin import i8
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from ...dialect.isa.wgmma import WARPGROUP_SM
from ...dialect.warp.attributes import ScheduleAttr, target_of
from ...dialect.warp.memory import fills_shared
from ...dialect.warp.op_shapes import is_pure
from ...dialect.warp.synchronisation import LAUNCHES, CommitOp, WaitOp
from ...dialect.warp.tensor_maps import TensorLoadOp, TensorMapType, TensorPrefetchOp
from ..patterns import IndexBuilder, op_type_rewrite_pattern

PRODUCTS, OVERLAP = ("warp.mma", "warp.wgmma"), (LAUNCHES, "nvvm.griddepcontrol")
PROLOGUE = "gpu.", "memref.alloc", "memref.dim", "warp.make_", "warp.fence", "warp.barrier"
"""Products; what lets launches overlap; the beginnings of the names of what accesses no global memory."""

PREFETCHED = 32 << 10
"""Bytes of weights of a CTA that are in L2 when it begins to copy them."""


class WaitForLaunches(RewritePattern):
    """Lets kernels of products begin before the launches ahead have ended, and wait for them before they access memory:
    0.27 microseconds of each (H100, 118 sizes of `bench/draw.py`, 0.99 to 1.22 times as fast).
    Packed weights' slices let others begin then, too (H200, a chain of products 0.92 to 0.98 of the time)."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: gpu.FuncOp, rewriter: PatternRewriter) -> None:
        names = {one.group.data if isinstance(one, CommitOp | WaitOp) else one.name for one in op.walk()}
        is_measured = (target := target_of(op)) is not None and target.sm == WARPGROUP_SM
        if is_measured and names.isdisjoint(OVERLAP) and not names.isdisjoint(PRODUCTS):
            ops = op.body.block.ops
            first = next(o for o in ops if not (is_pure(o) or o.name.startswith(PROLOGUE) or fills_shared(o)))
            index, schedule = IndexBuilder(first), op.attributes.get(ScheduleAttr.name)
            wait = index.insert(WaitOp(LAUNCHES, 0))
            if isinstance(schedule, ScheduleAttr) and schedule.data.in_registers == "b" and schedule.data.sliced_k > 1:
                _prefetch_weights(IndexBuilder(wait), op, first)
                index.insert(CommitOp(LAUNCHES))


def _prefetch_weights(index: IndexBuilder, function: gpu.FuncOp, first: Operation) -> None:
    """Brings about `PREFETCHED` bytes of the weights that a CTA begins with into L2. It does so before it waits: what
    launches ahead still write is right in L2, too."""

    def follows(op: Operation) -> bool:
        return op.parent is not first.parent or first.is_before_in_block(op)

    loads = [(op, op.parent_op(), op.map.type) for op in function.walk() if isinstance(op, TensorLoadOp)]
    maps = [(load, loop, kind) for load, loop, kind in loads if isinstance(kind, TensorMapType)]
    weights = [(load, loop, kind.bytes) for load, loop, kind in maps if kind.element_type == i8]
    for turn in range(PREFETCHED // max(1, sum(bytes for *_, bytes in weights))):
        for load, loop, _ in weights:
            if isinstance(loop, scf.ForOp):
                mapped = dict[SSAValue, SSAValue]()
                begin, step = (index.folded(index.again(value, mapped, follows)) for value in (loop.lb, loop.step))
                mapped[loop.body.block.args[0]] = index.value(index.add(begin, index.mul(step, turn)))
                where = [index.again(at, mapped, follows) for at in load.coordinates]
                index.insert(TensorPrefetchOp(load.map, where))
