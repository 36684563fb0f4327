"""Emission of PTX with registers, value numbering and hoisting.

PTX text is a list of statements over mutable registers. The emitter keeps one open list per loop level.
A pure instruction is emitted once per distinct spelling and sources, and at the outermost level where its
sources are known, so that address arithmetic leaves the loops without a pass of its own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import gcd
from typing import NamedTuple, TypeAlias

from xdsl.ir import Operation, SSAValue

from ...dialect.isa.targets import Version
from ...dialect.ptx.declarations import RegOp
from ...dialect.ptx.instruction import InstOp
from ...dialect.ptx.ops import CommentOp, LabelOp

PREFIXES = {"pred": "%p", "b16": "%h", "b32": "%r", "f32": "%f", "f64": "%d", "b64": "%rd"}
"""How registers of each type are called in the text."""


@dataclass(eq=False, slots=True)
class VirtualRegister:
    """One register. `level` is the loop level it is set at; -1 while nothing is known of it.

    `divisor` divides its value; `bound`, if known, is larger than its value as an unsigned number.
    `base` and `offset` say that it was computed as base + offset.
    """

    type: str
    level: int = 0
    divisor: int = 1
    bound: int | None = None
    base: VirtualRegister | None = None
    offset: int = 0


IndexValue: TypeAlias = VirtualRegister | int
"""What an index is at this level: a register, or a number known while compiling."""


class BodyStatement(NamedTuple):
    """An instruction; or with no opcode a label, or with opcode "//" a comment, both spelled by `form`."""

    opcode: str
    form: str
    registers: tuple[VirtualRegister, ...] = ()
    guard: str = ""
    pure: bool = False


Key = tuple[str, str, tuple[int, ...]]


@dataclass
class Level:
    """The statements emitted at one loop level so far, and the pure values they hold."""

    statements: list[BodyStatement] = field(default_factory=list[BodyStatement])
    values: dict[Key, VirtualRegister] = field(default_factory=dict[Key, VirtualRegister])


class Emitter:
    """Builds the body of one function."""

    def __init__(self) -> None:
        self._levels = [Level()]
        self._labels = 0
        self._deferred: dict[VirtualRegister, Sequence[BodyStatement]] = {}
        self.version: Version = (1, 0)
        """The oldest PTX version with all the instructions that said what they need."""

    def require(self, version: Version | None) -> None:
        """Notes that an instruction needs a PTX version; None, of one the target does not have, needs none."""
        self.version = max(self.version, version or self.version)

    @property
    def level(self) -> int:
        """The current loop level; 0 outside all loops."""
        return len(self._levels) - 1

    def register(self, type: str, *, divisor: int = 1, bound: int | None = None) -> VirtualRegister:
        """A fresh register that statements at this level set."""
        return VirtualRegister(type, self.level, divisor, bound)

    def registers(self, type: str, count: int) -> list[VirtualRegister]:
        return [VirtualRegister(type, self.level) for _ in range(count)]

    def emit(
        self,
        opcode: str,
        form: str,
        *registers: VirtualRegister,
        guard: VirtualRegister | None = None,
        unless: VirtualRegister | None = None,
    ) -> None:
        """Appends an instruction here, done if `guard`, or `unless`; `form` has a `?` for each register."""
        if self._deferred:
            self._emit_deferred(registers)
        if unless is not None:
            self._levels[-1].statements.append(BodyStatement(opcode, form, (unless, *registers), "@!"))
        elif guard is None:
            self._levels[-1].statements.append(BodyStatement(opcode, form, registers))
        else:
            self._levels[-1].statements.append(BodyStatement(opcode, form, (guard, *registers), "@"))

    def defer(self, result: VirtualRegister, *statements: BodyStatement) -> None:
        """Sets a register where an instruction first reads it, so that it is held no longer than needed.

        `statements` set it from registers that must keep their values until then, or until `settle`.
        """
        self._deferred[result] = statements

    def settle(self) -> None:
        """Sets every register that waits for its reader."""
        if self._deferred:
            self._emit_deferred(list(self._deferred))

    def _emit_deferred(self, registers: Iterable[VirtualRegister]) -> None:
        for register in registers:
            for statement in self._deferred.pop(register, ()):
                self._emit_deferred(statement.registers)
                self._levels[-1].statements.append(statement)

    def pure(self, type: str, opcode: str, form: str, *sources: VirtualRegister) -> VirtualRegister:
        """The result of an instruction without effects; `form` spells the operands after the destination.

        Predicates stay at their level: there are seven, and one that lives through a loop costs more than a `setp`.
        """
        level = self.level if type == "pred" else max((s.level for s in sources), default=0)
        place = self._levels[level]
        key = (opcode, form, tuple(map(id, sources)))
        known = place.values.get(key)
        if known is None:
            known = place.values[key] = VirtualRegister(type, level)
            place.statements.append(BodyStatement(opcode, f"?, {form}", (known, *sources), pure=True))
        return known

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
        """Statements inside go to a new level; pure values of outer sources still go out."""
        self._levels.append(Level())
        yield
        inner = self._levels.pop()
        self._levels[-1].statements.extend(inner.statements)

    def finish(self) -> list[Operation]:
        """The function's operations: register declarations, then the statements."""
        statements = _without_unused(self._levels[0].statements)
        declared, values = _declare(s.registers for s in statements)
        return [*declared, *(_operation(s, values) for s in statements)]


def _without_unused(statements: Sequence[BodyStatement]) -> list[BodyStatement]:
    """The statements less the pure ones whose results nothing reads."""
    kept: list[BodyStatement] = []
    read: set[VirtualRegister] = set()
    for statement in reversed(statements):
        if not statement.pure or statement.registers[0] in read:
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
    opcode, form, registers, guard, _ = statement
    if opcode == "//":
        return CommentOp(form)
    if not opcode:
        return LabelOp(form)
    return InstOp.of(opcode, form, [values[r] for r in registers], guard)


def divisor_of(value: IndexValue) -> int:
    """A number that divides the value; 0 for zero, which everything divides."""
    return abs(value) if isinstance(value, int) else value.divisor


def common_divisor(values: Iterable[IndexValue]) -> int:
    """A number that divides each of the values, and so their sum."""
    return gcd(*map(divisor_of, values))


def split(value: IndexValue) -> tuple[VirtualRegister | None, int]:
    """The value as register + constant."""
    if isinstance(value, int):
        return None, value
    return (value, 0) if value.base is None else (value.base, value.offset)
