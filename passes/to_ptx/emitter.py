"""Emission of PTX: operands and their text, registers, value numbering, hoisting."""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, NoReturn, TypeAlias

from xdsl.dialects.builtin import LocationAttr
from xdsl.ir import Operation, SSAValue

from ...dialect.isa.row import Target, Version
from ...dialect.ptx.instruction import (
    InstOp,
    InstructionError,
    InstructionFacts,
    UnavailableError,
    facts_of,
    has,
    result_type,
)
from ...dialect.ptx.ops import CommentOp, LabelOp, RegOp
from ...dialect.ptx.text.syntax import Address, Immediate, Register, Symbol, operand_text
from ..diagnostics import fail

# Operands of instructions to emit, and their text. Besides registers, numbers and addresses, they are those of
# `dialect.ptx.text.syntax`: literals, symbols (labels, variables, parameters, `_`), special registers, `[parameter]`.


@dataclass(eq=False, slots=True)
class VirtualRegister:
    """One register. `level` is the loop level it is set at; -1 while nothing is known of it. `divisor` divides its
    value; `bound`, if known, is larger than its value as an unsigned number. `base` and `offset` say that it was
    computed as base + offset."""

    type: str
    level: int = 0
    divisor: int = 1
    bound: int | None = None
    base: VirtualRegister | None = None
    offset: int = 0


IndexValue: TypeAlias = VirtualRegister | int
"""What an index is at this level: a register, or a number known while compiling."""


Condition: TypeAlias = VirtualRegister | bool
"""Whether something is done: what a predicate holds, or what is known while compiling."""


class At(NamedTuple):
    """The memory `offset` bytes after the address in a register."""

    base: VirtualRegister
    offset: int = 0

    def behind(self, bytes: int) -> At:
        """The address so many bytes further on."""
        return At(self.base, self.offset + bytes)


class Both(NamedTuple):
    """Two results: a number, or `SINK`, and a predicate."""

    register: VirtualRegister | Symbol
    predicate: VirtualRegister


class TensorBox(NamedTuple):
    """The box of a tensor map that begins at coordinates, the fastest first."""

    map: VirtualRegister
    coordinates: Sequence[IndexValue | Immediate]


ScalarOperand: TypeAlias = VirtualRegister | int | Immediate | Symbol | Register | Address
"""An operand with at most one register."""

EmittedOperand: TypeAlias = (
    ScalarOperand | At | Both | TensorBox | list[VirtualRegister] | tuple[VirtualRegister | int, ...]
)
"""An operand. Several registers, or several numbers, are a vector, in braces; a tuple of registers stands in a call."""

SINK = Symbol("_")
"""What takes a result that nobody wants."""


def word(bits: int, digits: int = 8) -> Immediate:
    """Bits as a literal, in hexadecimal."""
    return Immediate(f"0x{bits:0{digits}X}")


WARP = (word(0x1F, 2), word(0xFFFFFFFF))
"""The last operands of a shuffle: all lanes take part, and none is beyond the end of its segment."""


def floating(bits: int, width: int = 32) -> Immediate:
    """The f32, or the f64, of some bits as a literal."""
    return Immediate(f"0f{bits:08X}" if width == 32 else f"0d{bits:016X}")


def single(value: float) -> Immediate:
    """An f32 as a literal."""
    return floating(struct.unpack("<I", struct.pack("<f", value))[0])


class Written(NamedTuple):
    """Operands as text, with `?` for each register. `kinds` decides whether an instruction takes them: types of
    registers, and where literals and symbols stand."""

    form: str
    registers: tuple[VirtualRegister, ...]
    kinds: tuple[object, ...]


