"""Memory in kernels of upstream: where an element lies, and the views of `memref` that lead to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd, lcm, prod
from typing import Any

from xdsl.dialects import memref
from xdsl.ir import Operation, SSAValue

from ...dialect.mlir.affine import strides_of
from ...dialect.mlir.gpu import DynamicSharedMemoryOp
from ...dialect.mlir.upstream import CastOp
from ...dialect.ptx.text.syntax import Symbol, Variable
from ...dialect.warp.attributes import Memory, is_memory, memory_of
from ..diagnostics import fail
from ..linalg.operand import kept_dimensions
from ..patterns import slice_of
from .addressing import ALIGNMENT, MemoryArgument, Position, SharedTile, element_bits
from .emitter import At, IndexValue
from .kernel import KernelLowering, lowers
from .scalars import divisor_of


def _memory(lowering: KernelLowering, op: Operation, value: SSAValue) -> MemoryArgument:
    memory = lowering.memories.get(value)
    if memory is None:
        fail(op, f"expected memory of the kernel, got {value.type}")
    return memory


def place_of(lowering: KernelLowering, op: Operation, value: SSAValue, indices: Sequence[IndexValue]) -> tuple[str, At]:
    """The space and the address of an element."""
    tile = lowering.values.get(value)
    if isinstance(tile, SharedTile):
        stage, row, column = (0, *indices)[-3:]
        place = lowering.addressing.shared(tile, stage, Position(0, row), Position(0, column))
        return "shared", place
    return _place_in(lowering, _memory(lowering, op, value), indices)


def _place_in(lowering: KernelLowering, memory: MemoryArgument, indices: Sequence[IndexValue]) -> tuple[str, At]:
    size, s = memory.element_bits // 8, lowering.scalars
    if memory.space == "shared":
        along = s.sum(*(s.multiply(i, s.multiply(step, size)) for i, step in zip(indices, memory.strides, strict=True)))
        return "shared", lowering.addressing.settle(s.add(memory.base, along), 0)
    base, terms = memory.base, list[tuple[IndexValue, IndexValue]]()
    for index, stride in zip(indices, memory.strides, strict=True):
        if isinstance(stride, int):
            terms.append((index, stride * size))
        else:
            base = s.offset_far(base, index, stride, memory.element_bits)
    return memory.space, s.address(base, terms)


def bytes_together(lowering: KernelLowering, value: SSAValue, indices: Sequence[IndexValue]) -> int:
    """The largest known power-of-two alignment of an element's address in bytes, at most that of its memory."""
    memory = lowering.memories.get(value)
    return 1 if memory is None else _alignment_of(memory, indices)


def _alignment_of(memory: MemoryArgument, indices: Sequence[IndexValue]) -> int:
    size = memory.element_bits // 8
    steps = (divisor_of(i) * divisor_of(stride) * size for i, stride in zip(indices, memory.strides, strict=True))
    return gcd(memory.alignment, *steps) or memory.alignment


@lowers(memref.GetGlobalOp)
def _get_global(lowering: KernelLowering, op: memref.GetGlobalOp) -> None:
    kind = op.memref.type
    if is_memory(kind) and 0 in kind.get_shape():  # as in CUDA, another name of what a launch gives
        base = lowering.addressing.shared_bytes_at(0, 0).base
        lowering.memories[op.memref] = MemoryArgument(base, (0,), (1,), element_bits(op, kind), space="shared")
        return
    lowering.named_memory(op, op.memref, op.name_.root_reference.data)


@lowers(memref.AllocaOp)
def _alloca(lowering: KernelLowering, op: memref.AllocaOp) -> None:
    """Memory of each thread."""
    kind = memory_of(op.memref)
    shape, strides = _known(op, kind)
    bits, name = element_bits(op, kind), f"{lowering.kernel.sym_name.data}_own_{len(lowering.own_variables)}"
    size = prod(shape) * bits // 8
    lowering.own_variables.append(Variable("local", "b8", name, count=max(size, 1), align=ALIGNMENT))
    lowering.memories[op.memref] = MemoryArgument(
        lowering.emitter.pure("mov.b64", Symbol(name)), shape, strides, bits, ALIGNMENT, "local"
    )


@lowers(memref.AssumeAlignmentOp)
def _assume_alignment(lowering: KernelLowering, op: memref.AssumeAlignmentOp) -> None:
    source = _memory(lowering, op, op.memref)
    lowering.memories[op.result] = replace(source, alignment=lcm(source.alignment, op.alignment.value.data))


