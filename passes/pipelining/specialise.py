"""`warp-specialise`: one warpgroup copies, the others multiply.

The loop over K of a kernel of `warp.wgmma` becomes two. The producer waits until a stage of a ring has been read, and
starts tensor copies to it. The consumers wait until a stage is full, and start its products; when those of the stage
before have finished, they say that it has been read. Where CTAs go from tile to tile, the producer copies stages of the
next tile under the epilogue of this one::

    producer                                consumers
      for each tile of this CTA:              for each tile of this CTA:
        for each K tile:                        for each K tile:
          wait: stage is empty                    wait: stage is full
          start copies, which arrive there        start products; wait for those of the stage before
                                                  that stage is empty
                                                wait for products; that stage is empty; store accumulators
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, TypeVar

from xdsl.builder import Builder
from xdsl.dialects import arith, gpu, memref, scf
from xdsl.dialects.builtin import DenseArrayBase, IndexType, IntegerAttr, UnitAttr, i32, i64
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.isa.wgmma import WARPS
from ...dialect.layouts.layout import LANES
from ...dialect.mlir.gpu import BarrierOp, SubgroupIdOp
from ...dialect.warp.attributes import fragment_of, target_of
from ...dialect.warp.cta import RELEASE, WAIT, CopyOp, MakeRingOp
from ...dialect.warp.memory import LoadOp, StoreOp
from ...dialect.warp.op_shapes import is_pure
from ...dialect.warp.synchronisation import (
    ASYNC_PROXY,
    BULK,
    CLUSTER,
    CLUSTER_SIZE,
    PAIRS,
    SOME_WARPS,
    CommitOp,
    ElectOp,
    FenceOp,
    ScopedBarrierOp,
    WaitOp,
)
from ...dialect.warp.views import MatrixOp
from ...dialect.warp.warpgroup import SetRegistersOp, WgmmaOp
from ..allocate import needed
from ..diagnostics import remark
from ..patterns import Index, IndexBuilder, PatternPass
from ..schedule.needs import LEFT_FOR_BARRIERS, adds_in_tensor_memory
from ..tile.tiling import LaunchedKernel, LaunchPattern
from .ring import CtaCluster, DeclinedError, Ring, Share, copies_of, decline, is_load, with_stages
from .roles import ConsumerLoop, Once, OwnTiles, Producer
from .tensor_copies import StagedLoads, StagedStores, TensorCopy, TensorView, loads_behind

REGISTERS = {2: (40, 232), 3: (32, 160)}
"""Registers of a thread of the producer and of the consumers, by how many of these there are; one needs no more than it
has. 128 threads of each share 65,536."""

MOST_SUMS, MANY_SUMS = 160, (24, 240)
"""Registers of all sums of a turn, of two consumers, and those of threads where there are more: with 232 ptxas lets
products of 192 wait for each other."""


OF_TENSOR_MEMORY = {2: (88, 208), 3: (80, 144)}
"""The same where a warp of the producer's starts all products (ptxas 13.5, with 40: 16 bytes of spills)."""

OF_ATTENTION = {2: (120, 192)}
"""The same where these are of two kinds, with tiles of their own (with 88: 88 bytes)."""


