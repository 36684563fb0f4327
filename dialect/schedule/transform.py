"""MLIR's dialect `transform`: text and operations that xDSL lacks, and those of this project, `transform.warp.*`.

A strategy is a `transform.named_sequence`. Its values are handles, which stand for operations of the program, or
parameters, which are attributes. Source: MLIR, Transform Dialect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects import transform
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
)
from xdsl.ir import Attribute, Block, Dialect, Region, SSAValue
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    ParsePropInAttrDict,
    RangeOf,
    VarConstraint,
    irdl_op_definition,
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

from .partial import PartialScheduleAttr

Handle = transform.TransformOpHandleType
IN_DICTIONARY = (ParsePropInAttrDict(),)

# Operations of MLIR.


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
    """Applies the first of its regions of which every step applies; what others did before is undone:
    `transform.alternatives %scope : !transform.any_op { ^bb0(%op: !transform.any_op): ... }, { ... }`."""

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

    With `failures(suppress)`, a step that does not apply ends the sequence, with a remark.
    """

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


# Operations of this project.


@irdl_op_definition
class WhereOp(IRDLOperation):
    """The operations of a handle for which facts hold: `transform.warp.where %h {m = "64..", k = 4096, types = [f16,
    f16], in = "mlp"} : ...`.

    `m`, `n`, `k` and `batch` are sizes of a product, a number or a range `"64..256"` of which either end may be left
    out; `types` the element types of its operands, `in` the function or kernel that it is in, `name` a name of one of
    its operands or results.
    """

    name = "transform.warp.where"

    facts = prop_def(DictionaryAttr)
    target = operand_def(Handle)
    result = result_def(Handle)

    assembly_format = "$target $facts attr-dict `:` functional-type(operands, results)"


@irdl_op_definition
class SetOp(IRDLOperation):
    """Sets fields of the schedules of products: `transform.warp.set %h to #warp.schedule<cta = 128x128x32> :
    !transform.any_op`. Fields that were set before stay; `warp-schedule` chooses the others."""

    name = "transform.warp.set"

    fields = prop_def(Attribute)
    target = operand_def(Handle)

    assembly_format = "$target `to` $fields attr-dict `:` type($target)"

    def verify_(self) -> None:
        if self.fields.name != PartialScheduleAttr.name:
            raise VerifyException(f"expected fields of a schedule, #{PartialScheduleAttr.name}<...>, got {self.fields}")


@irdl_op_definition
class ApplyPatternsOp(IRDLOperation):
    """Applies rewrite patterns, by name, to operations and what is in them: `transform.warp.apply_patterns %h
    ["FoldFill"] : !transform.any_op`."""

    name = "transform.warp.apply_patterns"

    patterns = prop_def(ArrayAttr[StringAttr])
    target = operand_def(Handle)

    assembly_format = "$target $patterns attr-dict `:` type($target)"


@irdl_op_definition
class FuseProductsOp(IRDLOperation):
    """Makes one kernel of a chain of products, in which each reads rows that the one before computes. A CTA computes
    some rows of all products, one product after another."""

    name = "transform.warp.fuse_products"

    targets = var_operand_def(Handle)

    assembly_format = "$targets attr-dict `:` type($targets)"


OWN = (
    ForeachOp,
    AlternativesOp,
    IncludeOp,
    SplitHandleOp,
    MergeHandlesOp,
    FuseIntoContainingOp,
    WhereOp,
    SetOp,
    ApplyPatternsOp,
    FuseProductsOp,
)


def _all(own: Sequence[type[IRDLOperation]]) -> list[type]:
    """xDSL's operations of the dialect with `own` added, or in the place of those with the same name."""
    names = {op.name for op in own}
    return [*(op for op in transform.Transform.operations if op.name not in names), *own]


TRANSFORM = Dialect("transform", _all(OWN), list(transform.Transform.attributes))
