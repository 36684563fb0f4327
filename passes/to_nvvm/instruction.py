"""One PTX instruction on its way to LLVM: its row, what its operands are there, and inline PTX for what LLVM lacks."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from struct import pack
from typing import NamedTuple, cast

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
    f32,
    f64,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.utils.hints import isa

from ...dialect.isa.row import Bindings, Row, Slot
from ...dialect.mlir.llvm import CASTS, ExtractElementOp
from ...dialect.mlir.llvm import SPACES as LLVM_SPACES
from ...dialect.mlir.nvvm import SPECIAL_OPERATIONS
from ...dialect.ptx.instruction import InstOp, RegisterType, read_form
from ...dialect.ptx.instructions import find
from ...dialect.ptx.text.syntax import (
    REGISTER_BITS,
    Address,
    Immediate,
    Not,
    Operand,
    Pair,
    Register,
    Symbol,
    Vector,
    bits_of,
    operand_text,
)
from ...dialect.ptx.verifier import fitting
from ..diagnostics import fail
from ..to_ptx.llvm_kernel import bits_of as width
from .blocks import Registers

FLOATS: dict[str, AnyFloat] = {"f16": Float16Type(), "bf16": BFloat16Type(), "f32": Float32Type(), "f64": Float64Type()}

SPACES = {name: number for number, name in LLVM_SPACES.items()} | {"shared::cta": 3}
"""The address spaces of LLVM's NVPTX by the state spaces of PTX."""

POINTERS = {name: llvm.LLVMPointerType(IntAttr(number) if number else NoneAttr()) for name, number in SPACES.items()}


@lru_cache(64)
def register_type(type: str) -> Attribute:
    """The LLVM type of a PTX register: a float for f32 and f64, an integer for others."""
    return FLOATS[type] if type in ("f32", "f64") else IntegerType(1 if type == "pred" else bits_of(type))


@lru_cache(64)
def value_type(type: str) -> Attribute:
    """What an instruction's type is in LLVM: also halves, and pairs of them."""
    if type in ("f16x2", "bf16x2"):
        return VectorType(FLOATS[type[:-2]], [2])
    return FLOATS[type] if type in FLOATS else register_type(type)


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
        """Converts a generic pointer to one of a state space, or back."""
        return self.add(CASTS["addrspacecast"](pointer, POINTERS[space]))

    def offset(self, address: SSAValue, bytes: int) -> SSAValue:
        """The address `bytes` bytes later."""
        return address if not bytes else self.add(llvm.AddOp(address, self.constant(bytes, address.type)))

    def extract(self, container: SSAValue, count: int) -> list[SSAValue]:
        """The elements of a struct or of a vector."""
        if isa(container.type, VectorType[Attribute]):
            places, kinds = (self.constant(i, IntegerType(32)) for i in range(count)), [container.type.element_type]
            return [self.add(ExtractElementOp.build(operands=[container, i], result_types=kinds)) for i in places]
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


def declared_type(register: SSAValue) -> str:
    """The declared type of a `ptx.reg`; operands of `ptx.inst` are always such registers."""
    return cast("RegisterType", register.type).type.data


def struct(kinds: Sequence[Attribute]) -> llvm.LLVMStructType:
    """A struct type of several values."""
    return llvm.LLVMStructType.from_type_list(kinds)


LETTERS = {"pred": "b", 8: "c", 16: "h", 32: "r", 64: "l", 128: "q", "f32": "f", "f64": "d"}
"""How inline PTX is told the type of a register."""


class Symbols(NamedTuple):
    """Where the names of a function lie: the spaces of variables, the arguments, and which of those are arrays."""

    spaces: Mapping[str, str]
    arguments: Mapping[str, SSAValue]
    arrays: Collection[str]

    def pointer(self, name: str, build: Builder) -> SSAValue | None:
        """A pointer to a variable or an array; None for other names."""
        if name in self.spaces:
            return build.add(llvm.AddressOfOp(name, POINTERS[self.spaces[name]]))
        return self.arguments[name] if name in self.arrays else None


