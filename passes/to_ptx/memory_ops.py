"""Memory and what moves between memories: allocations, views, fragments of matrices, copies of tiles."""

from __future__ import annotations

from xdsl.dialects import memref
from xdsl.dialects.builtin import i8

from ...dialect.layouts.layout import Bit, Layout
from ...dialect.layouts.layout import column as column_bit
from ...dialect.warp.attributes import SHARED_SPACE, FragmentType, element_row, fragment_of, memory_of, memory_space
from ...dialect.warp.copy import CommitOp, CopyOp, WaitOp
from ...dialect.warp.memory import LoadOp, PrefetchOp, StoreOp, bounds
from ...dialect.warp.swizzle import SwizzleAttr
from ...dialect.warp.view import MatrixOp
from ..allocate import offset_of
from ..diagnostics import fail
from .addressing import CHUNK, SharedTile
from .arguments import matrix
from .copies import COMMIT
from .kernel import KernelLowering
from .matrix_ops import load_shared, stage_text, store_shared
from .memory import memory_name
from .registry import lowers

PACKED_BITS = 4
"""Bits of elements of which two share a byte, that fragments are loaded of."""


@lowers(memref.AllocOp)
def _alloc(lowering: KernelLowering, op: memref.AllocOp) -> None:
    kind = op.memref.type
    element = element_row(kind.element_type)
    shape = kind.get_shape()
    if memory_space(kind) != SHARED_SPACE or element is None or len(shape) not in (2, 3) or min(shape) <= 0:
        fail(op, f"expected a shared-memory tile of 2 dimensions, or 3 with stages, got {kind}")
    *stages, rows, columns = shape
    size, packed = max(1, element.memory_bits // 8), max(1, 8 // element.memory_bits)
    layout = kind.layout if isinstance(kind.layout, SwizzleAttr) else SwizzleAttr(CHUNK)
    line = columns * element.memory_bits
    if line % (8 * layout.bytes):
        fail(op, f"expected lines of whole {layout.bytes}-byte panels, got {line // 8} bytes in {kind}")
    lowering.values[op.memref] = SharedTile(
        offset_of(op), stages[0] if stages else 1, rows, columns // packed, size, layout.bytes, layout.skip, packed
    )


@lowers(LoadOp)
def _load(lowering: KernelLowering, op: LoadOp) -> None:
    kind = op.fragment.type
    if memory_space(memory_of(op.memory)) == SHARED_SPACE:
        load_shared(lowering, op, lowering.result(op.fragment))
        return
    matrix = lowering.matrix(op, op.memory, bits=kind.bits == PACKED_BITS, steps=True)
    row, column = lowering.indices(op.indices)
    if matrix.packed > 1:
        kind, column = _as_bytes(op, kind), lowering.whole_bytes(op, column, matrix.packed)
    if matrix.repeats:
        from .epilogue import own

        found = lowering.globals.load_repeated(kind, matrix, (row, column), bounds(op.in_bounds))
        lowering.values[op.fragment] = own(lowering, op.fragment, found)
        return
    into = lowering.result(op.fragment)
    lowering.globals.load(kind, matrix, (row, column), bounds(op.in_bounds), into)
    lowering.values[op.fragment] = into


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


@lowers(PrefetchOp)
def _prefetch(lowering: KernelLowering, op: PrefetchOp) -> None:
    matrix = lowering.matrix(op, op.memory, steps=True)
    row, column = lowering.indices(op.indices)
    lowering.globals.prefetch(op.fragment, matrix, (row, column), bounds(op.in_bounds))


@lowers(StoreOp)
def _store(lowering: KernelLowering, op: StoreOp) -> None:
    if isinstance(lowering.values.get(op.memory), SharedTile):
        store_shared(lowering, op)
        return
    kind, matrix = fragment_of(op.fragment), lowering.matrix(op, op.memory, steps=True)
    row, column = lowering.indices(op.indices)
    shown = f"{kind.role.data} {kind.shape[0]}x{kind.shape[1]}"
    lowering.emitter.comment(f"{op.name}: fragment {shown} to {memory_name(op.memory)}")
    lowering.globals.store(kind, matrix, (row, column), bounds(op.in_bounds), lowering.fragment(op.fragment))


@lowers(CopyOp)
def _copy(lowering: KernelLowering, op: CopyOp) -> None:
    source = lowering.matrix(op, op.source, bits=True)
    row, column = lowering.indices(op.indices)
    tile, stages = lowering.tile(op, op.destination), lowering.indices(op.stage)
    place = stage_text(stages[0] if stages else None, "the stage to fill")
    lowering.emitter.comment(
        f"{op.name}: a {tile.rows}x{tile.columns * tile.packed} tile of {memory_name(op.source)} to {place}"
    )
    lowering.copies.copy(
        source,
        (row, lowering.whole_bytes(op, column, source.packed)),
        tile,
        stages[0] if stages else 0,
        bounds(op.in_bounds),
        asynchronous=op.is_async is not None,
        spread=op.packed is not None,
    )


@lowers(MatrixOp)
def _view(lowering: KernelLowering, op: MatrixOp) -> None:
    if op.memory not in lowering.memories:
        fail(op, f"expected memory that is an argument of the kernel, got {op.memory.type}")
    if op.dimensions_kept:
        if op.matrix.uses:
            fail(op, "several matrices have no registers; take one of them with indices for all dimensions kept")
        return
    at = list(lowering.indices(op.indices))
    lowering.values[op.matrix] = matrix(
        lowering.kernel, lowering.scalars, lowering.memories[op.memory], op.dimensions, at
    )


@lowers(memref.DimOp)
def _dim(lowering: KernelLowering, op: memref.DimOp) -> None:
    number = lowering.scalar(op.index)
    if op.source not in lowering.memories or not isinstance(number, int):
        fail(op, f"expected a known dimension of an argument of the kernel, got {op.source.type}")
    lowering.values[op.result] = lowering.memories[op.source].shape[number]


@lowers(CommitOp)
def _commit(lowering: KernelLowering, op: CommitOp) -> None:
    if lowering.emitter.has(COMMIT):
        lowering.emitter.emit(COMMIT)


@lowers(WaitOp)
def _wait(lowering: KernelLowering, op: WaitOp) -> None:
    if lowering.emitter.has(COMMIT):
        lowering.emitter.emit("cp.async.wait_group", op.pending.value.data)
