"""Copies of tiles by tensor maps: which map, which box, at which coordinates; maps as arguments of the kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, IntAttr
from xdsl.ir import BlockArgument, Operation, SSAValue

from ...dialect.warp.attributes import Memory, element_row, memory_of
from ...dialect.warp.copy import CopyOp
from ...dialect.warp.tensor_copies import TensorLoadOp
from ...dialect.warp.tensor_maps import TensorMapType
from ...dialect.warp.view import MatrixOp
from ...dialect.warp.warpgroup import panel_of
from ..tile.index_builder import Index, IndexBuilder
from ..tile.launches import LaunchedKernel
from .loop import decline


@dataclass(frozen=True)
class TensorView:
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


def box_type(tensor: TensorView, tile: Memory) -> TensorMapType:
    """The map whose boxes are panels of a tile."""
    element = element_row(tile.element_type)
    width, rows = panel_of(tile, "the tile"), tile.get_shape()[-2]
    box = [1] * len(tensor.order)
    box[tensor.row], box[-1] = rows, width * 8 // (element.memory_bits if element else 8)
    return TensorMapType(ArrayAttr(map(IntAttr, box)), tile.element_type, IntAttr(width if width > 16 else 0))


@dataclass(frozen=True)
class TensorCopy:
    """A copy of a tile, panel by panel, by a tensor map that the kernel is given."""

    copy: CopyOp
    tensor: TensorView
    map: SSAValue
    kind: TensorMapType

    @staticmethod
    def of(copy: CopyOp, launch: LaunchedKernel) -> TensorCopy:
        """The copy, with a further argument for its map, which the host encodes before the launch.

        Raises:
            DeclinedError: if no tensor map has what it reads.
        """
        tensor = TensorView.of(copy, copy.source)
        kind = box_type(tensor, memory_of(copy.destination))
        return TensorCopy(copy, tensor, launch.tensor_map(tensor.memory, tensor.order, kind), kind)

    @property
    def panels(self) -> int:
        """Boxes that make up the tile."""
        return memory_of(self.copy.destination).get_shape()[-1] // self.kind.shape[-1]

    @property
    def bytes(self) -> int:
        """Bytes that arrive, those outside of memory too."""
        return self.panels * self.kind.bytes

    def start(
        self,
        index: IndexBuilder,
        at: Sequence[Index],
        moved: Callable[[SSAValue], Index],
        stage: Index | None,
        full: SSAValue,
    ) -> None:
        """Starts the copy of the tile at (row, column) to a stage of a ring, None for a tile that has none."""
        (row, column), tile = at, self.copy.destination
        for panel in range(self.panels):
            along = panel * self.kind.shape[-1]
            where = self.tensor.coordinates(row, index.add(column, along), moved)
            to = index.values([0, along] if stage is None else [stage, 0, along])
            index.insert(TensorLoadOp(self.map, index.values(where), tile, to, full, index.value(stage or 0)))
