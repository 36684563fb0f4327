"""`warp-outline`: a matrix product becomes a kernel that multiplies one tile of it in each CTA, and its launch.
`warp-persist`: CTAs that compute one tile after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from xdsl.context import Context
from xdsl.dialects import func, gpu, memref, scf
from xdsl.dialects.builtin import IndexType, ModuleOp
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Block, Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.pattern_rewriter import PatternRewriter

from ...dialect.mlir.affine import map_along
from ...dialect.schedule import Schedule
from ...dialect.warp.attention import AttentionGradientOp, AttentionOp
from ...dialect.warp.attributes import ScheduleAttr
from ...dialect.warp.elements import OPERAND_LOOPS, K, M
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.op_shapes import is_pure
from ...dialect.warp.operands import FindGroupOp
from ...dialect.warp.rows import RowsOp
from ...dialect.warp.views import PagedOp
from ..diagnostics import fail, remark
from ..linalg.memory_uses import check_unshared
from ..linalg.operand import SIZE_LIMIT, KernelArgument, MatrixOperand, VectorOperand, each_once
from ..linalg.product import Product, read
from ..linalg.raise_matmul import raise_products
from ..linalg.read_attention import Attention, AttentionGradient, erase_pages
from ..patterns import Index, IndexBuilder, PatternPass, apply_patterns, constant_value, rewrite_pattern
from .operands import batch_sizes, cta_number, in_matrix, rows_of_group
from .tiling import Inside, LaunchedKernel, LaunchPattern, Outliner, Tiling, kernel_body, loops_in_tile, schedule_of

if TYPE_CHECKING:
    from .outline_attention import TiledRows


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
        from .launches import overlap
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
        from . import elementwise_kernel, nest_kernel, rows  # with operations that a product does not need

        (rows.tile_elements if elementwise_kernel.is_traversed(op) else nest_kernel.tile)(op)
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


# `warp-persist`: CTAs that compute one tile after the other, the `ctas` of a schedule.
#
# The launch starts as many CTAs as the schedule says, and each goes on from its tile to the one that lies as many
# tiles behind. What is the same for all tiles, such as the place of a warp in its tile, stays before the loop.


def _same_for_all(op: Operation, changing: set[SSAValue]) -> bool:
    """Whether an operation before the loop over K does the same for every tile."""
    index = is_pure(op) and all(isinstance(result.type, IndexType) for result in op.results)
    return (index or isinstance(op, gpu.SubgroupIdOp | memref.AllocOp)) and not changing.intersection(op.operands)


def _persist(launch: LaunchedKernel, tile: SSAValue, k_loop: scf.ForOp) -> None:
    body, changing, before = Block(arg_types=[IndexType()]), {tile}, True
    *rest, end = launch.body.ops
    for op in rest[rest.index(tile.owner) + 1 :]:  # pyright: ignore[reportArgumentType]
        before = before and op is not k_loop
        if not (before and _same_for_all(op, changing)):
            op.detach()
            body.add_op(op)
            changing.update(op.results)
    tile.replace_all_uses_with(body.args[0])
    body.add_op(scf.YieldOp())
    index, host, ctas = IndexBuilder(end), launch.host.index, launch.schedule.ctas
    group = next((op for op in rest if isinstance(op, FindGroupOp)), None)
    tiles = (
        launch.inside(index, launch.op.gridSizeX)
        if group is None
        else Tail.of(index, launch.schedule, group).numbers(index)
    )
    end, step = index.values([tiles, index.minimum(tiles, ctas)])
    index.insert(scf.ForOp(tile, end, step, [], body))
    if (count := constant_value(launch.op.gridSizeX)) is not None and count < ctas:
        remark(
            launch.kernel, PersistPass.name, f"ctas = {ctas}: there are {count} tiles, and as many CTAs are launched"
        )
    launch.grid[0] = host.minimum(host.folded(launch.op.gridSizeX), ctas)
    launch.finish()


class Tail(NamedTuple):
    """The tiles of groups of rows that CTAs go through: so many `unshared` ones, and `shared` ones behind them, each in
    as many parts of K (`each`) as let all CTAs have one, up to the `split_k` of the schedule."""

    unshared: Index
    shared: Index
    each: Index

    @staticmethod
    def of(index: IndexBuilder, schedule: Schedule, group: FindGroupOp) -> Tail:
        """Those of the groups that tiles are looked for in."""
        if constant_value(group.tile) != SIZE_LIMIT:
            behind = index.value(SIZE_LIMIT)
            group = index.insert(FindGroupOp(group.ends, behind, group.rows.value.data, group.across))
        tiles, ctas = group.first, schedule.ctas
        if not schedule.shares_tail:
            return Tail(tiles, 0, 1)
        rest = index.rem(tiles, ctas)
        each = index.minimum(index.div(ctas, index.select("eq", rest, 0, ctas, rest)), schedule.split_k)
        shared = index.select("eq", each, 1, 0, rest)
        return Tail(index.sub(tiles, shared), shared, each)

    def numbers(self, index: IndexBuilder) -> Index:
        """The whole tiles and the parts of the others."""
        return index.add(self.unshared, index.mul(self.shared, self.each))


class PersistCtas(LaunchPattern):
    """Puts the tile of a CTA in a loop, if the schedule says how many CTAs there are."""

    def rewrite(self, launch: LaunchedKernel) -> None:
        tile, loop = launch.block_id(), launch.loop()
        if not launch.schedule.ctas:
            return
        if tile is None or loop is None:
            remark(launch.kernel, PersistPass.name, "there is a CTA for each tile: the kernel has no loop over K")
        else:
            _persist(launch, tile, loop)


class PersistPass(PatternPass):
    """Puts a loop over tiles around kernels whose schedule has `ctas`, so that each CTA computes one tile after
    another. It runs after `warp-tile`. Without it, the launch has one CTA for each tile."""

    name = "warp-persist"
    needs: ClassVar = ("schedule.ctas",)
    patterns = (PersistCtas,)
