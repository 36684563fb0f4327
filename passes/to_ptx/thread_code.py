"""What each thread does for itself: loads and stores of `memref` and `vector`, arithmetic on numbers and on vectors.

A number is one register: of f16, bf16 and the 8-bit floats an f32 that holds its value, of i8 and i16 a `.b32` that
holds it sign-extended. A vector is its elements in order as they lie in memory, in registers of 32 bits, or of 64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import product, zip_longest
from math import prod
from typing import Any, TypeAlias, TypeGuard

from xdsl.dialects import arith, gpu, llvm, math, memref, vector
from xdsl.dialects.builtin import (
    AnyFloat,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IndexType,
    IntegerAttr,
    VectorType,
    i1,
    i32,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue

from ...dialect.mlir.arithmetic import VECTOR
from ...dialect.mlir.gpu import GPU, GlobalIdOp, NumberAlong
from ...dialect.warp.attributes import element_row, memory_of, type_name
from ..diagnostics import fail
from .addressing import INDEX_LIMIT, element_bits
from .elements import EIGHT, RULES, Elements, HeldElement, elements_per_register, literal, ptx_type_of, value_registers
from .emitter import At, VirtualRegister
from .epilogue import ElementPacking
from .fragments import Fragment
from .kernel import KernelLowering, is_index, lowers
from .memory_views import bytes_together, place_of

AnyVector: TypeAlias = VectorType[Attribute]

WIDE = ("f64", "b64")
"""The types of registers of 64 bits."""


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
    element, each, i = element_row(kind.element_type), elements_per_register(kind.element_type), packing.elements.emit
    if each == 1:
        return [HeldElement(register) for register in registers]
    if element is None:  # of i16
        return [HeldElement(i("bfe.s32", register, 16 * half, 16)) for register in registers for half in range(each)]
    return packing.every(element, registers)


def give_vector(lowering: KernelLowering, op: Operation, elements: Sequence[HeldElement]) -> None:
    """Binds elements to a result of an operation: a vector, or a number."""
    (result,), packing = op.results, ElementPacking(lowering)
    if len(elements) != (count := prod(result.type.get_shape()) if is_vector(result.type) else 1):
        fail(op, f"{result.type} has {count} elements, got {len(elements)}")
    if not is_vector(result.type):
        give(lowering, result, elements[0])
        return
    vector_registers(lowering, op, result.type)  # which refuses what registers cannot hold
    lowering.values[result] = packing.pack_all(result.type.element_type, elements)


def numbers_of(lowering: KernelLowering, value: SSAValue) -> list[HeldElement]:
    """The elements of a vector, or a number."""
    if not is_vector(value.type):
        return [number_of(lowering, value)]
    return elements_of(ElementPacking(lowering), value.type, lowering.fragment(value))


def constant(lowering: KernelLowering, op: arith.ConstantOp | llvm.ConstantOp) -> None:
    """A constant: an index, another number, or a splat vector."""
    if is_index(lowering, op, op.value):
        return
    value, kind = op.value, op.result.type
    if isinstance(value, FloatAttr | IntegerAttr):
        give(lowering, op.result, HeldElement(literal(kind, value.value.data)))
        return
    if not isinstance(value, DenseIntOrFPElementsAttr) or not is_vector(kind) or not len(value):
        fail(op, f"expected a number, or a vector of numbers, got {value}")
    numbers = [number for number in value.get_values() if not isinstance(number, tuple)]
    if not numbers:
        fail(op, f"expected real numbers, got {value}")
    elements = [HeldElement(literal(kind.element_type, number)) for number in numbers]
    give_vector(lowering, op, elements * (prod(kind.get_shape()) // len(elements)))


lowers(llvm.ConstantOp)(constant)


def _scalar_form(op: Operation) -> Operation:
    """The operation on one element that an operation on vectors does for each; indices are numbers of 32 bits."""
    if not any(is_vector(value.type) or value.type == IndexType() for value in (*op.operands, *op.results)):
        return op
    operands = [_element_type(value.type) for value in op.operands]
    results = [_element_type(value.type) for value in op.results]
    scalar = type(op).create(
        operands=Block(arg_types=operands).args,
        result_types=results,
        properties=op.properties,
        attributes=op.attributes,
    )
    scalar.location = op.location
    return scalar


def _element_type(kind: Attribute) -> Attribute:
    element = kind.element_type if is_vector(kind) else kind
    return i32 if element == IndexType() else element


def arithmetic(lowering: KernelLowering, op: Operation) -> None:
    """An operation of `arith` or `math` on numbers, or on each element of vectors."""
    elements, scalar = Elements(lowering.emitter, lowering.target), _scalar_form(op)
    operands = [numbers_of(lowering, value) for value in op.operands]
    every = max(map(len, operands))
    operands = [each * (every // len(each)) for each in operands]  # one condition may select vectors
    give_vector(lowering, op, [elements.lower(scalar, of_one) for of_one in zip(*operands, strict=True)])


OF_INDICES = (
    arith.ConstantOp, arith.CmpiOp, arith.SelectOp, arith.AddiOp, arith.SubiOp, arith.MuliOp, arith.MinSIOp,
    arith.MinUIOp, arith.DivUIOp, arith.RemUIOp, arith.AndIOp, arith.OrIOp, arith.XOrIOp,
)  # fmt: skip
"""What is done to indices and conditions too, which `control_flow` lowers."""

for _kind in (*arith.Arith.operations, *math.Math.operations, vector.FMAOp):
    if (_kind.name in RULES and _kind not in OF_INDICES) or _kind is math.PowFOp:
        lowers(_kind)(arithmetic)


ARITH: Mapping[str, type[Operation]] = {op.name.removeprefix("arith."): op for op in arith.Arith.operations}


def combining(op: Operation, word: str, kind: Attribute) -> Operation:
    """The operation of `arith` on two numbers of a kind: `add` and `mul` are of any, `and` and its like of integers."""
    real = isinstance(kind, AnyFloat)
    name = word if word in ARITH else f"{word}f" if real and f"{word}f" in ARITH else f"{word}i"
    if name.endswith("f") != real:
        fail(op, f"{word} does not combine numbers of {kind}")
    return ARITH[name].create(operands=Block(arg_types=(kind, kind)).args, result_types=[kind])


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


@lowers(GlobalIdOp)
def _global_id(lowering: KernelLowering, op: NumberAlong) -> None:
    axis, s = str(op.dimension.data), lowering.scalars
    cta, size = (s.special(f"%{name}.{axis}", INDEX_LIMIT) for name in ("ctaid", "ntid"))
    lowering.values[op.result] = s.add(s.multiply(cta, size), lowering.thread_along["xyz".index(axis)])


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
    first, count = _part(op, vector_of(op, op.vector))
    give_vector(lowering, op, numbers_of(lowering, op.vector)[first:][:count])


@lowers(vector.InsertOp)
def _insert(lowering: KernelLowering, op: vector.InsertOp) -> None:
    first, count = _part(op, vector_of(op, op.dest))
    elements = numbers_of(lowering, op.dest)
    elements[first : first + count] = numbers_of(lowering, op.source)
    give_vector(lowering, op, elements)


@lowers(vector.BroadcastOp)
def _broadcast(lowering: KernelLowering, op: vector.BroadcastOp) -> None:
    own, kind = numbers_of(lowering, op.source), op.vector.type
    if is_vector(op.source.type):  # repeated along leading dimensions, and along those of size 1
        source = [1] * (len(kind.get_shape()) - len(op.source.type.get_shape())) + [*op.source.type.get_shape()]
        if any(n not in (1, size) for n, size in zip(source, kind.get_shape(), strict=True)):
            fail(op, f"{op.source.type} does not repeat along {kind}")
        places = product(*(range(n) for n in kind.get_shape()))
        own = [own[_flat([at % n for at, n in zip(place, source, strict=True)], source)] for place in places]
    give_vector(lowering, op, own * (prod(kind.get_shape()) // len(own)))


def _flat(place: Sequence[int], shape: Sequence[int]) -> int:
    """The number of an element in order."""
    return reduce(lambda first, each: first * each[1] + each[0], zip(place, shape, strict=True), 0)


def _moved(lowering: KernelLowering, op: Any) -> None:
    """A vector of elements of others, in another order or shape."""
    elements = [element for value in op.operands for element in numbers_of(lowering, value)]
    source, result = op.operands[0].type, op.results[0].type.get_shape()
    shape = source.get_shape() if is_vector(source) else ()
    places: Sequence[int] = range(len(elements))
    match op.name:
        case "vector.transpose":
            turned: list[int] = list(op.permutation.get_values())
            if sorted(turned) != [*range(len(shape))]:
                fail(op, f"expected all dimensions of {source}, got {turned}")
            order = [turned.index(d) for d in range(len(shape))]
            places = [_flat([at[d] for d in order], shape) for at in product(*map(range, result))]
        case "vector.shuffle":
            rows = [range(first * prod(shape[1:]), (first + 1) * prod(shape[1:])) for first in op.mask.get_values()]
            places = [place for row in rows for place in row]
        case "vector.extract_strided_slice":
            offsets, steps = ([each.value.data for each in sides] for sides in (op.offsets, op.strides))
            along = zip_longest(offsets, steps, result)  # none of an offset is all of a dimension
            ranges = [range(first or 0, (first or 0) + n * (step or 1), step or 1) for first, step, n in along]
            places = [_flat(at, shape) for at in product(*ranges)]
        case _:
            pass
    if max(places) >= len(elements):
        fail(op, f"expected a part of {source}, got element {max(places)}")
    give_vector(lowering, op, [elements[max(place, 0)] for place in places])  # -1 is any


for _kind in VECTOR.operations:
    if _kind.name in ("vector.shape_cast", "vector.transpose", "vector.extract_strided_slice", "vector.from_elements"):
        lowers(_kind)(_moved)
lowers(vector.ShuffleOp)(_moved)


@lowers(vector.BitcastOp)
def _bitcast(lowering: KernelLowering, op: vector.BitcastOp) -> None:
    """The words of a vector as those of another."""
    emitter, words, result = lowering.emitter, Fragment(), vector_registers(lowering, op, vector_of(op, op.result))
    for register in lowering.fragment(op.source):
        halves = emitter.registers("b32", 2) if register.type in WIDE else [register]
        if len(halves) == 2:
            emitter.emit("mov.b64", halves, register)
        words += halves
    if "pred" in {each.type for each in (*words, *result)}:
        fail(op, f"{op.name} is lowered for numbers of whole bytes, got {op.source.type}")
    for register in result:
        own, words = (words[:2], words[2:]) if register.type in WIDE else (words[0], words[1:])
        emitter.emit("mov.b64" if register.type in WIDE else "mov.b32", register, own)
    lowering.values[op.result] = result


@lowers(vector.ReductionOp)
def _reduction(lowering: KernelLowering, op: vector.ReductionOp) -> None:
    """One element after another, from the first on, or from what is added to."""
    elements = Elements(lowering.emitter, lowering.target)
    start = [] if op.acc is None else [number_of(lowering, op.acc)]
    combiner = combining(op, op.kind.data.value, op.dest.type)
    numbers = [*start, *numbers_of(lowering, op.vector)]
    give(lowering, op.dest, reduce(lambda one, other: elements.lower(combiner, [one, other]), numbers))


# Loads and stores of one thread.


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
    registers = vector_registers(lowering, op, op.result.type)
    for own, space, at in _accesses(lowering, op, registers):
        lowering.emitter.load(space, own, at)
    lowering.values[op.result] = registers


@lowers(vector.StoreOp)
def _store_vector(lowering: KernelLowering, op: vector.StoreOp) -> None:
    for own, space, at in _accesses(lowering, op, lowering.fragment(op.vector)):
        lowering.emitter.store(space, own, at)


def _accesses(
    lowering: KernelLowering, op: vector.LoadOp | vector.StoreOp, registers: Fragment
) -> Iterator[tuple[Fragment, str, At]]:
    """The registers of each access of a vector in one row, with the space and the address."""
    indices, size = lowering.indices(op.indices), 8 if registers[0].type in WIDE else 4
    space, place = place_of(lowering, op, op.base, indices)
    aligned = bytes_together(lowering, op.base, indices)
    if aligned % size:
        fail(op, f"{op.name} takes an address that is a multiple of {size} bytes, this one is of {aligned}")
    each = min(aligned // size, 16 // size)
    while registers:
        while each > len(registers):
            each //= 2
        yield registers[:each], space, place
        registers, place = registers[each:], place.behind(each * size)
