"""Operations of the `ptx` dialect that make up a module, declarations, functions, labels, scopes; the dialect itself.

PTX is not in SSA form: a register is storage that many instructions may write. Here a register is an SSA value that
names that storage, defined by `ptx.reg`; an instruction takes every register it mentions, destinations included, as an
operand. So any PTX text has a module, and prints back. Source: PTX ISA, chapters 4, 5, 7 and 11.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, IntAttr, IntegerAttr, StringAttr, SymbolNameConstraint, UnitAttr, i64
from xdsl.ir import Attribute, Block, Data, Dialect, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_result_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, NoTerminator, SymbolOpInterface, SymbolTable
from xdsl.utils.exceptions import DiagnosticException, VerifyException

from ..mlir.upstream import BodyText
from ..mlir.words import irdl_op_definition
from .instruction import InstOp, RegisterType, parse_attributes, print_attributes
from .text.reader import MAX_REGISTERS, Cursor
from .text.syntax import PtxSyntaxError, Variable


@irdl_attr_definition
class VariableAttr(Data[Variable]):
    """A variable, a parameter or a returned value of a function, as PTX declares it: `#ptx.variable<".param .u64 a">`.
    The fields are those of `syntax.Variable`."""

    name = "ptx.variable"

    @staticmethod
    def of(type: str, name: str, count: int | None = None, align: int | None = None, pointer: str = "") -> VariableAttr:
        """A parameter `.param .align A .type name[count]`."""
        return VariableAttr(Variable("param", type, name, count, align, pointer=pointer))

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Variable:
        with parser.in_angle_brackets():
            return parse_variable(parser)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string_literal(str(self.data))


def parse_variable(parser: AttrParser) -> Variable:
    """Parses a declaration of PTX in quotes: `".param .u64 a"`."""
    place, text = parser.pos, parser.parse_str_literal()
    try:
        declared, *others = Cursor(f"{text};", "declaration").declared()
    except PtxSyntaxError as error:
        parser.raise_error(error.message, place)
    if not isinstance(declared, Variable) or others:
        parser.raise_error(f"expected the declaration of one variable, got '{text}'", place)
    return replace(declared, line=0)


@irdl_op_definition
class RegOp(IRDLOperation):
    """Declares registers. `.reg .b32 %r<5>;` has five results, %r0 to %r4. Without `count`, there is one result, called
    `base`. `vector` is 2 or 4 for `.reg .v2 .f32 %v;`."""

    name = "ptx.reg"

    base = prop_def(StringAttr)
    count = opt_prop_def(IntAttr)
    vector = opt_prop_def(IntAttr)
    res = var_result_def(RegisterType)

    def __init__(self, type: str, base: str, count: int | None = None, *, vector: int = 1) -> None:
        """Declares `count` registers `base0`, `base1`, ... or the one register `base`."""
        if count is not None and count > MAX_REGISTERS:
            raise VerifyException(f"expected at most {MAX_REGISTERS} registers of one name, got {count}")
        properties: dict[str, Attribute | None] = {
            "base": StringAttr(base),
            "count": None if count is None else IntAttr(count),
            "vector": None if vector == 1 else IntAttr(vector),
        }
        results = [RegisterType.of(type)] * (1 if count is None else count)
        super().__init__(properties=properties, result_types=[results])
        for name, result in zip(self.names(), self.results, strict=True):
            hint = name.lstrip("%")
            if hint.replace("_", "").isalnum() and not hint[0].isdigit():
                result.name_hint = hint

    @property
    def register_type(self) -> RegisterType:
        """The type of the registers declared; b32 where the count is 0."""
        type = self.results[0].type if self.results else None
        return type if isinstance(type, RegisterType) else RegisterType.of("b32")

    def names(self) -> list[str]:
        """The registers declared, in the order of the results."""
        base = self.base.data
        return [base] if self.count is None else [f"{base}{i}" for i in range(self.count.data)]

    def verify_(self) -> None:
        expected = 1 if self.count is None else self.count.data
        if len(self.results) != expected:
            raise VerifyException(f"'{self.base.data}' declares {expected} registers, got {len(self.results)} results")
        if self.count is not None and self.base.data[-1:].isdigit():
            raise VerifyException(f"'{self.base.data}<{expected}>': a base that is counted may not end in a digit")
        if len({r.type for r in self.results}) > 1:
            raise VerifyException(f"the registers of '{self.base.data}' must have one type")

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.register_type.type.data} ")
        printer.print_string_literal(self.base.data)
        if self.count is not None:
            printer.print_string(f"<{self.count.data}>")
        if self.vector is not None:
            printer.print_string(f" vector {self.vector.data}")
        print_attributes(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> RegOp:
        type, base = parser.parse_identifier(), parser.parse_str_literal()
        count = None
        if parser.parse_optional_punctuation("<"):
            count = parser.parse_integer(allow_negative=False)
            parser.parse_punctuation(">")
        vector = parser.parse_integer() if parser.parse_optional_keyword("vector") else 1
        op = cls(type, base, count, vector=vector)
        parse_attributes(parser, op)
        return op


@irdl_op_definition
class VarOp(IRDLOperation):
    """Declares a variable in a state space: `ptx.var ".shared .align 16 .b8 smem[1024]"`."""

    name = "ptx.var"

    sym_name = prop_def(StringAttr)
    declared = prop_def(VariableAttr)

    traits = traits_def(SymbolOpInterface())

    def __init__(self, variable: Variable) -> None:
        """An array keeps its dimensions: `name[0]` stands for `name[]`."""
        declared = VariableAttr(replace(variable, line=0))
        super().__init__(properties={"sym_name": StringAttr(variable.name), "declared": declared})

    @property
    def variable(self) -> Variable:
        """The declaration as a record."""
        return replace(self.declared.data, name=self.sym_name.data)

    def verify_(self) -> None:
        align = self.variable.align
        if align is not None and align.bit_count() != 1:
            raise VerifyException(f"the alignment of '{self.sym_name.data}' must be a power of two, got {align}")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_string_literal(str(self.variable))
        print_attributes(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> VarOp:
        op = cls(parse_variable(parser))
        parse_attributes(parser, op)
        return op


def _body(ops: Sequence[Operation] | Region) -> Region:
    return ops if isinstance(ops, Region) else Region(Block(ops))


@irdl_op_definition
class ModuleOp(IRDLOperation):
    """A PTX translation unit: `.version`, `.target`, `.address_size`, then functions and variables."""

    name = "ptx.module"
    custom_directives: ClassVar = (BodyText,)
    assembly_format = (
        "$sym_name `version` $version `target` $target `address_size` $address_size (`preamble` $preamble^)?"
        " attr-dict-with-keyword custom<BodyText>($body)"
    )

    sym_name = prop_def(SymbolNameConstraint())
    version = prop_def(StringAttr)
    target = prop_def(StringAttr)
    address_size = prop_def(IntegerAttr[i64])
    preamble = opt_prop_def(ArrayAttr[StringAttr])
    body = region_def("single_block")

    traits = traits_def(NoTerminator(), IsolatedFromAbove(), SymbolTable(), SymbolOpInterface())

    def __init__(
        self,
        name: str,
        ops: Sequence[Operation] | Region,
        *,
        version: str,
        target: str,
        address_size: int = 64,
        preamble: Sequence[str] = (),
    ) -> None:
        """`version` is written "8.0"; `target` "sm_80", further words after ", ". `preamble` holds comments that stand
        before them."""
        super().__init__(
            properties={
                "sym_name": StringAttr(name),
                "version": StringAttr(version),
                "target": StringAttr(target),
                "address_size": IntegerAttr(address_size, i64),
                **({"preamble": ArrayAttr(map(StringAttr, preamble))} if preamble else {}),
            },
            regions=[_body(ops)],
        )

    def verify_(self) -> None:
        if self.address_size.value.data not in (32, 64):
            raise VerifyException(f"expected address_size 32 or 64, got {self.address_size.value.data}")
        major, _, minor = self.version.data.partition(".")
        if not (major.isdigit() and minor.isdigit()):
            raise VerifyException(f'expected a PTX version such as "8.0", got "{self.version.data}"')


@irdl_op_definition
class FuncOp(IRDLOperation):
    """`.entry` (a kernel, `entry` set) or `.func`. An empty region makes it a declaration. `linking` is "", "visible",
    "weak" or "extern". `directives` are printed between header and body (".maxntid 256, 1, 1")."""

    name = "ptx.func"

    sym_name = prop_def(StringAttr)
    entry = opt_prop_def(UnitAttr)
    linking = prop_def(StringAttr)
    parameters = prop_def(ArrayAttr[VariableAttr])
    returns = prop_def(ArrayAttr[VariableAttr])
    directives = prop_def(ArrayAttr[StringAttr])
    body = region_def()

    traits = traits_def(NoTerminator(), IsolatedFromAbove(), SymbolOpInterface())

    def __init__(
        self,
        name: str,
        ops: Sequence[Operation] | Region | None,
        *,
        entry: bool = True,
        linking: str = "visible",
        parameters: Sequence[VariableAttr] = (),
        returns: Sequence[VariableAttr] = (),
        directives: Sequence[str] = (),
    ) -> None:
        """`ops` is None for a declaration."""
        super().__init__(
            properties={
                "sym_name": StringAttr(name),
                "linking": StringAttr(linking),
                "parameters": ArrayAttr(parameters),
                "returns": ArrayAttr(returns),
                "directives": ArrayAttr(map(StringAttr, directives)),
                **({"entry": UnitAttr()} if entry else {}),
            },
            regions=[Region() if ops is None else _body(ops)],
        )

    @property
    def is_declaration(self) -> bool:
        return not self.body.blocks

    def verify_(self) -> None:
        if self.linking.data not in ("", "visible", "weak", "extern"):
            raise VerifyException(f'expected linking "", visible, weak or extern, got "{self.linking.data}"')
        if len(self.body.blocks) > 1:
            raise VerifyException(
                f"function '{self.sym_name.data}' has {len(self.body.blocks)} blocks, expected one: "
                "control flow in PTX is by ptx.label and bra"
            )
        if self.entry is not None and self.returns.data:
            raise VerifyException(f"kernel '{self.sym_name.data}' returns values; only a .func may")

    def print(self, printer: Printer) -> None:
        printer.print_string(f"{' entry' * (self.entry is not None)} {self.linking.data}".rstrip() + " ")
        printer.print_symbol_name(self.sym_name.data)
        with printer.in_parens():
            printer.print_list(self.parameters, lambda p: printer.print_string_literal(str(p.data)))
        if self.returns.data:
            printer.print_string(" returns ")
            with printer.in_parens():
                printer.print_list(self.returns, lambda p: printer.print_string_literal(str(p.data)))
        if self.directives.data:
            printer.print_string(" directives ")
            with printer.in_square_brackets():
                printer.print_list(self.directives, lambda d: printer.print_string_literal(d.data))
        print_attributes(printer, self)
        if not self.is_declaration:
            printer.print_string(" ")
            printer.print_region(self.body, print_empty_block=False)

    @classmethod
    def parse(cls, parser: Parser) -> FuncOp:
        entry = parser.parse_optional_keyword("entry") is not None
        linking = parser.parse_optional_keyword_in(("visible", "weak", "extern")) or ""
        name = parser.parse_symbol_name().data
        parens, square = parser.Delimiter.PAREN, parser.Delimiter.SQUARE
        parameters = parser.parse_comma_separated_list(parens, lambda: VariableAttr(parse_variable(parser)))
        returns: list[VariableAttr] = []
        directives: list[str] = []
        if parser.parse_optional_keyword("returns"):
            returns = parser.parse_comma_separated_list(parens, lambda: VariableAttr(parse_variable(parser)))
        if parser.parse_optional_keyword("directives"):
            directives = parser.parse_comma_separated_list(square, parser.parse_str_literal)
        attributes = parser.parse_optional_attr_dict_with_keyword()
        body = parser.parse_optional_region()
        if body is not None and body.first_block is None:
            body.add_block(Block())
        op = cls(
            name, body, entry=entry, linking=linking, parameters=parameters, returns=returns, directives=directives
        )
        op.attributes |= attributes.data if attributes else {}
        return op


class _TextOp(IRDLOperation):
    """An operation with one string."""

    text = prop_def(StringAttr)

    assembly_format = "$text attr-dict-with-keyword"

    def __init__(self, text: str) -> None:
        super().__init__(properties={"text": StringAttr(text)})


@irdl_op_definition
class LabelOp(_TextOp):
    """A label, `name:`, to which `bra` can jump."""

    name = "ptx.label"


@irdl_op_definition
class CommentOp(_TextOp):
    """A `//` comment on a separate line. `text` does not include the slashes."""

    name = "ptx.comment"


@irdl_op_definition
class DirectiveOp(_TextOp):
    """Any other directive, as written: `.loc 1 2 3`, `.pragma "nounroll";`."""

    name = "ptx.directive"


@irdl_op_definition
class ScopeOp(IRDLOperation):
    """A scope, `{ ... }`, inside a function. Its declarations are not visible outside of it."""

    name = "ptx.scope"
    custom_directives: ClassVar = (BodyText,)
    assembly_format = "attr-dict-with-keyword custom<BodyText>($body)"

    body = region_def("single_block")

    traits = traits_def(NoTerminator())

    def __init__(self, ops: Sequence[Operation] | Region) -> None:
        super().__init__(regions=[_body(ops)])


PTX = Dialect(
    "ptx",
    [ModuleOp, FuncOp, RegOp, VarOp, LabelOp, CommentOp, DirectiveOp, ScopeOp, InstOp],
    [RegisterType, VariableAttr],
)


# The text of a module of these operations.


class PtxEmissionError(DiagnosticException):
    """The module cannot be printed as PTX."""


Names = dict[SSAValue, str]

INDENT = "    "


def print_ptx(module: ModuleOp) -> str:
    """The PTX text of a module. Raises PtxEmissionError naming an operation that is not of the `ptx` dialect, or a
    register without a `ptx.reg`."""
    lines = [f"//{line.data}" for line in module.preamble or ()]
    lines += [
        f".version {module.version.data}",
        f".target {module.target.data}",
        f".address_size {module.address_size.value.data}",
        "",
    ]
    for op in module.body.block.ops:
        if isinstance(op, FuncOp):
            _print_function(op, lines)
        elif isinstance(op, VarOp | DirectiveOp | CommentOp):
            _print_statement(op, lines, "", {})
        else:
            raise PtxEmissionError(f"'{op.name}' cannot stand at the top of a PTX module")
    return "\n".join(lines) + "\n"


def _print_function(op: FuncOp, lines: list[str]) -> None:
    lines.append(function_header(op))
    lines.extend(d.data for d in op.directives if not d.data.startswith(ATTRIBUTE))
    if op.is_declaration:
        lines[-1] += ";"
    else:
        lines.append("{")
        _print_body(op.body.block.ops, lines, INDENT, {})
        lines.append("}")
    lines.append("")


ATTRIBUTE = ".attribute"
"""What a directive begins with that stands in front of a function's name."""


