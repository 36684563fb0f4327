"""Loops that copy tiles to shared memory, the rings of stages that they fill, and `warp-synchronise`.

A K loop is read by def-use: what counts is who makes and who uses what, not where it stands. Copies come before a
barrier, loads of what they copy between it and another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple, NoReturn, TypeGuard, cast

from xdsl.dialects import arith, gpu, memref, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr, i8, i64
from xdsl.ir import Block, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.isa.wgmma import WARPGROUP_SM, WARPS
from ...dialect.layouts.layout import LANES
from ...dialect.mlir.gpu import BarrierOp
from ...dialect.warp.attributes import ScheduleAttr, enclosing, in_pairs, is_shared, memory_of, target_of
from ...dialect.warp.cta import ACQUIRE, COMMIT, FILLED, READ, RELEASE, WAIT, MakeRingOp, PipelineOp, RingType
from ...dialect.warp.memory import CopyOp, LoadOp, fills_shared
from ...dialect.warp.mma import MmaOp
from ...dialect.warp.op_shapes import is_pure, only_reads
from ...dialect.warp.operands import FindGroupOp
from ...dialect.warp.synchronisation import (
    BARRIER_BYTES,
    CP_ASYNC,
    LAUNCHES,
    ArriveOp,
    AwaitOp,
    BarriersType,
    CommitOp,
    MakeBarriersOp,
    WaitOp,
)
from ...dialect.warp.tensor_maps import PrefetchOp, TensorLoadOp, TensorMapType
from ..allocate import OFFSET, offset_of
from ..diagnostics import fail
from ..patterns import (
    Index,
    IndexBuilder,
    PatternPass,
    all_operands,
    constant_value,
    op_type_rewrite_pattern,
    rewrite_pattern,
)

# A K loop that copies tiles to shared memory and computes with them.


class DeclinedError(Exception):
    """Why a loop is left as it is, and the operation that is the reason."""

    def __init__(self, op: Operation, reason: str) -> None:
        super().__init__(reason)
        self.op, self.reason = op, reason


def decline(op: Operation, reason: str) -> NoReturn:
    """Leaves the loop as it is because of `op`."""
    raise DeclinedError(op, reason)


def is_load(op: Operation) -> TypeGuard[LoadOp]:
    """Whether an operation reads a fragment from a tile in shared memory, and can from one of several stages."""
    return isinstance(op, LoadOp) and (op.along is None or is_shared(memory_of(op.memory)))


class LoopStep(NamedTuple):
    """Fragments that are loaded together, one step ahead of the products, and the operations up to the next loads."""

    loads: list[LoadOp]
    ops: list[Operation]


class CopyLoop(NamedTuple):
    """A K loop: copies, barrier, steps, barrier."""

    loop: scf.ForOp
    copies: tuple[CopyOp, ...]
    steps: tuple[LoopStep, ...]

    @property
    def body(self) -> Block:
        return self.loop.body.block

    @property
    def counter(self) -> SSAValue:
        return self.body.args[0]

    @property
    def yielded(self) -> Sequence[SSAValue]:
        return self.body.ops.last.operands if self.body.ops.last is not None else ()

    @property
    def counts(self) -> bool:
        """Whether something that is computed, not only copied, depends on the loop's counter."""
        return self.counter in self.yielded or any(self.counter in all_operands(op) for s in self.steps for op in s.ops)

    def has(self, op: Operation) -> bool:
        """Whether an operation is in the loop's body."""
        return op.parent is self.body

    def depends(self, value: SSAValue) -> bool:
        """Whether an index follows from the counter."""
        return self.counter in self.leaves(value)

    def leaves(self, value: SSAValue) -> Iterator[SSAValue]:
        """The values from which an index is computed: the counter, and values from outside of the loop."""
        op = value.owner
        if isinstance(op, Operation) and self.has(op):
            for operand in op.operands:
                yield from self.leaves(operand)
        else:
            yield value

    def value_at(self, value: SSAValue, k: int) -> int | None:
        """An index that only multiplies and divides the counter by constants, where the counter is k."""
        if value == self.counter:
            return k
        op = value.owner
        if not isinstance(op, arith.MuliOp | arith.DivUIOp):
            return None
        inner, by = self.value_at(op.lhs, k), constant_value(op.rhs)
        if inner is None or by is None:
            return None
        return inner * by if isinstance(op, arith.MuliOp) else inner // by


