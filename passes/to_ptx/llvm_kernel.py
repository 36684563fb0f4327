"""Kernels that are `llvm.func` with operations of `nvvm` and `llvm`, as LLVM's own printer of PTX takes them.

Every value is a register, or several: of a struct its parts, of a vector its words. What an operation of `nvvm` says of
its instruction is held against the rows of the ISA: one that does not exist, or that the target lacks, is refused.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import NamedTuple, TypeAlias

from xdsl.dialects import llvm
from xdsl.dialects.builtin import AnyFloat, FloatAttr, IntAttr, IntegerAttr, IntegerType, VectorType, i1, i16
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.utils.hints import isa

from ...dialect.isa.row import Target, Version
from ...dialect.ptx.instruction import InstOp, InstructionError, facts_of
from ...dialect.ptx.ops import FuncOp, LabelOp
from ...dialect.ptx.text.syntax import Variable
from ...dialect.ptx.types import RegOp, VariableAttr
from ..diagnostics import fail

POINTERS = {0: "", 1: "global", 3: "shared", 4: "const", 5: "local", 6: "tensor", 7: "shared::cluster", 101: "param"}
"""The state spaces of PTX by the address spaces of LLVM; generic addresses have none."""

_NAMES = {"pred": "%p", "b16": "%h", "b32": "%r", "b64": "%rd", "f32": "%f", "f64": "%d"}


class HeldRegister(NamedTuple):
    """One register, by its place among those of its type."""

    type: str
    number: int


class AddressOf(NamedTuple):
    """An address: a register, or a name."""

    base: HeldRegister | str


class ResultAndPredicate(NamedTuple):
    """A result, or `_`, and a predicate."""

    first: HeldRegister | str
    second: HeldRegister


Words: TypeAlias = "list[HeldRegister | str]"

KernelOperand: TypeAlias = (
    HeldRegister | str | AddressOf | ResultAndPredicate | Sequence[HeldRegister | str]
    | tuple[AddressOf, Sequence[HeldRegister | str]]
)  # fmt: skip
"""What stands in an instruction: a register, text, an address, a vector, a place in a tensor."""


class KernelLine(NamedTuple):
    """An instruction, or a label where there is no opcode."""

    opcode: str
    form: str
    registers: tuple[HeldRegister, ...] = ()
    guard: str = ""


def bits_of(kind: Attribute) -> int:
    """The bits of a value: of a pointer those of an address in its space."""
    if isa(kind, VectorType[Attribute]):
        return prod(kind.get_shape()) * bits_of(kind.element_type)
    if isa(kind, IntegerType):
        return kind.width.data
    if isinstance(kind, llvm.LLVMPointerType):
        return 32 if space_of(kind) in ("shared", "tensor", "shared::cluster") else 64
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
    """Lowers the body of one kernel to lines."""

    def __init__(self, function: llvm.FuncOp, target: Target, symbols: dict[str, str]) -> None:
        """`symbols` are the state spaces of the module's variables."""
        self.function = function
        self.target = target
        self.symbols = symbols
        self.operation: Operation = function
        self.lines: list[KernelLine] = []
        self.counts: dict[str, int] = {}
        self.values: dict[SSAValue, Words] = {}
        self.version: Version = target.ptx
        self.labels = {block: f"bb_{i}" for i, block in enumerate(function.body.blocks)}

    # Registers and instructions

    def register(self, type: str) -> HeldRegister:
        number = self.counts.get(type, 0)
        self.counts[type] = number + 1
        return HeldRegister(type, number)

    def fresh(self, kind: Attribute) -> list[HeldRegister]:
        """Registers for a value."""
        types = types_of(kind)
        if not types:
            fail(self.operation, f"{self.operation.name}: there are no registers for {kind}")
        return [self.register(type) for type in types]

    def emit(
        self, opcode: str, *operands: KernelOperand, guard: str = "", predicate: HeldRegister | None = None
    ) -> None:
        """Adds an instruction.

        Raises:
            DiagnosticException: at the operation, if there is no such instruction or the target lacks it.
        """
        registers: list[HeldRegister] = []
        form = ", ".join([self._text(operand, registers) for operand in operands])
        if opcode in ("bra", "ret"):
            self.lines.append(KernelLine(opcode, form, () if predicate is None else (predicate,), guard))
        else:
            self.instruction(opcode, form, registers)

    def instruction(self, opcode: str, form: str, registers: Sequence[HeldRegister]) -> None:
        """Adds an instruction whose operands are a form, as `ptx.inst` has them."""
        try:
            types = tuple(register.type for register in registers)
            self.version = max(self.version, facts_of(opcode, form, types, self.target).since)
        except InstructionError as error:
            fail(self.operation, f"{self.operation.name}: {error}")
        self.lines.append(KernelLine(opcode, form, tuple(registers)))

    def label(self, name: str) -> None:
        self.lines.append(KernelLine("", name))

    def _text(self, operand: KernelOperand, registers: list[HeldRegister]) -> str:
        match operand:
            case str():
                return operand
            case HeldRegister():
                registers.append(operand)
                return "?"
            case AddressOf():
                return f"[{self._text(operand.base, registers)}]"
            case ResultAndPredicate():
                return f"{self._text(operand.first, registers)}|{self._text(operand.second, registers)}"
            case (AddressOf() as base, coordinates):
                inner = self._text(base.base, registers)
                return f"[{inner}, {self._text(list(coordinates), registers)}]"
            case _:
                return f"{{{', '.join([self._text(each, registers) for each in operand])}}}"

    def compute(self, opcode: str, kind: Attribute, *operands: KernelOperand) -> HeldRegister:
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

    def word(self, value: SSAValue) -> HeldRegister | str:
        words = self.words(value)
        if len(words) != 1:
            fail(self.operation, f"{self.operation.name}: expected a value of one register, got {value.type}")
        return words[0]

    def held(self, value: SSAValue) -> HeldRegister:
        """The register of a value; literals are moved to one."""
        word = self.word(value)
        if isinstance(word, HeldRegister):
            return word
        if value.type == i1:
            return self.compute("setp.ne.s32", i1, word, "0")
        (type,) = types_of(value.type)
        return self.compute(f"mov.{type}", value.type, word)

    def give(self, op: Operation, *words: HeldRegister | str) -> None:
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
                self.label(self.labels[block])
            for op in block.ops:
                self.operation = op
                lower(self, op, blocks[i + 1] if i + 1 < len(blocks) else None)
        name = self.function.sym_name.data
        return FuncOp(name, self._body(), parameters=parameters, directives=self._directives()), self.version

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
                place = self.compute("mov.b64", argument.type, name)
                self.values[argument] = [self.compute("cvta.param.u64", argument.type, place)]
                continue
            types = types_of(argument.type)
            if types == ["pred"]:
                made.append(VariableAttr.of("u8", name))
                byte = self.compute("ld.param.u8", i16, AddressOf(name))
                self.values[argument] = [resized(self, byte, i16, i1)]
                continue
            if len(types) != 1:
                fail(self.function, f"expected arguments of one register, got {argument.type}")
            type = f"u{types[0][1:]}" if types[0][0] == "b" else types[0]
            space = space_of(argument.type)
            pointer = f".ptr .{space} .align {alignment or 1}" if space == "global" else ""
            made.append(VariableAttr.of(type, name, pointer=pointer))
            self.values[argument] = [self.compute(f"ld.param.{type}", argument.type, AddressOf(name))]
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

    def _body(self) -> list[Operation]:
        declared = {type: RegOp(type, _NAMES[type], count) for type, count in self.counts.items()}
        body: list[Operation] = list(declared.values())
        for line in self.lines:
            if not line.opcode:
                body.append(LabelOp(line.form))
                continue
            registers = [declared[register.type].results[register.number] for register in line.registers]
            body.append(InstOp.of(line.opcode, line.form, registers, line.guard))
        return body

    # Jumps

    def jump(self, to: Block, passed: Sequence[SSAValue], following: Block | None) -> None:
        """Sets the arguments of a block, all at once, and jumps to it."""
        moves: list[tuple[HeldRegister, HeldRegister | str]] = []
        for argument, value in zip(to.args, passed, strict=True):
            pairs = zip(self.words(argument), self.words(value), strict=True)
            moves += [(d, s) for d, s in pairs if isinstance(d, HeldRegister) and d != s]
        written = {target for target, _ in moves}
        for i, (target, source) in enumerate(moves):
            if isinstance(source, HeldRegister) and source in written:
                saved = self.register(source.type)
                self._move(saved, source)
                moves[i] = (target, saved)
        for target, source in moves:
            self._move(target, source)
        if to is not following:
            self.emit("bra", self.labels[to])

    def _move(self, target: HeldRegister, source: HeldRegister | str) -> None:
        if target.type == "pred" and isinstance(source, str):
            self.emit("setp.ne.s32", target, source, "0")
        else:
            self.emit(f"mov.{target.type}", target, source)


