"""Tensor memory: allocations, products that add up there, loads and stores of their sums (PTX ISA 9.7.16)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import product

from xdsl.dialects import memref
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Operation, SSAValue

from ...dialect.isa.form import SCALES_OF_WORD
from ...dialect.isa.tensor_product import ALLOCATIONS, SharedDescriptor
from ...dialect.isa.wgmma import UNIT, WARPS, MatrixDescriptor
from ...dialect.layouts.layout import LANES, Layout, column, row
from ...dialect.layouts.tensor_memory import METADATA_BLOCK, MOVES, SCALES_BLOCK
from ...dialect.mlir.gpu import FuncOp
from ...dialect.ptx.text.syntax import Immediate
from ...dialect.warp.attributes import TENSOR_SPACE, FragmentType, Memory, enclosing, in_pairs, memory_of, memory_space
from ...dialect.warp.memory import CopyOp, LoadOp, StoreOp
from ...dialect.warp.tensor_memory import WORD_BITS, TensorMmaOp, columns_of, holds_scales
from ...dialect.warp.warpgroup import ROWS
from ..allocate import offset_of
from ..diagnostics import fail
from .addressing import TensorTile
from .emitter import At, VirtualRegister
from .fragments import Fragment
from .kernel import KernelLowering, lowers
from .products import check_warpgroups, descriptor_word, descriptors
from .synchronisation import group_of, one_thread

SHAPES = {32: ("16x256b", 4, 8), 16: ("16x128b", 2, 4)}
"""By the bits of elements, what moves eight columns of 16 rows of a warp, in registers that lie as those of a product
of fragments do; the registers of a lane that it moves at least, and the columns of words that these are of."""

LANE_SHIFT = 16
"""The bit of an address from which on it has the lane; below it the column. PTX ISA 9.7.16.1."""

MAX_REGISTERS = 32
"""Of a lane that one load or store moves: the ISA has up to 128 (9.7.16.8.1), which ptxas must keep side by side."""


def allocate(lowering: KernelLowering, op: memref.AllocOp) -> None:
    """Takes columns of tensor memory for all of the kernel's matrices with the first of these; all threads meet."""
    (every, taken), columns = _allocated(op), columns_of(op.memref.type)
    first = every[0]
    if op is not first:
        base, place = _tile(lowering, op, first.memref).base, sum(map(_columns, every[: every.index(op)]))
        lowering.values[op.memref] = TensorTile(lowering.emitter.pure("add.s32", base, place), columns)
        return
    emitter, slot = lowering.emitter, lowering.addressing.shared_bytes_at(offset_of(op), 0)
    emitter.comment(f"{taken} columns of tensor memory")
    with _first_warp(lowering):
        emitter.emit(f"tcgen05.alloc.{group_of(op)}.sync.aligned.shared::cta.b32", slot, taken)
        emitter.emit(f"tcgen05.relinquish_alloc_permit.{group_of(op)}.sync.aligned")
    _meet(lowering, op)
    lowering.values[op.memref] = TensorTile(emitter.compute("ld.shared.b32", slot), columns)


@lowers(memref.DeallocOp)
def _free(lowering: KernelLowering, op: memref.DeallocOp) -> None:
    tile, (_, taken) = _tile(lowering, op, op.memref), _allocated(op)
    _meet(lowering, op)
    with _first_warp(lowering):
        lowering.emitter.emit(f"tcgen05.dealloc.{group_of(op)}.sync.aligned.b32", tile.base, taken)


def _allocated(op: Operation) -> tuple[list[memref.AllocOp], int]:
    """The matrices that a kernel allocates, and the columns for all of them."""
    inside = (each for kernel in enclosing(op) if isinstance(kernel, FuncOp) for each in kernel.walk())
    allocations = [each for each in inside if isinstance(each, memref.AllocOp)]
    allocations = [each for each in allocations if memory_space(each.memref.type) == TENSOR_SPACE]
    wanted = sum(map(_columns, allocations))
    taken = next((size for size in ALLOCATIONS if size >= wanted), None)
    if taken is None:
        fail(op, f"expected at most {ALLOCATIONS[-1]} columns of tensor memory, got {wanted}")
    return allocations, taken


def _columns(op: memref.AllocOp) -> int:
    return op.memref.type.get_shape()[0] * columns_of(op.memref.type)


