"""`warp-specialise`: one warpgroup copies, the others multiply.

The loop over K of a kernel of `warp.wgmma` gets the steps of a producer and of consumers of a ring of stages, and each
role a part of the loop. The producer waits until a stage has been read, and starts tensor copies to it. The consumers
wait until a stage is full, and start its products; when those of the stage before have finished, they say that it has
been read. Where CTAs go from tile to tile, the producer copies stages of the next tile under the epilogue of this
one::

    producer                                consumers
      for each tile of this CTA:              for each tile of this CTA:
        for each K tile:                        for each K tile:
          wait: stage is empty                    wait: stage is full
          start copies, which arrive there        start products; wait for those of the stage before
                                                  that stage is empty
                                                wait for products; that stage is empty; store accumulators
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from math import prod
from typing import ClassVar, TypeVar

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import arith, gpu, memref, scf
from xdsl.dialects.builtin import DenseArrayBase, IndexType, IntegerAttr, ModuleOp, UnitAttr, i1, i32, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.isa.row import KIB, Target
from ...dialect.isa.wgmma import WARPS
from ...dialect.layouts.layout import LANES
from ...dialect.mlir.gpu import BarrierOp, SubgroupIdOp
from ...dialect.mlir.upstream import DECREASE, INCREASE, ElectOp, RegistersOp
from ...dialect.schedule import Schedule
from ...dialect.warp.attributes import PAIRS, ScheduleAttr, enclosing, fragment_of, target_of
from ...dialect.warp.cta import (
    ACQUIRE,
    FILLED,
    OF_SLICES,
    READ,
    RELEASE,
    SOME_WARPS,
    WAIT,
    MakeRingOp,
    PipelineOp,
    RingType,
)
from ...dialect.warp.memory import CopyOp, LoadOp, StoreOp, fills_shared
from ...dialect.warp.op_shapes import is_pure
from ...dialect.warp.synchronisation import (
    ASYNC_PROXY,
    BULK,
    CLUSTER,
    CLUSTER_SIZE,
    MIN_CTAS,
    CommitOp,
    FenceOp,
    ScopedBarrierOp,
    WaitOp,
)
from ...dialect.warp.tensor_maps import TensorLoadOp, TensorStoreOp
from ...dialect.warp.views import MatrixOp
from ...dialect.warp.warpgroup import WgmmaOp
from ..allocate import needed, with_stages
from ..diagnostics import remark
from ..patterns import IndexBuilder, PatternPass, apply_patterns, constant_value, operations_of, rewrite_pattern
from ..schedule.needs import LEFT_FOR_BARRIERS, adds_in_tensor_memory
from ..schedule.warpgroup import REGISTER_STEP, SM_REGISTERS
from ..tile.tiling import LaunchedKernel, LaunchPattern
from .ring import DeclinedError, Ring, copies_of, decline, is_load
from .roles import ConsumerLoop, CtaCluster, Share, behind, compute_late, slice_of, take_own_tiles
from .rotate import rotate_products, rotates
from .tensor_copies import StagedLoads, StagedStores, TensorCopy, TensorView, loads_behind

REGISTERS = {2: (40, 232), 3: (32, 160)}
"""Registers of a thread of the producer and of the consumers, by how many of these there are. 128 threads of each share
65,536. One consumer needs no more than it has, unless several CTAs share an SM."""

SHARING, OF_PRODUCER, BESIDE_SUMS, RESERVED = (3, 2), 24, 40, KIB
"""CTAs of one consumer that may share an SM; registers of a thread of their producers; of a consumer's, beside sums;
bytes of shared memory that each CTA takes beside its own (CUDA C++ Programming Guide, compute capability 9.0).