def function_header(op: FuncOp) -> str:
    """The first lines of a function, up to its parameters."""
    words = [f".{op.linking.data}"] if op.linking.data else []
    words.append(".func" if op.entry is None else ".entry")
    words += [d.data for d in op.directives if d.data.startswith(ATTRIBUTE)]
    if op.returns.data:
        words.append(f"({', '.join(str(r.data) for r in op.returns)})")
    parameters = [f"{INDENT}{p.data}" for p in op.parameters]
    between = "\n" + ",\n".join(parameters) + "\n" if parameters else ""
    return f"{' '.join(words)} {op.sym_name.data}({between})"


def _print_body(body: Iterable[Operation], lines: list[str], indent: str, names: Names) -> None:
    append, name_of = lines.append, names.__getitem__
    for op in body:
        if type(op) is InstOp:
            try:
                append(indent + _template(*op.spelling()) % tuple(map(name_of, op.operands)))
            except KeyError:
                raise _undeclared(op, names) from None
        else:
            _print_statement(op, lines, indent, names)


@lru_cache(65536)
def _template(opcode: str, form: str, guard: str) -> str:
    start = f"{guard}%s " if guard else ""
    text = f"{opcode} {form}".rstrip().replace("%", "%%").replace("?", "%s")
    return f"{start}{text};"


