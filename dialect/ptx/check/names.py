"""The names that PTX text mentions, and what its registers provably hold."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import cast

from ...isa.row import ALLOTTED, ANYTHING, CONSTANTS, SPECIAL_REGISTERS, unavailable
from ...layouts.layout import LANES
from ..instructions import Traits, traits
from ..rows.arithmetic import COMPARISONS, UNSIGNED
from ..text.syntax import (
    Address,
    Comment,
    Directive,
    Function,
    Immediate,
    Instruction,
    Label,
    Module,
    Not,
    Operand,
    RegDecl,
    Register,
    Scope,
    Statement,
    Symbol,
    Variable,
    Vector,
    instructions,
    leaves,
)
from ..types import OPAQUE_TYPES, REGISTER_BITS, UNREAD, bits_of
from ..verifier import TargetContext

# Whether every register, label and symbol that PTX text mentions is declared.
#
# Source: PTX ISA 5.4 (Variables), 7 (Functions); labels and declarations of a scope end with it.

BRANCHES = ("bra", "brx")
LISTS = (".branchtargets", ".calltargets", ".callprototype")
"""Directives that a label names, for jumps and calls through registers."""
_SELECTOR = re.compile(r"[bh]\d+")


def _parts(declared: RegDecl) -> Iterable[str]:
    """The registers of a declaration; of vectors, their parts."""
    if declared.vector == 1:
        return declared.names()
    return [f"{name}.{part}" for name in declared.names() for part in "xyzw"[: declared.vector]]


def mentioned(operand: Operand) -> Iterator[str]:
    """The registers of an operand, as spelled."""
    return (leaf.name for leaf in leaves(operand) if isinstance(leaf, Register))


@dataclass
class Names:
    """What is declared in a scope and around it: registers with their types, variables and functions, labels."""

    registers: dict[str, str] = field(default_factory=dict[str, str])
    variables: dict[str, Variable | None] = field(default_factory=dict[str, "Variable | None"])
    """Symbols: variables, and functions as None."""
    labels: frozenset[str] = frozenset()
    lists: dict[str, tuple[Function, ...] | None] = field(default_factory=dict[str, "tuple[Function, ...] | None"])
    """Labels of lists and prototypes above, with the functions that calls find there; None of `.branchtargets`."""
    function: Function | None = None
    called: set[str] = field(default_factory=set[str])
    """Parameters that calls above have written."""
    unread: frozenset[str] = frozenset()
    """Registers whose declaration could not be read."""
    unavailable: Mapping[str, str] = field(default_factory=dict[str, str])
    """Special registers that the module's target or version does not have, and why."""

    @staticmethod
    def of(module: Module, context: TargetContext) -> Names:
        """The names of a module's scope."""
        names = Names(unavailable=unavailable(context.rows, context.version))
        for item in module.items:
            if isinstance(item, Function | Variable):
                names.declare(item)
        return names

    def inside(self, body: Sequence[Statement], function: Function | None = None) -> Names:
        """The names of a scope: these, the parameters of a function, and labels; the others are declared one by one."""
        inner = replace(
            self,
            registers=dict(self.registers),
            variables=dict(self.variables),
            lists=dict(self.lists),
            function=function or self.function,
            called=set() if function else self.called,
        )
        if function and function.entry:
            words = {directive.split()[0] for directive in function.directives}
            lacking = {name: f"needs {need} at its kernel" for name, need in ALLOTTED.items() if need not in words}
            inner.unavailable = {**lacking, **self.unavailable}
        for parameter in (*function.parameters, *function.returns) if function else ():
            if parameter.space == "reg":
                inner.registers[parameter.name] = parameter.type
            else:
                inner.variables[parameter.name] = parameter
        following = pairwise((*(s for s in body if not isinstance(s, Comment)), None))
        inner.labels = self.labels | {
            label.name
            for label, next_ in following
            if isinstance(label, Label) and not (isinstance(next_, Directive) and next_.text.startswith(LISTS))
        }
        return inner

    def received(self, variable: Variable | None) -> bool:
        """Whether a variable is a parameter of the function, which it does not write."""
        return self.function is not None and any(variable is each for each in self.function.parameters)

    def returned(self, variable: Variable | None) -> bool:
        """Whether a variable is what the function returns, which it does not read."""
        return self.function is not None and any(variable is each for each in self.function.returns)

    def declare(self, statement: RegDecl | Variable | Function) -> None:
        """Adds a declaration."""
        if isinstance(statement, Function):
            self.variables[statement.name] = None
        elif isinstance(statement, RegDecl):
            self.registers.update(dict.fromkeys(_parts(statement), statement.type))
            if statement.type == UNREAD:
                self.unread |= frozenset(statement.names())
        else:
            self.variables[statement.name] = statement

    def type_of(self, register: Register) -> str | None:
        """The type of a declared register, or of the register whose part a video instruction selects."""
        type_ = self.registers.get(register.name)
        if type_ is None and "." in register.name:
            name, _, part = register.name.rpartition(".")
            return self.registers.get(name) if _SELECTOR.fullmatch(part) else None
        return type_

    def space_of(self, name: str) -> str | None:
        """The state space of a variable, "function" or "label"; None for an undeclared name."""
        if name in self.labels or name in self.lists:
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

    def parameter_problem(self, instruction: Instruction) -> str | None:
        """What is wrong with the use of a `.param` variable: which are read, written, and have an address (5.1.6.4)."""
        if instruction.is_call:
            self.called.update(o.name for o in instruction.call.results if isinstance(o, Symbol))
        at = {"st": 0, "ld": 1, "mov": 1, "cvta": 1}.get(instruction.root)
        if at is None or len(instruction.operands) <= at:
            return None
        place = instruction.operands[at]
        base = place.base if isinstance(place, Address) else place
        kernel = self.function is not None and self.function.entry
        inside = f"{instruction.opcode}." if instruction.root in ("ld", "st") else ""
        if isinstance(base, Register) and kernel and ".param::func." in inside:
            return "a kernel has its parameters in .param::entry, expected a .param variable of its body"
        variable = self.variables.get(base.name) if isinstance(base, Symbol) else None
        if variable is None or variable.space != "param":
            return None
        name, received, returned = variable.name, self.received(variable), self.returned(variable)
        if instruction.root == "st" and received:
            return f"the parameter '{name}' is received, it cannot be written"
        if instruction.root == "ld" and returned:
            return f"the parameter '{name}' is returned, it cannot be read"
        if received or returned:
            other = kernel and ".param::func." in inside
            return f"'{name}' is a parameter of a kernel, expected a .param variable of its body" if other else None
        if instruction.root not in ("ld", "st"):
            return f"'{name}' is an argument or a result of calls, which has no address"
        if ".param::entry." in inside:
            return f"expected a parameter of a kernel, got '{name}'"
        if instruction.root == "ld" and name not in self.called:
            return f"no call above writes '{name}'"
        return None

    def missing(self, instruction: Instruction) -> str | None:
        """A message about the first name in an instruction that is not declared; None if all are."""
        guard = instruction.guard
        if guard is not None and guard.register not in self.registers:
            return f"no .reg declares the guard '{guard.register}'"
        if guard is not None and (type := self.registers[guard.register]) not in ("pred", UNREAD):
            return f"expected a predicate as the guard, got a .{type} register"
        branch = instruction.root in BRANCHES
        target = instruction.operands[-1] if branch and instruction.operands else None
        if isinstance(target, Symbol) and (target.name in self.lists or target.name in self.labels):
            indirect = instruction.root == "brx"
            table = target.name not in self.labels and self.lists[target.name] is None
            if not (table if indirect else target.name in self.labels):
                return f"expected a label {'of .branchtargets' if indirect else 'of a statement'}, got '{target.name}'"
            if target.offset:
                return f"expected a label, got '{target.name}+{target.offset}'"
            return None
        for operand in instruction.operands:
            if branch or not self._plain(operand):
                unknown = (self._unknown(leaf, branch and not isinstance(operand, Address)) for leaf in leaves(operand))
                if (problem := next(filter(None, unknown), None)) is not None:
                    return problem
        return None

    def _plain(self, operand: Operand) -> bool:
        """Whether an operand is a literal, a declared register, or a vector of these."""
        kind = type(operand)
        if kind is Vector:
            return all(map(self._plain, cast(Vector, operand).items))
        return kind is Immediate or (kind is Register and cast(Register, operand).name in self.registers)

    def _unknown(self, leaf: Register | Immediate | Symbol, branch: bool) -> str | None:
        """A message about a name that is not declared."""
        match leaf:
            case Register(name) if self.type_of(leaf) is None:
                if name not in SPECIAL_REGISTERS:
                    return f"no .reg declares '{name}'"
                return f"the special register {name} {self.unavailable[name]}" if name in self.unavailable else None
            case Symbol(name) if branch:
                return f"there is no label '{name}' here"
            case Symbol(name) if self.space_of(name) is None and name not in CONSTANTS:
                return f"'{name}' is not declared"
            case _:
                return None


