"""Launches that do not depend on each other: those of gradients overlap, and `warp-join` makes one of products of few
rows.

CTAs of one launch of gradients fill the SMs that the last CTAs of the other leave. H100, 128 columns, 4096: two
launches of 2048 CTAs each, one for each SM, leave half of the last turns of both idle. Products of few rows read their
weights in a few microseconds, to which each launch adds 3.5 (H100).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import ClassVar, NamedTuple, cast

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import memref
from xdsl.dialects.builtin import MemRefType, ModuleOp, StringAttr
from xdsl.dialects.gpu import FuncOp, LaunchFuncOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import SymbolTable

from ...dialect.mlir.gpu import BlockIdOp, ReturnOp
from ...dialect.mlir.nvvm_emitted import GRID_ACTION, GridDependencyOp
from ...dialect.warp.attention import AttentionGradientOp
from ...dialect.warp.attributes import ScheduleAttr, in_place_of
from ...dialect.warp.cta import CopyOp
from ...dialect.warp.op_shapes import is_pure, only_reads
from ..allocate import allocate
from ..linalg.operand import divisor_of, root
from ..patterns import IndexBuilder, constant_value
from .tiling import promise, schedule_of

SIZES, FEW_ROWS = 6, 16
"""Operands of a launch for its grid and its blocks, which come first; rows of CTA tiles up to which launches are
joined."""


class _Launch(NamedTuple):
    """The launch of a kernel, and the memory that it reads or writes, and that it writes."""

    launch: LaunchFuncOp
    kernel: FuncOp
    memories: set[SSAValue]
    written: set[SSAValue]

    @staticmethod
    def of_gradients(launch: LaunchFuncOp, kernel: FuncOp) -> _Launch | None:
        """None for another kernel, for one by fragments, and for CTAs whose number only the call knows."""
        op = next((op for op in kernel.body.block.ops if isinstance(op, AttentionGradientOp)), None)
        if op is None or schedule_of(op).together == 1 or not constant_value(launch.gridSizeX):
            return None
        roots = [root(value) for value in launch.kernelOperands]
        written = {of for of, argument in zip(roots, kernel.body.block.args, strict=True) if argument in op.outputs}
        return _Launch(launch, kernel, set(roots), written)

    @staticmethod
    def of_few_rows(launch: LaunchFuncOp) -> _Launch | None:
        """None for another product than one by slices of K, and for all but CTAs along x."""
        kernel = cast("FuncOp", SymbolTable.lookup_symbol(launch, launch.kernel))
        schedule, operands = kernel.attributes.get(ScheduleAttr.name), launch.kernelOperands
        few = isinstance(schedule, ScheduleAttr) and schedule.data.sliced_k > 1 and schedule.data.cta[0] <= FEW_ROWS
        plain = len(launch.operands) == SIZES + len(operands) and all(isinstance(x.type, MemRefType) for x in operands)
        sizes = list(map(constant_value, launch.operands[:SIZES]))
        if not few or not plain or launch.results or None in sizes or sizes[1:3] != [1, 1]:
            return None
        pairs = zip(operands, kernel.body.block.args, strict=True)
        written = {root(value) for value, argument in pairs if not _is_only_read(argument)}
        return _Launch(launch, kernel, set(map(root, operands)), written)

    @property
    def ctas(self) -> int:
        return cast("int", constant_value(self.launch.gridSizeX))

    @property
    def threads(self) -> list[int | None]:
        return list(map(constant_value, self.launch.operands[3:SIZES]))

    def is_apart(self, other: _Launch) -> bool:
        """Whether neither writes what the other reads or writes."""
        return self.written.isdisjoint(other.memories) and other.written.isdisjoint(self.memories)

    def may_follow(self, launch: LaunchFuncOp, kernel: FuncOp) -> bool:
        """Whether another launch before it may as well come first: it only loads what both have."""
        pairs = zip(map(root, launch.kernelOperands), kernel.body.block.args, strict=True)
        uses = (use for of, argument in pairs if of in self.memories for use in argument.uses)
        return all(isinstance(use.operation, memref.LoadOp) for use in uses)


def overlap(block: Block) -> None:
    """Lets launches of gradients in a block begin before the one ahead ends, if they do not depend on each other.

    A kernel lets the next one begin when all its CTAs have begun, and the next one waits at its end: what follows finds
    both finished. Launches between the two that look for keys of documents come first.
    """
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
    for each, kind in ((run[-1], "launch_dependents"), (made, "wait")):
        control = GridDependencyOp.create(properties={"kind": GRID_ACTION(StringAttr(kind))})
        body = each.kernel.body.block
        at = InsertPoint.at_start(body) if kind != "wait" else InsertPoint.before(cast("Operation", body.last_op))
        Rewriter.insert_op(control, at)
    return [*run, made]


def _is_only_read(memory: SSAValue) -> bool:
    """Whether a kernel only reads memory, through views too."""
    for use in memory.uses:
        op = use.operation
        views = [result for result in op.results if isinstance(result.type, MemRefType)]
        copied = isinstance(op, CopyOp) and op.destination is not memory
        if not (copied or (only_reads(op) and all(map(_is_only_read, views)))):
            return False
    return True


def _join(run: Sequence[_Launch]) -> None:
    """Puts one launch in the place of the last of several. Its kernel has a branch for the CTAs of each, which uses the
    same shared memory as the others."""
    if len(run) < 2:
        return
    first, last = run[0], run[-1].launch
    arguments = [argument for each in run for argument in each.kernel.body.block.args]
    divisors, host = list(map(divisor_of, arguments)), IndexBuilder(Builder(InsertPoint.before(last)))
    body = Block(arg_types=[argument.type for argument in arguments])
    for each in run:
        allocate(each.kernel)
    for old, new in zip(arguments, body.args, strict=True):
        new.name_hint = old.name_hint
        old.replace_all_uses_with(new)
    index = IndexBuilder(Builder(InsertPoint.at_end(body)))
    _branches(index, run, index.insert(BlockIdOp()).result)
    index.insert(ReturnOp([]))
    kernel = FuncOp(first.kernel.sym_name.data, ([value.type for value in body.args], []), Region(body), kernel=True)
    kernel.attributes |= first.kernel.attributes
    kernel.location = first.kernel.location
    promise(kernel, divisors)
    Rewriter.replace_op(first.kernel, kernel)
    grid = host.values([sum(each.ctas for each in run), 1, 1])
    operands = [value for each in run for value in each.launch.kernelOperands]
    host.insert(
        in_place_of(last, LaunchFuncOp(first.launch.kernel, grid, last.operands[3:SIZES], kernelOperands=operands))
    )
    for each in run:
        Rewriter.erase_op(each.launch)
        if each is not first:
            Rewriter.erase_op(each.kernel)


def _branches(index: IndexBuilder, run: Sequence[_Launch], number: SSAValue) -> list[SSAValue]:
    """Puts the body of the first kernel where the number of a CTA is below that of its CTAs, and the others elsewhere,
    with numbers from 0 on."""
    each, others = run[0], run[1:]
    if others:
        own = index.compare("ult", number, each.ctas)
        rest = index.value(index.sub(number, each.ctas))
        index.either(own, partial(_branches, run=[each], number=number), partial(_branches, run=others, number=rest))
        return []
    for op in list(each.kernel.body.block.ops)[:-1]:
        op.detach()
        index.insert(op)
        for inner in op.walk():
            if isinstance(inner, BlockIdOp):
                Rewriter.replace_op(inner, [], [number])
    return []


class JoinPass(ModulePass):
    """Joins launches of products of few rows by slices of K that follow each other and do not depend on each other, by
    a kernel in which each CTA runs one of theirs."""

    name = "warp-join"
    needs: ClassVar = ("schedule.sliced_k",)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        launches = [each for each in op.walk() if isinstance(each, LaunchFuncOp)]
        launched = Counter(each.kernel for each in launches)
        for block in dict.fromkeys(each.parent for each in launches):
            run = list[_Launch]()
            for each in [] if block is None else list(block.ops):
                made = (
                    _Launch.of_few_rows(each) if isinstance(each, LaunchFuncOp) and launched[each.kernel] == 1 else None
                )
                if made is not None and all(made.is_apart(other) and made.threads == other.threads for other in run):
                    run.append(made)
                elif not is_pure(each):
                    _join(run)
                    run = [] if made is None else [made]
            _join(run)