def copies_of(loop: scf.ForOp) -> tuple[CopyOp, ...]:
    """The synchronous copies to shared memory of a loop; empty if some of its copies are asynchronous."""
    copies = tuple(op for op in loop.body.block.ops if isinstance(op, CopyOp))
    return () if any(copy.is_async is not None or copy.stage for copy in copies) else copies


def read(loop: scf.ForOp) -> CopyLoop:
    """Reads a loop with copies to shared memory. Raises DeclinedError naming the operation that keeps them behind."""
    copies = copies_of(loop)
    tiles = {copy.destination for copy in copies}
    for copy in copies:
        _check_tile(copy, loop)
    _check_order(loop, tiles)
    copy_loop = CopyLoop(loop, copies, _steps(loop, tiles))
    if not any(step.loads for step in copy_loop.steps):
        decline(loop, "nothing that the loop computes reads the tiles that it copies")
    for op in (*copies, *(load for step in copy_loop.steps for load in step.loads)):
        for i in (*op.indices, *([op.source] if isinstance(op, CopyOp) else [])):
            _check_index(op, i, copy_loop, is_copy=isinstance(op, CopyOp))
    return copy_loop


def _check_tile(copy: CopyOp, loop: scf.ForOp) -> None:
    """Checks that only copies and loads of this loop use a tile, since it gets a dimension of stages."""
    if not isinstance(copy.destination.owner, memref.AllocOp):
        decline(copy, "its tile is not allocated in this kernel")
    for use in copy.destination.uses:
        if use.operation.parent is not loop.body.block:
            decline(use.operation, "it uses a tile of a loop that it stands outside of, so the tile has one stage")
        if not (isinstance(use.operation, CopyOp) or is_load(use.operation)):
            decline(use.operation, f"{use.operation.name} cannot read one of several stages of a tile")


def _check_order(loop: scf.ForOp, tiles: set[SSAValue]) -> None:
    """Copies, a barrier, loads, a barrier; nothing else writes memory."""
    barriers = loaded = 0
    for op in loop.body.block.ops:
        if isinstance(op, gpu.BarrierOp):
            barriers += 1
        elif isinstance(op, CopyOp):
            if barriers:
                decline(op, "it is behind a barrier, where tiles are already read")
        elif is_load(op) and op.memory in tiles:
            loaded = barriers
            if not barriers:
                decline(op, "no barrier is between it and the copies of what it loads")
        elif not (isinstance(op, scf.YieldOp) or only_reads(op)):
            decline(op, f"{op.name} in the loop may write memory")
    if barriers <= loaded:
        decline(loop, "no barrier keeps the next copies from tiles that are still read")


def _steps(loop: scf.ForOp, tiles: set[SSAValue]) -> tuple[LoopStep, ...]:
    """The operations of the loop in order, divided into steps. A load after a product begins a step."""
    body, needed, steps = loop.body.block, set[Operation](), [LoopStep([], [])]
    for op in reversed(list(body.ops)):
        if isinstance(op, scf.YieldOp) or any(use.operation in needed for r in op.results for use in r.uses):
            needed |= {op, *(inner for value in all_operands(op) if isinstance(inner := value.owner, Operation))}
    for op in body.ops:
        if op not in needed or isinstance(op, scf.YieldOp):
            continue
        if is_load(op) and op.memory in tiles:
            if any(isinstance(before, MmaOp) for before in steps[-1].ops):
                steps.append(LoopStep([], []))
            steps[-1].loads.append(op)
        else:
            steps[-1].ops.append(op)
    return tuple(steps)


def _check_index(op: Operation, i: SSAValue, loop: CopyLoop, *, is_copy: bool) -> None:
    """Copies and loads of another tile along K need their indices anew, without what the loop computes."""
    if i == loop.counter:
        if not is_copy:
            decline(op, "it reads another place of its tile in each turn of the loop")
        return
    if i in loop.body.args:
        decline(op, "it is at a place that the turn before has computed")
    if not isinstance(i.owner, Operation) or not loop.has(i.owner):
        return
    if not is_pure(i.owner) and not (is_copy and isinstance(i.owner, memref.LoadOp)):
        decline(op, f"it is at a place that {i.owner.name} reads in each turn of the loop")
    for operand in i.owner.operands:
        _check_index(op, operand, loop, is_copy=is_copy)


# Rings of stages, and what passes that make them have in common.


