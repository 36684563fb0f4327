"""Kernels that are `llvm.func` with operations of `nvvm` and `llvm`, as LLVM's own printer of PTX takes them.

Every value is a register, or several: of a struct its parts, of a vector its words. What an operation of `nvvm` says of
its instruction is held against the rows of the ISA: one that does not exist, or that the target lacks, is refused.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import Any, TypeAlias

from xdsl.dialects import llvm
from xdsl.dialects.builtin import AnyFloat, FloatAttr, IntAttr, IntegerAttr, IntegerType, VectorType, i1, i16, i64
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.utils.hints import isa

from ...dialect.isa.row import Target, Version
from ...dialect.isa.tensor_product import LOAD_SHAPES
from ...dialect.mlir.llvm import DIRECTIVES, SPACES
from ...dialect.mlir.nvvm_types import Template, TextPiece, TextPlace, spelled, template
from ...dialect.mlir.upstream import NvvmOp
from ...dialect.ptx.instructions import find
from ...dialect.ptx.ops import FuncOp, VariableAttr
from ...dialect.ptx.text.syntax import Address, Immediate, Register, Symbol, Variable
from ...dialect.warp.attributes import element_row
from ..diagnostics import fail
from .emitter import (
    SINK,
    At,
    Both,
    Condition,
    EmittedOperand,
    Emitter,
    ScalarOperand,
    TensorBox,
    VirtualRegister,
    floating,
)
from .fragments import element_bits

Words: TypeAlias = "list[VirtualRegister | Immediate]"
"""What holds a value: registers, or literals."""


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
    return SPACES.get(space.data, "") if isinstance(space, IntAttr) else ""


def types_of(kind: Attribute) -> list[str]:
    """The types of the registers that hold a value."""
    if isinstance(kind, llvm.LLVMStructType):
        return [type for part in kind.types for type in types_of(part)]
    if isinstance(kind, llvm.LLVMArrayType):
        return types_of(kind.type) * kind.size.data
    if isa(kind, VectorType[Attribute]):
        element, count = bits_of(kind.element_type), prod(kind.get_shape())
        return types_of(kind.element_type) * count if element >= 32 else ["b32"] * (element * count // 32)
    if kind == i1:
        return ["pred"]
    bits = bits_of(kind)
    if isinstance(kind, AnyFloat) and bits >= 32:
        return [f"f{bits}"]
    return [f"b{max(16, bits)}"] if bits in (8, 16, 32, 64) else []


class Receiver(ABC):
    """Provides the operands of operations and receives their instructions; `emitter` holds these."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter, self.emit = emitter, emitter.emit

    @abstractmethod
    def words(self, value: SSAValue) -> Words:
        """The registers, or literals, of a value."""

    @abstractmethod
    def give(self, op: Operation, *words: VirtualRegister | Immediate) -> None:
        """Makes registers the value of an operation's result."""

    def fresh(self, kind: Attribute) -> list[VirtualRegister]:
        """Registers for a value."""
        op, types = self.emitter.operation, types_of(kind)
        if op is not None and not types:
            fail(op, f"{op.name}: there are no registers for {kind}")
        return [self.emitter.register(type) for type in types]

    def compute(self, opcode: str, kind: Attribute, *operands: EmittedOperand) -> VirtualRegister:
        """Emits an instruction with a fresh result register, and returns the register."""
        (result,) = self.fresh(kind)
        self.emit(opcode, result, *operands)
        return result

    def word(self, value: SSAValue) -> VirtualRegister | Immediate:
        """The one register, or literal, of a value."""
        words = self.words(value)
        if len(words) != 1 and (op := self.emitter.operation) is not None:
            fail(op, f"{op.name}: expected a value of one register, got {value.type}")
        return words[0]

    def register(self, value: SSAValue) -> VirtualRegister:
        """The register of a value; literals are moved to one."""
        self.word(value)
        return self.registers(value)[0]

    def registers(self, value: SSAValue) -> list[VirtualRegister]:
        """The registers of a value; literals are moved to some."""
        return [
            word if isinstance(word, VirtualRegister) else self._moved(word, type)
            for word, type in zip(self.words(value), types_of(value.type), strict=True)
        ]

    def condition(self, value: SSAValue) -> Condition:
        """A condition of an instruction."""
        return self.register(value)

    def place(self, op: Operation, value: SSAValue, indices: Sequence[SSAValue]) -> At:
        """The address that a pointer is, or that of an element of memory, the first one if there are no indices."""
        return At(self.register(value))

    def _moved(self, literal: Immediate, type: str) -> VirtualRegister:
        if type == "pred":
            return self.emitter.compute("setp.ne.s32", literal, 0)
        return self.emitter.compute(f"mov.{type}", literal, type=type)


