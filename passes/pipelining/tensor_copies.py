"""Tiles, results and epilogue operands by tensor copies: maps, boxes, coordinates, stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import gcd
from typing import NamedTuple, TypeVar

from xdsl.dialects import scf
from xdsl.dialects.builtin import ArrayAttr, IntAttr
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.rewriter import Rewriter

from ...dialect.isa.tensor_map import MAX_RANK
from ...dialect.isa.wgmma import UNIT, WARPS, panel_columns
from ...dialect.layouts.layout import LANES, column, row
from ...dialect.mlir.affine import strides_of
from ...dialect.mlir.gpu import SubgroupIdOp
from ...dialect.warp.attributes import (
    BYTE,
    Memory,
    SwizzleAttr,
    element_row,
    fragment_of,
    is_row_by_row,
    is_shared,
    memory_of,
)
from ...dialect.warp.cta import ACQUIRE, FILLED, READ, RELEASE, WAIT
from ...dialect.warp.fragments import MatrixMove, SubfragmentOp, matrices, unit
from ...dialect.warp.memory import SPREAD, CopyOp, LoadOp, StoreOp
from ...dialect.warp.op_shapes import WHOLE_TILE, TilePart, tile_type
from ...dialect.warp.synchronisation import ASYNC_PROXY, BULK, CTA, CommitOp, FenceOp, ScopedBarrierOp, WaitOp
from ...dialect.warp.tensor_maps import (
    FAR,
    Im2colOp,
    TensorLoadOp,
    TensorMapType,
    TensorStoreOp,
    moved_as,
    moved_together,
)
from ...dialect.warp.views import MatrixOp
from ...dialect.warp.warpgroup import BOX_ALIGNMENT, box_of, panel_of
from ..allocate import with_shape
from ..linalg import operand
from ..patterns import Index, IndexBuilder
from ..schedule.needs import staging_buffers
from ..tile.tiling import LaunchedKernel
from .ring import Ring, decline
from .roles import Share

# Copies of tiles by tensor maps: which map, which box, at which coordinates; maps as arguments of the kernel.


class TensorView(NamedTuple):
    """A matrix in memory as a tensor map has it: the dimensions in `order`, slowest first, rows at place `row` of them
    and columns last; `others` are the indices of the rest, and `part` the first row, and how many there are, of a part
    of the rows."""

    memory: BlockArgument
    order: tuple[int, ...]
    row: int
    others: tuple[SSAValue, ...]
    part: tuple[SSAValue, ...] = ()

    @staticmethod
    def of(op: Operation, source: SSAValue) -> TensorView:
        """The matrix that an operation reads or writes. Raises DeclinedError if no tensor map has it."""
        if isinstance(source.owner, MatrixOp):
            (row, column), others = source.owner.dimensions, tuple(source.owner.indices)
            memory, part = source.owner.memory, tuple(source.owner.part)
        else:
            memory, row, column, others, part = source, 0, 1, (), ()
        if row is None or column is None or not isinstance(memory, BlockArgument):
            decline(op, "what it copies is no matrix of an argument of the kernel")
        rank = memory_of(memory).get_num_dims()
        if rank + len(part) > MAX_RANK:
            decline(op, f"a tensor map has {MAX_RANK} dimensions at most, a part of rows {len(part)} of them")
        order = tuple(d for d in range(rank) if d != column)
        return TensorView(memory, (*order, column), order.index(row), others, part)

    def coordinates(self, index: IndexBuilder, row: Index, column: Index) -> list[Index]:
        """Where a box begins."""
        start = list[Index](self.others)
        if not self.part:
            start.insert(self.row, row)
            return [*start, column]
        first, rows = self.part
        start.insert(self.row, index.add(index.sub(index.value(FAR), rows), row))
        return [FAR, index.add(first, rows), *start, column]

    def encoded(self, launch: LaunchedKernel, kind: TensorMapType) -> BlockArgument:
        """A further argument of a kernel: the map, of a type that has the boxes."""
        return launch.tensor_map(self.memory, self.order, kind, self.order[self.row] if self.part else None)

    def rows(self, kind: TensorMapType) -> int:
        """Rows of a box."""
        return kind.shape[self.row - len(self.order)]


def _images_of(tensor: TensorView, launch: LaunchedKernel) -> Im2colOp | None:
    """The images that an argument of a kernel is the matrix of; None for any other argument."""
    made = launch.operands[tensor.memory.index].owner
    return made if isinstance(made, Im2colOp) else None


def box_type(
    tensor: TensorView,
    tile: Memory,
    part: TilePart = WHOLE_TILE,
    images: Im2colOp | None = None,
    *,
    spread: bool = False,
) -> TensorMapType:
    """The type of a tensor map whose boxes are panels of a tile, or of a `part` of it. Rows are those of a
    matrix, or pixels of `images`. Elements of 4 bits are `spread` to bytes of the tile."""
    moved = moved_as(tile.element_type)
    element = element_row(moved)
    moved = memory_of(tensor.memory).element_type if spread else moved
    (width, line), lines = box_of(tile), tile.get_shape()[-2]
    rows = lines if part.axis else part.extent(lines)
    columns = line * 8 // (element.memory_bits if element else 8)
    swizzle = IntAttr(width if width > 16 else 0)
    if images is not None:
        rank = memory_of(images.memory).get_num_dims()
        return TensorMapType(ArrayAttr([IntAttr(rows), IntAttr(columns)]), moved, swizzle, IntAttr(rank))
    box = [1] * len(tensor.order)
    box[tensor.row], box[-1] = rows, columns
    box = [1] * len(tensor.part) + box
    return TensorMapType(ArrayAttr(map(IntAttr, box)), moved, swizzle, IntAttr(0))


def _columns(tile: Memory, kind: TensorMapType) -> int:
    """Columns of a tile in a box."""
    return kind.shape[-1] * moved_together(tile.element_type)


class TensorCopy(NamedTuple):
    """A copy of a tile by a tensor map, panel by panel; or of this CTA's share of a tile, which all CTAs of the cluster
    receive."""

    copy: CopyOp
    tensor: TensorView
    map: SSAValue
    kind: TensorMapType
    share: Share | None
    images: Im2colOp | None = None

    @staticmethod
    def of(copy: CopyOp, launch: LaunchedKernel, share: Share | None = None) -> TensorCopy:
        """The copy, with an additional kernel argument for its tensor map, which the host encodes before the launch.
        CTAs of a cluster share a tile by panels, or by rows if there are too few panels. Each CTA copies a tile by
        itself that also has too few rows, such as metadata. Raises DeclinedError if no tensor map describes the
        source."""
        tensor, tile = TensorView.of(copy, copy.source), memory_of(copy.destination)
        images = _images_of(tensor, launch)
        spread = copy.packed is not None and copy.packed.data == SPREAD
        if copy.packed is not None and not spread and memory_of(copy.source).element_count():
            decline(copy, f"no tensor copy makes {copy.packed.data} of {memory_of(copy.source)}: pack it")
        kind = box_type(tensor, tile, copy.place, images, spread=spread)
        share = share if copy.place.parts == 1 and not is_row_by_row(tile) else None
        if share is not None and share.mask is None:
            shape = list(tile.get_shape())
            shape[share.axis] //= share.count
            with_shape(copy.destination, shape)
            kind = box_type(tensor, memory_of(copy.destination), spread=spread)
        elif share is not None and tile.get_shape()[-1] // _columns(tile, kind) % share.count:
            each = BOX_ALIGNMENT // panel_of(tile, "the tile")  # rows that a box begins at multiples of
            share = None if tile.get_shape()[-2] % (each * share.count) else share
            kind = kind if share is None else box_type(tensor, tile, TilePart(0, share.count), images, spread=spread)
        return TensorCopy(copy, tensor, tensor.encoded(launch, kind), kind, share, images)

    @property
    def panels(self) -> int:
        """The number of panels of the tile, or of its part."""
        part = self.copy.place
        return memory_of(self.copy.destination).get_shape()[-1] // self.columns // (part.parts if part.axis else 1)

    @property
    def columns(self) -> int:
        """Columns of the tile in a box."""
        return _columns(memory_of(self.copy.destination), self.kind)

    @property
    def rows(self) -> int:
        """Rows of a box."""
        return self.kind.shape[0] if self.images else self.tensor.rows(self.kind)

    @property
    def bytes(self) -> int:
        """Bytes that arrive from all CTAs, including those outside of the memory."""
        lines, part = memory_of(self.copy.destination).get_shape()[-2], self.copy.place
        rows = lines if part.axis else part.extent(lines)
        return self.panels * self.kind.bytes * (rows // self.rows)

    def start(self, index: IndexBuilder, stage: SSAValue, ring: Ring) -> None:
        """Starts the copy of the tile to a stage of a ring."""
        row, column = list[Index](self.copy.indices)
        tile, panels = self.copy.destination, self.panels
        part, lines = self.copy.place, memory_of(tile).get_shape()[-2]
        first, second = (0, part.number * panels * self.columns) if part.axis else (part.first(lines), 0)
        down: Index = 0
        left: Index = 0
        if self.share is not None and self.share.mask is None:
            own = index.mul(self.share.part, memory_of(tile).get_shape()[self.share.axis])
            row, column = (index.add(row, own), column) if self.share.axis == 0 else (row, index.add(column, own))
        elif self.share is not None and memory_of(tile).get_shape()[-2] > self.rows:
            down = index.mul(self.share.part, self.rows)
        elif self.share is not None:
            panels //= self.share.count
            left = index.mul(self.share.part, panels * self.columns)
        for panel in range(panels):
            along = index.add(left, panel * self.columns)
            place = index.div(index.add(column, along), moved_together(memory_of(tile).element_type))
            where, offsets = self.tensor.coordinates(index, index.add(row, down), place), list[Index]()
            if self.images is not None:
                where, offsets = pixels(index, self.images, where)
            to = index.values([stage, index.add(down, first), index.add(along, second)])
            mask = None if self.share is None else self.share.mask
            copy = TensorLoadOp(self.map, index.values(where), index.values(offsets), tile, to, ring.value, stage, mask)
            index.insert(copy)


def pixels(index: IndexBuilder, images: Im2colOp, where: Sequence[Index]) -> tuple[list[Index], list[Index]]:
    """The coordinates and offsets of a box in images, from its place in the matrices of the taps: group, tap, row,
    column."""
    (*tap, rest, channel), (taps, sizes, steps, dilations, _) = where, images.numbers
    group: Index = tap.pop(0) if images.groups is not None else 0
    if images.joined is not None:
        tap, channel = index.unflattened(taps, index.div(channel, images.channels)), index.rem(channel, images.channels)
    channel = index.add(index.mul(group, images.channels), channel)
    corner = list[Index]()
    for size, step, by in reversed([*zip(sizes, steps, images.corner, strict=True)]):
        corner.insert(0, index.sub(index.mul(index.rem(rest, size), step), by))
        rest = index.div(rest, size)
    tap = tap or [0] * len(sizes)
    # The first offset is that of the tap that lies first.
    offsets = [
        index.sub(back, index.mul(place, -by)) if back else index.mul(place, by)
        for place, by, back in zip(tap, dilations, images.back, strict=True)
    ]
    return [rest, *corner, channel], offsets


# Stores of a warpgroup's results by tensor copies: staged in shared memory by `stmatrix`, a panel at a time.
#
# Each warpgroup has room of its own, and waits only for its own copies to have read it. What is stored while the next
# tile is copied and multiplied costs the tensor cores little more than the staging.

MATRIX_BITS = 16
"""Bits of elements that `stmatrix` moves whole; each lane stores wider ones that it holds."""


class StagedStores:
    """The stores of one kernel to one matrix, made through a tensor map.

    All warpgroups execute the code at `index` before their stores. Raises DeclinedError if no tensor map describes the
    stored memory.
    """

    def __init__(self, stores: Sequence[StoreOp], launch: LaunchedKernel, index: IndexBuilder) -> None:
        self.stores, self.index, fragment = stores, index, fragment_of(stores[0].fragment)
        self.view = TensorView.of(stores[0], stores[0].memory)
        strides = strides_of(memory_of(self.view.memory)) or ()
        if any((stride or 0) * fragment.bits % (UNIT * BYTE) for stride in strides[: self.view.order[-1]]):
            decline(stores[0], f"rows of its matrix are no multiples of {UNIT} bytes; neighbouring lanes store them")
        self.images = _images_of(self.view, launch)
        self.widths = {op: fragment_of(op.fragment).shape[1] for op in stores}
        rows_of = groupby(stores, lambda op: (op.parent, index.folded(op.indices[0])))
        across = gcd(*(sum(map(self.widths.__getitem__, side_by_side)) for _, side_by_side in rows_of))
        self.panel = panel_columns(across, fragment.bits)
        if not self.panel:
            decline(stores[0], f"its fragments of {across} columns fill no panel")
        self.columns = max(self.panel, fragment.layout.data.columns)
        if odd := next((op for op, n in self.widths.items() if n % self.columns and self.columns % n), None):
            decline(odd, f"it writes no whole panels of {self.columns} columns")
        self.rows, groups = fragment.shape[0], launch.schedule.consumer_warps // WARPS
        count = staging_buffers(launch.schedule)
        shape = [groups * count, self.rows, self.columns]
        swizzle = SwizzleAttr(self.panel * fragment.bits // 8)
        tile = tile_type(fragment.element_type, shape, swizzle)
        self.map = self.view.encoded(launch, box_type(self.view, tile, images=self.images))
        self.scratch = index.alloc(tile)
        group = index.div(index.insert(SubgroupIdOp()).result, WARPS)
        first, self.barrier = index.mul(group, count), index.value(index.add(group, 1))
        self.buffers = [index.add(first, number) for number in range(count)]

    def replace(self) -> None:
        """Puts staging and tensor copies in the place of the stores: of each panel, and of those that fill one."""
        count, filled, total = len(self.buffers), 0, sum(self.widths.values()) // self.columns
        corner: tuple[Index, Index, int] = 0, 0, 0
        for store in self.stores:
            index, columns = self.index.before(store), self.widths[store]
            row, column = map(index.folded, store.indices)
            width = min(columns, self.columns)
            for left in range(0, columns, width):
                number, at = divmod(filled, self.columns)
                buffer, part = self.buffers[number % count], store.fragment
                if columns > width:
                    part = index.insert(SubfragmentOp([part], (0, left), (self.rows, width))).fragment
                if not at:
                    corner = row, column, left
                    # Of an odd number of panels the last one has the buffer that the next tile begins with.
                    pending = 0 if not number and total % count else count - 1
                    index.insert(WaitOp(BULK, pending, read=True, each_warpgroup=True))
                    index.insert(ScopedBarrierOp(CTA, self.barrier, WARPS * LANES))
                index.insert(self._moved(part, index.values([buffer, 0, at])))
                filled += width
                if at + width == self.columns:
                    self._copy(index, corner, buffer)
            Rewriter.erase_op(store)

    def _copy(self, index: IndexBuilder, corner: tuple[Index, Index, int], buffer: Index) -> None:
        """Starts the copy of what is staged, of one panel or of several side by side. Its place in D is a row, and a
        column so many behind another."""
        row, column, left = corner
        index.insert(FenceOp(ASYNC_PROXY))
        index.insert(ScopedBarrierOp(CTA, self.barrier, WARPS * LANES))
        for along in range(0, self.columns, self.panel):
            where = self.view.coordinates(index, row, index.add(column, left + along))
            where = where if self.images is None else pixels(index, self.images, where)[0]
            place = index.values([buffer, 0, along])
            index.insert(TensorStoreOp(self.scratch, place, self.map, index.values(where), each_warpgroup=True))
        index.insert(CommitOp(BULK, each_warpgroup=True))

    def _moved(self, part: SSAValue, at: Sequence[SSAValue]) -> StoreOp:
        """The store of a panel to shared memory: `stmatrix`, transposed or not, or a store of each lane's elements."""
        kind = fragment_of(part)
        first, line = kind.layout.data.element[0], kind.layout.data.lane[2]
        trans = (first, line) == (row(0), column(0))
        if kind.bits == MATRIX_BITS and (trans or (first == column(0) and line.axis == "r")):
            return StoreOp(part, self.scratch, at, matrices="x4.trans" if trans else "x4")
        return StoreOp(part, self.scratch, at)


