"""`warp-outline`: a matrix product becomes a kernel that multiplies one tile of it in each CTA, and its launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import arith, func
from xdsl.dialects.builtin import ModuleOp, i32
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Block, Region, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.gpu import ReturnOp
from ...dialect.warp.attention import AttentionOp
from ...dialect.warp.attributes import ScheduleAttr, memory_of
from ...dialect.warp.indices import IndexOp
from ...dialect.warp.loops import K, M, N
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.row_wise import RowsOp
from ...dialect.warp.view import MatrixOp
from ..diagnostics import fail
from ..linalg.attention import Attention
from ..linalg.operand import Argument, Operand, Place, Spread, VectorOperand
from ..linalg.overlap import check_product
from ..linalg.product import Product, read
from ..linalg.raise_matmul import raise_products
from . import elementwise_kernel, raster, row_kernel
from .index_builder import Index, IndexBuilder
from .outliner import Outliner
from .tiling import Tiling, schedule_of


@dataclass(frozen=True)
class Inside:
    """A product as its kernel sees it: the kernel's arguments by what they are on the host, and matrices of them."""

    product: Product
    arguments: Mapping[SSAValue, SSAValue]
    views: Mapping[Place, SSAValue]
    numbers: Mapping[int, SSAValue]

    @staticmethod
    def of(
        index: IndexBuilder, product: Product, arguments: Mapping[SSAValue, SSAValue], batch: Sequence[Index]
    ) -> Inside:
        """With the matrices of this CTA in memory that is more, or lies otherwise, than one matrix row by row."""
        given = (product.a, product.b, *product.scales, product.c, product.d, *product.epilogue_operands)
        return Inside(product, arguments, matrices(index, given, arguments, batch), _numbers(index, product, batch))

    def seen(self, operand: Argument) -> SSAValue:
        """What stands for an operand."""
        view = None if isinstance(operand, VectorOperand) else self.views.get(operand.place)
        return view or self.arguments[operand.value]

    def tile(self, at: Sequence[SSAValue]) -> MatmulOp:
        """The product of the tile of D at these indices."""
        product, op = self.product, self.product.op
        a, b = (K, M) if product.a.transposed else (M, K), (N, K) if product.b.transposed else (K, N)
        outer = len(product.summed)
        maps = [_map(outer, loops) for loops in ((M, N), *map(_loops, product.epilogue_operands))]
        maps = [*(_map(outer, two, _summed(product, o)) for two, o in ((a, product.a), (b, product.b))), *maps]
        epilogue = None if op.epilogue is None else op.epilogue.clone()
        found = MatmulOp(
            self.seen(product.a),
            self.seen(product.b),
            self.seen(product.d),
            op.multiplied,
            e=None if product.metadata is None else self.seen(product.metadata),
            c=None if product.c is None else self.seen(product.c),
            init=op.init,
            maps=[*maps, *(_map(outer, ()) for _ in self.numbers)],
            epilogue_operands=[*map(self.seen, product.epilogue_operands), *self.numbers.values()],
            epilogue=epilogue,
            scales=list(map(self.seen, product.scales)),
            words=op.words,
            tile=at,
        )
        if epilogue is not None:
            self._place(epilogue)
        found.attributes |= op.attributes
        found.location = op.location
        return found

    def _place(self, epilogue: Region) -> None:
        """Indices along the loops of the tile's product; those of the batch become arguments of an epilogue."""
        batch = len(self.product.batch)
        given = {loop: epilogue.block.insert_arg(i32, len(epilogue.block.args)) for loop in self.numbers}
        for op in [op for op in epilogue.block.ops if isinstance(op, IndexOp)]:
            if op.number in given:
                Rewriter.replace_op(op, [], [given[op.number]])
            else:
                Rewriter.replace_op(op, IndexOp(op.number - batch))


def _numbers(index: IndexBuilder, product: Product, sizes: Sequence[Index]) -> dict[int, SSAValue]:
    """Which of the batch this CTA multiplies, along each loop whose index the epilogue uses."""
    epilogue = product.op.epilogue
    ops = [] if epilogue is None else [op for op in epilogue.block.ops if isinstance(op, IndexOp)]
    loops = sorted({op.number for op in ops if op.number < len(sizes)})
    at = raster.batch_index(index, sizes) if loops else []
    return {loop: index.insert(arith.IndexCastOp(index.value(at[loop]), i32)).result for loop in loops}


def matrices(
    index: IndexBuilder,
    given: Sequence[Argument | None],
    arguments: Mapping[SSAValue, SSAValue],
    batch: Sequence[Index],
    number: Index | None = None,
) -> dict[Place, SSAValue]:
    """The matrices of this CTA in memory that is more, or lies otherwise, than one matrix row by row; those of the
    batch with a number, the z of the CTA unless it is given."""
    operands = [o for o in given if isinstance(o, Operand | Spread) and not o.is_whole]
    at, views = raster.batch_index(index, batch, number) if operands else [], dict[Place, SSAValue]()
    for operand in operands:
        if operand.place not in views:
            views[operand.place] = _view(index, operand, arguments[operand.value], at)
    return views


def _loops(operand: Argument) -> tuple[int, ...]:
    """The loops that an epilogue operand runs along in the kernel."""
    return tuple({"m": M, "n": N}[axis] for axis in operand.axis) if isinstance(operand, VectorOperand) else (M, N)


def _map(outer: int, loops: Sequence[int], summed: Sequence[int] = ()) -> AffineMap:
    """A map of the product of a tile: first the loops that are summed over beside k, `outer` of them."""
    return AffineMap(outer + 3, 0, tuple(map(AffineDimExpr, (*summed, *(outer + loop for loop in loops)))))