# What registers of a PTX function are known to hold: constants, addresses, and values that the lane decides.
#
# Only what can be proved is known: a register that is written once, without a guard, from what is known. Values are
# those of the first warp of a CTA, lane by lane; addresses are offsets from a symbol.


@dataclass(frozen=True, slots=True)
class SymbolicValue:
    """A value: `symbol` plus one number for all lanes, or a number for each lane; "" for a plain number."""

    symbol: str
    numbers: tuple[int, ...]

    @property
    def uniform(self) -> int | None:
        """The number that all lanes have; None if they differ."""
        return self.numbers[0] if len(set(self.numbers)) == 1 else None


def _number(value: int) -> SymbolicValue:
    return SymbolicValue("", (value,))


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul.lo": operator.mul,
    "mul.wide": operator.mul,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << min(b, 64),
    "shr": lambda a, b: a >> min(b, 64),
    "div": lambda a, b: a // b,
    "rem": lambda a, b: a % b,
    "min": min,
    "max": max,
}
"""What instructions compute of numbers that are not negative."""

_KEEPING = frozenset(("mov", "cvt", "cvta", "cvta.to"))
"""Names of instructions whose result is the number or the address that they read."""

_TYPES = frozenset(("pred", *(f"{kind}{bits}" for kind in "bus" for bits in (16, 32, 64))))
_PLAIN = frozenset(("T", "D", "S", "P", "PART", "IS"))
"""What a row may bind of an instruction that is followed: types, a space, the half of a product, a comparison."""


