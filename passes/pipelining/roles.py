"""The roles of warps in a loop over K: what the producer and the consumers make of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import NamedTuple

from xdsl.dialects import scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from ...dialect.isa.wgmma import WARPS
from ...dialect.layouts.layout import LANES
from ...dialect.mlir.gpu import SubgroupIdOp
from ...dialect.warp.attributes import SHARED_SPACE, fragment_of, memory_of, memory_space
from ...dialect.warp.cta import ACQUIRE, RELEASE, WAIT, PipelineOp
from ...dialect.warp.epilogue import MapOp
from ...dialect.warp.memory import LoadOp, PrefetchOp
from ...dialect.warp.op_shapes import is_pure, only_reads
from ...dialect.warp.synchronisation import CTA, WGMMA, CommitOp, FenceOp, ScopedBarrierOp, WaitOp
from ...dialect.warp.warpgroup import WgmmaOp
from ..patterns import Index, IndexBuilder, constant_value
from .ring import Ring, decline, is_load
from .tensor_copies import Placed, StagedLoads, TensorCopy

# What the producer makes of a loop over K: it waits until stages have been read, and starts copies to them.


class Producer:
    """Makes a loop over K with nothing but its `copies` to stages of `ring`, in a loop over `tiles` or not.

    Copies that are made `once` for all of it go before, `loads` of the epilogue's matrices behind.
    """

    def __init__(
        self, loop: scf.ForOp, tiles: scf.ForOp | None, copies: Sequence[TensorCopy], ring: Ring, once: Once | None,
        loads: Sequence[StagedLoads],
    ) -> None:  # fmt: skip
        self.loop, self.tiles, self.copies, self.ring, self.once, self.loads = loop, tiles, copies, ring, once, loads
        self._blocks = [each.body.block for each in (loop, tiles) if each is not None]

    def build(self, index: IndexBuilder) -> list[Index]:
        """All copies; the stage and the parity that follow on the last."""
        if self.tiles is None:
            if self.once is not None:
                self.once.start(index, lambda value: value, 0, 1)
            return self._tile(index, [0, 1], {})
        initial = index.values([0, 1] * (1 if self.once is None else 2))
        with index.loop(self.tiles.lb, self.tiles.ub, self.tiles.step, initial) as turn:
            inside, state = turn.index, turn.carried
            mapped: dict[SSAValue, SSAValue] = {self.tiles.body.block.args[0]: turn.counter}
            if self.once is not None:
                self.once.start(inside, partial(inside.again, mapped=mapped, inside=self._is_inside), *state[2:])
            after = self._tile(inside, list(state[:2]), mapped)
            after += [] if self.once is None else self.once.ring.next(inside, *state[2:])
            turn.handed = inside.values(after)
        return list[Index](turn.results)

    def _tile(self, index: IndexBuilder, state: list[Index], mapped: dict[SSAValue, SSAValue]) -> list[Index]:
        """The copies of all K tiles of a tile, and of the operands of its epilogue from further stages.

        `state` is the first stage and its parity; `mapped` maps values of the consumers' tile to values here.
        """
        body = Block(arg_types=[IndexType()] * 3)
        k, stage, parity = body.args
        for value in self._places():
            index.again(value, mapped, lambda op: self._is_inside(op) and not _depends(op, self.loop.body.block))
        inside, in_loop = index.within(body), mapped | {self.loop.body.block.args[0]: k}
        self.ring.step(inside, ACQUIRE, stage, parity, sum(copy.bytes for copy in self.copies))
        for copy in self.copies:
            copy.start(inside, partial(inside.again, mapped=in_loop, inside=self._is_inside), stage, self.ring)
        inside.insert(scf.YieldOp(*inside.values(self.ring.next(inside, stage, parity))))
        first, end, step = (index.again(each, in_loop, self._is_inside) for each in self.loop.operands[:3])
        after = list[Index](index.insert(scf.ForOp(first, end, step, index.values(state), body)).results)
        for loads in self.loads:
            after = loads.start(index, self.ring, after, self._of_groups(index, loads.groups, mapped))
        return after

    def _of_groups(self, index: IndexBuilder, groups: int, mapped: dict[SSAValue, SSAValue]) -> Placed:
        """What values of the consumers' tile are for each of their warpgroups."""
        clones = [dict(mapped) for _ in range(groups)]

        def of_group(value: SSAValue, group: int) -> SSAValue:
            for warp in _subgroups(value):
                clones[group][warp] = index.value(group * WARPS)
            return index.again(value, clones[group], lambda op: self._is_inside(op) or bool([*_subgroups(op)]))

        return of_group

    def _places(self) -> list[SSAValue]:
        """The values from which the coordinates of copies are computed."""
        every = [copy.copy for copy in (*([] if self.once is None else self.once.copies), *self.copies)]
        places = [i for copy in every for i in copy.indices]
        for copy in every:
            if isinstance(copy.source.owner, Operation):
                places += list(copy.source.owner.operands)[1:]
        return places

    def _is_inside(self, op: Operation) -> bool:
        """Whether an operation is in a loop of which the producer has its own copy."""
        return op.parent in self._blocks


