"""From syntax records to actions: what names and operands mean, and the module with the meaning of each row."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NoReturn, TypeAlias

import numpy as np

from ....dialect import plugins
from ....dialect.index import MEANINGS as HOMES
from ....dialect.isa.row import Bindings, Row
from ....dialect.ptx.text import syntax
from ....dialect.ptx.text.syntax import Immediate, Instruction, Operand, Register, Symbol, bits_of, operand_text
from ....dialect.ptx.verifier import resolve
from ...numerics.floats import Array
from .events import BoundStep, Selection
from .flow import CLOCKS
from .memory import RANK_BITS, DecodeError
from .state import SPECIALS, Action, RegisterSlot, Source, StackFrame, State, StorageLayout

# The types of instructions: how numpy sees their bits.

DTYPES: dict[str, type[np.generic]] = {
    "pred": np.bool_,
    **{f"{kind}{n}": getattr(np, f"uint{n}") for kind in "bu" for n in (8, 16, 32, 64)},
    **{f"s{n}": getattr(np, f"int{n}") for n in (8, 16, 32, 64)},
    **{f"f{n}": getattr(np, f"float{n}") for n in (16, 32, 64)},
    "f16x2": np.uint32,
    **{type: getattr(np, f"uint{n}") for type, n in syntax.PACKED_BITS.items()},
    "b128": np.complex128,
}
"""How the bits of each type are seen: bf16 and packed types as words, 128 bits as what numpy has that is as wide."""

FLOATS = frozenset(("f16", "bf16", "f16x2", "bf16x2", "f32", "f64", "f32x2"))


def integer_range(type: str) -> tuple[int, int]:
    """The least and the greatest integer of a type."""
    bits = bits_of(type)
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if type[0] == "s" else (0, (1 << bits) - 1)


# What the names of a kernel mean: registers, variables, labels, functions.


@dataclass(frozen=True, slots=True)
class VariablePlace:
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
    stacked: Callable[[int], RegisterSlot] | None = None
    code: int = 0


@dataclass
class NameScope:
    """What the names of one scope mean; unknown ones are looked up outside. `tables` has the labels of each
    `.branchtargets`."""

    registers: ChainMap[str, RegisterSlot] = field(default_factory=ChainMap[str, RegisterSlot])
    places: ChainMap[str, VariablePlace] = field(default_factory=ChainMap[str, VariablePlace])
    labels: ChainMap[str, int] = field(default_factory=ChainMap[str, int])
    tables: ChainMap[str, tuple[str, ...]] = field(default_factory=ChainMap[str, tuple[str, ...]])

    def inner(self) -> NameScope:
        """A scope inside of this one."""
        each = self.registers.new_child(), self.places.new_child(), self.labels.new_child(), self.tables.new_child()
        return NameScope(*each)


@dataclass(frozen=True, slots=True)
class Formal:
    """A parameter of a function, or what it returns: `size` bytes of the arguments at `place`, or a register."""

    variable: syntax.Variable
    size: int
    place: VariablePlace | None = None
    slot: RegisterSlot | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """A function in the code of a kernel: its entry, the register of its return address, its parameters and results.

    `stack` has its variables for each call, if calls can nest. `passes` says that results are passed in
    `StorageLayout.results`, where indirect callers read them.
    """

    name: str
    entry: int
    back: RegisterSlot
    parameters: tuple[Formal, ...]
    results: tuple[Formal, ...]
    stack: StackFrame | None = None
    passes: bool = False


# An instruction is decoded by the function that `meaning_of` finds for its row, with what the row binds; what no row
# takes is refused, in the words of the dialect's verifier, before anything runs.

WARP_SIZE = "WARP_SZ"

Multiply: TypeAlias = Callable[..., Array]
"""D of matrices A, B and C, and of what some instructions take besides, as `numerics.product.MatrixProduct`."""
Updates: TypeAlias = Callable[[str, str], Callable[[bool], Callable[..., Array]]]
"""What an operation on a type makes of words in memory and of those that come, in shared memory or not."""


@dataclass
class Context:
    """One instruction and the scope of its operands: a function (`frame`), or the kernel itself. `row` is the row that
    accepted it. While it is decoded, `reads` and `writes` collect the registers of its operands, and `places` the
    variables."""

    instruction: Instruction
    names: NameScope
    layout: StorageLayout
    pc: int
    target: str
    frames: Mapping[str, Frame] = field(default_factory=dict[str, Frame])
    frame: Frame | None = None
    reads: list[RegisterSlot] = field(default_factory=list[RegisterSlot])
    writes: list[RegisterSlot] = field(default_factory=list[RegisterSlot])
    places: list[VariablePlace] = field(default_factory=list[VariablePlace])
    multiply: Multiply | None = None
    """What stands for the products of matrix instructions, where those of the target are not asked for."""
    updates: Updates | None = None
    """What stands for the operations of bulk reductions, where those of the type are not asked for."""
    row: Row = field(init=False)

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.instruction.operands

    def fail(self, message: str) -> NoReturn:
        """Raises DecodeError with `message`, led by the opcode."""
        raise DecodeError(f"{self.instruction.opcode}: {message}")

    # Registers

    def type_of(self, register: Register) -> str | None:
        """The declared type of a register, or of that whose part it names; None for a special register."""
        registers = self.names.registers
        slot = registers.get(register.name) or registers.get(register.name.rpartition(".")[0])
        if slot is None and register.name not in SPECIALS:
            self.fail(f"register {register.name} is not declared")
        return slot.type if slot else None

    def carry(self) -> RegisterSlot:
        """The carry flag, one register for all instructions."""
        if self.layout.carry is None:
            self.layout.carry = self.layout.slot(1, "CC.CF")
        return self.layout.carry

    def slot(self, operand: Operand) -> RegisterSlot:
        """The declared register an operand names."""
        if not isinstance(operand, Register):
            self.fail(f"expected a register, got {operand_text(operand)}")
        slot = self.names.registers.get(operand.name)
        if slot is None:
            self.fail(f"register {operand.name} is not declared")
        return slot

    def source(self, operand: Operand, type: str, *, wide: bool = False) -> Source:
        """Reads an operand as `type`. `wide` allows a register wider than the type, of which the low bits count."""
        if isinstance(operand, Immediate):
            return constant(self.immediate(operand, type))
        if isinstance(operand, Symbol):
            return self._symbol_value(operand, type)
        if isinstance(operand, Register) and operand.name in SPECIALS and operand.name not in self.names.registers:
            self.layout.reserves |= operand.name.startswith("%reserved_smem")
            return _special(operand.name, DTYPES[type])
        slot, bits, dtype = self.slot(operand), bits_of(type), DTYPES[type]
        if slot.bits != bits and not (wide and slot.bits > bits > 1):
            self.fail(f"expected a register of {bits} bits for .{type}, got {operand_text(operand)} of {slot.bits}")
        self.reads.append(slot)
        step = slot.bits // bits
        return lambda state: state.banks[slot.bits][slot.index].view(dtype)[::step]

    def dest(self, operand: Operand, type: str, *, wide: bool = False) -> Source:
        """Where a result of `type` goes; a wider register gets it extended by the sign of the type. `_` drops it."""
        bits = bits_of(type)
        dropped = isinstance(operand, Symbol) and operand.name == "_"
        slot = self.layout.drop(bits) if dropped else self.slot(operand)
        if slot.bits != bits and not (wide and slot.bits > bits > 1):
            self.fail(f"expected a register of {bits} bits for .{type}, got {operand_text(operand)} of {slot.bits}")
        if slot.bits == 128 > bits:
            self.fail("a result narrower than a register of 128 bits is not supported")
        self.writes.append(slot)
        kind = type if slot.bits == bits else f"{'s' if type[0] == 's' else 'u'}{slot.bits}"
        dtype = DTYPES[kind]
        return lambda state: state.banks[slot.bits][slot.index].view(dtype)

    def predicate(self, operand: Operand) -> tuple[Source, bool]:
        """A predicate operand, and whether it is read negated."""
        if isinstance(operand, syntax.Not):
            return self.source(operand.register, "pred"), True
        return self.source(operand, "pred"), False

    def items(self, operand: Operand) -> tuple[Operand, ...]:
        """The items of `{...}`, or a lone operand."""
        return operand.items if isinstance(operand, syntax.Vector) else (operand,)

    def pair(self, operand: Operand) -> tuple[Operand, ...]:
        """The two results of `d|p`, or a lone one."""
        return (operand.first, operand.second) if isinstance(operand, syntax.Pair) else (operand,)

    def integer(self, operand: Operand) -> int:
        """An operand that must be an integer constant."""
        if isinstance(operand, Immediate) and isinstance(operand.value, int):
            return operand.value
        self.fail(f"expected an integer constant, got {operand_text(operand)}")

    # Constants and symbols

    def immediate(self, operand: Immediate, type: str) -> Any:
        """A literal as a value of `type`."""
        bits, dtype, text = bits_of(type), DTYPES[type], operand.text
        if text[:2].lower() in ("0f", "0d"):
            return self._float_bits(int(text[2:], 16), 32 if text[1] in "fF" else 64, type, operand)
        value = operand.value
        if type in ("f32", "f64"):
            return dtype(value)
        if isinstance(value, float):  # as 64 bits, whatever they are
            if bits != 64:
                self.fail(f"expected an integer for .{type}, got {text}")
            return np.float64(value).view(dtype)
        if type == "pred":
            return np.bool_(value != 0)
        if type in FLOATS:
            self.fail(f"a .{type} operand cannot be a literal, got {text}")
        if not -(1 << bits) < value < 1 << bits:
            self.fail(f"{text} does not fit .{type}")
        return np.array(value & ((1 << bits) - 1), f"u{bits // 8}").view(dtype)[()]

    def _float_bits(self, word: int, bits: int, type: str, operand: Immediate) -> Any:
        if bits_of(type) == bits:
            return np.array(word, f"u{bits // 8}").view(DTYPES[type])[()]
        if type != "f64":
            self.fail(f"{operand.text} does not fit .{type}")
        return np.float64(np.array(word, np.uint32).view(np.float32)[()])

    def place(self, symbol: Symbol) -> VariablePlace:
        """The variable a symbol names."""
        place = self.names.places.get(symbol.name)
        if place is None:
            self.fail(f"'{symbol.name}' is not declared")
        self.places.append(place)
        return place

    def _symbol_value(self, symbol: Symbol, type: str) -> Source:
        if symbol.name == WARP_SIZE:
            return constant(DTYPES[type](32))
        place, dtype = self.place(symbol), DTYPES[type]
        if place.stacked is not None:
            slot = place.stacked(symbol.offset)
            return lambda state: state.banks[64][slot.index].view(dtype)[:: 8 // np.dtype(dtype).itemsize]
        ranked = place.space == "shared"
        return lambda state: _ranked(place.address(state) + symbol.offset, dtype, state, ranked)

    def label(self, operand: Operand) -> int:
        """The program counter a label stands for."""
        label = self.names.labels.get(operand.name) if isinstance(operand, Symbol) else None
        if label is None:
            self.fail(f"no label {operand_text(operand)} in this function")
        return label

    # Addresses

    def address(self, operand: Operand, dtype: type[np.generic]) -> Callable[[State], Callable[[Selection], Array]]:
        """Reads `[base+offset]` of the selected threads: as uint64, int64, or for uint32 as int64 whose sums wrap."""
        if not isinstance(operand, syntax.Address):
            self.fail(f"expected an address such as [%rd1+16], got {operand_text(operand)}")
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
        offset = dtype(np.uint64(operand.offset & (1 << 64) - 1).astype(dtype))

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
    return lambda state: state.special(name).astype(dtype)


def _fill(value: Any, state: State) -> Array:
    return np.broadcast_to(np.array([value]), (state.threads,))


def _ranked(address: int, dtype: type[np.generic], state: State, ranked: bool) -> Array:
    """An address of a variable in all threads; one in shared memory of a cluster has the rank of its CTA."""
    if not ranked or state.geometry.cluster_size == 1:
        return _fill(dtype(address), state)
    return (address + (state.geometry.rank() << RANK_BITS)).astype(dtype)


def constant(value: Any) -> Source:
    """The same value for every thread."""
    return lambda state: _fill(value, state)


# What rows mean

Meaning: TypeAlias = Callable[[Context, Bindings], Action]

REFUSED: Mapping[str, str] = {
    "mul.halves": "the text does not say where it rounds",
    "fours": "the text does not say where it rounds",
    "carry.untold": "ptxas takes this with a carry, and the text does not say what it computes",
    "fma.untold": "the text rounds bf16 to nearest alone, and what ptxas makes of other modes adds no numbers of bf16",
    "cvt.unsigned": "the text does not say what becomes of a negative number",
    "cp.async.bulk.edges": "what the barrier counts of bytes that are left out is not known",
    "mbarrier.reports": "what a barrier reports besides its phase is not simulated",
    "mbarrier.multicast": "signals to several CTAs at once are not simulated",
    "multimem": "memory of several GPUs is not simulated",
    "fabric": "memory behind a fabric is not simulated",
    "tensor.unmodelled": "the interpreter runs tile and im2col mode; im2col::w it does not",
    "tensor.class": "what class of memory a tensor map has is not public",
    "tensor.replace later": "the interpreter has the tensor maps of sm_90a, which have no such field or value",
    "tcgen05.untold": "no public text says what it computes",
    "texture": "textures and surfaces are objects of a driver, which are not simulated",
}
"""Why the rows of a meaning are checked, and not run."""

MEANINGS: dict[str, Meaning] = {}
"""What is imported so far, by the name that rows give to what they do (`Row.means`)."""


def meaning(*names: str) -> Callable[[Meaning], Meaning]:
    """Enters what the rows of these names do. It is called for instructions that their row has accepted, operands and
    all, with what the row's qualifiers bind: nothing of the spelling is read a second time."""

    def enter(entry: Meaning) -> Meaning:
        for name in names:
            if name in MEANINGS:
                raise ValueError(f"two meanings of {name}")
            MEANINGS[name] = entry
        return entry

    return enter


