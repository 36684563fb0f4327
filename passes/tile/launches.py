"""Launches in turn that do not depend on each other: those of gradients overlap, and `warp-join` makes one of products
of few rows, or of what writes parts of one memory.

CTAs of one launch of gradients fill the SMs that the last CTAs of the other leave. H100, 128 columns, 4096: two
launches of 2048 CTAs each, one for each SM, leave half of the last turns of both idle. Products of few rows read their
weights in a few microseconds, to which each launch adds 3.5 (H100). Parts of a row may share sectors of 32 bytes: CTAs
that write them run at the same time, so that the L2 cache writes whole sectors to memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, NamedTuple, cast

from xdsl.dialects import memref, scf
from xdsl.dialects.builtin import IndexType, MemRefType, StringAttr
from xdsl.dialects.gpu import FuncOp, LaunchFuncOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import SymbolTable

from ...dialect.mlir.gpu import BlockIdOp, ReturnOp, SubgroupIdOp, ThreadIdOp
from ...dialect.warp.attention import AttentionGradientOp
from ...dialect.warp.attributes import COMPUTES, ScheduleAttr, schedule_on
from ...dialect.warp.memory import StoreOp
from ...dialect.warp.op_shapes import is_pure, only_reads
from ...dialect.warp.synchronisation import CLUSTER_SIZE, LAUNCHES, MIN_CTAS, CommitOp, WaitOp
from ..allocate import allocate
from ..linalg.memory_uses import may_share, roots_of
from ..linalg.operand import divisor_of, root
from ..patterns import IndexBuilder, PatternPass, constant_value, rewrite_pattern
from .tiling import LaunchedKernel, schedule_of

SIZES = 6
"""Operands of a launch for its grid and its blocks, which come first."""

STORES = StoreOp.name, memref.StoreOp.name, "vector.store"
"""Operations that write; those of vectors by their name, for their dialect takes long to import."""
PLACES = BlockIdOp, SubgroupIdOp, ThreadIdOp, scf.IfOp, scf.YieldOp, ReturnOp
"""Operations that tell what a thread does, of which it is not known that they have no effects."""


class _Launch(NamedTuple):
    """The launch of a kernel, and what it reads or writes, and what it writes, as views of memory."""

    launch: LaunchFuncOp
    kernel: FuncOp
    memories: Sequence[SSAValue]
    written: Sequence[SSAValue]

    @staticmethod
    def of_gradients(launch: LaunchFuncOp, kernel: FuncOp) -> _Launch | None:
        """None for another kernel, for one by fragments, and for CTAs whose number only the call knows."""
        op = next((op for op in kernel.body.block.ops if isinstance(op, AttentionGradientOp)), None)
        if op is None or schedule_of(op).together == 1 or not constant_value(launch.gridSizeX):
            return None
        operands = launch.kernelOperands
        written = [of for of, argument in zip(operands, kernel.body.block.args, strict=True) if argument in op.outputs]
        return _Launch(launch, kernel, operands, written)

    @staticmethod
    def of_memory(launch: LaunchFuncOp) -> _Launch | None:
        """None for a kernel of a user, other operands than memory, and all but a known number of CTAs along x."""
        kernel, operands = cast("FuncOp", SymbolTable.lookup_symbol(launch, launch.kernel)), launch.kernelOperands
        plain = len(launch.operands) == SIZES + len(operands) and all(isinstance(x.type, MemRefType) for x in operands)
        if not plain or launch.results or {ScheduleAttr.name, COMPUTES}.isdisjoint(kernel.attributes):
            return None
        pairs = zip(operands, kernel.body.block.args, strict=True)
        written = [value for value, of in pairs if not all(only_reads(use.operation, of) for use in of.uses)]
        made = _Launch(launch, kernel, operands, written)
        return None if None in made.sizes or made.sizes[1:3] != [1, 1] else made

    @property
    def sizes(self) -> list[int | None]:
        """Of the grid and of its blocks, where they are known."""
        return list(map(constant_value, self.launch.operands[:SIZES]))

    @property
    def is_of_few_rows(self) -> bool:
        """Whether it is a product of few rows, by slices of K."""
        schedule = schedule_on(self.kernel)
        return schedule is not None and schedule.shares_launch

    @property
    def is_of_elements(self) -> bool:
        """Whether it has no schedule, and its threads do nothing but load, compute and store."""
        plain = {ScheduleAttr.name, MIN_CTAS, CLUSTER_SIZE}.isdisjoint(self.kernel.attributes)
        return plain and all(
            op.name in STORES or isinstance(op, PLACES) or only_reads(op) for op in self.kernel.body.walk()
        )

    @property
    def steps(self) -> list[str]:
        """What its threads do, without indices."""
        steps = self.kernel.body.walk()
        return [op.name for op in steps if not op.results or not all(isinstance(r.type, IndexType) for r in op.results)]

    def is_apart(self, other: _Launch) -> bool:
        """Whether neither writes what the other reads or writes."""
        both = (self.written, other.memories), (other.written, self.memories)
        pairs = ((one, of) for written, used in both for one in written for of in used)
        return not any(root(one) is root(of) and may_share(one, of) for one, of in pairs)

    def may_join(self, other: _Launch) -> bool:
        """Whether one kernel may do what both do, and is faster."""
        few = self.is_of_few_rows and other.is_of_few_rows
        elements = not few and self.is_of_elements and other.is_of_elements
        parts = elements and not roots_of(self.written).isdisjoint(roots_of(other.written))
        alike = elements and not roots_of(self.memories).isdisjoint(roots_of(other.memories))
        alike = alike and self.steps == other.steps
        if not (few or parts or alike) or self.sizes[3:] != other.sizes[3:] or not self.is_apart(other):
            return False
        module = cast("Operation", self.launch.get_toplevel_object())
        launched = [each.kernel for each in module.walk() if isinstance(each, LaunchFuncOp)]
        return launched.count(self.launch.kernel) == launched.count(other.launch.kernel) == 1

    def may_follow(self, launch: LaunchFuncOp, kernel: FuncOp) -> bool:
        """Whether another launch before it may as well come first: it only loads what both have."""
        pairs, memories = zip(launch.kernelOperands, kernel.body.block.args, strict=True), roots_of(self.memories)
        uses = (use for of, argument in pairs if root(of) in memories for use in argument.uses)
        return all(isinstance(use.operation, memref.LoadOp) for use in uses)


def overlap(block: Block) -> None:
    """Lets launches of gradients in a block begin before the one ahead ends, if they do not depend on each other. A
    kernel lets the next one begin when all its CTAs have begun, and the next one waits at its end: what follows finds
    both finished. Launches between the two that look for keys of documents come first."""
    run = list[_Launch]()
    for op in list(block.ops):
        if isinstance(op, LaunchFuncOp):
            run = _with(run, op, cast("FuncOp", SymbolTable.lookup_symbol(op, op.kernel)))
        elif not is_pure(op) and not isinstance(op, memref.AllocOp | memref.DeallocOp):
            run = []


def _with(run: list[_Launch], launch: LaunchFuncOp, kernel: FuncOp) -> list[_Launch]:
    """The launches that may run at once when one more is launched."""
    made = _Launch.of_gradients(launch, kernel)
    if made is None:
        return run if all(each.may_follow(launch, kernel) for each in run) else []
    if not run or not all(made.is_apart(each) for each in run):
        return [made]
    between, first = run[-1].launch.next_op, run[0].launch
    while between is not None and between is not launch:
        op, between = between, between.next_op
        if not isinstance(op, memref.DeallocOp):
            op.detach()
            Rewriter.insert_op(op, InsertPoint.before(first))
    Rewriter.insert_op(CommitOp(LAUNCHES), InsertPoint.at_start(run[-1].kernel.body.block))
    Rewriter.insert_op(WaitOp(LAUNCHES, 0), InsertPoint.before(cast("Operation", made.kernel.body.block.last_op)))
    return [*run, made]


@rewrite_pattern
def join_launches(op: LaunchFuncOp, rewriter: PatternRewriter) -> None:
    """Two launches in turn that do not depend on each other, of products of few rows, of what writes parts of one
    memory, or of what does the same with memory that both read: one, whose CTAs each run one of the kernels."""
    ahead = op.prev_op
    while ahead is not None and is_pure(ahead):
        ahead = ahead.prev_op
    first, second = map(_Launch.of_memory, (ahead, op)) if isinstance(ahead, LaunchFuncOp) else (None, None)
    if first is not None and second is not None and first.may_join(second):
        _join(first, LaunchedKernel(op, second.kernel), turns=second.is_of_elements)
        rewriter.has_done_action = True


def _join(first: _Launch, second: LaunchedKernel, *, turns: bool) -> None:
    """Puts the body of the first kernel into the second, for the CTAs behind those of its own; or in `turns`, each of
    which has one CTA of the kernel that has fewer."""
    bodies = [second.body, first.kernel.body.block]
    for kernel in (second.kernel, first.kernel):
        allocate(kernel)
    for value, argument in zip(first.launch.kernelOperands, bodies[1].args, strict=True):
        argument.replace_all_uses_with(second.insert(len(second.operands), value, argument.name_hint or "memory"))
        second.divisors[-1] = divisor_of(argument)
    mine, others = (partial(_moved, ops=list(body.ops)[:-1]) for body in bodies)
    index = IndexBuilder(cast("Operation", second.body.last_op))
    own, more = (cast("int", constant_value(launch.gridSizeX)) for launch in (second.op, first.launch))
    pair = (own, mine), (more, others)
    (few, rarely), (many, often) = pair[::-1] if turns and more < own else pair
    step, number = 1 + many // few if turns else 1, index.number(BlockIdOp)
    turn, place = index.div(number, step), index.rem(number, step)
    begun = index.minimum(index.add(turn, 1), few) if turns else few
    first_of_turn = index.compare("ult", index.add(index.mul(place, few), turn), few)  # of which there are few
    rest = index.value(index.sub(number, begun))
    index.either(first_of_turn, partial(rarely, number=index.value(turn)), partial(often, number=rest))
    second.grid[0] = own + more
    if turns:
        texts = (cast("StringAttr", kernel.attributes[COMPUTES]).data for kernel in (second.kernel, first.kernel))
        second.kernel.attributes[COMPUTES] = StringAttr("; ".join(texts))
    second.finish()
    Rewriter.erase_op(first.launch)
    Rewriter.erase_op(first.kernel)


def _moved(index: IndexBuilder, ops: Sequence[Operation], number: SSAValue) -> Sequence[SSAValue]:
    """Moves operations to a branch, in which the CTA has another number."""
    for op in ops:
        op.detach()
        index.insert(op)
        for inner in op.walk():
            if isinstance(inner, BlockIdOp):
                Rewriter.replace_op(inner, [], [number])
    return []


class JoinPass(PatternPass):
    """Joins launches in turn that do not depend on each other, of products of few rows by slices of K, of what writes
    parts of one memory, or of what does the same with memory that both read, by a kernel whose CTAs each run one."""

    name = "warp-join"
    needs: ClassVar = ("launches",)
    patterns = (join_launches,)
