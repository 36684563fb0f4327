"""From syntax records to actions: what names mean, how operands are read and written, and what rows mean.

An instruction is decoded by the function that `MEANINGS` holds for its row, with what the row binds; what no row takes
is refused, in the words of the dialect's verifier, before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

from ...dialect.ptx.instructions import find
from ...dialect.ptx.rows.grammar import Bindings, Row
from ...dialect.ptx.text.syntax import (
    Address,
    Immediate,
    Indexed,
    Instruction,
    Not,
    Operand,
    Pair,
    Register,
    Symbol,
    Variable,
    Vector,
)
from ...dialect.ptx.unmodelled import family as unmodelled
from ...dialect.ptx.verifier import resolve
from ..numerics.array import Array
from .errors import DecodeError
from .instructions.specials import SPECIALS
from .instructions.words import DTYPES, FLOATS, width_of
from .machine.clock import CLOCKS
from .machine.memory import STACK_BYTES
from .machine.state import Action, Selection, Source, State

if TYPE_CHECKING:
    from .machine.stacks import StackFrame

WARP_SIZE = "WARP_SZ"


@dataclass(frozen=True, slots=True)
class Slot:
    """A register: row `index` of the bank of registers of `bits` bits. `name` and `type` are those of the text."""

    bits: int
    index: int
    name: str = field(default="", compare=False)
    type: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Place:
    """A variable: its space, and its address once a state is known.

    `size` is the bytes of a `.param` variable inside a function; 0 for all others. `extent` is the bytes of a shared or
    local variable called `name`, 0 where they are not known. `stacked` is for variables whose address differs by
    thread: it gives the register that holds it, some bytes further on. `code` is the address of a function.
    """

    space: str
    address: Callable[[State], int]
    size: int = 0
    name: str = ""
    extent: int = 0
    stacked: Callable[[int], Slot] | None = None
    code: int = 0


@dataclass
class Names:
    """What the names of one scope mean; unknown ones are looked up outside."""

    outer: Names | None = None
    registers: dict[str, Slot] = field(default_factory=dict[str, Slot])
    places: dict[str, Place] = field(default_factory=dict[str, Place])
    labels: dict[str, int] = field(default_factory=dict[str, int])
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def register(self, name: str) -> Slot | None:
        return self.registers.get(name) or (self.outer.register(name) if self.outer else None)

    def place(self, name: str) -> Place | None:
        return self.places.get(name) or (self.outer.place(name) if self.outer else None)

    def label(self, name: str) -> int | None:
        found = self.labels.get(name)
        return self.outer.label(name) if found is None and self.outer else found

    def table(self, name: str) -> tuple[str, ...] | None:
        """The labels of a `.branchtargets`."""
        return self.tables.get(name) or (self.outer.table(name) if self.outer else None)


@dataclass(frozen=True, slots=True)
class Formal:
    """A parameter of a function, or what it returns: `size` bytes of the arguments at `place`, or a register."""

    variable: Variable
    size: int
    place: Place | None = None
    slot: Slot | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """A function in the code of a kernel: where it begins, where threads go back to, what goes in and out.

    `stack` is what it keeps for each call, if it may be called while it runs. `passes` says that results go by way of
    the places of `Layout.results`, as callers through registers find them there.
    """

    name: str
    entry: int
    back: Slot
    parameters: tuple[Formal, ...]
    results: tuple[Formal, ...]
    stack: StackFrame | None = None
    passes: bool = False


@dataclass
class Layout:
    """What a kernel needs per thread, per CTA and per launch; grows while it is decoded. `arguments` are the parts of
    local memory, each with its first byte and its size, that hold arguments of functions."""

    slots: dict[int, int] = field(default_factory=dict[int, int])
    shared: int = 0
    local: int = 0
    arguments: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    parameters: tuple[tuple[Variable, int], ...] = ()
    parameter_bytes: int = 0
    carry: Slot | None = None
    pointer: Slot | None = None
    results: int | None = None

    def stack(self) -> Slot:
        """The register that says how much of the stack is used; there is a stack from now on."""
        if self.pointer is None:
            self.pointer = self.slot(64, "%SP")
        return self.pointer

    @property
    def stack_base(self) -> int:
        """Where in local memory the stack begins."""
        return -(-self.local // 16) * 16

    @property
    def local_bytes(self) -> int:
        """Local memory of a thread, the stack included."""
        return self.local if self.pointer is None else self.stack_base + STACK_BYTES

    def slot(self, bits: int, name: str = "", type: str = "") -> Slot:
        index = self.slots.get(bits, 0)
        self.slots[bits] = index + 1
        return Slot(bits, index, name, type)


@dataclass
class Context:
    """One instruction, and what its operands mean where it stands: in `frame`, a function, or in the kernel itself.

    `row` is the one that has accepted it. `reads` and `writes` collect the registers of its operands while it is
    decoded, `places` the variables.
    """

    instruction: Instruction
    names: Names
    layout: Layout
    pc: int
    target: str
    frames: Mapping[str, Frame] = field(default_factory=dict[str, Frame])
    frame: Frame | None = None
    reads: list[Slot] = field(default_factory=list[Slot])
    writes: list[Slot] = field(default_factory=list[Slot])
    places: list[Place] = field(default_factory=list[Place])
    row: Row = field(init=False)

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.instruction.operands

    def fail(self, message: str) -> NoReturn:
        """Raises:
        DecodeError: `message`, led by the opcode.
        """
        raise DecodeError(f"{self.instruction.opcode}: {message}")

    # Registers

    def type_of(self, register: Register) -> str | None:
        """The declared type of a register, or of that whose part it names; None for a special register."""
        found = self.names.register(register.name) or self.names.register(register.name.rpartition(".")[0])
        if found is None and register.name not in SPECIALS:
            self.fail(f"register {register.name} is not declared")
        return found.type if found else None

    def carry(self) -> Slot:
        """The carry flag, one register for all instructions."""
        if self.layout.carry is None:
            self.layout.carry = self.layout.slot(1, "CC.CF")
        return self.layout.carry

    def slot(self, operand: Operand) -> Slot:
        """The declared register an operand names."""
        if not isinstance(operand, Register):
            self.fail(f"expected a register, got {describe(operand)}")
        found = self.names.register(operand.name)
        if found is None:
            self.fail(f"register {operand.name} is not declared")
        return found

    def source(self, operand: Operand, type: str, *, wide: bool = False) -> Source:
        """Reads an operand as `type`. `wide` allows a register wider than the type, of which the low bits count."""
        if isinstance(operand, Immediate):
            return constant(self.immediate(operand, type))
        if isinstance(operand, Symbol):
            return self._symbol_value(operand, type)
        if isinstance(operand, Register) and operand.name in SPECIALS and self.names.register(operand.name) is None:
            return _special(operand.name, DTYPES[type])
        slot, bits, dtype = self.slot(operand), width_of(type), DTYPES[type]
        if slot.bits != bits and not (wide and slot.bits > bits > 1):
            self.fail(f"expected a register of {bits} bits for .{type}, got {describe(operand)} of {slot.bits}")
        self.reads.append(slot)
        step = slot.bits // bits
        return lambda state: state.banks[slot.bits][slot.index].view(dtype)[::step]

    def dest(self, operand: Operand, type: str, *, wide: bool = False) -> Source:
        """Where a result of `type` goes; a wider register gets it extended by the sign of the type. `_` drops it."""
        bits = width_of(type)
        dropped = isinstance(operand, Symbol) and operand.name == "_"
        slot = self.layout.slot(bits) if dropped else self.slot(operand)
        if slot.bits != bits and not (wide and slot.bits > bits > 1):
            self.fail(f"expected a register of {bits} bits for .{type}, got {describe(operand)} of {slot.bits}")
        if slot.bits == 128 > bits:
            self.fail("a result narrower than a register of 128 bits is not supported")
        self.writes.append(slot)
        kind = type if slot.bits == bits else f"{'s' if type[0] == 's' else 'u'}{slot.bits}"
        dtype = DTYPES[kind]
        return lambda state: state.banks[slot.bits][slot.index].view(dtype)

    def predicate(self, operand: Operand) -> tuple[Source, bool]:
        """A predicate operand, and whether it is read negated."""
        if isinstance(operand, Not):
            return self.source(operand.register, "pred"), True
        return self.source(operand, "pred"), False

    def items(self, operand: Operand) -> tuple[Operand, ...]:
        """The items of `{...}`, or a lone operand."""
        return operand.items if isinstance(operand, Vector) else (operand,)

    def pair(self, operand: Operand) -> tuple[Operand, ...]:
        """The two results of `d|p`, or a lone one."""
        return (operand.first, operand.second) if isinstance(operand, Pair) else (operand,)

    def integer(self, operand: Operand) -> int:
        """An operand that must be an integer constant."""
        if isinstance(operand, Immediate) and isinstance(operand.value, int):
            return operand.value
        self.fail(f"expected an integer constant, got {describe(operand)}")

    # Constants and symbols

    def immediate(self, operand: Immediate, type: str) -> Any:
        """A literal as a value of `type`."""
        bits, dtype, text = width_of(type), DTYPES[type], operand.text
        if text[:2].lower() in ("0f", "0d"):
            return self._float_bits(int(text[2:], 16), 32 if text[1] in "fF" else 64, type, operand)
        value = operand.value
        if isinstance(value, float) or type in ("f32", "f64"):
            if type not in ("f32", "f64"):
                self.fail(f"expected an integer for .{type}, got {text}")
            return dtype(value)
        if type == "pred":
            return np.bool_(value != 0)
        if type in FLOATS:
            self.fail(f"a .{type} operand cannot be a literal, got {text}")
        if not -(1 << bits) < value < 1 << bits:
            self.fail(f"{text} does not fit .{type}")
        return np.array(value & ((1 << bits) - 1), f"u{bits // 8}").view(dtype)[()]

    def _float_bits(self, word: int, bits: int, type: str, operand: Immediate) -> Any:
        if width_of(type) == bits:
            return np.array(word, f"u{bits // 8}").view(DTYPES[type])[()]
        if type != "f64":
            self.fail(f"{operand.text} does not fit .{type}")
        return np.float64(np.array(word, np.uint32).view(np.float32)[()])

    def place(self, symbol: Symbol) -> Place:
        """The variable a symbol names."""
        found = self.names.place(symbol.name)
        if found is None:
            self.fail(f"'{symbol.name}' is not declared")
        self.places.append(found)
        return found

    def _symbol_value(self, symbol: Symbol, type: str) -> Source:
        if symbol.name == WARP_SIZE:
            return constant(DTYPES[type](32))
        place, dtype = self.place(symbol), DTYPES[type]
        if place.stacked is not None:
            slot = place.stacked(symbol.offset)
            return lambda state: state.banks[64][slot.index].view(dtype)[:: 8 // np.dtype(dtype).itemsize]
        return lambda state: _fill(dtype(place.address(state) + symbol.offset), state)

    def label(self, operand: Operand) -> int:
        """The program counter a label stands for."""
        found = self.names.label(operand.name) if isinstance(operand, Symbol) else None
        if found is None:
            self.fail(f"no label {describe(operand)} in this function")
        return found

    # Addresses

    def address(self, operand: Operand, dtype: type[np.generic]) -> Callable[[State], Callable[[Selection], Array]]:
        """Reads `[base+offset]` of the selected threads: as uint64, as int64 or, for `dtype` uint32, as int64 addresses
        of 32 bits, in which sums wrap."""
        if not isinstance(operand, Address):
            self.fail(f"expected an address such as [%rd1+16], got {describe(operand)}")
        base = operand.base
        if isinstance(base, Immediate):
            source = constant(self.immediate(base, "u64"))
        elif isinstance(base, Symbol):
            source = self._symbol_value(base, "u64")
        else:
            source = self.source(base, "u64" if self.slot(base).bits == 64 else "u32")
            if dtype is np.uint32:
                return _wrapped(source, operand.offset)
        if dtype is np.uint32:
            dtype = np.int64
        offset = dtype(np.int64(operand.offset).astype(dtype))

        def bind(state: State) -> Callable[[Selection], Array]:
            values = source(state)
            if values.dtype == np.uint64:
                values = values.view(dtype)
            if not operand.offset and values.dtype == dtype:
                return lambda sel: sel.pick(values)
            return lambda sel: np.add(sel.pick(values), offset, dtype=dtype)

        return bind


def _wrapped(source: Source, offset: int) -> Callable[[State], Callable[[Selection], Array]]:
    """Sums of a register and an offset modulo 2^32."""
    added = np.uint32(offset & 0xFFFFFFFF)

    def bind(state: State) -> Callable[[Selection], Array]:
        values = source(state)

        def read(sel: Selection) -> Array:
            words = sel.pick(values).astype(np.uint32, copy=False)
            return (words + added if offset else words).astype(np.int64)

        return read

    return bind


def _special(name: str, dtype: type[np.generic]) -> Source:
    if name in CLOCKS:
        return lambda state: state.clock.values(name, dtype)
    return lambda state: state.special(name, SPECIALS[name]).astype(dtype)


def _fill(value: Any, state: State) -> Array:
    return np.broadcast_to(np.array([value]), (state.threads,))


def constant(value: Any) -> Source:
    """The same value for every thread."""
    return lambda state: _fill(value, state)


def describe(operand: Operand) -> str:
    """An operand as it is written."""
    match operand:
        case Immediate():
            return operand.text
        case Not():
            return f"!{operand.register.name}"
        case Address():
            return f"[{describe(operand.base)}{operand.offset:+d}]" if operand.offset else f"[{describe(operand.base)}]"
        case Indexed():
            return "[" + ", ".join(map(describe, operand.items)) + "]"
        case Vector():
            return "{" + ", ".join(map(describe, operand.items)) + "}"
        case Register() | Symbol():
            return operand.name
        case _:
            return f"{describe(operand.first)}|{describe(operand.second)}"


# What rows mean

Meaning: TypeAlias = Callable[[Context, Bindings], Action]

MEANINGS: dict[str, Meaning] = {}
"""By the name that rows give to what they do (`Row.means`)."""


def meaning(*names: str) -> Callable[[Meaning], Meaning]:
    """Enters what the rows of these names do.

    It is called for instructions that their row has accepted, operands and all, with what the row's qualifiers bind:
    nothing of the spelling is read a second time.
    """

    def enter(entry: Meaning) -> Meaning:
        for name in names:
            if name in MEANINGS:
                raise ValueError(f"two meanings of {name}")
            MEANINGS[name] = entry
        return entry

    return enter


def decode(context: Context) -> Action:
    """What an instruction does, its guard aside.

    Raises:
        DecodeError: if it is not supported or not well formed.
    """
    opcode = context.instruction.opcode
    resolved = resolve(opcode, context.operands, context.type_of)
    if isinstance(resolved, str):
        raise DecodeError(f"instruction {opcode} is not supported" if unmodelled(opcode) else resolved)
    context.row, bindings = resolved
    return MEANINGS[context.row.means](context, bindings)


def family(opcode: str) -> str:
    """The module that says what an opcode does; what has no row is a part of a call."""
    means = next((row.means for row, _ in find(opcode)), "call")
    return MEANINGS[means].__module__.rpartition(".")[2]
