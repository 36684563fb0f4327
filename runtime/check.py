"""Checking PTX text against the instruction rows, without assembling it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..dialect.isa.targets import UnknownTargetError
from ..dialect.isa.targets import target as target_row
from ..dialect.ptx.instructions import roots
from ..dialect.ptx.syntax import Function, Instruction, Module, RegDecl, Register, Scope, Statement
from ..dialect.ptx.verifier import Context, check
from ..passes.ptx_parser import PtxSyntaxError, parse_ptx
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
    """What is wrong with PTX text, in the order of the file: nothing, a syntax error, or instructions that do not
    exist, have operands that do not fit, or are not on the target.

    `target` replaces the file's own `.target`. Instructions whose first word has no row are not looked at.

    Raises:
        WarploomError: for an unknown `target`.
    """
    if target is not None:
        try:
            target_row(target)
        except UnknownTargetError as error:
            raise WarploomError(str(error)) from error
    try:
        module = parse_ptx(text, name)
    except PtxSyntaxError as error:
        return [Diagnostic(error.line, error.column, error.message)]
    return list(_check_module(module, Context(module.version, (target,) if target else module.targets)))


def _check_module(module: Module, context: Context) -> Iterator[Diagnostic]:
    for item in module.items:
        if isinstance(item, Function) and item.body is not None:
            registers = {v.name: v.type for v in (*item.parameters, *item.returns) if v.space == "reg"}
            yield from _check_body(item.body, registers, context)


def _check_body(body: Sequence[Statement], registers: dict[str, str], context: Context) -> Iterator[Diagnostic]:
    def type_of(register: Register) -> str | None:
        return registers.get(register.name) or registers.get(register.name.rpartition(".")[0])

    for statement in body:
        match statement:
            case RegDecl():
                registers.update(dict.fromkeys(statement.names(), statement.type))
            case Scope():
                yield from _check_body(statement.body, dict(registers), context)
            case Instruction() if statement.opcode.partition(".")[0] in KNOWN_ROOTS:
                message = check(statement.opcode, statement.operands, type_of, context)
                if message is not None:
                    yield Diagnostic(statement.line, statement.column, message)
            case _:
                pass
