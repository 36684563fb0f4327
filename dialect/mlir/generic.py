"""`linalg.generic` and `linalg.softmax` as MLIR prints them, and the attributes of `linalg` that xDSL lacks."""

from __future__ import annotations

from collections.abc import Sequence
from enum import auto
from typing import Self, TypeAlias

from xdsl.dialects.builtin import (
    AffineMapAttr,
    AnyFloat,
    ArrayAttr,
    DictionaryAttr,
    IntegerAttr,
    MemRefType,
    ShapedType,
    StringAttr,
    TensorType,
    i64,
)
from xdsl.dialects.linalg import ops
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    opt_result_def,
    prop_def,
    region_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa
from xdsl.utils.str_enum import StrEnum

# Attributes of `linalg` that xDSL does not have.


class TypeFn(StrEnum):
    """How the operands of a named operation are extended to the type of its result."""

    CAST_SIGNED = auto()
    CAST_UNSIGNED = auto()


@irdl_attr_definition
class TypeFnAttr(EnumAttribute[TypeFn]):
    """`#linalg.type_fn<cast_unsigned>`: integers are extended with zeros. Source: MLIR, `LinalgEnums.td`."""

    name = "linalg.type_fn"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> TypeFn:
        with parser.in_angle_brackets():
            return super().parse_parameter(parser)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            super().print_parameter(printer)


# `linalg.generic` whose maps and iterators may be an alias: `linalg.generic #trait ins(...)`.

KINDS = {str(kind.value): kind for kind in IteratorType}


@irdl_op_definition
class GenericOp(ops.GenericOp):
    """xDSL's `linalg.generic`, with the text that MLIR has for it: attributes that are an alias, results in brackets.

    A subclass of xDSL's operation, so that a pattern written for that matches this too.
    """

    name = "linalg.generic"

    # Said again, because xDSL's own operation no longer has them as definitions.
    inputs = var_operand_def()
    outputs = var_operand_def(ShapedType)
    res = var_result_def(TensorType)
    body = region_def("single_block")
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr])
    iterator_types = prop_def(ArrayAttr[IteratorTypeAttr])
    doc = opt_prop_def(StringAttr)
    library_call = opt_prop_def(StringAttr)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        start = parser.pos
        trait = parser.parse_optional_attribute()
        if not isinstance(trait, DictionaryAttr):
            parser.raise_error("expected indexing_maps and iterator_types, or an alias of them", start)
        given = dict(trait.data)
        maps, kinds = given.pop("indexing_maps", None), given.pop("iterator_types", None)
        doc, call = given.pop("doc", None), given.pop("library_call", None)
        if not isa(maps, ArrayAttr[AffineMapAttr]):
            parser.raise_error(f"expected indexing_maps to be a list of affine maps, got {maps or 'none'}", start)
        iterators = _iterators(kinds)
        if iterators is None:
            parser.raise_error(
                f"expected iterator_types to be a list of {', '.join(KINDS)}, got {kinds or 'none'}", start
            )
        inputs, outputs = (parse_operands(parser, keyword) for keyword in ("ins", "outs"))
        if parser.parse_optional_keyword("attrs"):
            parser.parse_punctuation("=")
            given |= parser.parse_optional_attr_dict()
        body = parser.parse_region()
        generic = cls(
            inputs,
            outputs,
            body,
            maps,
            iterators,
            parse_results(parser),
            doc if isinstance(doc, StringAttr) else None,
            call if isinstance(call, StringAttr) else None,
        )
        generic.attributes |= given
        return generic


def _iterators(kinds: Attribute | None) -> ArrayAttr[IteratorTypeAttr] | None:
    """Iterators as attributes, or by their names; None for anything else."""
    if not isa(kinds, ArrayAttr[Attribute]):
        return None
    iterators: list[IteratorTypeAttr] = []
    for kind in kinds:
        if isinstance(kind, StringAttr) and kind.data in KINDS:
            kind = IteratorTypeAttr(KINDS[kind.data])
        if not isinstance(kind, IteratorTypeAttr):
            return None
        iterators.append(kind)
    return ArrayAttr(iterators)


