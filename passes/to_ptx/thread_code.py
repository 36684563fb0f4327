"""What each thread does for itself: loads and stores of `memref` and `vector`, arithmetic on numbers and on vectors.

A number is one register: of f16, bf16 and the 8-bit floats an f32 that holds its value, of i8 and i16 a `.b32` that
holds it sign-extended. A vector is its elements in order as they lie in memory, in registers of 32 bits, or of 64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd, lcm, prod
from typing import Any, TypeAlias, TypeGuard

from xdsl.dialects import arith, gpu, llvm, math, memref, vector
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IndexType,
    IntegerAttr,
    VectorType,
    i1,
    i32,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue

from ...dialect.mlir.affine import strides_of
from ...dialect.mlir.gpu import GPU, DynamicSharedMemoryOp
from ...dialect.warp.attributes import element_row, is_memory, memory_of, type_name
from ..diagnostics import fail
from ..linalg.operand import kept_dimensions
from ..patterns import mixed
from .addressing import ALIGNMENT, INDEX_LIMIT, MemoryArgument, Position, SharedTile, element_bits
from .elements import EIGHT, Elements, HeldElement, literal, ptx_type_of, value_registers
from .emitter import At, IndexValue, VirtualRegister
from .epilogue import ElementPacking
from .fragments import Fragment
from .kernel import KernelLowering, is_index, lowers
from .scalars import divisor_of

AnyVector: TypeAlias = VectorType[Attribute]


def is_vector(kind: Attribute) -> TypeGuard[AnyVector]:
    """Whether a type is that of a vector."""
    return isinstance(kind, VectorType)


def vector_of(op: Operation, value: SSAValue) -> AnyVector:
    """The type of a value that must be a vector."""
    if not is_vector(value.type):
        fail(op, f"expected a vector, got {value.type}")
    return value.type


# Values: numbers and vectors.


def vector_registers(lowering: KernelLowering, op: Operation, kind: AnyVector) -> Fragment:
    """Fresh registers for a vector; refuses one that does not fill its last register."""
    if not (registers := value_registers(lowering.emitter, kind)):
        fail(op, f"{op.name} is lowered for vectors of whole registers, got {kind}")
    return registers


def number_of(lowering: KernelLowering, value: SSAValue) -> HeldElement:
    """A number as an element."""
    content = lowering.values[value]
    match content:
        case [one]:
            return HeldElement(one)
        case bool():
            return HeldElement(lowering.emitter.compute(f"setp.{'eq' if content else 'ne'}.s32", 0, 0))
        case VirtualRegister() | int():
            return HeldElement(content)
        case _:
            owner = value.owner
            fail(owner if isinstance(owner, Operation) else lowering.kernel, f"expected a number, got {value.type}")


def give(lowering: KernelLowering, result: SSAValue, element: HeldElement) -> None:
    """Binds an element to a result: indices, i32 and i1 as they are, other types in a fresh register."""
    final = Elements(lowering.emitter, lowering.target).rounded(element).word
    if result.type in (IndexType(), i1, i32):
        lowering.values[result] = final if isinstance(final, VirtualRegister | int) else _own(lowering, result, element)
    else:
        lowering.values[result] = [_own(lowering, result, HeldElement(final))]


def _own(lowering: KernelLowering, result: SSAValue, element: HeldElement) -> VirtualRegister:
    """A fresh register with the value, for a loop overwrites the registers that it carries."""
    return lowering.emitter.compute(f"mov.{ptx_type_of(result.type)}", element.word)


def elements_of(packing: ElementPacking, kind: AnyVector, registers: Fragment) -> list[HeldElement]:
    """The elements of a vector."""
    element = element_row(kind.element_type)
    return [] if element is None else packing.every(element, registers)


def constant(lowering: KernelLowering, op: arith.ConstantOp | llvm.ConstantOp) -> None:
    """A constant: an index, another number, or a splat vector."""
    if is_index(lowering, op, op.value):
        return
    value, kind = op.value, op.result.type
    if isinstance(value, FloatAttr | IntegerAttr):
        give(lowering, op.result, HeldElement(literal(kind, value.value.data)))
        return
    if not isinstance(value, DenseIntOrFPElementsAttr) or not is_vector(kind) or not len(value) or not value.is_splat():
        fail(op, f"expected a number, or a vector that is one number everywhere, got {value}")
    packing = ElementPacking(lowering)
    vector_registers(lowering, op, kind)  # which refuses what registers cannot hold
    splat = value.get_values()[0]
    if isinstance(splat, tuple):
        fail(op, f"expected a real number, got {value}")
    number = HeldElement(literal(kind.element_type, splat))
    lowering.values[op.result] = packing.pack_all(kind.element_type, [number] * prod(kind.get_shape()))


lowers(llvm.ConstantOp)(constant)


def _scalar_form(op: Operation) -> Operation:
    """The operation on one element that an operation on vectors does for each."""
    operands = [_element_type(value.type) for value in op.operands]
    results = [_element_type(value.type) for value in op.results]
    return type(op).create(
        operands=Block(arg_types=operands).args,
        result_types=results,
        properties=op.properties,
        attributes=op.attributes,
    )


def _element_type(kind: Attribute) -> Attribute:
    return kind.element_type if is_vector(kind) else kind


def arithmetic(lowering: KernelLowering, op: Operation) -> None:
    """An operation of `arith` or `math` on numbers, or on each element of vectors."""
    packing, (result,) = ElementPacking(lowering), op.results
    elements = packing.elements
    if not is_vector(result.type):
        give(lowering, result, elements.lower(op, [number_of(lowering, value) for value in op.operands]))
        return
    scalar = _scalar_form(op)
    operands = [
        elements_of(packing, value.type, lowering.fragment(value)) for value in op.operands if is_vector(value.type)
    ]
    computed = [elements.lower(scalar, of_one) for of_one in zip(*operands, strict=True)]
    lowering.values[result] = packing.pack_all(result.type.element_type, computed)


ARITHMETIC = (
    arith.AddfOp, arith.SubfOp, arith.MulfOp, arith.DivfOp, arith.NegfOp, arith.MaximumfOp, arith.MinimumfOp,
    arith.MaxnumfOp, arith.MinnumfOp, arith.CmpfOp, arith.ExtFOp, arith.TruncFOp, arith.SIToFPOp, arith.UIToFPOp,
    arith.FPToSIOp, arith.FPToUIOp, arith.ExtSIOp, arith.ExtUIOp, arith.TruncIOp, arith.MaxSIOp, arith.MaxUIOp,
    arith.DivSIOp, arith.RemSIOp, arith.ShLIOp, arith.ShRSIOp, arith.ShRUIOp, arith.BitcastOp,
    math.AbsFOp, math.FmaOp, math.FloorOp, math.CeilOp, math.RoundEvenOp, math.TruncOp, math.ExpOp, math.Exp2Op,
    math.LogOp, math.TanhOp, math.ErfOp, math.SqrtOp, math.RsqrtOp, math.SinOp, math.CosOp, math.PowFOp,
)  # fmt: skip
"""What is lowered as it is in the bodies of kernels on whole matrices."""

for _kind in ARITHMETIC:
    lowers(_kind)(arithmetic)


# Numbers of threads and CTAs; words that lanes exchange.

SIZES = {
    "gpu.block_dim": "%ntid", "gpu.grid_dim": "%nctaid", "gpu.cluster_id": "%clusterid",
    "gpu.cluster_dim": "%nclusterid", "gpu.cluster_dim_blocks": "%cluster_nctaid",
}  # fmt: skip
"""The special registers that hold numbers and sizes of CTAs, clusters and the grid."""


def _size(lowering: KernelLowering, op: Operation) -> None:
    dimension = op.properties["dimension"]
    if isinstance(dimension, gpu.DimensionAttr):
        name = f"{SIZES[op.name]}.{dimension.data}"
        lowering.values[op.results[0]] = lowering.scalars.special(name, INDEX_LIMIT)


for _kind in GPU.operations:
    if _kind.name in SIZES:
        lowers(_kind)(_size)


# Parts of vectors.


def _part(op: vector.ExtractOp | vector.InsertOp, kind: AnyVector) -> tuple[int, int]:
    """The first element of a part of a vector, and how many it has."""
    position, shape = op.static_position.get_values(), kind.get_shape()
    if op.dynamic_position:
        fail(op, f"{op.name} is lowered at positions that are known")
    first, count = 0, prod(shape)
    for index, size in zip(position, shape, strict=False):
        count //= size
        first += index * count
    return first, count


@lowers(vector.ExtractOp)
def _extract(lowering: KernelLowering, op: vector.ExtractOp) -> None:
    kind = vector_of(op, op.vector)
    first, count = _part(op, kind)
    packing = ElementPacking(lowering)
    part = elements_of(packing, kind, lowering.fragment(op.vector))[first:][:count]
    if is_vector(op.result.type):
        lowering.values[op.result] = packing.pack_all(op.result.type.element_type, part)
    else:
        give(lowering, op.result, part[0])


@lowers(vector.InsertOp)
def _insert(lowering: KernelLowering, op: vector.InsertOp) -> None:
    kind = vector_of(op, op.dest)
    first, count = _part(op, kind)
    packing = ElementPacking(lowering)
    elements = elements_of(packing, kind, lowering.fragment(op.dest))
    source = op.source.type
    elements[first : first + count] = (
        elements_of(packing, source, lowering.fragment(op.source))
        if is_vector(source)
        else [number_of(lowering, op.source)]
    )
    lowering.values[op.result] = packing.pack_all(kind.element_type, elements)


@lowers(vector.BroadcastOp)
def _broadcast(lowering: KernelLowering, op: vector.BroadcastOp) -> None:
    packing, kind = ElementPacking(lowering), op.vector.type
    if is_vector(op.source.type):
        own = elements_of(packing, op.source.type, lowering.fragment(op.source))
    else:
        own = [number_of(lowering, op.source)]
    lowering.values[op.vector] = packing.pack_all(kind.element_type, own * (prod(kind.get_shape()) // len(own)))


# Loads and stores of one thread, and the views they go by: `memref` and `vector` in kernels of upstream.


# Memory: where an element lies.


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
    memory = _memory(lowering, op, value)
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
    """The largest known power-of-two alignment of an element's address in bytes, at most that of its memory."""
    memory = lowering.memories.get(value)
    if memory is None:
        return 1
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


