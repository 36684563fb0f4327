"""Loads and stores of one thread, and the views they go by: `memref` and `vector` in kernels of upstream."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from xdsl.dialects import memref, vector
from xdsl.dialects.builtin import DYNAMIC_INDEX, IndexType
from xdsl.ir import Attribute, Operation, SSAValue

from ...dialect.mlir.subgroup import DynamicSharedMemoryOp
from ...dialect.warp.attributes import is_memory, memory_of, type_name
from ...dialect.warp.views import strides_of
from ..diagnostics import fail
from .addressing import ALIGNMENT, MemoryArgument, Position, SharedTile, element_bits
from .elements import EIGHT, HeldElement, held_as
from .emitter import At, IndexValue, VirtualRegister, divisor_of
from .fragments import Fragment
from .kernel import KernelLowering, lowers
from .thread_code import give, number_of, vector_registers

# Memory: where an element lies.


def place_of(lowering: KernelLowering, op: Operation, value: SSAValue, indices: Sequence[IndexValue]) -> tuple[str, At]:
    """The space and the address of an element."""
    tile = lowering.values.get(value)
    if isinstance(tile, SharedTile):
        stage, row, column = (0, *indices)[-3:]
        place = lowering.addressing.shared(tile, stage, Position(0, row), Position(0, column))
        return "shared", place
    memory = lowering.memories.get(value)
    if memory is None:
        fail(op, f"expected memory of the kernel, got {value.type}")
    size, s = memory.element_bits // 8, lowering.scalars
    if memory.space == "shared":
        along = s.sum(
            *(s.multiply(i, s.multiply(stride, size)) for i, stride in zip(indices, memory.strides, strict=True))
        )
        return "shared", lowering.addressing.settle(s.add(memory.base, along), 0)
    base, terms = memory.base, list[tuple[IndexValue, IndexValue]]()
    for index, stride in zip(indices, memory.strides, strict=True):
        if isinstance(stride, int):
            terms.append((index, stride * size))
        else:
            base = s.offset_far(base, index, stride, memory.element_bits)
    return "global", s.address(base, terms)


def bytes_together(lowering: KernelLowering, value: SSAValue, indices: Sequence[IndexValue]) -> int:
    """What divides the address of an element: as many bytes may be moved at once, 16 at most."""
    memory = lowering.memories.get(value)
    if memory is None:
        return 1
    size = memory.element_bits // 8
    steps = (divisor_of(i) * divisor_of(stride) * size for i, stride in zip(indices, memory.strides, strict=True))
    return gcd(memory.alignment, *steps) or memory.alignment


@lowers(memref.GetGlobalOp)
def _get_global(lowering: KernelLowering, op: memref.GetGlobalOp) -> None:
    lowering.named_memory(op, op.memref, op.name_.root_reference.data)


@lowers(memref.SubviewOp)
def _subview(lowering: KernelLowering, op: memref.SubviewOp) -> None:
    source = lowering.memories.get(op.source)
    if source is None:
        fail(op, f"expected memory of the kernel, got {op.source.type}")
    offsets, sizes, strides = (
        _mixed(lowering, numbers.get_values(), values)
        for numbers, values in (
            (op.static_offsets, op.offsets),
            (op.static_sizes, op.sizes),
            (op.static_strides, op.strides),
        )
    )
    _, place = place_of(lowering, op, op.source, offsets)
    kept = _kept_dimensions(op, op.static_sizes.get_values())
    s = lowering.scalars
    base = s.add(place.base, place.offset) if source.space == "shared" else s.offset64(place.base, place.offset, 1)
    if isinstance(base, int):
        fail(op, "expected memory with an address")
    steps = [s.multiply(stride, step) for stride, step in zip(source.strides, strides, strict=True)]
    lowering.memories[op.result] = MemoryArgument(
        base,
        tuple(sizes[i] for i in kept),
        tuple(steps[i] for i in kept),
        source.element_bits,
        bytes_together(lowering, op.source, offsets),
        source.space,
    )


def _mixed(lowering: KernelLowering, numbers: Sequence[int], values: Sequence[SSAValue]) -> list[IndexValue]:
    """Numbers, of which those that are not known are operands in order."""
    dynamic = iter(values)
    return [lowering.scalar(next(dynamic)) if n == DYNAMIC_INDEX else n for n in numbers]


def _kept_dimensions(op: memref.SubviewOp, sizes: Sequence[int]) -> list[int]:
    """The dimensions of a view that its result has: those of one element may be left out."""
    shape, kept = list(op.result.type.get_shape()), list[int]()
    left = len(sizes) - len(shape)
    for i, size in enumerate(sizes):
        if left and size == 1 and (not shape[len(kept) :] or shape[len(kept)] != 1):
            left -= 1
        else:
            kept.append(i)
    if len(kept) != len(shape):
        fail(op, f"expected a result with the dimensions of the view, got {op.result.type}")
    return kept


@lowers(memref.LoadOp)
def _load(lowering: KernelLowering, op: memref.LoadOp) -> None:
    element_bits(op, memory_of(op.memref))
    space, place = place_of(lowering, op, op.memref, lowering.indices(op.indices))
    emitter, kind = lowering.emitter, op.res.type
    stored = _stored(kind)
    (raw,) = emitter.registers(_register(kind), 1)
    emitter.load(space, [raw], place, stored)
    give(lowering, op.res, _from_memory(lowering, kind, raw))


@lowers(memref.StoreOp)
def _store(lowering: KernelLowering, op: memref.StoreOp) -> None:
    element_bits(op, memory_of(op.memref))
    space, place = place_of(lowering, op, op.memref, lowering.indices(op.indices))
    kind = op.value.type
    raw = _to_memory(lowering, op, kind, number_of(lowering, op.value))
    lowering.emitter.store(space, [raw], place, _stored(kind))


def _register(kind: Attribute) -> str:
    """The register that takes an element from memory as it lies there."""
    name = type_name(kind)
    if name in ("f32", "f64"):
        return name
    return "b64" if kind == IndexType() else "b16" if name in ("f16", *EIGHT) else "b32"


def _stored(kind: Attribute) -> str:
    """How an element is moved, where that does not follow from the register."""
    name = type_name(kind)
    sized = {"bf16": "u16", "i8": "s8", "i16": "s16", "i1": "u8"} | dict.fromkeys(EIGHT, "u8")
    return sized.get(name, "")


def _from_memory(lowering: KernelLowering, kind: Attribute, raw: VirtualRegister) -> HeldElement:
    """The number that an element of memory is."""
    emitter, name = lowering.emitter, type_name(kind)
    if kind == IndexType():
        return HeldElement(emitter.compute("cvt.u32.u64", raw))
    match name:
        case "f16":
            return HeldElement(emitter.compute("cvt.f32.f16", raw))
        case "bf16":
            return HeldElement(emitter.compute("mov.b32", emitter.compute("shl.b32", raw, 16), type="f32"))
        case "i1":
            return HeldElement(emitter.compute("setp.ne.s32", raw, 0))
        case _ if name in EIGHT:
            two = emitter.compute(f"cvt.rn.f16x2.{EIGHT[name].name}x2", raw)
            return HeldElement(emitter.compute("cvt.f32.f16", emitter.halves(two)[0]))
        case _:
            return HeldElement(raw)


def _to_memory(lowering: KernelLowering, op: Operation, kind: Attribute, number: HeldElement) -> VirtualRegister:
    """An element as it lies in memory."""
    emitter, name, value = lowering.emitter, type_name(kind), number.held
    if kind == IndexType():
        return emitter.compute("cvt.u64.u32", value)
    match name:
        case "f16":
            return emitter.compute("cvt.rn.f16.f32", value)
        case "bf16":
            half = emitter.compute("cvt.rn.bf16.f32", value)
            return emitter.compute("mov.b32", [half, emitter.compute("mov.b16", 0)])
        case "i1":
            return emitter.compute("selp.b32", 1, 0, value)
        case _ if name in EIGHT:
            fail(op, f"{op.name} of one {name} is not lowered; a vector of four is")
        case _:
            return value if isinstance(value, VirtualRegister) else emitter.compute(f"mov.{held_as(kind)}", value)


@lowers(vector.LoadOp)
def _load_vector(lowering: KernelLowering, op: vector.LoadOp) -> None:
    indices, kind = lowering.indices(op.indices), op.result.type
    space, place = place_of(lowering, op, op.base, indices)
    registers = vector_registers(lowering, op, kind)
    for number, access, at in _accesses(op, bytes_together(lowering, op.base, indices), registers, place):
        lowering.emitter.load(space, registers[number:][:access], at)
    lowering.values[op.result] = registers


@lowers(vector.StoreOp)
def _store_vector(lowering: KernelLowering, op: vector.StoreOp) -> None:
    indices = lowering.indices(op.indices)
    space, place = place_of(lowering, op, op.base, indices)
    registers = lowering.fragment(op.vector)
    for number, access, at in _accesses(op, bytes_together(lowering, op.base, indices), registers, place):
        lowering.emitter.store(space, registers[number:][:access], at)


def _accesses(op: Operation, aligned: int, registers: Fragment, place: At) -> list[tuple[int, int, At]]:
    """The first register, the count, and the address of each access of a vector that lies in one row; `aligned`
    divides its address."""
    size = 8 if registers[0].type == "f64" else 4
    if aligned % size:
        fail(op, f"{op.name} takes an address that is a multiple of {size} bytes, this one is of {aligned}")
    each = min(aligned // size, 16 // size)
    starts, accesses = 0, list[tuple[int, int, At]]()
    while starts < len(registers):
        while each > len(registers) - starts:
            each //= 2
        accesses.append((starts, each, place.behind(starts * size)))
        starts += each
    return accesses


# Memory that a kernel has of its CTA.


@lowers(DynamicSharedMemoryOp)
def _dynamic_shared(lowering: KernelLowering, op: DynamicSharedMemoryOp) -> None:
    """All the shared memory that a launch gives, in bytes."""
    base = lowering.addressing.shared_bytes_at(0, 0).base
    lowering.memories[op.resultMemref] = MemoryArgument(base, (0,), (1,), 8, space="shared")


@lowers(memref.ViewOp)
def _view(lowering: KernelLowering, op: memref.ViewOp) -> None:
    """Bytes of shared memory as elements, row by row."""
    source, kind = lowering.memories.get(op.source), op.result.type
    if source is None or source.space != "shared" or not is_memory(kind) or op.sizes:
        fail(op, f"expected a view of a known size of gpu.dynamic_shared_memory, got {op.source.type}")
    bits, strides, s = element_bits(op, kind), strides_of(kind), lowering.scalars
    base = s.add(source.base, lowering.scalar(op.byte_shift))
    if strides is None or None in strides or isinstance(base, int):
        fail(op, f"expected a view whose strides are known, got {kind}")
    aligned = gcd(ALIGNMENT, divisor_of(lowering.scalar(op.byte_shift)))
    known = tuple(stride or 0 for stride in strides)
    lowering.memories[op.result] = MemoryArgument(base, kind.get_shape(), known, bits, aligned, space="shared")
