"""`warp-outline`: a matrix product becomes a kernel that multiplies one tile of it in each CTA, and its launch.
`warp-join`: launches in turn that do not depend on each other, of products of few rows or parts of one memory, are one.

Launches of gradients overlap: CTAs of one fill the SMs that the last CTAs of the other leave. H100, 128 columns, 4096:
two launches of 2048 CTAs each, one for each SM, leave half of the last turns of both idle. Products of few rows read
their weights in a few microseconds, to which each launch adds 3.5 (H100). Parts of a row may share sectors of 32 bytes:
CTAs that write them run at the same time, so that the L2 cache writes whole sectors to memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

from xdsl.context import Context
from xdsl.dialects import func, memref, scf
from xdsl.dialects.builtin import IndexType, MemRefType, ModuleOp, StringAttr
from xdsl.dialects.gpu import FuncOp, LaunchFuncOp
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Block, Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import SymbolTable

from ...dialect.mlir.affine import map_along
from ...dialect.mlir.gpu import BlockIdOp, ReturnOp, SubgroupIdOp, ThreadIdOp
from ...dialect.schedule import Schedule
from ...dialect.warp.attention import AttentionGradientOp, AttentionOp
from ...dialect.warp.attributes import COMPUTES, ScheduleAttr, schedule_on
from ...dialect.warp.elements import OPERAND_LOOPS, K, M
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.memory import StoreOp
from ...dialect.warp.op_shapes import is_pure, only_reads
from ...dialect.warp.operands import FindGroupOp
from ...dialect.warp.rows import RowsOp
from ...dialect.warp.synchronisation import CLUSTER_SIZE, LAUNCHES, MIN_CTAS, CommitOp, WaitOp
from ...dialect.warp.views import PagedOp
from ..allocate import allocate
from ..diagnostics import fail
from ..linalg.memory_uses import check_unshared, may_share, roots_of
from ..linalg.operand import KernelArgument, MatrixOperand, VectorOperand, divisor_of, each_once, root
from ..linalg.product import Product, read
from ..linalg.raise_matmul import raise_products
from ..linalg.read_attention import Attention, AttentionGradient, erase_pages
from ..patterns import Index, IndexBuilder, PatternPass, apply_patterns, constant_value, rewrite_pattern
from .operands import batch_sizes, cta_number, in_matrix, rows_of_group
from .tiling import Inside, LaunchedKernel, Outliner, Tiling, kernel_body, loops_in_tile, schedule_of

if TYPE_CHECKING:
    from .outline_attention import TiledRows

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


class Extents(NamedTuple):
    """The sizes of a product inside its kernel: numbers, or values for dynamic ones. `batch` has those of the loops
    around it."""

    m: Index
    n: Index
    batch: tuple[Index, ...]

    @staticmethod
    def of(index: IndexBuilder, product: Product, memory: Mapping[SSAValue, SSAValue]) -> Extents:
        """The sizes of the product. Dynamic ones are those of the operands in `memory`."""

        def size(axis: str, size: int, operand: MatrixOperand, dimension: int) -> Index:
            return size if product.is_known(axis) else index.dim(memory[operand.value], dimension)

        a, b = product.d if paged(product) else product.a, product.b
        m = size("m", product.m, a, a.loops[0])
        return Extents(m, size("n", product.n, b, b.loops[1]), batch_sizes(index, product, memory))


def grid(index: IndexBuilder, extents: Extents, schedule: Schedule) -> tuple[Index, Index]:
    """CTA tiles along M and N, rounded up to whole clusters. Surplus tiles are moved back, or store nothing."""
    (rows, columns, _), (high, wide) = schedule.cta, schedule.cluster
    down, across = index.ceildiv(extents.m, rows * high), index.ceildiv(extents.n, columns * wide)
    return index.mul(down, high), index.mul(across, wide)


def cta_origin(
    index: IndexBuilder, extents: Extents, schedule: Schedule, tile: Index, products: int = 1
) -> tuple[Index, Index]:
    """The first row and column of a CTA tile of D. If there are several products, D has one column for each of their
    columns. CTAs that run at the same time should share rows of A and columns of B in L2. So they walk `group` rows of
    tiles together, column by column. A cluster has adjacent tiles."""
    (down, across), (high, wide) = grid(index, extents, schedule), schedule.cluster
    rank = index.rem(tile, high * wide)
    tile, down, across = index.div(tile, high * wide), index.div(down, high), index.div(across, wide)
    group = index.minimum(down, max(1, schedule.group // high))
    together = index.mul(group, across)
    within = index.rem(tile, together)
    first = index.mul(index.div(tile, together), group)
    height = group
    if not isinstance(down, int) or not isinstance(group, int) or down % group:
        height = index.minimum(index.sub(index.value(down), first), group)
    row, column = index.add(first, index.rem(within, height)), index.div(within, height)
    row = index.add(index.mul(row, high), index.rem(rank, high))
    column = index.add(index.mul(column, wide), index.div(rank, high) if wide > 1 else 0)
    return index.mul(row, schedule.cta[0]), index.mul(column, schedule.cta[1] // products)


def _moved_inside(index: IndexBuilder, tiling: Tiling[Product], axis: str, start: Index) -> Index:
    """The start of a CTA's tile along an axis, moved back where the tile would pass the end."""
    last = tiling.last_start(axis)
    return start if last is None else index.minimum(start, last)


