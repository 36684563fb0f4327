"""Kernels that are `llvm.func` with operations of `nvvm` and `llvm`, as LLVM's own printer of PTX takes them.

Every value is a register, or several: of a struct its parts, of a vector its words. What an operation of `nvvm` says of
its instruction is held against the rows of the ISA: one that does not exist, or that the target lacks, is refused.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TypeAlias

from xdsl.dialects import llvm
from xdsl.dialects.builtin import AnyFloat, FloatAttr, IntAttr, IntegerAttr, IntegerType, VectorType, i1
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.utils.hints import isa

from ...dialect.isa.row import Target, Version
from ...dialect.ptx.ops import FuncOp
from ...dialect.ptx.text.syntax import Address, Immediate, Symbol, Variable
from ...dialect.ptx.types import VariableAttr
from ..diagnostics import fail
from .emitter import EmittedOperand, Emitter, ScalarOperand, VirtualRegister

POINTERS = {0: "", 1: "global", 3: "shared", 4: "const", 5: "local", 7: "shared::cluster", 101: "param"}
"""The state spaces of PTX by the address spaces of LLVM; generic addresses have none."""

Words: TypeAlias = "list[VirtualRegister | Immediate]"
"""What holds a value: registers, or literals."""


def bits_of(kind: Attribute) -> int:
    """The bits of a value: of a pointer those of an address in its space."""
    if isa(kind, VectorType[Attribute]):
        return prod(kind.get_shape()) * bits_of(kind.element_type)
    if isa(kind, IntegerType):
        return kind.width.data
    if isinstance(kind, llvm.LLVMPointerType):
        return 32 if space_of(kind) in ("shared", "shared::cluster") else 64
    return kind.bitwidth if isinstance(kind, AnyFloat) else 0


def space_of(kind: Attribute) -> str:
    """The state space of a pointer."""
    space = kind.addr_space if isinstance(kind, llvm.LLVMPointerType) else None
    return POINTERS.get(space.data, "") if isinstance(space, IntAttr) else ""


def types_of(kind: Attribute) -> list[str]:
    """The types of the registers that hold a value."""
    if isinstance(kind, llvm.LLVMStructType):
        return [type for part in kind.types for type in types_of(part)]
    if isa(kind, VectorType[Attribute]):
        element, count = bits_of(kind.element_type), prod(kind.get_shape())
        return types_of(kind.element_type) * count if element >= 32 else ["b32"] * (element * count // 32)
    if kind == i1:
        return ["pred"]
    bits = bits_of(kind)
    if isinstance(kind, AnyFloat) and bits >= 32:
        return [f"f{bits}"]
    return [f"b{max(16, bits)}"] if bits in (8, 16, 32, 64) else []


class LlvmKernel:
    """Lowers the body of one kernel; `emitter` then holds it."""

    def __init__(self, function: llvm.FuncOp, target: Target, symbols: dict[str, str]) -> None:
        """`symbols` are the state spaces of the module's variables."""
        self.function = function
        self.symbols = symbols
        self.emitter = Emitter(target, function)
        self.values: dict[SSAValue, Words] = {}
        self.labels = {block: f"bb_{i}" for i, block in enumerate(function.body.blocks)}

    # Registers and instructions

    @property
    def operation(self) -> Operation:
        """The operation that is being lowered."""
        return self.emitter.operation or self.function

    def fresh(self, kind: Attribute) -> list[VirtualRegister]:
        """Registers for a value."""
        types = types_of(kind)
        if not types:
            fail(self.operation, f"{self.operation.name}: there are no registers for {kind}")
        return [self.emitter.register(type) for type in types]

    def emit(self, opcode: str, *operands: EmittedOperand) -> None:
        """Adds an instruction; fails at the operation, if there is no such instruction or the target lacks it."""
        self.emitter.emit(opcode, *operands)

    def compute(self, opcode: str, kind: Attribute, *operands: EmittedOperand) -> VirtualRegister:
        """The register that an instruction sets."""
        (result,) = self.fresh(kind)
        self.emit(opcode, result, *operands)
        return result

    # Values

    def words(self, value: SSAValue) -> Words:
        """The registers, or literals, of a value."""
        words = self.values.get(value)
        if words is None:
            fail(self.operation, f"{self.operation.name}: an operand of type {value.type} has no value here")
        return words

    def word(self, value: SSAValue) -> VirtualRegister | Immediate:
        words = self.words(value)
        if len(words) != 1:
            fail(self.operation, f"{self.operation.name}: expected a value of one register, got {value.type}")
        return words[0]

    def held(self, value: SSAValue) -> VirtualRegister:
        """The register of a value; literals are moved to one."""
        self.word(value)
        return self.registers(value)[0]

    def registers(self, value: SSAValue) -> list[VirtualRegister]:
        """The registers of a value; literals are moved to some."""
        return [
            word if isinstance(word, VirtualRegister) else self._moved(word, type)
            for word, type in zip(self.words(value), types_of(value.type), strict=True)
        ]

    def _moved(self, literal: Immediate, type: str) -> VirtualRegister:
        if type == "pred":
            return self.emitter.compute("setp.ne.s32", literal, 0)
        return self.emitter.compute(f"mov.{type}", literal, type=type)

    def give(self, op: Operation, *words: VirtualRegister | Immediate) -> None:
        """Makes registers the value of an operation's result."""
        self.values[op.results[0]] = list(words)

    # The function

    def lower(self, lower: Callable[[LlvmKernel, Operation, Block | None], None]) -> tuple[FuncOp, Version]:
        """The kernel, and the first PTX version that has all its instructions."""
        parameters = self._parameters()
        blocks = list(self.function.body.blocks)
        for block in blocks[1:]:
            for argument in block.args:
                self.values[argument] = [*self.fresh(argument.type)]
        for i, block in enumerate(blocks):
            if i:
                self.emitter.label(self.labels[block])
            for op in block.ops:
                self.emitter.operation = op
                lower(self, op, blocks[i + 1] if i + 1 < len(blocks) else None)
        name, body = self.function.sym_name.data, self.emitter.finish()
        return FuncOp(name, body, parameters=parameters, directives=self._directives()), self.emitter.version

    def _parameters(self) -> list[VariableAttr]:
        """The parameters in the text, each loaded to the register of its argument."""
        arguments = self.function.body.blocks[0].args
        attributes = None if self.function.arg_attrs is None else [each.data for each in self.function.arg_attrs]
        made: list[VariableAttr] = []
        for i, argument in enumerate(arguments):
            name = f"{self.function.sym_name.data}_param_{i}"
            said: Mapping[str, Attribute] = {} if attributes is None else attributes[i]
            by_value, align = said.get("llvm.byval"), said.get("llvm.align")
            alignment = align.value.data if isa(align, IntegerAttr) else None
            if isinstance(by_value, llvm.LLVMArrayType):
                size = by_value.size.data * bits_of(by_value.type) // 8
                made.append(VariableAttr.of("b8", name, count=size, align=alignment))
                place = self.compute("mov.b64", argument.type, Symbol(name))
                self.values[argument] = [self.compute("cvta.param.u64", argument.type, place)]
                continue
            types = types_of(argument.type)
            if len(types) != 1 or types == ["pred"]:
                fail(self.function, f"expected arguments of one register, got {argument.type}")
            type = f"u{types[0][1:]}" if types[0][0] == "b" else types[0]
            space = space_of(argument.type)
            pointer = f".ptr .{space} .align {alignment or 1}" if space == "global" else ""
            made.append(VariableAttr.of(type, name, pointer=pointer))
            self.values[argument] = [self.compute(f"ld.param.{type}", argument.type, Address(Symbol(name)))]
        return made

    def _directives(self) -> list[str]:
        made: list[str] = []
        for name, text in _DIRECTIVES.items():
            value = self.function.attributes.get(name)
            if value is None:
                continue
            numbers = re.findall(r"(?<![iu])\b\d+\b(?!:)", str(value).replace("i32", "").replace("i64", ""))
            made.append(f"{text} {', '.join(numbers)}")
        if any(line.startswith(".reqnctapercluster") for line in made):
            made.append(".explicitcluster")
        return made

    # Jumps

    def jump(self, to: Block, passed: Sequence[SSAValue], following: Block | None) -> None:
        """Sets the arguments of a block, all at once, and jumps to it."""
        moves: list[tuple[VirtualRegister, ScalarOperand]] = []
        for argument, value in zip(to.args, passed, strict=True):
            sources = self.registers(value) if value.type == i1 else self.words(value)
            pairs = zip(self.registers(argument), sources, strict=True)
            moves += [(into, source) for into, source in pairs if into is not source]
        self.emitter.move_all(moves)
        if to is not following:
            self.emitter.branch(self.labels[to])


