"""What PTX text declares: the header, names that instructions may mention, names declared twice, and what declarations
of one name must agree in. Source: PTX ISA 5, 7.1, 11.1 to 11.3, 11.6; where the text leaves it open, what ptxas
13.0.88 takes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias, cast

from ...isa.row import ALLOTTED, CONSTANTS, NEWEST, SPECIAL_REGISTERS, UnknownTargetError, named, unavailable
from ..text import syntax
from ..text.reader import UNREAD
from ..text.syntax import Address, Directive, Function, Instruction, Label, Module, RegDecl, Register, Symbol, Variable
from ..verifier import TargetContext
from .directives import (
    RESERVED,
    address_problems,
    alignment_of,
    parameter_problems,
    size_of,
    text_problems,
    variable_problems,
)

Complaint: TypeAlias = tuple[int, int, str]
"""Line, column, message."""

CONSTANT_BYTES = 1 << 16
"""What the .const variables of a module may have together."""
PARAMETER_BYTES = 32764
"""What the parameters of a kernel may have together (5.1.6)."""


TARGET_OPTIONS = ("debug", "texmode_unified", "texmode_independent", "map_f64_to_f32")
DOUBLES = 13
"""The first target number that has f64."""
Item: TypeAlias = Function | Variable


def module_problems(module: Module, context: TargetContext) -> Iterator[Complaint]:
    """What is wrong with the header and the variables of a module, and with names that are declared several times."""
    if context.targets == module.targets:
        yield from ((*module.target_at, message) for message in _target_problems(module, context))
    items: dict[str, Item] = {}
    aliases: dict[str, str] = {}
    files: dict[int, str] = {}
    constants = 0
    for item in module.items:
        if isinstance(item, syntax.Comment):
            continue
        if isinstance(item, Directive):
            yield from ((item.line, 1, message) for message in text_problems(item.text, context, "module"))
            if file := _FILE.match(item.text):
                if (index := syntax.integer(file[1])) in files:
                    yield item.line, 1, f".file: {index} stands for '{files[index]}' already"
                files.setdefault(index, file[2])
            if item.text.startswith(".alias"):
                yield from ((item.line, 1, message) for message in _alias_problems(item.text, items, aliases))
            continue
        place = (item.line, item.column if isinstance(item, Variable) else 1)
        earlier = items.get(item.name)
        yield from ((*place, message) for message in _conflicts(earlier, item))
        if earlier is None or not _defined(earlier):
            items[item.name] = item
        if isinstance(item, Variable):
            constants += size_of(item) if item.space == "const" and _defined(item) else 0
            messages = [*variable_problems(item, context), *address_problems(item, lambda name: _space(items, name))]
            if item.space in ("local", "param"):
                messages.append(f"variable '{item.name}': a .{item.space} variable stands inside a function")
            if constants > CONSTANT_BYTES and item.space == "const":
                messages.append(f"the .const variables have at most {CONSTANT_BYTES} bytes together, got {constants}")
            yield from ((*place, message) for message in messages)
    for item in items.values():
        if isinstance(item, Function) and item.name not in aliases and not (_defined(item) or item.linking == "extern"):
            yield item.line, 1, f"function '{item.name}' has no body here; one of another module is .extern (11.6.1)"


def version_notes(module: Module) -> Iterator[Complaint]:
    """A note for a module whose PTX version is newer than the rows."""
    if module.version > NEWEST:
        text = "PTX {}.{} is newer than what is known; the module is judged as PTX {}.{}"
        yield *module.version_at, text.format(*module.version, *NEWEST)


_FILE = re.compile(r'\.file\s+(\d\w*)\s+"([^"]*)"', re.ASCII)


def _target_problems(module: Module, context: TargetContext) -> Iterator[str]:
    options = set(module.targets).intersection(TARGET_OPTIONS)
    if module.targets[0] in options:
        yield f"expected a target such as sm_90a in front of {module.targets[0]}"
    if options.issuperset(("texmode_unified", "texmode_independent")):
        yield "texmode_unified and texmode_independent exclude each other"
    sections = (item.text for item in module.items if isinstance(item, Directive))
    if "debug" in options and not any(re.match(r"\.section\s+\.debug", text) for text in sections):
        yield "debug needs a .section of debugging information, there is none"
    if "map_f64_to_f32" in options and any(target.sm >= DOUBLES for target in context.rows):
        yield f"map_f64_to_f32 is for targets before sm_{DOUBLES}, which have no f64"
    for name in module.targets:
        if name in TARGET_OPTIONS:
            continue
        try:
            target = named(name)
        except UnknownTargetError as error:
            yield str(error)
            continue
        if module.version < target.ptx:
            yield "target {} needs PTX {}.{} or later, the module's version is {}.{}".format(
                name, *target.ptx, *module.version
            )


def _space(items: Mapping[str, Item], name: str) -> str | None:
    item = items.get(name)
    return item and (item.space if isinstance(item, Variable) else "function")


def _defined(item: Item) -> bool:
    """Whether a declaration is the definition of its name."""
    return item.body is not None if isinstance(item, Function) else item.linking != "extern"


def _conflicts(earlier: Item | None, item: Item) -> Iterator[str]:
    """What is wrong with a declaration beside the one above it that has its name."""
    if isinstance(item, Function) and item.linking == "extern" and _defined(item):
        yield f"function '{item.name}' is .extern, which has no body"
    if earlier is None:
        return
    if isinstance(item, Function) and isinstance(earlier, Function) and item.entry == earlier.entry:
        what, shape = "function", _signature(item) == _signature(earlier)
        redefined = _defined(earlier)
        inherits = earlier.linking != "extern" and not item.linking
        linked = inherits or item.linking == earlier.linking
    elif isinstance(item, Variable) and isinstance(earlier, Variable):
        what, shape = "variable", _one_shape(item, earlier)
        redefined = _defined(item) and _defined(earlier)
        linked = bool(item.linking) or _defined(earlier)
    else:
        yield f"'{item.name}' was declared as another kind of thing"
        return
    if redefined:
        yield f"{what} '{item.name}' is defined twice"
    elif not shape:
        yield f"{what} '{item.name}' was declared with {'other parameters' if what == 'function' else 'another type'}"
    elif not linked:
        linking = [f".{linking}" if linking else "no linking" for linking in (earlier.linking, item.linking)]
        yield f"{what} '{item.name}' was declared with {linking[0]}, got {linking[1]}"


def _signature(function: Function) -> tuple[object, ...]:
    """What all declarations of a function have alike."""
    parameters = (
        tuple((v.space, v.type, v.count, v.vector, alignment_of(v)) for v in some)
        for some in (function.returns, function.parameters)
    )
    return (*parameters, ".noreturn" in function.directives)


def _one_shape(a: Variable, b: Variable) -> bool:
    """Whether two declarations of a variable agree; an open extent is of any size."""
    sizes = a.extents[:1], b.extents[:1]
    return (a.type, a.vector, len(a.extents), a.extents[1:]) == (b.type, b.vector, len(b.extents), b.extents[1:]) and (
        sizes[0] == sizes[1] or (0,) in sizes
    )


_ALIAS = re.compile(r"\.alias\s+([\w$%]+)\s*,\s*([\w$%]+)\s*;", re.ASCII)


def _alias_problems(text: str, items: Mapping[str, Item], aliases: dict[str, str]) -> Iterator[str]:
    """What is wrong with an alias (11.2.3)."""
    match = _ALIAS.fullmatch(text)
    if match is None:
        yield f"expected two functions as in .alias name, function;, got {text}"
        return
    alias, function = items.get(match[1]), items.get(match[2])
    if not isinstance(alias, Function) or alias.entry or _defined(alias) or match[1] in aliases:
        yield f"expected the declaration of a .func without a body as the alias, got '{match[1]}'"
    elif not isinstance(function, Function) or function.entry or function.linking in ("extern", "weak"):
        yield f"expected a .func of this module above, neither .extern nor .weak, got '{match[2]}'"
    elif _signature(alias) != _signature(function):
        yield f"'{match[1]}' has other parameters than '{match[2]}'"
    aliases[match[1]] = match[2]


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


def mentioned(operand: syntax.Operand) -> Iterator[str]:
    """The registers of an operand, as spelled."""
    return (leaf.name for leaf in syntax.leaves(operand) if isinstance(leaf, Register))


@dataclass
class Names:
    """What is declared in a scope and around it: registers with their types, variables and functions, labels."""

    context: TargetContext
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
    here: set[str] = field(default_factory=set[str])
    groups: set[str] = field(default_factory=set[str])
    defined: set[str] = field(default_factory=set[str])
    """What statements above have declared in this scope alone: names, numbered registers, labels."""

    def inside(self, body: Sequence[syntax.Statement], function: Function | None = None) -> Names:
        """The names of a scope: these, the parameters of a function, and labels; the others are declared one by one."""
        registers, variables, lists = dict(self.registers), dict(self.variables), dict(self.lists)
        called = set[str]() if function else self.called
        following = pairwise((*(s for s in body if not isinstance(s, syntax.Comment)), None))
        labels = self.labels | {
            label.name
            for label, next_ in following
            if isinstance(label, Label) and not (isinstance(next_, Directive) and next_.text.startswith(LISTS))
        }
        for parameter in (*function.parameters, *function.returns) if function else ():
            if parameter.space == "reg":
                registers[parameter.name] = parameter.type
            else:
                variables[parameter.name] = parameter
        return Names(self.context, registers, variables, labels, lists, function or self.function, called, self.unread)

    def passed(self, variable: Variable | None) -> str:
        """Whether a variable is "received" by the function, which does not write it, or "returned", so that it does not
        read it; "" for others."""
        sides = {"received": self.function.parameters, "returned": self.function.returns} if self.function else {}
        return next((side for side, some in sides.items() if any(variable is each for each in some)), "")

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

    def parameters(self, function: Function) -> Iterator[Complaint]:
        """What is wrong with the parameters and results of a function."""
        if len(function.returns) > 1:
            yield function.line, 1, "a function returns at most one value"
        size = sum(map(size_of, function.parameters)) if function.entry else 0
        if size > PARAMETER_BYTES:
            yield function.line, 1, f"the parameters of a kernel have at most {PARAMETER_BYTES} bytes, got {size}"
        for variable in (*function.returns, *function.parameters):
            if function.body is not None:  # without one there is no scope in which names could mean two things
                yield from self._twice(variable.line, variable.column, (variable.name,))
            messages = parameter_problems(variable, function, self.context)
            yield from ((variable.line, variable.column, message) for message in messages)

    def declaration(self, declared: RegDecl | Variable) -> Iterator[Complaint]:
        """Adds a declaration inside a function, and says what is wrong with it."""
        if isinstance(declared, Variable):
            yield from self._twice(declared.line, declared.column, (declared.name,))
            messages: Iterable[str] = variable_problems(declared, self.context, scoped=True)
            if declared.linking:
                messages = (*messages, f"variable '{declared.name}': .{declared.linking} stands outside of functions")
        else:
            yield from self._registers(declared)
            messages = self.context.width_problems(declared.type, declared.vector)
            if declared.type == "pred" and declared.vector > 1:
                messages = (*messages, "predicates make no vectors")
        yield from ((declared.line, declared.column, message) for message in messages)
        self.declare(declared)

    def _registers(self, declared: RegDecl) -> Iterator[Complaint]:
        if declared.name in RESERVED and declared.count is None:
            yield declared.line, declared.column, f"a register cannot have the name '{declared.name}'"
        if declared.count is None:
            yield from self._twice(declared.line, declared.column, (declared.name,))
        elif declared.name in self.groups:
            yield declared.line, declared.column, f"'{declared.name}<{declared.count}>' is declared twice"
        else:
            self.groups.add(declared.name)
            yield from self._twice(declared.line, declared.column, declared.names())

    def label(self, label: Label) -> Iterator[Complaint]:
        """Whether a label is defined twice."""
        if label.name in RESERVED:
            yield label.line, 1, f"a label cannot have the name '{label.name}'"
        if label.name in self.defined:
            yield label.line, 1, f"label '{label.name}' is defined twice"
        self.defined.add(label.name)
        yield from self._twice(label.line, 1, (label.name,))

    def _twice(self, line: int, column: int, names: tuple[str, ...]) -> Iterator[Complaint]:
        if again := next((name for name in names if name in self.here and name != "_"), None):
            yield line, column, f"'{again}' is declared twice in this scope"
        self.here.update(names)

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
        if variable is None or variable.type in syntax.OPAQUE_TYPES:
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
        name, passed = variable.name, self.passed(variable)
        if (instruction.root, passed) in (("st", "received"), ("ld", "returned")):
            return f"the parameter '{name}' is {passed}, it cannot be {'written' if passed == 'received' else 'read'}"
        if passed:
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
                label = branch and not isinstance(operand, Address)
                unknown = (self._unknown(leaf, label) for leaf in syntax.leaves(operand))
                if (problem := next(filter(None, unknown), None)) is not None:
                    return problem
        return None

    def _plain(self, operand: syntax.Operand) -> bool:
        """Whether an operand is a literal, a declared register, or a vector of these."""
        kind = type(operand)
        if kind is syntax.Vector:
            return all(map(self._plain, cast(syntax.Vector, operand).items))
        return kind is syntax.Immediate or (kind is Register and cast(Register, operand).name in self.registers)

    def _not_allotted(self, name: str) -> str | None:
        """Which directive the kernel lacks for a special register; None if it lacks none."""
        if name not in ALLOTTED or self.function is None or not self.function.entry:
            return None
        directives = {directive.split()[0] for directive in self.function.directives}
        return None if ALLOTTED[name] in directives else f"needs {ALLOTTED[name]} at its kernel"

    def _unknown(self, leaf: Register | syntax.Immediate | Symbol, branch: bool) -> str | None:
        """A message about a name that is not declared."""
        match leaf:
            case Register(name) if self.type_of(leaf) is None:
                if name not in SPECIAL_REGISTERS:
                    return f"no .reg declares '{name}'"
                why = unavailable(self.context.rows, self.context.version).get(name) or self._not_allotted(name)
                return why and f"the special register {name} {why}"
            case Symbol(name) if branch:
                return f"there is no label '{name}' here"
            case Symbol(name) if self.space_of(name) is None and name not in CONSTANTS:
                return f"'{name}' is not declared"
            case _:
                return None