def _tile(lowering: KernelLowering, op: Operation, memory: SSAValue) -> TensorTile:
    tile = lowering.values[memory]
    if not isinstance(tile, TensorTile):
        fail(op, f"expected tensor memory that this kernel has allocated, got {memory.type}")
    return tile


def _first_warp(lowering: KernelLowering) -> AbstractContextManager[None]:
    """What the first warp of the CTA does alone."""
    return lowering.emitter.skipping("others", guard=lowering.scalars.compare("ge", lowering.thread, LANES))


def _meet(lowering: KernelLowering, op: Operation) -> None:
    """All threads, of both CTAs of a pair, have accessed tensor memory before any goes on to."""
    lowering.emitter.emit("tcgen05.fence::before_thread_sync")
    if in_pairs(op):
        lowering.emitter.emit("barrier.cluster.arrive.aligned")
        lowering.emitter.emit("barrier.cluster.wait.aligned")
    else:
        lowering.emitter.emit("bar.sync", 0)
    lowering.emitter.emit("tcgen05.fence::after_thread_sync")


@lowers(TensorMmaOp)
def _product(lowering: KernelLowering, op: TensorMmaOp) -> None:
    check_warpgroups(lowering, op)
    row, emitter, words = op.row, lowering.emitter, descriptors(lowering, op, _encode)
    emitter.comment(f"{op.name}: {row.shape} of {'tensor' if op.a_in_tensor_memory else 'shared'} memory")
    kind = emitter.pure("mov.b32", Immediate(f"{row.encode():#x}"))
    place = At(_address(lowering, op, op.d, op.number), 0)
    first = one_thread(lowering, op, None, UnitAttr())
    a = At(_a(lowering, op), 0) if op.a_in_tensor_memory else words["a"]
    side_operands = [At(place, 0) for place in _side_addresses(lowering, op)]
    adds = True if op.adds is None else lowering.predicate(op.adds)
    metadata, scales = ([], side_operands) if row.scale is not None else (side_operands, [])
    flag = int(adds) if isinstance(adds, bool) else adds
    spelling = row.opcode.spelling
    emitter.emit(spelling, place, a, words["b"], *metadata, kind, *scales, flag, guard=first)


def _a(lowering: KernelLowering, op: TensorMmaOp) -> VirtualRegister:
    """The address of A in tensor memory. Its first row is that of D."""
    number, row, column = op.a_indices
    first, k = lowering.scalar(row), lowering.scalar(column)
    if first != 0 or not isinstance(k, int):
        fail(op, f"expected A from the first row on, at a column that is known, got row {first}, column {k}")
    words = k * op.row.a.memory_bits // WORD_BITS
    place = _address(lowering, op, op.a, number)
    return place if words == 0 else lowering.emitter.pure("add.s32", place, words)


