"""What lies beside A and B, on its way from memory to registers: metadata of a sparse A, scales, zero points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from xdsl.dialects.builtin import MemRefType, StridedLayoutAttr
from xdsl.ir import SSAValue

from ...dialect.isa.form import THREAD_BITS
from ...dialect.isa.wgmma import M as ROWS
from ...dialect.layouts.layout import LANES, Layout
from ...dialect.layouts.tensor_memory import METADATA_BLOCK, SCALES_BLOCK
from ...dialect.warp.attributes import WORD_PANEL, FragmentType, SwizzleAttr, is_shared, memory_of, type_of_element
from ...dialect.warp.elements import element_type
from ...dialect.warp.memory import CopyOp, LoadOp
from ...dialect.warp.mma import GroupScales, TileMmaOp, metadata_type
from ...dialect.warp.op_shapes import bounds_attribute, tile_type
from ...dialect.warp.operands import METADATA_ROWS, SparseOp, metadata_span
from ...dialect.warp.views import BlocksAttr, MatrixOp
from ...dialect.warp.warpgroup import ROWS as WARPGROUP_ROWS
from ..linalg.operand import MatrixOperand
from ..linalg.product import Product, block
from ..patterns import Index, IndexBuilder
from ..schedule.needs import ScaleLine
from .tiling import ProductT, Tiling, schedule_of

CHUNK = 16
"""Bytes that a swizzle moves together: the narrowest panel."""

Place = dict[str, Index]
"""Where something begins, by the product's axes."""

ROW_TILES = "m16"
"""The axis along M in units of the 16 rows that a row of metadata words describes."""


