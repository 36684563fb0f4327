"""A and B on their way from memory to fragments: tiles in shared memory, copies, loads."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerAttr, MemRefType, i8, i64
from xdsl.ir import SSAValue, TypeAttribute

from ...dialect.gpu import BarrierOp
from ...dialect.schedule import Schedule
from ...dialect.warp.attributes import SHARED_SPACE, FragmentType, memory_of
from ...dialect.warp.convert_layout import ConvertLayoutOp
from ...dialect.warp.copy import SPREAD, CopyOp
from ...dialect.warp.elementwise import ConvertOp
from ...dialect.warp.epilogue import SubfragmentOp
from ...dialect.warp.memory import LdmatrixOp, LoadOp, bounds_attribute
from ...dialect.warp.swizzle import SwizzleAttr
from ..diagnostics import fail
from ..linalg.multiplied import MatrixFactor, shared_bits
from ..linalg.operand import MatrixOperand
from ..schedule.warpgroup_model import held_columns
from .arrangement import LANES, PIECES, Delivery
from .index_builder import Index, IndexBuilder
from .summed import matrix_of
from .tiling import Fragments, Tiling

CHUNK = 16
"""Bytes that a swizzle moves together: the narrowest panel."""


@dataclass(frozen=True)
class FactorTiles:
    """The tiles of one of A and B in shared memory. `axes` are the product's axes along its rows and columns: "mk" or
    "kn"."""

    tiling: Fragments
    operand: MatrixFactor
    role: str
    axes: str

    @staticmethod
    def both(tiling: Fragments) -> tuple[FactorTiles, FactorTiles]:
        """Those of A and of B."""
        return FactorTiles(tiling, tiling.product.a, "a", "mk"), FactorTiles(tiling, tiling.product.b, "b", "kn")

    @property
    def way(self) -> Delivery:
        """How the operand gets to registers."""
        return self.tiling.arrangement.a if self.role == "a" else self.tiling.arrangement.b

    @property
    def in_memory(self) -> str:
        """The product's axes along the rows and columns of memory."""
        return self.axes[::-1] if self.operand.transposed else self.axes

    @property
    def sparsity(self) -> int:
        """Elements along k for each that is stored."""
        return self.tiling.product.sparsity if self.role == "a" else 1

    @property
    def packed(self) -> str:
        """The format in which elements of 4 bits, that have a byte each, lie in shared memory; else none."""
        spread = shared_bits(self.tiling.product, self.operand) > self.operand.element.memory_bits
        return SPREAD if spread else ""

    def place(self, index: IndexBuilder, at: dict[str, Index]) -> list[SSAValue]:
        """The row and column in memory, or in the tile, of the element at `at`: of a sparse A among the stored ones."""
        stored = at if self.sparsity == 1 else at | {"k": index.div(at["k"], self.sparsity)}
        return index.values([stored[axis] for axis in self.in_memory])

    def held(self, index: IndexBuilder, whole: SSAValue, at: dict[str, Index]) -> SSAValue:
        """The fragment for a step of the instruction at k of an A that the warp holds."""
        start, kind = at["k"], self.tiling.fragment(self.role)
        if not isinstance(start, int):
            fail(self.tiling.product.op, "expected the k of a fragment to be known")
        return index.insert(SubfragmentOp(whole, (0, start), kind.shape)).fragment

    def load(self, index: IndexBuilder, tile: SSAValue, at: dict[str, Index]) -> SSAValue:
        """Loads the fragment whose first element lies at `at` in the tile, or in the part of it that the warp holds.

        B runs down the columns of memory unless it is transposed, so `ldmatrix` takes `.trans` there.
        """
        if isinstance(tile.type, FragmentType):
            return self.held(index, tile, at)
        transposed, way, where = self.operand.transposed, self.way, self.place(index, at)
        kind = self.tiling.fragment(self.role)
        if way.how == LANES:
            loaded = index.insert(LoadOp(tile, where, kind.with_layout(way.delivered), swapped=transposed)).fragment
            same = way.delivered == way.layout
            return loaded if same else index.insert(ConvertLayoutOp.to(loaded, way.layout)).fragment
        trans = transposed != (self.role == "b")
        stored, held = self.operand.stored, memory_of(tile).element_type
        if stored is not None and isinstance(held, TypeAttribute):
            kind = FragmentType.of(self.role, *kind.shape, held, kind.layout.data)
        loaded = kind.with_layout(way.delivered)
        pieces = way.how == PIECES
        raw = index.insert(
            LdmatrixOp(tile, where, loaded, trans=trans, b16=pieces, swapped=transposed, packed=self.packed)
        ).fragment
        if stored is not None:
            return index.insert(ConvertOp(raw, self.tiling.element_type(self.role), stored, way.layout)).fragment
        return index.insert(ConvertLayoutOp.to(raw, way.layout)).fragment if pieces else raw


@dataclass(frozen=True)
class OperandTiles(FactorTiles):
    """The same with A or B in memory, from where tiles are copied."""

    tiling: Tiling
    operand: MatrixOperand

    def _stored(self) -> dict[str, int]:
        """Sizes of a CTA tile along m, n and k by axis, of k what is stored."""
        m, n, k = self.tiling.schedule.tile.cta
        return {"m": m, "n": n, "k": k // self.sparsity}

    def _held(self) -> list[int]:
        """Rows and columns of a CTA tile in shared memory."""
        sizes = self._stored()
        if self.role == "b" and self.tiling.schedule.tile.together > 1:
            sizes["n"] = held_columns(self.tiling.product, sizes["n"])
        return [sizes[axis] for axis in self.in_memory]

    def shared_type(self) -> MemRefType:
        """The tile in shared memory, stored as it lies in global memory, swizzled as wide as its lines allow.

        Its elements are of the type that they are multiplied as, bytes that these are spread over, or the integers that
        they are made of.
        """
        rows, columns = self._held()
        line = columns * shared_bits(self.tiling.product, self.operand) // 8
        width = max(CHUNK, min(self.tiling.schedule.shared.swizzle, line & -line))
        plain = self.tiling.element_type(self.role) if self.operand.stored is None else self.operand.element_type
        element = i8 if self.packed else plain
        swizzle = SwizzleAttr(width, self.way.skip if width > CHUNK else 0)
        return MemRefType(element, [rows, columns], swizzle, IntegerAttr(SHARED_SPACE, i64))

    def copy(self, index: IndexBuilder, at: dict[str, Index], tile: SSAValue) -> None:
        """Copies the tile whose first element lies at `at`, by axis, to shared memory."""
        steps = self._stored()
        inside = bounds_attribute(
            *(
                held == steps[axis] and (size % held == 0 or self.tiling.last_start(axis) is not None)
                for size, held, axis in zip(self.operand.shape, self._held(), self.in_memory, strict=True)
            )
        )
        where, source = self.place(index, at), matrix_of(index, self.operand, at)
        index.insert(CopyOp(source, where, tile, in_bounds=inside, packed=self.packed))


def copies_done(index: IndexBuilder, schedule: Schedule) -> None:
    """What stands between copies to shared memory and those who read the tiles."""
    if schedule.tile.together > 1:
        from ...dialect.warp.tensor_copies import ProxyFenceOp  # 2 ms, for Hopper alone

        # Warpgroups read what threads have copied through the asynchronous proxy.
        index.insert(ProxyFenceOp())
    index.insert(BarrierOp())