def resized(
    kernel: LlvmKernel, register: HeldRegister, kind: Attribute, to: Attribute, signed: bool = False
) -> HeldRegister:
    """An integer, or an address, of more or fewer bits."""
    have, want = bits_of(kind), bits_of(to)
    if kind == i1:
        return kernel.compute(f"selp.b{max(16, want)}", to, "-1" if signed else "1", "0", register)
    if to == i1:
        word = kernel.compute(f"and.b{max(16, have)}", kind, register, "1")
        return kernel.compute(f"setp.ne.s{max(16, have)}", i1, word, "0")
    sign = "s" if signed else "u"
    if have == 8 and want > 8:
        register = kernel.compute(f"cvt.{sign}16.{sign}8", IntegerType(16), register)
        have = 16
    if max(16, have) == max(16, want):
        return register
    return kernel.compute(f"cvt.{sign}{max(16, want)}.{sign}{max(16, have)}", to, register)


_DIRECTIVES = {
    "nvvm.reqntid": ".reqntid", "nvvm.maxntid": ".maxntid", "nvvm.cluster_dim": ".reqnctapercluster",
    "nvvm.minctasm": ".minnctapersm", "nvvm.maxnreg": ".maxnreg", "nvvm.cluster_max_blocks": ".maxclusterrank",
}  # fmt: skip


def literal(attribute: Attribute, kind: Attribute) -> str:
    """A number as PTX writes it: floats by their bits."""
    if isa(attribute, FloatAttr):
        bits, value = bits_of(kind), attribute.value.data
        code, prefix = {16: ("<e", "0x"), 32: ("<f", "0f"), 64: ("<d", "0d")}[bits]
        return f"{prefix}{int.from_bytes(struct.pack(code, value), 'little'):0{bits // 4}X}"
    value = attribute.value.data if isa(attribute, IntegerAttr) else 0
    return str(-value if kind == i1 and value < 0 else value)


def variable(op: llvm.GlobalOp) -> Variable:
    """A variable of the module."""
    kind, space = op.global_type, POINTERS.get(op.addr_space.value.data, "")
    if space not in ("shared", "global") or op.value is not None or not isinstance(kind, llvm.LLVMArrayType):
        fail(op, "expected an array in shared or global memory without initial values")
    align = None if op.alignment is None else op.alignment.value.data
    linking = "extern" if kind.size.data == 0 else ""
    count = kind.size.data * bits_of(kind.type) // 8
    return Variable(space, "b8", op.sym_name.data, count=count, align=align, linking=linking)