H100, gradients of attention with 64 columns, 1024 queries, causal: dQ by three CTAs of 64 rows 218 microseconds, by one
of 192 rows 288; dK and dV by two CTAs 347, by one 382."""

MAX_SUMS, MANY_SUMS = 160, (24, 240)
"""Registers of all sums of a turn, of two consumers, and those of threads where there are more: with 232 ptxas lets
products of 192 wait for each other."""


ROTATED_STAGES = 3
"""Stages of a loop that is rotated, if its last products read the tiles of the first. H100, microseconds of dQ, 16384
tokens of 2048 columns, not rotated and rotated: 128 columns, 4096 queries 1064, 1015; 16384 causal 2065, 1973; 64
columns, 4096 queries 1274, 1232, causal 742, 726. In turns besides 1014, 2001, 1226, 731."""

ROTATED_SUMS = 64
"""Registers of O from which loops in turns are rotated. H100, 64 columns, 16 heads of 4096: 158 microseconds, rotated
167; 128 columns, 64 heads: 842 and 789."""

OF_TENSOR_MEMORY = {2: (88, 208), 3: (80, 144)}
"""The same where a warp of the producer's starts all products (ptxas 13.5, with 40: 16 bytes of spills)."""

OF_ATTENTION = {2: (120, 192)}
"""The same where these are of two kinds, with tiles of their own (with 88: 88 bytes)."""


def _check(loop: scf.ForOp, copies: Sequence[CopyOp], once: Sequence[CopyOp]) -> None:
    """Declines a loop that has more than copies, products of warpgroups and their operands: no role would execute
    it."""
    products, tiles = (WgmmaOp, FenceOp, CommitOp, WaitOp), {copy.destination for copy in copies}
    for op in loop.body.block.ops:
        is_step = isinstance(op, (CopyOp, gpu.BarrierOp, scf.YieldOp, *products)) or is_load(op)
        if not (is_step or is_pure(op) or (isinstance(op, LoadOp) and op.memory not in tiles)):
            decline(op, f"{op.name} in the loop is neither a copy nor a product of warpgroups")
    for copy in (*copies, *once):
        if copy.until is not None or copy.at:
            decline(copy, "a tensor copy has no end of its own")
        TensorView.of(copy, copy.source)


def _is_shared(op: Operation) -> bool:
    """Whether all warps execute an operation of the kernel."""
    index = is_pure(op) and all(result.type in (IndexType(), i1) for result in op.results)
    return (
        index
        or fills_shared(op)
        or isinstance(op, memref.AllocOp | gpu.SubgroupIdOp | gpu.BlockIdOp | memref.DimOp | memref.LoadOp | MatrixOp)
    )