_DIRECTIVES = {
    "nvvm.reqntid": ".reqntid", "nvvm.maxntid": ".maxntid", "nvvm.cluster_dim": ".reqnctapercluster",
    "nvvm.minctasm": ".minnctapersm", "nvvm.maxnreg": ".maxnreg", "nvvm.cluster_max_blocks": ".maxclusterrank",
}  # fmt: skip


def literal(attribute: Attribute, kind: Attribute) -> Immediate:
    """A number as PTX writes it: floats by their bits."""
    if isa(attribute, FloatAttr):
        bits, value = bits_of(kind), attribute.value.data
        code, prefix = {16: ("<e", "0x"), 32: ("<f", "0f"), 64: ("<d", "0d")}[bits]
        return Immediate(f"{prefix}{int.from_bytes(struct.pack(code, value), 'little'):0{bits // 4}X}")
    value = attribute.value.data if isa(attribute, IntegerAttr) else 0
    return Immediate(str(-value if kind == i1 and value < 0 else value))


def variable(op: llvm.GlobalOp) -> Variable:
    """A variable of the module."""
    kind, space = op.global_type, POINTERS.get(op.addr_space.value.data, "")
    if space not in ("shared", "global") or op.value is not None or not isinstance(kind, llvm.LLVMArrayType):
        fail(op, "expected an array in shared or global memory without initial values")
    align = None if op.alignment is None else op.alignment.value.data
    linking = "extern" if kind.size.data == 0 else ""
    count = kind.size.data * bits_of(kind.type) // 8
    return Variable(space, "b8", op.sym_name.data, count=count, align=align, linking=linking)
