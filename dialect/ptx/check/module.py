"""All that is wrong with a PTX module, in the order of its text: instructions that are wrong where they stand, and text
that ptxas repairs silently."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import starmap
from math import gcd
from typing import Literal

from ...isa import wmma
from ...isa.form import Form, ProductForm
from ...isa.mma import LoadMatrix, StoreMatrix
from ...isa.row import named
from ...isa.wmma import WmmaMove
from ..instructions import Traits, traits
from ..parser import read_ptx
from ..text import syntax
from ..text.source_lines import SourceLines
from ..text.syntax import REGISTER_BITS, Address, Directive, Function, Instruction, Label, Module, Statement, Variable
from ..verifier import TargetContext, resolve
from .declarations import LISTS, Names, module_problems, version_notes
from .directives import address_problems, directive_problems, text_problems
from .functions import call_problem, list_problem
from .registers import REPAIRED, Repairs, Values

# Instructions that are legal by themselves and wrong where they stand, as far as that can be proved.
#
# Addresses that are not aligned, strides of `wmma`, metadata without a meaning, and `.aligned` instructions that not
# all lanes of a warp execute. Source: PTX ISA 9.7.14.4.2, 9.7.14.5.14 to 9.7.14.6.3; 6.4.1.1 (alignment of accesses).

MATRIX_ROW_BYTES = 16
STRIDE_BYTES = 16
"""What the stride of a wmma fragment is a multiple of, as CUDA's mma.h has it; the text has the fragment's size."""
LEAVES = ("bra", "ret", "exit")
"""What some lanes may do while others go on."""


class Uses:
    """Checks the instructions of one function in the order of its text."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self._gone: str | None = None
        self._group: tuple[str, int] | None = None

    @cached_property
    def values(self) -> Values:
        """What the registers of the function hold."""
        return Values(self.function)

    def label(self) -> None:
        """A label, which lanes may reach from elsewhere."""
        self._gone = None

    def problems(self, instruction: Instruction, names: Names) -> Iterator[str]:
        """Provable errors of an instruction that is legal by itself."""
        facts = traits(instruction.opcode)
        if facts.aligned:
            yield from self._divergence(instruction)
        if instruction.root == "tcgen05" and (group := facts.bindings.get("G")):
            first, line = self._group = self._group or (group, instruction.line)
            if group != first:
                yield f"expected .{first} as at line {line}: a function has one of both (PTX ISA 9.7.16.5)"
        if facts.row is not None:
            for operand in instruction.operands:
                if isinstance(operand, Address):
                    yield from self._alignment(instruction, operand, _bytes(facts), names)
            if isinstance(facts.row, Form):
                yield from self._matrix(instruction, facts.row)
        self._leave(instruction)

    # Divergence

    def _leave(self, instruction: Instruction) -> None:
        if instruction.root in LEAVES and instruction.guard is not None:
            lanes = self._lanes(instruction.guard)
            if lanes is not None:
                action = "branches" if instruction.root == "bra" else "ends"
                self._gone = f"the '{instruction.opcode}' of line {instruction.line} {action} in {lanes} only"

    def _divergence(self, instruction: Instruction) -> Iterator[str]:
        lanes = None if instruction.guard is None else self._lanes(instruction.guard)
        why = f"its guard is true in {lanes} only" if lanes is not None else self._gone
        if why is not None:
            yield f"all lanes of a warp must execute an .aligned instruction together, {why}"

    def _lanes(self, guard: syntax.Guard) -> str | None:
        """The lanes in which a guard holds, in words; None if these are all or unknown."""
        register = syntax.Register(guard.register)
        predicate = self.values.of(syntax.Not(register) if guard.negated else register)
        if predicate is None or predicate.uniform is not None:
            return None
        true = [lane for lane, value in enumerate(predicate.numbers) if value]
        return ("lane " if len(true) == 1 else "lanes ") + syntax.ranges(true)

    # Addresses

    def _alignment(self, instruction: Instruction, address: Address, needed: int, names: Names) -> Iterator[str]:
        place = self.values.of(address) if needed > 1 else None
        if place is None:
            return
        alignment = gcd(needed, _symbol_alignment(names.variables.get(place.symbol))) if place.symbol else needed
        for lane, number in enumerate(place.numbers):
            if number % alignment:
                where = f"{place.symbol}+{number}" if place.symbol else str(number)
                of = f" in lane {lane}" if len(place.numbers) > 1 else ""
                yield f"expected an address that is a multiple of {needed} bytes, got {where}{of}"
                return

    def _matrix(self, instruction: Instruction, form: Form) -> Iterator[str]:
        operands = instruction.operands
        if isinstance(form, WmmaMove) and len(operands) == 3:
            stride, needed = (
                self.values.number(operands[2]),
                min(wmma.alignment(form.shape, form.role, form.type), STRIDE_BYTES),
            )
            if stride is not None and stride * form.type.bits % (8 * needed):
                yield f"expected a stride that is a multiple of {needed} bytes, got {stride} x {form.type.name}"
        if isinstance(form, ProductForm) and form.sparse:
            word = operands[next(i for i, slot in enumerate(form.operands) if slot.name == "e")]
            number = self.values.number(word.items[0] if isinstance(word, syntax.Vector) else word)
            if number is not None and (complaint := form.metadata_problem(number)) is not None:
                yield f"operand e: {complaint}"