class PtxInstruction:
    """One instruction in a block: its row with what its spelling binds, its operands, and their registers."""

    def __init__(self, op: InstOp, block: Block, registers: Registers, symbols: Symbols) -> None:
        self.op = op
        self.registers = registers
        self.symbols = symbols
        self.build = Builder(block)
        self.opcode, form, guard = op.spelling()
        self.values = op.operands[bool(guard) :]
        kinds = list(map(declared_type, self.values))
        self.operands, type_of = read_form(self.opcode, form, kinds)
        fits = fitting(self.opcode, self.operands, type_of)
        if isinstance(fits, str) or not fits:
            fail(op, f"{self.opcode} is no instruction that there is a row for")
        self.row: Row = fits[0][0]
        self.bindings: Bindings = find(self.opcode)[0][1]
        self.slots: Sequence[Slot] = tuple(
            slot.bound(self.bindings) for slot in self.row.signature(self.bindings, len(self.operands))
        )

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self.opcode.split("."))

    # Operands

    def register(self, operand: Register) -> SSAValue | None:
        """The `ptx.reg` of an operand; None of a special register."""
        name = operand.name[1:]
        return self.values[int(name)] if name.isdigit() else None

    def declared(self, operand: Operand) -> SSAValue:
        """The `ptx.reg` of an operand, which must have one."""
        register = self.register(operand) if isinstance(operand, Register) else None
        if register is None:
            fail(self.op, f"{self.opcode}: expected a register, got {operand_text(operand)}")
        return register

    def type_of(self, operand: Operand) -> str:
        """The declared type of a register."""
        return declared_type(self.declared(operand))

    def read(self, operand: Operand, kind: Attribute) -> SSAValue:
        """The value of an operand as a type."""
        match operand:
            case Immediate():
                if not isinstance(operand.value, float) and not isa(kind, IntegerType):
                    return self.build.cast(self.build.constant(operand.value, _bits(kind)), kind)
                if isinstance(operand.value, float) and isa(kind, IntegerType):
                    real = f32 if operand.text[:2] in ("0f", "0F") else f64
                    return self.build.cast(self.build.constant(operand.value, real), kind)
                return self.build.constant(operand.value, kind)
            case Register():
                register = self.register(operand)
                if register is None:
                    return self.build.cast(self.special(operand.name), kind)
                return self.build.cast(self.registers.read(register), kind)
            case Symbol():
                address = self.build.offset(self.symbol(operand.name, _bits(kind).width.data), operand.offset)
                return self.build.cast(address, kind)
            case Not():
                value = self.read(operand.register, kind)
                return self.build.add(llvm.XOrOp(value, self.build.constant(1, kind)))
            case _:
                fail(self.op, f"{self.opcode}: an operand of another kind stands here: {operand_text(operand)}")

    def special(self, name: str) -> SSAValue:
        """A special register."""
        bits = 64 if name in ("%clock64", "%globaltimer") else 32
        if name in SPECIAL_OPERATIONS:
            return self.build.add(SPECIAL_OPERATIONS[name].build(result_types=[IntegerType(bits)]))
        text, letter = f"mov.u{bits} $0, {name};", "=r" if bits == 32 else "=l"
        return self.build.add(llvm.InlineAsmOp(text, letter, [], [IntegerType(bits)]))

    def symbol(self, name: str, bits: int | None = None) -> SSAValue:
        """The address of a variable, in its state space, which says how many bits an address has."""
        pointer = self.symbols.pointer(name, self.build)
        if pointer is None:
            fail(self.op, f"{self.opcode}: '{name}' is not the name of a variable or a parameter")
        return self.build.address(pointer, bits or width(pointer.type))

    def value(self, i: int, kind: Attribute | None = None) -> SSAValue:
        """The i-th operand as a value of its slot's type."""
        return self.read(self.operands[i], kind or value_type(self.slots[i].type))

    def items(self, i: int) -> Sequence[Operand]:
        """The registers of the i-th operand."""
        operand = self.operands[i]
        return operand.items if isinstance(operand, Vector) else (operand,)

    def address(self, i: int) -> SSAValue:
        """The address that the i-th operand is, with its offset, as a number."""
        operand = self.operands[i]
        if not isinstance(operand, Address):
            fail(self.op, f"{self.opcode}: expected an address, got {operand_text(operand)}")
        if isinstance(operand.base, Register):
            base = self.registers.read(self.declared(operand.base))
        elif isinstance(operand.base, Symbol):
            base = self.symbol(operand.base.name)
        else:
            fail(self.op, f"{self.opcode}: an address that is a number is not converted")
        return self.build.offset(base, operand.offset)

    def pointer(self, i: int, space: str | None = None) -> SSAValue:
        """The i-th operand, an address, as a pointer to what its row says, or to another state space."""
        return self.build.pointer(self.address(i), self.bindings.get("P", "") if space is None else space)

    # Results

    def write(self, operand: Operand, value: SSAValue) -> None:
        """Gives a register a value; what is discarded is `_`."""
        if isinstance(operand, Symbol) and operand.name == "_":
            return
        register = self.declared(operand)
        self.registers.write(register, self.build.cast(value, register_type(declared_type(register))))

    def set(self, value: SSAValue) -> None:
        """Gives the first operand its value."""
        self.write(self.operands[0], value)

    # Inline PTX

    def inline(self) -> None:
        """The instruction as it is, by `llvm.inline_asm`."""
        _Inline(self).add()