class LlvmKernel(Receiver):
    """Lowers the body of one kernel."""

    def __init__(self, function: llvm.FuncOp, target: Target, symbols: dict[str, str]) -> None:
        """`symbols` are the state spaces of the module's variables."""
        super().__init__(Emitter(target, function))
        self.function = function
        self.symbols = symbols
        self.values: dict[SSAValue, Words] = {}
        self.following: Block | None = None
        self.labels = {block: f"bb_{i}" for i, block in enumerate(function.body.blocks)}

    def words(self, value: SSAValue) -> Words:
        words, op = self.values.get(value), self.emitter.operation or self.function
        if words is None:
            fail(op, f"{op.name}: an operand of type {value.type} has no value here")
        return words

    def give(self, op: Operation, *words: VirtualRegister | Immediate) -> None:
        self.values[op.results[0]] = list(words)

    # The function

    def lower(self, lower: Callable[[LlvmKernel, Operation], None]) -> tuple[FuncOp, Version]:
        """The kernel, and the first PTX version that has all its instructions."""
        parameters = self._parameters()
        blocks = list(self.function.body.blocks)
        for block in blocks[1:]:
            for argument in block.args:
                self.values[argument] = [*self.fresh(argument.type)]
        for block, self.following in zip(blocks, [*blocks[1:], None], strict=True):
            if block is not blocks[0]:
                self.emitter.label(self.labels[block])
            for op in block.ops:
                self.emitter.operation = op
                lower(self, op)
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
            if types == ["pred"]:
                made.append(VariableAttr.of("u8", name))
                byte = self.compute("ld.param.u8", i16, Address(Symbol(name)))
                self.values[argument] = [resized(self, byte, i16, i1)]
                continue
            if len(types) != 1:
                fail(self.function, f"expected arguments of one register, got {argument.type}")
            type = f"u{types[0][1:]}" if types[0][0] == "b" else types[0]
            space = space_of(argument.type)
            pointer = f".ptr .{space} .align {alignment or 1}" if space == "global" else ""
            made.append(VariableAttr.of(type, name, pointer=pointer))
            self.values[argument] = [self.compute(f"ld.param.{type}", argument.type, Address(Symbol(name)))]
        return made

    def _directives(self) -> list[str]:
        made: list[str] = []
        for name, text in DIRECTIVES.items():
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
            moves += zip(self.registers(argument), sources, strict=True)
        self.emitter.move_all(moves)
        if to is not following:
            self.emitter.branch(self.labels[to])


def resized(
    kernel: LlvmKernel, register: VirtualRegister, kind: Attribute, to: Attribute, signed: bool = False
) -> VirtualRegister:
    """An integer, or an address, of more or fewer bits."""
    have, want = bits_of(kind), bits_of(to)
    if kind == i1:
        return kernel.compute(f"selp.b{max(16, want)}", to, -1 if signed else 1, 0, register)
    if to == i1:
        word = kernel.compute(f"and.b{max(16, have)}", kind, register, 1)
        return kernel.compute(f"setp.ne.s{max(16, have)}", i1, word, 0)
    sign = "s" if signed else "u"
    if have == 8 and want > 8:
        register = kernel.compute(f"cvt.{sign}16.{sign}8", IntegerType(16), register)
        have = 16
    if max(16, have) == max(16, want):
        return register
    return kernel.compute(f"cvt.{sign}{max(16, want)}.{sign}{max(16, have)}", to, register)


def literal(attribute: Attribute, kind: Attribute) -> Immediate:
    """A number as PTX writes it: floats by their bits."""
    element = element_row(kind)
    if element is not None and isa(attribute, FloatAttr):
        number = element_bits(element, attribute.value.data)
        return floating(number, element.bits) if element.bits >= 32 else Immediate(f"0x{number:04X}")
    value = int(attribute.value.data) if isa(attribute, IntegerAttr) else 0
    return Immediate(str(-value if kind == i1 and value < 0 else value))