class Values:
    """What the registers of one function hold."""

    def __init__(self, function: Function) -> None:
        self._writers: dict[str, Instruction | None] = {}
        self._values: dict[str, SymbolicValue | None] = dict(_special(function))
        _collect(function.body or (), self._writers)

    def of(self, operand: Operand) -> SymbolicValue | None:
        """The known value of an operand. For an address, the place that it points to."""
        match operand:
            case Immediate():
                value = operand.value
                return _number(value) if isinstance(value, int) else None
            case Symbol():
                return SymbolicValue(operand.name, (operand.offset,))
            case Register():
                return self._register(operand.name)
            case Address():
                base = self.of(operand.base)
                return base and SymbolicValue(base.symbol, tuple(n + operand.offset for n in base.numbers))
            case Not():
                inner = self._register(operand.register.name)
                return inner and SymbolicValue("", tuple(1 - n for n in inner.numbers))
            case _:
                return None

    def _register(self, name: str) -> SymbolicValue | None:
        if name not in self._values:
            # A register that depends on itself is not known.
            self._values[name] = None
            writer = self._writers.get(name)
            self._values[name] = None if writer is None else self._result(writer)
        return self._values[name]

    def _result(self, writer: Instruction) -> SymbolicValue | None:
        effects = traits(writer.opcode)
        if not _is_followed(effects) or len(writer.operands) not in (2, 3):
            return None
        sources = [self.of(operand) for operand in writer.operands[1:]]
        facts = [s for s in sources if s is not None]
        if len(facts) != len(sources):
            return None
        if effects.name in _KEEPING:
            return facts[0] if len(facts) == 1 else None
        return _computed(effects, *facts) if len(facts) == 2 else None


