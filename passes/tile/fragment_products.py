"""`warp-fragments`: products of tiles in shared memory become products by instructions; of a sparse or scaled A too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, Float32Type, MemRefType
from xdsl.dialects.math import FmaOp
from xdsl.ir import SSAValue

from ...dialect.isa.form import SCALES_OF_WORD, THREAD_BITS, BlockScale
from ...dialect.isa.wgmma import M as ROWS
from ...dialect.layouts.layout import LANES, Layout
from ...dialect.layouts.tensor_memory import METADATA_BLOCK, SCALES_BLOCK
from ...dialect.warp.attributes import (
    WORD_PANEL,
    FragmentType,
    SwizzleAttr,
    fragment_of,
    memory_of,
    type_of_element,
)
from ...dialect.warp.cta import CopyOp
from ...dialect.warp.epilogue import SubfragmentOp
from ...dialect.warp.fragments import ConstantOp
from ...dialect.warp.memory import POINT, LoadOp
from ...dialect.warp.mma import MmaOp, metadata_type
from ...dialect.warp.op_shapes import bounds_attribute, tile_type
from ...dialect.warp.operands import METADATA_ROWS, SparseOp, metadata_span
from ...dialect.warp.synchronisation import WGMMA, CommitOp, FenceOp, WaitOp
from ...dialect.warp.tile_mma import GroupScales, TileMmaOp
from ...dialect.warp.views import BlocksAttr, MatrixOp
from ...dialect.warp.warpgroup import ROWS as WARPGROUP_ROWS
from ...dialect.warp.warpgroup import WgmmaOp
from ..diagnostics import fail
from ..linalg.operand import MatrixOperand
from ..linalg.product import Product, block
from ..patterns import Index, IndexBuilder, PatternPass
from ..schedule.needs import MIN_LINE, SCALE_BYTES
from .fragment_math import mapped
from .operands import CHUNK, DenseProduct, FragmentProduct, Multiplication, Place
from .register_products import (
    SCALES_OF_UNIT,
    RegisterProduct,
    WarpgroupProduct,
    group_scales,
    shape_of_scales,
    stacked,
)
from .tiling import ProductT, Tiling, schedule_of

# The metadata of a sparse A on its way from memory to registers.

ROW_TILES = "m16"
"""The axis along M in units of the 16 rows that a row of metadata words describes."""


@dataclass(frozen=True)
class MetadataTiles(Generic[ProductT]):
    """The tiles of the metadata of a sparse A, a row of words for 16 rows of A.

    Those for warpgroups are of whole patterns of the swizzle, which begin where stages do.
    """

    tiling: Tiling[ProductT]

    @property
    def span(self) -> int:
        return metadata_span(self.tiling.product.a.element)

    def counted(self, index: IndexBuilder, at: dict[str, Index]) -> dict[str, Index]:
        """A place with its row of metadata, which is the same in every turn of the K loop."""
        return at | {ROW_TILES: index.div(at["m"], METADATA_ROWS)}

    def load(self, index: IndexBuilder, a: SparseOp, at: dict[str, Index]) -> tuple[SSAValue, int]:
        """The metadata of a warp's fragment of A at `at` in the tile, and the selector that picks its part."""
        row, (m, _) = self.tiling.row, self.tiling.schedule.warp
        if row.metadata is None:
            raise ValueError("metadata is loaded for a sparse instruction")
        where = index.values(self.words(index, at))
        kind = metadata_type(row.metadata, m // row.metadata.rows)
        loaded = LoadOp(a.metadata, where, kind, registers="tiles", padded=a.padded is not None)
        return index.insert(loaded).fragment, self._selector(at)

    def load_all(
        self, index: IndexBuilder, a: SparseOp, steps: Sequence[dict[str, Index]]
    ) -> list[tuple[SSAValue, int]]:
        """`load` for several steps. A word that has the metadata of several steps is loaded once."""
        loaded: dict[Index, tuple[SSAValue, int]] = {}
        words: list[tuple[SSAValue, int]] = []
        for at in steps:
            word = index.div(at["k"], self.span)
            if word not in loaded:
                loaded[word] = self.load(index, a, at)
            words.append((loaded[word][0], self._selector(at)))
        return words

    def _selector(self, at: dict[str, Index]) -> int:
        """Which part of a word has the metadata of the step at `at`."""
        step, depth = at["k"], self.tiling.row.shape.k
        if not isinstance(step, int):
            raise ValueError("metadata is loaded at a known step along k")
        return step % self.span // depth

    def words(self, index: IndexBuilder, at: dict[str, Index]) -> tuple[Index, Index]:
        """Row and column of the words for the element of A at `at`."""
        return at[ROW_TILES], index.mul(index.div(at["k"], self.span), LANES)

    # From memory to shared memory

    def _operand(self: MetadataTiles[Product]) -> MatrixOperand:
        operand = self.tiling.product.metadata
        if operand is None:
            raise ValueError("metadata is copied for a sparse A")
        return operand

    def shared_type(self: MetadataTiles[Product]) -> MemRefType:
        operand, (m, _, k) = self._operand(), self.tiling.schedule.cta
        if (blocks := self._blocks) is not None:
            return _in_lines(operand, blocks, k // self.span * LANES)
        rows, line = m // METADATA_ROWS, SwizzleAttr(LANES * operand.element.bits // 8)
        if self.tiling.schedule.together > 1:
            rows = -(-rows // WARPGROUP_ROWS) * WARPGROUP_ROWS
        return tile_type(operand.element_type, [rows, k // self.span * LANES], line)

    def copy(self: MetadataTiles[Product], index: IndexBuilder, at: dict[str, Index], tile: SSAValue) -> None:
        """Copies the metadata of the tile of A at `at` to shared memory."""
        operand = self._operand()
        (rows, columns), (tile_rows, words) = operand.shape, self.shared_type().get_shape()
        where = index.values(self.words(index, at))
        inside = bounds_attribute(rows % tile_rows == 0, columns % words == 0)
        index.insert(CopyOp(operand.value, where, tile, in_bounds=inside, blocks=self._blocks))

    @property
    def _blocks(self: MetadataTiles[Product]) -> BlocksAttr | None:
        """The blocks of metadata in tensor memory; None if registers hold the metadata."""
        m, _, k = self.tiling.schedule.cta
        if self.tiling.schedule.mma.m <= ROWS:
            return None
        return _in_blocks(self._operand(), METADATA_BLOCK, m // METADATA_ROWS, k // self.span * LANES)


def _in_blocks(operand: MatrixOperand, block: Layout, rows: int, columns: int) -> BlocksAttr:
    """A matrix in blocks, of tiles of so many rows and columns."""
    tiles = max(1, -(-operand.shape[1] // columns))
    return BlocksAttr((rows, tiles * columns // block.columns, block))


def _in_lines(operand: MatrixOperand, blocks: BlocksAttr, columns: int) -> MemRefType:
    """A tile in shared memory of so many columns, in the lines of its blocks."""
    block = blocks.layout
    shape = [columns // block.columns * blocks.of_tile * block.threads, block.elements]
    return tile_type(operand.element_type, shape, SwizzleAttr(CHUNK))


def sparse_of(op: TileMmaOp) -> SparseOp:
    """The sparse A of a product.

    Raises:
        ValueError: if its A is dense.
    """
    form, _ = op.forms
    if not isinstance(form, SparseOp):
        raise ValueError("expected a product with a sparse A")
    return form


class MultipliedSparse(Multiplication):
    """Products of a sparse A, whose metadata is copied and loaded beside it."""

    def begin(self, op: TileMmaOp) -> None:
        super().begin(op)
        self.metadata = MetadataTiles(self.tiling)

    def counted(self, index: IndexBuilder, at: Place) -> Place:
        return self.metadata.counted(index, at)


class SparseProduct(MultipliedSparse, FragmentProduct):
    """`warp.mma` of a sparse A."""

    @staticmethod
    def multiplies(op: TileMmaOp) -> bool:
        return op.metadata is not None and schedule_of(op).together == 1

    def step(self, index: IndexBuilder, a: SSAValue, b: SSAValue, accumulator: SSAValue, at: Place) -> SSAValue:
        sparse = self.metadata.load(index, sparse_of(self.op), at)
        shape = self.tiling.schedule.mma
        return index.insert(MmaOp(shape, a, b, accumulator, "ordered", sparse=sparse)).d


class SparseWarpgroupProduct(MultipliedSparse, WarpgroupProduct):
    """`warp.wgmma` of a sparse A; each lane loads its word of some steps at once, before their products begin."""

    @staticmethod
    def multiplies(op: TileMmaOp) -> bool:
        return schedule_of(op).together > 1 and op.metadata is not None

    def sparse(self, index: IndexBuilder, steps: Sequence[Place]) -> Sequence[tuple[SSAValue, int] | None]:
        return self.metadata.load_all(index, sparse_of(self.op), steps)


# The scales of A or B on their way from memory to registers.
#
# They lie as A and B do, four of a row in a word, which is what a lane holds: so a K tile has whole words of scales,
# and every step of the instruction picks its bytes of them (PTX ISA 9.7.14.3). Words of a column stand side by side in
# shared memory, for a load takes those of as many rows as there are lanes, where the words of two (A) or four (B) of
# the instruction's tiles share a register.


@dataclass(frozen=True)
class ScaleTiles(Generic[ProductT]):
    """The tiles of the scales of A or B, of `role` "a" or "b"."""

    tiling: Tiling[ProductT]
    role: str

    @property
    def axis(self) -> str:
        """The axis of the product along which the rows of scales run."""
        return "m" if self.role == "a" else "n"

    @property
    def _scale(self) -> BlockScale:
        scale = self.tiling.row.scale
        if scale is None:
            raise ValueError("scales are loaded for an instruction that takes some")
        return scale

    def fragment(self) -> FragmentType:
        """A warp's scales for one step: as many of the instruction's tiles share a register as the warp tile allows."""
        (m, n), scale = self.tiling.schedule.warp, self._scale
        layouts = (scale.layout(self.role, tiles) for tiles in range(THREAD_BITS[self.role], -1, -1))
        if self.role == "a":
            layout = next(layout_ for layout_ in layouts if m % layout_.rows == 0)
            size = m, scale.vector
        else:
            layout = next(layout_ for layout_ in layouts if n % layout_.columns == 0)
            size = scale.vector, n
        return FragmentType.of("scale", *size, type_of_element(scale.type), layout)

    def load(self, index: IndexBuilder, tile: SSAValue, at: dict[str, Index], number: int) -> SSAValue:
        """The words with a warp's scales at `at` in the tile, from that number in a row on."""
        where = index.values([at[self.axis], number])
        return index.insert(LoadOp(tile, where, self.fragment(), swapped=self.role == "b")).fragment

    # From memory to shared memory

    @property
    def _blocks(self: ScaleTiles[Product]) -> BlocksAttr:
        """The blocks in which tensor memory holds the scales."""
        cta = self.tiling.schedule.cta
        rows, columns = cta["mn".index(self.axis)], cta[2] // block(self.tiling.product)
        return _in_blocks(self._operand(), SCALES_BLOCK, rows, columns)

    def _operand(self: ScaleTiles[Product]) -> MatrixOperand:
        a, b = self.tiling.product.scales
        return a if self.role == "a" else b

    def shared_type(self: ScaleTiles[Product]) -> MemRefType:
        m, n, k = self.tiling.schedule.cta
        if self.tiling.schedule.together > 1:
            return _in_lines(self._operand(), self._blocks, k // block(self.tiling.product))
        shape = [m if self.axis == "m" else n, k // block(self.tiling.product)]
        return tile_type(self._operand().element_type, shape, SwizzleAttr(WORD_PANEL))

    def copy(self: ScaleTiles[Product], index: IndexBuilder, at: dict[str, Index], tile: SSAValue) -> None:
        """Copies the scales of the tile of A or B at `at` to shared memory."""
        operand = self._operand()
        (rows, columns), (tile_rows, deep) = operand.shape, self.shared_type().get_shape()
        where = index.values([at[self.axis], index.div(at["k"], block(self.tiling.product))])
        if self.tiling.schedule.together > 1:
            outside = bounds_attribute(False, False)
            index.insert(CopyOp(operand.value, where, tile, in_bounds=outside, blocks=self._blocks))
            return
        within = rows % tile_rows == 0 or self.tiling.last_start(self.axis) is not None
        inside = bounds_attribute(within, columns % deep == 0)
        index.insert(CopyOp(operand.value, where, tile, in_bounds=inside))


class ScaledProduct(FragmentProduct):
    """`warp.mma` with scales: a step loads the next words of them when it comes to their first."""

    def begin(self, op: TileMmaOp) -> None:
        super().begin(op)
        self.scales = (ScaleTiles(self.tiling, "a"), ScaleTiles(self.tiling, "b"))
        self._loaded: dict[int, list[SSAValue]] = {}

    @staticmethod
    def multiplies(op: TileMmaOp) -> bool:
        return bool(op.scales)

    def step(self, index: IndexBuilder, a: SSAValue, b: SSAValue, accumulator: SSAValue, at: Place) -> SSAValue:
        step, schedule = at["k"], self.tiling.schedule
        if not isinstance(step, int):
            raise ValueError("scales are loaded at a known step along k")
        word, byte = divmod(step // block(self.tiling.product), SCALES_OF_WORD)
        if word not in self._loaded:
            pairs = zip(self.scales, self.op.scales, strict=True)
            self._loaded[word] = [tiles.load(index, tile, at, word * SCALES_OF_WORD) for tiles, tile in pairs]
        scales, words = self._loaded[word], self.op.variant.words
        op = MmaOp(schedule.mma, a, b, accumulator, *words, scales=scales, selectors=(byte, 0) * len(scales))
        return index.insert(op).d


# Products of integers whose groups along k have scales of floats, `times` of `warp.tile_mma`.
#
# The sum of a group's products, times the scales of the columns, is added to the rest in f32. Weights that are
# `rounded` are multiplied by their scales in registers, before the product.


class GroupedProduct(DenseProduct):
    """`warp.mma` for each group, from zero."""

    @staticmethod
    def multiplies(op: TileMmaOp) -> bool:
        return op.groups is not None and schedule_of(op).together == 1

    def multiply(self, outside: IndexBuilder, index: IndexBuilder, warp: Place, accumulator: SSAValue) -> SSAValue:
        groups = self.op.groups
        if groups is None:
            raise ValueError("expected a product with scales of groups")
        schedule = self.tiling.schedule
        depth = schedule.cta[2] // schedule.sliced_k
        runs, stored = range(0, depth, run := min(depth, groups.size)), self.op.b_stored
        rounded = stored is not None and stored.rounded
        of_b = self.tiling.fragment("b").with_layout(self.operands[1].delivery.layout)
        kind = of_b if rounded else fragment_of(accumulator)
        # Before the products, which hide how long memory takes to answer.
        before = outside if shape_of_scales(self, groups)[0] == 1 else index
        scales = [group_scales(self, before, groups, warp, first, kind) for first in runs]
        for first, scale in zip(runs, scales, strict=True):
            every = range(first, first + run, self.tiling.step)
            if rounded:
                accumulator = self.steps(outside, index, warp, accumulator, every, scale)
            else:
                sums = outside.insert(ConstantOp.of(0.0, fragment_of(accumulator))).fragment
                sums = self.steps(outside, index, warp, sums, every)
                accumulator = mapped(index, _added, accumulator, sums, scale)
        return accumulator


def _added(elements: Sequence[SSAValue]) -> SSAValue:
    total, part, scale = elements
    if isinstance(scale.type, AnyFloat) and not isinstance(scale.type, Float32Type):
        scale = arith.ExtFOp(scale, part.type).result
    return arith.AddfOp(total, arith.MulfOp(part, scale).result).result


# Products of warpgroups whose blocks have scales of f32, `times` and `and` of `warp.tile_mma`.
#
# The products of a block along k are sums of their own, which the tensor cores add from zero. Those of all blocks of a
# K tile are under way at a time: while the next ones are added, the last are multiplied with their scales.


class BlockScaledProduct(WarpgroupProduct):
    """`warp.wgmma` for each block along k, from zero."""

    @staticmethod
    def multiplies(op: TileMmaOp) -> bool:
        return op.row_scales is not None

    def multiply(self, outside: IndexBuilder, index: IndexBuilder, warp: Place, accumulator: SSAValue) -> SSAValue:
        (rows, columns), (_, _, depth), groups = self.tiling.schedule.warp, self.tiling.schedule.cta, self.op.groups
        if groups is None:
            raise ValueError("expected a product with scales of blocks")
        high, kind, done = self.tiling.schedule.mma.m, fragment_of(accumulator), list[SSAValue]()
        part = FragmentType.of("acc", high, columns, kind.element_type, kind.layout.data)
        sums = [index.insert(ConstantOp.of(0.0, part)).fragment for _ in range(0, depth, groups.size)]
        for top in range(0, rows, high):
            total, at = accumulator, warp
            if rows > high:
                total = index.insert(SubfragmentOp([accumulator], (top, 0), (high, columns))).fragment
                at = warp | {"m": outside.add(warp["m"], top)}
            # In the registers of the sums above: with others ptxas 13.0 spills.
            sums = self._sums(outside, index, groups, at, sums)
            # Behind the products: what waits for the scales would keep these from beginning.
            scales = [self._scales(index, groups, at, part, number) for number in range(len(sums))]
            for number, (sum_, pair) in enumerate(zip(sums, scales, strict=True)):
                index.insert(WaitOp(WGMMA, len(sums) - 1 - number))
                total = mapped(index, _rescaled, total, sum_, *pair)
            done.append(total)
        return stacked(index, done)

    def _sums(
        self, outside: IndexBuilder, index: IndexBuilder, groups: GroupScales, at: Place, starts: Sequence[SSAValue]
    ) -> list[SSAValue]:
        """The sums of each block along k, in the registers of `starts`, of as many rows as the instruction has."""
        b, sums = self.operands[1], list[SSAValue]()
        index.insert(FenceOp(WGMMA))
        for first, sum_ in zip(range(0, self.tiling.schedule.cta[2], groups.size), starts, strict=True):
            for k in range(first, first + groups.size, self.tiling.schedule.mma.k):
                of_step = at | {"k": k}
                a, where = self.a_of(outside, index, of_step)
                op = WgmmaOp(a, where, self.tiles[1], b.place(outside, of_step), sum_, overwrite=k == first)
                sum_ = index.insert(op).d
            index.insert(CommitOp(WGMMA))
            sums.append(sum_)
        return sums

    def _scales(
        self, index: IndexBuilder, groups: GroupScales, warp: Place, kind: FragmentType, number: int
    ) -> list[SSAValue]:
        """The scales of the rows and of the columns of a warpgroup, in the block of a number along k of this K tile."""
        if self.op.lines:
            return self._of_lines(index, groups, warp, kind, number)
        group, fragments = index.add(index.div(groups.k, groups.size), number), list[SSAValue]()
        for side, axis in enumerate("mn"):
            scales, start = ((groups.of_rows, groups.m), (groups.scales, groups.n))[side]
            if scales is None or start is None or not isinstance(view := scales.owner, MatrixOp):
                fail(self.op, f"expected scales of blocks as matrices of memory, got {groups.scales.type}")
            count, size = memory_of(scales).get_shape()
            if number and count * groups.size % self.tiling.schedule.cta[2]:
                group = index.minimum(group, count - 1)  # behind the end of k, where all products are zero
            first, where, inside = index.add(index.folded(start), warp[axis]), list[Index]([0, 0]), [True, True]
            at, along = [index.value(group)], list[int | None]([None, None])
            if (block := groups.blocks[side]) == 1:
                along[side], where[side], inside[side] = 1, first, size % self.tiling.schedule.cta[side] == 0
            else:
                of_block, schedule = index.div(first, block), self.tiling.schedule
                if size * block % (schedule.cta[side] * schedule.cluster[side]):
                    of_block = index.minimum(of_block, size - 1)  # of a tile that makes a cluster whole
                at.append(index.value(of_block))
            matrix = index.insert(view.at(at, *along)).matrix
            load = LoadOp(matrix, index.values(where), kind, in_bounds=bounds_attribute(*inside))
            fragments.append(index.insert(load).fragment)
        return fragments

    def _of_lines(
        self, index: IndexBuilder, groups: GroupScales, warp: Place, kind: FragmentType, number: int
    ) -> list[SSAValue]:
        """The same, read from lines of scales of A and of B in shared memory."""
        first, fragments = index.rem(index.div(groups.k, groups.size), SCALES_OF_UNIT), list[SSAValue]()
        for side, (line, axis, along) in enumerate(zip(self.op.lines, "mn", ("rows", "columns"), strict=True)):
            if groups.blocks[side] == 1:
                place = index.add(warp[axis], number * self.tiling.schedule.cta[side])
            else:
                block = index.div(warp[axis], groups.blocks[side])
                line_of = index.mul(block, MIN_LINE // SCALE_BYTES)
                place, along = index.add(index.add(first, number), line_of), POINT
            fragments.append(index.insert(LoadOp(line, index.values([0, place]), kind, along=along)).fragment)
        return fragments


def _rescaled(elements: Sequence[SSAValue]) -> SSAValue:
    """A total with a sum of products times two scales."""
    total, part, of_row, of_column = elements
    return FmaOp(part, arith.MulfOp(of_row, of_column).result, total).result


class FragmentsPass(PatternPass):
    """Multiplies a warp's part of the tiles in shared memory by the instruction that the schedule names. A warp loads
    fragments and multiplies them step by step. A warpgroup multiplies tiles directly in shared memory."""

    name = "warp-fragments"
    patterns = (
        DenseProduct,
        WarpgroupProduct,
        BlockScaledProduct,
        RegisterProduct,
        SparseWarpgroupProduct,
        ScaledProduct,
        SparseProduct,
        GroupedProduct,
    )