def write(operands: Iterable[EmittedOperand]) -> Written:
    """The text of operands. Raises TypeError for what is no operand, such as text."""
    texts: list[str] = []
    registers, kinds = list[VirtualRegister](), list[object]()
    for operand in operands:
        if type(operand) is VirtualRegister:
            texts.append("?")
            registers.append(operand)
            kinds.append(operand.type)
        elif type(operand) is list:
            texts.append(_VECTORS[len(operand)])
            registers += operand
            kinds.append(tuple([item.type for item in operand]))
        elif type(operand) is At:
            base, offset = operand
            texts.append(f"[?+{offset}]" if offset else "[?]")
            registers.append(base)
            kinds.append(_ADDRESSES[base.type])
        elif type(operand) is int:
            texts.append(str(operand))
            kinds.append("#")
        else:
            texts.append(_write_other(operand, registers, kinds))
    return Written(", ".join(texts), tuple(registers), tuple(kinds))


_ADDRESSES = {type: f"[{type}]" for type in ("pred", "b16", "b32", "f32", "f64", "b64")}
_VECTORS = ["{" + ", ".join("?" * count) + "}" for count in range(257)]


def _write_other(operand: EmittedOperand, registers: list[VirtualRegister], kinds: list[object]) -> str:
    match operand:
        case TensorBox():
            registers.append(operand.map)
            along, used, axes = write(operand.coordinates)
            registers += used
            kinds += ("box", operand.map.type, axes)
            return f"[?, {{{along}}}]"
        case Both():
            number, used, own = write(operand)
            registers += used
            kinds += (*own, "|")
            return number.replace(", ", "|")
        case Immediate():
            kinds.append("0f" if isinstance(operand.value, float) else "#")
        case Symbol():
            kinds.append("_" if operand == SINK else "symbol")
        case Address():
            kinds.append("[symbol]")
        case Register():
            kinds.append(operand.name)
        case tuple() if all(type(item) is int for item in operand):
            kinds.append(("#",) * len(operand))
            return f"{{{', '.join(map(str, operand))}}}"
        case tuple():
            axes, used, passed = write(operand)
            kinds.append(("()", *passed))
            registers += used
            return f"({axes})"
        case _:
            raise TypeError(f"expected an operand of an instruction, got {operand!r}")
    return operand_text(operand)


# The emitter keeps one open list of statements per loop level. A pure instruction is emitted once per distinct spelling
# and sources, at the outermost level where its sources are known: address arithmetic leaves the loops without a pass.

PREFIXES = {"pred": "%p", "b16": "%h", "b32": "%r", "f32": "%f", "f64": "%d", "b64": "%rd"}
"""How registers of each type are called in the text."""

_ZEROS = {"f32": floating(0), "f64": floating(0, 64)}
"""Zero as a literal, for types whose literals are not plain numbers."""


class BodyStatement(NamedTuple):
    """An instruction; or with no opcode a label, or with opcode "//" a comment, both spelled by `form`. `since` is the
    PTX version it needs; one that is `unneeded` unless something reads its result may be left out. `location` is that
    of the operation it is for."""

    opcode: str
    form: str
    registers: tuple[VirtualRegister, ...] = ()
    guard: str = ""
    unneeded: bool = False
    since: Version = (1, 0)
    location: LocationAttr | None = None


Key = tuple[str, str, tuple[EmittedOperand, ...]]


@dataclass
class Level:
    """The statements emitted at one loop level so far, and the pure values they hold."""

    statements: list[BodyStatement] = field(default_factory=list[BodyStatement])
    values: dict[Key, VirtualRegister] = field(default_factory=dict[Key, VirtualRegister])


_FACTS: dict[Target, dict[tuple[str, tuple[object, ...]], InstructionFacts]] = {}
"""What has been asked of the table: by opcode and the kinds of operands."""


def in_cta(emitter: Emitter, at: At, rank: IndexValue | None) -> At:
    """The same place in the shared memory of another CTA of the cluster."""
    return at if rank is None else At(emitter.pure("mapa.shared::cluster.u32", at.base, rank), at.offset)