def _bits(kind: Attribute) -> IntegerType:
    return IntegerType(width(kind))


def results(operand: Operand, slot: Slot) -> Sequence[Register]:
    """The registers that an operand has written."""
    if not slot.written:
        return ()
    parts = operand.items if isinstance(operand, Vector) else (operand,)
    if isinstance(operand, Pair):
        parts = (operand.first, operand.second)
    return [part for part in parts if isinstance(part, Register)]


class _Inline:
    """The text of inline PTX: `$0` and on are results, then operands."""

    def __init__(self, instruction: PtxInstruction) -> None:
        self.of = instruction
        self.results: list[tuple[Operand, Attribute, str]] = []
        self.arguments: list[SSAValue] = []
        self.constraints: list[str] = []

    def add(self) -> None:
        of = self.of
        count = sum(len(results(*pair)) for pair in zip(of.operands, of.slots, strict=False))
        texts = [self._text(operand, slot, count) for operand, slot in zip(of.operands, of.slots, strict=False)]
        texts += [self._text(operand, None, count) for operand in of.operands[len(of.slots) :]]
        effects = not of.row.pure
        kinds = [kind for _, kind, _ in self.results]
        outputs = [f"={letter}" for *_, letter in self.results]
        clobbers = ["~{memory}"] if effects else []
        text = f"{of.opcode} {', '.join(texts)}".strip() + ";"
        result = None if not kinds else kinds[0] if len(kinds) == 1 else struct(kinds)
        op = llvm.InlineAsmOp(
            text, ",".join([*outputs, *self.constraints, *clobbers]), self.arguments,
            [] if result is None else [result], has_side_effects=effects,
        )  # fmt: skip
        of.build.place(op)
        values = [] if result is None else [op.results[0]]
        if len(kinds) > 1:
            values = of.build.extract(op.results[0], len(kinds))
        for (operand, *_), value in zip(self.results, values, strict=True):
            of.write(operand, value)

    def _text(self, operand: Operand, slot: Slot | None, count: int) -> str:
        """An operand with its registers replaced by their numbers."""
        written = () if slot is None else results(operand, slot)

        def number(register: Register) -> str:
            if self.of.register(register) is None:
                return register.name
            if register in written:
                return self._result(register, slot, count)
            value = self.of.registers.read(self.of.declared(register))
            return f"${self._value(value, self._letter(register), count)}"

        symbols = self.of.symbols
        if isinstance(operand, Symbol) and (operand.name in symbols.spaces or operand.name in symbols.arrays):
            return f"${self._value(self.of.symbol(operand.name, 64), 'l', count)}"
        if isinstance(operand, Address) and isinstance(operand.base, Symbol):
            value = self.of.symbol(operand.base.name)
            return f"[${self._value(value, LETTERS[width(value.type)], count)}+{operand.offset}]"
        return operand_text(operand, spell=number)

    def _result(self, register: Register, slot: Slot | None, count: int) -> str:
        place = len(self.results)
        letter = self._letter(register)
        self.results.append((register, register_type(self.of.type_of(register)), letter))
        if slot is not None and slot.accumulates:
            self.arguments.append(self.of.registers.read(self.of.declared(register)))
            self.constraints.append(str(place))
        return f"${place}"

    def _value(self, value: SSAValue, letter: str, count: int) -> int:
        self.arguments.append(value)
        self.constraints.append(letter)
        return count + len(self.arguments) - 1

    def _letter(self, register: Register) -> str:
        type = self.of.type_of(register)
        return LETTERS.get(type) or LETTERS[REGISTER_BITS[type]]
