"""`linalg.generic` whose maps and iterators may be an alias: `linalg.generic #trait ins(...)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, DictionaryAttr, ShapedType, StringAttr, TensorType
from xdsl.dialects.linalg import ops
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.utils.hints import isa

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
    found: list[IteratorTypeAttr] = []
    for kind in kinds:
        if isinstance(kind, StringAttr) and kind.data in KINDS:
            kind = IteratorTypeAttr(KINDS[kind.data])
        if not isinstance(kind, IteratorTypeAttr):
            return None
        found.append(kind)
    return ArrayAttr(found)


def parse_operands(parser: Parser, keyword: str) -> Sequence[SSAValue]:
    """`keyword(%a, %b : type, type)`, or nothing."""
    start = parser.pos
    if not parser.parse_optional_characters(keyword):
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
    if not parser.parse_optional_punctuation("->"):
        return ()
    types = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
    if types is not None:
        return types
    return parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