def _summed(product: Product, operand: Operand) -> list[int]:
    """The loops that are summed over beside k, as the dimensions of an operand run along them, from 0."""
    return [loop - len(product.batch) for loop in operand.batch if loop >= len(product.batch)]


def _view(index: IndexBuilder, operand: Operand | Spread, memory: SSAValue, at: Sequence[Index]) -> SSAValue:
    """The matrix of this CTA, or those that it sums over; `at` are the indices of the batch."""
    kept = [loop >= len(at) for loop in operand.batch]
    others = (d for d in range(memory_of(memory).get_num_dims()) if d not in operand.dimensions)
    dimensions = [d for d, stays in zip(others, kept, strict=True) if stays]
    indices = index.values([at[loop] for loop in operand.batch if loop < len(at)])
    return index.insert(MatrixOp(memory, indices, *operand.dimensions, dimensions)).matrix


def _outline(matmul: MatmulOp, module: ModuleOp) -> None:
    """Puts a kernel and its launch in the place of a product."""
    schedule = schedule_of(matmul)
    check_product(matmul, matmul)
    product, outliner = read(matmul), Outliner(matmul, module)
    body = Block(arg_types=[operand.value.type for operand in product.memories])
    arguments = {operand.value: argument for operand, argument in zip(product.memories, body.args, strict=True)}
    index = IndexBuilder(Builder(InsertPoint.at_end(body)))
    extents, tiling = raster.Extents.of(index, product, arguments), Tiling(product, schedule)
    inside = Inside.of(index, product, arguments, extents.batch)
    starts = raster.cta_origin(index, extents, schedule, raster.cta_number(index))
    starts = [raster.moved_inside(index, tiling, axis, start) for axis, start in zip("mn", starts, strict=True)]
    index.insert(inside.tile(index.values(starts)))
    index.insert(ReturnOp([]))
    extents = raster.Extents.of(outliner.index, product, {memory.value: memory.value for memory in product.memories})
    ctas = outliner.index.mul(*raster.grid(outliner.index, extents, schedule))
    batch = reduce(outliner.index.mul, extents.batch, 1)
    kernel = outliner.launch("", product.memories, body, ctas, schedule.tile.threads, batch)
    kernel.attributes[ScheduleAttr.name] = ScheduleAttr(schedule)
    outliner.finish()


def _rows(index: IndexBuilder, attention: Attention, memory: Mapping[SSAValue, SSAValue]) -> Index:
    """The rows of Q and O; `memory` tells them if they are not known."""
    scores = attention.scores
    return scores.m if scores.is_known("m") else index.dim(memory[scores.a.value], scores.a.loops[0])


def _outline_attention(op: AttentionOp, module: ModuleOp) -> None:
    """Puts a kernel and its launch in the place of an attention."""
    schedule, read_, outliner = schedule_of(op), Attention.of(op), Outliner(op, module)
    body = Block(arg_types=[operand.value.type for operand in read_.memories])
    arguments = {operand.value: argument for operand, argument in zip(read_.memories, body.args, strict=True)}
    index = IndexBuilder(Builder(InsertPoint.at_end(body)))
    rows, batch = _rows(index, read_, arguments), raster.batch_sizes(index, read_.values, arguments)
    number, tiles = raster.cta_number(index), index.ceildiv(rows, schedule.tile.cta[0])
    tile, matrix = (index.rem(number, tiles), index.div(number, tiles)) if batch else (number, 0)
    views = matrices(index, read_.memories, arguments, batch, matrix)
    if op.diagonal is not None:
        # What sees most keys takes longest, and begins first. Where CTAs go from tile to tile, each gets as many that
        # take long as others: every second time it is the turn of the mirrored one.
        last = index.sub(index.sub(index.value(tiles), 1), tile)
        if schedule.grid.ctas:
            turn = index.div(index.mul(matrix, tiles), schedule.grid.ctas)
            last = index.where_equal(index.rem(turn, 2), 0, last, tile)
        tile = last
    seen = [views.get(o.place, arguments[o.value]) if isinstance(o, Operand | Spread) else arguments[o.value]
            for o in (read_.q, read_.k, read_.v, read_.o, *read_.scores.epilogue_operands)]  # fmt: skip
    inside = read_.tile(seen, index.value(index.mul(tile, schedule.tile.cta[0])))
    inside.attributes |= op.attributes
    index.insert(inside)
    index.insert(ReturnOp([]))
    outside, host = {memory.value: memory.value for memory in read_.memories}, outliner.index
    rows, batch = _rows(host, read_, outside), raster.batch_sizes(host, read_.values, outside)
    ctas = reduce(host.mul, batch, host.ceildiv(rows, schedule.tile.cta[0]))
    kernel = outliner.launch("", read_.memories, body, ctas, schedule.tile.threads)
    kernel.attributes[ScheduleAttr.name] = ScheduleAttr(schedule)
    outliner.finish()


@dataclass(frozen=True)
class OutlinePass(ModulePass):
    """Makes a kernel of every scheduled product, in which each CTA multiplies one tile of D, and launches it; so of
    every elementwise operation of `linalg` that is left, `linalg.fill` and `linalg.copy` among them.

    Products still in `linalg` are raised first.
    """

    name = "warp-outline"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        raise_products(op)
        for found in list(op.walk()):
            if isinstance(found, MatmulOp) and not found.tile:
                _outline(found, op)
            elif isinstance(found, AttentionOp) and not found.tile:
                _outline_attention(found, op)
            elif isinstance(found, RowsOp):
                row_kernel.tile(found, op)
            elif isinstance(found, LinalgStructuredOperation):
                elementwise_kernel.tile(found, op)
            elif found.name.startswith("linalg.") and isinstance(found.parent_op(), func.FuncOp):
                fail(found, f"{found.name} has no kernel: of operations that reduce, products and rows are lowered")
