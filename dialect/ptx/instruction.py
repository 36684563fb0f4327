"""`ptx.inst`: every PTX instruction; and what the rows say of an instruction before it is made."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import count
from typing import NamedTuple, cast

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Operation, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import IRDLOperation, irdl_attr_definition, opt_prop_def, prop_def, var_operand_def
from xdsl.parser import AttrParser, Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.mlir_lexer import PunctuationSpelling

from ..isa.row import PREDICATE, SPECIAL_REGISTERS, TENSOR, VARYING, Row, Target, Version
from ..mlir.words import irdl_op_definition
from .instructions import find
from .text.reader import OperandError, OperandReader
from .text.syntax import REGISTER_BITS, Operand, Register, bits_of, leaves, root_of
from .verifier import TargetContext, TypeOf, fitting, resolve, type_of_result, unknown

# What the table says of an instruction before it is made: is it legal, since when, what does it set.
#
# The operands are a form, text with `?` for each register, and the types of these registers, as `ptx.inst` has them.


class InstructionError(Exception):
    """An instruction that PTX does not have, and why."""


class UnavailableError(InstructionError):
    """An instruction, or a special register, that a target does not have."""

    def __init__(self, what: str, needs: str, target: Target) -> None:
        super().__init__(f"{what}, which needs {needs}; the target is {target}")


class InstructionFacts(NamedTuple):
    """An opcode with operands of certain kinds. `since` is the first PTX version in which the target has it. A `pure`
    instruction has no effects, and its result depends on its operands alone. `limited` says that only some literals are
    legal."""

    opcode: str
    since: Version
    pure: bool
    limited: bool


@lru_cache(65536)
def facts_of(opcode: str, form: str, types: tuple[str, ...], target: Target) -> InstructionFacts:
    """The facts of an instruction whose n-th register has the n-th type. Raises InstructionError if PTX has no such
    instruction; UnavailableError if the target does not have it."""
    try:
        operands, type_of = read_form(opcode, form, types)
    except OperandError as error:
        raise InstructionError(f"{opcode}: {error}") from None
    fits = fitting(opcode, operands, type_of)
    if isinstance(fits, str):
        raise InstructionError(fits)
    rows = [row for row, _ in fits]
    special = [o.name for operand in operands for o in leaves(operand) if isinstance(o, Register)]
    since = max((_since(opcode, rows, target), *(_special_since(n, target) for n in special if n in SPECIAL_REGISTERS)))
    pure = all(row.pure for row in rows) and VARYING.isdisjoint(special)
    limited = any(o.span or o.kind in (PREDICATE, TENSOR) for row in rows for o in row.operands)
    return InstructionFacts(opcode, since, pure, limited)


def _since(opcode: str, rows: Sequence[Row], target: Target) -> Version:
    versions = [since for row in rows if (since := row.since(target)) is not None and not _gone(row, target)]
    if not versions:
        older = rows[0].removed(target)
        wanted = rows[0].requirement() if older is None else "a version before PTX {}.{}".format(*older)
        raise UnavailableError(opcode, wanted, target)
    return min(versions)


def _gone(row: Row, target: Target) -> bool:
    """Whether every PTX version that knows the target has removed the instruction from it."""
    end = row.removed(target)
    return end is not None and target.ptx >= end


def _special_since(name: str, target: Target) -> Version:
    special = SPECIAL_REGISTERS[name]
    if target.sm < special.sm:
        raise UnavailableError(name, f"sm_{special.sm} or later", target)
    return special.ptx


@lru_cache(4096)
def has(target: Target, opcode: str) -> bool:
    """Whether a target has an instruction, in some PTX version."""
    return any(row.since(target) is not None for row, _ in find(opcode))


@lru_cache(4096)
def result_type(opcode: str) -> str:
    """The type of the register for the result of an instruction, such as "b32" for an s32 or two f16. Raises
    InstructionError if PTX has no such instruction, or none that sets one value."""
    types = {type for row, bindings in find(opcode) if (type := type_of_result(row, bindings)) is not None}
    if len(types) != 1:
        raise InstructionError(
            f"{opcode} sets no value, or values of several types" if find(opcode) else unknown(opcode)
        )
    return storage(*types)


def storage(type: str) -> str:
    """The type of a register for values of a type: an untyped one for all types but f32, f64 and pred."""
    return type if type in ("pred", "f32", "f64") else f"b{max(16, bits_of(type))}"


_NUMBERED = re.compile(r"\?")


def read_form(opcode: str, form: str, types: Sequence[str]) -> tuple[tuple[Operand, ...], TypeOf]:
    """The operands of a form, its registers numbered, and what gives their types. Raises OperandError if the form is
    not a list of operands."""
    numbers = count()
    text = _NUMBERED.sub(lambda _: f"%{next(numbers)}", form)
    reader = OperandReader()
    operands = reader.read_call(text) if root_of(opcode) == "call" else reader.read(text)

    def type_of(register: Register) -> str | None:
        number = register.name[1:].partition(".")[0]
        return types[int(number)] if number.isdigit() else None

    return operands, type_of


# `ptx.inst`: every PTX instruction. What an instruction may be is data: see `instructions`.


@irdl_attr_definition
class RegisterType(ParametrizedAttribute, TypeAttribute):  # pyright: ignore[reportUnsafeMultipleInheritance]
    """The storage of one register: `!ptx.reg<b32>`. A value of this type is the register, not its content."""

    name = "ptx.reg"

    type: StringAttr

    @staticmethod
    def of(type: str) -> RegisterType:
        """The register type called `type`, such as "b32" or "pred"."""
        return RegisterType(StringAttr(type))

    def verify(self) -> None:
        if self.type.data not in REGISTER_BITS:
            raise VerifyException(
                f"'{self.type.data}' is not a register type; expected one of {', '.join(REGISTER_BITS)}"
            )

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return (StringAttr(parser.parse_identifier()),)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.type.data)


def print_attributes(printer: Printer, op: Operation) -> None:
    """Prints ` attributes {...}` where an operation has some."""
    printer.print_op_attributes(op.attributes, print_keyword=True)


def parse_attributes(parser: Parser, op: Operation) -> None:
    """Parses the output of `print_attributes`."""
    if (attributes := parser.parse_optional_attr_dict_with_keyword()) is not None:
        op.attributes |= attributes.data


_BRACKETS: tuple[tuple[PunctuationSpelling, PunctuationSpelling], ...] = (("{", "}"), ("[", "]"), ("(", ")"))


@irdl_op_definition
class InstOp(IRDLOperation):
    """One instruction. Its operands are all registers that it uses, in the order of the text. `opcode` is the whole
    dotted spelling. `form` is the operand text with `?` for each register that is an SSA value: "{?, ?}, [?+16], 3,
    smem, %tid.x". `guard` is "@" or "@!". With a guard, the first operand is the predicate, and has no `?`."""

    name = "ptx.inst"

    opcode = prop_def(StringAttr)
    form = prop_def(StringAttr)
    guard = opt_prop_def(StringAttr)
    arguments = var_operand_def(RegisterType)

    @staticmethod
    def of(opcode: str, form: str, arguments: Sequence[SSAValue] = (), guard: str = "") -> InstOp:
        """Builds an instruction; with a guard, `arguments` starts with the predicate."""
        properties = {"opcode": _attribute(opcode), "form": _attribute(form)}
        if guard:
            properties["guard"] = _attribute(guard)
        return InstOp.create(operands=arguments, properties=properties)

    def spelling(self) -> tuple[str, str, str]:
        """The opcode, the form and the guard ("" without one)."""
        properties = cast(dict[str, StringAttr], self.properties)
        guard = properties.get("guard")
        return properties["opcode"].data, properties["form"].data, "" if guard is None else guard.data

    def verification_key(self) -> tuple[object, ...]:
        """Everything that the legality of the instruction depends on: spelling, form, register types, target.
        Attributes are replaced by their text where possible: a string caches its hash, an attribute computes it each
        time. Of abstract classes `type` tells them apart three times as fast as `isinstance`."""
        module = self._module()
        context = () if module is None else (module.properties.get("version"), module.properties.get("target"))
        values = [a.data if type(a) is StringAttr else a for a in (*self.properties.values(), *context)]
        shape = (len(self.results), len(self.regions), len(self.successors))
        kinds = [t.type.data if type(t := v.type) is RegisterType else t for v in self.operands]
        return (*self.properties, *values, *shape, *kinds)

    def verify_(self) -> None:
        opcode, form, guard = self.spelling()
        arguments = [cast(RegisterType, value.type).type.data for value in self.operands]
        expected = form.count("?") + bool(guard)
        if len(arguments) != expected:
            raise VerifyException(f"{opcode}: the form '{form}' takes {expected} registers, got {len(arguments)}")
        if guard not in ("", "@", "@!"):
            raise VerifyException(f'{opcode}: expected the guard "@" or "@!", got "{guard}"')
        if guard and arguments[0] != "pred":
            raise VerifyException(f"{opcode}: expected the guard to be a predicate register, got .{arguments[0]}")
        try:
            operands, type_of = read_form(opcode, form, arguments[bool(guard) :])
        except OperandError as error:
            raise VerifyException(f"{opcode}: {error}") from None
        if isinstance(problem := resolve(opcode, operands, type_of, self._context()), str):
            raise VerifyException(problem)

    def _context(self) -> TargetContext | None:
        module = self._module()
        if module is None:
            return None
        properties = cast(dict[str, StringAttr], module.properties)
        major, _, minor = properties["version"].data.partition(".")
        if not (major.isdigit() and minor.isdigit()):
            return None
        return TargetContext((int(major), int(minor)), tuple(properties["target"].data.split(", ")))

    def _module(self) -> Operation | None:
        module = self.parent_op()
        while module is not None and module.name != "ptx.module":
            module = module.parent_op()
        return module

    def print(self, printer: Printer) -> None:
        operands = iter(self.operands)
        if self.guard is not None:
            printer.print_string(f' "{self.guard.data}" ')
            printer.print_operand(next(operands))
        printer.print_string(f" {_pretty_opcode(self.opcode.data)} ")
        first, *rest = _pretty_pieces(self.form.data)
        printer.print_string(first or "()" if not rest else first)
        for piece, operand in zip(rest, operands, strict=False):
            printer.print_operand(operand)
            printer.print_string(piece)
        print_attributes(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> InstOp:
        operands: list[SSAValue] = []
        guard = parser.parse_optional_str_literal() or ""
        if guard in ("@", "@!"):
            operands.append(_parse_register(parser, parser.parse_unresolved_operand()))
            opcode = parser.parse_optional_str_literal() or _parse_opcode(parser)
        else:
            opcode, guard = guard or _parse_opcode(parser), ""
        form = _parse_form(parser, operands)
        op = cls.of(opcode, form, operands, guard)
        parse_attributes(parser, op)
        return op


_verify, _accepted = InstOp.verify_, set[tuple[object, ...]]()


def _verify_once(self: InstOp) -> None:
    """Remembers what was accepted, by xDSL's own verifier of operations, too: modules repeat the same instructions."""
    if (key := self.verification_key()) not in _accepted:
        _verify(self)
        _accepted.add(key)


InstOp.verify_ = _verify_once


@lru_cache(65536)
def _attribute(text: str) -> StringAttr:
    return StringAttr(text)


_BARE_OPCODE = re.compile(r"[A-Za-z_][\w$.]*(::[A-Za-z_][\w$.]*)*", re.ASCII)


@lru_cache(4096)
def _pretty_opcode(opcode: str) -> str:
    return opcode if _BARE_OPCODE.fullmatch(opcode) else quoted(opcode)


def quoted(text: str) -> str:
    """Text in quotes, as MLIR and the options of passes have it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


_FORM_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<mark>[?{}\[\](),+|-])|(?P<symbol>[A-Za-z_$][\w$.]*)|(?P<number>0x[0-9a-fA-F]+(?!\w)|\d+(?![\w.]))"
    r"|(?P<other>[^\s?{}\[\](),+|-]+)",
    re.ASCII,
)


@lru_cache(65536)
def _pretty_pieces(form: str) -> tuple[str, ...]:
    """The text between the registers of a form, spelled so that it lexes in MLIR."""
    pieces = [""]
    for match in _FORM_TOKEN.finditer(form):
        text = match.group()
        if text == "?":
            pieces.append("")
        elif match.lastgroup == "symbol":
            pieces[-1] += (
                "_" if text == "_" else f"@{text}" if re.fullmatch(r"[A-Za-z_][\w$.]*", text) else f"@{quoted(text)}"
            )
        elif len(pieces) > 1 and not pieces[-1] and text[0] == ".":
            pieces[-1] = ":" + text[1:]
        elif match.lastgroup == "other":
            pieces[-1] += quoted(text)
        else:
            pieces[-1] += text
    return tuple(pieces)


def _parse_opcode(parser: Parser) -> str:
    opcode = parser.parse_identifier(" as the opcode")
    while parser.parse_optional_punctuation(":"):
        parser.parse_punctuation(":")
        opcode += "::" + parser.parse_identifier(" as the qualifier")
    return opcode


def _parse_register(parser: Parser, name: UnresolvedOperand) -> SSAValue:
    values = parser.ssa_values.get(name.operand_name)
    if values is None or name.index >= len(values):
        parser.raise_error(f"register {name.span.text} is not declared by a ptx.reg above", name.span)
    return values[name.index]


def _parse_form(parser: Parser, operands: list[SSAValue]) -> str:
    parts = [_parse_operand(parser, operands, allow_empty=True)]
    if parts == ["()"]:
        return ""
    while parser.parse_optional_punctuation(","):
        parts.append(_parse_operand(parser, operands))
    return ", ".join(parts)


def _parse_operand(parser: Parser, operands: list[SSAValue], *, allow_empty: bool = False) -> str:
    """An atom and what may follow it: `+offset`, `|predicate`, `:component`."""
    text = _parse_atom(parser, operands)
    if allow_empty and text == "()":
        return text
    while True:
        if parser.parse_optional_punctuation("+"):
            text += "+" + _parse_atom(parser, operands)
        elif parser.parse_optional_punctuation("|"):
            text += "|" + _parse_atom(parser, operands)
        elif parser.parse_optional_punctuation(":"):
            text += "." + parser.parse_identifier(" as a vector component")
        else:
            return text


def _parse_atom(parser: Parser, operands: list[SSAValue]) -> str:
    for opening, close in _BRACKETS:
        if parser.parse_optional_punctuation(opening):
            return opening + _parse_items(parser, operands, close) + close
    if (register := parser.parse_optional_unresolved_operand()) is not None:
        operands.append(_parse_register(parser, register))
        return "?"
    if (symbol := parser.parse_optional_symbol_name()) is not None:
        return symbol.data
    if (literal := parser.parse_optional_str_literal()) is not None:
        return "!" + _parse_atom(parser, operands) if literal == "!" else literal
    if parser.parse_optional_keyword("_"):
        return "_"
    if parser.parse_optional_punctuation("-"):
        return "-" + _parse_atom(parser, operands)
    return _parse_number(parser)


def _parse_items(parser: Parser, operands: list[SSAValue], close: PunctuationSpelling) -> str:
    items: list[str] = []
    while not parser.parse_optional_punctuation(close):
        if items:
            parser.parse_punctuation(",")
        items.append(_parse_operand(parser, operands))
    return ", ".join(items)


def _parse_number(parser: Parser) -> str:
    start = parser.pos
    if parser.parse_optional_integer(allow_boolean=False, allow_negative=False) is None:
        parser.raise_error('expected an operand: a register, a number, @symbol, "text", [address] or {list}')
    content = parser.lexer.input.content
    end = start
    while end < len(content) and content[end].isalnum():
        end += 1
    return content[start:end]
