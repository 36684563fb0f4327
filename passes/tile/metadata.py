"""The metadata of a sparse A, and the scales of A and B, on their way from memory to registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from xdsl.dialects.builtin import IntegerAttr, MemRefType, i64
from xdsl.ir import SSAValue

from ...dialect.isa.form import SCALES_OF_WORD, THREAD_BITS, BlockScale
from ...dialect.layouts.layout import LANES
from ...dialect.warp.attributes import SHARED_SPACE, WORD_PANEL, FragmentType, SwizzleAttr, type_of_element
from ...dialect.warp.cta import CopyOp
from ...dialect.warp.memory import LoadOp
from ...dialect.warp.mma import MmaOp, metadata_type
from ...dialect.warp.op_shapes import bounds_attribute
from ...dialect.warp.operands import METADATA_ROWS, SparseOp, metadata_span
from ...dialect.warp.tile_mma import TileMmaOp
from ...dialect.warp.warpgroup import ROWS as WARPGROUP_ROWS
from ..builder import Index, IndexBuilder
from ..linalg.operand import MatrixOperand
from ..linalg.product import Product, block
from .operands import FragmentProduct, Place, WarpgroupProduct
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
        """`load` of several steps, in which words that have the metadata of more than one are loaded once."""
        loaded: dict[Index, tuple[SSAValue, int]] = {}
        found: list[tuple[SSAValue, int]] = []
        for at in steps:
            word = index.div(at["k"], self.span)
            if word not in loaded:
                loaded[word] = self.load(index, a, at)
            found.append((loaded[word][0], self._selector(at)))
        return found

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
        rows, line = m // METADATA_ROWS, SwizzleAttr(LANES * operand.element.bits // 8)
        if self.tiling.schedule.together > 1:
            rows = -(-rows // WARPGROUP_ROWS) * WARPGROUP_ROWS
        shape = [rows, k // self.span * LANES]
        return MemRefType(operand.element_type, shape, line, IntegerAttr(SHARED_SPACE, i64))

    def copy(self: MetadataTiles[Product], index: IndexBuilder, at: dict[str, Index], tile: SSAValue) -> None:
        """Copies the words of the tile of A whose first element lies at `at` to shared memory."""
        operand = self._operand()
        (rows, columns), (held, words) = operand.shape, self.shared_type().get_shape()
        where = index.values(self.words(index, at))
        inside = bounds_attribute(rows % held == 0, columns % words == 0)
        index.insert(CopyOp(operand.value, where, tile, in_bounds=inside))


def sparse_of(op: TileMmaOp) -> SparseOp:
    """The sparse A of a product.

    Raises:
        ValueError: if its A is dense.
    """
    form, _ = op.forms
    if not isinstance(form, SparseOp):
        raise ValueError("expected a product with a sparse A")
    return form


class SparseProduct(FragmentProduct):
    """`warp.mma`: A is sparse, with metadata that is copied and loaded beside it."""

    def begin(self, op: TileMmaOp) -> None:
        super().begin(op)
        self.metadata = MetadataTiles(self.tiling)

    @staticmethod
    def multiplies(op: TileMmaOp) -> bool:
        return op.metadata is not None and schedule_of(op).together == 1

    def counted(self, index: IndexBuilder, at: Place) -> Place:
        return self.metadata.counted(index, at)

    def step(self, index: IndexBuilder, a: SSAValue, b: SSAValue, accumulator: SSAValue, at: Place) -> SSAValue:
        sparse = self.metadata.load(index, sparse_of(self.op), at)
        shape = self.tiling.schedule.mma
        return index.insert(MmaOp(shape, a, b, accumulator, "ordered", sparse=sparse)).d


class SparseWarpgroupProduct(WarpgroupProduct):
    """`warp.wgmma` of a sparse A, whose metadata is copied beside it; each lane loads its word of some steps at once,
    before their products begin."""

    def begin(self, op: TileMmaOp) -> None:
        super().begin(op)
        self.metadata = MetadataTiles(self.tiling)

    @staticmethod
    def multiplies(op: TileMmaOp) -> bool:
        return schedule_of(op).together > 1 and op.metadata is not None

    def counted(self, index: IndexBuilder, at: Place) -> Place:
        return self.metadata.counted(index, at)

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
        """The product's axis along which rows of scales follow each other."""
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
            layout = next(found for found in layouts if m % found.rows == 0)
            size = m, scale.vector
        else:
            layout = next(found for found in layouts if n % found.columns == 0)
            size = scale.vector, n
        return FragmentType.of("scale", *size, type_of_element(scale.type), layout)

    def load(self, index: IndexBuilder, tile: SSAValue, at: dict[str, Index], number: int) -> SSAValue:
        """The words with a warp's scales at `at` in the tile, from that number in a row on."""
        where = index.values([at[self.axis], number])
        return index.insert(LoadOp(tile, where, self.fragment(), swapped=self.role == "b")).fragment

    # From memory to shared memory

    def _operand(self: ScaleTiles[Product]) -> MatrixOperand:
        a, b = self.tiling.product.scales
        return a if self.role == "a" else b

    def shared_type(self: ScaleTiles[Product]) -> MemRefType:
        m, n, k = self.tiling.schedule.cta
        shape = [m if self.axis == "m" else n, k // block(self.tiling.product)]
        return MemRefType(self._operand().element_type, shape, SwizzleAttr(WORD_PANEL), IntegerAttr(SHARED_SPACE, i64))

    def copy(self: ScaleTiles[Product], index: IndexBuilder, at: dict[str, Index], tile: SSAValue) -> None:
        """Copies the scales of the tile of A or B whose first element lies at `at` to shared memory."""
        operand = self._operand()
        (rows, columns), (held, deep) = operand.shape, self.shared_type().get_shape()
        where = index.values([at[self.axis], index.div(at["k"], block(self.tiling.product))])
        within = rows % held == 0 or self.tiling.last_start(self.axis) is not None
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
            self._loaded[word] = [way.load(index, tile, at, word * SCALES_OF_WORD) for way, tile in pairs]
        scales, words = self._loaded[word], self.op.variant.words
        op = MmaOp(schedule.mma, a, b, accumulator, *words, scales=scales, selectors=(byte, 0) * len(scales))
        return index.insert(op).d