def variable(op: llvm.GlobalOp) -> Variable:
    """A variable of the module."""
    kind, space = op.global_type, SPACES.get(op.addr_space.value.data, "")
    if space not in ("shared", "global") or op.value is not None or not isinstance(kind, llvm.LLVMArrayType):
        fail(op, "expected an array in shared or global memory without initial values")
    align = None if op.alignment is None else op.alignment.value.data
    linking = "extern" if kind.size.data == 0 else ""
    count = kind.size.data * bits_of(kind.type) // 8
    return Variable(space, "b8", op.sym_name.data, count=count, align=align, linking=linking)


# Operations of `nvvm` as instructions of PTX, by the line that each says.


_REFUSED = ("im2colOffsets", "l2CacheHint", "reductionPredicate", "scope",
            "relaxed", "isCTAOnly", "mode", "group")  # fmt: skip
"""Operands and properties that change the instruction in a way that the line of the operation does not say."""


def lower_nvvm(kernel: LlvmKernel, op: NvvmOp) -> None:
    """Adds the instruction of an operation."""
    if op.name == "nvvm.mbarrier.try_wait.parity":
        _wait(kernel, op)
    elif op.name == "nvvm.tcgen05.mma_smem_desc":
        _descriptor(kernel, op)
    else:
        InstructionLine(kernel, op).emit()


