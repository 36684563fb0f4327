"""MLIR's dialect `transform`: text and operations that xDSL lacks. A strategy is a `transform.named_sequence`. Its
values are handles, which stand for operations of the program, or parameters, which are attributes. Source: MLIR,
Transform Dialect. Steps that no strategy applies are read and printed as they are written."""

from __future__ import annotations

import re
from functools import cache
from typing import ClassVar, Self

from xdsl.dialects import transform
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, StringAttr, SymbolRefAttr, UnitAttr, i64
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    RangeOf,
    VarConstraint,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_region_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from ..mlir.upstream import extended
from ..mlir.words import defined, irdl_op_definition

Handle = transform.TransformOpHandleType


def _parse_region(parser: Parser) -> Region:
    """A region with its one argument. MLIR's short form of a sequence names none; it is added."""
    region = parser.parse_region()
    if not region.blocks:
        region.add_block(Block())
    return region


@irdl_op_definition
class ForeachOp(IRDLOperation):
    """Applies its body to each operation of a handle, or of several handles side by side: `transform.foreach %h :
    !transform.any_op { ^bb0(%op: ...): ... }`. A result has what the body yields in all turns."""

    name = "transform.foreach"

    targets = var_operand_def(transform.TransformHandleType)
    shortest = opt_prop_def(UnitAttr, prop_name="with_zip_shortest")
    results_ = var_result_def(transform.TransformHandleType)
    body = region_def("single_block")

    traits = traits_def(NoTerminator())

    assembly_format = (
        "$targets (`with_zip_shortest` $with_zip_shortest^)? attr-dict `:` type($targets)"
        " (`->` type($results_)^)? $body"
    )

    def verify_(self) -> None:
        if [argument.type for argument in self.body.block.args] != [target.type for target in self.targets]:
            raise VerifyException(f"expected a body with arguments of types {', '.join(map(str, self.targets.types))}")


@irdl_op_definition
class AlternativesOp(IRDLOperation):
    """Applies the first of its regions of which every step applies. Failed regions are undone: `transform.alternatives
    %scope : !transform.any_op { ^bb0(%op: !transform.any_op): ... }, { ... }`."""

    name = "transform.alternatives"

    scope = opt_operand_def(Handle)
    alternatives = var_region_def("single_block")

    traits = traits_def(NoTerminator())

    @classmethod
    def parse(cls, parser: Parser) -> AlternativesOp:
        scope: list[SSAValue] = []
        if (target := parser.parse_optional_unresolved_operand()) is not None:
            parser.parse_punctuation(":")
            scope.append(parser.resolve_operand(target, parser.parse_type()))
        regions = [_parse_region(parser)]
        while parser.parse_optional_punctuation(","):
            regions.append(_parse_region(parser))
        return cls(operands=[scope], regions=[regions])

    def print(self, printer: Printer) -> None:
        if self.scope is not None:
            printer.print_string(" ")
            printer.print_operand(self.scope)
            printer.print_string(" : ")
            printer.print_attribute(self.scope.type)
        for number, region in enumerate(self.alternatives):
            printer.print_string(", " if number else " ")
            printer.print_region(region)

    def verify_(self) -> None:
        if not self.alternatives:
            raise VerifyException("expected at least one alternative")


@irdl_op_definition
class IncludeOp(IRDLOperation):
    """Applies another named sequence: `transform.include @name failures(propagate) (%h) : (!transform.any_op) -> ()`.
    With `failures(suppress)`, a step that does not apply ends the sequence, with a remark."""

    name = "transform.include"

    target = prop_def(SymbolRefAttr)
    failures = prop_def(transform.FailurePropagationModeAttr)
    inputs = var_operand_def(transform.TransformHandleType)
    outputs = var_result_def(transform.TransformHandleType)

    assembly_format = (
        "$target `failures` `(` $failures `)` `(` $inputs `)` attr-dict `:` functional-type($inputs, $outputs)"
    )