def _depends(op: Operation, block: Block) -> bool:
    """Whether the results of an operation change between iterations of a loop."""
    owners = (operand.owner for operand in op.operands)
    return op.parent is block or any(
        _depends(owner, block) if isinstance(owner, Operation) else owner is block for owner in owners
    )


def _subgroups(made: SSAValue | Operation) -> Iterator[SSAValue]:
    """The `gpu.subgroup_id` values that a value, or an operation, depends on."""
    op = made if isinstance(made, Operation) else made.owner
    if isinstance(op, SubgroupIdOp):
        yield op.result
    elif isinstance(op, Operation):
        for operand in op.operands:
            yield from _subgroups(operand)


# Consumers that take turns at the tensor cores: while one multiplies, another does what lies between its products.
#
# A loop with two groups of products, such as those of attention, leaves tensor cores idle while a warpgroup works on
# the first one's sums. Warpgroups do not get out of step by themselves: all wait for the same copies. So they pass a
# turn on, from each to the next, by barriers of their own, and multiply only when it is theirs: the last group of
# products of one turn of the loop and the first of the next one, without what lies between::
#
#     first products
#     loop: work; wait for the turn; last products; first products of the next tile; pass the turn on
#     pass the turn on

FIRST_BARRIER = 8
"""The barrier of the first warpgroup; those below are for staging results."""

THREADS = 2 * WARPS * LANES
"""Threads that come to a barrier: those whose turn ends, and those whose turn begins."""


class PingPong(NamedTuple):
    """The turns of one warpgroup: its barrier, that of the next one, and whether another turn follows."""

    own: SSAValue
    next: SSAValue
    is_not_last: SSAValue

    @staticmethod
    def of(index: IndexBuilder, groups: int) -> PingPong:
        """The turns of `groups` warpgroups. The first one begins, and the last one passes the turn to it."""
        group = index.div(index.insert(SubgroupIdOp()).result, WARPS)
        following = index.wrap(index.add(group, 1), groups)
        own, behind = (index.value(index.add(number, FIRST_BARRIER)) for number in (group, following))
        last, others = (index.compare(how, group, groups - 1) for how in ("eq", "ne"))
        turns = PingPong(own, behind, others)
        turns._pass_if(index, last)
        return turns

    def begin(self, index: IndexBuilder) -> None:
        """Waits for the turn."""
        index.insert(ScopedBarrierOp(CTA, self.own, THREADS))

    def end(self, index: IndexBuilder, counter: SSAValue, first: SSAValue) -> None:
        """Passes the turn on, in each turn of a loop but the one where its counter is `first`."""
        self._pass_if(index, index.compare("ne", counter, first))

    def end_all(self, index: IndexBuilder) -> None:
        """Passes the last turn on; the last warpgroup has nobody to."""
        self._pass_if(index, self.is_not_last)

    def _pass_if(self, index: IndexBuilder, condition: SSAValue) -> None:
        with index.where(condition) as inside:
            inside.insert(ScopedBarrierOp(CTA, self.next, THREADS, arrive=True))


# Operands of an epilogue, which are on their way while the products of a tile run.
#
# What lies beside the sums, a bias or a residual, does not depend on them. A load behind the wait for the last
# products would leave the tensor cores idle for as long as memory takes. There are registers for the first part; the
# rest of a matrix comes as far as L2.

TURNS = 4
"""Turns of a loop over K before its end in which memory answers: about 1000 cycles each, of an H200."""


def load_ahead(wait: Operation) -> None:
    """Moves loads that follow a wait in front of it, with their index arithmetic, up to the first use of the awaited
    data."""
    block = wait.parent
    between = list(takewhile(lambda op: not isinstance(op, MapOp) and (only_reads(op) or _arrives(op)), _behind(wait)))
    for load in [one for one in between if isinstance(one, LoadOp) and one.move is None]:
        needed = _needed(load, between)
        if block is not None and all(one is load or is_pure(one) for one in needed):
            for one in needed:
                one.detach()
                block.insert_op_before(one, wait)
                between.remove(one)


