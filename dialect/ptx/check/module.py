"""All that is wrong with a PTX module, in the order of its text; calls against signatures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..instructions import family, unavailable
from ..text.syntax import (
    Directive,
    Function,
    Immediate,
    Instruction,
    Label,
    Module,
    Operand,
    RegDecl,
    Register,
    Scope,
    Statement,
    Symbol,
    Variable,
    Vector,
    instructions,
)
from ..types import REGISTER_BITS, compatible
from ..verifier import TargetContext, check
from .declarations import (
    Declarations,
    address_problems,
    directive_problems,
    module_problems,
    pragma_problems,
    version_notes,
)
from .names import Names, Values
from .uses import Uses, repairs

# Do calls fit the functions that they name: how many arguments and results, their types, sizes and alignments.
#
# Source: PTX ISA 9.7.12.5; where the text leaves it open, what ptxas 13.0 takes.


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


# All that is wrong with a PTX module, in the order of its text.


@dataclass(frozen=True, order=True)
class Diagnostic:
    """An error at a place in a file. Lines and columns count from 1."""

    line: int
    column: int
    message: str

    def show(self, file: str, severity: str = "error") -> str:
        """The diagnostic as compilers print it: `file:line:col: error: message`."""
        return f"{file}:{self.line}:{self.column}: {severity}: {self.message}"


@dataclass
class Checker:
    """Checks a module, or functions of it. `context` is what it is for, its own version and target or others.

    With `uses`, instructions that are legal by themselves are looked at where they stand. `unmodelled` counts those
    that nothing is known of but their names, by the first word of their opcode.
    """

    module: Module
    context: TargetContext
    uses: bool = True
    unmodelled: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        self._names = Names.of(self.module, self.context)
        self._functions = {item.name: item for item in self.module.items if isinstance(item, Function)}

    def problems(self) -> Iterator[Diagnostic]:
        """What is wrong with the header, declarations and functions."""
        for line, column, message in module_problems(self.module, self.context):
            yield Diagnostic(line, column, message)
        for item in self.module.items:
            if isinstance(item, Function):
                yield from self.function(item)

    def notes(self) -> Iterator[Diagnostic]:
        """What is no error, and what ptxas makes otherwise than the text says."""
        yield from _placed(version_notes(self.module))
        for item in self.module.items:
            for instruction, text in repairs(item) if isinstance(item, Function) else ():
                yield Diagnostic(instruction.line, instruction.column, f"{instruction.opcode}: {text}")

    def function(self, function: Function) -> Iterator[Diagnostic]:
        """What is wrong with one function."""
        declared = Declarations(self.context)
        yield from _placed(declared.parameters(function))
        yield from (Diagnostic(function.line, 1, message) for message in directive_problems(function, self.context))
        if function.body is not None:
            inside = self._names.inside(function.body, function.parameters, function.returns)
            yield from self._body(function.body, inside, Uses(Values(function)) if self.uses else None, declared)

    def kernel(self, function: Function) -> Iterator[Diagnostic]:
        """What is wrong with a kernel and the functions that it calls by name."""
        functions = self.module.functions
        reached = {function.name: function}
        todo = [function]
        while todo:
            for name in _called(todo.pop().body or ()):
                if name in functions and name not in reached:
                    reached[name] = functions[name]
                    todo.append(functions[name])
        for item in reached.values():
            yield from self.function(item)

    def _body(
        self, body: Sequence[Statement], names: Names, uses: Uses | None, declared: Declarations
    ) -> Iterator[Diagnostic]:
        for statement in body:
            match statement:
                case Instruction():
                    for message in self._problems(statement, names, uses):
                        yield Diagnostic(statement.line, statement.column, message)
                case RegDecl() | Variable():
                    yield from _placed(declared.declaration(statement))
                    if isinstance(statement, Variable):
                        for message in address_problems(statement, names.space_of):
                            yield Diagnostic(statement.line, statement.column, message)
                    names.declare(statement)
                case Scope():
                    inner = Declarations(self.context)
                    yield from self._body(statement.body, names.inside(statement.body), uses, inner)
                case Directive():
                    for message in pragma_problems(statement.text, self.context, "body"):
                        yield Diagnostic(statement.line, 1, message)
                case Label():
                    yield from _placed(declared.label(statement))
                    if uses is not None:
                        uses.label()
                case _:
                    pass

    def _problems(self, instruction: Instruction, names: Names, uses: Uses | None) -> Iterator[str]:
        """What is wrong with an instruction: a name; or its form, operands or target; or else where it stands."""
        missing = names.missing(instruction)
        if missing is not None:
            yield f"{instruction.opcode}: {missing}"
            return
        if names.unreadable(instruction):
            return
        written = names.written_input(instruction)
        if written is not None:
            yield f"{instruction.opcode}: the parameter '{written}' is received, it cannot be written"
            return
        message = check(instruction.opcode, instruction.operands, names.type_of, self.context, names.space_of)
        if message is None and instruction.is_call:
            problem = call_problem(instruction, self._functions, names)
            message = problem and f"{instruction.opcode}: {problem}"
        if message is not None:
            yield message
            return
        if (lacking := unavailable(instruction.opcode, self.context.rows)) is not None:
            yield f"{instruction.opcode}: {lacking}, the module's target is {', '.join(self.context.targets)}"
            return
        if (of := family(instruction.opcode)) is not None:
            self.unmodelled[of] = self.unmodelled.get(of, 0) + 1
        if uses is not None:
            for problem in uses.problems(instruction, names):
                yield f"{instruction.opcode}: {problem}"


def _called(body: Sequence[Statement]) -> Iterator[str]:
    """The symbols that calls name."""
    for instruction in instructions(body):
        if instruction.is_call:
            yield from (operand.name for operand in instruction.operands if isinstance(operand, Symbol))


def first_problem(module: Module) -> Diagnostic | None:
    """What `problems` begins with, in the order of the text; None if nothing is wrong with the module."""
    return min(
        Checker(module, TargetContext(module.version, module.targets, module.address_size)).problems(), default=None
    )


def _placed(problems: Iterator[tuple[int, int, str]]) -> Iterator[Diagnostic]:
    for line, column, message in problems:
        yield Diagnostic(line, column, message)
