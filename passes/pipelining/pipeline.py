"""`warp-pipeline`: loops overlap copies to shared memory with the products that read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar, NamedTuple, TypeAlias

from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import Rewriter

from ...dialect.mlir.gpu import BarrierOp
from ...dialect.schedule import Schedule
from ...dialect.warp.attributes import ScheduleAttr, memory_of, schedule_around
from ...dialect.warp.cta import ACQUIRE, COMMIT, RELEASE, WAIT, MakeRingOp, RingType
from ...dialect.warp.memory import CopyOp
from ...dialect.warp.op_shapes import bounds, bounds_attribute, is_pure, only_reads
from ...dialect.warp.synchronisation import CP_ASYNC, CommitOp, WaitOp
from ..allocate import with_stages
from ..diagnostics import remark
from ..patterns import Index, IndexBuilder, PatternPass, constant_value, rewrite_pattern
from .ring import CopyLoop, DeclinedError, LoopStep, Ring, copies_of, decline, read

# One pipelined loop: overlaps copies to shared memory with the products that read them.
#
# A ring of `stages` buffers is kept full: while K tile t is multiplied, tile t + prefetch is on its way into a buffer
# that was read before. Fragments are double-buffered in registers too: those of the next product load while the
# current one multiplies, the first of the next tile under the last product of this one. So a K tile needs one wait,
# and it comes before its last product::
#
#     fill stages 0 .. prefetch-1; wait for stage 0; load fragments of product 0
#     for each K tile:
#       load for product 1;  copy tile t + prefetch; multiply product 0
#       load for product 2;                          multiply product 1
#       ...
#       wait for the next tile; load its product 0;  multiply the last product
#
# How warps wait, `warp-synchronise` says. Tiles past the end of K are copied as zeros, so that the count of copies in
# flight stays the same; or, where a CTA goes on from one tile of the result to the next, they are the first K tiles of
# the next one::
#
#     fill stages 0 .. prefetch-1 with the first tile's; wait; load fragments of product 0
#     for each tile of this CTA:
#       for each K tile but the last `prefetch`: as above
#       for the last `prefetch` K tiles:         as above, but copy the next tile's first K tiles
#       store the accumulators

Moved: TypeAlias = Mapping[SSAValue, SSAValue]
"""Indices of one tile of the result, and what they are for another."""

CopyTo: TypeAlias = Callable[[Index], None]
"""Starts the copies of a K tile into a stage."""


class Carried(NamedTuple):
    """The values that the K loop carries: accumulators, the fragments of its first product, and the state of warps.

    `changing` are the entries of the state that change in an iteration.
    """

    accumulators: list[SSAValue]
    fragments: list[SSAValue]
    state: list[Index]
    changing: tuple[int, ...]

    def values(self, index: IndexBuilder) -> list[SSAValue]:
        """All as values, for the variables of a loop."""
        return [*self.accumulators, *self.fragments, *index.values([self.state[i] for i in self.changing])]

    def of(self, values: Sequence[SSAValue]) -> Carried:
        """The same, with other values."""
        sums, loaded = len(self.accumulators), len(self.accumulators) + len(self.fragments)
        state = list(self.state)
        for i, value in zip(self.changing, values[loaded:], strict=True):
            state[i] = value
        return Carried([*values[:sums]], [*values[sums:loaded]], state, self.changing)


class Turns(NamedTuple):
    """The iterations of a loop over K tiles: its end along K, its step, and the start of the first tile."""

    end: Index
    step: int
    start: int = 0


def copied_once(source: CopyLoop) -> tuple[gpu.BarrierOp | None, list[CopyOp]]:
    """The barrier before the loop that waits for tiles which are copied once, and these copies. The loop's first copies
    and loads may move to it: nothing between writes memory, and their operands are defined before."""
    barrier = source.loop.prev_op
    while barrier is not None and not isinstance(barrier, gpu.BarrierOp) and only_reads(barrier):
        barrier = barrier.prev_op
    if not isinstance(barrier, gpu.BarrierOp):
        return None, []
    needed = [leaf for op in (*source.copies, *source.steps[0].loads) for i in op.operands for leaf in source.leaves(i)]
    made = [value.owner for value in needed if isinstance(value.owner, Operation)]
    if not all(op.parent is not barrier.parent or op.is_before_in_block(barrier) for op in made):
        return None, []
    return barrier, [op for op in _back_to_barrier(barrier) if isinstance(op, CopyOp) and op.is_async is None]


def _back_to_barrier(op: Operation) -> Iterator[Operation]:
    """The operations before one, back to a barrier."""
    while (before := op.prev_op) is not None and not isinstance(before, gpu.BarrierOp):
        yield (op := before)


class Pipeliner:
    """Rewrites one loop whose `count` tiles along K are `k_step` deep, with copies `prefetch` tiles ahead; in a loop
    around it over `tiles` of the result, or alone. Raises DeclinedError, naming the operation for which the loop stays
    as it is."""

    def __init__(self, loop: scf.ForOp, schedule: Schedule) -> None:
        self.source, self.schedule, around = read(loop), schedule, loop.parent_op()
        step, lower, upper = (constant_value(value) for value in (loop.step, loop.lb, loop.ub))
        if step is None or lower != 0:
            decline(loop, "its step must be a constant, and it must start at the constant 0")
        self.k_step, self.count, self.prefetch = step, -(-(upper or 0) // step), schedule.tiles_ahead
        if schedule.unroll and (upper is None or not self.count or self.count % schedule.unroll):
            decline(loop, f"unroll = {schedule.unroll} takes a known multiple of as many turns")
        self.tiles = around if isinstance(around, scf.ForOp) else None
        if self.tiles is not None:
            if not self.count:
                decline(loop, "in a loop over tiles it must have turns, of a number that is known")
            _check_tiles(self.source, self.tiles)
            self.prefetch = min(self.prefetch, self.count)
        self.index = IndexBuilder(self.tiles or loop)

    def rewrite(self) -> None:
        """Puts the pipelined loop in place of the loop."""
        if self.tiles is None:
            self._rewrite_alone()
        else:
            self._rewrite_tiles(self.tiles)

    @property
    def drifts(self) -> bool:
        """Whether warps wait on mbarriers, so that no barrier keeps them in step."""
        return self.schedule.sync == "mbarrier"

    @property
    def last(self) -> int:
        """Where the last K tile starts."""
        return (self.count - 1) * self.k_step

    def _rewrite_alone(self) -> None:
        """Pipelines a kernel of one CTA for each tile of the result, which consists of the loop over K alone.

        Tiles that are copied once before the loop arrive with the first K tiles.
        """
        loop, index = self.source.loop, self.index
        barrier, once = copied_once(self.source)
        if barrier is not None and once:
            self.index = IndexBuilder(barrier)
            index = self.index.before(loop)
            for copy in once:
                copy.is_async = UnitAttr()
        carried = self.prologue({}, list(loop.iter_args))
        if self.schedule.unroll:
            carried = self.unrolled(index, carried, None)
        else:
            carried = self.loop(index, Turns(loop.ub, self.k_step), None, carried)
        if self.schedule.sync != "barrier":
            self._drain(index)
        self._replace_loop(carried)
        if barrier is not None and once:
            Rewriter.erase_op(barrier)

    def _rewrite_tiles(self, tiles: scf.ForOp) -> None:
        """Pipelines a loop over output tiles, in which a CTA computes several of them."""
        outer, old = self.index, tiles.body.block
        for op in [op for op in old.ops if isinstance(op, arith.ConstantOp)]:
            op.detach()  # what reads the first stage stands before the loop
            outer.insert(op)
        start = self.prologue(self._moved(outer, old.args[0], tiles.lb), [])
        with outer.loop(tiles.lb, tiles.ub, tiles.step, start.values(outer)) as turn:
            index, carried = turn.index, start.of(turn.carried)
            old.args[0].replace_all_uses_with(turn.counter)
            for op in list(old.ops):
                if op is self.source.loop:
                    sums = list(self.source.loop.iter_args)
                    carried = self._whole_tile(index, tiles, turn.counter, carried._replace(accumulators=sums))
                    self._replace_loop(carried)
                elif not isinstance(op, scf.YieldOp):
                    op.detach()
                    index.insert(op)
            turn.handed = carried._replace(accumulators=[]).values(index)
        self._drain(outer)
        Rewriter.erase_op(tiles)

    def _whole_tile(self, index: IndexBuilder, tiles: scf.ForOp, tile: SSAValue, carried: Carried) -> Carried:
        """All K tiles of one tile of the result, and the copies of the next one's first.

        The last tile has no next one; its own first K tiles are copied again, and nobody reads them.
        """

        def moved() -> Moved:
            following = index.add(tile, tiles.step)
            following = index.select("slt", following, tiles.ub, following, tile)
            return self._moved(index, tile, index.value(following))

        if self.schedule.unroll:
            return self.unrolled(index, carried, moved)
        own = (self.count - self.prefetch) * self.k_step
        if own:
            carried = self.loop(index, Turns(own, self.k_step), self.last, carried)
        last, turns = (self.prefetch - 1) * self.k_step, Turns(self.prefetch * self.k_step, self.k_step, own)
        return self.loop(index, turns, last, carried, moved())

    def prologue(self, moved: Moved, sums: list[SSAValue]) -> Carried:
        """Fills the ring, waits for its first tile and loads the first fragments of it."""
        index = self.index
        for tile in dict.fromkeys(copy.destination for copy in self.source.copies):
            with_stages(tile, self.schedule.stages)
        self.ring, state = self._ring(index)
        for stage in range(self.prefetch):
            k = stage * self.k_step
            self.copy(index, k, k, moved, stage)
            self.ring.step(index, COMMIT, stage if self.drifts else None)
        self.ring.step(index, WAIT, *((0, 0) if self.drifts else (None, None)))
        # After as many K tiles as there are stages parities alone differ.
        parities = (1, 3) if self.drifts else ()
        changing = parities if self.schedule.unroll else tuple(range(len(state)))
        return Carried(sums, self.load(index, self.source.steps[0], 0), state, changing)

    def loop(
        self, index: IndexBuilder, turns: Turns, reach: int | None, carried: Carried, moved: Moved | None = None
    ) -> Carried:
        """A loop over K tiles of this tile of the result; its copies are ahead, or of the one that `moved` leads to."""
        with index.loop(0, turns.end, turns.step, carried.values(index)) as turn:
            inside, now = turn.index, carried.of(turn.carried)
            for i in range(turns.step // self.k_step):
                k = inside.add(turn.counter, (i + (self.prefetch if moved is None else 0)) * self.k_step)
                here = partial(inside.add, turn.counter, turns.start + i * self.k_step)
                now = self.k_tile(inside, here, partial(self.copy, inside, k, reach, moved or {}), now)
            turn.handed = now.values(inside)
        return carried.of(turn.results)

    def unrolled(self, index: IndexBuilder, carried: Carried, following: Callable[[], Moved] | None) -> Carried:
        """All K tiles. An iteration has one for each stage, or a multiple of that; the remainder follows the loop.

        The last tiles start the first copies of the `following` tile of the result, if there is one.
        """
        unroll = self.schedule.unroll
        start = self.count - unroll
        if start:
            carried = self.loop(index, Turns(start * self.k_step, unroll * self.k_step), self.last, carried)
        moved = None if following is None else following()
        for i in range(unroll):
            k, beyond = (start + i + self.prefetch) * self.k_step, (i + self.prefetch - unroll) * self.k_step
            copy = None if moved is None else partial(self.copy, index, beyond, beyond, moved)
            if beyond < 0:
                copy = partial(self.copy, index, k, k, {})
            here = (start + i) * self.k_step
            carried = self.k_tile(index, lambda at=here: at, copy, carried)
        return carried

    def k_tile(self, index: IndexBuilder, here: Callable[[], Index], copy: CopyTo | None, carried: Carried) -> Carried:
        """One K tile, which starts `here`: its products, the copies it starts, the first fragments of the next one."""
        source, state = self.source, carried.state
        now: dict[SSAValue, SSAValue] = dict(zip(source.body.args[1:], carried.accumulators, strict=True))
        now |= dict(zip((load.fragment for load in source.steps[0].loads), carried.fragments, strict=True))
        if source.counts:
            now[source.counter] = index.value(here())
        upcoming: list[SSAValue] = []
        for i, step in enumerate(source.steps):
            last = i == len(source.steps) - 1
            if not last:
                following = source.steps[i + 1]
                loaded = self.load(index, following, state[0])
                now |= dict(zip((load.fragment for load in following.loads), loaded, strict=True))
            if i == min(1 if self.drifts else 0, len(source.steps) - 1):
                stage = self._acquired(index, state)
                if copy is not None:
                    copy(stage)
                self.ring.step(index, COMMIT, stage if self.drifts else None)
            if last:
                state = self._following(index, state)
                upcoming = self.load(index, source.steps[0], state[0])
            for op in step.ops:
                now |= dict(zip(op.results, index.insert(op.clone(now)).results, strict=True))
        sums = [now.get(value, value) for value in source.yielded]
        return Carried(sums, upcoming, state, carried.changing)

    # The ring. What warps know of it are the stage that is read and the one that is copied to next, each with the
    # parity of its phase where warps drift apart.

    def _ring(self, index: IndexBuilder) -> tuple[Ring, list[Index]]:
        """The ring, and its state after the first copies were started."""
        schedule, stages = self.schedule, RingType.of(self.schedule.stages)
        if not self.drifts:
            return Ring(index.insert(MakeRingOp(stages, ahead=self.prefetch - 1)).ring), [0, self.prefetch]
        ring = Ring(index.insert(MakeRingOp(stages, schedule.threads, schedule.warps)).ring)
        index.insert(BarrierOp())
        return ring, [0, 0, self.prefetch, 1]

    def _acquired(self, index: IndexBuilder, state: list[Index]) -> Index:
        """The stage that the next tile is copied to, once nobody reads it any more."""
        if not self.drifts:
            return state[1]
        self.ring.step(index, ACQUIRE, state[2], state[3])
        return state[2]

    def _following(self, index: IndexBuilder, state: list[Index]) -> list[Index]:
        """After the last read of a stage: waits for the next tile."""
        if self.drifts:
            self.ring.step(index, RELEASE, state[0])
            reading = self.ring.next(index, state[0], state[1])
            self.ring.step(index, WAIT, *reading)
            return [*reading, *self.ring.next(index, state[2], state[3])]
        stages, (reading, writing) = self.ring.stages, state
        self.ring.step(index, WAIT)
        following = index.wrap(index.add(reading, 1), stages)
        return [following, reading if self.prefetch == stages - 1 else index.wrap(index.add(writing, 1), stages)]

    def copy(self, index: IndexBuilder, k: Index, reach: int | None, moved: Moved, stage: Index) -> None:
        """Starts the copies of the K tile at `k`, of the tile of the result that `moved` leads to, into a stage.

        `reach` is how far along K that can be, if known.
        """
        source, mapped = self.source, {**moved, self.source.counter: index.value(k)}
        for copy in source.copies:
            memory, *at = (index.again(value, mapped, source.has) for value in (copy.source, *copy.indices))
            until = None if copy.until is None else index.again(copy.until, mapped, source.has)
            furthest = [None if reach is None else source.value_at(i, reach) for i in copy.indices]
            shapes = zip(memory_of(copy.destination).get_shape()[-2:], memory_of(copy.source).get_shape(), strict=True)
            inside = [
                end is not None and end + extent <= size if source.depends(i) else flag
                for flag, i, end, (extent, size) in zip(
                    bounds(copy.in_bounds), copy.indices, furthest, shapes, strict=True
                )
            ]
            inside[0] = inside[0] and copy.until is None
            made = copy.like(
                source=memory,
                indices=at,
                stage=index.values([stage]),
                until=until,
                at=[index.again(value, mapped, source.has) for value in copy.at],
                is_async=True,
                in_bounds=bounds_attribute(*inside),
            )
            index.insert(made)

    def load(self, index: IndexBuilder, step: LoopStep, stage: Index) -> list[SSAValue]:
        """Loads the fragments of a product from a stage."""
        loaded: list[SSAValue] = []
        for load in step.loads:
            at = [index.again(i, {}, self.source.has) for i in load.indices]
            loaded.append(index.insert(load.like(indices=[index.value(stage), *at])).fragment)
        return loaded

    def _moved(self, index: IndexBuilder, tile: SSAValue, to: SSAValue) -> Moved:
        """The indices of the copies for another tile of the result than `tile`, a variable of the loop around."""
        moved: dict[SSAValue, SSAValue] = {tile: to}
        for value in (value for copy in self.source.copies for value in (copy.source, *copy.indices)):
            for leaf in self.source.leaves(value):
                index.again(leaf, moved, lambda op: op.parent is tile.owner)
        return moved

    def _drain(self, index: IndexBuilder) -> None:
        """Waits for the copies that were started for nobody."""
        index.insert(CommitOp(CP_ASYNC))
        index.insert(WaitOp(CP_ASYNC, 0))

    def _replace_loop(self, carried: Carried) -> None:
        for old, new in zip(self.source.loop.results, carried.accumulators, strict=True):
            old.replace_all_uses_with(new)
        Rewriter.erase_op(self.source.loop)


# `warp-pipeline`: which loops are pipelined, and why others stay as they are.


def _check_tiles(source: CopyLoop, tiles: scf.ForOp) -> None:
    """A loop around may go from tile to tile, when the next tile's copies can be started in the one before."""
    body = tiles.body.block
    if tiles.iter_args:
        decline(tiles, "the loop around hands on values, and the copies of a turn start in the one before")
    if any(isinstance(op, scf.ForOp) and op is not source.loop for op in body.ops):
        decline(tiles, "the loop around has another loop, and the copies of a turn start in the one before")
    wanted = [leaf for copy in source.copies for i in (copy.source, *copy.indices) for leaf in source.leaves(i)]
    while wanted:
        op = wanted.pop().owner
        if isinstance(op, Operation) and op.parent is body:
            if not is_pure(op):
                decline(op, f"copies of the next tile start before {op.name} of its turn")
            wanted += op.operands


@rewrite_pattern
def pipeline_loop(op: scf.ForOp, rewriter: PatternRewriter) -> None:
    """A loop that copies tiles to shared memory, pipelined as the schedule of its kernel says."""
    schedule = schedule_around(op)
    try:
        if not copies_of(op):
            return
        if schedule is None:
            decline(op, f"the kernel has no {ScheduleAttr.name}, which says how many stages there are")
        if schedule.stages == 1:
            decline(op, "stages = 1, so that no copy can run ahead")
        Pipeliner(op, schedule).rewrite()
    except DeclinedError as declined:
        remark(declined.op, PipelinePass.name, f"copies do not run ahead: {declined.reason}")


class PipelinePass(PatternPass):
    """Pipelines loops that copy tiles to shared memory: copies run ahead of the products by the number of stages of the
    schedule.

    It rewrites loops that copy tiles, wait at a barrier, and compute with fragments of the tiles, such as those of
    `warp-tile`. It leaves other loops; `warploom-opt --remarks` says why.
    """

    name = "warp-pipeline"
    needs: ClassVar = ("warp.copy",)
    patterns = (pipeline_loop,)