def paged(product: Product) -> tuple[PagedOp, ...]:
    """A, if a table names its rows."""
    return (view,) if isinstance(view := product.a.value.owner, PagedOp) else ()


class TiledProduct(NamedTuple):
    """A product: each CTA computes a tile of D; tiles of one matrix of a batch follow each other."""

    product: Product
    schedule: Schedule

    @property
    def op(self) -> MatmulOp:
        return self.product.op

    @property
    def memories(self) -> Sequence[KernelArgument]:
        """The operands of the kernel; for rows of A that a table names, the memory and the table."""
        if not (views := paged(self.product)):
            return self.product.memories
        (view,), a = views, self.product.a
        of_a = VectorOperand(a.name, view.memory, divisor=a.divisor), VectorOperand("rows", view.table)
        return each_once([*of_a, *(each for each in self.product.operands if each is not a)])

    def scratch(self, outliner: Outliner) -> tuple[VectorOperand, ...]:
        """Scratch memory of the kernel: none here. `warp-split-k` adds the partial sums."""
        del outliner
        return ()

    def tile(
        self, index: IndexBuilder, arguments: Mapping[SSAValue, SSAValue], scratch: Sequence[SSAValue] = ()
    ) -> Operation:
        """What a CTA computes, in its kernel; `arguments` stand for the operands."""
        del scratch
        product, tiling = self.product, Tiling(self.product, self.schedule)
        number = cta_number(index)
        extents, tile, matrix, part = self._placed(index, number, arguments)
        inside = Inside.of(
            index, self.op.epilogue, product.operands, arguments, extents.batch, matrix, part, product.parted
        )
        starts = cta_origin(index, extents, self.schedule, tile, product.products)
        starts = [_moved_inside(index, tiling, axis, start) for axis, start in zip("mn", starts, strict=True)]
        maps = [
            self._map(loops_in_tile(operand, loops), operand)
            for operand, loops in zip((product.a, product.b, product.d), OPERAND_LOOPS, strict=True)
        ]
        op, outer, read = self.op, len(product.summed), product.epilogue_operands
        a, b = (inside.factor(index, form, factor) for form, factor in zip(op.forms, product.factors, strict=True))
        return op.like(
            a=a,
            b=b,
            d=inside.seen(product.d),
            c=None if product.c is None else inside.seen(product.c),
            through=inside.function(index, op.epilogue, read, (outer, outer + 1), outer + len(OPERAND_LOOPS)),
            tile=index.values(starts),
            indexing_maps=maps,
            ends=None,
        )

    def _placed(
        self, index: IndexBuilder, number: SSAValue, arguments: Mapping[SSAValue, SSAValue]
    ) -> tuple[Extents, Index, Index, Sequence[Index]]:
        """The sizes of the matrix that a tile is of, its number there, the matrix's number, and its group's rows."""
        product, extents = self.product, Extents.of(index, self.product, arguments)
        if product.ends is None:
            tile, matrix = in_matrix(index, number, self._tiles(index, extents)) if extents.batch else (number, 0)
            return extents, tile, matrix, ()
        ends = arguments[product.ends.value]
        if self.op.grouped == K:
            tile, matrix = in_matrix(index, number, self._tiles(index, extents))
        else:
            across = index.value(grid(index, extents, self.schedule)[1])
            of_group = index.insert(FindGroupOp(ends, number, self.schedule.cta[0], across))
            tile, matrix = index.sub(number, of_group.first), of_group.group
        begin, rows = rows_of_group(index, ends, matrix)
        # A tile behind the last group multiplies nothing, but by a B that there is.
        matrix = index.minimum(matrix, product.matrices - 1)
        if self.op.grouped == M:
            extents = extents._replace(m=rows if self.schedule.ctas else index.select("eq", rows, 0, 1, rows))
        return extents, tile, matrix, (begin, rows)

    def _map(self, loops: Sequence[int], operand: MatrixOperand) -> AffineMap:
        """The map of an operand of the product of a tile: reduction loops other than k come first."""
        first, outer = len(self.product.batch), len(self.product.summed)
        summed = (loop - first for loop in operand.batch if loop >= first)
        return map_along(outer + len(OPERAND_LOOPS), (*summed, *(outer + loop for loop in loops)))

    def ctas(self, index: IndexBuilder, memory: Mapping[SSAValue, SSAValue]) -> Index:
        """The number of CTAs. `memory` maps memory to where its dynamic sizes are read."""
        product, extents = self.product, Extents.of(index, self.product, memory)
        if self.op.grouped == M:
            # As many as there are if each group has one row more than whole tiles; the last ones may do nothing.
            rows = index.add(extents.m, product.matrices * (self.schedule.cta[0] - 1))
            down, across = index.div(rows, self.schedule.cta[0]), grid(index, extents, self.schedule)[1]
            return index.mul(down, across)
        return reduce(index.mul, extents.batch, self._tiles(index, extents))

    def _tiles(self, index: IndexBuilder, extents: Extents) -> Index:
        """Tiles of a matrix of the batch."""
        return index.mul(*grid(index, extents, self.schedule))