class Ring(NamedTuple):
    """A ring of stages, in the IR as `value`."""

    value: SSAValue

    @property
    def stages(self) -> int:
        """How many it has."""
        return cast("RingType", self.value.type).count.data

    def step(
        self, index: IndexBuilder, step: str, stage: Index | None = None, parity: Index | None = None, bytes: int = 0,
        *, products: bool = False, late: bool = False, by: Index | None = None,
    ) -> PipelineOp:  # fmt: skip
        """One step of who fills or reads a stage: the one that it is at, if none is named."""
        at, phase, more = (None if number is None else index.value(number) for number in (stage, parity, by))
        op = PipelineOp(step, self.value, at, phase, by=more, bytes=bytes or None, products=products, late=late)
        return index.insert(op)

    def arrive(self, index: IndexBuilder, step: str, bytes: int = 0) -> SSAValue:
        """Waits for the stage that it is at, and gives its number."""
        return index.insert(PipelineOp(step, self.value, bytes=bytes or None, number=IndexType())).results[0]

    def next(self, index: IndexBuilder, stage: Index, parity: Index) -> tuple[Index, Index]:
        """The next stage and its parity, which flips with each round."""
        following = index.wrap(index.add(stage, 1), self.stages)
        if isinstance(following, int):
            return following, parity if following else index.sub(1, parity)
        return following, index.select("eq", following, 0, index.sub(1, parity), parity)

    def drain(self, index: IndexBuilder) -> None:
        """Waits until all CTAs have read what was copied to them."""
        with index.loop(0, self.stages, 1) as turn:
            self.step(turn.index, ACQUIRE)
            self.step(turn.index, FILLED)

    def after(self, index: IndexBuilder, stage: Index, parity: Index, count: Index) -> tuple[Index, Index]:
        """The stage and its parity so many stages later."""
        if isinstance(count, int) and count % self.stages == 0:
            return stage, index.sub(1, parity) if count // self.stages % 2 else parity
        there = index.add(stage, count)
        turned = index.add(parity, index.div(there, self.stages))
        return index.rem(there, self.stages), index.rem(turned, 2)


# `warp-synchronise`: the stages of steps, carried through loops, and the steps as barriers.


class StageOf(NamedTuple):
    """Where producers or consumers are in a ring: the stage, its parity, and the stage before that is left to be
    released, which is number `stages` where there is none."""

    stage: Index
    parity: Index
    before: Index