class InstructionLine:
    """An operation whose line of `nvvm_types` says its instruction."""

    def __init__(self, kernel: Receiver, op: Any) -> None:
        self.kernel = kernel
        self.op = op
        self.result = kernel.fresh(op.results[0].type) if op.results else []
        self.parts: list[Sequence[SSAValue]] = []
        definition = op.get_irdl_definition()
        self.results = [name for name, _ in definition.results]
        self.fields: dict[str, Sequence[SSAValue]] = {}
        for name, _ in (*definition.operands, *definition.results):
            value: SSAValue | Sequence[SSAValue] | None = getattr(op, name)
            self.fields[name] = () if value is None else (value,) if isinstance(value, SSAValue) else tuple(value)

    def emit(self) -> None:
        op = self.op
        made, opcode = self._line()
        said = {place.name for place in made.places} | {piece.name for piece in made.pieces}
        for name in _REFUSED:
            if name not in said and (self.fields.get(name) or name in op.properties):
                fail(op, f"{op.name} is not lowered with {name}")
        self._divide([place.name for place in made.places], opcode)
        operands = [self._operand(place) for place in made.places]
        guard = next(map(self.kernel.condition, self.fields.get("predicate", ())), True)
        self.kernel.emit(opcode, *(operand for operand in operands if operand is not None), guard=guard)
        if self.result:
            self.kernel.give(op, *self.result)

    def _line(self) -> tuple[Template, str]:
        """The first line that has the words and the types of the operation, and its opcode."""
        unknown: list[tuple[int, str]] = []
        for made in map(template, self.op.PTX.splitlines()):
            texts = [self._spelled(piece) for piece in made.pieces]
            if None not in texts:
                return made, "".join(filter(None, texts))
            unknown.append((texts.index(None), made.pieces[texts.index(None)].name))
        _, name = max(unknown)
        word = self._kind(name) or spelled(self.op.properties.get(name))
        fail(self.op, f"{self.op.name} is not lowered with {name} = {word}")

    def _kind(self, name: str) -> str:
        """The type of the first register of an operand or a result; "" if there is none."""
        kinds = [value.type for value in self.fields.get(name, ())]
        return "".join(str(kind.types.data[0] if isinstance(kind, llvm.LLVMStructType) else kind) for kind in kinds[:1])

    def _spelled(self, piece: TextPiece) -> str | None:
        """What a piece of the opcode is for this operation; None if there is nothing for its word or type."""
        values = self.fields.get(piece.name, ())
        match piece.kind:
            case "space":
                space = space_of(values[0].type)
                text = piece.texts.get(space, space)
                return f".{text}" if text else ""
            case "count":
                return str(len(values))
            case "times":
                count = len(types_of(values[0].type))
                return str(count // LOAD_SHAPES[spelled(self.op.properties["shape"]).removeprefix("shape_")])
            case "present":
                return piece.texts[""] if values else ""
            case "typed":
                return piece.texts.get(self._kind(piece.name))
            case "word" if piece.optional and piece.name not in self.op.properties:
                return piece.texts.get(piece.default, "") if piece.default else ""
            case "word":
                word = spelled(self.op.properties.get(piece.name))
                return piece.texts.get(word) if piece.texts else word
            case _:
                return piece.name

    def _divide(self, names: Sequence[str], opcode: str) -> None:
        """Divides the operands of a name that stands in several places, as the instruction has them."""
        places = [i for i, name in enumerate(names) if names.count(name) > 1]
        for row, bindings in find(opcode)[:1] if places else ():
            slots, values = row.signature(bindings, len(names)), self.fields[names[places[0]]]
            counts = [slots[i].count for i in places]
            if sum(counts) != len(values):
                fail(self.op, f"expected {' + '.join(map(str, counts))} registers, got {len(values)}")
            self.parts = [values[end - count : end] for count, end in zip(counts, accumulate(counts), strict=True)]

    def _operand(self, place: TextPlace) -> EmittedOperand | None:
        kernel, values = self.kernel, self.fields.get(place.name, ())
        match place.kind:
            case "text":
                return parsed(place.name)
            case "constant":
                word = spelled(self.op.properties.get(place.name)) or place.more
                return parsed(place.texts.get(word, word))
            case "address" if place.more and not isinstance(values[0].type, llvm.LLVMPointerType):
                return kernel.register(values[0])
            case "address":
                return kernel.place(self.op, values[0], self.fields.get(place.element, ()))
            case "elements" if values:
                return self.result or kernel.registers(values[0])
            case "tensor":
                at = kernel.place(self.op, values[0], ())
                return TensorBox(at.base, [kernel.word(each) for each in self.fields[place.more]])
            case "sums":
                return self._sums(*self.fields[place.more])
            case "vector" if place.name in self.results:
                return self.result
            case "vector" if place.more:
                both = (*values, *self.fields[place.more])
                numbers = tuple(int(word.text) for each in both if isinstance(word := kernel.word(each), Immediate))
                return numbers if len(numbers) == len(both) else [kernel.register(each) for each in both]
            case "vector":
                return [kernel.register(each) for each in (self.parts.pop(0) if self.parts else values)]
            case "elected":
                (elected,) = self.result
                return Both(SINK, elected)
            case _ if place.name in self.results:
                if not self.result:
                    return parsed(place.more)
                first, *valid = self.result
                return Both(first, valid[0]) if valid else first
            case _:
                return kernel.word(values[0]) if values else parsed(place.more) if place.more else None

    def _sums(self, inouts: SSAValue) -> list[VirtualRegister]:
        """Registers that become the result. Constants are moved to registers here, behind the fence of the program:
        they need one more (PTX ISA, `wgmma.fence`)."""
        self.result = self.kernel.registers(inouts)
        if any(isinstance(word, Immediate) for word in self.kernel.words(inouts)):
            self.kernel.emit("wgmma.fence.sync.aligned")
        return self.result


def parsed(text: str) -> Immediate | Symbol | Register:
    """A literal, a name or a special register of the text of an operation."""
    if text.startswith("%"):
        return Register(text)
    return Immediate(text) if text.lstrip("-")[:1].isdigit() else Symbol(text)


def _wait(kernel: LlvmKernel, op: NvvmOp) -> None:
    """`mbarrier.try_wait.parity`: tries until the phase has ended."""
    address, phase, ticks = op.operands
    opcode = f"mbarrier.try_wait.parity{f'.{space}' if (space := space_of(address.type)) else ''}.b64"
    kernel.emitter.until(opcode, At(kernel.register(address)), kernel.word(phase), kernel.word(ticks))


DESCRIPTOR_FIELDS = ((0, 14), (16, 14), (32, 14), (49, 3), (52, 1), (61, 3))
"""The lowest bit and the number of bits of each operand of `tcgen05.mma_smem_desc`. Source: PTX ISA 9.7.16.4.1."""

DESCRIPTOR = 1 << 46
"""The bits that every descriptor has."""


def _descriptor(kernel: LlvmKernel, op: NvvmOp) -> None:
    """`tcgen05.mma_smem_desc`: the operands as fields of the descriptor."""
    made: VirtualRegister | Immediate = Immediate(str(DESCRIPTOR))
    for value, (at, bits) in zip(op.operands, DESCRIPTOR_FIELDS, strict=True):
        field = resized(kernel, kernel.register(value), value.type, i64)
        made = kernel.compute("bfi.b64", i64, field, made, at, bits)
    kernel.give(op, made)
