"""Checking PTX text against the instruction rows, without assembling it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..dialect.isa.targets import UnknownTargetError
from ..dialect.isa.targets import target as target_row
from ..dialect.ptx.instructions import roots
from ..dialect.ptx.syntax import Function, Instruction, Label, Module, RegDecl, Scope, Statement, Variable
from ..dialect.ptx.verifier import Context, check
from ..passes.ptx_parser import read_ptx
from .check_names import Names
from .check_uses import Uses
from .check_values import Values
from .errors import WarploomError

KNOWN_ROOTS = roots()
"""First words of the opcodes that have rows; an instruction of another word is parsed and no more."""


@dataclass(frozen=True, order=True)
class Diagnostic:
    """Something wrong at a place in a file; lines and columns count from 1."""

    line: int
    column: int
    message: str

    def show(self, file: str) -> str:
        """The diagnostic as compilers print it: `file:line:col: error: message`."""
        return f"{file}:{self.line}:{self.column}: error: {self.message}"


def check_ptx(text: str, target: str | None = None, name: str = "<ptx>") -> list[Diagnostic]:
    """What is wrong with PTX text, in the order of the file: nothing, statements that cannot be read, or instructions
    that mention what is not declared, do not exist, have operands that do not fit, are not on the target, or can be
    proved wrong where they stand.

    `target` replaces the file's own `.target`. Of instructions whose first word has no row only names are looked at.

    Raises:
        WarploomError: for an unknown `target`.
    """
    if target is not None:
        try:
            target_row(target)
        except UnknownTargetError as error:
            raise WarploomError(str(error)) from error
    module, errors = read_ptx(text, name)
    found = [Diagnostic(error.line, error.column, error.message) for error in errors]
    if module is not None:
        found.extend(_check_module(module, Context(module.version, (target,) if target else module.targets)))
    return sorted(found, key=lambda diagnostic: (diagnostic.line, diagnostic.column))


def _check_module(module: Module, context: Context) -> Iterator[Diagnostic]:
    names = Names.of(module)
    for item in module.items:
        if isinstance(item, Function) and item.body is not None:
            inside = names.inside(item.body, (*item.parameters, *item.returns))
            yield from _check_body(item.body, inside, context, Uses(Values(item)))


def _check_body(body: Sequence[Statement], names: Names, context: Context, uses: Uses) -> Iterator[Diagnostic]:
    for statement in body:
        match statement:
            case RegDecl() | Variable():
                names.declare(statement)
            case Scope():
                yield from _check_body(statement.body, names.inside(statement.body), context, uses)
            case Label():
                uses.label()
            case Instruction():
                for message in _problems(statement, names, context, uses):
                    yield Diagnostic(statement.line, statement.column, message)
            case _:
                pass


def _problems(instruction: Instruction, names: Names, context: Context, uses: Uses) -> Iterator[str]:
    """What is wrong with an instruction: a name; or its form, operands or target; or else where it stands."""
    missing = names.missing(instruction)
    if missing is not None:
        yield f"{instruction.opcode}: {missing}"
        return
    if instruction.opcode.partition(".")[0] not in KNOWN_ROOTS or names.unreadable(instruction):
        return
    message = check(instruction.opcode, instruction.operands, names.type_of, context)
    if message is not None:
        yield message
        return
    for problem in uses.problems(instruction, names):
        yield f"{instruction.opcode}: {problem}"
