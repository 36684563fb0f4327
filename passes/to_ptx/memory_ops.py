"""Operations on memory: allocations, views, copies, registers, packing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import gcd, prod
from typing import TypeAlias

from xdsl.dialects import memref
from xdsl.dialects.builtin import i8
from xdsl.ir import SSAValue

from ...dialect.isa.form import SCALES_OF_WORD
from ...dialect.layouts.layout import LANES, Bit, Layout
from ...dialect.layouts.layout import column as column_bit
from ...dialect.warp.attributes import (
    BYTE,
    TENSOR_SPACE,
    FragmentType,
    SwizzleAttr,
    element_row,
    fragment_of,
    is_row_by_row,
    is_shared,
    memory_of,
    memory_space,
)
from ...dialect.warp.fragments import AXES, register_bytes, together
from ...dialect.warp.memory import CopyOp, LoadOp, StoreOp
from ...dialect.warp.op_shapes import bounds, in_memory
from ...dialect.warp.synchronisation import BULK, LAUNCHES, WGMMA, CommitOp, WaitOp
from ...dialect.warp.views import Dimensions, MatrixOp, PagedOp
from ..allocate import offset_of
from ..diagnostics import fail
from .addressing import CHUNK, Addressing, GlobalMatrix, GlobalPlace, Position, SharedPlace, SharedTile, matrix
from .emitter import At, IndexValue, in_cta, word
from .fragments import HALF, REGISTER_BITS, Fragment, per_register, put_together
from .kernel import KernelLowering, check_multiple, cluster_of, lowers
from .memory import COMMIT, UNPADDED, ZerosAround, memory_name, side_by_side
from .products import check_warpgroups
from .scalars import divisor_of

PACKED_BITS = 4
"""Bits of elements of which two share a byte, that fragments are loaded of."""


@lowers(memref.AllocOp)
def _alloc(lowering: KernelLowering, op: memref.AllocOp) -> None:
    kind = op.memref.type
    if memory_space(kind) == TENSOR_SPACE:
        from .tensor_memory import allocate

        return allocate(lowering, op)
    element = element_row(kind.element_type)
    shape = kind.get_shape()
    if not is_shared(kind) or element is None or len(shape) not in (2, 3) or min(shape) <= 0:
        fail(op, f"expected a shared-memory tile of 2 dimensions, or 3 with stages, got {kind}")
    *stages, rows, columns = shape
    size, packed = max(1, element.memory_bits // 8), max(1, 8 // element.memory_bits)
    layout = kind.layout if isinstance(kind.layout, SwizzleAttr) else SwizzleAttr(CHUNK)
    line = columns * element.memory_bits
    if line % (8 * layout.bytes):
        fail(op, f"expected lines of whole {layout.bytes}-byte panels, got {line // 8} bytes in {kind}")
    tile = SharedTile(
        offset_of(op), stages[0] if stages else 1, rows, columns // packed, size, layout.bytes, layout.skip, packed
    )
    lowering.values[op.memref] = tile.in_rows(rows, columns) if is_row_by_row(kind) else tile


@lowers(LoadOp)
def _load(lowering: KernelLowering, op: LoadOp) -> None:
    kind = fragment_of(op.fragment)
    if op.order:
        return _load_registers(lowering, op)
    if memory_space(memory_of(op.memory)) == TENSOR_SPACE:
        from .tensor_memory import load

        return load(lowering, op, kind)
    if is_shared(memory_of(op.memory)):
        return _load_shared(lowering, op, kind)
    matrix = lowering.matrix(op, op.memory, bits=kind.bits == PACKED_BITS, steps=True)
    row, column = (0, *lowering.indices(op.indices))[-2:]
    if op.along is not None and op.along.data == AXES[0]:  # whose columns are all the same
        matrix = replace(matrix, rows=matrix.columns, columns=1, pitch=matrix.column_bytes, step=0)
        row, column = column, row
    if matrix.packed > 1:
        kind, column = _as_bytes(op, kind), lowering.whole_bytes(op, column, matrix.packed)
    into = lowering.fresh(op.fragment.type) if matrix.repeats else lowering.result(op.fragment)
    registers = lowering.globals.load(kind, GlobalPlace(matrix, row, column, bounds(op.in_bounds)), into)
    if matrix.repeats:
        from .products import own

        registers = own(lowering, op.fragment, registers)
    lowering.values[op.fragment] = registers


def _as_bytes(op: LoadOp, kind: FragmentType) -> FragmentType:
    """A fragment of bytes in the same registers as one of elements of 4 bits, two neighbours of a row in each."""
    layout = kind.layout.data
    if layout.element[:1] != (column_bit(0),):
        fail(op, f"{op.name} of {kind.element.name} takes two neighbours of a row side by side, got [{layout}]")

    def halved(bits: tuple[Bit, ...]) -> tuple[Bit, ...]:
        return tuple(bit if bit.axis == "r" else column_bit(bit.number - 1) for bit in bits)

    rows, columns = kind.shape
    bytes_ = Layout(halved(layout.lane), halved(layout.element[1:]), halved(layout.warp))
    return FragmentType.of(kind.role.data, rows, columns // 2, i8, bytes_)


@lowers(StoreOp)
def _store(lowering: KernelLowering, op: StoreOp) -> None:
    if op.order:
        _store_registers(lowering, op)
        return
    if memory_space(memory_of(op.memory)) == TENSOR_SPACE:
        from .tensor_memory import store

        store(lowering, op, fragment_of(op.fragment))
        return
    if isinstance(lowering.values.get(op.memory), SharedTile):
        _store_shared(lowering, op)
        return
    kind, matrix = fragment_of(op.fragment), lowering.matrix(op, op.memory, steps=True)
    row, column = lowering.indices(op.indices)
    shown = f"{kind.role.data} {kind.shape[0]}x{kind.shape[1]}"
    lowering.emitter.comment(f"{op.name}: fragment {shown} to {memory_name(op.memory)}")
    place = GlobalPlace(matrix, row, column, bounds(op.in_bounds), op.within is not None)
    lowering.globals.store(kind, place, lowering.fragment(op.fragment))


STAGED = 3
"""Indices of a tile that has stages: the stage, the row, the column."""


def _load_shared(lowering: KernelLowering, op: LoadOp, kind: FragmentType) -> None:
    """Reads a fragment from a tile: matrices by `ldmatrix`, or each lane its own elements."""
    if op.along is not None:
        from .epilogue import load_line

        return load_line(lowering, op, op.along.data[0])
    place = lowering.shared_place(op, op.memory, op.indices)
    into, swapped = lowering.result(op.fragment), op.swapped is not None
    if op.move is not None:
        _check_chunks(op, "ldmatrix reads", place)
    if kind.role.data == "scale":
        check_multiple(op, "expected a column", place.column, SCALES_OF_WORD, ", the scales of a word")
    lowering.emitter.comment(f"{op.name}: {_moved(kind, op.indices, place.stage, 'from')}")
    if op.move is None:
        SharedFragments(lowering.addressing).load(kind, swapped, place, into)
    else:
        lowering.matrices.move(op.move.loads(kind.bits), kind, swapped, place, into)
        if op.move.packed and kind.element.name == "e2m1":
            # The elements arrive in the low bits of their bytes; products want them in the middle.
            for register in into:
                lowering.emitter.emit("shl.b32", register, register, 2)
    lowering.values[op.fragment] = into


def _store_shared(lowering: KernelLowering, op: StoreOp) -> None:
    """Writes a fragment to a tile: matrices by `stmatrix`, or each lane its own elements."""
    place, kind = lowering.shared_place(op, op.memory, op.indices), fragment_of(op.fragment)
    if op.move is not None:
        _check_chunks(op, "stmatrix writes", place)
    elif place.tile.packed > 1:
        fail(op, f"warp.store writes whole bytes, got elements of {kind.element.name}")
    lowering.emitter.comment(f"{op.name}: {_moved(kind, op.indices, place.stage, 'to')}")
    registers = lowering.fragment(op.fragment)
    if op.barriers is not None and op.number is not None:
        from .synchronisation import barrier_address  # with what most kernels do not need

        counted = barrier_address(lowering, op, op.barriers, op.number)
        ctas = prod(cluster_of(lowering.kernel, lowering.target))
        SharedFragments(lowering.addressing).send(kind, place, registers, counted, ctas)
    elif op.move is None:
        rank = None if op.cta is None else lowering.scalar(op.cta)
        SharedFragments(lowering.addressing).store(kind, place, registers, rank)
    else:
        lowering.matrices.move(op.move.stores(kind.bits), kind, op.swapped is not None, place, registers)


def _check_chunks(op: LoadOp | StoreOp, moves: str, place: SharedPlace) -> None:
    """Refuses matrices that do not begin where a row of one may."""
    if isinstance(place.column, int) and place.column * place.tile.element_bytes % CHUNK:
        fail(op, f"{moves} rows of {CHUNK} bytes from multiples of {CHUNK} bytes, got column {place.column}")


def stage_text(stage: IndexValue | None, moving: str) -> str:
    """A stage in a comment. `stage` is None for memory without stages; `moving` is the text for a loop counter."""
    if stage is None:
        return "shared memory"
    return f"stage {stage}" if isinstance(stage, int) else moving


def _moved(kind: FragmentType, indices: Sequence[SSAValue], stage: IndexValue, direction: str) -> str:
    """A comment for a fragment that is loaded or stored."""
    place = stage_text(stage if len(indices) == STAGED else None, "the stage to multiply")
    return f"fragment {kind.role.data} {kind.shape[0]}x{kind.shape[1]} {direction} {place}"


@lowers(CopyOp)
def _copy(lowering: KernelLowering, op: CopyOp) -> None:
    if memory_space(memory_of(op.destination)) == TENSOR_SPACE:
        from .tensor_memory import copy

        return copy(lowering, op)
    if op.blocks is not None:
        fail(op, "blocks are copied from memory that has them: run warp-pack first")
    source = lowering.matrix(op, op.source, bits=True, named=True)
    row, column = lowering.indices(op.indices)
    if op.until is not None:
        source = replace(source, rows=lowering.scalar(op.until))
    tile, stages = lowering.tile(op, op.destination), lowering.indices(op.stage)
    place = stage_text(stages[0] if stages else None, "the stage to fill")
    lowering.emitter.comment(
        f"{op.name}: a {tile.rows}x{tile.columns * tile.packed} tile of {memory_name(op.source)} to {place}"
    )
    start = GlobalPlace(source, row, lowering.whole_bytes(op, column, source.packed), bounds(op.in_bounds))
    spread, stage = op.packed is not None, stages[0] if stages else 0
    padded = UNPADDED if op.padded is None else _padding(lowering, op, *op.padded.get_values())
    lowering.copies.copy(start, tile, stage, asynchronous=op.is_async is not None, spread=spread, part=op.place,
                         padded=padded)  # fmt: skip


def _padding(lowering: KernelLowering, op: CopyOp, first: int, *ends: int) -> ZerosAround:
    """The zeros around the images that a copy reads a window of."""
    each = zip(map(lowering.scalar, op.at), ends[::4], ends[1::4], ends[2::4], ends[3::4], strict=True)
    return ZerosAround(first, list(each))


# Groups of asynchronous operations: `warp.commit`, `warp.wait`.


def _group(lowering: KernelLowering, op: CommitOp | WaitOp) -> None:
    """Closes a group, or waits for groups; nothing where copies are not asynchronous."""
    emitter, what, pending = lowering.emitter, "commit_group", list[int]()
    if isinstance(op, WaitOp):
        what, pending = "wait_group" if op.read is None else "wait_group.read", [op.pending.value.data]
    if op.group.data == BULK:
        from .synchronisation import one_thread

        emitter.emit(f"cp.async.bulk.{what}", *pending, guard=one_thread(lowering, op, op.by, op.each_warpgroup))
    elif op.group.data == WGMMA:
        check_warpgroups(lowering, op)
        emitter.emit(f"wgmma.{what}.sync.aligned", *pending)
    elif op.group.data == LAUNCHES:
        emitter.emit(f"griddepcontrol.{'wait' if pending else 'launch_dependents'}")
    elif emitter.has(COMMIT):
        emitter.emit(f"cp.async.{what}", *pending)


lowers(CommitOp)(_group)
lowers(WaitOp)(_group)


@lowers(PagedOp)
def _paged(lowering: KernelLowering, op: PagedOp) -> None:
    """A matrix whose rows are those of memory whose numbers a table has."""
    if op.slot is not None or memory_of(op.result).get_num_dims() != 2:
        fail(op, f"expected rows of one matrix, got {op.result.type}; attention reads pages of several rows")
    lowering.values[op.result] = _named_rows(lowering, op, (op.loops[0], op.loops[1]))


def _named_rows(
    lowering: KernelLowering, view: PagedOp, dimensions: Dimensions, part: Sequence[IndexValue] = ()
) -> GlobalMatrix:
    """The rows of memory whose numbers a table has, or a part of them."""
    memory, table = lowering.memories[view.memory], lowering.memories[view.table]
    first, rows = part or (0, table.shape[-1])
    of_rows = matrix(lowering.kernel, lowering.scalars, memory, dimensions, ())
    return replace(of_rows, rows=rows, table=(table.base, first, table.shape[-1], table.element_bits // BYTE))


@lowers(MatrixOp)
def _view(lowering: KernelLowering, op: MatrixOp) -> None:
    if isinstance(op.memory.owner, PagedOp):
        lowering.values[op.matrix] = _named_rows(lowering, op.memory.owner, op.dimensions, lowering.indices(op.part))
        return
    if op.memory not in lowering.memories:
        fail(op, f"expected memory that is an argument of the kernel, got {op.memory.type}")
    if op.dimensions_kept:
        if op.matrix.uses:
            fail(op, "several matrices have no registers; take one of them with indices for all dimensions kept")
        return
    at, part, memory = lowering.indices(op.indices), lowering.indices(op.part), lowering.memories[op.memory]
    if op.pairs is not None:
        strides = tuple(stride // 2 for stride in memory.strides if isinstance(stride, int))
        memory = replace(memory, strides=strides, element_bits=2 * memory.element_bits)
    elif memory_of(op.matrix).element_type != memory_of(op.memory).element_type:  # words of integers of 64 bits
        strides = tuple(lowering.scalars.multiply(stride, 2) for stride in memory.strides)
        memory = replace(memory, strides=strides, element_bits=memory.element_bits // 2)
        if op.high is not None:
            base = lowering.scalars.offset_far(memory.base, 1, 1, memory.element_bits)
            memory = replace(memory, base=base, alignment=WORD_BYTES)
    lowering.values[op.matrix] = matrix(lowering.kernel, lowering.scalars, memory, op.dimensions, at, part)


@lowers(memref.DimOp)
def _dim(lowering: KernelLowering, op: memref.DimOp) -> None:
    number = lowering.scalar(op.index)
    if op.source not in lowering.memories or not isinstance(number, int):
        fail(op, f"expected a known dimension of an argument of the kernel, got {op.source.type}")
    lowering.values[op.result] = lowering.memories[op.source].shape[number]


# Fragments from and to shared memory, each lane its own elements: `warp.load` and `warp.store` of a tile.
#
# `ldmatrix` moves rows of 16 bytes among lanes in pieces of 16 bits, and so cannot transpose wider elements. For those
# each lane reads neighbours of a row of memory at once, and the fragment's layout sends them to different registers.


class SharedFragments:
    """Emits loads and stores of the widest vectors that a fragment's layout has."""

    def __init__(self, addressing: Addressing) -> None:
        self.emitter, self.addressing = addressing.emitter, addressing

    def load(self, type: FragmentType, swapped: bool, place: SharedPlace, into: Fragment) -> None:
        """Loads the fragment that begins at a place of a tile."""
        together = side_by_side(in_memory(type, swapped))
        if together >= per_register(type):
            for registers, at in self._accesses(type, swapped, place, into):
                self.emitter.load("shared", registers, at)
            return
        bits = min(HALF, together * type.bits)
        pieces = self.emitter.registers("b16" if bits == HALF else "b32", REGISTER_BITS // bits * len(into))
        for registers, at in self._accesses(type, swapped, place, pieces, bits // type.bits):
            self.emitter.load("shared", registers, at, f"b{bits}")
        put_together(self.emitter, pieces, into)

    def store(
        self, type: FragmentType, place: SharedPlace, source: Fragment, rank: IndexValue | None = None,
    ) -> None:  # fmt: skip
        """Stores a fragment from a place of a tile on; with `rank`, the tile is that of this CTA of the cluster."""
        space, kind, wide = "shared" if rank is None else "shared::cluster", "", 0
        if type.bits == HALF and place.tile.swizzle % (REGISTER_BITS // 8):  # rows that begin within words
            source, kind, wide = [half for pair in source for half in self.emitter.halves(pair)], "b16", 1
        for registers, at in self._accesses(type, False, place, source, wide):
            self.emitter.store(space, registers, in_cta(self.emitter, at, rank), kind)

    def send(self, type: FragmentType, place: SharedPlace, source: Fragment, counted: At, ctas: int) -> None:
        """Sends an element to its place in so many CTAs of the cluster, a lane to each, where a barrier counts it."""
        s, send = self.addressing.scalars, f"st.async.shared::cluster.mbarrier::complete_tx::bytes.b{type.bits}"
        rank, is_sent = s.remainder(self.addressing.lane, ctas), s.compare("lt", self.addressing.lane, ctas)
        for registers, at in self._accesses(type, False, place, source):
            there, full = (in_cta(self.emitter, each, rank) for each in (at, counted))
            self.emitter.emit(send, there, *registers, full, guard=is_sent)

    def _accesses(
        self, type: FragmentType, swapped: bool, place: SharedPlace, registers_: Fragment, wide: int = 0
    ) -> Iterator[tuple[Fragment, At]]:
        """Registers contiguous in memory, and the address of the first; `wide` elements in each if not full."""
        tile, stage, row_start, column_start = place
        layout, per = in_memory(type, swapped), wide or per_register(type)
        down, across = type.tiles[::-1] if swapped else type.tiles
        lane_row, lane_column = self.addressing.lane_position(layout)
        lane_column = self.addressing.scalars.quotient(lane_column, tile.packed)
        aligned = gcd(divisor_of(column_start), tile.swizzle // tile.element_bytes) * tile.packed
        groups = _groups(type, layout, per, aligned)
        count = layout.elements // per
        for number in range(down * across):
            # Registers follow the fragment's own order of tiles, which the transpose in memory has by columns.
            i, j = divmod(number, across) if not swapped else divmod(number, down)[::-1]
            for group in groups:
                row, along = layout.element_offset(group[0] * per)
                where = (
                    Position.of(lane_row, row_start, i * layout.rows + row),
                    Position.of(lane_column, column_start, (j * layout.columns + along) // tile.packed),
                )
                registers = [registers_[number * count + register] for register in group]
                yield registers, self.addressing.shared(tile, stage, *where)


def _groups(type: FragmentType, layout: Layout, per: int, aligned: int) -> list[list[int]]:
    """The registers of a base tile that one access fills, in the order of memory, for each access. A register has `per`
    elements. Registers whose numbers differ in the bits of the lowest column bits are adjacent in memory."""
    packed, register_bytes = per.bit_length() - 1, per * type.bits // 8
    places: list[int] = []
    while (bit := column_bit(packed + len(places))) in layout.element and register_bytes << len(places) < CHUNK:
        if aligned % (per << len(places) + 1):
            break
        places.append(layout.element.index(bit) - packed)
    steps = [1 << place for place in places]
    sums = [sum(step for i, step in enumerate(steps) if n >> i & 1) for n in range(1 << len(steps))]
    first = [r for r in range(layout.elements // per) if not any(r & step for step in steps)]
    return [[r + more for more in sums] for r in first]


# Fragments in memory as registers hold them: `registers` of `warp.load` and `warp.store`.

WORD_BYTES = 4

FIRST_TWO = word(0x44444444)
"""A word of metadata that names elements 0 and 1 of each chunk (PTX ISA 9.7.14.6.1)."""


RegisterAccesses: TypeAlias = tuple[str, int, Iterable[At]]
"""The accesses of one lane: the space, how many registers each moves, and where."""


def _by_lines(lowering: KernelLowering, op: LoadOp | StoreOp, kind: FragmentType) -> RegisterAccesses:
    """Vectors in the lines of a tile with a swizzle."""
    s, addressing, layout, each = lowering.scalars, lowering.addressing, kind.layout.data, together(kind)
    tile, stage, row, _ = lowering.shared_place(op, op.memory, op.indices)
    holder, of_line = addressing.holder(layout), tile.swizzle // CHUNK
    line, column = s.quotient(holder, of_line), Position.of(s.multiply(s.mask(holder, of_line - 1), CHUNK), 0, 0)
    at = (Position.of(line, row, i * layout.threads // of_line) for i in range(kind.registers // each))
    return "shared", each, (addressing.shared(tile, stage, down, column) for down in at)


def _by_vectors(lowering: KernelLowering, op: LoadOp | StoreOp, kind: FragmentType) -> RegisterAccesses:
    if isinstance(memory_of(op.memory).layout, SwizzleAttr):
        return _by_lines(lowering, op, kind)
    s, (row, column), each = lowering.scalars, lowering.indices(op.indices), together(kind)
    lane_bytes, space = each * register_bytes(kind), "global"
    if is_shared(memory_of(op.memory)):
        tile, space = lowering.tile(op, op.memory), "shared"
        start = s.multiply(row, tile.stage_bytes // tile.rows), s.multiply(column, tile.element_bytes)
        first = lowering.addressing.shared_bytes_at(tile.offset, s.sum(*start, s.multiply(lowering.lane, lane_bytes)))
    else:
        matrix = lowering.matrix(op, op.memory)
        terms = [(row, matrix.row_bytes), (column, matrix.element_bytes), (lowering.lane, lane_bytes)]
        first = s.address(matrix.base, terms)
    return space, each, [first.behind(i * LANES * lane_bytes) for i in range(kind.registers // each)]


def _by_tiles(lowering: KernelLowering, op: LoadOp | StoreOp, kind: FragmentType) -> RegisterAccesses:
    tile, stage, row, column = lowering.shared_place(op, op.memory, op.indices)
    layout = kind.layout.data
    warps, holder = layout.threads // LANES, lowering.addressing.holder(layout)
    warp = lowering.scalars.quotient(holder, LANES) if warps > 1 else 0
    along = Position.of(lowering.lane, column, 0)
    # Addresses are computed one by one, where they are used.
    downs = (Position.of(warp, row, i * warps) for i in range(kind.registers))
    return "shared", 1, (lowering.addressing.shared(tile, stage, down, along) for down in downs)


def _register_accesses(
    lowering: KernelLowering, op: LoadOp | StoreOp, registers: Fragment
) -> Iterator[tuple[Fragment, str, At]]:
    """The registers of each access, with the space and the address."""
    kind = fragment_of(op.fragment)
    memory = "shared memory" if is_shared(memory_of(op.memory)) else memory_name(op.memory)
    shown = f"{kind.role.data} {kind.shape[0]}x{kind.shape[1]}"
    moved = "to" if isinstance(op, StoreOp) else "from"
    lowering.emitter.comment(f"{op.name}: registers of {shown} {moved} {memory}")
    space, each, places = (_by_tiles if op.order == "tiles" else _by_vectors)(lowering, op, kind)
    for i, place in enumerate(places):
        yield registers[i * each :][:each], space, place


def _load_registers(lowering: KernelLowering, op: LoadOp) -> None:
    emitter, into = lowering.emitter, lowering.result(op.fragment)
    for registers, space, place in _register_accesses(lowering, op, into):
        emitter.load(space, registers, place)
        for register in registers if op.padded is not None else ():
            absent = emitter.compute("setp.eq.b32", register, 0)
            emitter.emit("selp.b32", register, FIRST_TWO, register, absent)
    lowering.values[op.fragment] = into


def _store_registers(lowering: KernelLowering, op: StoreOp) -> None:
    taken = True if op.taken is None else lowering.predicate(op.taken)
    rank = op.cta and lowering.scalar(op.cta)
    for registers, space, place in _register_accesses(lowering, op, lowering.fragment(op.fragment)):
        at = in_cta(lowering.emitter, place, rank)
        lowering.emitter.store(space if rank is None else "shared::cluster", registers, at, guard=taken)
