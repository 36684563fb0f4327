"""PTX text checked against the instruction rows, and sums of products that ptxas may fuse."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...dialect.isa.row import UnknownTargetError, named
from ...dialect.ptx.check.module import Checker, Diagnostic
from ...dialect.ptx.instructions import traits
from ...dialect.ptx.parser import read_ptx
from ...dialect.ptx.text.source_lines import SourceLines
from ...dialect.ptx.text.syntax import Function, Instruction, Module, Register, instructions
from ...dialect.ptx.verifier import TargetContext
from ..base.errors import WarploomError
from ..base.launch import text_or_file

# Sums of products that ptxas may turn into one multiply-add: neither instruction says how it rounds.
#
# Source: PTX ISA 9.7.3 (floating-point instructions, rounding modifiers). The interpreter rounds twice, as written.


@dataclass(frozen=True)
class UnroundedSum:
    """A sum at a place, and the line of the product that it adds."""

    line: int
    column: int
    product: int


def contractions(module: Module, kernel: str) -> tuple[UnroundedSum, ...]:
    """The sums of a kernel and its module's functions that a GPU may fuse with a product, in the text's order."""
    functions = (f for f in module.items if isinstance(f, Function) and (not f.entry or f.name == kernel))
    return tuple(sum_ for function in functions for sum_ in _in_function(list(instructions(function.body or ()))))


def _in_function(body: Sequence[Instruction]) -> Iterator[UnroundedSum]:
    products: dict[tuple[str, str], int] = {}
    for instruction in body:
        type = _unrounded(instruction, ("mul",))
        target = instruction.operands[0] if instruction.operands else None
        if type and isinstance(target, Register):
            products[type, target.name] = instruction.line
    for instruction in body:
        type = _unrounded(instruction, ("add", "sub"))
        names = [o.name for o in instruction.operands[1:] if isinstance(o, Register)]
        product = next((products[type, name] for name in names if (type, name) in products), None)
        if product is not None:
            yield UnroundedSum(instruction.line, instruction.column, product)


def _unrounded(instruction: Instruction, roots: tuple[str, ...]) -> str:
    """The type of an instruction with one of these roots and without a rounding; "" for any other."""
    bound = traits(instruction.opcode).bindings if instruction.root in roots else {}
    return "" if bound.get("ROUND", "rn") else bound["T"]


# Checking PTX text against the instruction rows, without assembling it.


@dataclass(frozen=True)
class Checked:
    """The result of a check. `notes` tell what ptxas does otherwise, and of a version newer than the rows."""

    diagnostics: list[Diagnostic]
    notes: list[Diagnostic] = field(default_factory=list[Diagnostic])


def check_ptx(text: str | os.PathLike[str], target: str | None = None, name: str | None = None) -> list[Diagnostic]:
    """Check PTX text, and return its errors in the order of the file.

    The check finds:

    - statements that cannot be parsed, and invalid headers and declarations;
    - instructions that do not exist, or that the target does not have;
    - operands that do not fit, or are not declared;
    - instructions that cannot be right at their position.

    `text` and `name` are those of `load_ptx`. `target` replaces the file's own `.target`.

    Raises:
        WarploomError: for an unknown `target`, or if there is no such file.
    """
    text, where = text_or_file(text, ".ptx", "<ptx>")
    return check_text(text, target, name or where).diagnostics


def check_text(text: str, target: str | None = None, name: str = "<ptx>") -> Checked:
    """As `check_ptx`, with notes. Raises WarploomError for an unknown `target`."""
    if target is not None:
        try:
            named(target)
        except UnknownTargetError as error:
            raise WarploomError(str(error)) from error
    module, errors = read_ptx(text, name)
    diagnostics = [Diagnostic(error.line, error.column, error.message) for error in errors]
    if module is None:
        return Checked(diagnostics)
    checker = Checker(
        module, TargetContext(module.version, (target,) if target else module.targets, module.address_size)
    )
    diagnostics.extend(checker.problems())
    diagnostics.sort(key=lambda diagnostic: (diagnostic.line, diagnostic.column))
    notes = sorted(replace(note, severity="note") for note in checker.notes())
    if not (diagnostics or notes):
        return Checked([])
    lines = SourceLines(module)
    return Checked(*([replace(d, source=lines.note_at(d.line)) for d in some] for some in (diagnostics, notes)))


def check_runnable(text: str, target: str | None = None, name: str = "<ptx>") -> list[Diagnostic]:
    """What the interpreter would reject in PTX text, in the order of the file. Errors of syntax are omitted, for
    `check_text` reports them. Raises WarploomError for an unknown target."""
    from ..interp.program import refused

    module, _ = read_ptx(text, name)
    if module is None:
        return []
    return sorted(
        Diagnostic(f.line, f.column, f"cannot be interpreted: {f.message} (kernel {f.kernel})", f.source)
        for f in refused(module, name, target)
    )


__all__ = ["Checked", "Diagnostic", "check_ptx", "check_runnable", "check_text"]