def meaning_of(means: str) -> Meaning:
    """What the rows of a name do."""
    if means not in MEANINGS and means in HOMES:
        import_module(f"....{HOMES[means]}", __package__)
    elif means not in MEANINGS:
        plugins.loaded(plugins.MEANINGS, means)
    return MEANINGS.get(means, _unknown)


def _unknown(context: Context, _: Bindings) -> Action:
    context.fail(f"not supported: no module has the meaning '{context.row.means}' (`make index` enters each @meaning)")


def decode(context: Context) -> Action:
    """What an instruction does, its guard aside. Raises DecodeError if it is not supported or not well formed."""
    opcode = context.instruction.opcode
    resolved = resolve(opcode, context.operands, context.type_of)
    if isinstance(resolved, str):
        raise DecodeError(resolved)
    context.row, bindings = resolved
    if (reason := REFUSED.get(context.row.means)) is not None:
        context.fail(f"not supported: {reason}")
    action = meaning_of(context.row.means)(context, bindings)
    reads_clock = any(isinstance(o, Register) and o.name in CLOCKS for o in context.operands)
    return _reading(action) if reads_clock else action


def _reading(action: Action) -> Action:
    """Wraps an instruction that reads a clock, so that the clock advances before."""

    def bind(state: State) -> BoundStep:
        inner = action(state)

        def step(sel: Selection) -> int | None:
            state.clock.tick()
            return inner(sel)

        return step

    return bind
