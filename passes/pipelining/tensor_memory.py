"""`warp-tensor-memory`: products of warpgroups add up in tensor memory, where the target has no `wgmma` (sm_100a)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects import memref, scf
from xdsl.dialects.builtin import IntegerAttr, MemRefType, i64
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.isa.wgmma import WARPS
from ...dialect.layouts.layout import LANES
from ...dialect.mlir.gpu import FuncOp, SubgroupIdOp
from ...dialect.warp.attributes import TENSOR_SPACE, fragment_of, target_of
from ...dialect.warp.memory import LoadOp, StoreOp
from ...dialect.warp.synchronisation import (
    AFTER_SYNC,
    BEFORE_SYNC,
    SOME_WARPS,
    WGMMA,
    ArriveOp,
    AwaitOp,
    CommitOp,
    FenceOp,
    MakeBarriersOp,
    ScopedBarrierOp,
    WaitOp,
)
from ...dialect.warp.warpgroup import TensorMmaOp, WgmmaOp
from ..diagnostics import fail
from ..patterns import Index, IndexBuilder, PatternPass


class AddUp(RewritePattern):
    """The loops over K of a kernel, whose sums are in tensor memory in place of registers.

    Each warpgroup has a matrix of its own there::

        %D = memref.alloc() : memref<2x64x128xf32, 6>
        warp.store %zero, %D[%g, 0, 0]                           the sums begin with what the fragment had
        scf.for ... { warp.await %full[%s] ...; warp.tensor_mma %A, %B, %D[%g]; warp.arrive %empty[%s] {products} }
        warp.arrive %done[%g] {products}; warp.await %done[%g]   all products have been added
        %sums = warp.load %D[%g, 0, 0]
    """

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: FuncOp, rewriter: PatternRewriter) -> None:
        products = [inner for inner in op.walk() if isinstance(inner, WgmmaOp)]
        target = target_of(op)
        if target is None or not products or any(product.row.runs_on(target) for product in products):
            return
        loops = list(dict.fromkeys(map(_loop_of, products)))
        if len(loops) > 1:
            fail(loops[1], "expected one loop over K: products of several are not added up in tensor memory")
        _Sums(op, loops[0]).move()


def _loop_of(product: WgmmaOp) -> scf.ForOp:
    loop = product.parent_op()
    if product.a_in_registers or product.e is not None or product.transposed is not None:
        fail(product, "products in tensor memory take dense operands in shared memory")
    if not isinstance(loop, scf.ForOp) or len(loop.iter_args) < 1:
        fail(product, "expected products in a loop over K, where they are added up in tensor memory")
    return loop


def _is_of_wgmma(op: Operation) -> bool:
    """Whether an operation fences, closes or waits for products of `wgmma`."""
    of = op.before if isinstance(op, FenceOp) else op.group if isinstance(op, CommitOp | WaitOp) else None
    return of is not None and of.data == WGMMA


class _Sums:
    """The sums of one loop over K on their way to tensor memory."""

    def __init__(self, kernel: FuncOp, loop: scf.ForOp) -> None:
        self.kernel, self.loop = kernel, loop
        self.tiles = next(_loops_around(loop), None)
        kind = fragment_of(loop.iter_args[0])
        self.kind, (rows, columns) = kind, kind.shape
        self.groups = self._groups()
        end = kernel.body.block.last_op
        barriers = next((op for op in kernel.walk() if isinstance(op, MakeBarriersOp)), None)
        if barriers is None or end is None:
            fail(loop, "expected products of consumer warpgroups: run warp-specialise and warp-synchronise first")
        first = IndexBuilder(Builder(InsertPoint.before(barriers)))
        sums = MemRefType(kind.element_type, [self.groups, rows, columns], memory_space=IntegerAttr(TENSOR_SPACE, i64))
        self.sums = first.insert(memref.AllocOp([], [], sums)).memref
        self.done = first.insert(MakeBarriersOp(self.groups, 1)).barriers
        IndexBuilder(Builder(InsertPoint.before(end))).insert(memref.DeallocOp.get(self.sums))

    def _groups(self) -> int:
        """How many warpgroups multiply."""
        around = self.loop.parent_op()
        while around is not None and not isinstance(around, scf.IfOp):
            around = around.parent_op()
        if around is None or not isinstance(count := around.attributes.get(SOME_WARPS), IntegerAttr):
            fail(self.loop, "expected products of consumer warpgroups: run warp-specialise first")
        return count.value.data // WARPS

    def move(self) -> None:
        """Puts the sums in tensor memory."""
        loop = self.loop
        before = IndexBuilder(Builder(InsertPoint.before(loop)))
        warp = before.insert(SubgroupIdOp()).result
        group = before.value(before.div(warp, WARPS))
        whole = [group, *before.values([0, 0])]
        before.insert(StoreOp(loop.iter_args[0], self.sums, whole))
        self._meet(before, group)
        for op in list(loop.body.block.ops):
            if isinstance(op, WgmmaOp):
                Rewriter.replace_op(op, TensorMmaOp(op, self.sums, group), [op.c], safe_erase=False)
            elif _is_of_wgmma(op):
                Rewriter.erase_op(op)
        behind = IndexBuilder(Builder(InsertPoint.after(loop)))
        behind.insert(ArriveOp(self.done, group, products=True))
        behind.insert(AwaitOp(self.done, group, behind.value(self._parity(behind))))
        behind.insert(FenceOp(AFTER_SYNC))
        loaded = behind.insert(LoadOp(self.sums, [group, *behind.values([0, 0])], self.kind)).fragment
        loop.results[0].replace_all_uses_with(loaded)
        self._without_sums(loop)

    def _meet(self, index: IndexBuilder, group: SSAValue) -> None:
        """All warps of a warpgroup have accessed its sums before its products do."""
        index.insert(FenceOp(BEFORE_SYNC))
        number = index.value(index.add(group, 1))
        index.insert(ScopedBarrierOp("cta", number, WARPS * LANES))
        index.insert(FenceOp(AFTER_SYNC))

    def _parity(self, index: IndexBuilder) -> Index:
        """The parity of the tile: its sums are the phase of that number of the barrier."""
        if self.tiles is None:
            return 0
        tile = index.sub(self.tiles.body.block.args[0], index.known(self.tiles.lb))
        return index.rem(index.div(tile, index.known(self.tiles.step)), 2)

    def _without_sums(self, loop: scf.ForOp) -> None:
        """The loop without the sums, which it no longer carries."""
        block = loop.body.block
        block.args[1].replace_all_uses_with(loop.iter_args[0])
        end = block.last_op
        if end is None:
            return
        Rewriter.replace_op(end, scf.YieldOp(*end.operands[1:]))
        block.erase_arg(block.args[1])
        others = loop.iter_args[1:]
        new = scf.ForOp(loop.lb, loop.ub, loop.step, others, loop.detach_region(0))
        Rewriter.replace_op(loop, new, [None, *new.results], safe_erase=False)


def _loops_around(op: Operation) -> Iterator[scf.ForOp]:
    around = op.parent_op()
    while around is not None:
        if isinstance(around, scf.ForOp):
            yield around
        around = around.parent_op()


class TensorMemoryPass(PatternPass):
    """Adds products of warpgroups up in tensor memory on targets that have it in place of `wgmma`.

    It runs after `warp-synchronise`.
    """

    name = "warp-tensor-memory"
    needs: ClassVar = ("warp.wgmma",)
    patterns = (AddUp,)