def prefetch(index: IndexBuilder, loop: scf.ForOp, k: SSAValue) -> None:
    """Prefetches the matrices that are loaded after a loop over K, some iterations before its end, in the iteration
    that starts at `k`. A prefetch at the start of the tile would be too early: the products of a tile read more than L2
    holds."""
    behind = _behind(loop)
    loads = [one for one in behind if isinstance(one, LoadOp) and one.along is None and _is_early(one, behind, loop)]
    step, end = index.folded(loop.step), index.folded(loop.ub)
    if not loads or not isinstance(step, int):
        return
    left, mapped = index.div(index.add(index.sub(end, k), step - 1), step), dict[SSAValue, SSAValue]()
    with index.where(index.compare("eq", left, TURNS)) as inside:
        for load in loads:
            at = [inside.again(place, mapped, behind.__contains__) for place in load.indices]
            inside.insert(PrefetchOp(load.memory, at, fragment_of(load.fragment), load.in_bounds))


def _behind(op: Operation) -> list[Operation]:
    """The operations that follow one in its block."""
    ops = [] if op.parent is None else list(op.parent.ops)
    return ops[ops.index(op) + 1 :]


def _is_early(load: LoadOp, behind: Sequence[Operation], loop: scf.ForOp) -> bool:
    """Whether the operands of a load from global memory are defined before a loop."""
    needed = _needed(load, behind)
    movable = all(one is load or is_pure(one) for one in needed)
    late = any(operand.owner is loop for one in needed for operand in one.operands)
    return movable and not late and memory_space(memory_of(load.memory)) != SHARED_SPACE


def _needed(op: Operation, between: Sequence[Operation]) -> list[Operation]:
    """An operation and the operations in `between` that it depends on, in order."""
    needed = {op}
    for one in reversed(between):
        if any(use.operation in needed for result in one.results for use in result.uses):
            needed.add(one)
    return [one for one in between if one in needed]


def _arrives(op: Operation) -> bool:
    """Whether an operation does nothing but say what was read, if at all."""
    inner = [one for region in op.regions for one in region.walk()]
    return isinstance(op, scf.IfOp) and all(isinstance(one, PipelineOp | scf.YieldOp) or is_pure(one) for one in inner)


# What consumers make of a loop over K: they wait for copies instead of making them, and say what they have read.


