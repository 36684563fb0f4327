"""Steps of MLIR's dialect `transform` that are read and printed as they are written, and that no strategy applies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Self

from xdsl.dialects import transform
from xdsl.dialects.builtin import ArrayAttr, FunctionType, IntegerAttr, StringAttr, UnitAttr, i64
from xdsl.ir import Attribute, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    traits_def,
    var_operand_def,
    var_region_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator
from xdsl.utils.hints import isa

_WORD = re.compile(r'("(?:[^"\\]|\\.)*")|\s*//[^\n]*|\s+')
"""What is normalised between tokens: comments and white space, which strings keep."""

_NEXT = re.compile(r"\^|%[\w$.-]+(:\d+)?(\s*,\s*%[\w$.-]+(:\d+)?)*\s*=(?!=)|[a-z_]\w*\.[\w.]+|\"[\w.]+\"\s*\(")
"""What an operation starts with, or a block."""

_REGION = re.compile(r"\{(?:\s|//[^\n]*)*(\^|%|[a-z_]\w*\.[\w.]+(?!\s*[=,}])|\"[\w.]+\"\s*\()")
"""A region, where a dictionary may stand too."""


class CarriedStep(IRDLOperation):
    """A step as it is written: text, in which operands and attributes stand, then types and regions.

    `text` has a string for what is written, the number of an operand for it, a unit for a region, and attributes as
    they are; `types` are those behind the colon, of operands alone, or of operands and results, in parentheses if not
    `bare`.
    """

    arguments = var_operand_def()
    results_ = var_result_def()
    bodies = var_region_def()
    text = prop_def(ArrayAttr[Attribute])
    types = opt_prop_def(ArrayAttr[Attribute] | FunctionType)
    bare = opt_prop_def(UnitAttr)

    traits = traits_def(NoTerminator())

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        reader = _Reader(parser)
        reader.read()
        kinds, bare = reader.types()
        if kinds is not None and parser.lexer.input.content[parser.pos] == "{":
            reader.regions.append(parser.parse_region())
        results = kinds.outputs.data if isinstance(kinds, FunctionType) else ()
        if kinds is not None and cls.name in _IMPLIED:
            results = [_ANY_VALUE if kind else reader.operands[0].type for kind in _IMPLIED[cls.name]]
        properties = {"text": ArrayAttr(reader.pieces)} | ({} if kinds is None else {"types": kinds})
        properties |= {"bare": UnitAttr()} if bare else {}
        return cls.build(
            operands=[reader.operands], result_types=[results], regions=[reader.regions], properties=properties
        )

    def print(self, printer: Printer) -> None:
        bodies = iter(self.bodies)
        for piece in self.text:
            if isa(piece, StringAttr):
                printer.print_string(piece.data)
            elif isa(piece, IntegerAttr):
                printer.print_ssa_value(self.arguments[piece.value.data])
            elif isinstance(piece, UnitAttr):
                printer.print_string(" ")
                printer.print_region(next(bodies))
            else:
                printer.print_attribute(piece)
        if isinstance(self.types, FunctionType):
            printer.print_string(" : ")
            _print_types(printer, self.types.inputs.data, self.bare is None)
            printer.print_string(" -> ")
            _print_types(printer, self.types.outputs.data, len(self.types.outputs) != 1)
        elif self.types is not None:
            printer.print_string(" : ")
            _print_types(printer, self.types.data, self.bare is None)
        for region in bodies:
            printer.print_string(" ")
            printer.print_region(region)


def _print_types(printer: Printer, types: Sequence[Attribute], parens: bool) -> None:
    printer.print_string("(" if parens else "")
    printer.print_list(types, printer.print_attribute)
    printer.print_string(")" if parens else "")


_ANY_VALUE = transform.AnyValueType()

_IMPLIED = {
    "transform.structured.split": (0,),
    "transform.structured.continuous_tile_sizes": (0, 0),
    "transform.structured.multitile_sizes": (0, 0, 0),
    "transform.structured.bufferize_to_allocation": (1, 0),
}
"""Results whose types are not written: that of the first operand, or, where 1, of any value."""


class _Reader:
    """Takes tokens up to the colon before the types, or to the next operation."""

    def __init__(self, parser: Parser) -> None:
        self.parser = parser
        self.content = parser.lexer.input.content
        self.pieces: list[Attribute] = []
        self.operands: list[SSAValue] = []
        self.regions: list[Region] = []
        self.start = self.content.rfind(".", 0, parser.pos)

    def read(self) -> None:
        depth, self.start = 0, len(self.content[: self.parser.pos].rstrip())
        while True:
            text = self.parser._current_token.text  # pyright: ignore[reportPrivateUsage]
            here = self.parser.pos
            if not depth and (text in (":", "}", "") or self._ends(here)):
                break
            if text[0] == "%" and (value := self._value()) is not None:
                self._add(here, IntegerAttr(len(self.operands), i64))
                self.operands.append(value)
            elif not depth and _REGION.match(self.content, here):
                self._add(here, UnitAttr())
                self.regions.append(self.parser.parse_region())
                self.start = len(self.content[: self.parser.pos].rstrip())
            elif text[0] == "#":
                self._add(here, self.parser.parse_attribute())
            elif text[0] == "!":
                self._add(here, self.parser.parse_type())
            else:
                depth += (text in "([{<") - (text in ")]}>")
                self.parser._consume_token()  # pyright: ignore[reportPrivateUsage]
        self._add(self.parser.pos, None)

    def _ends(self, here: int) -> bool:
        return "\n" in self.content[len(self.content[:here].rstrip()) : here] and bool(_NEXT.match(self.content, here))

    def _add(self, here: int, piece: Attribute | None) -> None:
        """Adds what is written up to a place, and what stands there."""
        written = _WORD.sub(lambda part: part[1] or " ", self.content[self.start : here])
        if piece is None:
            written = written.rstrip()
        if written:
            self.pieces.append(StringAttr(written))
        if piece is not None:
            self.pieces.append(piece)
            self.start = len(self.content[: self.parser.pos].rstrip())

    def _value(self) -> SSAValue | None:
        """A value that has been defined, of whatever type."""
        name = self.parser.parse_unresolved_operand()
        values = self.parser.ssa_values.get(name.operand_name)
        if values is None or name.index >= len(values):
            self.parser.raise_error(f"{name.span.text} is not defined above", name.span)
        return values[name.index]

    def types(self) -> tuple[ArrayAttr[Attribute] | FunctionType | None, bool]:
        """The types behind the colon, None without, and whether they stand without parentheses."""
        parser = self.parser
        if parser.parse_optional_punctuation(":") is None:
            return None, False
        bare = self.content[parser.pos] != "("
        kinds = _listed(parser)
        if parser.parse_optional_punctuation("->") is None:
            return ArrayAttr(kinds), bare
        return FunctionType.from_lists(kinds, _listed(parser)), bare


def _listed(parser: Parser) -> Sequence[Attribute]:
    """Types in parentheses, or between commas."""
    kinds = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
    return parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type) if kinds is None else kinds


@cache
def carried(name: str) -> type[CarriedStep]:
    """The step of a name."""
    return irdl_op_definition(
        type(name, (CarriedStep,), {"name": name, "__module__": __name__, "__doc__": f"`{name}`."})
    )
