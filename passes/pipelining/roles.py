"""The roles of warps in a loop over K: what the producer and the consumers make of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from xdsl.dialects import memref, scf
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from ...dialect.isa.wgmma import WARPS
from ...dialect.layouts.layout import LANES
from ...dialect.mlir.gpu import ClusterBlockIdOp, SubgroupIdOp, Z
from ...dialect.warp.attributes import fragment_of, is_shared, memory_of
from ...dialect.warp.cta import READ, RELEASE, WAIT, PipelineOp
from ...dialect.warp.fragments import SubfragmentOp
from ...dialect.warp.memory import LoadOp
from ...dialect.warp.op_shapes import is_pure, only_reads
from ...dialect.warp.operands import FindGroupOp
from ...dialect.warp.rows import MapOp
from ...dialect.warp.synchronisation import CTA, WGMMA, CommitOp, FenceOp, ScopedBarrierOp, WaitOp
from ...dialect.warp.tensor_maps import PrefetchOp
from ...dialect.warp.warpgroup import WgmmaOp
from ..patterns import Index, IndexBuilder, constant_value, dependences, operations_of
from .ring import Ring, is_load

# What one role executes of a kernel: some operations, with the loops around them.


def slice_of(
    index: IndexBuilder,
    ops: Iterable[Operation],
    keeps: Collection[Operation],
    mapped: dict[SSAValue, SSAValue],
    inside: Callable[[Operation], bool],
) -> None:
    """Builds the operations `keeps` a second time, in the loops around them, which carry nothing.

    What they are computed from is computed again where it is `inside`: before a loop, if it is the same in all turns.
    """
    for op in ops:
        if op in keeps:
            operands = {value: index.again(value, mapped, inside) for value in op.operands}
            mapped |= zip(op.results, index.insert(op.clone(operands)).results, strict=True)
        elif isinstance(op, scf.ForOp) and (kept := [inner for inner in operations_of(op) if inner in keeps]):
            for value in [value for one in kept for value in one.operands if not _varies(value, op)]:
                index.again(value, mapped, inside)
            first, end, step = (index.again(value, mapped, inside) for value in op.operands[:3])
            with index.loop(first, end, step) as turn:
                in_loop = mapped | {op.body.block.args[0]: turn.counter}
                slice_of(turn.index, op.body.block.ops, keeps, in_loop, inside)


def _varies(value: SSAValue, loop: scf.ForOp) -> bool:
    """Whether a value is computed in a loop, or depends on one that is."""
    made = value.owner
    block = made if isinstance(made, Block) else made.parent
    within = block is not None and loop.body.is_ancestor(block)
    return within or (isinstance(made, Operation) and any(_varies(operand, loop) for operand in made.operands))


# Clusters of CTAs that share tiles: each copies a part of a tile to all that multiply it.
#
# CTAs of a cluster compute neighbouring tiles of D, `cluster` of a schedule says how many along M and N. Those in a
# column of them multiply the same tiles of B, those in a row the same tiles of A. So each copies its share of a tile,
# and the copy goes to all of them (`multicast`). A stage is full in a CTA when the shares of all have come, and may be
# filled again when the consumers of all CTAs that it is copied to have read it.


@dataclass(frozen=True)
class Share:
    """The part of a tile that this CTA copies: number `part` of `count`, for the CTAs of `mask`. Without a mask the CTA
    has this part only, along dimension `axis`."""

    count: int
    part: Index
    mask: SSAValue | None
    axis: int = 0


class CtaCluster(NamedTuple):
    """CTAs along M and N, `down` and `across`, that multiply one of `parts` parts of K; the place of this one among
    them, and its part."""

    down: int
    across: int
    row: Index
    column: Index
    parts: int
    part: Index

    @staticmethod
    def of(index: IndexBuilder, shape: tuple[int, int], parts: int) -> CtaCluster | None:
        """The cluster of a shape; None for CTAs that share no operands."""
        down, across = shape
        if down * across == 1:
            return None
        rank = index.number(ClusterBlockIdOp)
        row, part = rank if across == 1 else index.rem(rank, down), 0
        if parts > 1:
            part = index.number(ClusterBlockIdOp, Z)
        column = index.div(rank, down) if across > 1 else 0
        return CtaCluster(down, across, row if down > 1 else 0, column, parts, part)

    @property
    def ctas(self) -> int:
        """CTAs of a part of K."""
        return self.down * self.across

    def share(self, index: IndexBuilder, *, of_b: bool) -> Share | None:
        """The share of a tile of A or B that a CTA copies for others; None if it copies all of it for itself."""
        count, part = (self.down, self.row) if of_b else (self.across, self.column)
        if count == 1:
            return None
        if of_b:
            together, step, place, places = (1 << self.down) - 1, self.down, self.column, self.across
        else:
            together = sum(1 << self.down * i for i in range(self.across))
            step, place, places = 1, self.row, self.down
        mask: Index = together << step * (places - 1)
        for at in range(places - 2, -1, -1):
            mask = index.select("eq", place, at, together << step * at, mask)
        first: Index = 1 << self.ctas * (self.parts - 1)
        for at in range(self.parts - 2, -1, -1):
            first = index.select("eq", self.part, at, 1 << self.ctas * at, first)
        return Share(count, part, index.value(index.mul(mask, first)))

    def peers(self, index: IndexBuilder) -> tuple[SSAValue, ...]:
        """The ranks of the other CTAs that share tiles with this one."""
        rows = (index.rem(index.add(self.row, i), self.down) for i in range(1, self.down))
        columns = (index.rem(index.add(self.column, i), self.across) for i in range(1, self.across))
        ranks = [index.add(row, index.mul(self.column, self.down)) for row in rows]
        ranks += [index.add(self.row, index.mul(column, self.down)) for column in columns]
        first = index.mul(self.part, self.ctas)
        return tuple(index.values([index.add(first, rank) for rank in ranks]))


# Consumers that take turns at the tensor cores: while one multiplies, another does what lies between its products.
#
# A loop with two groups of products, such as those of attention, leaves tensor cores idle while a warpgroup works on
# the first one's sums. Warpgroups do not get out of step by themselves: all wait for the same copies. So they pass a
# turn on, from each to the next, by barriers of their own, and start products only when it is theirs: the last of a
# tile and the first of the next, in this order; or, in a loop that is rotated (`rotate`), the other way around::
#
#     wait for the turn
#     loop: first products; pass the turn on; work; wait for the turn; last products
#     pass the turn on
#
#     first products; work
#     loop: wait for the turn; first products of the next tile; last products; pass the turn on; work
#     wait for the turn; last products; pass the turn on

FIRST_BARRIER = 8
"""The barrier of the first warpgroup; those below are for staging results."""

THREADS = 2 * WARPS * LANES
"""Threads that come to a barrier: those whose turn ends, and those whose turn begins."""


class PingPong(NamedTuple):
    """The turns of a warpgroup, number `group` of several: its barrier, and that of the next one."""

    group: Index
    own: SSAValue
    next: SSAValue

    @staticmethod
    def of(index: IndexBuilder, groups: int) -> PingPong:
        """The turns of `groups` warpgroups."""
        group = index.div(index.insert(SubgroupIdOp()).result, WARPS)
        following = index.wrap(index.add(group, 1), groups)
        return PingPong(group, *(index.value(index.add(number, FIRST_BARRIER)) for number in (group, following)))

    def begin(self, index: IndexBuilder) -> None:
        """Waits for the turn."""
        index.insert(ScopedBarrierOp(CTA, self.own, THREADS))

    def end(self, index: IndexBuilder) -> None:
        """Passes the turn to the next warpgroup."""
        index.insert(ScopedBarrierOp(CTA, self.next, THREADS, arrive=True))

    def pass_if(self, index: IndexBuilder, condition: SSAValue) -> None:
        """Passes the turn to the next warpgroup, if a condition holds."""
        with index.where(condition) as inside:
            self.end(inside)


# Operands of an epilogue, which are on their way while the products of a tile run.
#
# What lies beside the sums, a bias or a residual, does not depend on them. A load behind the wait for the last
# products would leave the tensor cores idle for as long as memory takes. There are registers for the first part; the
# rest of a matrix comes as far as L2.

TURNS = 4
"""Turns of a loop over K before its end in which memory answers: about 1000 cycles each, of an H200."""

MAX_TURNS = 24
"""Turns of a loop beyond which products take longer with a prefetch (H100, f32 residuals: 16 turns, 1024 12.4
microseconds for 13.7, 8192x4096x1024 188 for 193; 32 and 64 turns, 2048 40.1 for 39.4, 4096 213.5 for 211)."""


def load_ahead(wait: Operation) -> None:
    """Moves loads that follow a wait in front of it, with their index arithmetic, up to the first use of the awaited
    data."""
    block = wait.parent
    between = list(takewhile(lambda op: not isinstance(op, MapOp) and (only_reads(op) or _arrives(op)), behind(wait)))
    for load in [one for one in between if isinstance(one, LoadOp) and one.move is None]:
        needed = dependences(load, between)
        if block is not None and all(one is load or is_pure(one) for one in needed):
            for one in needed:
                one.detach()
                block.insert_op_before(one, wait)
                between.remove(one)


def compute_late(loop: scf.ForOp) -> None:
    """Moves what is computed before a loop over K for what follows it, as the places of a tile in D, behind it: there
    the last products run, while before it there are none."""
    if (block := loop.parent) is None or not any(isinstance(op, FindGroupOp) for op in block.ops):
        return
    late = set(behind(loop))
    for op in reversed(list(takewhile(lambda op: op is not loop, block.ops))):
        used = [_in_block(use.operation, block) for result in op.results for use in result.uses]
        if (is_pure(op) or isinstance(op, memref.LoadOp)) and late.issuperset(used):
            op.detach()
            block.insert_op_after(op, loop)
            late.add(op)


def prefetch(index: IndexBuilder, loop: scf.ForOp, k: SSAValue) -> None:
    """Prefetches the matrices that are loaded after a loop over K, some iterations before its end, in the iteration
    that starts at `k`. A prefetch at the start of the tile would be too early: the products of a tile read more than L2
    holds."""
    after = behind(loop)
    loads = [one for one in after if isinstance(one, LoadOp) and one.along is None and _is_early(one, after, loop)]
    step, end = index.folded(loop.step), index.folded(loop.ub)
    if not loads or not isinstance(step, int) or (isinstance(end, int) and end > MAX_TURNS * step):
        return
    left, mapped = index.div(index.add(index.sub(end, k), step - 1), step), dict[SSAValue, SSAValue]()
    with index.where(index.compare("eq", left, TURNS)) as inside:
        for load in loads:
            at = [inside.again(place, mapped, after.__contains__) for place in load.indices]
            inside.insert(PrefetchOp(load.memory, at, fragment_of(load.fragment), load.in_bounds))


def behind(op: Operation) -> list[Operation]:
    """The operations that follow one in its block."""
    ops = [] if op.parent is None else list(op.parent.ops)
    return ops[ops.index(op) + 1 :]


def _is_early(load: LoadOp, after: Sequence[Operation], loop: scf.ForOp) -> bool:
    """Whether the operands of a load from global memory are defined before a loop."""
    needed = dependences(load, after)
    movable = all(one is load or is_pure(one) for one in needed)
    late = any(operand.owner is loop for one in needed for operand in one.operands)
    return movable and not late and not is_shared(memory_of(load.memory))


def _arrives(op: Operation) -> bool:
    """Whether an operation does nothing but say what was read, if at all."""
    return isinstance(op, PipelineOp) and op.step.data in (RELEASE, READ)


# What consumers make of a loop over K: they wait for copies instead of making them, and say what they have read.


class ConsumerLoop(NamedTuple):
    """A loop over K whose tiles are `staged` in stages of a ring; other tiles are in the `fixed` stages of another
    ring.

    `groups` warpgroups run it. With `each_group` each group of products of theirs is started in a turn. If it will be
    rotated, `of_last` is the ring of the tiles that its last products read.
    """

    loop: scf.ForOp
    ring: Ring
    staged: Mapping[SSAValue, Ring]
    fixed: Mapping[SSAValue, SSAValue]
    groups: int
    in_tensor_memory: bool
    of_last: Ring | None
    each_group: bool = False

    def rewrite(self, index: IndexBuilder, start: IndexBuilder) -> None:
        """Waits for a stage, from `start` in the loop on, and for the products of the one before, where that may be."""
        ring, block, after = self.ring, self.loop.body.block, index.after(self.loop)
        if not self.in_tensor_memory:
            wait_late(block)
        late = not self.in_tensor_memory and self._waits_behind()
        if self.of_last is not None:
            self._go_on_early(self.of_last, index, start)
            return
        *within, last_wait = [op for op in block.ops if isinstance(op, WaitOp)]
        self._read({ring: ring.arrive(start, WAIT)})
        if not late:
            ring.step(index.after(last_wait), RELEASE, products=self.in_tensor_memory)
        else:
            # As many groups as a turn has but one may be under way: all of the turn before are done.
            done = within[-1] if within else index.before(last_wait).insert(WaitOp(WGMMA, 1))
            ring.step(index.after(done), RELEASE, late=True)
            Rewriter.erase_op(last_wait)
        if self.each_group:
            self._in_order(index)
        if (end := block.last_op) is not None:
            last = index.before(end)
            if late:
                prefetch(last, self.loop, block.args[0])
            ring.step(last, READ, late=late)
        wait = after.insert(WaitOp(WGMMA, 0)) if late else None
        if late:
            ring.step(after, RELEASE, late=True)
        if wait is not None:
            load_ahead(wait)

    def _go_on_early(self, last: Ring, index: IndexBuilder, start: IndexBuilder) -> None:
        """Goes on to the next stage before the last products, whose stage is released behind them. They are started in
        turns."""
        ring, ops = self.ring, list(self.loop.body.block.ops)
        waits, fence = [op for op in ops if isinstance(op, WaitOp)], [op for op in ops if isinstance(op, FenceOp)][-1]
        before = index.before(fence)
        of_first = ring.arrive(start, WAIT)
        if last == ring:
            self._read({ring: of_first})
            ring.step(before, READ, late=True)
            ring.step(index.after(waits[-1]), RELEASE, late=True)
            return
        self._read({ring: of_first, last: last.arrive(before, WAIT)})
        for each, wait in zip((ring, last), waits, strict=True):
            done = index.after(wait)
            each.step(done, RELEASE)
            each.step(done, READ)
        if self.groups > 1:
            turns = self._turns(index)
            turns.begin(before)
            turns.end(index.before(waits[-1]))

    def _turns(self, index: IndexBuilder) -> PingPong:
        """Turns from the first tile of a CTA to its last: the first warpgroup begins, and waits for the last one at the
        end."""
        around = self.loop.parent_op()
        outside = around if isinstance(around, scf.ForOp) else self.loop
        before, end = index.before(outside), index.after(outside)
        turns = PingPong.of(before, self.groups)
        turns.pass_if(before, before.compare("eq", turns.group, self.groups - 1))
        with end.where(end.compare("eq", turns.group, 0)) as inside:
            turns.begin(inside)
        return turns

    def _read(self, stages: Mapping[Ring, SSAValue]) -> None:
        """Lets products and loads of tiles read a stage of their ring."""
        at = {tile: stages[ring] for tile, ring in self.staged.items()}
        of_products = {**at, **self.fixed}
        for op in list(self.loop.body.block.ops):
            if isinstance(op, WgmmaOp):
                a, b = ([of_products[tile]] if tile in of_products else [] for tile in (op.a, op.b))
                Rewriter.replace_op(op, op.like(a_indices=[*a, *op.a_indices], b_indices=[*b, *op.b_indices]))
            elif is_load(op) and op.memory in self.staged:
                op.operands = [op.memory, at[op.memory], *op.indices]

    def _in_order(self, index: IndexBuilder) -> None:
        """Starts groups of products in turns, from the first tile of a CTA to its last: each in one of its own, or the
        last ones of a tile and the first of the next one in one.

        Of groups that start at the same moment the tensor cores run the products by turns, so that all end, and what is
        computed of their sums begins, at the same moment too.
        """
        turns, block = self._turns(index), self.loop.body.block
        ops = [o for o in block.ops if isinstance(o, CommitOp) or (isinstance(o, FenceOp) and o.before.data == WGMMA)]
        fences, followed = [op for op in ops if isinstance(op, FenceOp)], zip(ops, [*ops[1:], ops[0]], strict=True)
        commits = [op for op, next_ in followed if isinstance(op, CommitOp) and isinstance(next_, FenceOp)]
        if len({op.a_in_registers for op in block.ops if isinstance(op, WgmmaOp)}) > 1:
            turns.begin(index.before(self.loop))
            turns.end(index.after(self.loop))
            fences, commits = fences[1:], commits[:-1]
        for fence, commit in zip(fences, commits, strict=True):
            turns.begin(index.before(fence))
            turns.end(index.after(commit))

    def _waits_behind(self) -> bool:
        """Whether the wait for products can move to the next iteration: only further products, and maps of the next
        one, read their sums, and loads of what products read in registers follow a wait of their own."""
        ops = list(self.loop.body.block.ops)
        if any(map(is_load, ops)) and sum(isinstance(op, WaitOp) for op in ops) == 1:
            return False
        sums = [result for op in ops if _adds(op) for result in op.results]
        # Sums of the turn before may be read behind the first wait, if that is for all products.
        wait, *_ = (op for op in ops if isinstance(op, WaitOp))
        users = [use.operation for value in (*sums, *self.loop.body.block.args[1:]) for use in value.uses]
        others = [user for user in users if not (_adds(user) or isinstance(user, scf.YieldOp))]
        return not (others and wait.pending.value.data) and all(
            isinstance(user, MapOp) and wait.is_before_in_block(user) and not set(sums).intersection(user.operands)
            for user in others
        )


def _adds(op: Operation) -> bool:
    """Whether an operation is a product of a warpgroup, or puts sums of several below each other."""
    return isinstance(op, WgmmaOp) or (isinstance(op, SubfragmentOp) and len(op.sources) > 1)


def product_groups(block: Block) -> dict[CommitOp, list[SSAValue]]:
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
    groups = product_groups(block)
    if len(waits) != len(groups) or any(wait.pending.value.data for wait in waits):
        return
    waits_ = list[tuple[WaitOp, Operation, list[Operation]]]()
    for sums, wait in zip(groups.values(), waits, strict=True):
        used = [_in_block(use.operation, block) for value in sums for use in value.uses]
        used = [op for op in used if not isinstance(op, WgmmaOp | scf.YieldOp)]
        first = min(used, key=list(block.ops).index, default=waits[-1])
        waits_.append((wait, first, list(takewhile(lambda op, first=first: op is not first, behind(wait)))))
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


def take_own_tiles(ring: Ring, tiles: scf.ForOp, loop: scf.ForOp, groups: int, index: IndexBuilder) -> None:
    """Lets each of `groups` consumers pass over the K tiles of the others: those of a loop over K, in a loop over
    tiles that `index` precedes."""
    turns, (first, end, step) = PingPong.of(index, groups), tiles.operands[:3]
    tile, last, (start, stop, depth) = tiles.body.block.args[0], tiles.body.block.last_op, loop.operands[:3]
    k_tiles = -(-((constant_value(stop) or 0) - (constant_value(start) or 0)) // (constant_value(depth) or 1))
    before, behind = index.before(loop), index.after(loop)
    with before.where(before.compare("ne", tile, first)) as inside:
        turns.begin(inside)
    turns.pass_if(behind, behind.compare("slt", behind.add(tile, step), end))
    if last is not None:
        ring.step(index.before(last), READ, by=(groups - 1) * k_tiles)
    ring.step(index, READ, by=index.mul(turns.group, k_tiles))
    stride = index.folded(step)
    tiles.operands[0] = index.value(index.add(first, index.mul(stride, turns.group)))
    tiles.operands[2] = index.value(index.mul(stride, groups))
