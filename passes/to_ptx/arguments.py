"""Parameters of a kernel: how they are declared, and what a thread has of them."""

from __future__ import annotations

from math import gcd

from xdsl.dialects import gpu
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute, BlockArgument, SSAValue

from ...dialect.isa.tensor_map import MAP_ALIGNMENT
from ...dialect.isa.tensor_map import SIZE as MAP_BYTES
from ...dialect.ptx.text.syntax import Address, Symbol
from ...dialect.ptx.types import ParamAttr
from ...dialect.warp.attributes import Memory, element_row, is_memory, memory_of, memory_space
from ...dialect.warp.tensor_maps import TensorMapType
from ...dialect.warp.view import Dimensions, dynamic_parts, strides_of
from ..diagnostics import fail
from ..linalg.extents import kernel_promised
from ..linalg.matrices import GLOBAL_SPACE
from .addressing import ALIGNMENT, GlobalMatrix, MemoryArgument
from .emitter import Emitter, divisor_of
from .operands import IndexValue, VirtualRegister
from .scalars import Scalars

INDEX_LIMIT = 1 << 31


NUMBERS = {"f32": "f32", "f64": "f64", "f16": "b16", "bf16": "b16", "i8": "b8", "i16": "b16", "i32": "b32"}
"""How a number is declared, by its MLIR type."""


def parameters(kernel: gpu.FuncOp, value: SSAValue, name: str) -> list[ParamAttr]:
    """The declarations of what an argument of a kernel is passed as: a number, or the address of the first element,
    the sizes of dynamic dimensions and then dynamic strides, in elements."""
    if isinstance(value.type, TensorMapType):
        return [ParamAttr.of("b8", name, count=MAP_BYTES, align=MAP_ALIGNMENT)]
    if str(value.type) in NUMBERS:
        return [ParamAttr.of(NUMBERS[str(value.type)], name)]
    pointer = ParamAttr.of("u64", name, pointer=f".ptr .global .align {alignment(value.type, divisor(kernel, value))}")
    sizes, strides = dynamic_parts(memory_of(value))
    return [
        pointer,
        *(ParamAttr.of("u32", f"{name}_size{i}") for i in sizes),
        *(ParamAttr.of("u64", f"{name}_stride{i}") for i in strides),
    ]


def divisor(kernel: gpu.FuncOp, value: SSAValue) -> int:
    """What divides the dynamic sizes along neighbouring elements, the dynamic strides and offset of an argument."""
    return kernel_promised(kernel, value.index) if isinstance(value, BlockArgument) else 1


