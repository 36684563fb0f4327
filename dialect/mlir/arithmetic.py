"""`vector`, `math` and `index` as MLIR prints them: xDSL's dialects, and what they lack."""

from __future__ import annotations

from xdsl.dialects import arith, math, vector
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    StringAttr,
    VectorType,
    i1,
    i64,
)
from xdsl.ir import Attribute, Dialect
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    ParsePropInAttrDict,
    RangeOf,
    VarConstraint,
    base,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from .upstream import declared, extended
from .words import irdl_op_definition


@irdl_op_definition
class VectorContractOp(IRDLOperation):
    """Sums of products of vectors, added to `acc`: `vector.contract {indexing_maps = [...], iterator_types = [...],
    kind = #vector.kind<add>} %a, %b, %c : vector<16x16xf16>, vector<8x16xf16> into vector<16x8xf16>`."""

    name = "vector.contract"

    lhs = operand_def(VectorType[Attribute])
    rhs = operand_def(VectorType[Attribute])
    acc = operand_def(Attribute)
    indexing_maps = prop_def(ArrayAttr)
    iterator_types = prop_def(ArrayAttr)
    kind = prop_def(vector.CombiningKindAttr, default_value=vector.CombiningKindAttr(vector.CombiningKindFlag.ADD))
    result = result_def(Attribute)

    traits = traits_def(Pure())

    @classmethod
    def parse(cls, parser: Parser) -> VectorContractOp:
        place, properties = parser.pos, parser.parse_attribute()
        if not isinstance(properties, DictionaryAttr):
            parser.raise_error(f"expected maps and kinds of loops in braces, got {properties}", place)
        operands = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        kinds = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        parser.parse_keyword("into")
        kinds.append(parser.parse_type())
        values = parser.resolve_operands(operands, kinds, place)
        return cls.create(
            operands=values, result_types=[kinds[-1]], properties=dict(properties.data), attributes=attributes
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_attribute(DictionaryAttr(self.properties))
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_ssa_value)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_list([self.lhs.type, self.rhs.type], printer.print_attribute)
        printer.print_string(" into ")
        printer.print_attribute(self.result.type)


GatherOp = declared(
    IRDLOperation, "vector.gather",
    "$base `[` $offsets `]` `[` $indices `]` `,` $mask `,` $pass_thru attr-dict `:` type($base) `,`"
    " type($indices) `,` type($mask) `,` type($pass_thru) `into` type($result)",
    "Elements of memory at indices.", base=operand_def(MemRefType), offsets=var_operand_def(IndexType()),
    indices=operand_def(VectorType), mask=operand_def(VectorType), pass_thru=operand_def(VectorType),
    result=result_def(VectorType),
)  # fmt: skip

_PLACES, _OF_VECTORS = prop_def(ArrayAttr), {"result": result_def(VectorType), "traits": traits_def(Pure())}


def _moves(name: str, text: str, *attributes: str, **operands: object) -> type[IRDLOperation]:
    """An operation that moves elements of vectors, which has no lowering."""
    options = {"irdl_options": (ParsePropInAttrDict(),)} if attributes else {}
    fields = _OF_VECTORS | dict.fromkeys(attributes, _PLACES) | options | operands
    return declared(IRDLOperation, f"vector.{name}", text, f"`vector.{name}`, which moves elements.", **fields)


_ELEMENT = VarConstraint("ELEMENT", AnyAttr())
_SAME, _SOURCE = VarConstraint("SAME", base(VectorType)), operand_def(VectorType)
_INTS = prop_def(DenseArrayBase.constr(i64))

VECTOR = extended(
    vector.Vector,
    (
        VectorContractOp, GatherOp,
        _moves("shape_cast", "$source attr-dict `:` type($source) `to` type($result)", source=_SOURCE),
        _moves(
            "transpose", "$vector `,` $permutation attr-dict `:` type($vector) `to` type($result)",
            vector=_SOURCE, permutation=_INTS,
        ),
        _moves(
            "extract_strided_slice", "$source attr-dict `:` type($source) `to` type($result)",
            "offsets", "sizes", "strides", source=_SOURCE,
        ),
        _moves(
            "insert_strided_slice", "$source `,` $dest attr-dict `:` type($source) `into` type($dest)",
            "offsets", "strides", source=_SOURCE, dest=operand_def(_SAME), result=result_def(_SAME),
        ),
        _moves("constant_mask", "$mask_dim_sizes attr-dict `:` type($result)", mask_dim_sizes=_INTS),
        _moves(
            "from_elements", "$elements attr-dict `:` type($result)", elements=var_operand_def(RangeOf(_ELEMENT)),
            result=result_def(VectorType.constr(_ELEMENT)),
        ),
        _moves("step", "attr-dict `:` type($result)"),
        declared(
            IRDLOperation, "vector.print", "($source^ `:` type($source))? (`str` $stringLiteral^)? attr-dict",
            source=opt_operand_def(), stringLiteral=opt_prop_def(StringAttr),
        ),
    ),
)  # fmt: skip


# `math` and `index`: xDSL's `math`, and operations that xDSL lacks; those are read and printed.

_FLOAT = VarConstraint("FLOAT", arith.floatingPointLike)
_FLAGS = "(`fastmath` `` $fastmath^)? attr-dict"
_UNARY = {"operand": operand_def(_FLOAT), "fastmath": opt_prop_def(arith.FastMathFlagsAttr)}

MATH = extended(
    math.Math,
    [
        declared(math.FloatingPointLikeUnaryMathOperation, "math.erfc", f"$operand {_FLAGS} `:` type($result)"),
        declared(
            IRDLOperation, "math.clampf", f"$value `to` `[` $min `,` $max `]` {_FLAGS} `:` type($result)",
            value=operand_def(_FLOAT), min=operand_def(_FLOAT), max=operand_def(_FLOAT),
            fastmath=opt_prop_def(arith.FastMathFlagsAttr), result=result_def(_FLOAT), traits=traits_def(Pure()),
        ),
        declared(
            IRDLOperation, "math.sincos", f"$operand {_FLAGS} `:` type($operand)", **_UNARY,
            sin=result_def(_FLOAT), cos=result_def(_FLOAT), traits=traits_def(Pure()),
        ),
        *(
            declared(
                IRDLOperation, f"math.{name}", f"$operand {_FLAGS} `:` type($operand)", **_UNARY, result=result_def(i1),
                traits=traits_def(Pure()),
            )
            for name in ("isinf", "isnan", "isfinite", "isnormal")
        ),
    ],
)  # fmt: skip

_NAMES = "add sub mul divs divu ceildivs ceildivu floordivs rems remu maxs maxu mins minu shl shrs shru and or xor"

INDEX = Dialect(
    "index",
    [
        *(
            declared(
                IRDLOperation, f"index.{name}", "$lhs `,` $rhs attr-dict", lhs=operand_def(IndexType),
                rhs=operand_def(IndexType), result=result_def(IndexType()), traits=traits_def(Pure()),
            )
            for name in _NAMES.split()
        ),
        *(
            declared(
                IRDLOperation, f"index.{name}", "$input attr-dict `:` type($input) `to` type($output)",
                input=operand_def(), output=result_def(), traits=traits_def(Pure()),
            )
            for name in ("casts", "castu")
        ),
        declared(
            IRDLOperation, "index.constant", "attr-dict $value", value=prop_def(IntegerAttr[IndexType]),
            result=result_def(IndexType()), traits=traits_def(Pure()),
        ),
    ],
)  # fmt: skip
"""Arithmetic of MLIR on indices."""