@lowers(memref.AssumeAlignmentOp)
def _assume_alignment(lowering: KernelLowering, op: memref.AssumeAlignmentOp) -> None:
    source = _memory(lowering, op, op.memref)
    lowering.memories[op.result] = replace(source, alignment=lcm(source.alignment, op.alignment.value.data))


@lowers(memref.ReinterpretCastOp)
def _reinterpret(lowering: KernelLowering, op: memref.ReinterpretCastOp) -> None:
    source, kind = lowering.memories.get(op.source), op.result.type
    strides = strides_of(kind) if is_memory(kind) else None
    tile, shape = lowering.values.get(op.source), kind.get_shape()
    if isinstance(tile, SharedTile) and tile.row_by_row and strides == (shape[-1], 1) and not kind.get_offset():
        lowering.values[op.result] = tile.in_rows(*shape)
        return
    if source is None or strides is None or None in strides or not is_memory(kind) or kind.get_offset():
        fail(op, f"expected memory of the kernel, from its start, with strides that are known, got {kind}")
    strides_ = tuple(stride or 0 for stride in strides)
    lowering.memories[op.result] = replace(source, shape=tuple(kind.get_shape()), strides=strides_)


@lowers(memref.SubviewOp)
def _subview(lowering: KernelLowering, op: memref.SubviewOp) -> None:
    source = _memory(lowering, op, op.source)
    offsets, sizes, strides = (
        [each if isinstance(each, int) else lowering.scalar(each) for each in mixed(numbers, values)]
        for numbers, values in (
            (op.static_offsets, op.offsets),
            (op.static_sizes, op.sizes),
            (op.static_strides, op.strides),
        )
    )
    _, place = place_of(lowering, op, op.source, offsets)
    kept = kept_dimensions(op.static_sizes.get_values(), shape := op.result.type.get_shape())
    if len(kept) != len(shape):
        fail(op, f"expected a result with the dimensions of the view, got {op.result.type}")
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


