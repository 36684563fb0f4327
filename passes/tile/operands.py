"""A and B on their way from memory to fragments: tiles in shared memory, copies, loads."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerAttr, MemRefType, i8, i64
from xdsl.ir import SSAValue

from ...dialect.warp.attributes import SHARED_SPACE, SwizzleAttr
from ...dialect.warp.convert_layout import ConvertLayoutOp
from ...dialect.warp.copy import SPREAD, CopyOp
from ...dialect.warp.memory import LdmatrixOp, LoadOp, bounds_attribute
from ..linalg.operand import Operand
from .arrangement import LANES, PIECES, Way
from .index_builder import Index, IndexBuilder
from .summed import matrix_of
from .tiling import Tiling

CHUNK = 16
"""Bytes that a swizzle moves together: the narrowest panel."""


@dataclass(frozen=True)
class OperandTiles:
    """The tiles of one of A and B. `axes` are the product's axes along its rows and columns: "mk" or "kn"."""

    tiling: Tiling
    operand: Operand
    role: str
    axes: str

    @property
    def way(self) -> Way:
        """How the operand gets to registers."""
        return self.tiling.arrangement.a if self.role == "a" else self.tiling.arrangement.b

    @property
    def in_memory(self) -> str:
        """The product's axes along the rows and columns of memory."""
        return self.axes[::-1] if self.operand.transposed else self.axes

    @property
    def _sparsity(self) -> int:
        return self.tiling.product.sparsity if self.role == "a" else 1

    @property
    def _spread(self) -> bool:
        """Whether elements of 4 bits get a byte each on the way."""
        return self.tiling.product.shared_bits(self.operand) > self.operand.element.memory_bits

    def _stored(self, sizes: tuple[int, int, int]) -> dict[str, int]:
        """Sizes along m, n and k by axis, of k what is stored."""
        m, n, k = sizes
        return {"m": m, "n": n, "k": k // self._sparsity}

    def place(self, index: IndexBuilder, at: dict[str, Index]) -> list[SSAValue]:
        """The row and column in memory, or in the tile, of the element at `at`: of a sparse A among the stored ones."""
        stored = at if self._sparsity == 1 else at | {"k": index.div(at["k"], self._sparsity)}
        return index.values([stored[axis] for axis in self.in_memory])

    def shared_type(self) -> MemRefType:
        """The tile in shared memory, stored as it lies in global memory, swizzled as wide as its lines allow.

        Its elements are of the type that they are multiplied as, or bytes that these are spread over.
        """
        schedule = self.tiling.schedule
        sizes = self._stored(schedule.tile.cta)
        rows, columns = (sizes[axis] for axis in self.in_memory)
        line = columns * self.tiling.product.shared_bits(self.operand) // 8
        width = max(CHUNK, min(schedule.shared.swizzle, line & -line))
        element = i8 if self._spread else self.tiling.element_type(self.role)
        swizzle = SwizzleAttr(width, self.way.skip if width > CHUNK else 0)
        return MemRefType(element, [rows, columns], swizzle, IntegerAttr(SHARED_SPACE, i64))

    def copy(self, index: IndexBuilder, at: dict[str, Index], tile: SSAValue) -> None:
        """Copies the tile whose first element lies at `at`, by axis, to shared memory."""
        steps = self._stored(self.tiling.schedule.tile.cta)
        inside = bounds_attribute(
            *(
                size % steps[axis] == 0 or self.tiling.last_start(axis) is not None
                for size, axis in zip(self.operand.shape, self.in_memory, strict=True)
            )
        )
        where, source = self.place(index, at), matrix_of(index, self.operand, at)
        index.insert(CopyOp(source, where, tile, in_bounds=inside, packed=SPREAD * self._spread))

    def load(self, index: IndexBuilder, tile: SSAValue, at: dict[str, Index]) -> SSAValue:
        """Loads the fragment whose first element lies at `at` in the tile.

        B runs down the columns of memory unless it is transposed, so `ldmatrix` takes `.trans` there.
        """
        transposed, way, where = self.operand.transposed, self.way, self.place(index, at)
        kind = self.tiling.fragment(self.role)
        if way.how == LANES:
            return index.insert(LoadOp(tile, where, kind, swapped=transposed)).fragment
        trans = transposed != (self.role == "b")
        loaded = kind.with_layout(way.delivered)
        pieces = way.how == PIECES
        raw = index.insert(
            LdmatrixOp(tile, where, loaded, trans=trans, b16=pieces, swapped=transposed, packed=SPREAD * self._spread)
        ).fragment
        return index.insert(ConvertLayoutOp.to(raw, way.layout)).fragment if pieces else raw