class CarryStages(RewritePattern):
    """Names the stage and the parity of each step of a ring that names none. Loops that go on to others carry them."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: MakeRingOp, rewriter: PatternRewriter) -> None:
        block, steps = op.parent, [use.operation for use in op.ring.uses]
        if block is None or op.ahead is not None:
            return
        self.index, self.ring = IndexBuilder(op), Ring(op.ring)
        for parity, kinds in ((1, (ACQUIRE, COMMIT, FILLED)), (0, (WAIT, RELEASE, READ))):
            every = [one for one in steps if isinstance(one, PipelineOp) and one.step.data in kinds]
            self.steps = {one for one in every if one.stage is None}
            self.moves = {outer for one in every if one.step.data in (FILLED, READ) for outer in enclosing(one)}
            self._follow(block, StageOf(0, parity, self.ring.stages))

    def _follow(self, block: Block, at: StageOf) -> StageOf:
        """Names the stages of the steps of a block: where they are behind it."""
        for op in list(block.ops):
            if isinstance(op, PipelineOp) and op in self.steps:
                at = self._step(op, at)
            elif isinstance(op, scf.ForOp) and op in self.moves:
                at = self._loop(op, at)
            elif op in self.moves and not isinstance(op, scf.IfOp):
                fail(op, f"expected steps that go on to other stages in scf.for, which carries them, not in {op.name}")
            else:
                for inner in [each for region in op.regions for each in region.blocks]:
                    self._follow(inner, at)
        return at

    def _step(self, op: PipelineOp, at: StageOf) -> StageOf:
        index, step = self.index.before(op), op.step.data
        stage, parity, before = at
        if step in (FILLED, READ):
            number = None if op.by is None else index.folded(op.by)
            ring = self.ring
            moved = ring.next(index, stage, parity) if number is None else ring.after(index, stage, parity, number)
            at = StageOf(*moved, before if op.late is None else stage)
        elif op.late is not None:
            with index.where(index.compare("ne", before, self.ring.stages)) as inside:
                self.ring.step(inside, step, before)
            at = at._replace(before=self.ring.stages)
        else:
            phase = parity if step in (ACQUIRE, WAIT) else None
            new = self.ring.step(index, step, stage, phase, products=op.products is not None)
            new.bytes = op.bytes
            if op.number is not None:
                op.number.replace_all_uses_with(index.value(stage))
        Rewriter.erase_op(op)
        return at

    def _loop(self, loop: scf.ForOp, at: StageOf) -> StageOf:
        """A loop that carries what it changes."""
        body, outside, count = loop.body.block, self.index.before(loop), len(loop.body.block.args)
        inside = StageOf(*(body.insert_arg(IndexType(), count + i) for i in range(len(at))))
        after, end = self._follow(body, inside), body.last_op
        if not isinstance(end, scf.YieldOp):
            fail(loop, "expected a loop that ends with scf.yield")
        turns = list(zip(inside, after, at, strict=True))
        same = [now is start or (isinstance(now, int) and now == first) for start, now, first in turns]
        changed = [i for i in range(len(at)) if not same[i]]
        for i in range(len(at)):
            if i not in changed:
                body.args[count + i].replace_all_uses_with(outside.value(at[i]))
        handed = self.index.before(end).values([after[i] for i in changed])
        for argument in [body.args[count + i] for i in range(len(at)) if i not in changed]:
            body.erase_arg(argument)
        Rewriter.replace_op(end, scf.YieldOp(*end.operands, *handed))
        initial = [*loop.iter_args, *outside.values([at[i] for i in changed])]
        new = outside.insert(scf.ForOp(loop.lb, loop.ub, loop.step, initial, loop.detach_region(0)))
        for result, made in zip(loop.results, new.results, strict=False):
            result.replace_all_uses_with(made)
        Rewriter.erase_op(loop)
        results = dict(zip(changed, new.results[count - 1 :], strict=True))
        return StageOf(*(results.get(i, at[i]) for i in range(len(at))))


@rewrite_pattern
def cta_barrier_ring(op: MakeRingOp, rewriter: PatternRewriter) -> None:
    """A ring in which all warps meet at one barrier in each stage, which serves both directions: before it every warp
    has read the stage that the next copies overwrite, and after it the copies of all warps have arrived."""
    if op.ahead is None:
        return
    for use in list(op.ring.uses):
        step = use.operation
        made: dict[str, list[Operation]] = {
            COMMIT: [CommitOp(CP_ASYNC)],
            WAIT: [WaitOp(CP_ASYNC, op.ahead.value.data), BarrierOp()],
        }
        rewriter.replace(step, made.get(_step(step).step.data, []), [])
    rewriter.erase(op)


@rewrite_pattern
def mbarrier_ring(op: MakeRingOp, rewriter: PatternRewriter) -> None:
    """A ring with two mbarriers for each stage: copies arrive at `full`, warps that have read arrive at `empty`.

    A warp waits only for the data that it needs, and before it overwrites a stage, for its slowest reader. Warps may
    drift apart by the number of filled stages. So one can store its results while another multiplies.
    """
    if op.writers is None or op.readers is None:
        return
    stages, uses = BarriersType.of(op.ring.type.count.data), list(op.ring.uses)
    full, empty = (MakeBarriersOp(stages, arrivals.value.data) for arrivals in (op.writers, op.readers))
    full.barriers.name_hint, empty.barriers.name_hint = "full", "empty"
    if OFFSET in op.attributes:
        for made, first in ((full, 0), (empty, stages.count.data * BARRIER_BYTES)):
            made.attributes[OFFSET] = IntegerAttr(offset_of(op) + first, i64)
    rewriter.insert([full, empty])
    for use in uses:
        if use.operation.name == "warp.tensor_load":
            use.operation.operands[use.index] = full.barriers
            continue
        made = _of(_step(use.operation), full.barriers, empty.barriers, op)
        if in_pairs(op):
            _tell_first(rewriter, use.operation, made)
        rewriter.replace(use.operation, made, [])
    rewriter.erase(op)


def _of(step: PipelineOp, full: SSAValue, empty: SSAValue, ring: MakeRingOp) -> list[Operation]:
    """What a step is at the mbarriers of its stage."""
    name, stage, parity = step.step.data, step.stage, step.parity
    if stage is None:
        fail(step, "expected a stage of a ring that is not waited for at a barrier of the CTA")
    if step.products is not None:
        return [ArriveOp(full if name == COMMIT else empty, stage, products=True)]
    if name == COMMIT:
        return [ArriveOp(full, stage, copies=True)]
    if parity is None:
        by = [i % WARPS * LANES if ring.each_warpgroup else None for i in range(1 + len(ring.peers))]
        return [ArriveOp(empty, stage, to, by=one) for one, to in zip(by, (None, *ring.peers), strict=True)]
    if name == WAIT or step.bytes is None:
        return [AwaitOp(full if name == WAIT else empty, stage, parity)]
    return [AwaitOp(empty, stage, parity), ArriveOp(full, stage, bytes=step.bytes.value.data)]


def _tell_first(rewriter: PatternRewriter, step: Operation, made: Sequence[Operation]) -> None:
    """Lets both CTAs of a pair arrive at the barriers of the first, who waits for both."""
    for arrive in made:
        if isinstance(arrive, ArriveOp) and arrive.products is None:
            rewriter.insert(zero := arith.ConstantOp(IntegerAttr(0, IndexType())), InsertPoint.before(step))
            arrive.operands = [arrive.barriers, arrive.number, zero.result]


def _step(op: Operation) -> PipelineOp:
    if not isinstance(op, PipelineOp):
        fail(op, f"{op.name} is no step of a ring")
    return op


PRODUCTS, OVERLAP = ("warp.mma", "warp.wgmma"), (LAUNCHES, "nvvm.griddepcontrol")
PROLOGUE = "gpu.", "memref.alloc", "memref.dim", "warp.make_", "warp.fence", "warp.barrier"
"""Products; what lets launches overlap; the beginnings of the names of what accesses no global memory."""

PREFETCHED = 32 << 10
"""Bytes of weights of a CTA that are in L2 when it begins to copy them."""


@rewrite_pattern
def wait_for_launches(op: gpu.FuncOp, rewriter: PatternRewriter) -> None:
    """Lets kernels of products begin before the launches ahead have ended, and wait for them before they access memory
    (H100, 0.27 us of each). Packed weights' slices let others begin then, too (H200, 0.92 to 0.98 of the time)."""
    names = {one.group.data if isinstance(one, CommitOp | WaitOp) else one.name for one in op.walk()}
    is_measured = (target := target_of(op)) is not None and target.sm == WARPGROUP_SM
    if is_measured and names.isdisjoint(OVERLAP) and not names.isdisjoint(PRODUCTS):
        ops = op.body.block.ops
        accesses = (o for o in ops if isinstance(o, FindGroupOp) or not (is_pure(o) or o.name.startswith(PROLOGUE)))
        first = next(o for o in accesses if not fills_shared(o))
        index, schedule = IndexBuilder(first), op.attributes.get(ScheduleAttr.name)
        wait = index.insert(WaitOp(LAUNCHES, 0))
        if isinstance(schedule, ScheduleAttr) and schedule.data.in_registers == "b" and schedule.data.sliced_k > 1:
            _prefetch_weights(IndexBuilder(wait), op, first)
            index.insert(CommitOp(LAUNCHES))