class Specialiser:
    """Rewrites a kernel with the loop `loop` over K, which may be inside of a loop over tiles. `by` is the pass that
    emits remarks."""

    def __init__(self, launch: LaunchedKernel, loop: scf.ForOp, by: str) -> None:
        self.by = by
        self.launch, self.loop = launch, loop
        around = loop.parent_op()
        self.tiles = around if isinstance(around, scf.ForOp) else None
        self.consumers = launch.schedule.consumer_warps
        self.copies, self.once = copies_of(loop), _before(loop, CopyOp)
        self.loads: list[StagedLoads] = []
        self._check()
        start, end = launch.body.first_op, launch.body.last_op
        if start is None or end is None:
            decline(loop, "the kernel does not end")
        self.index = IndexBuilder(Builder(InsertPoint.before(end)), Builder(InsertPoint.before(start)))

    def _check(self) -> None:
        """Checks that the loop has nothing but copies, warpgroup products and their operands, for no role would execute
        it."""
        block = self.loop.body.block
        products, tiles = (WgmmaOp, FenceOp, CommitOp, WaitOp), {copy.destination for copy in self.copies}
        for op in block.ops:
            is_step = isinstance(op, (CopyOp, gpu.BarrierOp, scf.YieldOp, *products)) or is_load(op)
            if not (is_step or is_pure(op) or (isinstance(op, LoadOp) and op.memory not in tiles)):
                decline(op, f"{op.name} in the loop is neither a copy nor a product of warpgroups")
        for copy in (*self.copies, *self.once):
            if copy.until is not None:
                decline(copy, "a tensor copy has no end of its own")
            TensorView.of(copy, copy.source)

    def _first(self) -> Operation:
        """The first operation that only consumers execute. No operation before it depends on the data of a tile."""
        if self.tiles is not None:
            return self.tiles
        block = self.loop.parent_block()
        ops = [] if block is None else list(block.ops)
        before = ops[: ops.index(self.loop)]
        shared = [op for op in before if self._is_shared(op)]
        return next(op for op in ops if op not in shared)

    @staticmethod
    def _is_shared(op: Operation) -> bool:
        index = is_pure(op) and all(isinstance(result.type, IndexType) for result in op.results)
        return index or op.name in (
            "memref.alloc",
            "gpu.subgroup_id",
            "gpu.block_id",
            "memref.dim",
            "memref.load",
            "warp.matrix",
        )

    def rewrite(self) -> None:
        """Puts a producer and consumers in place of the loop."""
        index, kernel = self.index, self.launch.kernel
        first = self._first()
        block = first.parent_block()
        if block is None:
            return
        before = index.before(first)
        cluster = CtaCluster.of(before, self.launch.schedule.cluster)
        once = [TensorCopy.of(copy, self.launch) for copy in self.once]
        copies = [TensorCopy.of(copy, self.launch, self._share(before, copy, cluster)) for copy in self.copies]
        stores = self._stage_stores()
        self.loads = self._stage_loads()
        mine = self._from(block, first)
        adds_up = self._in_tensor_memory()
        # One thread of the CTA says that products have read a stage, where they are done without warps.
        readers = 1 if adds_up else self.launch.schedule.warps
        once_ = Once(once, Ring.of(index, MakeRingOp(self._stages_of_fixed(once), 1, readers))) if once else None
        pairs = self.launch.schedule.pairs
        peers = () if cluster is None or pairs else cluster.peers(before)
        everyone = readers * (1 + len(peers))
        ring = Ring.of(index, MakeRingOp(self.launch.schedule.stages, 2 if pairs else 1, everyone, peers=peers))
        index.insert(FenceOp(ASYNC_PROXY))
        index.insert(BarrierOp() if cluster is None else ScopedBarrierOp(CLUSTER, mbarriers=True))
        if pairs:
            kernel.attributes[PAIRS] = UnitAttr()
        warp = index.insert(SubgroupIdOp()).result
        registers = self._registers()
        produce, consume = Block(), Block()
        sources = [copy.tensor.memory for copy in (*once, *copies)]
        tiles = [copy.destination for copy in self.copies]
        producer = Producer(self.loop, self.tiles, copies, ring, once_, self.loads)
        self._produce(index.within(produce), warp, producer, registers)
        self._consume(consume, mine, ring, registers, once_)
        if stores and consume.last_op is not None:
            index.before(consume.last_op).insert(WaitOp(BULK, 0, read=True, each_warpgroup=True))
        for predicate, body in (("sge", produce), ("slt", consume)):
            some = index.insert(scf.IfOp(index.compare(predicate, warp, self.consumers), [], Region(body)))
            if body is consume:
                some.attributes[SOME_WARPS] = IntegerAttr(self.consumers, i64)
        if cluster is not None:
            kernel.attributes[CLUSTER_SIZE] = DenseArrayBase.from_list(i32, [cluster.ctas, 1, 1])
        for tile in dict.fromkeys(tiles):
            with_stages(tile, ring.stages)
        if once_ is not None:
            for tile in once_.tiles:
                with_stages(tile, once_.ring.stages)
        threads = (self.consumers + WARPS) * LANES
        self.launch.threads = threads
        for memory in dict.fromkeys((*sources, *(matrix.view.memory for matrix in (*stores, *self.loads)))):
            self.launch.drop_unused(memory)
        kernel.attributes["gpu.known_block_size"] = DenseArrayBase.from_list(i32, [threads, 1, 1])
        self.launch.finish()

    def _registers(self) -> tuple[int, int] | None:
        """The registers of a thread of the producer and of the consumers; None if they are not reallocated."""
        products = [op for op in self.loop.body.block.ops if isinstance(op, WgmmaOp)]
        starts = [op.c for op in products if not isinstance(op.c.owner, WgmmaOp)]
        sums = sum(fragment_of(value).registers for value in starts)
        of_groups = self.consumers // WARPS
        if self._in_tensor_memory():
            of_attention = any(op.a_in_registers for op in products)
            return (OF_ATTENTION if of_attention else OF_TENSOR_MEMORY).get(of_groups)
        return MANY_SUMS if of_groups == 2 and sums > MOST_SUMS else REGISTERS.get(of_groups)

    def _share(self, index: IndexBuilder, copy: CopyOp, cluster: CtaCluster | None) -> Share | None:
        """What this CTA copies of a tile; None for all of it."""
        products = [op for op in self.loop.body.block.ops if isinstance(op, WgmmaOp)]
        if cluster is not None and self.launch.schedule.pairs:
            axis = next((int(op.major("b")) for op in products if op.b is copy.destination), None)
            return None if axis is None else Share(2, cluster.row, None, axis)
        # Of transposes that are multiplied the second operand is A.
        of_b = any((op.b is copy.destination) != (op.transposed is not None) for op in products)
        return None if cluster is None else cluster.share(index, of_b=of_b)

    def _from(self, block: Block, first: Operation) -> list[Operation]:
        """The operations of the consumers, from `first` on. Operations that the producers need too stay outside."""
        ops = list(block.ops)
        return [op for op in ops[ops.index(first) : -1] if not self._is_shared(op)]

    def _stage_stores(self) -> list[StagedStores]:
        """Lets tensor copies store what the schedule stages, where they can."""
        stores_of: dict[SSAValue, list[StoreOp]] = {}
        if self.launch.schedule.staging:
            for op in self.launch.kernel.walk():
                if isinstance(op, StoreOp):
                    stores_of.setdefault(op.memory, []).append(op)
        staged: list[StagedStores] = []
        for stores in stores_of.values():
            try:
                staged.append(StagedStores(stores, self.launch, self.index))
                staged[-1].replace()
            except DeclinedError as declined:
                remark(declined.op, self.by, f"lanes store what they hold: {declined.reason}")
        return staged

    def _stage_loads(self) -> list[StagedLoads]:
        """Lets tensor copies bring matrices of the epilogue where D is staged, if they can: through stages, of which at
        least one is left for the next tile."""
        schedule, staged = self.launch.schedule, list[StagedLoads]()
        for loads in loads_behind(self.loop) if schedule.staging else ():
            left = schedule.stages - 1 - sum(staged_.turns for staged_ in staged)
            try:
                if schedule.own_tiles:
                    decline(loads[0], "consumers have tiles of their own")
                if self._in_tensor_memory():
                    decline(loads[0], "stages are released by products in tensor memory")
                tiles = [copy.destination for copy in self.copies]
                staged.append(StagedLoads(loads, tiles, self.launch, self.index, left))
            except DeclinedError as declined:
                remark(declined.op, self.by, f"each lane loads what it needs: {declined.reason}")
        return staged

    # The producer

    def _produce(
        self, index: IndexBuilder, warp: SSAValue, producer: Producer, registers: tuple[int, int] | None
    ) -> None:
        """One lane of the producer starts copies; the others have nothing to do."""
        if registers is not None:
            index.insert(SetRegistersOp(registers[0]))
        first = index.compare("eq", warp, self.consumers)
        with index.where(index.insert(arith.AndIOp(first, index.insert(ElectOp()).chosen)).result) as inside:
            stage, parity, *_ = producer.build(inside)
            if self.launch.schedule.cluster != (1, 1):
                producer.ring.drain(inside, stage, parity)
        index.insert(scf.YieldOp())

    # The consumers

    def _consume(
        self, body: Block, mine: list[Operation], ring: Ring, registers: tuple[int, int] | None, once: Once | None
    ) -> None:
        """The consumers' code, with a loop over K that waits for copies."""
        if registers is not None:
            body.add_op(SetRegistersOp(registers[1], grow=True))
        for op in mine:
            op.detach()
            body.add_op(op)
        body.add_op(scf.YieldOp())
        self._remove_copies()
        index = self.index.before(self.loop)
        if self.tiles is None:
            if once is not None:
                self._await(once, 0, 0)
            self._multiplied(self._consumed(once, index.value(0)), index, ring, [0, 0])
            return
        block, around = self.tiles.body.block, self.index.before(self.tiles)
        state = [block.insert_arg(IndexType(), 1 + i) for i in range(2 if once is None else 4)]
        first, step, initial, own = self.tiles.lb, self.tiles.step, list[Index]([0] * len(state)), None
        if self.launch.schedule.own_tiles:
            own = OwnTiles.of(around, self.loop, self.tiles, self.consumers // WARPS, ring.stages)
            (first, step), initial = own.bounds(around), own.start(around)
            own.begin(index, block.args[0])
        if once is not None:
            self._await(once, *state[2:])
        passed = None if own is None else partial(own.end, tile=block.args[0])
        loop, after = self._multiplied(self._consumed(once, state[-2]), index, ring, list(state[:2]), passed)
        end = block.last_op
        if end is not None:
            last = self.index.before(end)
            after = after if own is None else own.following(last, *after)
            after += [] if once is None else once.ring.next(last, *state[2:])
            Rewriter.replace_op(end, scf.YieldOp(*last.values(after)))
        if once is not None:
            behind = self.index.after(loop)
            once.ring.step(behind, RELEASE, state[2])
        region = self.tiles.detach_region(0)
        new = scf.ForOp(first, self.tiles.ub, step, around.values(initial), region)
        around.insert(new)
        Rewriter.erase_op(self.tiles)

    def _multiplied(
        self,
        consumed: ConsumerLoop,
        index: IndexBuilder,
        ring: Ring,
        state: list[Index],
        passed: Callable[[IndexBuilder], None] | None = None,
    ) -> tuple[scf.ForOp, list[Index]]:
        """The loop over K, followed by the reads of the epilogue's operands from further stages."""
        for loads in self.loads:
            loads.replace(index)
        loop, after = consumed.rewrite(index, ring, state, passed)
        behind = self.index.after(loop)
        for loads in self.loads:
            after = loads.receive(behind, ring, after)
        return loop, after

    def _stages_of_fixed(self, once: list[TensorCopy]) -> int:
        """The number of stages of tiles that stay: two for persistent CTAs if shared memory suffices, otherwise one."""
        target, size = target_of(self.launch.kernel), sum(copy.bytes for copy in once)
        if self.tiles is None or target is None:
            return 1
        staged = {copy.destination: self.launch.schedule.stages for copy in self.copies}
        allocated = [(op.memref, bytes_of[0]) for op in self.launch.kernel.walk()
                     if isinstance(op, memref.AllocOp) and (bytes_of := needed(op)) is not None]  # fmt: skip
        taken = sum(staged.get(tile, 1) * bytes_ for tile, bytes_ in allocated)
        return 2 if taken + size + LEFT_FOR_BARRIERS <= target.shared else 1

    def _await(self, once: Once, stage: Index, parity: Index) -> None:
        """Waits for the tiles that stay, instead of copying them."""
        barrier = _before(self.loop, gpu.BarrierOp)[-1]
        before = self.index.before(barrier)
        once.ring.step(before, WAIT, stage, parity)
        for op in (*self.once, *_before(self.loop, FenceOp), *_before(self.loop, gpu.BarrierOp)):
            Rewriter.erase_op(op)

    def _consumed(self, once: Once | None, stage: SSAValue) -> ConsumerLoop:
        """The loop over K without copies; tiles that stay are in `stage` of theirs."""
        groups = self.consumers // WARPS
        staged, fixed = [copy.destination for copy in self.copies], [] if once is None else once.tiles
        in_turns = self.launch.schedule.consumers == "pingpong"
        return ConsumerLoop(self.loop, staged, dict.fromkeys(fixed, stage), groups, in_turns, self._in_tensor_memory())

    def _in_tensor_memory(self) -> bool:
        """Whether the target adds products of warpgroups up in tensor memory."""
        target = target_of(self.launch.kernel)
        products = [op for op in self.loop.body.block.ops if isinstance(op, WgmmaOp)]
        return target is not None and adds_in_tensor_memory(target) and bool(products)

    def _remove_copies(self) -> None:
        for op in list(self.loop.body.block.ops):
            if isinstance(op, CopyOp | gpu.BarrierOp) or (isinstance(op, FenceOp) and op.before.data == ASYNC_PROXY):
                Rewriter.erase_op(op)
        for op in list(self.loop.body.block.ops):
            if isinstance(op, MatrixOp) and not op.matrix.uses:
                Rewriter.erase_op(op)


OpT = TypeVar("OpT", bound=Operation)


def _before(loop: scf.ForOp, kind: type[OpT]) -> list[OpT]:
    """The operations of a kind before a loop in its block."""
    before: list[OpT] = []
    op = loop.prev_op
    while op is not None:
        if isinstance(op, kind):
            before.insert(0, op)
        op = op.prev_op
    return before


class SpecialiseWarps(LaunchPattern):
    """Adds a producer warpgroup to a kernel of warpgroups; it copies for the others."""

    def rewrite(self, launch: LaunchedKernel) -> None:
        if launch.schedule.together == 1:
            return
        for loop in [o for o in launch.kernel.walk() if isinstance(o, scf.ForOp) and copies_of(o)]:
            try:
                Specialiser(launch, loop, SpecialisePass.name).rewrite()
            except DeclinedError as declined:
                remark(declined.op, SpecialisePass.name, f"nobody copies ahead: {declined.reason}")


class SpecialisePass(PatternPass):
    """Adds a producer warpgroup to kernels of warpgroups. The producer copies tiles by tensor maps to a ring of stages,
    while the other warpgroups multiply.

    It runs after `warp-persist`. It does not change a kernel that it cannot specialise, and `warploom-opt --remarks`
    says why. The kernel is also correct without it.
    """

    name = "warp-specialise"
    needs: ClassVar = ("warp.wgmma",)
    patterns = (SpecialiseWarps,)