# Matrices of an epilogue by tensor copies: through stages of the ring, behind the K tiles of a tile.
#
# A lane that loads what lies beside its sums loads 4 bytes at a time, eight half sectors for each instruction of a
# warp. So the producer copies the matrix instead, panel by panel, to stages that the last K tiles have left, while the
# last products run. Consumers wait for a stage as for one with a K tile, and read panels by `ldmatrix` to lie as the
# sums do. It takes no shared memory of its own::
#
#     producer                                    consumers
#       for each tile of this CTA:                  for each tile of this CTA:
#         for each K tile: ...                        for each K tile: ...
#         for each turn:                              for each turn:
#           wait: stage is empty                        wait: stage is full
#           start copies of panels, of all              read panels, of this warpgroup; that stage is
#           warpgroups, which arrive there              empty; compute and store what they lie beside

OpT = TypeVar("OpT", bound=Operation)


def loads_behind(loop: scf.ForOp) -> list[list[LoadOp]]:
    """The loads from global memory that follow on a loop over K, by matrix."""
    loads: dict[SSAValue, list[LoadOp]] = {}
    op: Operation | None = loop.next_op
    while op is not None:
        if isinstance(op, LoadOp) and op.along is None and not is_shared(memory_of(op.memory)):
            loads.setdefault(op.memory, []).append(op)
        op = op.next_op
    return list(loads.values())