# The text that operations share: operands and results.


def parse_operands(parser: Parser, keyword: str, *, optional: bool = True) -> Sequence[SSAValue]:
    """`keyword(%a, %b : type, type)`, or nothing where that is `optional`."""
    start = parser.pos
    if not optional:
        parser.parse_characters(keyword)
    elif not parser.parse_optional_characters(keyword):
        return ()
    parser.parse_punctuation("(")
    values = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
    parser.parse_punctuation(":")
    types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
    parser.parse_punctuation(")")
    if len(values) != len(types):
        parser.raise_error(f"expected a type for each of {len(values)} operands, got {len(types)}", start)
    return parser.resolve_operands(values, types, start)


def parse_results(parser: Parser) -> Sequence[Attribute]:
    """`-> type`, `-> (type, type)` or nothing."""
    if not parser.parse_optional_punctuation("->"):
        return ()
    types = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
    if types is not None:
        return types
    return parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)


def print_operands(op: LinalgStructuredOperation, printer: Printer, *, results: bool = True) -> None:
    """`ins(%a : type) outs(%b : type) -> type`"""
    for keyword, values in (("ins", op.inputs), ("outs", op.outputs)):
        if values:
            printer.print_string(f" {keyword}(")
            printer.print_list(values, printer.print_ssa_value)
            printer.print_string(" : ")
            printer.print_list(values.types, printer.print_attribute)
            printer.print_string(")")
    if results and op.res:
        printer.print_string(" -> ")
        printer.print_list(op.res.types, printer.print_attribute)


# `linalg.softmax`, which xDSL 0.74 lacks.

TensorOrMemory: TypeAlias = TensorType[Attribute] | MemRefType[Attribute]


@irdl_op_definition
class SoftmaxOp(IRDLOperation):
    """exp(x - max) / sum(exp(x - max)) along one dimension, on a tensor or memory of floating-point numbers::

    %y = linalg.softmax dimension(2) ins(%x : tensor<2x40x70xf32>) outs(%e : tensor<2x40x70xf32>)
           -> tensor<2x40x70xf32>
    linalg.softmax dimension(1) ins(%x : memref<40x70xf32>) outs(%y : memref<40x70xf32>)
    """

    name = "linalg.softmax"

    input = operand_def()
    output = operand_def()
    dimension = prop_def(IntegerAttr[i64])
    result = opt_result_def()

    assembly_format = (
        "attr-dict `dimension` `` `(` $dimension `)` `ins` `` `(` $input `:` type($input) `)` "
        "`outs` `` `(` $output `:` type($output) `)` (`->` type($result)^)?"
    )

    def __init__(self, value: SSAValue, output: SSAValue, dimension: int, results: Sequence[Attribute] = ()):
        super().__init__(
            operands=[value, output],
            properties={"dimension": IntegerAttr(dimension, i64)},
            result_types=[list(results)],
        )

    def verify_(self) -> None:
        kind, output, at = self.input.type, self.output.type, self.dimension.value.data
        if not isa(kind, TensorOrMemory) or not isinstance(kind.element_type, AnyFloat):
            raise VerifyException(f"expected a tensor or memory of floating-point numbers, got {kind}")
        if not isa(output, TensorOrMemory) or type(output) is not type(kind) or output.get_shape() != kind.get_shape():
            raise VerifyException(f"expected an output of the shape of the input {kind}, got {output}")
        if not 0 <= at < kind.get_num_dims():
            raise VerifyException(f"expected a dimension of 0 to {kind.get_num_dims() - 1}, got {at}")
        if [r.type for r in self.results] != ([output] if isinstance(kind, TensorType) else []):
            raise VerifyException("expected one result of the output's type on tensors, and none on memory")
