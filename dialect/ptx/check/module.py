"""All that is wrong with a PTX module, in the order of its text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..text.syntax import (
    Function,
    Instruction,
    Label,
    Module,
    RegDecl,
    Scope,
    Statement,
    Symbol,
    Variable,
    instructions,
)
from ..unmodelled import family
from ..verifier import TargetContext, check
from .calls import call_problem
from .declarations import Declarations, module_problems
from .directives import directive_problems
from .names import Names
from .repairs import repairs
from .uses import Uses
from .values import Values


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
                    names.declare(statement)
                case Scope():
                    inner = Declarations(self.context)
                    yield from self._body(statement.body, names.inside(statement.body), uses, inner)
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
