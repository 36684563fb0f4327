"""Copies of tiles by tensor maps: which map, which box, at which coordinates; maps as arguments of the kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from xdsl.dialects.builtin import ArrayAttr, IntAttr
from xdsl.ir import BlockArgument, Operation, SSAValue

from ...dialect.warp.attributes import Memory, element_row, memory_of
from ...dialect.warp.copy import CopyOp
from ...dialect.warp.tensor_copies import TensorLoadOp
from ...dialect.warp.tensor_maps import TensorMapType, moved_as, moved_together
from ...dialect.warp.view import MatrixOp
from ...dialect.warp.warpgroup import ROWS, panel_of
from ..tile.index_builder import Index, IndexBuilder
from ..tile.launches import LaunchedKernel
from .clusters import Share
from .copy_loop import decline


class TensorView(NamedTuple):
    """A matrix in memory as a tensor map has it: the dimensions in `order`, slowest first, rows at place `row` of them
    and columns last; `others` are the indices of the rest."""

    memory: BlockArgument
    order: tuple[int, ...]
    row: int
    others: tuple[SSAValue, ...]

    @staticmethod
    def of(op: Operation, source: SSAValue) -> TensorView:
        """The matrix that an operation reads or writes.

        Raises:
            DeclinedError: if no tensor map has it.
        """
        if isinstance(source.owner, MatrixOp):
            (row, column), others = source.owner.dimensions, tuple(source.owner.indices)
            memory = source.owner.memory
        else:
            memory, row, column, others = source, 0, 1, ()
        if row is None or column is None or not isinstance(memory, BlockArgument):
            decline(op, "what it copies is no matrix of an argument of the kernel")
        rank = memory_of(memory).get_num_dims()
        order = tuple(d for d in range(rank) if d != column)
        return TensorView(memory, (*order, column), order.index(row), others)

    def coordinates(self, row: Index, column: Index, moved: Callable[[SSAValue], Index]) -> list[Index]:
        """Where a box begins; `moved` says what indices from outside are there."""
        found = [moved(other) for other in self.others]
        found.insert(self.row, row)
        return [*found, column]


def box_type(tensor: TensorView, tile: Memory, parts: int = 1) -> TensorMapType:
    """The map whose boxes are panels of a tile, or one of so many parts of them, of as many rows each."""
    moved = moved_as(tile.element_type)
    element = element_row(moved)
    width, rows = panel_of(tile, "the tile"), tile.get_shape()[-2] // parts
    box = [1] * len(tensor.order)
    box[tensor.row], box[-1] = rows, width * 8 // (element.memory_bits if element else 8)
    return TensorMapType(ArrayAttr(map(IntAttr, box)), moved, IntAttr(width if width > 16 else 0))


def _columns(tile: Memory, kind: TensorMapType) -> int:
    """Columns of a tile in a box."""
    return kind.shape[-1] * moved_together(tile.element_type)


class TensorCopy(NamedTuple):
    """A copy of a tile, panel by panel, by a tensor map that the kernel is given; or of this CTA's share of a tile, to
    all CTAs of the cluster that share it."""

    copy: CopyOp
    tensor: TensorView
    map: SSAValue
    kind: TensorMapType
    share: Share | None

    @staticmethod
    def of(copy: CopyOp, launch: LaunchedKernel, share: Share | None = None) -> TensorCopy:
        """The copy, with a further argument for its map, which the host encodes before the launch.

        A tile is shared by panels, or by the rows of each where there are not enough of them. One that has too few
        rows as well, such as the metadata of a sparse A, each CTA copies for itself.

        Raises:
            DeclinedError: if no tensor map has what it reads.
        """
        tensor, tile = TensorView.of(copy, copy.source), memory_of(copy.destination)
        kind = box_type(tensor, tile)
        if share is not None and tile.get_shape()[-1] // _columns(tile, kind) % share.count:
            share = None if tile.get_shape()[-2] % (ROWS * share.count) else share
            kind = kind if share is None else box_type(tensor, tile, share.count)
        return TensorCopy(copy, tensor, launch.tensor_map(tensor.memory, tensor.order, kind), kind, share)

    @property
    def panels(self) -> int:
        """Panels that make up the tile."""
        return memory_of(self.copy.destination).get_shape()[-1] // self.columns

    @property
    def columns(self) -> int:
        """Columns of the tile in a box."""
        return _columns(memory_of(self.copy.destination), self.kind)

    @property
    def rows(self) -> int:
        """Rows of a box."""
        return self.kind.shape[self.tensor.row]

    @property
    def bytes(self) -> int:
        """Bytes that arrive, from all CTAs, those outside of memory too."""
        return self.panels * self.kind.bytes * (memory_of(self.copy.destination).get_shape()[-2] // self.rows)

    def start(
        self,
        index: IndexBuilder,
        at: Sequence[Index],
        moved: Callable[[SSAValue], Index],
        stage: Index | None,
        full: SSAValue,
    ) -> None:
        """Starts the copy of the tile at (row, column) to a stage of a ring, None for a tile that has none."""
        (row, column), tile, panels = at, self.copy.destination, self.panels
        down: Index = 0
        left: Index = 0
        if self.share is not None and memory_of(tile).get_shape()[-2] > self.rows:
            down = index.mul(self.share.part, self.rows)
        elif self.share is not None:
            panels //= self.share.count
            left = index.mul(self.share.part, panels * self.columns)
        for panel in range(panels):
            along = index.add(left, panel * self.columns)
            place = index.div(index.add(column, along), moved_together(memory_of(tile).element_type))
            where = self.tensor.coordinates(index.add(row, down), place, moved)
            to = index.values([down, along] if stage is None else [stage, down, along])
            mask = None if self.share is None else self.share.mask
            index.insert(
                TensorLoadOp(self.map, index.values(where), tile, to, full, index.value(stage or 0), mask=mask)
            )
