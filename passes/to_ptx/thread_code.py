"""What each thread does for itself: loads and stores of `memref` and `vector`, arithmetic on numbers and on vectors.

A number is one register: of f16, bf16 and the 8-bit floats an f32 that holds its value, of i8 and i16 a `.b32` that
holds it sign-extended. A vector is its elements in order as they lie in memory, in registers of 32 bits, or of 64.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeAlias, TypeGuard

from xdsl.dialects import arith, gpu, math, vector
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IndexType,
    VectorType,
    i1,
    i32,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue

from ...dialect.warp.attributes import element_row
from ..diagnostics import fail
from .addressing import INDEX_LIMIT
from .elements import Elements, HeldElement, held_as, literal, value_registers
from .emitter import VirtualRegister
from .epilogue import ElementPacking
from .fragments import Fragment
from .kernel import KernelLowering, lowers

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
    registers = value_registers(lowering.emitter, kind)
    if not registers:
        fail(op, f"{op.name} is lowered for vectors of whole registers, got {kind}")
    return registers


def number_of(lowering: KernelLowering, value: SSAValue) -> HeldElement:
    """A number as an element."""
    held = lowering.values[value]
    match held:
        case [one]:
            return HeldElement(one)
        case bool():
            return HeldElement(lowering.emitter.compute(f"setp.{'eq' if held else 'ne'}.s32", 0, 0))
        case VirtualRegister() | int():
            return HeldElement(held)
        case _:
            owner = value.owner
            fail(owner if isinstance(owner, Operation) else lowering.kernel, f"expected a number, got {value.type}")


def give(lowering: KernelLowering, result: SSAValue, element: HeldElement) -> None:
    """Makes an element the value of a result: indices, i32 and i1 as they are, others in a register of their own."""
    final = Elements(lowering.emitter, lowering.target).rounded(element).held
    if result.type in (IndexType(), i1, i32):
        lowering.values[result] = final if isinstance(final, VirtualRegister | int) else _own(lowering, result, element)
    else:
        lowering.values[result] = [_own(lowering, result, HeldElement(final))]


def _own(lowering: KernelLowering, result: SSAValue, element: HeldElement) -> VirtualRegister:
    """A register that nothing else has, for what a loop carries is overwritten."""
    return lowering.emitter.compute(f"mov.{held_as(result.type)}", element.held)


def elements_of(packing: ElementPacking, kind: AnyVector, registers: Fragment) -> list[HeldElement]:
    """The elements of a vector."""
    element = element_row(kind.element_type)
    if element is None:
        return []
    return [packing.element(element, registers, number) for number in range(prod(kind.get_shape()))]


def _packed(packing: ElementPacking, kind: AnyVector, elements: Sequence[HeldElement]) -> Fragment:
    element = element_row(kind.element_type)
    each = 1 if element is None else max(1, 32 // element.memory_bits)
    return [packing.pack(kind.element_type, elements[n : n + each]) for n in range(0, len(elements), each)]


def constant(lowering: KernelLowering, op: arith.ConstantOp) -> None:
    """A constant that is no integer: a float, or a vector that is one number everywhere."""
    value, kind = op.value, op.result.type
    if isinstance(value, FloatAttr):
        give(lowering, op.result, HeldElement(literal(kind, value.value.data)))
        return
    if not isinstance(value, DenseIntOrFPElementsAttr) or not is_vector(kind) or not value.is_splat():
        fail(op, f"expected a number, or a vector that is one number everywhere, got {value}")
    packing = ElementPacking(lowering.emitter, Elements(lowering.emitter, lowering.target))
    vector_registers(lowering, op, kind)  # which refuses what registers cannot hold
    splat = value.get_values()[0]
    if isinstance(splat, tuple):
        fail(op, f"expected a real number, got {value}")
    number = HeldElement(literal(kind.element_type, splat))
    lowering.values[op.result] = _packed(packing, kind, [number] * prod(kind.get_shape()))


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
    elements = Elements(lowering.emitter, lowering.target)
    (result,) = op.results
    if isinstance(op, arith.MaxSIOp) and result.type == IndexType():
        lowering.values[result] = lowering.scalars.maximum(*lowering.indices(op.operands))
        return
    if not is_vector(result.type):
        give(lowering, result, elements.lower(op, [number_of(lowering, value) for value in op.operands]))
        return
    packing, scalar = ElementPacking(lowering.emitter, elements), _scalar_form(op)
    operands = [
        elements_of(packing, value.type, lowering.fragment(value)) for value in op.operands if is_vector(value.type)
    ]
    computed = [elements.lower(scalar, of_one) for of_one in zip(*operands, strict=True)]
    lowering.values[result] = _packed(packing, result.type, computed)


ARITHMETIC = (
    arith.AddfOp, arith.SubfOp, arith.MulfOp, arith.DivfOp, arith.NegfOp, arith.MaximumfOp, arith.MinimumfOp,
    arith.MaxnumfOp, arith.MinnumfOp, arith.CmpfOp, arith.ExtFOp, arith.TruncFOp, arith.SIToFPOp, arith.UIToFPOp,
    arith.FPToSIOp, arith.FPToUIOp, arith.ExtSIOp, arith.ExtUIOp, arith.TruncIOp, arith.MaxSIOp, arith.MaxUIOp,
    arith.DivSIOp, arith.RemSIOp, arith.ShLIOp, arith.ShRSIOp, arith.ShRUIOp,
    math.AbsFOp, math.FmaOp, math.FloorOp, math.CeilOp, math.RoundEvenOp, math.TruncOp, math.ExpOp, math.Exp2Op,
    math.LogOp, math.TanhOp, math.ErfOp, math.SqrtOp, math.RsqrtOp,
)  # fmt: skip
"""What is lowered as it is in the bodies of kernels on whole matrices."""

for _kind in ARITHMETIC:
    lowers(_kind)(arithmetic)


# Numbers of threads and CTAs; words that lanes exchange.

SIZES = {"gpu.block_dim": "%ntid", "gpu.grid_dim": "%nctaid"}
"""The special registers that hold the sizes of a CTA and of the grid."""


def _size(lowering: KernelLowering, op: Operation) -> None:
    if isinstance(op, gpu.BlockDimOp | gpu.GridDimOp):
        name = f"{SIZES[op.name]}.{op.dimension.data}"
        lowering.values[op.results[0]] = lowering.scalars.special(name, INDEX_LIMIT)


for _kind in (gpu.BlockDimOp, gpu.GridDimOp):
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
    packing = ElementPacking(lowering.emitter, Elements(lowering.emitter, lowering.target))
    part = elements_of(packing, kind, lowering.fragment(op.vector))[first:][:count]
    if is_vector(op.result.type):
        lowering.values[op.result] = _packed(packing, op.result.type, part)
    else:
        give(lowering, op.result, part[0])


@lowers(vector.InsertOp)
def _insert(lowering: KernelLowering, op: vector.InsertOp) -> None:
    kind = vector_of(op, op.dest)
    first, count = _part(op, kind)
    packing = ElementPacking(lowering.emitter, Elements(lowering.emitter, lowering.target))
    elements = elements_of(packing, kind, lowering.fragment(op.dest))
    source = op.source.type
    elements[first : first + count] = (
        elements_of(packing, source, lowering.fragment(op.source))
        if is_vector(source)
        else [number_of(lowering, op.source)]
    )
    lowering.values[op.result] = _packed(packing, kind, elements)


@lowers(vector.BroadcastOp)
def _broadcast(lowering: KernelLowering, op: vector.BroadcastOp) -> None:
    packing, kind = ElementPacking(lowering.emitter, Elements(lowering.emitter, lowering.target)), op.vector.type
    if is_vector(op.source.type):
        own = elements_of(packing, op.source.type, lowering.fragment(op.source))
    else:
        own = [number_of(lowering, op.source)]
    lowering.values[op.vector] = _packed(packing, kind, own * (prod(kind.get_shape()) // len(own)))
