"""Values of `llvm` for the operands of PTX: constants, bits as another type, pointers, vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from struct import pack
from typing import cast

from xdsl.dialects import llvm
from xdsl.dialects.builtin import (
    AnyFloat,
    BFloat16Type,
    DenseArrayBase,
    Float16Type,
    Float32Type,
    Float64Type,
    FloatAttr,
    IntAttr,
    IntegerAttr,
    IntegerType,
    NoneAttr,
    VectorType,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.utils.hints import isa

from ...dialect.mlir.llvm import CASTS, ExtractElementOp
from ...dialect.ptx.types import RegisterType, bits_of

FLOATS: dict[str, AnyFloat] = {"f16": Float16Type(), "bf16": BFloat16Type(), "f32": Float32Type(), "f64": Float64Type()}

SPACES = {"": 0, "global": 1, "shared": 3, "shared::cta": 3, "const": 4, "local": 5, "shared::cluster": 7, "param": 101}
"""The address spaces of LLVM's NVPTX by the state spaces of PTX."""

POINTERS = {name: llvm.LLVMPointerType(IntAttr(number) if number else NoneAttr()) for name, number in SPACES.items()}


def integer(bits: int) -> IntegerType:
    """The type of an integer."""
    return IntegerType(bits)


@lru_cache(64)
def register_type(type: str) -> Attribute:
    """What a register of PTX is in LLVM: a float where its type is one of 32 or 64 bits, else an integer."""
    return FLOATS[type] if type in ("f32", "f64") else IntegerType(1 if type == "pred" else bits_of(type))


@lru_cache(64)
def value_type(type: str) -> Attribute:
    """What an instruction's type is in LLVM: also halves, and pairs of them."""
    if type in ("f16x2", "bf16x2"):
        return VectorType(FLOATS[type[:-2]], [2])
    return FLOATS[type] if type in FLOATS else register_type(type)


def width(kind: Attribute) -> int:
    """Bits of a type."""
    if isa(kind, VectorType[Attribute]):
        return width(kind.element_type) * math.prod(kind.get_shape())
    if isa(kind, IntegerType):
        return kind.width.data
    return kind.bitwidth if isinstance(kind, AnyFloat) else 64


class Builder:
    """Adds operations at the end of a block."""

    def __init__(self, block: Block) -> None:
        self.block = block

    def add(self, op: Operation) -> SSAValue:
        """Adds an operation; its first result."""
        self.block.add_op(op)
        return op.results[0]

    def place(self, op: Operation) -> None:
        """Adds an operation without results."""
        self.block.add_op(op)

    def constant(self, value: int | float, kind: Attribute) -> SSAValue:
        """A number: floats that have no short decimal form by their bits."""
        if isa(kind, IntegerType):
            bits = kind.width.data
            number = int(value) & (1 << bits) - 1
            number -= (1 << bits) if bits > 1 and number >> (bits - 1) else 0
            return self.add(llvm.ConstantOp(IntegerAttr(number, kind), kind))
        if math.isfinite(value) and float(f"{value:.6e}") == value:
            return self.add(llvm.ConstantOp(FloatAttr(float(value), cast("Float32Type | Float64Type", kind)), kind))
        size, code = (32, "<f") if isinstance(kind, Float32Type) else (64, "<d")
        number = int.from_bytes(pack(code, value), "little")
        return self.cast(self.constant(number, IntegerType(size)), kind)

    def cast(self, value: SSAValue, kind: Attribute) -> SSAValue:
        """The same bits as another type: integers are cut, or filled with zeros."""
        if value.type == kind:
            return value
        have, want = width(value.type), width(kind)
        if have != want:
            value = self.cast(value, IntegerType(have))
            op = llvm.TruncOp if have > want else llvm.ZExtOp
            return self.cast(self.add(op(value, IntegerType(want))), kind)
        return self.add(llvm.BitcastOp(value, kind))

    def pointer(self, address: SSAValue, space: str) -> SSAValue:
        """A number as a pointer to a state space."""
        return self.add(llvm.IntToPtrOp.build(operands=[address], result_types=[POINTERS[space]]))

    def address(self, pointer: SSAValue, bits: int) -> SSAValue:
        """A pointer as a number."""
        return self.add(llvm.PtrToIntOp(pointer, IntegerType(bits)))

    def to_space(self, pointer: SSAValue, space: str) -> SSAValue:
        """A generic pointer as one to a state space, or the other way round."""
        return self.add(CASTS["addrspacecast"](pointer, POINTERS[space]))

    def offset(self, address: SSAValue, bytes: int) -> SSAValue:
        """An address some bytes further."""
        return address if not bytes else self.add(llvm.AddOp(address, self.constant(bytes, address.type)))

    def extract(self, container: SSAValue, count: int) -> list[SSAValue]:
        """The elements of a struct or of a vector."""
        if isa(container.type, VectorType[Attribute]):
            places = (self.constant(i, IntegerType(32)) for i in range(count))
            return [self.add(ExtractElementOp(container, place)) for place in places]
        kinds = cast("llvm.LLVMStructType", container.type).types
        return [
            self.add(llvm.ExtractValueOp(DenseArrayBase.from_list(i64, [i]), container, kind))
            for i, kind in enumerate(kinds)
        ]

    def vector(self, values: Sequence[SSAValue]) -> SSAValue:
        """Values of one type as a vector."""
        vector = self.add(llvm.UndefOp(VectorType(values[0].type, [len(values)])))
        for i, value in enumerate(values):
            vector = self.add(llvm.InsertElementOp(vector, value, self.constant(i, IntegerType(32))))
        return vector

    def struct(self, values: Sequence[SSAValue]) -> SSAValue:
        """Values as a struct."""
        made = self.add(llvm.UndefOp(struct([value.type for value in values])))
        for i, value in enumerate(values):
            made = self.add(llvm.InsertValueOp(DenseArrayBase.from_list(i64, [i]), made, value))
        return made

    def intrinsic(self, name: str, arguments: Sequence[SSAValue], kind: Attribute) -> SSAValue:
        """What a function of LLVM gives that has no operation of its own."""
        return self.add(llvm.CallIntrinsicOp(f"llvm.{name}", arguments, [kind]))


def declared_type(register: SSAValue) -> str:
    """The type that a `ptx.reg` is declared with; `ptx.inst` takes no other values."""
    return cast("RegisterType", register.type).type.data


def struct(kinds: Sequence[Attribute]) -> llvm.LLVMStructType:
    """The type of several values together."""
    return llvm.LLVMStructType.from_type_list(kinds)
