"""Do calls fit the functions that they name: how many arguments and results, their types, sizes and alignments.

Source: PTX ISA 9.7.12.5; where the text leaves it open, what ptxas 13.0 takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..text.syntax import Function, Immediate, Instruction, Operand, Register, Symbol, Variable, Vector
from ..types import REGISTER_BITS, compatible
from .names import Names


def call_problem(call: Instruction, functions: Mapping[str, Function], names: Names) -> str | None:
    """What is wrong with a call; of one through a register, whether a prototype or a list of functions follows."""
    operands = list(call.operands)
    results = _items(operands.pop(0)) if operands and isinstance(operands[0], Vector) else ()
    if not operands:
        return "expected a function"
    target = operands.pop(0)
    arguments = _items(operands.pop(0)) if operands and isinstance(operands[0], Vector) else ()
    if isinstance(target, Register):
        wanted = "a label of .callprototype or .calltargets"
        return (
            None if len(operands) == 1 and isinstance(operands[0], Symbol) else f"expected {wanted} after the arguments"
        )
    if operands:
        return "expected the arguments in parentheses, and nothing after them"
    function = functions.get(target.name) if isinstance(target, Symbol) else None
    if function is None:
        return None
    if function.entry:
        return f"'{function.name}' is a kernel, expected a .func"
    return _matched(results, function.returns, names, "result") or _matched(
        arguments, function.parameters, names, "argument"
    )


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
