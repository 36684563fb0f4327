"""Products of few tiles and a long K: the `split_k` of a schedule.

K is cut into equal parts, and the product of each part is one of a batch, so that there are `split_k` times as many
CTAs. Each leaves its sums in scratch memory; the last one of a tile adds them up, in the order of the parts, so that
every run gives the same bits, and goes on as if it had multiplied all of K.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from xdsl.builder import Builder
from xdsl.dialects import scf
from xdsl.dialects.builtin import MemRefType, i32
from xdsl.ir import Block, Region, SSAValue
from xdsl.rewriter import InsertPoint

from ...dialect.isa.types import ElementType
from ...dialect.schedule import Schedule
from ...dialect.warp.attributes import type_of_element
from ...dialect.warp.partial_sums import AddPartsOp, ArriveLastOp, StorePartOp
from ..linalg.operand import Operand, VectorOperand
from ..linalg.product import Product
from ..linalg.views import expanded
from .index_builder import Index, IndexBuilder
from .outliner import Outliner
from .tiling import Tiling


@dataclass(frozen=True)
class Workspace:
    """Where the CTAs of a tile leave their sums: a row of `parts` for each part of each tile, and a counter for each
    tile; memory of the host's function, or a kernel's arguments."""

    parts: SSAValue
    counters: SSAValue

    @staticmethod
    def of(outliner: Outliner, element: ElementType, slots: int, size: int, tiles: int) -> Workspace:
        """Scratch memory for `slots` parts of `size` elements."""
        parts = outliner.scratch(MemRefType(type_of_element(element), [slots, size]))
        return Workspace(parts, outliner.scratch(MemRefType(i32, [tiles]), zeroed=True))

    @property
    def arguments(self) -> tuple[VectorOperand, ...]:
        """What a kernel is given of it."""
        return VectorOperand("parts", self.parts), VectorOperand("counters", self.counters)


@dataclass(frozen=True)
class PartialTile:
    """One CTA's share of a tile: the tile's number among those that are shared, where the sums of this CTA and those of
    the tile's first part lie, and how many parts there are."""

    workspace: Workspace
    tile: Index
    slot: Index
    first: Index
    parts: Index

    @contextmanager
    def last(self, index: IndexBuilder, accumulator: SSAValue) -> Generator[IndexBuilder]:
        """Leaves the accumulators; what is built with the builder it gives, only the last CTA of the tile does."""
        index.insert(StorePartOp(accumulator, self.workspace.parts, index.value(self.slot)))
        last = index.insert(ArriveLastOp(self.workspace.counters, *index.values([self.tile, self.parts]))).last
        body = Block()
        inside = index.at(Builder(InsertPoint.at_end(body)))
        yield inside
        inside.insert(scf.YieldOp())
        index.insert(scf.IfOp(last, [], Region(body)))

    def total(self, index: IndexBuilder, start: SSAValue) -> SSAValue:
        """The sum of all parts and of what the product starts from."""
        where = index.values([self.first, self.parts])
        return index.insert(AddPartsOp(start, self.workspace.parts, *where)).fragment


def workspace(product: Product, schedule: Schedule, outliner: Outliner) -> Workspace:
    """Scratch memory for the parts of all tiles."""
    rows, columns, _ = schedule.cta
    tiles = -(-product.m // rows) * -(-product.n // columns)
    element = Tiling(product, schedule, {}).row.element("c")
    return Workspace.of(outliner, element, tiles * schedule.split_k, rows * columns, tiles)


def share(index: IndexBuilder, workspace: Workspace, schedule: Schedule, tile: Index, part: Index) -> PartialTile:
    """A CTA's share of a tile whose parts all CTAs of the same number in a batch have."""
    first = index.mul(tile, schedule.split_k)
    return PartialTile(workspace, tile, index.add(first, part), first, schedule.split_k)


def split(product: Product, schedule: Schedule, outliner: Outliner) -> Product:
    """The product of each part of K, as one of a batch with the same result."""
    parts = schedule.split_k
    return replace(
        product,
        a=_cut(product.a, 0 if product.a.transposed else 1, parts, outliner),
        b=_cut(product.b, 1 if product.b.transposed else 0, parts, outliner),
        k=product.k // parts,
        batch=(parts,),
    )


def _cut(operand: Operand, along: int, parts: int, outliner: Outliner) -> Operand:
    """The operand with K, its dimension `along`, as two: the part, and the place in it."""
    shape = list(operand.shape)
    shape[along : along + 1] = [parts, shape[along] // parts]
    kind = MemRefType(operand.element_type, shape)
    groups = [[0, 1], [2]] if along == 0 else [[0], [1, 2]]
    dimensions = (1, 2) if along == 0 else (0, 2)
    held = outliner.insert(expanded(operand.value, kind, groups))
    return replace(operand, value=held, type=kind, dimensions=dimensions, batch=(0,))