def _prefetch_weights(index: IndexBuilder, function: gpu.FuncOp, first: Operation) -> None:
    """Brings about `PREFETCHED` bytes of the weights that a CTA begins with into L2, and what it copies once. It does
    so before it waits: what launches ahead still write is right in L2, too."""

    def follows(op: Operation) -> bool:
        return op.parent is not first.parent or first.is_before_in_block(op)

    weights = [
        (load, loop, kind.bytes)
        for load in function.walk()
        if isinstance(load, TensorLoadOp) and isinstance(loop := load.parent_op(), scf.ForOp)
        if isinstance(kind := load.map.type, TensorMapType) and kind.element_type == i8
    ]
    for turn in range(PREFETCHED // max(1, sum(bytes for *_, bytes in weights))):
        for load, loop, _ in weights:
            mapped = dict[SSAValue, SSAValue]()
            begin, step = (index.folded(index.again(value, mapped, follows)) for value in (loop.lb, loop.step))
            mapped[loop.body.block.args[0]] = index.value(index.add(begin, index.mul(step, turn)))
            index.insert(PrefetchOp(load.map, [index.again(at, mapped, follows) for at in load.coordinates]))
    for load in function.walk():  # scales of all groups
        if isinstance(load, TensorLoadOp) and not any(isinstance(op, scf.ForOp) for op in enclosing(load)):
            index.insert(PrefetchOp(load.map, [index.again(at, {}, follows) for at in load.coordinates]))


class SynchronisePass(PatternPass):
    """Replaces rings and their steps by mbarriers or barriers of the CTA; kernels of products wait for launches."""

    name = "warp-synchronise"
    needs: ClassVar = ("warp.make_ring", *PRODUCTS)
    patterns = CarryStages, cta_barrier_ring, mbarrier_ring, wait_for_launches