class Emitter:
    """Builds the body of one function for a target. What it emits, the table of instructions has: see `facts_of`."""

    def __init__(self, target: Target, operation: Operation | None = None) -> None:
        self._levels, self._labels = [Level()], 0
        self.outermost = 0
        """The level that no pure value goes out of."""
        self._deferred: dict[VirtualRegister, Sequence[BodyStatement]] = {}
        self.target = target
        self._facts = _FACTS.setdefault(target, {})
        self.operation = operation
        """The operation that is being lowered, for errors."""
        self.version: Version = target.ptx
        """The oldest PTX version with all the instructions of a finished function."""

    @property
    def level(self) -> int:
        """The current loop level; 0 outside all loops."""
        return len(self._levels) - 1

    def register(self, type: str, *, divisor: int = 1) -> VirtualRegister:
        """A fresh register that statements at this level set."""
        return VirtualRegister(type, self.level, divisor)

    def registers(self, type: str, count: int) -> list[VirtualRegister]:
        return [VirtualRegister(type, self.level) for _ in range(count)]

    def has(self, opcode: str) -> bool:
        """Whether the target has an instruction."""
        return has(self.target, opcode)

    def emit(
        self, opcode: str, *operands: EmittedOperand, guard: Condition = True, unless: VirtualRegister | None = None,
    ) -> None:  # fmt: skip
        """Appends an instruction here, done if `guard`, or `unless`; nothing if the guard is known not to hold."""
        if guard is False:
            return
        self._append(self._statement(opcode, operands), guard, unless)

    def emit_form(self, opcode: str, form: str, registers: Sequence[VirtualRegister]) -> None:
        """Appends an instruction here whose operands are text, with `?` for each register."""
        self._append(self._of_form(opcode, Written(form, (*registers,), (form, *(each.type for each in registers)))))

    def _append(self, statement: BodyStatement, guard: VirtualRegister | Literal[True] = True,
                unless: VirtualRegister | None = None) -> None:  # fmt: skip
        opcode, form, registers, _, _, since, location = statement
        if self._deferred:
            self._emit_deferred(registers)
        predicate, sign = (unless, "@!") if unless is not None else (guard, "@")
        if predicate is not True:
            if predicate.type != "pred":
                self._refuse(InstructionError(f"{opcode}: expected a predicate as guard, got .{predicate.type}"))
            statement = BodyStatement(opcode, form, (predicate, *registers), sign, False, since, location)
        self._levels[-1].statements.append(statement)

    def compute(self, opcode: str, *sources: EmittedOperand, type: str = "") -> VirtualRegister:
        """The register that an instruction sets, emitted here. `type` overrides the type of its result."""
        result = VirtualRegister(type or self._result_type(opcode), self.level)
        self.emit(opcode, result, *sources)
        return result

    def move(self, into: VirtualRegister, source: ScalarOperand) -> None:
        """Copies a register or a literal to a register at this place."""
        self.emit(f"mov.{into.type}", into, source)

    def move_all(self, moves: Sequence[tuple[VirtualRegister, ScalarOperand]]) -> None:
        """Sets registers, all at once: sources that are set too are saved first. Nothing is moved to itself."""
        moves = [(into, source) for into, source in moves if into is not source]
        written = {into for into, _ in moves}
        saved = {
            source: self.compute(f"mov.{source.type}", source, type=source.type)
            for _, source in moves
            if isinstance(source, VirtualRegister) and source in written
        }
        for into, source in moves:
            self.move(into, saved.get(source, source) if isinstance(source, VirtualRegister) else source)

    def clear(self, registers: Iterable[VirtualRegister]) -> None:
        """Sets registers to zero, here."""
        for register in registers:
            self.move(register, _ZEROS.get(register.type, 0))

    def halves(self, register: ScalarOperand) -> list[VirtualRegister]:
        """The lower and the upper half of a register of 32 bits, here."""
        halves = self.registers("b16", 2)
        self.emit("mov.b32", halves, register)
        return halves

    def load(
        self, space: str, registers: Sequence[VirtualRegister], place: At, type: str = "", *, guard: Condition = True
    ) -> None:
        """Loads contiguous elements to registers. `type` is that of memory, if it is another one."""
        self.emit(*_access("ld", space, registers, type), place, guard=guard)

    def store(
        self, space: str, registers: Sequence[VirtualRegister], place: At, type: str = "", *, guard: Condition = True
    ) -> None:
        """Writes registers side by side to memory."""
        opcode, data = _access("st", space, registers, type)
        self.emit(opcode, place, data, guard=guard)

    def branch(self, label: str, *, unless: VirtualRegister | None = None, guard: Condition = True) -> None:
        """Branches to a label, if `guard` holds or `unless` does not."""
        self.emit("bra", Symbol(label), guard=guard, unless=unless)

    def until(self, opcode: str, *sources: EmittedOperand) -> None:
        """Appends an instruction here that is done again until the predicate that it sets holds."""
        label = self.fresh_label("wait")
        self.label(label)
        self.branch(label, unless=self.compute(opcode, *sources))

    def _statement(self, opcode: str, operands: Iterable[EmittedOperand], *, unneeded: bool = False) -> BodyStatement:
        """An instruction that is not placed yet. One that is `unneeded` must be pure."""
        return self._of_form(opcode, write(operands), unneeded=unneeded)

    def _of_form(self, opcode: str, written: Written, *, unneeded: bool = False) -> BodyStatement:
        facts = self._facts_of(opcode, written)
        if unneeded and not facts.pure:
            self._refuse(InstructionError(f"{opcode}: its result does not follow from its operands alone"))
        location = None if self.operation is None else self.operation.location
        return BodyStatement(opcode, written.form, written.registers, "", unneeded, facts.since, location)

    def _facts_of(self, opcode: str, written: Written) -> InstructionFacts:
        """The facts of an instruction. The table must have it."""
        form, registers, kinds = written
        facts = self._facts.get((opcode, kinds))
        if facts is None or facts.limited:
            try:
                facts = facts_of(opcode, form, tuple([r.type for r in registers]), self.target)
            except InstructionError as error:
                self._refuse(error)
            self._facts[opcode, kinds] = facts
        return facts

    def _result_type(self, opcode: str) -> str:
        try:
            return result_type(opcode)
        except InstructionError as error:
            self._refuse(error)

    def _refuse(self, error: InstructionError) -> NoReturn:
        """Raises an error that names pass, operation and instruction."""
        if self.operation is None:
            raise error
        if isinstance(error, UnavailableError):
            fail(self.operation, f"{self.operation.name} takes {error}")
        fail(self.operation, f"convert-warp-to-ptx cannot make {self.operation.name} of {error}")

    def defer(self, result: VirtualRegister, *instructions: tuple[str, Sequence[EmittedOperand]]) -> None:
        """Sets a register only where an instruction first reads it, to keep it live for a shorter time. The deferred
        instructions are opcodes with operands. Their registers must keep their values until then, or until `settle`."""
        self._deferred[result] = [self._statement(opcode, operands) for opcode, operands in instructions]

    def settle(self) -> None:
        """Sets every register that waits for its reader."""
        self._emit_deferred(list(self._deferred))

    def _emit_deferred(self, registers: Iterable[VirtualRegister]) -> None:
        for register in registers:
            for statement in self._deferred.pop(register, ()):
                self._emit_deferred(statement.registers)
                self._levels[-1].statements.append(statement)

    def pure(self, opcode: str, *sources: ScalarOperand, type: str = "") -> VirtualRegister:
        """The result of a pure instruction, which may have been computed before. `type` is as for `compute`. Predicates
        stay at their level: there are seven, and one that lives through a loop costs more than a `setp`."""
        levels = [source.level for source in sources if isinstance(source, VirtualRegister)]
        level = self.level if self._result_type(opcode) == "pred" else max([0, *levels])
        return self._at_level(level, (opcode, type, sources))

    def read(self, place: At) -> VirtualRegister:
        """A word of memory that nothing writes while the kernel runs, loaded once, where its address is known."""
        return self._at_level(place.base.level, ("ld.global.b32", "b32", (place,)), pure=False)

    def any(self, predicate: VirtualRegister) -> VirtualRegister:
        """Whether a predicate holds in a lane of the warp, all of whose lanes are here."""
        return self._at_level(self.level, ("vote.sync.any.pred", "pred", (predicate, WARP[1])), pure=False)

    def _at_level(self, level: int, key: Key, *, pure: bool = True) -> VirtualRegister:
        opcode, type, sources = key
        if level < self.outermost and key not in self._levels[level].values:
            level = self.outermost
        values = self._levels[level].values
        if key not in values:
            values[key] = result = VirtualRegister(type or self._result_type(opcode), level)
            self._levels[level].statements.append(self._statement(opcode, (result, *sources), unneeded=pure))
        return values[key]

    def comment(self, text: str) -> None:
        """A comment on a line of its own, at this level."""
        self._levels[-1].statements.append(BodyStatement("//", f" {text}"))

    def label(self, name: str) -> None:
        self._levels[-1].statements.append(BodyStatement("", name))

    def fresh_label(self, stem: str) -> str:
        """A label name not used yet in the function."""
        self._labels += 1
        return f"{stem}_{self._labels}"

    @contextmanager
    def loop(self) -> Generator[None]:
        """A new level for statements. Pure values of outer operands are still hoisted out of it."""
        outermost = self.outermost
        self._levels.append(Level())
        yield
        inner, self.outermost = self._levels.pop(), outermost
        self._levels[-1].statements.extend(inner.statements)

    @contextmanager
    def skipping(self, stem: str, *, unless: VirtualRegister | None = None, guard: Condition = True) -> Generator[None]:
        """A new level for statements that a branch goes around, if `guard` holds or `unless` does not."""
        end = self.fresh_label(stem)
        with self.loop():
            self.branch(end, unless=unless, guard=guard)
            yield
            self.label(end)

    def finish(self) -> list[Operation]:
        """The function's operations: register declarations, then the statements."""
        statements = _without_unused(self._levels[0].statements)
        self.version = max(self.target.ptx, *{statement.since for statement in statements}, (1, 0))
        declared, values = _declare(s.registers for s in statements)
        return [*declared, *(_operation(s, values) for s in statements)]


