"""Declarations of the `ptx` dialect: registers and variables. Source: PTX ISA, chapter 5."""

from __future__ import annotations

from dataclasses import replace

from xdsl.dialects.builtin import (
    ArrayAttr,
    IntAttr,
    StringAttr,
)
from xdsl.ir import Attribute, Operation
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    traits_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from .text.syntax import Variable
from .types import RegisterType, extent, parse_variable, print_variable


def print_attributes(printer: Printer, op: Operation) -> None:
    """Prints ` attributes {...}` where an operation has some."""
    printer.print_op_attributes(op.attributes, print_keyword=True)


def parse_attributes(parser: Parser, op: Operation) -> None:
    """Reads what `print_attributes` prints."""
    if (attributes := parser.parse_optional_attr_dict_with_keyword()) is not None:
        op.attributes |= attributes.data


@irdl_op_definition
class RegOp(IRDLOperation):
    """Declares registers. `.reg .b32 %r<5>;` has five results, %r0 to %r4. Without `count`, there is one result, called
    `base`.

    `vector` is 2 or 4 for `.reg .v2 .f32 %v;`.
    """

    name = "ptx.reg"

    base = prop_def(StringAttr)
    count = opt_prop_def(IntAttr)
    vector = opt_prop_def(IntAttr)
    res = var_result_def(RegisterType)

    def __init__(self, type: str, base: str, count: int | None = None, *, vector: int = 1) -> None:
        """Declares `count` registers `base0`, `base1`, ... or the one register `base`."""
        register = RegisterType.of(type)
        properties: dict[str, Attribute | None] = {"base": StringAttr(base)}
        if count is not None:
            properties["count"] = IntAttr(count)
        if vector != 1:
            properties["vector"] = IntAttr(vector)
        super().__init__(
            properties=properties,
            result_types=[[register] * (1 if count is None else count)],
        )
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
    """Declares a variable in a state space: `.shared .align 16 .b8 smem[1024];`. The attributes are the fields of
    `syntax.Variable`."""

    name = "ptx.var"

    sym_name = prop_def(StringAttr)
    space = prop_def(StringAttr)
    type = prop_def(StringAttr)
    dimensions = opt_prop_def(ArrayAttr[IntAttr])
    align = opt_prop_def(IntAttr)
    linking = opt_prop_def(StringAttr)
    vector = opt_prop_def(IntAttr)
    init = opt_prop_def(StringAttr)
    pointer = opt_prop_def(StringAttr)
    attribute = opt_prop_def(StringAttr)

    traits = traits_def(SymbolOpInterface())

    def __init__(self, variable: Variable) -> None:
        """An array keeps its dimensions: `name[0]` stands for `name[]`."""
        properties: dict[str, Attribute | None] = {
            "sym_name": StringAttr(variable.name),
            "space": StringAttr(variable.space),
            "type": StringAttr(variable.type),
        }
        if variable.count is not None:
            properties["dimensions"] = ArrayAttr(map(IntAttr, variable.dimensions or (variable.count,)))
        if variable.align is not None:
            properties["align"] = IntAttr(variable.align)
        if variable.vector != 1:
            properties["vector"] = IntAttr(variable.vector)
        for key in ("linking", "pointer", "attribute"):
            if text := getattr(variable, key):
                properties[key] = StringAttr(text)
        if variable.init is not None:
            properties["init"] = StringAttr(variable.init)
        super().__init__(properties=properties)

    @property
    def variable(self) -> Variable:
        """The declaration as a record."""
        dimensions = None if self.dimensions is None else tuple(d.data for d in self.dimensions)
        return Variable(
            self.space.data,
            self.type.data,
            self.sym_name.data,
            count=None if dimensions is None else extent(dimensions),
            align=None if self.align is None else self.align.data,
            linking="" if self.linking is None else self.linking.data,
            vector=1 if self.vector is None else self.vector.data,
            init=None if self.init is None else self.init.data,
            pointer="" if self.pointer is None else self.pointer.data,
            attribute="" if self.attribute is None else self.attribute.data,
            dimensions=dimensions if dimensions and len(dimensions) > 1 else (),
        )

    def verify_(self) -> None:
        spaces = ("global", "shared", "const", "local", "param")
        if self.space.data.partition("::")[0] not in spaces:
            raise VerifyException(
                f"'{self.space.data}' is not a state space of variables; expected {', '.join(spaces)}"
            )
        if self.align is not None and self.align.data.bit_count() != 1:
            raise VerifyException(
                f"the alignment of '{self.sym_name.data}' must be a power of two, got {self.align.data}"
            )

    def print(self, printer: Printer) -> None:
        if self.linking is not None:
            printer.print_string(f" {self.linking.data}")
        printer.print_string(f" {self.space.data} ")
        print_variable(printer, replace(self.variable, space="param"))
        print_attributes(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> VarOp:
        linking = parser.parse_optional_keyword_in(("visible", "weak", "extern", "common")) or ""
        space = parser.parse_identifier()
        op = cls(replace(parse_variable(parser), space=space, linking=linking))
        parse_attributes(parser, op)
        return op
