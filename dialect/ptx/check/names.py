"""Whether every register, label and symbol that PTX text mentions is declared.

Source: PTX ISA 5.4 (Variables), 7 (Functions); labels and declarations of a scope end with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from ..special import CONSTANTS, SPECIAL_REGISTERS, unavailable
from ..text.declarations import UNREAD
from ..text.syntax import (
    Address,
    Function,
    Immediate,
    Indexed,
    Instruction,
    Label,
    Module,
    Not,
    Operand,
    Pair,
    RegDecl,
    Register,
    Statement,
    Symbol,
    Variable,
    Vector,
    members,
)
from ..types import OPAQUE_TYPES
from ..verifier import TargetContext

BRANCHES = ("bra", "brx")
_SELECTOR = re.compile(r"[bh]\d+")


def _parts(declared: RegDecl) -> Iterable[str]:
    """The registers of a declaration; of vectors, their parts."""
    if declared.vector == 1:
        return declared.names()
    return [f"{name}.{part}" for name in declared.names() for part in "xyzw"[: declared.vector]]


def mentioned(operand: Operand) -> Iterator[str]:
    """The registers of an operand, as spelled."""
    for member in members(operand):
        match member:
            case Register(name) | Not(Register(name)) | Address(Register(name)):
                yield name
            case Indexed():
                for item in member.items:
                    yield from mentioned(item)
            case _:
                pass


@dataclass
class Names:
    """What is declared in a scope and around it: registers with their types, variables and functions, labels."""

    registers: dict[str, str] = field(default_factory=dict[str, str])
    variables: dict[str, Variable | None] = field(default_factory=dict[str, "Variable | None"])
    """Symbols: variables, and functions as None."""
    labels: frozenset[str] = frozenset()
    inputs: frozenset[str] = frozenset()
    """Parameters that a function receives: they are not written."""
    unread: frozenset[str] = frozenset()
    """Registers whose declaration could not be read."""
    unavailable: Mapping[str, str] = field(default_factory=dict[str, str])
    """Special registers that the module's target or version does not have, and why."""

    @staticmethod
    def of(module: Module, context: TargetContext) -> Names:
        """What the whole module sees."""
        names = Names(unavailable=unavailable(context.rows, context.version))
        for item in module.items:
            if isinstance(item, Function):
                names.variables[item.name] = None
            elif isinstance(item, Variable):
                names.variables[item.name] = item
        return names

    def inside(
        self, body: Sequence[Statement], parameters: Iterable[Variable] = (), returns: Iterable[Variable] = ()
    ) -> Names:
        """The names of a scope: these, its parameters, and its labels; registers are declared one by one."""
        inputs = self.inputs | {parameter.name for parameter in parameters}
        inner = Names(dict(self.registers), dict(self.variables), frozenset(), inputs, self.unread, self.unavailable)
        for parameter in (*parameters, *returns):
            if parameter.space == "reg":
                inner.registers[parameter.name] = parameter.type
            else:
                inner.variables[parameter.name] = parameter
        inner.labels = self.labels | {s.name for s in body if isinstance(s, Label)}
        return inner

    def declare(self, statement: RegDecl | Variable) -> None:
        """Adds a declaration."""
        if isinstance(statement, RegDecl):
            self.registers.update(dict.fromkeys(_parts(statement), statement.type))
            if statement.type == UNREAD:
                self.unread |= frozenset(statement.names())
        else:
            self.variables[statement.name] = statement

    def type_of(self, register: Register) -> str | None:
        """The type of a declared register, or of the one that a video instruction takes a part of."""
        found = self.registers.get(register.name)
        if found is None and "." in register.name:
            name, _, part = register.name.rpartition(".")
            return self.registers.get(name) if _SELECTOR.fullmatch(part) else None
        return found

    def space_of(self, name: str) -> str | None:
        """Where a symbol lies: the state space of a variable, "function", "label"; None of what is not declared."""
        if name in self.labels:
            return "label"
        if name not in self.variables:
            return None
        variable = self.variables[name]
        if variable is None or variable.type in OPAQUE_TYPES:
            return "function" if variable is None else variable.type
        return variable.space.partition("::")[0]

    def unreadable(self, instruction: Instruction) -> bool:
        """Whether an instruction mentions a register whose declaration could not be read."""
        return bool(self.unread) and not self.unread.isdisjoint(
            name.partition(".")[0] for operand in instruction.operands for name in mentioned(operand)
        )

    def written_input(self, instruction: Instruction) -> str | None:
        """The received parameter that an instruction stores to, if it does."""
        if instruction.root != "st" or not instruction.operands or not isinstance(instruction.operands[0], Address):
            return None
        base = instruction.operands[0].base
        return base.name if isinstance(base, Symbol) and base.name in self.inputs else None

    def missing(self, instruction: Instruction) -> str | None:
        """What an instruction mentions that is not declared, in words."""
        guard = instruction.guard
        if guard is not None and guard.register not in self.registers:
            return f"no .reg declares the guard '{guard.register}'"
        if guard is not None and (type := self.registers[guard.register]) not in ("pred", UNREAD):
            return f"expected a predicate as the guard, got a .{type} register"
        branch = instruction.root in BRANCHES
        for operand in instruction.operands:
            if branch or not self._plain(operand):
                for name in self._unknown(operand, branch):
                    return name
        return None

    def _plain(self, operand: Operand) -> bool:
        """Whether an operand is a literal, a declared register, or several of them: what most operands are."""
        kind = type(operand)
        if kind is Vector:
            return all(map(self._plain, cast(Vector, operand).items))
        return kind is Immediate or (kind is Register and cast(Register, operand).name in self.registers)

    def _unknown(self, operand: Operand, branch: bool) -> Iterator[str]:
        match operand:
            case Register():
                if self.type_of(operand) is not None:
                    return
                if operand.name not in SPECIAL_REGISTERS:
                    yield f"no .reg declares '{operand.name}'"
                elif operand.name in self.unavailable:
                    yield f"the special register {operand.name} {self.unavailable[operand.name]}"
            case Symbol():
                known = operand.name in self.labels or operand.name in self.variables or operand.name in CONSTANTS
                if branch and operand.name not in self.labels:
                    yield f"there is no label '{operand.name}' here"
                elif not known:
                    yield f"'{operand.name}' is not declared"
            case Address():
                yield from self._unknown(operand.base, False)
            case Indexed():
                for item in operand.items:
                    yield from self._unknown(item, branch)
            case Not():
                yield from self._unknown(operand.register, branch)
            case Vector() | Pair():
                for member in members(operand):
                    yield from self._unknown(member, branch)
            case Immediate():
                return