class ConsumerLoop(NamedTuple):
    """A loop over K without its copies. Its tiles are `staged`; other tiles are in the `fixed` stages of another
    ring.

    `groups` warpgroups run it, `in_turns` or independently.
    """

    loop: scf.ForOp
    staged: Sequence[SSAValue]
    fixed: Mapping[SSAValue, SSAValue]
    groups: int
    in_turns: bool
    in_tensor_memory: bool = False

    def rewrite(
        self,
        index: IndexBuilder,
        ring: Ring,
        state: list[Index],
        behind_all: Callable[[IndexBuilder], None] | None = None,
    ) -> tuple[scf.ForOp, list[Index]]:
        """The loop over K: waits for a stage, and for the products of the one before, where that may be. `behind_all`
        inserts what follows on the loop, while its last products run."""
        if not self.in_tensor_memory:
            wait_late(self.loop.body.block)
        old, behind = self.loop.body.block, not self.in_tensor_memory and self._waits_behind()
        body = Block(arg_types=[*(arg.type for arg in old.args), *[IndexType()] * (3 if behind else 2)])
        carried, (stage, parity, *before) = body.args[: len(old.args)], body.args[len(old.args) :]
        inside = index.within(body)
        ring.step(inside, WAIT, stage, parity)
        now: dict[SSAValue, SSAValue] = dict(zip(old.args, carried, strict=True))
        turns = self._turns(index)
        commits = [op for op in old.ops if isinstance(op, CommitOp)]
        fences = [op for op in old.ops if isinstance(op, FenceOp)]
        *within, last_wait = [op for op in old.ops if isinstance(op, WaitOp)]
        for op in old.ops:
            if isinstance(op, scf.YieldOp):
                continue
            if behind and op is last_wait:
                if not within:
                    inside.insert(WaitOp(WGMMA, 1))
                    ring.release(inside, before[0])
                continue
            new = op.clone(now)
            if isinstance(new, WgmmaOp):
                new.move_to_stages({**dict.fromkeys(self.staged, stage), **self.fixed})
            elif is_load(new) and new.memory in self.staged:
                new.operands = [new.memory, stage, *new.indices]
            if turns is not None and op is fences[-1]:
                turns.begin(inside)
            inside.insert(new)
            if turns is not None and op is commits[0]:
                turns.end(inside, body.args[0], self.loop.lb)
            now.update(zip(op.results, new.results, strict=True))
            if not behind and op is last_wait:
                ring.step(inside, RELEASE, stage, products=self.in_tensor_memory)
            if behind and within and op is within[-1]:
                # As many groups as a turn has but one may be under way: all of the turn before are done.
                ring.release(inside, before[0])
        if behind:
            prefetch(inside, self.loop, body.args[0])
        handed = [now.get(value, value) for value in (old.last_op.operands if old.last_op is not None else ())]
        following = inside.values(ring.next(inside, stage, parity))
        inside.insert(scf.YieldOp(*handed, *following, *([stage] if behind else [])))
        initial = [*self.loop.iter_args, *index.values([*state, *([ring.stages] if behind else [])])]
        new = index.insert(scf.ForOp(self.loop.lb, self.loop.ub, self.loop.step, initial, body))
        if behind_all is not None:
            behind_all(index)
        last = index.insert(WaitOp(WGMMA, 0)) if behind else None
        if behind:
            ring.release(index, new.results[-1])
        if turns is not None:
            turns.end_all(index)
        for result, made in zip(self.loop.results, new.results, strict=False):
            result.replace_all_uses_with(made)
        count = len(self.loop.results)
        Rewriter.erase_op(self.loop)
        if last is not None:
            load_ahead(last)
        return new, list(new.results[count : count + 2])

    def _turns(self, index: IndexBuilder) -> PingPong | None:
        """The turns of a warpgroup, where the schedule wants them, of several with several groups of products each."""
        count = sum(isinstance(op, CommitOp) for op in self.loop.body.block.ops)
        return PingPong.of(index, self.groups) if self.in_turns and self.groups > 1 and count > 1 else None

    def _waits_behind(self) -> bool:
        """Whether the wait for products can move to the next iteration: in the loop, only further products read their
        sums, and loads of registers that products read, such as metadata, follow a wait of their own."""
        ops = list(self.loop.body.block.ops)
        if any(map(is_load, ops)) and sum(isinstance(op, WaitOp) for op in ops) == 1:
            return False
        sums = [result for op in ops if isinstance(op, WgmmaOp) for result in op.results]
        users = [use.operation for value in sums for use in value.uses]
        return all(isinstance(user, (WgmmaOp, scf.YieldOp)) for user in users) and len(self.loop.iter_args) == 1


def _groups(block: Block) -> dict[CommitOp, list[SSAValue]]:
    """The sums of each group of products."""
    groups, sums = dict[CommitOp, list[SSAValue]](), list[SSAValue]()
    for op in block.ops:
        if isinstance(op, WgmmaOp):
            sums.append(op.d)
        elif isinstance(op, CommitOp):
            groups[op], sums = sums, []
    return groups


def wait_late(block: Block) -> None:
    """Moves each wait for all products of a loop over K behind the products that do not need their sums, up to the
    first use. Without another use the last wait of the loop serves them too."""
    waits = [op for op in block.ops if isinstance(op, WaitOp)]
    groups = _groups(block)
    if len(waits) != len(groups) or any(wait.pending.value.data for wait in waits):
        return
    waits_ = list[tuple[WaitOp, Operation, list[Operation]]]()
    for sums, wait in zip(groups.values(), waits, strict=True):
        used = [_in_block(use.operation, block) for value in sums for use in value.uses]
        used = [op for op in used if not isinstance(op, WgmmaOp | scf.YieldOp)]
        first = min(used, key=list(block.ops).index, default=waits[-1])
        waits_.append((wait, first, list(takewhile(lambda op, first=first: op is not first, _behind(wait)))))
    if not any(isinstance(op, WgmmaOp) for _, _, between in waits_ for op in between):
        return
    for wait, first, between in waits_:
        if wait is not waits[-1] or first is not wait:
            Rewriter.erase_op(wait)
        if first is not waits[-1]:
            block.insert_op_before(WaitOp(WGMMA, sum(isinstance(op, CommitOp) for op in between)), first)