@lowers(memref.ReinterpretCastOp)
def _reinterpret(lowering: KernelLowering, op: memref.ReinterpretCastOp) -> None:
    """Elements from an offset on, counted from where the memory begins that a view is of."""
    source, kind = lowering.memories.get(op.source), op.result.type
    (offset,), sizes, strides = map(tuple, slice_of(op, lowering.scalar))
    tile, shape = lowering.values.get(op.source), kind.get_shape()
    if isinstance(tile, SharedTile) and tile.row_by_row and strides == (shape[-1], 1) and offset == 0:
        lowering.values[op.result] = tile.in_rows(*shape)
        return
    if source is None or memory_of(op.source).get_offset() != 0:
        fail(op, f"expected memory of the kernel, from its start, got {op.source.type}")
    view = replace(source, shape=(1,), strides=(1,))
    lowering.memories[op.result] = replace(_behind(lowering, op, view, (offset,)), shape=sizes, strides=strides)


@lowers(CastOp)
def _cast_memory(lowering: KernelLowering, op: memref.CastOp) -> None:
    lowering.memories[op.dest] = _memory(lowering, op, op.source)


def _reshape(lowering: KernelLowering, op: memref.CollapseShapeOp | memref.ExpandShapeOp) -> None:
    shape, strides = _known(op, memory_of(op.result))
    lowering.memories[op.result] = replace(_memory(lowering, op, op.src), shape=shape, strides=strides)


lowers(memref.CollapseShapeOp)(_reshape)
lowers(memref.ExpandShapeOp)(_reshape)


@lowers(memref.SubviewOp)
def _subview(lowering: KernelLowering, op: memref.SubviewOp) -> None:
    source = _memory(lowering, op, op.source)
    offsets, sizes, strides = slice_of(op, lowering.scalar)
    kept = kept_dimensions(op.static_sizes.get_values(), shape := op.result.type.get_shape())
    if len(kept) != len(shape):
        fail(op, f"expected a result with the dimensions of the view, got {op.result.type}")
    steps = [lowering.scalars.multiply(stride, step) for stride, step in zip(source.strides, strides, strict=True)]
    part = _behind(lowering, op, source, offsets)
    lowering.memories[op.result] = replace(
        part, shape=tuple(sizes[i] for i in kept), strides=tuple(steps[i] for i in kept)
    )


def _behind(
    lowering: KernelLowering, op: Operation, memory: MemoryArgument, indices: Sequence[IndexValue]
) -> MemoryArgument:
    """The same memory from an element on."""
    s = lowering.scalars
    _, place = _place_in(lowering, memory, indices)
    base = s.add(place.base, place.offset) if memory.space == "shared" else s.offset64(place.base, place.offset, 1)
    if isinstance(base, int):
        fail(op, "expected memory with an address")
    return replace(memory, base=base, alignment=_alignment_of(memory, indices))


def _known(op: Operation, kind: Memory) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes and strides of a type that says all of them."""
    strides = strides_of(kind)
    static = tuple(stride for stride in strides or () if stride is not None)
    if strides is None or len(static) != len(strides) or -1 in kind.get_shape():
        fail(op, f"expected sizes and strides that are known, got {kind}")
    return tuple(kind.get_shape()), static


@lowers(DynamicSharedMemoryOp)
def _dynamic_shared(lowering: KernelLowering, op: Any) -> None:
    """All the shared memory that a launch gives, in bytes."""
    base = lowering.addressing.shared_bytes_at(0, 0).base
    lowering.memories[op.resultMemref] = MemoryArgument(base, (0,), (1,), 8, space="shared")


@lowers(memref.ViewOp)
def _view(lowering: KernelLowering, op: memref.ViewOp) -> None:
    """Bytes of shared memory as elements, row by row."""
    source, kind = lowering.memories.get(op.source), op.result.type
    if source is None or source.space != "shared" or not is_memory(kind) or op.sizes:
        fail(op, f"expected a view of a known size of gpu.dynamic_shared_memory, got {op.source.type}")
    bits, (shape, strides), s = element_bits(op, kind), _known(op, kind), lowering.scalars
    base = s.add(source.base, lowering.scalar(op.byte_shift))
    if isinstance(base, int):
        fail(op, "expected memory with an address")
    aligned = gcd(ALIGNMENT, divisor_of(lowering.scalar(op.byte_shift)))
    lowering.memories[op.result] = MemoryArgument(base, shape, strides, bits, aligned, space="shared")