@lowers(memref.LoadOp)
def _load(lowering: KernelLowering, op: memref.LoadOp) -> None:
    element_bits(op, memory_of(op.memref))
    space, place = place_of(lowering, op, op.memref, lowering.indices(op.indices))
    give(lowering, op.res, load_number(lowering, op.res.type, space, place))


@lowers(memref.StoreOp)
def _store(lowering: KernelLowering, op: memref.StoreOp) -> None:
    element_bits(op, memory_of(op.memref))
    space, place = place_of(lowering, op, op.memref, lowering.indices(op.indices))
    store_number(lowering, op, op.value.type, number_of(lowering, op.value), space, place)


def load_number(lowering: KernelLowering, kind: Attribute, space: str, place: At) -> HeldElement:
    """An element of memory."""
    (raw,) = lowering.emitter.registers(_register(kind), 1)
    lowering.emitter.load(space, [raw], place, _stored(kind))
    return _from_memory(lowering, kind, raw)


def store_number(
    lowering: KernelLowering, op: Operation, kind: Attribute, number: HeldElement, space: str, place: At
) -> None:
    """Makes a number an element of memory."""
    lowering.emitter.store(space, [_to_memory(lowering, op, kind, number)], place, _stored(kind))


def _register(kind: Attribute) -> str:
    """The type of the register that an element is loaded to, unconverted."""
    name = type_name(kind)
    if name in ("f32", "f64"):
        return name
    return "b64" if kind == IndexType() or name == "i64" else "b16" if name in ("f16", *EIGHT) else "b32"


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
    emitter, name, value = lowering.emitter, type_name(kind), number.word
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
            return value if isinstance(value, VirtualRegister) else emitter.compute(f"mov.{ptx_type_of(kind)}", value)


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
    """The first register, count and address of each access of a vector in one row; `aligned` divides its address."""
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
    bits, strides, s = element_bits(op, kind), strides_of(kind), lowering.scalars
    base = s.add(source.base, lowering.scalar(op.byte_shift))
    if strides is None or None in strides or isinstance(base, int):
        fail(op, f"expected a view whose strides are known, got {kind}")
    aligned = gcd(ALIGNMENT, divisor_of(lowering.scalar(op.byte_shift)))
    strides_ = tuple(stride or 0 for stride in strides)
    lowering.memories[op.result] = MemoryArgument(base, kind.get_shape(), strides_, bits, aligned, space="shared")
