"""The scales of A or B on their way from memory to registers.

They lie as A and B do, four of a row in a word, which is what a lane holds: so a K tile has whole words of scales, and
every step of the instruction picks its bytes of them (PTX ISA 9.7.14.3). Words of a column stand side by side in shared
memory, for a load takes those of as many rows as there are lanes, where the words of two (A) or four (B) of the
instruction's tiles share a register.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerAttr, MemRefType, i64
from xdsl.ir import SSAValue

from ...dialect.isa.block_scale import SCALES_OF_WORD, THREAD_BITS, BlockScale
from ...dialect.isa.wgmma import Wgmma
from ...dialect.warp.attributes import SHARED_SPACE, FragmentType, type_of_element
from ...dialect.warp.copy import CopyOp
from ...dialect.warp.memory import bounds_attribute
from ...dialect.warp.mma import MmaOp
from ...dialect.warp.scaling import LoadScalesOp
from ...dialect.warp.swizzle import WORD_PANEL, SwizzleAttr
from ...dialect.warp.tile_mma import TileMmaOp
from ..linalg.multiplied import block
from ..linalg.operand import MatrixOperand
from .index_builder import Index, IndexBuilder
from .multiplication import FragmentProduct, Place
from .tiling import Fragments, Tiling


@dataclass(frozen=True)
class ScaleWords:
    """The tiles of the scales of one of A and B in shared memory, whose rows run along `axis`: "m" or "n"."""

    tiling: Fragments
    role: str
    axis: str

    @property
    def _scale(self) -> BlockScale:
        row = self.tiling.row
        scale = None if isinstance(row, Wgmma) else row.scale
        if scale is None:
            raise ValueError("scales are loaded for an instruction that takes some")
        return scale

    def fragment(self) -> FragmentType:
        """A warp's scales for one step: as many of the instruction's tiles share a register as the warp tile allows."""
        (m, n), scale = self.tiling.schedule.tile.warp, self._scale
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
        return index.insert(LoadScalesOp(tile, where, self.fragment())).fragment


@dataclass(frozen=True)
class ScaleTiles(ScaleWords):
    """The same with scales in memory, from where tiles are copied."""

    tiling: Tiling
    operand: MatrixOperand

    def shared_type(self) -> MemRefType:
        m, n, k = self.tiling.schedule.tile.cta
        shape = [m if self.axis == "m" else n, k // block(self.tiling.product)]
        return MemRefType(self.operand.element_type, shape, SwizzleAttr(WORD_PANEL), IntegerAttr(SHARED_SPACE, i64))

    def copy(self, index: IndexBuilder, at: dict[str, Index], tile: SSAValue) -> None:
        """Copies the scales of the tile of A or B whose first element lies at `at` to shared memory."""
        (rows, columns), (held, deep) = self.operand.shape, self.shared_type().get_shape()
        where = index.values([at[self.axis], index.div(at["k"], block(self.tiling.product))])
        within = rows % held == 0 or self.tiling.last_start(self.axis) is not None
        inside = bounds_attribute(within, columns % deep == 0)
        index.insert(CopyOp(self.operand.value, where, tile, in_bounds=inside))


class ScaledProduct(FragmentProduct):
    """`warp.mma` with scales: a step loads the next words of them when it comes to their first."""

    def __init__(self, op: TileMmaOp) -> None:
        super().__init__(op)
        self.scales = (ScaleWords(self.tiling, "a", "m"), ScaleWords(self.tiling, "b", "n"))
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
        op = MmaOp(schedule.tile.mma, a, b, accumulator, *words, scales=scales, selectors=(byte, 0) * len(scales))
        return index.insert(op).d