@irdl_op_definition
class SplitHandleOp(IRDLOperation):
    """The operations of a handle, one in each result."""

    name = "transform.split_handle"

    handle = operand_def(Handle)
    parts = var_result_def(Handle)

    assembly_format = "$handle attr-dict `:` functional-type(operands, results)"


@irdl_op_definition
class MergeHandlesOp(IRDLOperation):
    """The operations of several handles, or several parameters, in one: `transform.merge_handles %a, %b : ...`."""

    name = "transform.merge_handles"

    T: ClassVar = VarConstraint("T", AnyAttr())

    handles = var_operand_def(RangeOf(T))
    deduplicate = opt_prop_def(UnitAttr)
    result = result_def(T)

    assembly_format = "(`deduplicate` $deduplicate^)? $handles attr-dict `:` type($result)"


@irdl_op_definition
class FuseIntoContainingOp(IRDLOperation):
    """Computes, in each turn of a loop, the part of a producer's result that the turn reads."""

    name = "transform.structured.fuse_into_containing_op"

    producer = operand_def(Handle)
    containing_op = operand_def(Handle)
    fused_op = result_def(Handle)
    new_containing_op = result_def(Handle)

    assembly_format = "$producer `into` $containing_op attr-dict `:` functional-type(operands, results)"


@irdl_op_definition
class ParamConstantOp(IRDLOperation):
    """An attribute as a parameter: `%p = transform.param.constant #warp.schedule<stages = 3> -> !transform.any_param`.
    Its type may be one that says nothing, where xDSL's operation wants the type of a number."""

    name = "transform.param.constant"

    value = prop_def(Attribute)
    param = result_def(transform.TransformParamHandleType)

    assembly_format = "$value attr-dict `->` type($param)"


@irdl_op_definition
class AnnotateOp(IRDLOperation):
    """Sets an attribute of operations: `transform.annotate %h "warp.schedule" = %p : !transform.any_op,
    !transform.any_param`. Of a schedule, fields that were set earlier stay; `warp-schedule` chooses the others."""

    name = "transform.annotate"

    attribute = prop_def(StringAttr, prop_name="name")
    target = operand_def(Handle)
    param = opt_operand_def(transform.TransformParamHandleType)

    assembly_format = "$target $name attr-dict (`=` $param^)? `:` type($target) (`,` type($param)^)?"


OWN = (
    ForeachOp, AlternativesOp, IncludeOp, SplitHandleOp, MergeHandlesOp, FuseIntoContainingOp, ParamConstantOp,
    AnnotateOp,
)  # fmt: skip


TRANSFORM = extended(transform.Transform, OWN)


# Steps of MLIR that are read and printed as they are written, and that no strategy applies.

_WORD = re.compile(r'("(?:[^"\\]|\\.)*")|(?:\s|//[^\n]*)+')
"""What is normalised between tokens: comments and white space, which strings keep."""

_NEXT = re.compile(r"\^|%[\w$.-]+(:\d+)?(\s*,\s*%[\w$.-]+(:\d+)?)*\s*=(?!=)|[a-z_]\w*\.[\w.]+|\"[\w.]+\"\s*\(")
"""What an operation starts with, or a block."""

_REGION = re.compile(r"\{(?:\s|//[^\n]*)*(\^|%|[a-z_]\w*\.[\w.]+(?!\s*[=,}])|\"[\w.]+\"\s*\()")
"""A region, where a dictionary may stand too."""