def _in_block(op: Operation, block: Block) -> Operation:
    """The operation of a block that another one is, or is in."""
    while op.parent is not block and (around := op.parent_op()) is not None:
        op = around
    return op


# Tiles that stay for the whole loop over K, such as Q of an attention, in a ring of their own.


class Once(NamedTuple):
    """Copies of tiles that stay in shared memory for the whole loop over K, with their own ring."""

    copies: list[TensorCopy]
    ring: Ring

    @property
    def tiles(self) -> list[SSAValue]:
        return [copy.copy.destination for copy in self.copies]

    def start(self, index: IndexBuilder, again: Callable[[SSAValue], SSAValue], stage: Index, parity: Index) -> None:
        """Starts these copies before those of the other ring, when the previous tiles of the stage have been read."""
        self.ring.step(index, ACQUIRE, stage, parity, sum(copy.bytes for copy in self.copies))
        for copy in self.copies:
            copy.start(index, again, stage, self.ring)


# Consumers with tiles of their own: each multiplies every second tile of a CTA, while the other stores its last one.
#
# The producer copies the K tiles of one tile after the other, as ever. A consumer waits for those of its tiles, and
# passes over the stages of the others'. So the tensor cores have work during the epilogue of each tile but the last::
#
#     first consumer     multiply tile 0   store tile 0      multiply tile 2   ...
#     second consumer                      multiply tile 1   store tile 1      ...
#
# A mbarrier tells one phase from the next alone. So a consumer begins a tile when the other has waited for all K tiles
# of the tile before: they pass a turn on, by barriers of their own.


class OwnTiles(NamedTuple):
    """The tiles of one of `groups` consumers in a ring, each of `k_tiles` K tiles.

    `tiles` is the loop over all tiles of the CTA, `group` the number of the consumer.
    """

    groups: int
    stages: int
    k_tiles: int
    group: Index
    tiles: scf.ForOp

    @staticmethod
    def of(index: IndexBuilder, loop: scf.ForOp, tiles: scf.ForOp, groups: int, stages: int) -> OwnTiles:
        """Of the consumer that executes this, for a loop over K within the one over tiles.

        Raises:
            DeclinedError: for a K that is not known.
        """
        ends = [constant_value(value) for value in (loop.lb, loop.ub, loop.step)]
        if None in ends:
            decline(loop, "consumers have tiles of their own where K is known")
        first, end, step = (end or 0 for end in ends)
        group = index.div(index.insert(SubgroupIdOp()).result, WARPS)
        return OwnTiles(groups, stages, -(-(end - first) // step), group, tiles)

    def bounds(self, index: IndexBuilder) -> tuple[SSAValue, SSAValue]:
        """The first tile, and how far it is to the next."""
        step = index.folded(self.tiles.step)
        first = index.add(self.tiles.lb, index.mul(step, self.group))
        return index.value(first), index.value(index.mul(step, self.groups))

    def start(self, index: IndexBuilder) -> list[Index]:
        """The stage and parity of the first K tile."""
        return self._passed(index, 0, 0, index.mul(self.group, self.k_tiles))

    def following(self, index: IndexBuilder, stage: Index, parity: Index) -> list[Index]:
        """The stage and parity of the first K tile of this group's next tile; the K tiles of the other groups' tiles
        are skipped."""
        return self._passed(index, stage, parity, (self.groups - 1) * self.k_tiles)

    def _passed(self, index: IndexBuilder, stage: Index, parity: Index, count: Index) -> list[Index]:
        """The stage and parity so many K tiles later."""
        there = index.add(stage, count)
        turned = index.add(parity, index.div(there, self.stages))
        return [index.rem(there, self.stages), index.rem(turned, 2)]

    def begin(self, index: IndexBuilder, tile: SSAValue) -> None:
        """Waits until the other has all of the tile before, unless this is the first of the CTA."""
        own = index.value(index.add(self.group, FIRST_BARRIER))
        with index.where(index.compare("ne", tile, self.tiles.lb)) as inside:
            inside.insert(ScopedBarrierOp(CTA, own, THREADS))

    def end(self, index: IndexBuilder, tile: SSAValue) -> None:
        """Lets the other warpgroup begin the next tile, if there is one."""
        other = index.value(index.add(index.wrap(index.add(self.group, 1), self.groups), FIRST_BARRIER))
        with index.where(index.compare("slt", index.add(tile, self.tiles.step), self.tiles.ub)) as inside:
            inside.insert(ScopedBarrierOp(CTA, other, THREADS, arrive=True))
