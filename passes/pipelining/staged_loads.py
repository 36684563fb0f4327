"""Matrices of an epilogue by tensor copies: through stages of the ring, behind the K tiles of a tile.

A lane that loads what lies beside its sums loads 4 bytes at a time, eight half sectors for each instruction of a warp.
So the producer copies the matrix instead, panel by panel, to stages that the last K tiles have left, while the last
products run. Consumers wait for a stage as for one with a K tile, and read panels by `ldmatrix` to lie as the sums do.
It takes no shared memory of its own::

    producer                                    consumers
      for each tile of this CTA:                  for each tile of this CTA:
        for each K tile: ...                        for each K tile: ...
        for each turn:                              for each turn:
          wait: stage is empty                        wait: stage is full
          start copies of panels, of all              read panels, of this warpgroup; that stage is
          warpgroups, which arrive there              empty; compute and store what they lie beside
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from xdsl.builder import Builder
from xdsl.dialects import scf
from xdsl.dialects.builtin import IntegerAttr, MemRefType, i64
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.gpu import SubgroupIdOp
from ...dialect.isa.descriptor import UNIT
from ...dialect.isa.tensor_map import MOST_RANK
from ...dialect.isa.wgmma import WARPS
from ...dialect.warp.attributes import BYTE, SHARED_SPACE, fragment_of, memory_of, memory_space
from ...dialect.warp.barriers import AwaitOp
from ...dialect.warp.matrices import load_rows, matrices, unit
from ...dialect.warp.memory import LdmatrixOp, LoadOp
from ...dialect.warp.swizzle import SwizzleAttr
from ...dialect.warp.tensor_copies import ExpectOp, TensorLoadOp
from ...dialect.warp.view import strides_of
from ...dialect.warp.warpgroup import panel_of
from ..linalg import extents
from ..tile.index_builder import Index, IndexBuilder
from ..tile.launches import LaunchedKernel
from .copy_loop import decline
from .ring import Ring
from .tensor_copies import TensorView, box_type
from .tensor_stores import MATRIX_BITS

OpT = TypeVar("OpT", bound=Operation)

Placed = Callable[[SSAValue, int], SSAValue]
"""What a value of the consumers is for the warpgroup of a number, as the producer computes it."""


def loads_behind(loop: scf.ForOp) -> list[list[LoadOp]]:
    """The loads from global memory that follow on a loop over K, by matrix."""
    found: dict[SSAValue, list[LoadOp]] = {}
    op: Operation | None = loop.next_op
    while op is not None:
        if isinstance(op, LoadOp) and memory_space(memory_of(op.memory)) != SHARED_SPACE:
            found.setdefault(op.memory, []).append(op)
        op = op.next_op
    return list(found.values())


def _check_map(load: LoadOp, view: TensorView, launch: LaunchedKernel) -> None:
    """Declines what no tensor map has: rows that lie side by side, or begin elsewhere than at multiples of 16 bytes."""
    kind, column = memory_of(view.memory), view.order[-1]
    known = strides_of(kind) or ()
    if len(known) > MOST_RANK or 0 in known or not known or known[column] != 1:
        decline(load, f"no tensor map has {kind}")
    if (
        extents.pitch(kind, column, launch.divisors[view.memory.index])
        * fragment_of(load.fragment).bits
        % (BYTE * UNIT)
    ):
        decline(load, f"rows of {kind} are no multiples of {UNIT} bytes")


class StagedLoads:
    """The loads of one kernel from one matrix, a panel each, through stages in which `tiles` lie.

    `index` is where all warpgroups come by before; `left` is how many stages may be taken.

    Raises:
        DeclinedError: if no tensor map has what they read, or the stages have no room for it.
    """

    def __init__(
        self, loads: Sequence[LoadOp], tiles: Sequence[SSAValue], launch: LaunchedKernel, index: IndexBuilder, left: int
    ) -> None:
        first, kind = loads[0], fragment_of(loads[0].fragment)
        self.loads, self.groups = list(loads), launch.schedule.consumers // WARPS
        self.view = TensorView.of(first, first.memory)
        if odd := next((load for load in loads if load.fragment.type != kind), None):
            decline(odd, f"it reads {odd.fragment.type}, others {kind}")
        if kind.bits != MATRIX_BITS:
            decline(first, f"`ldmatrix` reads elements of {MATRIX_BITS} bits, got {kind.element.name}")
        if matrices(kind, False, unit(load_rows(MATRIX_BITS, False, 1, "")[0], MATRIX_BITS)) is None:
            decline(first, f"`ldmatrix` does not read a fragment of layout [{kind.layout.data}]")
        _check_map(first, self.view, launch)
        (self.rows, columns), self.width = kind.shape, kind.shape[1] * kind.bits // BYTE
        self.columns = columns
        fitting = {tile: self._panels(tile) // self.groups for tile in tiles}
        self.tile = max(fitting, key=lambda tile: fitting[tile])
        self.each = fitting[self.tile]
        if not self.each:
            decline(first, f"no tile of the ring has panels of {kind.element_type}, {self.width} bytes wide")
        self.turns = -(-len(loads) // self.each)
        if self.turns > left:
            decline(first, f"it would take {self.turns} stages at a time, and {max(left, 0)} are left for that")
        panel = MemRefType(
            kind.element_type, [self.rows, columns], SwizzleAttr(self.width), IntegerAttr(SHARED_SPACE, i64)
        )
        self.kind = box_type(self.view, panel)
        self.map = launch.tensor_map(self.view.memory, self.view.order, self.kind)
        self.reads: list[LdmatrixOp] = []
        group = index.div(index.insert(SubgroupIdOp()).result, WARPS)
        self.places = [self._place(index, index.add(number * self.groups, group)) for number in range(self.each)]

    def _panels(self, tile: SSAValue) -> int:
        """How many panels of the matrix have room in one stage of a tile, which must be made of as wide ones."""
        kind = memory_of(tile)
        fragment = fragment_of(self.loads[0].fragment)
        if kind.element_type != fragment.element_type or panel_of(kind, "the tile") != self.width:
            return 0
        rows, columns = kind.get_shape()[-2:]
        return (rows // self.rows) * (columns // self.columns)

    def _place(self, index: IndexBuilder, number: Index) -> tuple[Index, Index]:
        """The row and the column in the tile at which the panel of a number begins."""
        rows, columns = memory_of(self.tile).get_shape()[-2:]
        down, across = rows // self.rows, columns // self.columns
        if across == 1:
            return index.mul(number, self.rows), 0
        return index.mul(index.rem(number, down), self.rows), index.mul(index.div(number, down), self.columns)

    def start(self, index: IndexBuilder, ring: Ring, state: list[Index], placed: Placed) -> list[Index]:
        """Starts the copies, stage by stage from that of `state` on; what follows on it."""
        for turn in range(self.turns):
            (stage, parity), panels = index.values(state), self._of(turn, self.loads)
            index.insert(AwaitOp(ring.empty, stage, parity))
            index.insert(ExpectOp(ring.full, stage, len(panels) * self.groups * self.kind.bytes))
            for number, load in enumerate(panels):
                for group in range(self.groups):
                    row, column = (placed(i, group) for i in load.indices)
                    where = self.view.coordinates(row, column, lambda value, group=group: placed(value, group))
                    to = index.values([stage, *self._place(index, number * self.groups + group)])
                    index.insert(TensorLoadOp(self.map, index.values(where), self.tile, to, ring.full, stage))
            state = list(ring.next(index, stage, parity))
        return state

    def replace(self, index: IndexBuilder) -> None:
        """Puts reads of panels in the place of the loads, whose stages `receive` says."""
        for number, load in enumerate(self.loads):
            at = index.values([0, *self.places[number % self.each]])
            read = LdmatrixOp(self.tile, at, fragment_of(load.fragment))
            Rewriter.replace_op(load, read)
            self.reads.append(read)

    def receive(self, index: IndexBuilder, ring: Ring, state: list[Index]) -> list[Index]:
        """Lets the reads wait for their stages, from that of `state` on, and say when they have read; what follows."""
        for turn in range(self.turns):
            (stage, parity), reads = index.values(state), self._of(turn, self.reads)
            for read in reads:
                read.operands[1] = stage
            index.at(Builder(InsertPoint.before(reads[0]))).insert(AwaitOp(ring.full, stage, parity))
            used = next(iter(reads[-1].fragment.uses), None)
            last = reads[-1] if used is None else used.operation
            ring.arrive(index.at(Builder(InsertPoint.after(last))), stage)
            state = list(ring.next(index, stage, parity))
        return state

    def _of(self, turn: int, panels: list[OpT]) -> list[OpT]:
        """The panels of a turn."""
        return panels[turn * self.each : (turn + 1) * self.each]