class TensorLoop:
    """A loop over K, which may be inside of a loop over tiles, with tensor copies to rings of stages in place of its
    copies. `by` is the pass that emits remarks. Raises DeclinedError if no tensor maps describe what it copies, or it
    does something else."""

    def __init__(self, launch: LaunchedKernel, loop: scf.ForOp, by: str) -> None:
        self.launch, self.loop, self.by, around = launch, loop, by, loop.parent_op()
        self.tiles = around if isinstance(around, scf.ForOp) else None
        self.products = [op for op in loop.body.block.ops if isinstance(op, WgmmaOp)]
        self.copied, once = copies_of(loop), _before(loop, CopyOp)
        _check(loop, self.copied, once)
        self.barriers = [*_before(loop, FenceOp), *_before(loop, gpu.BarrierOp)] if once else []
        first = self.tiles or next(op for op in launch.body.ops if op is loop or not _is_shared(op))
        start = launch.body.first_op or first
        self.index = IndexBuilder(Builder(InsertPoint.before(first)), Builder(InsertPoint.before(start)))
        schedule = launch.schedule
        if schedule.own_tiles and None in [constant_value(value) for value in loop.operands[:3]]:
            decline(loop, "consumers have tiles of their own where K is known")
        self.cluster = CtaCluster.of(self.index, schedule.cluster, schedule.cluster_parts)
        target = target_of(launch.kernel)
        self.in_tensor_memory = target is not None and adds_in_tensor_memory(target) and bool(self.products)
        self.once = [TensorCopy.of(copy, launch) for copy in once]
        self.copies = [TensorCopy.of(copy, launch, self._share(copy)) for copy in self.copied]
        self.stores, self.loads = self._stage_stores(), self._stage_loads()
        # One thread of the CTA says that products have read a stage, where they are done without warps.
        readers = 1 if self.in_tensor_memory else schedule.warps
        self.of_once = self._make_ring(self._stages_of_fixed(), 1, readers) if once else None
        peers = () if self.cluster is None or schedule.pairs else self.cluster.peers(self.index)
        multiplied = {operand for op in self.products for operand in op.operands}
        by_lanes = any(copy.destination not in multiplied for copy in self.copied)  # such as scales
        by_lanes = by_lanes or bool(self.loads) or any(op.a_in_registers for op in self.products)
        by_products = not (self.in_tensor_memory or by_lanes)
        together = bool(peers) and by_products  # the products of a warpgroup are done at once
        writers, readers = 2 if schedule.pairs else 1, readers // (WARPS if together else 1) * (1 + len(peers))
        self.ring = self._make_ring(schedule.stages, writers, readers, peers, together=together)
        self.rings = dict.fromkeys((copy.destination for copy in self.copied), self.ring)
        self.of_last = self._ring_of_last()
        self.index.insert(FenceOp(ASYNC_PROXY))
        # No CTA writes to another one that has not begun.
        alone = self.cluster is None and schedule.cluster_parts == 1
        self.index.insert(BarrierOp() if alone else ScopedBarrierOp(CLUSTER, mbarriers=True))

    def _make_ring(
        self, stages: int, writers: int, readers: int, peers: Sequence[SSAValue] = (), *, together: bool = False
    ) -> Ring:
        ring = MakeRingOp(RingType.of(stages), writers, readers, peers, each_warpgroup=together)
        return Ring(self.index.insert(ring).ring)

    def _ring_of_last(self) -> Ring | None:
        """The ring of what the last products of a turn read, if the loop is rotated: of tiles that only they read one
        of its own, in turns; that of all, where a turn has several products before. None if it is not."""
        if not any(op.a_in_registers for op in self.products):
            return None
        results = {op.d for op in self.products}
        first = [op for op in self.products if not op.a_in_registers and op.c not in results]
        last = [tile for tile in self.rings if tile not in [op.b for op in first]]
        if not rotates(self.loop):
            return None
        if not last:
            return self.ring if len(first) > 1 and self.ring.stages >= ROTATED_STAGES else None
        sums = sum(fragment_of(op.c).registers for op in self.products if op.a_in_registers and op.c not in results)
        if self.launch.schedule.consumers != "pingpong" or sums < ROTATED_SUMS:
            return None
        ring = self._make_ring(self.ring.stages, 1, self.launch.schedule.warps)
        self.rings |= dict.fromkeys(last, ring)
        return ring

    def _share(self, copy: CopyOp) -> Share | None:
        """What this CTA copies of a tile; None for all of it."""
        if self.cluster is not None and self.launch.schedule.pairs:
            axis = next((int(op.major("b")) for op in self.products if op.b is copy.destination), None)
            return None if axis is None else Share(2, self.cluster.row, None, axis)
        # Of transposes that are multiplied the second operand is A.
        of_b = any((op.b is copy.destination) != (op.transposed is not None) for op in self.products)
        return None if self.cluster is None else self.cluster.share(self.index, of_b=of_b)

    def _stage_stores(self) -> list[StagedStores]:
        """Lets tensor copies store what the schedule stages, where they can."""
        stores_of: dict[SSAValue, list[StoreOp]] = {}
        if self.launch.schedule.staging:
            for op in operations_of(self.launch.kernel):
                if isinstance(op, StoreOp) and op.registers is None:
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
                if self.in_tensor_memory:
                    decline(loads[0], "stages are released by products in tensor memory")
                tiles = [copy.destination for copy in self.copied]
                staged.append(StagedLoads(loads, tiles, self.launch, self.index, left))
            except DeclinedError as declined:
                remark(declined.op, self.by, f"each lane loads what it needs: {declined.reason}")
        return staged

    def _stages_of_fixed(self) -> int:
        """The number of stages of tiles that stay: two for persistent CTAs if shared memory suffices, otherwise one."""
        target, size = target_of(self.launch.kernel), sum(copy.bytes for copy in self.once)
        if self.tiles is None or target is None:
            return 1
        staged = {copy.destination: self.launch.schedule.stages for copy in self.copied}
        allocated = [(op.memref, bytes_of[0]) for op in operations_of(self.launch.kernel)
                     if isinstance(op, memref.AllocOp) and (bytes_of := needed(op)) is not None]  # fmt: skip
        taken = sum(staged.get(tile, 1) * bytes_ for tile, bytes_ in allocated)
        return 2 if taken + size + LEFT_FOR_BARRIERS <= target.shared else 1

    def rewrite(self) -> None:
        """Puts steps of the rings, and tensor copies to their stages, in the place of copies and barriers."""
        index, body, fixed = self.index, self.loop.body.block, dict[SSAValue, SSAValue]()
        staged, stay = ([copy.copy.destination for copy in copies] for copies in (self.copies, self.once))
        if self.of_once is not None:
            before, after = index.before(self.barriers[-1]), index.after(self.loop)
            self._copy(self.once, self.of_once, before)
            fixed = dict.fromkeys(stay, self.of_once.arrive(before, WAIT))
            if self.tiles is not None:
                self.of_once.step(after, RELEASE)
                self.of_once.step(after, READ)
        start = index.before(next(op for op in body.ops if isinstance(op, gpu.BarrierOp)))
        for ring in dict.fromkeys(self.rings.values()):
            self._copy([copy for copy in self.copies if self.rings[copy.copy.destination] == ring], ring, start)
        for loads in self.loads:
            loads.start(index, self.ring)
        schedule = self.launch.schedule
        groups = schedule.consumer_warps // WARPS
        several = schedule.promote != "none" or len({op.a_in_registers for op in self.products}) > 1
        each = schedule.consumers == "pingpong" and several and groups > 1 and not schedule.own_tiles
        consumers = ConsumerLoop(
            self.loop, self.ring, self.rings, fixed, groups, self.in_tensor_memory, self.of_last, each
        )
        consumers.rewrite(index.before(self.loop), start)
        for loads in self.loads:
            loads.receive(index, self.ring, alone=len(self.loads) == 1)
        barriers = [op for op in (*self.barriers, *body.ops) if _is_of_copies(op)]
        for op in [*self.copied, *(copy.copy for copy in self.once), *barriers]:
            Rewriter.erase_op(op)
        for op in [op for op in body.ops if isinstance(op, MatrixOp) and not op.matrix.uses]:
            Rewriter.erase_op(op)
        for tiles, ring in ((staged, self.ring), (stay, self.of_once)):
            for tile in dict.fromkeys(tiles):
                with_stages(tile, 1 if ring is None else ring.stages)

    def _copy(self, copies: Sequence[TensorCopy], ring: Ring, index: IndexBuilder) -> None:
        """Starts copies to the next stage of a ring."""
        stage = ring.arrive(index, ACQUIRE, sum(copy.bytes for copy in copies))
        for copy in copies:
            copy.start(index, stage, ring)
        ring.step(index, FILLED)

    def finish(self) -> None:
        """Gives the launch its threads and its arguments."""
        launch, kernel = self.launch, self.launch.kernel
        threads = (launch.schedule.consumer_warps + WARPS) * LANES
        launch.threads = threads
        sources = [copy.tensor.memory for copy in (*self.once, *self.copies)]
        for memory in dict.fromkeys((*sources, *(matrix.view.memory for matrix in (*self.stores, *self.loads)))):
            launch.drop_unused(memory)
        kernel.attributes["gpu.known_block_size"] = DenseArrayBase.from_list(i32, [threads, 1, 1])
        if max(shape := [prod(launch.schedule.cluster), 1, launch.schedule.cluster_parts]) > 1:
            kernel.attributes[CLUSTER_SIZE] = DenseArrayBase.from_list(i32, shape)
        if launch.schedule.pairs:
            kernel.attributes[PAIRS] = UnitAttr()
        launch.finish()