def _bytes(facts: Traits) -> int:
    """The alignment in bytes of an instruction's addresses; 1 if it is not known."""
    form, bindings = facts.row, facts.bindings
    if not isinstance(form, Form):
        bits = REGISTER_BITS.get(bindings.get("T", ""), 8)
        return int((bindings.get("V") or "v1")[1:]) * bits // 8
    if isinstance(form, LoadMatrix | StoreMatrix):
        return MATRIX_ROW_BYTES
    return wmma.alignment(form.shape, form.role, form.type) if isinstance(form, WmmaMove) else 1


def _symbol_alignment(variable: Variable | None) -> int:
    """The alignment of a variable in bytes; 1 for other symbols."""
    if variable is None:
        return 1
    return variable.align or max(1, REGISTER_BITS.get(variable.type, 8) * variable.vector // 8)


@dataclass(frozen=True, order=True)
class Diagnostic:
    """An error or a note at a place in a file. Lines and columns count from 1."""

    line: int
    column: int
    message: str
    source: str = ""
    """What the line was compiled from, where `.loc` says so."""
    severity: Literal["error", "note"] = "error"

    def show(self, file: str) -> str:
        """The diagnostic as compilers print it: `file:line:col: error: message`."""
        source = f" ({self.source})" if self.source else ""
        return f"{file}:{self.line}:{self.column}: {self.severity}: {self.message}{source}"


@dataclass
class Checker:
    """Checks a module, or functions of it, for the version and target of `context`. With `uses`, it also checks legal
    instructions in their context."""

    module: Module
    context: TargetContext
    uses: bool = True

    def __post_init__(self) -> None:
        self._names = Names(self.context)
        self._functions: dict[str, Function] = {}

    def problems(self) -> Iterator[Diagnostic]:
        """What is wrong with the header, declarations and functions."""
        for line, column, message in module_problems(self.module, self.context):
            yield Diagnostic(line, column, message)
        for item in self.module.items:
            self._declare(item)
            if isinstance(item, Function):
                yield from self.function(item)

    def _declare(self, item: object) -> None:
        if isinstance(item, Function | Variable):
            self._names.declare(item)
        if isinstance(item, Function):
            self._functions[item.name] = item

    def notes(self) -> Iterator[Diagnostic]:
        """Notes: statements that are no errors, and statements that ptxas assembles differently from the text."""
        yield from starmap(Diagnostic, version_notes(self.module))
        for item in self.module.items:
            if isinstance(item, Function) and any(i.root in REPAIRED for i in syntax.instructions(item.body or ())):
                for instruction, text in Repairs(item).notes():
                    yield Diagnostic(instruction.line, instruction.column, f"{instruction.opcode}: {text}")

    def function(self, function: Function) -> Iterator[Diagnostic]:
        """The errors of one function."""
        self._places: set[str] = set()
        inside = self._names.inside(function.body or (), function)
        yield from starmap(Diagnostic, inside.parameters(function))
        for text in function.directives:
            messages = directive_problems(text, function, self.context)
            yield from (Diagnostic(function.line, 1, message) for message in messages)
        if function.body is not None:
            yield from self._body(function.body, inside, Uses(function) if self.uses else None)

    def kernel(self, function: Function) -> Iterator[Diagnostic]:
        """What is wrong with a kernel and the functions that it calls by name."""
        for item in self.module.items:
            self._declare(item)
        functions = self.module.functions
        reached = {function.name: function}
        todo = [function]
        while todo:
            calls = (i.call for i in syntax.instructions(todo.pop().body or ()) if i.is_call)
            named = {call.name: functions[call.name] for call in calls if call.name in functions}
            todo += [function for name, function in named.items() if name not in reached]
            reached |= named
        for item in reached.values():
            yield from self.function(item)

    def _body(self, body: Sequence[Statement], names: Names, uses: Uses | None) -> Iterator[Diagnostic]:
        before: Statement | None = None
        for statement in body:
            match statement:
                case Instruction():
                    for message in self._problems(statement, names, uses):
                        yield Diagnostic(statement.line, statement.column, message)
                case syntax.RegDecl() | Variable():
                    yield from starmap(Diagnostic, names.declaration(statement))
                    if isinstance(statement, Variable):
                        for message in address_problems(statement, names.space_of):
                            yield Diagnostic(statement.line, statement.column, message)
                case syntax.Scope():
                    yield from self._body(statement.body, names.inside(statement.body), uses)
                case Directive():
                    for message in self._directive(statement, before, names):
                        yield Diagnostic(statement.line, 1, message)
                case Label():
                    yield from starmap(Diagnostic, names.label(statement))
                    if uses is not None:
                        uses.label()
                case _:
                    continue
            before = statement

    def _directive(self, directive: Directive, before: Statement | None, names: Names) -> Iterator[str]:
        """What is wrong with a directive in a body, which names what a label in front of it stands for."""
        yield from text_problems(directive.text, self.context, "body")
        if directive.text.startswith(".loc"):
            places = [" ".join(numbers.split()) for numbers in _PLACES.findall(directive.text)]
            if places[1:] and places[1] not in self._places:
                yield f"no .loc above is the place {places[1]} of inlined_at"
            self._places.update(places[:1])
        shared = (v for v in names.variables.values() if v is not None and v.space == "shared")
        if '"enable_smem_spilling"' in directive.text and any(0 in v.extents[:1] for v in shared):
            yield "enable_smem_spilling is for modules without shared memory of open size"
        if not directive.text.startswith(LISTS):
            return
        if not isinstance(before, Label):
            yield f"expected a label in front of {directive.text.split()[0]}"
            return
        problem, names.lists[before.name] = list_problem(directive.text, self._functions, names, self.context)
        if problem is not None:
            yield problem

    def _problems(self, instruction: Instruction, names: Names, uses: Uses | None) -> Iterator[str]:
        """The errors of an instruction: an undeclared name, else its form, operands or target, else its context."""
        problem = names.missing(instruction)
        if problem is None and names.unreadable(instruction):
            return
        problem = problem or names.parameter_problem(instruction)
        if problem is None:
            row = resolve(instruction.opcode, instruction.operands, names.type_of, self.context, names.space_of)
            if isinstance(row, str):
                yield row
                return
            problem = call_problem(instruction, self._functions, names) if instruction.is_call else None
        problems = [problem] if problem is not None else () if uses is None else uses.problems(instruction, names)
        yield from (f"{instruction.opcode}: {problem}" for problem in problems)


_PLACES = re.compile(r"(?:\.loc|inlined_at)\s+(\d\w*\s+\d\w*\s+\d\w*)", re.ASCII)


def first_problem(module: Module) -> Diagnostic | None:
    """What `problems` begins with, in the order of the text; None if nothing is wrong with the module."""
    context = TargetContext(module.version, module.targets, module.address_size)
    return min(Checker(module, context).problems(), default=None)


@dataclass(frozen=True)
class Checked:
    """The result of a check. `notes` tell what ptxas does otherwise, and of a version newer than the rows."""

    diagnostics: list[Diagnostic]
    notes: list[Diagnostic] = field(default_factory=list[Diagnostic])


def check_text(text: str, target: str | None = None, name: str = "<ptx>") -> Checked:
    """What is wrong with PTX text. `target` replaces the file's own `.target`; `name` is what messages call the file.
    Raises UnknownTargetError for a target that there is not."""
    if target is not None:
        named(target)
    module, errors = read_ptx(text, name)
    diagnostics = [Diagnostic(error.line, error.column, error.message) for error in errors]
    if module is None:
        return Checked(diagnostics)
    targets = (target,) if target else module.targets
    checker = Checker(module, TargetContext(module.version, targets, module.address_size))
    diagnostics.extend(checker.problems())
    diagnostics.sort(key=lambda diagnostic: (diagnostic.line, diagnostic.column))
    notes = sorted(replace(note, severity="note") for note in checker.notes())
    if not (diagnostics or notes):
        return Checked([])
    lines = SourceLines(module)
    return Checked(*([replace(d, source=lines.note_at(d.line)) for d in some] for some in (diagnostics, notes)))
