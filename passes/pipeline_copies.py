"""`warp-pipeline`: overlaps copies to shared memory with the products that read them.

A ring of `stages` buffers is kept full: while K tile t is multiplied, tile t + stages - 1 is on its way
into the buffer that tile t - 1 left. Fragments are double-buffered in registers too: those of the next
step of the instruction load while the current ones multiply, the first of the next tile under the last
step of this one. So a K tile needs one wait and one barrier, and both come before its last step::

    fill stages 0 .. S-2; wait; barrier; load fragments of step 0
    for each K tile:
      load step 1;  copy tile t + S - 1;  multiply step 0
      load step 2;                        multiply step 1
      ...
      wait; barrier; load step 0 of the next tile;  multiply the last step

The barrier is enough for both directions: before it every warp has loaded all it needs of the buffer that
the next tile's copies will overwrite. Tiles past the end of K are copied as zeros, so that the count of
groups in flight stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import arith, gpu, memref, scf
from xdsl.dialects.builtin import IndexType, MemRefType, ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from ..dialect.warp.attributes import ScheduleAttr, memory_of
from ..dialect.warp.copy import CommitOp, CopyOp, WaitOp
from ..dialect.warp.elementwise import RegroupOp
from ..dialect.warp.memory import LdmatrixOp, LoadOp, bounds, bounds_attribute
from ..dialect.warp.product import ProductOp
from .index_builder import Index, IndexBuilder, constant_value

if TYPE_CHECKING:
    from ..dialect.warp.words import LoadMetadataOp

TileLoad: TypeAlias = "LdmatrixOp | LoadOp | LoadMetadataOp"


def is_load(op: Operation) -> TypeGuard[TileLoad]:
    """Whether an operation reads a fragment from a tile in shared memory."""
    return isinstance(op, LdmatrixOp | LoadOp) or op.name == "warp.load_metadata"


@dataclass(frozen=True)
class Step:
    """One step of the instruction: the fragments it loads, those it regroups, and the product that takes them.

    Loads run a step ahead. Fragments are regrouped right before the product, when they have arrived.
    """

    loads: tuple[TileLoad, ...]
    regroups: tuple[RegroupOp, ...]
    mma: ProductOp


@dataclass(frozen=True)
class PlainLoop:
    """A K loop as `warp-tile` makes it: copies, barrier, steps, barrier."""

    loop: scf.ForOp
    copies: tuple[CopyOp, ...]
    steps: tuple[Step, ...]

    @property
    def counter(self) -> SSAValue:
        return self.loop.body.block.args[0]


def match(loop: scf.ForOp) -> PlainLoop | None:
    """Reads a loop of the plain form; None for any other loop."""
    ops = [op for op in loop.body.block.ops if not _counts(op, loop)]
    copies: list[CopyOp] = []
    while ops and isinstance(ops[0], CopyOp):
        copies.append(ops.pop(0))  # pyright: ignore[reportArgumentType]
    if not copies or len(ops) < 4 or any(c.is_async is not None or c.stage for c in copies):
        return None
    first, *compute, last, end = ops
    if not (isinstance(first, gpu.BarrierOp) and isinstance(last, gpu.BarrierOp) and isinstance(end, scf.YieldOp)):
        return None
    steps = _steps(compute)
    if steps is None or len(loop.iter_args) != 1:
        return None
    # Each product must add to the one before: the first to the loop variable, the last being what is yielded.
    chain: list[SSAValue] = [loop.body.block.args[1], *(step.mma.d for step in steps)]
    if [*(step.mma.operands[2] for step in steps), end.operands[0]] != chain:
        return None
    return PlainLoop(loop, tuple(copies), steps)


def _counts(op: Operation, loop: scf.ForOp) -> bool:
    """Whether an operation only multiplies or divides the loop's counter by a constant: an index of a copy."""
    return isinstance(op, arith.MuliOp | arith.DivUIOp) and (
        op.lhs == loop.body.block.args[0] or (isinstance(op.lhs.owner, Operation) and _counts(op.lhs.owner, loop))
    )


def _at(index: IndexBuilder, value: SSAValue, counter: SSAValue, k: Index) -> Index | None:
    """An index that follows from the counter, for another count; None for one that does not."""
    if value == counter:
        return k
    op = value.owner
    if not isinstance(op, arith.MuliOp | arith.DivUIOp):
        return None
    inner, by = _at(index, op.lhs, counter, k), constant_value(op.rhs)
    if inner is None or by is None:
        return None
    return index.mul(inner, by) if isinstance(op, arith.MuliOp) else index.div(inner, by)


def _steps(ops: Sequence[Operation]) -> tuple[Step, ...] | None:
    steps: list[Step] = []
    loads: list[TileLoad] = []
    regroups: list[RegroupOp] = []
    ready: set[SSAValue] = set()
    for op in ops:
        if is_load(op):
            loads.append(op)
            ready.add(op.fragment)
        elif isinstance(op, RegroupOp) and op.input in ready:
            regroups.append(op)
            ready = ready - {op.input} | {op.fragment}
        elif isinstance(op, ProductOp) and {*op.operands} - {op.operands[2]} == ready:
            steps.append(Step(tuple(loads), tuple(regroups), op))
            loads, regroups, ready = [], [], set()
        else:
            return None
    return tuple(steps) if steps and not loads else None