def _check_map(load: LoadOp, view: TensorView, launch: LaunchedKernel) -> None:
    """Declines memory that a tensor map cannot describe: rows that are not contiguous, or whose pitch is no multiple of
    16 bytes."""
    kind, column = memory_of(view.memory), view.order[-1]
    strides = strides_of(kind) or ()
    if len(strides) > MAX_RANK or 0 in strides or not strides or strides[column] != 1:
        decline(load, f"no tensor map has {kind}")
    if (
        operand.pitch(kind, column, launch.divisors[view.memory.index])
        * fragment_of(load.fragment).bits
        % (BYTE * UNIT)
    ):
        decline(load, f"rows of {kind} are no multiples of {UNIT} bytes")


class StagedLoads:
    """The loads of one kernel from one matrix, panel by panel, through the stages that hold `tiles`.

    All warpgroups execute the code at `index` before their loads. At most `left` stages may be used. Raises
    DeclinedError if no tensor map describes the loaded memory, or the stages are too small.
    """

    def __init__(
        self, loads: Sequence[LoadOp], tiles: Sequence[SSAValue], launch: LaunchedKernel, index: IndexBuilder, left: int
    ) -> None:
        first, kind = loads[0], fragment_of(loads[0].fragment)
        self.loads, self.groups = list(loads), launch.schedule.consumer_warps // WARPS
        self.view = TensorView.of(first, first.memory)
        if odd := next((load for load in loads if load.fragment.type != kind), None):
            decline(odd, f"it reads {odd.fragment.type}, others {kind}")
        if kind.bits != MATRIX_BITS:
            decline(first, f"`ldmatrix` reads elements of {MATRIX_BITS} bits, got {kind.element.name}")
        if matrices(kind, False, unit(MatrixMove.of("x1").loads(MATRIX_BITS)[0], MATRIX_BITS)) is None:
            decline(first, f"`ldmatrix` does not read a fragment of layout [{kind.layout.data}]")
        _check_map(first, self.view, launch)
        (self.rows, self.columns), self.width = kind.shape, kind.shape[1] * kind.bits // BYTE
        fitting = {tile: self._panels(tile) // self.groups for tile in tiles}
        self.tile = max(fitting, key=lambda tile: fitting[tile])
        self.each = fitting[self.tile]
        if not self.each:
            decline(first, f"no tile of the ring has panels of {kind.element_type}, {self.width} bytes wide")
        self.turns = -(-len(loads) // self.each)
        if self.turns > left:
            decline(first, f"it would take {self.turns} stages at a time, and {max(left, 0)} are left for that")
        self.kind = box_type(self.view, tile_type(kind.element_type, kind.shape, SwizzleAttr(self.width)))
        self.map = self.view.encoded(launch, self.kind)
        self.reads: list[LoadOp] = []
        group = index.div(index.insert(SubgroupIdOp()).result, WARPS)
        self.places = [self._place(index, index.add(number * self.groups, group)) for number in range(self.each)]

    def _panels(self, tile: SSAValue) -> int:
        """The number of panels of the matrix that fit one stage of a tile; 0 if the tile has other panels."""
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

    def start(self, index: IndexBuilder, ring: Ring) -> None:
        """Starts copies to the next stages, before the last of the loads that read each; puts reads of panels, whose
        stages `receive` says, in the place of the loads."""
        for turn in range(self.turns):
            panels = self._of(turn, self.loads)
            before = index.before(panels[-1])
            stage = ring.arrive(before, ACQUIRE, len(panels) * self.groups * self.kind.bytes)
            for number, load in enumerate(panels):
                for group in range(self.groups):
                    row, column = (_of_group(before, place, group) for place in load.indices)
                    where = before.values(self.view.coordinates(before, row, column))
                    to = before.values([stage, *self._place(before, number * self.groups + group)])
                    before.insert(TensorLoadOp(self.map, where, (), self.tile, to, ring.value, stage))
            ring.step(before, FILLED)
        for number, load in enumerate(self.loads):
            at = index.values([0, *self.places[number % self.each]])
            read = LoadOp(self.tile, at, fragment_of(load.fragment), matrices="x4")
            Rewriter.replace_op(load, read)
            self.reads.append(read)

    def receive(self, index: IndexBuilder, ring: Ring, *, alone: bool) -> None:
        """Makes the reads wait for their stages, and release them. Unless the matrix is `alone`, reads of another stand
        between those of a stage, and wait for the next one."""
        for turn in range(self.turns):
            reads = self._of(turn, self.reads)
            stage = ring.arrive(index.before(reads[0]), WAIT)
            for read in reads:
                read.operands[1] = stage
            ring.step(index.after(reads[-1 if alone else 0]), READ)
            used = next(iter(reads[-1].fragment.uses), None)
            last = reads[-1] if used is None else used.operation
            ring.step(index.after(last), RELEASE, stage)

    def _of(self, turn: int, panels: list[OpT]) -> list[OpT]:
        """The panels of a turn."""
        return panels[turn * self.each : (turn + 1) * self.each]


def _of_group(index: IndexBuilder, value: SSAValue, group: int) -> SSAValue:
    """What an index of a warp is for the first of the warpgroup of a number."""
    mapped: dict[SSAValue, SSAValue] = {warp: index.value(group * WARPS) for warp in _subgroups(value)}
    return index.again(value, mapped, lambda op: any(_subgroups(op)))


def _subgroups(made: SSAValue | Operation) -> Iterator[SSAValue]:
    """The `gpu.subgroup_id` values that a value, or an operation, depends on."""
    op = made if isinstance(made, Operation) else made.owner
    if isinstance(op, SubgroupIdOp):
        yield op.result
    elif isinstance(op, Operation):
        for operand in op.operands:
            yield from _subgroups(operand)