@dataclass(frozen=True)
class MetadataTiles(Generic[ProductT]):
    """The tiles of the metadata of a sparse A, a row of words for 16 rows of A. Those for warpgroups are of whole
    patterns of the swizzle, which begin where stages do."""

    tiling: Tiling[ProductT]

    @property
    def span(self) -> int:
        """Columns of A that a word describes."""
        return metadata_span(self.tiling.product.a.element)

    @staticmethod
    def counted(index: IndexBuilder, at: Place) -> Place:
        """A place with its row of metadata, which is the same in every turn of the K loop."""
        return at | {ROW_TILES: index.div(at["m"], METADATA_ROWS)}

    def load(self, index: IndexBuilder, a: SparseOp, at: Place) -> SSAValue:
        """The metadata of a warp's fragment of A at `at` in the tile."""
        row, (m, _) = self.tiling.row, self.tiling.schedule.warp
        if row.metadata is None:
            raise ValueError("metadata is loaded for a sparse instruction")
        kind = metadata_type(row.metadata, m // row.metadata.rows)
        where = index.values(self.words(index, at))
        return index.insert(LoadOp(a.metadata, where, kind, registers="tiles", padded=a.padded is not None)).fragment

    def selector(self, k: int) -> int:
        """Which part of a word has the metadata of the step at `k`."""
        return k % self.span // self.tiling.row.shape.k

    def words(self, index: IndexBuilder, at: Place) -> tuple[Index, Index]:
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

    def copy(self: MetadataTiles[Product], index: IndexBuilder, at: Place, tile: SSAValue) -> None:
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

    def fragment(self) -> FragmentType:
        """A warp's scales for one step: as many of the instruction's tiles share a register as the warp tile allows."""
        (m, n), scale, of_a = self.tiling.schedule.warp, self.tiling.row.scale, self.role == "a"
        if scale is None:
            raise ValueError("scales are loaded for an instruction that takes some")
        layouts = (scale.layout(self.role, tiles) for tiles in range(THREAD_BITS[self.role], -1, -1))
        layout = next(each for each in layouts if (m % each.rows if of_a else n % each.columns) == 0)
        size = (m, scale.vector) if of_a else (scale.vector, n)
        return FragmentType.of("scale", *size, type_of_element(scale.type), layout)

    def load(self, index: IndexBuilder, tile: SSAValue, at: Place, number: int) -> SSAValue:
        """The words with a warp's scales at `at` in the tile, from that number in a row on."""
        where = index.values([at[self.axis], number])
        return index.insert(LoadOp(tile, where, self.fragment(), swapped=self.role == "b")).fragment

    # From memory to shared memory

    @property
    def _tile(self: ScaleTiles[Product]) -> tuple[int, int]:
        """Rows of scales of a K tile, and scales of a row."""
        cta = self.tiling.schedule.cta
        return cta["mn".index(self.axis)], cta[2] // block(self.tiling.product)

    @property
    def _blocks(self: ScaleTiles[Product]) -> BlocksAttr | None:
        """The blocks in which tensor memory holds the scales; None if registers hold them."""
        return _in_blocks(self._operand(), SCALES_BLOCK, *self._tile) if self.tiling.schedule.together > 1 else None

    def _operand(self: ScaleTiles[Product]) -> MatrixOperand:
        return self.tiling.product.scales["ab".index(self.role)]

    def shared_type(self: ScaleTiles[Product]) -> MemRefType:
        if (blocks := self._blocks) is not None:
            return _in_lines(self._operand(), blocks, self._tile[1])
        return tile_type(self._operand().element_type, self._tile, SwizzleAttr(WORD_PANEL))

    def copy(self: ScaleTiles[Product], index: IndexBuilder, at: Place, tile: SSAValue) -> None:
        """Copies the scales of the tile of A or B at `at` to shared memory."""
        operand, (tile_rows, deep), inside = self._operand(), self._tile, None
        if self._blocks is None:
            within = operand.shape[0] % tile_rows == 0 or self.tiling.last_start(self.axis) is not None
            inside = bounds_attribute(within, operand.shape[1] % deep == 0)
        where = index.values([at[self.axis], index.div(at["k"], block(self.tiling.product))])
        index.insert(CopyOp(operand.value, where, tile, in_bounds=inside, blocks=self._blocks))


SCALES_OF_UNIT = 4
"""Scales of f32 in the 16 bytes at a multiple of which a box begins."""


@dataclass(frozen=True)
class LineTiles:
    """Lines of scales in shared memory, which lie there as in a box of memory."""

    line: ScaleLine

    def shared_type(self) -> MemRefType:
        """The lines."""
        shape, kind = [self.line.parts, self.line.columns], memory_of(self.line.scales).element_type
        return tile_type(kind, shape, StridedLayoutAttr([self.line.columns, 1]))

    def copy(self, index: IndexBuilder, at: Place, tile: SSAValue) -> None:
        """Copies the scales of the K tile whose first element is at `at`."""
        line, view, place = self.line, self.line.scales.owner, at[self.line.axis]
        shared, first = line.block > 1, index.div(at["k"], line.size)
        of_blocks = isinstance(view, MatrixOp)  # with k as its columns
        source = index.insert(view.at((), *((0, 1) if shared else (1, 0)))).matrix if of_blocks else line.scales
        where = [first, place]
        if shared:
            where = [index.div(place, line.block), index.mul(index.div(first, SCALES_OF_UNIT), SCALES_OF_UNIT)]
        index.insert(CopyOp(source, index.values(where), tile, in_bounds=bounds_attribute(False, False)))


def group_scales(
    op: TileMmaOp,
    index: IndexBuilder,
    groups: GroupScales,
    warp: Place,
    first: int,
    kind: FragmentType,
    along: str = "columns",
) -> SSAValue:
    """The scales of the columns of a warp, of the group that `first` of the warp's part of k is in; they run `along`
    the columns of a fragment of this kind, or the rows of one of B^T."""
    swapped, schedule, (count, columns) = op.transposed_b is not None, schedule_of(op), shape_of_scales(op, groups)
    group: Index = 0
    if count > 1:
        k = index.add(index.add(index.folded(groups.k), warp["k"]), first)
        group = index.div(k, groups.size)
        if count * groups.size // schedule.split_k % schedule.cta[2]:
            group = index.minimum(group, count - 1)  # behind the end of k, or of a part, where all products are zero
    kind = kind.with_element(element_type(groups.scales))
    line, start = index.value(group), index.value(index.add(index.folded(groups.n), warp["n"]))
    if is_shared(memory_of(groups.scales)):
        where = [start, line] if swapped else [line, start]
        return index.insert(LoadOp(groups.scales, where, kind, swapped=swapped, along=along)).fragment
    view = groups.scales.owner
    row = view.at([line], None, 1) if isinstance(view, MatrixOp) else MatrixOp(groups.scales, [line], None, 1)
    inside = columns % schedule.cta[1] == 0
    bounds = bounds_attribute(inside and along == "rows", inside and along == "columns")
    matrix, where = index.insert(row).matrix, [index.value(0), start]
    return index.insert(LoadOp(matrix, where, kind, in_bounds=bounds, along=along)).fragment


def shape_of_scales(op: TileMmaOp, groups: GroupScales) -> tuple[int, int]:
    """Groups and columns of scales; in shared memory they lie as B does."""
    scales, as_b = memory_of(groups.scales), op.transposed_b is not None
    first, last = scales.get_shape()
    return (last, first) if as_b and is_shared(scales) else (first, last)