def alignment(kind: Attribute, divisor: int = 1) -> int:
    """Bytes that divide the address of an argument's first element: it lies at the offset of its layout from the
    start of an allocation."""
    if not is_memory(kind) or (element := element_row(kind.element_type)) is None:
        return ALIGNMENT
    size = max(1, element.memory_bits // 8)
    offset = kind.get_offset()
    return gcd(
        ALIGNMENT,
        max(size, divisor * element.memory_bits // 8) if offset is None else offset * element.memory_bits // 8,
    )


def argument(
    kernel: gpu.FuncOp, emitter: Emitter, scalars: Scalars, value: SSAValue, name: str
) -> MemoryArgument | VirtualRegister:
    """What stands for an argument of the kernel: memory, of one row if it is a vector, a number's register, or that of
    the address of a tensor map.

    Raises a located diagnostic for what is no strided memory, or too large for 32-bit indices.
    """
    if isinstance(value.type, TensorMapType):
        return emitter.pure("cvta.param.u64", emitter.pure("mov.b64", Symbol(name)))
    if not isinstance(value.type, MemRefType):
        return _number(kernel, emitter, value, name)
    kind = memory_of(value)
    shape, strides = kind.get_shape(), strides_of(kind)
    if memory_space(kind) != GLOBAL_SPACE or strides is None:
        fail(kernel, f"expected kernel arguments in global memory, strided, got {kind}")
    element = element_row(kind.element_type)
    if element is None:
        fail(kernel, f"expected an element type of a matrix instruction, got {kind}")
    known = [stride or 0 for stride in strides]
    if max((0, *shape, *(n * element.memory_bits // 8 for n in (*shape[-1:], *known[-2:])))) >= INDEX_LIMIT:
        fail(kernel, f"indices and rows must stay below 2^31 elements and bytes, got {kind}")
    base = emitter.pure("cvta.to.global.u64", _passed(emitter, "u64", name))
    by = divisor(kernel, value)
    aligned = alignment(kind, by)
    if dynamic_parts(kind) == ([], []):
        return MemoryArgument(base, shape, tuple(known), element.memory_bits, aligned)
    sizes = _sizes(emitter, kind, name, by)
    return MemoryArgument(base, sizes, _strides(emitter, scalars, kind, sizes, name, by), element.memory_bits, aligned)


def _sizes(emitter: Emitter, kind: Memory, name: str, divisor: int) -> tuple[IndexValue, ...]:
    """The sizes of memory; those that are passed are registers."""
    found: list[IndexValue] = []
    for i, (size, stride) in enumerate(zip(kind.get_shape(), strides_of(kind) or (), strict=True)):
        if size < 0:
            register = _passed(emitter, "u32", f"{name}_size{i}")
            register.divisor = divisor if stride == 1 else 1
            found.append(register)
        else:
            found.append(size)
    return tuple(found)


def _strides(
    emitter: Emitter, scalars: Scalars, kind: Memory, sizes: tuple[IndexValue, ...], name: str, divisor: int
) -> tuple[IndexValue, ...]:
    """The strides of memory in elements; those that are not known are 64-bit registers."""
    found: list[IndexValue] = []
    _, passed = dynamic_parts(kind)
    for i, stride in enumerate(strides_of(kind) or ()):
        if stride is not None:
            found.append(stride)
        elif i in passed:
            register = _passed(emitter, "u64", f"{name}_stride{i}")
            register.divisor = divisor
            found.append(register)
        else:
            found.append(scalars.product64(sizes[i + 1 :]))
    return tuple(found)


def _number(kernel: gpu.FuncOp, emitter: Emitter, value: SSAValue, name: str) -> VirtualRegister:
    kind = str(value.type)
    if kind not in NUMBERS:
        fail(kernel, f"expected kernel arguments to be memrefs or numbers of {', '.join(NUMBERS)}, got {kind}")
    if kind == "f16":
        return emitter.pure("cvt.f32.f16", _passed(emitter, "b16", name))
    if kind == "bf16":
        # The bits of a bf16 are the upper half of the same f32.
        word = emitter.pure("shl.b32", _passed(emitter, "u16", name, "b32"), 16)
        return emitter.pure("mov.b32", word, type="f32")
    if kind.startswith("i"):
        return _passed(emitter, f"s{kind[1:]}", name, "b32")
    return _passed(emitter, kind, name)


def _passed(emitter: Emitter, kind: str, name: str, type: str = "") -> VirtualRegister:
    """A parameter of a PTX type, in a register of `type` if that is wider."""
    return emitter.pure(f"ld.param.{kind}", Address(Symbol(name)), type=type)


def matrix(
    kernel: gpu.FuncOp, scalars: Scalars, memory: MemoryArgument, dimensions: Dimensions, at: list[IndexValue]
) -> GlobalMatrix:
    """The matrix of memory whose rows and columns are two of its dimensions, or repeated, at an index of each other.

    Raises a located diagnostic for rows of elements that do not start with a byte. What is left of the last byte of a
    row is taken for elements too: it must be zero in memory.
    """
    row, column = dimensions
    bits, packed = memory.element_bits, max(1, 8 // memory.element_bits)
    others = [stride for i, stride in enumerate(memory.strides) if i not in dimensions]
    base, aligned = memory.base, memory.alignment
    for index, stride in zip(at, others, strict=True):
        base = scalars.offset_far(base, index, stride, bits)
        aligned = gcd(aligned, divisor_of(index) * divisor_of(stride) * bits // 8)
    rows, pitch = (1, 0) if row is None else (memory.shape[row], memory.strides[row])
    length, step = (1, 0) if column is None else (memory.shape[column], memory.strides[column])
    whole = all(divisor_of(v) % packed == 0 for v in (pitch, *others))
    if packed > 1 and (step != 1 or not whole or (isinstance(length, VirtualRegister) and length.divisor % packed)):
        hint = f"; warp.divisible = {packed} promises them where sizes are not known"
        if isinstance(length, int):
            hint = f", got {length} {bits}-bit elements; strided<[{-(-length // packed) * packed}, 1]> pads them"
        fail(kernel, f"expected rows of whole bytes, {packed} elements each{hint}")
    return GlobalMatrix(
        base,
        rows,
        -(-length // packed) if isinstance(length, int) else scalars.quotient(length, packed),
        max(1, bits // 8),
        packed,
        scalars.bytes_of(pitch, bits),
        aligned,
        None if step == 1 else scalars.bytes_of(step, bits),
    )