def _with_stages(alloc: SSAValue, stages: int) -> None:
    """Gives a shared-memory tile a leading dimension of stages, in place."""
    op, kind = alloc.owner, memory_of(alloc)
    if isinstance(op, memref.AllocOp):
        staged = MemRefType(kind.element_type, [stages, *kind.get_shape()], kind.layout, kind.memory_space)
        new = memref.AllocOp([], [], staged)
        block = op.parent_block()
        if block is not None:
            block.insert_op_before(new, op)
            alloc.replace_all_uses_with(new.memref)
            op.detach()
            op.erase()


@dataclass
class Pipeliner:
    """Rewrites one plain loop into `stages` stages."""

    plain: PlainLoop
    stages: int
    index: IndexBuilder
    k_step: int

    def rewrite(self) -> None:
        loop = self.plain.loop
        for tile in dict.fromkeys(copy.destination for copy in self.plain.copies):
            _with_stages(tile, self.stages)
        for stage in range(self.stages - 1):
            self.copy(self.index, stage * self.k_step, stage)
        self.wait(self.index)
        first = self.load(self.index, self.plain.steps[0], 0)
        initial = [*loop.iter_args, *first, *self.index.values([0, self.stages - 1])]
        body = Block(arg_types=[IndexType(), *(value.type for value in initial)])
        self.body(self.index.at(Builder(InsertPoint.at_end(body))), body)
        pipelined = scf.ForOp(loop.lb, loop.ub, loop.step, initial, body)
        self.index.insert(pipelined)
        loop.results[0].replace_all_uses_with(pipelined.results[0])
        loop.detach()
        loop.erase()

    def body(self, index: IndexBuilder, body: Block) -> None:
        counter, accumulator, *rest = body.args
        fragments, (reading, writing) = rest[:-2], rest[-2:]
        ahead = index.add(counter, (self.stages - 1) * self.k_step)
        steps = self.plain.steps
        for i, step in enumerate(steps):
            last = i == len(steps) - 1
            upcoming: list[SSAValue] = [] if last else self.load(index, steps[i + 1], reading)
            if i == 0:
                self.copy(index, ahead, writing)
            if last:
                self.wait(index)
                following = index.wrap(index.add(reading, 1), self.stages)
                upcoming = self.load(index, steps[0], following)
                accumulator = self.multiply(index, step, fragments, accumulator)
                index.insert(scf.YieldOp(accumulator, *upcoming, index.value(following), reading))
            else:
                accumulator = self.multiply(index, step, fragments, accumulator)
                fragments = upcoming

    def copy(self, index: IndexBuilder, k: Index, stage: Index) -> None:
        """Starts the copies of the tile at `k` into a stage, as one group."""
        for copy in self.plain.copies:
            moved = [_at(index, i, self.plain.counter, k) for i in copy.indices]
            where = [i if new is None else new for new, i in zip(moved, copy.indices, strict=True)]
            tile, source = memory_of(copy.destination).get_shape()[-2:], memory_of(copy.source)
            inside = [
                _inside(flag, new, extent, size)
                for flag, new, extent, size in zip(bounds(copy.in_bounds), moved, tile, source.get_shape(), strict=True)
            ]
            index.insert(
                CopyOp(
                    copy.source,
                    index.values(where),
                    copy.destination,
                    index.values([stage]),
                    is_async=True,
                    in_bounds=bounds_attribute(*inside),
                )
            )
        index.insert(CommitOp())

    def wait(self, index: IndexBuilder) -> None:
        """Waits for the next tile, of this thread and of all others."""
        index.insert(WaitOp(self.stages - 2))
        index.insert(gpu.BarrierOp())

    def load(self, index: IndexBuilder, step: Step, stage: Index) -> list[SSAValue]:
        """Loads the fragments of a step from a stage."""
        return [index.insert(_from_stage(load, index.value(stage))).fragment for load in step.loads]

    @staticmethod
    def multiply(index: IndexBuilder, step: Step, fragments: Sequence[SSAValue], accumulator: SSAValue) -> SSAValue:
        place: dict[SSAValue, SSAValue] = {
            load.fragment: value for load, value in zip(step.loads, fragments, strict=True)
        }
        for regroup in step.regroups:
            place[regroup.fragment] = index.insert(regroup.clone(place)).fragment
        return index.insert(step.mma.clone(place | {step.mma.operands[2]: accumulator})).d


def _from_stage(load: TileLoad, stage: SSAValue) -> TileLoad:
    """A load of a tile as one from a stage of its ring."""
    staged = load.clone()
    staged.operands = [load.memory, stage, *load.indices]
    return staged


def _inside(flag: bool, along_k: Index | None, extent: int, size: int) -> bool:
    """Whether a copy stays inside along one dimension; copies ahead of the loop may pass the end of K."""
    return flag if along_k is None else isinstance(along_k, int) and along_k + extent <= size


@dataclass(frozen=True)
class PipelineCopiesPass(ModulePass):
    """Pipelines the K loops that `warp-tile` made, with the stages their schedules ask for."""

    name = "warp-pipeline"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for kernel in [o for o in op.walk() if isinstance(o, gpu.FuncOp)]:
            schedule = kernel.attributes.get(ScheduleAttr.name)
            if isinstance(schedule, ScheduleAttr) and schedule.data.stages > 1:
                for loop in [o for o in kernel.walk() if isinstance(o, scf.ForOp)]:
                    self._pipeline(loop, schedule.data.stages)

    @staticmethod
    def _pipeline(loop: scf.ForOp, stages: int) -> None:
        plain, step, lower = match(loop), constant_value(loop.step), constant_value(loop.lb)
        if plain is not None and step is not None and lower == 0:
            Pipeliner(plain, stages, IndexBuilder(Builder(InsertPoint.before(loop))), step).rewrite()