def outline(tiled: TiledProduct | TiledRows, views: Sequence[PagedOp] = ()) -> None:
    """Replaces an operation by a kernel and its launch. `views` are the operands that are views of pages."""
    schedule, outliner = schedule_of(tiled.op), Outliner(tiled.op)
    scratch = tiled.scratch(outliner)
    operands = (*tiled.memories, *scratch)
    index, body, arguments = kernel_body(operands)
    for view in dict.fromkeys(views):
        arguments[view.result] = index.insert(view.of(arguments[view.memory], arguments[view.table])).result
    index.insert(tiled.tile(index, arguments, [arguments[memory.value] for memory in scratch]))
    ctas = tiled.ctas(outliner.index, {memory.value: memory.value for memory in tiled.memories})
    kernel = outliner.launch("", operands, body, ctas, schedule.threads)
    kernel.attributes[ScheduleAttr.name] = ScheduleAttr(schedule)
    outliner.finish()
    if views:
        erase_pages([view.result for view in views])


@rewrite_pattern
def outline_product(op: MatmulOp, rewriter: PatternRewriter) -> None:
    """`warp.matmul` with a schedule: a kernel in which each CTA multiplies one tile of D."""
    if not op.tile:
        schedule = schedule_of(op)
        check_unshared(op)
        product = read(op)
        outline(TiledProduct(product, schedule), paged(product))


@rewrite_pattern
def outline_attention(op: AttentionOp, rewriter: PatternRewriter) -> None:
    """Outlines a scheduled `warp.attention` as a kernel in which each CTA computes some rows of the result."""
    if not op.tile:
        from .outline_attention import TiledAttention  # with operations that a product does not need

        attention = Attention.of(op)
        outline(TiledAttention(attention, schedule_of(op)), attention.paged)


@rewrite_pattern
def outline_attention_gradient(op: AttentionGradientOp, rewriter: PatternRewriter) -> None:
    """Outlines a scheduled gradient of an attention likewise, beside the kernels of its other gradients."""
    if not op.tile:
        from .outline_attention import TiledGradient

        block = op.parent
        outline(TiledGradient(AttentionGradient.of(op), schedule_of(op)))
        if block is not None and not any(isinstance(other, AttentionGradientOp) for other in block.ops):
            overlap(block)


@rewrite_pattern
def outline_rows(op: RowsOp, rewriter: PatternRewriter) -> None:
    """Outlines `warp.rows` as a kernel in which each warp computes some rows."""
    from . import rows  # with operations that a product does not need

    rows.tile(op)


@rewrite_pattern
def outline_elementwise(op: Operation, rewriter: PatternRewriter) -> None:
    """Outlines any other operation of `linalg` if it is elementwise; otherwise it is an error."""
    if isinstance(op, LinalgStructuredOperation):
        from . import elementwise_kernel, window_kernel  # with operations that a product does not need

        (elementwise_kernel if elementwise_kernel.is_traversed(op) else window_kernel).tile(op)
    elif op.name.startswith("linalg.") and isinstance(op.parent_op(), func.FuncOp):
        fail(op, f"{op.name} has no kernel: of operations that reduce, products and rows are lowered")


class OutlinePass(PatternPass):
    """Outlines every scheduled product to a kernel in which each CTA computes one tile of D, and launches it. It does
    the same for each remaining elementwise operation of `linalg`, including `linalg.fill` and `linalg.copy`. Products
    still in `linalg` are raised first."""

    name = "warp-outline"
    patterns = outline_product, outline_attention, outline_attention_gradient, outline_rows, outline_elementwise

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if any(isinstance(each, LinalgStructuredOperation) for each in op.walk()):
            raise_products(op)
            from ..linalg.image_windows import fold_padding, gather_parts, pad_window
            from .nest_kernel import fold_start

            apply_patterns([fold_start], op)
            apply_patterns([fold_padding], op)
            apply_patterns([pad_window], op)
            apply_patterns([gather_parts], op, reverse=True)  # a copy with all before it
        if any(isinstance(each, RowsOp) for each in op.walk()):
            from ..linalg.split_rows import split_rows, sum_rows

            apply_patterns([sum_rows], op)
            apply_patterns([split_rows], op)
        super().apply(ctx, op)