def _is_followed(facts: Traits) -> bool:
    """Whether the checker can compute the result of an instruction: plain integer arithmetic without saturation."""
    types = facts.types
    if not types or types[0] not in _TYPES or types[-1] not in REGISTER_BITS or bits_of(types[-1]) > bits_of(types[0]):
        return False
    plain = all(not value or name in _PLAIN for name, value in facts.bindings.items())
    return plain and (facts.name in _KEEPING or facts.name == "setp" or facts.name in _ARITHMETIC)


def _computed(facts: Traits, a: SymbolicValue, b: SymbolicValue) -> SymbolicValue | None:
    name, type = facts.name, facts.types[0]
    if name == "setp":
        word = facts.bindings["IS"]
        compare = COMPARISONS.get(word) or UNSIGNED.get(word)
        return None if compare is None or a.symbol or b.symbol else _lanewise(lambda x, y: int(compare(x, y)), a, b)
    if a.symbol or b.symbol:
        # Of addresses, sums alone are addresses.
        return _lanewise(operator.add, a, b) if name == "add" and not (a.symbol and b.symbol) else None
    if min(*a.numbers, *b.numbers) < 0 or (name in ("div", "rem") and 0 in b.numbers):
        return None
    result = _lanewise(_ARITHMETIC[name], a, b)
    bits = 1 if type == "pred" else int(type[1:]) * (2 if name == "mul.wide" else 1)
    return result if all(0 <= n < 1 << (bits - (type[0] == "s")) for n in result.numbers) else None


def _lanewise(compute: Callable[[int, int], int], a: SymbolicValue, b: SymbolicValue) -> SymbolicValue:
    length = max(len(a.numbers), len(b.numbers))
    pairs = zip(a.numbers * (length // len(a.numbers)), b.numbers * (length // len(b.numbers)), strict=True)
    return SymbolicValue(a.symbol or b.symbol, tuple(compute(x, y) for x, y in pairs))


def _special(function: Function) -> Iterable[tuple[str, SymbolicValue]]:
    """The special registers with known values. `%tid` is known if `.reqntid` gives the CTA's size."""
    lanes = tuple(range(LANES))
    yield "%laneid", SymbolicValue("", lanes)
    size = function.numbers(".reqntid")
    if not size:
        return
    x, y, z = (*size, 1, 1)[:3]
    for axis, extent in zip("xyz", (x, y, z), strict=True):
        yield f"%ntid.{axis}", _number(extent)
    if x >= LANES:
        yield "%tid.x", SymbolicValue("", lanes)
        yield from ((f"%tid.{axis}", _number(0)) for axis in "yz")


def _collect(body: Sequence[Statement], writers: dict[str, Instruction | None]) -> None:
    """The instruction that writes each register; None where it is not one, or not certain to."""
    for statement in body:
        if isinstance(statement, Instruction):
            for name in written(statement):
                writers[name] = None if name in writers or statement.guard else statement
    # Names may be declared anew in a scope: what is written there is not followed.
    for instruction in instructions([statement for statement in body if isinstance(statement, Scope)]):
        writers.update(dict.fromkeys(written(instruction)))


def written(instruction: Instruction) -> Iterable[str]:
    """Registers that an instruction may write."""
    if not instruction.operands:
        return
    row = traits(instruction.opcode).row
    slots = () if row is None else row.operands
    has_slots = bool(slots) and slots[0].kind != ANYTHING
    for i, operand in enumerate(instruction.operands):
        if has_slots and i < len(slots) and not slots[i].written:
            continue
        yield from mentioned(operand)
