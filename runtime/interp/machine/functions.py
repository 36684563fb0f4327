"""Which functions a kernel calls, in which order they stand in its code, and which need a stack: PTX ISA 7.1, 9.7.12.5.

A call through a register goes to any function whose address is taken somewhere in the module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ....dialect.ptx.text.syntax import (
    Directive,
    Function,
    Instruction,
    Module,
    Statement,
    Symbol,
    Variable,
    Vector,
    instructions,
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
    """The functions of a module with a body, by name, and those whose address is taken."""

    bodies: Mapping[str, Function]
    taken: frozenset[str]

    @staticmethod
    def of(module: Module) -> Functions:
        """Finds them in instructions, initialisers and `.calltargets`."""
        bodies = module.functions
        named: set[str] = set()
        for item in module.items:
            if isinstance(item, Variable):
                named.update(re.findall(r"[\w$%]+", item.init or ""))
            elif isinstance(item, Function):
                named.update(_mentioned(item.body or ()))
        return Functions(bodies, frozenset(name for name in named if name in bodies and not bodies[name].entry))

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


def _mentioned(body: Sequence[Statement]) -> Iterator[str]:
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