def _undeclared(op: InstOp, names: Names) -> PtxEmissionError:
    at = next(i for i, value in enumerate(op.operands) if value not in names)
    return PtxEmissionError(f"operand {at} of '{op.opcode.data}' is a register that no ptx.reg above it declares")


def _print_statement(op: Operation, lines: list[str], indent: str, names: Names) -> None:
    match op:
        case RegOp():
            _print_registers(op, lines, indent, names)
        case LabelOp():
            lines.append(f"{op.text.data}:")
        case CommentOp():
            lines.append(f"{indent}//{op.text.data}")
        case DirectiveOp():
            lines.append(indent + op.text.data)
        case VarOp():
            lines.append(f"{indent}{op.variable};")
        case ScopeOp():
            lines.append(indent + "{")
            _print_body(op.body.block.ops, lines, indent + INDENT, names)
            lines.append(indent + "}")
        case _:
            raise PtxEmissionError(
                f"'{op.name}' is not an operation of the ptx dialect: the module is not fully lowered"
            )


def _print_registers(op: RegOp, lines: list[str], indent: str, names: Names) -> None:
    names.update(zip(op.results, op.names(), strict=True))
    if not op.results:
        return
    vector = "" if op.vector is None else f".v{op.vector.data} "
    count = "" if op.count is None else f"<{op.count.data}>"
    lines.append(f"{indent}.reg {vector}.{op.register_type.type.data} {op.base.data}{count};")
