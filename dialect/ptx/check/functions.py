"""Names of a module across their declarations, and calls against the functions that they name.

Source: PTX ISA 9.7.12.5, 11.1 to 11.3, 11.6; where the text leaves it open, what ptxas 13.5 takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from ...isa.row import NEWEST, UnknownTargetError, named
from ..parser import PtxSyntaxError, read_prototype
from ..text.syntax import (
    Comment,
    Directive,
    Function,
    Immediate,
    Instruction,
    Module,
    Operand,
    Register,
    Symbol,
    Variable,
    Vector,
    integer,
    listed,
)
from ..types import REGISTER_BITS, compatible
from ..verifier import TargetContext
from .declarations import CONSTANT_BYTES, Complaint, Declarations, address_problems, size_of, variable_problems
from .directives import directive_problems, text_problems
from .names import Names

# Are the header and the variables of a module right, and do the declarations of each name agree.

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
        if isinstance(item, Comment):
            continue
        if isinstance(item, Directive):
            yield from ((item.line, 1, message) for message in text_problems(item.text, context, "module"))
            if file := _FILE.match(item.text):
                if (index := integer(file[1])) in files:
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
        tuple((v.space, v.type, v.count, v.vector, _alignment(v)) for v in some)
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


# Do lists of targets and prototypes name what they may, and do calls fit them: how many arguments and results, their
# types, sizes and alignments.

CALL_TABLES = ("u8", "u32", "u64")
"""The types of arrays that hold functions to be called."""


def list_problem(
    text: str, functions: Mapping[str, Function], names: Names, context: TargetContext
) -> tuple[str | None, tuple[Function, ...] | None]:
    """What is wrong with a list of labels or functions, or a prototype; and the functions that it stands for, None of
    labels."""
    kind = text.split()[0]
    if kind == ".callprototype":
        try:
            prototype = read_prototype(text)
        except PtxSyntaxError as error:
            return error.message, ()
        problems = [message for *_, message in Declarations(context).parameters(prototype)]
        problems += [p for text in prototype.directives for p in directive_problems(text, prototype, context)]
        return next(iter(problems), None), (prototype,)
    try:
        targets = listed(text)
    except ValueError as error:
        return str(error), None
    if kind == ".branchtargets":
        missing = next((name for name in targets if name not in names.labels), None)
        return missing and f"there is no label '{missing}' here", None
    callees = tuple(functions[name] for name in targets if name in functions and not functions[name].entry)
    other = next((name for name in targets if name not in {callee.name for callee in callees}), None)
    return other and f"expected functions that are declared above, got '{other}'", callees


def call_problem(call: Instruction, functions: Mapping[str, Function], names: Names) -> str | None:
    """What is wrong with a call; of one through a register, whether it fits the prototype or list that follows."""
    operands = list(call.operands)
    results = _items(operands.pop(0)) if operands and isinstance(operands[0], Vector) else ()
    if not operands:
        return "expected a function"
    target = operands.pop(0)
    arguments = _items(operands.pop(0)) if operands and isinstance(operands[0], Vector) else ()
    if isinstance(target, Register):
        type = names.type_of(target)
        if type and (type[0] not in "bus" or REGISTER_BITS[type] not in (32, 64)):
            return f"expected the address of a function in a 32 or 64-bit register, got a .{type} register"
        (last,) = operands if len(operands) == 1 else (None,)
        callees = _callees(last.name, names) if isinstance(last, Symbol) else None
        if callees is None:
            return "expected a label of .callprototype or .calltargets above, or a table"
    elif operands:
        return "expected the arguments in parentheses, and nothing after them"
    else:
        function = functions.get(target.name) if isinstance(target, Symbol) and not target.offset else None
        if function is None:
            return "expected a function" if isinstance(target, Symbol) else "expected a function or a register"
        if function.entry:
            return f"'{function.name}' is a kernel, expected a .func"
        callees = (function,)
    problems = (
        _matched(results, callee.returns, names, "result") or _matched(arguments, callee.parameters, names, "argument")
        for callee in callees
    )
    return next(filter(None, problems), None)


def _callees(name: str, names: Names) -> tuple[Function, ...] | None:
    """What the last operand of a call through a register stands for: functions, none of a table, or None."""
    if name in names.lists:
        return names.lists[name]
    variable = names.variables.get(name)
    table = variable is not None and variable.count is not None and variable.type in CALL_TABLES
    return () if table and name not in names.labels else None


def _items(operand: Operand) -> Sequence[Operand]:
    return operand.items if isinstance(operand, Vector) else ()


def _matched(actual: Sequence[Operand], formal: Sequence[Variable], names: Names, what: str) -> str | None:
    if formal and formal[-1].count == 0 and len(actual) >= len(formal) - 1:
        formal = formal[:-1]
        actual = actual[: len(formal)]
    if len(actual) != len(formal):
        return f"expected {len(formal)} {what}s, got {len(actual)}"
    for operand, variable in zip(actual, formal, strict=True):
        problem = _misfit(operand, variable, names)
        if problem is not None:
            return f"{what} for '{variable.name}': {problem}"
    return None


def _misfit(operand: Operand, formal: Variable, names: Names) -> str | None:
    """Why an operand is no argument for a parameter, or no result."""
    if isinstance(operand, Register):
        declared = names.type_of(operand)
        fits = declared is None or (formal.count is None and compatible(formal.type, declared))
        return None if fits else f"expected .{formal.type}, got a .{declared} register"
    if isinstance(operand, Immediate):
        floating = isinstance(operand.value, float)
        fits = formal.count is None and (formal.type[0] != "f" if not floating else formal.type[0] in "fb")
        return None if fits else f"expected .{formal.type}, got the literal {operand.text}"
    variable = names.variables.get(operand.name) if isinstance(operand, Symbol) else None
    if variable is None:
        return None
    if names.received(variable) or names.returned(variable):
        return f"'{variable.name}' is a parameter of the function itself, expected a .param variable of its body"
    if variable.space.partition("::")[0] != "param":
        return f"expected a .param variable, got '{variable.name}' in .{variable.space}"
    if not compatible(formal.type, variable.type) or _length(formal) != _length(variable):
        return f"expected {_spelled(formal)}, got {_spelled(variable)}"
    if _alignment(formal) != _alignment(variable):
        return f"expected .align {_alignment(formal)}, got .align {_alignment(variable)}"
    return None


def _length(variable: Variable) -> int | None:
    return None if variable.count is None and variable.vector == 1 else (variable.count or 1) * variable.vector


def _alignment(variable: Variable) -> int:
    return max(variable.align or 1, REGISTER_BITS.get(variable.type, 64) * variable.vector // 8)


def _spelled(variable: Variable) -> str:
    return f".{variable.type}" + ("" if variable.count is None else f"[{variable.count}]")
