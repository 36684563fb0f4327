"""Calls against the functions that they name: how many arguments and results, their types, sizes and alignments.
Source: PTX ISA 9.7.12.5; where the text leaves it open, what ptxas 13.5 takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..parser import read_prototype
from ..text import syntax
from ..text.syntax import (
    ALONE,
    REGISTER_BITS,
    Function,
    Immediate,
    Operand,
    PtxSyntaxError,
    Register,
    Symbol,
    Variable,
    compatible,
)
from ..verifier import TargetContext
from .declarations import Names
from .directives import alignment_of, directive_problems

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
        problems = [message for *_, message in Names(context).parameters(prototype)]
        problems += [p for text in prototype.directives for p in directive_problems(text, prototype, context)]
        return next(iter(problems), None), (prototype,)
    try:
        targets = syntax.listed(text)
    except ValueError as error:
        return str(error), None
    if kind == ".branchtargets":
        missing = next((name for name in targets if name not in names.labels), None)
        return missing and f"there is no label '{missing}' here", None
    callees = tuple(functions[name] for name in targets if name in functions and not functions[name].entry)
    other = next((name for name in targets if name not in {callee.name for callee in callees}), None)
    return other and f"expected functions that are declared above, got '{other}'", callees


def call_problem(call: syntax.Instruction, functions: Mapping[str, Function], names: Names) -> str | None:
    """What is wrong with a call; of one through a register, whether it fits the prototype or list that follows."""
    parts = call.call
    if (target := parts.target) is None:
        return "expected a function"
    if isinstance(target, Register):
        type = names.type_of(target)
        if type and (type[0] not in "bus" or REGISTER_BITS[type] not in (32, 64)):
            return f"expected the address of a function in a 32 or 64-bit register, got a .{type} register"
        (last,) = parts.following if len(parts.following) == 1 else (None,)
        callees = _callees(last.name, names) if isinstance(last, Symbol) else None
        if callees is None:
            return "expected a label of .callprototype or .calltargets above, or a table"
    elif parts.following:
        return "expected the arguments in parentheses, and nothing after them"
    else:
        function = functions.get(target.name) if isinstance(target, Symbol) and not target.offset else None
        if function is None:
            return "expected a function" if isinstance(target, Symbol) else "expected a function or a register"
        if function.entry:
            return f"'{function.name}' is a kernel, expected a .func"
        callees = (function,)
    problems = (
        _matched(parts.results, callee.returns, names, "result")
        or _matched(parts.arguments, callee.parameters, names, "argument")
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
    if variable is None or not {formal.type, variable.type} <= REGISTER_BITS.keys() | ALONE:
        return None  # its declaration is wrong
    if names.passed(variable):
        return f"'{variable.name}' is a parameter of the function itself, expected a .param variable of its body"
    if variable.space.partition("::")[0] != "param":
        return f"expected a .param variable, got '{variable.name}' in .{variable.space}"
    if not compatible(formal.type, variable.type) or _length(formal) != _length(variable):
        return f"expected {_spelled(formal)}, got {_spelled(variable)}"
    if alignment_of(formal) != alignment_of(variable):
        return f"expected .align {alignment_of(formal)}, got .align {alignment_of(variable)}"
    return None


def _length(variable: Variable) -> int | None:
    return None if variable.count is None and variable.vector == 1 else (variable.count or 1) * variable.vector


def _spelled(variable: Variable) -> str:
    return f".{variable.type}" + ("" if variable.count is None else f"[{variable.count}]")
