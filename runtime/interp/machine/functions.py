"""Which functions a kernel calls, in which order they stand in its code, and which need a stack: PTX ISA 7.1, 9.7.12.5.

A call through a register goes to any function whose address is taken somewhere in the module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ....dialect.ptx.text.syntax import (
    Address,
    Directive,
    Function,
    Indexed,
    Instruction,
    Module,
    Operand,
    RegDecl,
    Scope,
    Statement,
    Symbol,
    Variable,
    Vector,
    instructions,
    members,
    statements,
)
from ..errors import DecodeError
from ..instructions.builtins import BUILTINS

_STACK = ("alloca", "stacksave", "stackrestore")

CODE = 1 << 59
"""Where the addresses of functions begin; nothing can be read there."""


class CallError(DecodeError):
    """What is wrong with a call, and which it is."""

    def __init__(self, call: Instruction, message: str) -> None:
        super().__init__(f"{call.opcode}: {message}")
        self.call = call


@dataclass(frozen=True)
class Functions:
    """The functions of a module with a body, by name, and those whose address is taken.

    `bodies` are in the order in which the module first declares them. `initialised` has the names in the initialisers
    of module variables.
    """

    bodies: Mapping[str, Function]
    taken: frozenset[str]
    initialised: Mapping[str, tuple[str, ...]]

    @staticmethod
    def of(module: Module) -> Functions:
        """Finds them in instructions, initialisers and `.calltargets`."""
        declared = dict.fromkeys(item.name for item in module.items if isinstance(item, Function))
        bodies = {name: module.functions[name] for name in declared if name in module.functions}
        initialised: dict[str, tuple[str, ...]] = {}
        named: set[str] = set()
        for item in module.items:
            if isinstance(item, Variable) and item.init:
                initialised[item.name] = tuple(re.findall(r"[\w$%]+", item.init))
                named.update(initialised[item.name])
            elif isinstance(item, Function):
                named.update(_taken(item.body or ()))
        taken = frozenset(name for name in named if name in bodies and not bodies[name].entry)
        return Functions(bodies, taken, initialised)

    @property
    def addresses(self) -> dict[str, int]:
        """The address of each function."""
        return {name: CODE + 16 * number for number, name in enumerate(self.bodies, 1)}

    def callees(self, function: Function) -> list[str]:
        """The functions with a body that a function calls.

        Raises:
            CallError: for one that is not there, or that is a kernel.
        """
        found: list[str] = []
        for call in instructions(function.body or ()):
            if not call.is_call:
                continue
            callee = callee_name(call)
            if callee is None:
                found += sorted(self.taken)
            elif callee in self.bodies:
                if self.bodies[callee].entry:
                    raise CallError(call, f"'{callee}' is a kernel; only functions can be called")
                found.append(callee)
            elif callee not in BUILTINS:
                raise CallError(call, f"function '{callee}' has no body in this module")
        return list(dict.fromkeys(found))

    def in_order(self, kernel: Function) -> tuple[list[Function], frozenset[str]]:
        """The functions that a kernel calls, directly or not, callees first as far as they do not call each other; and
        the names of those that need a stack, as they may be called while they run, or take memory there."""
        edges: dict[str, list[str]] = {}
        order: list[Function] = []
        self._visit(kernel, edges, order)
        stacked = {name for name, f in self.bodies.items() if any(map(_uses_stack, instructions(f.body or ())))}
        for name in edges:
            if name in _reachable(edges, name):
                stacked.add(name)
        return order[:-1], frozenset(stacked)

    def used(self, kernel: Function) -> tuple[list[Function], set[str]]:
        """The functions that a kernel calls or whose address it may know, directly or not, and itself, in the order of
        the module; and the names that they mention, initialisers included.

        Raises:
            CallError: for a call of a function that is not there, or of a kernel.
        """
        reached, seen, names = {kernel.name}, set[str](), list(self._named(kernel))
        while names:
            name = names.pop()
            if name in seen:
                continue
            seen.add(name)
            names += self.initialised.get(name, ())
            function = self.bodies.get(name)
            if function is not None and not function.entry:
                reached.add(name)
                names += self._named(function)
        return [function for name, function in self.bodies.items() if name in reached], seen

    def _named(self, function: Function) -> Iterator[str]:
        yield from self.callees(function)
        yield from _mentioned(function.body or (), frozenset(v.name for v in (*function.parameters, *function.returns)))

    def _visit(self, function: Function, edges: dict[str, list[str]], order: list[Function]) -> None:
        edges[function.name] = self.callees(function)
        for name in edges[function.name]:
            if name not in edges:
                self._visit(self.bodies[name], edges, order)
        order.append(function)


def _reachable(edges: Mapping[str, Sequence[str]], start: str) -> set[str]:
    """The functions that one calls, directly or not."""
    seen: set[str] = set()
    left = list(edges[start])
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += edges.get(name, ())
    return seen


def _uses_stack(instruction: Instruction) -> bool:
    return instruction.root in _STACK


def _mentioned(body: Sequence[Statement], hidden: frozenset[str]) -> Iterator[str]:
    """The names of operands that the body does not declare: of variables and functions of the module, and labels."""
    hidden |= {s.name for s in body if isinstance(s, Variable | RegDecl)}
    for statement in body:
        if isinstance(statement, Scope):
            yield from _mentioned(statement.body, hidden)
        elif isinstance(statement, Instruction):
            yield from (name for o in statement.operands for name in _symbols(o) if name not in hidden)


def _symbols(operand: Operand) -> Iterator[str]:
    for member in members(operand):
        if isinstance(member, Symbol):
            yield member.name
        elif isinstance(member, Address) and isinstance(member.base, Symbol):
            yield member.base.name
        elif isinstance(member, Indexed):
            yield from (name for item in member.items for name in _symbols(item))


def _taken(body: Sequence[Statement]) -> Iterator[str]:
    """Names that stand for addresses, not for what is called."""
    for statement in statements(body):
        if isinstance(statement, Directive) and statement.text.startswith(".calltargets"):
            yield from re.findall(r"[\w$%]+", statement.text)
        elif isinstance(statement, Instruction) and not statement.is_call:
            yield from (o.name for o in statement.operands if isinstance(o, Symbol))


def callee_name(call: Instruction) -> str | None:
    """The function a call names; None for a call through a register."""
    first = [o for o in call.operands[:2] if not isinstance(o, Vector)][:1]
    return first[0].name if first and isinstance(first[0], Symbol) else None


def has_results(call: Instruction) -> bool:
    """Whether there is something to copy when a function is done."""
    return bool(call.operands) and isinstance(call.operands[0], Vector) and bool(call.operands[0].items)