def _side_addresses(lowering: KernelLowering, op: TensorMmaOp) -> Iterator[VirtualRegister]:
    """The tensor memory addresses of the scales or metadata of a step."""
    for memory in op.side_operands:
        place, kind = _address(lowering, op, memory, op.stage), memory_of(memory)
        more = op.word * (kind.get_shape()[1] // LANES if op.scale else 1)
        yield place if more == 0 else lowering.emitter.pure("add.s32", place, more)


def copy(lowering: KernelLowering, op: CopyOp) -> None:
    """Brings scales, or metadata, from a stage of shared memory."""
    check_warpgroups(lowering, op)
    emitter, kind, (stage,) = lowering.emitter, memory_of(op.destination), op.stage
    emitter.comment(f"{op.name}: {op.source.type} to tensor memory")
    to, first = _address(lowering, op, op.destination, stage), one_thread(lowering, op, None, UnitAttr())
    for shape, line, first_column in _copied(kind):
        tile, at, row, _ = lowering.shared_place(op, op.source, op.indices)
        base, offset = lowering.addressing.origin(tile, at, lowering.scalars.add(row, line), 0)
        word = descriptor_word(lowering, base, SharedDescriptor(0, UNIT, ROWS * UNIT).encode() + offset // UNIT)
        place = to if first_column == 0 else emitter.pure("add.s32", to, first_column)
        emitter.emit(f"tcgen05.cp.{group_of(op)}.{shape}", At(place, 0), word, guard=first)


def _copied(kind: Memory) -> Iterator[tuple[str, int, int]]:
    """The copies that fill a matrix of tensor memory: shape, line of the tile, first column. Blocks of the same rows
    are consecutive in shared memory, those of the same columns in tensor memory."""
    _, rows, columns = kind.get_shape()
    if not holds_scales(kind):
        each = METADATA_BLOCK.elements
        yield from (("128x128b", first // each * METADATA_BLOCK.threads, first) for first in range(0, columns, each))
        return
    words, blocks = columns // SCALES_OF_WORD, rows // SCALES_BLOCK.rows
    for block, word in product(range(blocks), range(words)):
        line = (block * words + word) * SCALES_BLOCK.threads
        yield "32x128b.warpx4", line, (word * blocks + block) * SCALES_OF_WORD


def _encode(how: MatrixDescriptor) -> int:
    return SharedDescriptor(how.address, how.leading, how.stride, how.swizzle).encode()


def _address(lowering: KernelLowering, op: Operation, memory: SSAValue, number: SSAValue | None) -> VirtualRegister:
    """Where a matrix begins, of a number or the first."""
    tile = _tile(lowering, op, memory)
    along = 0 if number is None else lowering.scalars.multiply(lowering.scalar(number), tile.columns)
    return tile.base if along == 0 else lowering.emitter.pure("add.s32", tile.base, along)


def load(lowering: KernelLowering, op: LoadOp, kind: FragmentType) -> None:
    """Reads the sums of a warpgroup's products."""
    into = lowering.result(op.fragment)
    for move, place, registers in _moves(lowering, op, kind, into):
        lowering.emitter.emit(f"tcgen05.ld.sync.aligned.{move}.b32", registers, place)
    lowering.emitter.emit("tcgen05.wait::ld.sync.aligned")
    lowering.values[op.fragment] = into


def store(lowering: KernelLowering, op: StoreOp, kind: FragmentType) -> None:
    """Stores a warpgroup's fragment to tensor memory: accumulators or an operand."""
    for move, place, registers in _moves(lowering, op, kind, lowering.fragment(op.fragment)):
        lowering.emitter.emit(f"tcgen05.st.sync.aligned.{move}.b32", place, registers)
    lowering.emitter.emit("tcgen05.wait::st.sync.aligned")


def _moves(
    lowering: KernelLowering, op: LoadOp | StoreOp, kind: FragmentType, registers: Fragment
) -> Iterator[tuple[str, At, Fragment]]:
    """Registers of a fragment, some at a time, what moves them, and their places: 16 of the 32 lanes of a warp."""
    check_warpgroups(lowering, op)
    _, first_row, first_column = lowering.indices(op.indices)
    halves = _halves(kind.layout.data, kind.bits)
    if first_row != 0 or halves is None or (first_column != 0 and kind.bits != WORD_BITS):
        fail(op, f"expected sums of a product of warpgroups, or A of 16 bits, from the first row on, got {kind}")
    shape, least, columns = SHAPES[kind.bits]
    warp = lowering.scalars.mask(lowering.scalars.quotient(lowering.thread, LANES), WARPS - 1)
    lanes = lowering.scalars.multiply(warp, LANES << LANE_SHIFT)
    base = lowering.scalars.sum(_address(lowering, op, op.memory, op.indices[0]), lanes)
    base = lowering.scalars.sum(base, first_column)
    each = least * halves  # of the columns that are moved at least
    for half in range(halves):
        mine = [r for n, r in enumerate(registers) if n % each // least == half]
        first = 0
        while first < len(mine):
            count = min(MAX_REGISTERS, 1 << (len(mine) - first).bit_length() - 1)
            place = (half * LANES // 2 << LANE_SHIFT) + first // least * columns
            yield f"{shape}.x{count // least}", lowering.addressing.settle(base, place), mine[first : first + count]
            first += count


def _halves(layout: Layout, bits: int) -> int | None:
    """How many times 16 rows a warp has, if registers are those of consecutive moves of columns; else None."""
    if bits not in SHAPES:
        return None
    lane, element = MOVES[SHAPES[32][0]].lane, MOVES[SHAPES[32][0]].element
    for halves, warps in ((1, (row(4), row(5))), (2, (row(5), row(6)))):
        first = (*element, *(row(4) for _ in range(halves - 1)))
        more = tuple(column(3 + i) for i in range(len(layout.element) - len(first)))
        if layout == Layout(lane, (*first, *more), warps):
            return halves
    return None