def _is_of_copies(op: Operation) -> bool:
    """Whether an operation makes all warps wait for copies."""
    return isinstance(op, gpu.BarrierOp) or (isinstance(op, FenceOp) and op.before.data == ASYNC_PROXY)


OpT = TypeVar("OpT", bound=Operation)


def _before(loop: scf.ForOp, kind: type[OpT]) -> list[OpT]:
    """The operations of a kind before a loop in its block."""
    block = loop.parent
    return [op for op in takewhile(lambda op: op is not loop, block.ops if block else ()) if isinstance(op, kind)]


class CopyByTensorMaps(LaunchPattern):
    """Lets the loop over K of a kernel of warpgroups copy by tensor maps to a ring of stages, for a further
    warpgroup."""

    def rewrite(self, launch: LaunchedKernel) -> None:
        if launch.schedule.together == 1:
            return
        for loop in [o for o in operations_of(launch.kernel) if isinstance(o, scf.ForOp) and copies_of(o)]:
            try:
                made = TensorLoop(launch, loop, SpecialisePass.name)
                made.rewrite()
                made.finish()
            except DeclinedError as declined:
                remark(declined.op, SpecialisePass.name, f"nobody copies ahead: {declined.reason}")


@rewrite_pattern
def give_roles(op: gpu.FuncOp, rewriter: PatternRewriter) -> None:
    """Gives roles their operations of a kernel that fills and reads stages of rings: one lane of the last warpgroup
    fills them, and the others do all else."""
    if not isinstance(attribute := op.attributes.get(ScheduleAttr.name), ScheduleAttr):
        return
    producers, end = [inner for inner in operations_of(op) if _fills(inner)], op.body.block.last_op
    rings = [inner for inner in op.body.block.ops if isinstance(inner, MakeRingOp)]
    if not producers or end is None or any(isinstance(each, scf.IfOp) for each in enclosing(producers[0])):
        return
    schedule, registers = attribute.data, _registers(op, attribute.data)
    # Behind the barrier that makes the rings visible.
    made, ring = behind(rings[-1]), Ring(rings[-1].ring)
    ready = next(i for i, one in enumerate(made) if isinstance(one, gpu.BarrierOp | ScopedBarrierOp))
    after = made[ready + 1 : -1]
    # What leads from the loop to the sum of all slices is the consumers', indices too.
    summed = next((i for i, one in enumerate(after) if OF_SLICES in one.attributes), 0)
    loop = max((i for i, one in enumerate(after[:summed]) if isinstance(one, scf.ForOp)), default=0)
    own = [one for one in after[loop:summed] if not isinstance(one, arith.ConstantOp | memref.AllocOp)]
    mine = [one for one in after if one in own or not _is_shared(one)]
    consumers, roles = schedule.consumer_warps, set(mine)
    if registers is not None and registers[2] > 1:
        op.attributes[MIN_CTAS] = IntegerAttr(registers[2], i32)
    index = IndexBuilder(Builder(InsertPoint.before(end)), Builder(InsertPoint.before(op.body.block.first_op or end)))
    warp = index.insert(SubgroupIdOp()).result
    with index.where(index.compare("sge", warp, consumers)) as inside:
        if registers is not None:
            inside.insert(_set_registers(DECREASE, registers[0]))
        first = inside.compare("eq", warp, consumers)
        chosen = inside.insert(ElectOp.create(result_types=[i1])).results[0]
        with inside.where(inside.insert(arith.AndIOp(first, chosen)).result) as lane:
            slice_of(lane, mine, set(producers), {}, lambda one: not roles.isdisjoint((one, *enclosing(one))))
            if schedule.cluster != (1, 1):
                ring.drain(lane)
    for one in reversed(producers):
        _erase(one)
    with index.where(index.compare("slt", warp, consumers)) as inside:
        if registers is not None:
            inside.insert(_set_registers(INCREASE, registers[1]))
        for one in [one for one in mine if one.parent is not None]:
            one.detach()
            inside.insert(one)
        for loop in [one for each in mine for one in operations_of(each) if isinstance(one, scf.ForOp)]:
            compute_late(loop)
            is_over_k = any(use.operation.parent is loop.body.block for use in ring.value.uses)
            if schedule.own_tiles and is_over_k and isinstance(tiles := loop.parent_op(), scf.ForOp):
                take_own_tiles(ring, tiles, loop, consumers // WARPS, inside.before(tiles))
        if any(isinstance(one, TensorStoreOp) for each in mine for one in operations_of(each)):
            inside.insert(WaitOp(BULK, 0, read=True, each_warpgroup=True))
    if end.prev_op is not None:
        end.prev_op.attributes[SOME_WARPS] = IntegerAttr(consumers, i64)


def _fills(op: Operation) -> bool:
    """Whether an operation fills a stage of a ring."""
    return isinstance(op, TensorLoadOp) or (isinstance(op, PipelineOp) and op.step.data in (ACQUIRE, FILLED))


def _erase(op: Operation) -> None:
    """Erases an operation, and what it alone is computed from beside it."""
    operands, block = list(op.operands), op.parent
    Rewriter.erase_op(op)
    for made in [value.owner for value in operands if not value.uses]:
        if isinstance(made, Operation) and made.parent is block and is_pure(made):
            _erase(made)


def _registers(kernel: gpu.FuncOp, schedule: Schedule) -> tuple[int, int, int] | None:
    """The registers of a thread of the producer and of the consumers, and how many CTAs share an SM; None if they are
    not reallocated."""
    products, target = [op for op in operations_of(kernel) if isinstance(op, WgmmaOp)], target_of(kernel)
    starts = [op.c for op in products if not isinstance(op.c.owner, WgmmaOp)]
    sums, groups = sum(fragment_of(value).registers for value in starts), schedule.consumer_warps // WARPS
    of_attention = any(op.a_in_registers for op in products)
    if target is not None and adds_in_tensor_memory(target):
        split = (OF_ATTENTION if of_attention else OF_TENSOR_MEMORY).get(groups)
    elif groups == 1 < len(starts) and of_attention and target is not None:
        return next((each for ctas in SHARING if (each := _shared_by(ctas, kernel, sums, target))), None)
    else:
        split = MANY_SUMS if groups == 2 and sums >= MAX_SUMS else REGISTERS.get(groups)
    return None if split is None else (*split, 1)


def _shared_by(ctas: int, kernel: gpu.FuncOp, sums: int, target: Target) -> tuple[int, int, int] | None:
    """The registers of a thread of the producer and of the consumer where so many CTAs share an SM, which has registers
    and memory for them; None if it has not."""
    each = SM_REGISTERS // (ctas * 2 * WARPS * LANES) // REGISTER_STEP * REGISTER_STEP
    memory = RESERVED + sum(bytes_of[0] for op in operations_of(kernel) if (bytes_of := needed(op)) is not None)
    of_consumer = 2 * each - OF_PRODUCER
    if of_consumer < sums + BESIDE_SUMS or ctas * memory > target.shared + RESERVED:
        return None
    return OF_PRODUCER, of_consumer, ctas


def _set_registers(action: Attribute, count: int) -> Operation:
    return RegistersOp.create(properties={"action": action, "regCount": IntegerAttr(count, i32)})


class SpecialisePass(PatternPass):
    """Adds a producer warpgroup to kernels of warpgroups. The producer copies tiles by tensor maps to a ring of stages,
    while the other warpgroups multiply.

    It runs after `warp-persist`. It does not change a kernel that it cannot specialise, and `warploom-opt --remarks`
    says why. The kernel is also correct without it.
    """

    name = "warp-specialise"
    needs: ClassVar = ("warp.wgmma",)
    patterns = CopyByTensorMaps, give_roles

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for pattern in self.patterns:
            apply_patterns([pattern], op)
        if any(isinstance(each, WgmmaOp) and each.a_in_registers for each in op.walk()):
            apply_patterns([rotate_products], op)
