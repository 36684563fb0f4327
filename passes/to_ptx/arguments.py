"""Parameters of a kernel: how they are declared, and what a thread has of them."""

from __future__ import annotations

from math import gcd

from xdsl.dialects import gpu
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.hints import isa

from ...dialect.ptx.types import ParamAttr
from ...dialect.warp.attributes import element_row, memory_of, memory_space
from ...dialect.warp.view import strides_of
from ..diagnostics import fail
from ..product import GLOBAL_SPACE
from .addressing import ALIGNMENT, GlobalMatrix, GlobalMemory
from .emitter import Emitter, Register, Value, divisor_of
from .scalars import Scalars

INDEX_LIMIT = 1 << 31


NUMBERS = {"f32": "f32", "f64": "f64", "f16": "b16", "bf16": "b16", "i8": "b8", "i16": "b16", "i32": "b32"}
"""How a number is declared, by its MLIR type."""


def parameters(kind: Attribute, name: str) -> list[ParamAttr]:
    """The declarations of what an argument of a kernel is passed as: a number, or the address of the first element."""
    if str(kind) in NUMBERS:
        return [ParamAttr.of(NUMBERS[str(kind)], name)]
    return [ParamAttr.of("u64", name, pointer=f".ptr .global .align {alignment(kind)}")]


def alignment(kind: Attribute) -> int:
    """Bytes that divide the address of an argument's first element: it lies at the offset of its layout from the
    start of an allocation."""
    if not isa(kind, MemRefType[Attribute]) or (element := element_row(kind.element_type)) is None:
        return ALIGNMENT
    size = max(1, element.bits // 8)
    offset = kind.get_offset()
    return size if offset is None else gcd(ALIGNMENT, offset * element.bits // 8)


def argument(kernel: gpu.FuncOp, emitter: Emitter, value: SSAValue, name: str) -> GlobalMemory | Register:
    """What stands for an argument of the kernel: memory, of one row if it is a vector, or a number's register.

    Raises a located diagnostic for what is no strided memory, or too large for 32-bit indices.
    """
    if not isinstance(value.type, MemRefType):
        return _number(kernel, emitter, value, name)
    kind = memory_of(value)
    shape, strides = kind.get_shape(), strides_of(kind)
    if not shape or min(shape) < 0:
        fail(kernel, f"expected kernel arguments to be memrefs of rank 1 or more and static size, got {kind}")
    if len(shape) == 1 and strides is not None:
        shape, strides = (1, *shape), (shape[0], *strides)
    if memory_space(kind) != GLOBAL_SPACE or strides is None:
        fail(kernel, f"expected kernel arguments in global memory, strided, got {kind}")
    element = element_row(kind.element_type)
    if element is None:
        fail(kernel, f"expected an element type of a matrix instruction, got {kind}")
    known = [stride or 0 for stride in strides]
    if max(*shape, *known[-2:], shape[-1] * element.bits // 8, known[-2] * element.bits // 8) >= INDEX_LIMIT:
        fail(kernel, f"indices and rows must stay below 2^31 elements and bytes, got {kind}")
    pointer = emitter.pure("b64", "ld.param.u64", f"[{name}]")
    base = emitter.pure("b64", "cvta.to.global.u64", "?", pointer)
    return GlobalMemory(base, shape, tuple(known), element.bits, alignment(kind))


def _number(kernel: gpu.FuncOp, emitter: Emitter, value: SSAValue, name: str) -> Register:
    kind = str(value.type)
    if kind not in NUMBERS:
        fail(kernel, f"expected kernel arguments to be memrefs or numbers of {', '.join(NUMBERS)}, got {kind}")
    if kind == "f16":
        return emitter.pure("f32", "cvt.f32.f16", "?", emitter.pure("b16", "ld.param.b16", f"[{name}]"))
    if kind == "bf16":
        # The bits of a bf16 are the upper half of the same f32.
        word = emitter.pure("b32", "shl.b32", "?, 16", emitter.pure("b32", "ld.param.u16", f"[{name}]"))
        return emitter.pure("f32", "mov.b32", "?", word)
    if kind.startswith("i"):
        return emitter.pure("b32", f"ld.param.s{kind[1:]}", f"[{name}]")
    return emitter.pure(kind, f"ld.param.{kind}", f"[{name}]")


def matrix(
    kernel: gpu.FuncOp, scalars: Scalars, memory: GlobalMemory, dimensions: tuple[int, int], at: list[Value]
) -> GlobalMatrix:
    """The matrix of memory whose rows and columns are two of its dimensions, at an index of each other one.

    Raises a located diagnostic for rows of elements that are no whole bytes.
    """
    row, column = dimensions
    bits, packed = memory.element_bits, max(1, 8 // memory.element_bits)
    others = [stride for i, stride in enumerate(memory.strides) if i not in dimensions]
    base, aligned = memory.base, memory.alignment
    for index, stride in zip(at, others, strict=True):
        base = scalars.offset_far(base, index, stride, bits)
        aligned = gcd(aligned, divisor_of(index) * divisor_of(stride) * bits // 8)
    if any(divisor_of(v) % packed for v in (memory.shape[column], memory.strides[row], *others)):
        fail(kernel, f"expected rows of whole bytes, {packed} elements each")
    columns, pitch = scalars.quotient(memory.shape[column], packed), scalars.bytes_of(memory.strides[row], bits)
    return GlobalMatrix(base, memory.shape[row], columns, max(1, bits // 8), packed, pitch, aligned)