def _without_unused(statements: Sequence[BodyStatement]) -> list[BodyStatement]:
    """The statements less the unneeded ones whose results nothing reads."""
    kept, read = list[BodyStatement](), set[VirtualRegister]()
    for statement in reversed(statements):
        if not statement.unneeded or statement.registers[0] in read:
            kept.append(statement)
            read.update(statement.registers)
    return kept[::-1]


def _declare(uses: Iterable[Sequence[VirtualRegister]]) -> tuple[list[RegOp], Mapping[VirtualRegister, SSAValue]]:
    """One `.reg` for each type of register, numbered by first appearance."""
    groups: dict[str, dict[VirtualRegister, None]] = {type: {} for type in PREFIXES}
    for registers in uses:
        for register in registers:
            groups[register.type].setdefault(register)
    declared = {t: RegOp(t, PREFIXES[t], len(registers)) for t, registers in groups.items() if registers}
    values = {r: v for t, op in declared.items() for r, v in zip(groups[t], op.results, strict=True)}
    return list(declared.values()), values


def _operation(statement: BodyStatement, values: Mapping[VirtualRegister, SSAValue]) -> Operation:
    opcode, form, registers, guard, *_ = statement
    if opcode == "//":
        return CommentOp(form)
    if not opcode:
        return LabelOp(form)
    made = InstOp.of(opcode, form, [values[r] for r in registers], guard)
    if statement.location is not None:
        made.location = statement.location
    return made


def _access(
    opcode: str, space: str, registers: Sequence[VirtualRegister], type: str
) -> tuple[str, VirtualRegister | list[VirtualRegister]]:
    """The spelling of a load or a store, and what it moves: a vector unless it is one register."""
    type = type or registers[0].type
    if len(registers) == 1:
        return f"{opcode}.{space}.{type}", registers[0]
    return f"{opcode}.{space}.v{len(registers)}.{type}", [*registers]
