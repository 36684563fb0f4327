"""`warp-split-k`: how CTAs share the sums of a product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr, MemRefType, i1, i32
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.mlir.gpu import BlockIdOp, SubgroupIdOp, Z
from ...dialect.warp.attributes import BYTE, FragmentType, fragment_of, memory_of
from ...dialect.warp.cta import OF_SLICES
from ...dialect.warp.fragments import ConstantOp, ElementwiseOp, Kind, fragment_bytes, together
from ...dialect.warp.memory import CopyOp, LoadOp, StoreOp
from ...dialect.warp.op_shapes import bounds, bounds_attribute
from ...dialect.warp.operands import FindGroupOp
from ...dialect.warp.rows import MapOp
from ...dialect.warp.synchronisation import ARITHMETIC, ArriveLastOp, FenceOp
from ...dialect.warp.views import MatrixOp
from ..diagnostics import fail, remark
from ..linalg.operand import expand
from ..patterns import Index, IndexBuilder, PatternPass, constant_value
from .outline import Tail
from .tiling import LaunchedKernel, LaunchPattern

# `warp-split-k`: products of few tiles and a long K, the `split_k` of a schedule.
#
# K is cut into parts, for `split_k` times as many CTAs. Each leaves its sums in scratch memory; the last one of a tile
# adds them up, in an order that does not depend on which one it is, so that every run gives the same bits, and goes on
# as if it had multiplied all of K. For fragments the parts are equal, each one of a batch. Warpgroups take whole K
# tiles, as many as each other or one more: tensor copies give zeros behind the end of K, wherever that is. Those that
# go from tile to tile (`ctas`) share only the tiles of the last set, which would leave some CTAs without one. Parts of
# a cluster have nothing to leave: their sums meet as those of slices do.
#
# Nobody waits. A part is a row of memory, in which warp after warp has its registers, in the order `vectors` of
# `warp.load`. `warp.arrive_last` counts the CTAs that have written theirs, and tells the last one that it is.

MAX_UNROLLED = 64
"""Loads of a lane that stand one after another; more of them, for further parts, are a loop."""


MAX_HELD = 200
"""Registers of sums and of parts that are loaded at once, in a lane. Where their arithmetic is not fenced off, ptxas
13.0 has five loads on their way (H100, microseconds: 256x256x8192 in 8 parts 9.8 and 8.6, 696x128x15976 22.9 and 19.1,
64x280x5864 in 12 7.8 and 6.2)."""


@dataclass
class Split:
    """One kernel whose loop over K is cut; `tile` is the number of the CTA's tile."""

    launch: LaunchedKernel
    tile: SSAValue
    loop: scf.ForOp
    tiles: int
    k: int

    def rewrite(self) -> None:
        """Each CTA multiplies a part of K, and the last CTA of a tile finishes it."""
        if self.launch.schedule.cluster_parts > 1:
            self.cut()
        else:
            memories = self.scratch(self.tiles, self.tiles * self.launch.schedule.split_k)
            part = self.cut()
            self._share_sums(*self.arguments(*memories), part)
        self.launch.grid[2] = self.launch.schedule.split_k
        self.launch.finish()

    def scratch(self, tiles: int, parts: int) -> tuple[SSAValue, SSAValue]:
        """Memory for the sums of so many parts of so many tiles, and counters of those that arrived."""
        launch, schedule = self.launch, self.launch.schedule
        element, size = fragment_of(self.loop.results[0]).element_type, schedule.cta[0] * schedule.cta[1]
        sums = launch.host.scratch(MemRefType(element, [parts, size]))
        return sums, launch.host.scratch(MemRefType(i32, [tiles]), zeroed=True)

    def arguments(self, parts: SSAValue, counters: SSAValue) -> tuple[SSAValue, SSAValue]:
        """The same as the last arguments of the kernel."""
        count, launch = len(self.launch.operands), self.launch
        return launch.insert(count, parts, "parts"), launch.insert(count + 1, counters, "counters")

    def part(self) -> SSAValue:
        """The number of this CTA's part of K."""
        return IndexBuilder(Builder(InsertPoint.at_start(self.launch.body))).number(BlockIdOp, Z)

    def cut(self) -> SSAValue:
        """Lets copies read this CTA's part of A and B; gives its number."""
        part, parts = self.part(), self.launch.schedule.split_k
        start = IndexBuilder(Builder(InsertPoint.after(part.owner)))  # pyright: ignore[reportArgumentType]
        for copy in [op for op in self.loop.body.block.ops if isinstance(op, CopyOp)]:
            along = list(copy.indices).index(self.loop.body.block.args[0])
            view = start.insert(MatrixOp(self._cut(copy, along), [part], *((1, 2) if along == 0 else (0, 2))))
            copy.operands[0] = view.matrix
            inside, sizes = list(bounds(copy.in_bounds)), memory_of(copy.destination).get_shape()
            inside[along] = self.k // parts % sizes[along] == 0
            copy.in_bounds = bounds_attribute(*inside)
        self._count_from(start.mul(part, self.k // parts))
        self.loop.operands[1] = IndexBuilder(self.loop).value(self.k // parts)
        return part

    def _count_from(self, first: Index) -> None:
        """Adds the first K of this part to the loop's counter, for all uses other than copies."""
        counter = self.loop.body.block.args[0]
        others = [use for use in counter.uses if not isinstance(use.operation, CopyOp)]
        if others:
            inside = IndexBuilder(Builder(InsertPoint.at_start(self.loop.body.block)))
            k = inside.value(inside.add(counter, first))
            for use in others:
                use.operation.operands[use.index] = k

    def _cut(self, copy: CopyOp, along: int) -> SSAValue:
        """An argument for the source of a copy with K, its dimension `along`, as two: the part, and the place in it."""
        source, launch = copy.source, self.launch
        if not isinstance(source, BlockArgument):
            fail(copy, f"expected K to be cut of an argument of the kernel, got {source.type}")
        parts = [[size] for size in memory_of(source).get_shape()]
        count = launch.schedule.split_k
        parts[along] = [count, parts[along][0] // count]
        cut = launch.host.insert(expand(launch.operands[source.index], parts))
        return launch.replace(source, [copy], cut, source.name_hint or "")

    def _share_sums(self, memory: SSAValue, counters: SSAValue, part: SSAValue) -> None:
        """Stores the sums of this part. The last CTA of a tile adds the parts to the product's initial values and
        finishes the tile."""
        index, parts = IndexBuilder(Builder(InsertPoint.after(self.tile.owner))), self.launch.schedule.split_k  # pyright: ignore[reportArgumentType]
        first = index.mul(self.tile, parts)
        slot = index.add(first, part)
        sums, total, start = self._sums()
        rest, uses, index = self._behind(total), list(total.uses), self._end_of_kernel()
        with index.where(self._store(index, sums, memory, slot, counters, self.tile, parts)) as inside:
            _move(start, inside)
            added = self._total(inside, start[-1].results[0], memory, first, part, sums)
            for use in uses:
                use.operation.operands[use.index] = added
            if total is not sums and isinstance(total.owner, Operation):
                Rewriter.erase_op(total.owner)
            _move(rest, inside)

    def _end_of_kernel(self) -> IndexBuilder:
        """Where what follows on the sums is put."""
        return IndexBuilder(self.launch.body.last_op)  # pyright: ignore[reportArgumentType]

    def _store(
        self, index: IndexBuilder, sums: SSAValue, memory: SSAValue, slot: Index, counters: SSAValue, tile: Index,
        parts: Index
    ) -> SSAValue:  # fmt: skip
        """Leaves the sums of a part in memory: whether this CTA is the last one of the tile."""
        place = index.values([slot, self._column(index, fragment_of(sums), memory)])
        index.insert(StoreOp(sums, memory, place, registers="vectors"))
        return index.insert(ArriveLastOp(counters, *index.values([tile, parts]))).last

    def _total(
        self, index: IndexBuilder, start: SSAValue, memory: SSAValue, first: Index, part: Index, own: SSAValue
    ) -> SSAValue:
        """The start value and all parts, from row `first` on. A power of two of parts that are loaded without a loop
        are added as a binary tree: two sums commute, so that every CTA would get the same bits, and the last one takes
        its `own` part from registers (H100, 512x512x4096 in four parts: 10.6 microseconds for 10.9)."""
        kind, parts = fragment_of(own), self.launch.schedule.split_k
        at_once = MAX_HELD // kind.registers - 1
        if parts.bit_count() > 1 or not at_once or parts * kind.registers > MAX_UNROLLED * together(kind):
            return self._added(index, start, memory, first, parts)
        column = self._column(index, kind, memory)

        def tree(at: int, count: int) -> SSAValue:
            if count > at_once:
                fragments = [tree(half, count // 2) for half in (at, at + count // 2)]
            else:
                places = [[index.add(first, index.xor(part, i)), column] for i in range(max(at, 1), at + count)]
                loads = [LoadOp(memory, index.values(place), kind, registers="vectors") for place in places]
                fragments = [*([] if at else [own]), *(index.insert(load).fragment for load in loads)]
                index.insert(FenceOp(ARITHMETIC))
            while len(fragments) > 1:
                pairs = zip(fragments[::2], fragments[1::2], strict=True)
                fragments = [index.insert(ElementwiseOp(Kind.Add, *pair)).fragment for pair in pairs]
            return fragments[0]

        return index.insert(ElementwiseOp(Kind.Add, start, tree(0, parts))).fragment

    def _added(self, index: IndexBuilder, start: SSAValue, memory: SSAValue, first: Index, count: Index) -> SSAValue:
        """The start value and `count` parts, from row `first` on, in their order: in a loop if there are many, in each
        turn as many as divide their number, since a turn takes as long as memory does to answer (H100, 64x280x5864:
        10.3 microseconds by 12 parts in as many turns, 8.2 by 8 parts without a loop)."""
        kind = fragment_of(start)
        column, parts = self._column(index, kind, memory), count if isinstance(count, int) else 1
        limit = max(1, MAX_UNROLLED * together(kind) // kind.registers)
        of_turn = next(number for number in range(min(parts, limit), 0, -1) if parts % number == 0)
        at_once = MAX_HELD // kind.registers - 1

        def with_parts(index: IndexBuilder, total: SSAValue, first: Index) -> SSAValue:
            for part in range(0, of_turn, max(1, at_once)):
                group = range(part, min(of_turn, part + max(1, at_once)))
                places = [index.values([index.add(first, each), column]) for each in group]
                loads = [index.insert(LoadOp(memory, place, kind, registers="vectors")).fragment for place in places]
                if at_once:
                    index.insert(FenceOp(ARITHMETIC))
                for loaded in loads:
                    total = index.insert(ElementwiseOp(Kind.Add, total, loaded)).fragment
            return total

        if of_turn == count:
            return with_parts(index, start, first)
        with index.loop(0, count, of_turn, [start]) as turn:
            turn.handed = [with_parts(turn.index, turn.carried[0], turn.index.add(first, turn.counter))]
        return turn.results[0]

    def _column(self, index: IndexBuilder, kind: FragmentType, memory: SSAValue) -> Index:
        """Where the registers of a warp begin in a row: behind those of the warps before it."""
        warps, size = self.launch.schedule.consumer_warps, fragment_bytes(kind) * BYTE // kind.bits
        if memory_of(memory).get_shape()[1] != warps * size:
            fail(self.loop, f"expected a fragment of each of {warps} warps to be a part of the tile, got {kind}")
        return 0 if warps == 1 else index.mul(index.insert(SubgroupIdOp()).result, size)

    def _sums(self) -> tuple[SSAValue, SSAValue, list[Operation]]:
        """The sums of this part, the value that is to be the sum of all parts, and the operations that make the start
        value."""
        sums, initial = self.loop.results[0], self.loop.iter_args[0]
        user = sums.get_user_of_unique_use()
        # Of weights that were made smaller, and of groups whose sums are scaled.
        while isinstance(user, MapOp) or (isinstance(user, ElementwiseOp) and user.kind.data is Kind.Mul):
            user = user.results[0].get_user_of_unique_use()
        of_slices = next((op for op in self.launch.body.ops if OF_SLICES in op.attributes), None)
        if of_slices is not None:
            sums = of_slices.results[0]
            user = sums.get_user_of_unique_use()
            if isinstance(user, ElementwiseOp):
                return sums, user.fragment, self._made(user.inputs[0])
            return sums, sums, [ConstantOp.of(0.0, fragment_of(sums))]
        start = self._made(initial)
        zero = ConstantOp.of(0.0, fragment_of(initial))
        self.launch.body.insert_op_before(zero, self.loop)
        self.loop.operands[3] = zero.fragment
        return sums, sums, start

    def _made(self, fragment: SSAValue) -> list[Operation]:
        """The operations that compute a fragment, from its load or constant on."""
        op = fragment.owner
        if not isinstance(op, Operation):
            fail(self.loop, f"expected sums that start from what the kernel makes, got {fragment.type}")
        sources = [operand for operand in op.operands if isinstance(operand.type, FragmentType)]
        return [*(self._made(sources[0]) if sources else []), op]

    def _behind(self, total: SSAValue) -> list[Operation]:
        """The operations that follow the complete sum, without leading index arithmetic."""
        ops = list(self.launch.body.ops)[:-1]
        behind = ops[ops.index(total.owner) + 1 :]  # pyright: ignore[reportArgumentType]
        while isinstance(behind[0], arith.ConstantOp | arith.AddiOp | arith.MuliOp):
            behind.pop(0)
        return behind


def _groups_of(launch: LaunchedKernel) -> FindGroupOp | None:
    """Where a kernel looks for the group of rows that a tile is of, if rows belong to groups."""
    return next((op for op in launch.body.ops if isinstance(op, FindGroupOp)), None)


def _move(ops: Sequence[Operation], index: IndexBuilder) -> None:
    for op in ops:
        if op.parent is not None:
            op.detach()
        index.insert(op)


class SplitTurns(Split):
    """The K tiles of a kernel of warpgroups, which each CTA multiplies from its first to its last."""

    def cut(self) -> SSAValue:
        """Lets the loop go from this part's first K tile to its last; gives its number."""
        index, part = IndexBuilder(self.loop), self.part()
        self.loop.operands[0], self.loop.operands[1] = index.values(
            self.ends(index, part, self.launch.schedule.split_k)
        )
        return part

    def ends(self, index: IndexBuilder, part: Index, parts: Index) -> list[Index]:
        """Where the K tiles of one of several parts begin and end."""
        depth = self.launch.schedule.cta[2]
        tiles = index.ceildiv(self.k, depth)
        return [index.mul(index.div(index.mul(i, tiles), parts), depth) for i in (part, index.add(part, 1))]


class SharedTail(SplitTurns):
    """The tiles after the last full wave of persistent CTAs. Several CTAs share each of them, with a part of K each.
    The other tiles are whole.

    Whole tiles come first. Higher numbers are parts, of a tile for each CTA of a cluster, which copy for each other and
    so multiply one part::

        0 ... whole - 1                whole + ctas * (parts * ((tile - whole) / ctas) + part) + (tile - whole) % ctas
    """

    def rewrite(self) -> None:
        launch, number, uses = self.launch, self.tile, list(self.tile.uses)
        ctas = prod(launch.schedule.cluster)
        index = IndexBuilder(Builder(InsertPoint.after(number.owner)))  # pyright: ignore[reportArgumentType]
        (unshared, left, parts), slots = self._tail(index)
        slot = index.select("slt", number, unshared, 0, index.sub(number, unshared))
        cluster, rank = index.div(slot, ctas), index.rem(slot, ctas)
        shared_tile, part = index.add(index.mul(index.div(cluster, parts), ctas), rank), index.rem(cluster, parts)
        row = slot if ctas == 1 else index.add(index.mul(shared_tile, parts), part)
        tile = index.value(index.select("slt", number, unshared, number, index.add(shared_tile, unshared)))
        for use in uses:
            use.operation.operands[use.index] = tile
        whole_ends = zip((0, self.k), self.ends(index, part, parts), strict=True)
        self.loop.operands[0], self.loop.operands[1] = index.values(
            [index.select("slt", number, unshared, plain, end) for plain, end in whole_ends]
        )
        memory, counters = self.arguments(*self.scratch(left if isinstance(left, int) else slots, slots))
        sums, rest, index = self.loop.results[0], self._behind(self.loop.results[0]), self._end_of_kernel()
        is_shared = index.compare("uge", number, unshared)
        (ends_tile,) = index.either(
            is_shared,
            lambda inside: [self._store(inside, sums, memory, row, counters, shared_tile, parts)],
            lambda inside: [inside.insert(arith.ConstantOp(IntegerAttr(1, i1))).result],
        )
        with index.where(ends_tile) as inside:
            first = inside.mul(shared_tile, parts)

            def added(index: IndexBuilder) -> list[SSAValue]:
                start = index.insert(ConstantOp.of(0.0, fragment_of(sums))).fragment
                return [self._added(index, start, memory, first, parts)]

            (total,) = inside.either(is_shared, added, lambda _: [sums])
            sums.replace_uses_with_if(total, lambda use: use.operation in rest)
            _move(rest, inside)
        launch.finish()

    def _tail(self, index: IndexBuilder) -> tuple[Tail, int]:
        """The tiles that are shared, and the most parts that they have. Sets the grid."""
        launch, schedule, group = self.launch, self.launch.schedule, _groups_of(self.launch)
        if group is not None:
            host = launch.host.index
            launch.grid[0] = host.mul(host.folded(launch.op.gridSizeX), schedule.split_k)
            return Tail.of(index, schedule, group), schedule.ctas
        left = self.tiles % schedule.ctas
        launch.grid[0] = self.tiles + left * (schedule.split_k - 1)
        return Tail(self.tiles - left, left, schedule.split_k), left * schedule.split_k


def _copies_arguments(loop: scf.ForOp) -> bool:
    """Whether the loop over K copies arguments of the kernel at its own K."""
    copies = [op for op in loop.body.block.ops if isinstance(op, CopyOp)]
    return all(isinstance(c.source, BlockArgument) and loop.body.block.args[0] in c.indices for c in copies)


class CutK(LaunchPattern):
    """Cuts the loop over K of a kernel, if the schedule says into how many parts."""

    def rewrite(self, launch: LaunchedKernel) -> None:
        shared = any(isinstance(op, ArriveLastOp) for op in launch.kernel.walk())  # as of an attention, by its own
        if launch.schedule.split_k > 1 and not shared and (split := _split(launch)) is not None:
            split.rewrite()


class SplitKPass(PatternPass):
    """Splits K among as many CTAs as a schedule's `split_k` says; the last CTA of a tile to finish adds their partial
    sums. It runs after `warp-tile`. Without it, one CTA multiplies all of K."""

    name = "warp-split-k"
    needs: ClassVar = ("schedule.split_k",)
    patterns = (CutK,)


def _split(launch: LaunchedKernel) -> Split | None:
    """How the loop over K of a kernel is cut; None, and a remark, where it cannot be."""
    tile, loop, tiles = launch.block_id(), launch.loop(), constant_value(launch.op.gridSizeX)
    k = None if loop is None else constant_value(loop.ub)
    if tile is not None and loop is not None and k and launch.schedule.shares_tail and _groups_of(launch) is not None:
        return SharedTail(launch, tile, loop, 0, k)
    if tile is not None and loop is not None and tiles and k:
        if launch.schedule.shares_tail:
            return SharedTail(launch, tile, loop, tiles, k) if tiles % launch.schedule.ctas else None
        if launch.schedule.together > 1:
            return SplitTurns(launch, tile, loop, tiles, k)
        if k % launch.schedule.split_k == 0 and _copies_arguments(loop):
            return Split(launch, tile, loop, tiles, k)
    reason = "it takes a known grid and a loop over a K that the parts divide, of single matrices"
    remark(launch.kernel, SplitKPass.name, f"K is not cut: {reason}")
    return None