class CarriedStep(IRDLOperation):
    """A step as it is written: `text` has a string for words, the number of an operand for it, a unit for a region, and
    attributes and types as they are."""

    arguments = var_operand_def()
    results_ = var_result_def()
    bodies = var_region_def()
    text = prop_def(ArrayAttr[Attribute])

    traits = traits_def(NoTerminator())

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        reader, results = _Reader(parser), list[Attribute]()
        reader.read()
        if parser.parse_optional_punctuation(":") is not None:
            reader.types()
            results = reader.types() if parser.parse_optional_punctuation("->") is not None else []
            if cls.name in _IMPLIED:
                results = [_ANY_VALUE if kind else reader.operands[0].type for kind in _IMPLIED[cls.name]]
            if reader.content[parser.pos] == "{":
                reader.region()
        reader.add(parser.pos, None)
        properties = {"text": ArrayAttr(reader.pieces)}
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
                printer.print_region(next(bodies))
            else:
                printer.print_attribute(piece)


_ANY_VALUE = transform.AnyValueType()

_IMPLIED = {
    "transform.structured.split": (0,),
    "transform.structured.continuous_tile_sizes": (0, 0),
    "transform.structured.multitile_sizes": (0, 0, 0),
    "transform.structured.bufferize_to_allocation": (1, 0),
}
"""Results whose types are not written: that of the first operand, or, where 1, of any value."""


class _Reader:
    """Takes tokens up to the colon before the types, or to the next operation, and then types."""

    def __init__(self, parser: Parser) -> None:
        self.parser = parser
        self.content = parser.lexer.input.content
        self.pieces: list[Attribute] = []
        self.operands: list[SSAValue] = []
        self.regions: list[Region] = []
        self.start = len(self.content[: parser.pos].rstrip())

    def read(self) -> None:
        depth = 0
        while True:
            text = self.parser._current_token.text  # pyright: ignore[reportPrivateUsage]
            here = self.parser.pos
            if not depth and (text in (":", "}", "") or self._ends(here)):
                return
            if text[0] == "%" and (value := self._value()) is not None:
                self.add(here, IntegerAttr(len(self.operands), i64))
                self.operands.append(value)
            elif not depth and _REGION.match(self.content, here):
                self.region()
            elif text[0] == "#":
                self.add(here, self.parser.parse_attribute())
            elif text[0] == "!":
                self.add(here, self.parser.parse_type())
            else:
                depth += (text in "([{<") - (text in ")]}>")
                self.parser._consume_token()  # pyright: ignore[reportPrivateUsage]

    def types(self) -> list[Attribute]:
        """Takes types, in parentheses or between commas."""
        parser, kinds, more = self.parser, list[Attribute](), True
        inside = parser.parse_optional_punctuation("(") is not None
        while more and not (inside and parser.parse_optional_punctuation(")") is not None):
            here = parser.pos
            kinds.append(parser.parse_type())
            self.add(here, kinds[-1])
            more = parser.parse_optional_punctuation(",") is not None or inside
        return kinds

    def region(self) -> None:
        """Takes a region."""
        here = self.parser.pos
        self.regions.append(self.parser.parse_region())
        self.add(here, UnitAttr())

    def _ends(self, here: int) -> bool:
        return "\n" in self.content[len(self.content[:here].rstrip()) : here] and bool(_NEXT.match(self.content, here))

    def add(self, here: int, piece: Attribute | None) -> None:
        """Appends the text up to a place, and the piece that was taken from there."""
        written = _WORD.sub(lambda part: part[1] or " ", self.content[self.start : here])
        if written := written if piece is not None else written.rstrip():
            self.pieces.append(StringAttr(written))
        if piece is not None:
            self.pieces.append(piece)
            self.start = len(self.content[: self.parser.pos].rstrip())

    def _value(self) -> SSAValue | None:
        """Parses a reference to a value of any type that is defined above."""
        name = self.parser.parse_unresolved_operand()
        values = self.parser.ssa_values.get(name.operand_name)
        if values is None or name.index >= len(values):
            self.parser.raise_error(f"{name.span.text} is not defined above", name.span)
        return values[name.index]


@cache
def carried(name: str) -> type[CarriedStep]:
    """The step of a name."""
    return defined(CarriedStep, name, f"`{name}`.")
