"""The named products of `linalg`, and how the operands of its operations are written.

xDSL 0.74 has `linalg.matmul` alone, with neither the casts of a product whose result is wider than its operands nor a
text form for `indexing_maps`, and crashes on some malformed text. MLIR's newer versions write a transposed operand with
`indexing_maps` on `matmul` and `batch_matmul`; older ones had an operation for each. Both are read.
Source: MLIR, Linalg dialect, named operations.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Self, TypeAlias, cast

from xdsl.dialects.builtin import AffineMapAttr, AnyFloat, ArrayAttr, IntegerType, MemRefType, TensorType
from xdsl.dialects.linalg import ops
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation, NamedOperation
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.ir import Attribute, Region, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.irdl import opt_prop_def, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from .affine import Factor, is_plain, loops_of, product_body, weighted
from .words import defined, irdl_op_definition, words

OperandElement: TypeAlias = AnyFloat | IntegerType
OperandMatrix: TypeAlias = MemRefType[OperandElement] | TensorType[OperandElement]

METADATA = "warp.metadata"
"""The attribute of a product with a sparse A: which argument of the function holds the metadata."""

_NAMES = "ABC"

TYPE_FN = words("linalg.type_fn", "cast_signed cast_unsigned")
"""`#linalg.type_fn<cast_unsigned>`: integers are extended with zeros to the type of the result."""

UNSIGNED = TYPE_FN.of("cast_unsigned")


def map_of(loops: str, dimensions: str) -> AffineMap:
    """The map of an operand. Loops and dimensions are letters: map_of("mnk", "km")."""
    return AffineMap(len(loops), 0, tuple(AffineDimExpr(loops.index(d)) for d in dimensions))


def maps_of(loops: str, operands: Sequence[str]) -> ArrayAttr[AffineMapAttr]:
    """The maps of several operands."""
    return ArrayAttr(AffineMapAttr(map_of(loops, dimensions)) for dimensions in operands)


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
    """Parses `-> type`, `-> (type, type)` or nothing."""
    if not parser.parse_optional_punctuation("->"):
        return ()
    types = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
    return parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type) if types is None else types


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


class PoolingOp(NamedOperation, ABC):
    """Pooling: the sum, the maximum or the minimum of a window's elements."""


class ContractionOp(NamedOperation, ABC):
    """`C += A * B` in one of its named forms; A and B are converted to C's type first. `LOOPS` names the loops by
    letters, in order, and `OPERANDS` the loops that the dimensions of A, B and C run along when no maps are given.
    Where they are `MOVABLE`, maps may exchange the last two of A or B, leave out a batch, and leave out m or n, along
    which the operand is then repeated. With `warp.metadata = i`, A is sparse: it has half as many columns as B has
    rows, and argument i of the function says where its elements belong (`docs/sparse.md`)."""

    LOOPS: ClassVar[str]
    OPERANDS: ClassVar[tuple[str, str, str]]
    MOVABLE: ClassVar[bool] = False

    indexing_maps = prop_def(ArrayAttr[AffineMapAttr])
    cast = opt_prop_def(TYPE_FN)

    @classmethod
    def get_hidden_region(cls, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> Region:
        """The body MLIR gives the operation. Raises VerifyException for types that have no product."""
        return cls.region_for(inputs, outputs, unsigned=False)

    @classmethod
    def region_for(cls, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue], *, unsigned: bool) -> Region:
        """The body, which extends integers with zeros if `unsigned`."""
        if (problem := _operand_problem(_types(inputs), _types(outputs))) is not None:
            raise VerifyException(problem)
        return product_body(cls.body_arg_types((*inputs, *outputs)), unsigned=unsigned)

    @property
    def unsigned(self) -> bool:
        """Whether integers are extended with zeros."""
        return self.cast == UNSIGNED

    def verify_(self) -> None:
        problem = _operand_problem(_types(self.inputs), _types(self.outputs)) or self.maps_problem()
        if problem := problem or self._shape_problem() or self._result_problem():
            raise VerifyException(problem)
        if METADATA not in self.attributes:  # xDSL counts what is stored of A
            # Not super(): xDSL's own product, the next in line, knows no cast.
            LinalgStructuredOperation.verify_(self)
        a, b, c = (cast(OperandMatrix, value.type).get_element_type() for value in (*self.inputs, *self.outputs))
        if not all(kind == c or _widens(kind, c) for kind in (a, b)):
            return
        body = weighted(self.body.block)
        multiplied = () if body is None or body.weights or body.negated else body.factors
        if {f.argument for f in multiplied} != {0, 1} or not all(map(self._extends_as_said, multiplied)):
            raise VerifyException(
                "expected the body to extend A and B to C's type, multiply, and add to C; "
                "another body is written as linalg.generic"
            )

    def _extends_as_said(self, factor: Factor) -> bool:
        integer, result = self.body.block.args[factor.argument].type, self.body.block.args[-1].type
        extended = isinstance(integer, IntegerType) and integer != result
        return factor.unsigned == (extended and self.unsigned)

    def maps_problem(self) -> str | None:
        """What is wrong with the indexing maps; None if nothing is."""
        maps = [attr.data for attr in self.indexing_maps]
        if len(maps) != 3:
            return f"expected three indexing_maps, one each for A, B and C, got {len(maps)}"
        for name, dimensions, map_ in zip(_NAMES, self.OPERANDS, maps, strict=True):
            allowed = [map_of(self.LOOPS, d) for d in self._allowed(name, dimensions)]
            if map_ not in allowed:
                return f"expected the indexing map of {name} to be {' or '.join(map(str, allowed))}, got {map_}"
        return None

    def loop_name(self, loop: int) -> str:
        """What a loop is called in messages."""
        return self.LOOPS[loop]

    def _allowed(self, name: str, dimensions: str) -> list[str]:
        """What the dimensions of an operand may run along."""
        if name == "C" or not self.MOVABLE:
            return [dimensions]
        batch, matrix = dimensions[:-2], dimensions[-2:]
        summed = "".join(loop for loop in matrix if loop not in self.OPERANDS[2])
        return [kept + order for kept in dict.fromkeys((batch, "")) for order in (matrix, matrix[::-1], summed)]

    def _shape_problem(self) -> str | None:
        """Every loop has one length, whichever operand it is read from."""
        seen: dict[int, tuple[str, int, int]] = {}
        for name, operand, attr in zip(_NAMES, self.operands, self.indexing_maps, strict=True):
            shape, loops = cast(OperandMatrix, operand.type).get_shape(), loops_of(attr.data)
            if len(shape) != len(loops):
                return f"expected {name} to be of rank {len(loops)}, got rank {len(shape)} ({operand.type})"
            for axis, (loop, length) in enumerate(zip(loops, shape, strict=True)):
                sparse = METADATA in self.attributes and (name, self.loop_name(loop)) == ("A", "k")
                size = 2 * length if sparse and length >= 0 else length
                other, other_axis, expected = seen.setdefault(loop, (name, axis, size))
                if expected != size and expected >= 0 and size >= 0:
                    return (
                        f"expected {other}'s {_ordinal(other_axis)} dimension and {name}'s {_ordinal(axis)} to agree"
                        f" ({self.loop_name(loop)}), got {expected} and {size}"
                    )
                if expected < 0:
                    seen[loop] = (name, axis, size)
        return None

    def _result_problem(self) -> str | None:
        c = self.outputs[0].type
        expected: list[Attribute] = [] if isinstance(c, MemRefType) else [c]
        got = list(_types(self.res))
        if expected == got:
            return None
        if not expected:
            return f"expected no result, as C is a memref and is written in place, got {_listed(got)}"
        return f"expected one result of C's type {c}, got {_listed(got)}"

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        maps = maps_of(cls.LOOPS, cls.OPERANDS)
        if parser.parse_optional_keyword("indexing_maps"):
            parser.parse_punctuation("=")
            maps = _maps_attribute(parser, parser.pos, parser.parse_attribute())
        start = parser.pos
        attributes = dict(parser.parse_optional_attr_dict())
        attributes.pop("operandSegmentSizes", None)
        if (attribute := attributes.pop("indexing_maps", None)) is not None:
            maps = _maps_attribute(parser, start, attribute)
        cast = attributes.pop("cast", None)
        if cast is not None and not isinstance(cast, TYPE_FN):
            parser.raise_error(
                f"expected cast to be #linalg.type_fn<cast_signed> or <cast_unsigned>, got {cast}", start
            )
        inputs, outputs = (parse_operands(parser, keyword, optional=False) for keyword in ("ins", "outs"))
        results = parse_results(parser)
        if (problem := _operand_problem(_types(inputs), _types(outputs))) is not None:
            parser.raise_error(f"{cls.name}: {problem}", start)
        return cls.build(
            operands=(inputs, outputs),
            result_types=(results,),
            properties={"indexing_maps": maps, "cast": cast},
            attributes=attributes,
            regions=(cls.region_for(inputs, outputs, unsigned=cast == UNSIGNED),),
        )

    def print(self, printer: Printer) -> None:
        if self.indexing_maps != maps_of(self.LOOPS, self.OPERANDS):
            printer.print_string(" indexing_maps = ")
            printer.print_attribute(self.indexing_maps)
        attributes = self.attributes if self.cast is None else {"cast": self.cast, **self.attributes}
        if attributes:
            printer.print_string(" ")
            printer.print_attr_dict(attributes)
        print_operands(self, printer)


def _types(values: Sequence[SSAValue]) -> Sequence[Attribute]:
    return [value.type for value in values]


def _listed(types: Sequence[Attribute]) -> str:
    return ", ".join(map(str, types)) or "none"


def _ordinal(axis: int) -> str:
    return ("first", "second", "third", "fourth", "fifth", "sixth")[min(axis, 5)]


def _operand_problem(inputs: Sequence[Attribute], outputs: Sequence[Attribute]) -> str | None:
    """What is wrong with the operands' number, kinds, ranks or element types; None if nothing is."""
    if len(inputs) != 2 or len(outputs) != 1:
        return f"expected two operands in ins(...) and one in outs(...), got {len(inputs)} and {len(outputs)}"
    types = (*inputs, *outputs)
    for name, type_ in zip(_NAMES, types, strict=True):
        if not isinstance(type_, MemRefType | TensorType) or not isinstance(type_.get_element_type(), OperandElement):
            return f"expected {name} to be a memref or tensor of floats or integers, got {type_}"
    if len({isinstance(type_, TensorType) for type_ in types}) > 1:
        return f"expected A, B and C to be all memrefs or all tensors, got {_listed(types)}"
    return None


def _widens(source: OperandElement, target: OperandElement) -> bool:
    """Whether an element type is extended by `arith.extf`, `arith.extsi`, or, if it is unsigned, `arith.extui`; or
    converted, an integer to a float."""
    if isinstance(source, IntegerType) and not isinstance(target, IntegerType):
        return True
    return isinstance(source, IntegerType) == isinstance(target, IntegerType) and source.bitwidth < target.bitwidth


def _maps_attribute(parser: Parser, start: int, attribute: Attribute) -> ArrayAttr[AffineMapAttr]:
    if not isa(attribute, ArrayAttr[AffineMapAttr]):
        parser.raise_error(f"expected indexing_maps to be a list of affine maps, got {attribute}", start)
    return attribute


@irdl_op_definition
class MatmulOp(ContractionOp, ops.MatmulOp):
    """`C += A * B` on memrefs, or the tensor `C + A * B`; the operands are extended to C's type first. `indexing_maps`,
    when given, say which of A and B are stored transposed. A subclass of xDSL's operation, so that a pattern written
    for that matches this too."""

    name = "linalg.matmul"
    LOOPS: ClassVar = "mnk"
    OPERANDS: ClassVar = ("mk", "kn", "mn")
    MOVABLE: ClassVar = True

    indexing_maps = prop_def(ArrayAttr[AffineMapAttr], default_value=maps_of("mnk", OPERANDS))


class NamedContractionOp(ContractionOp, ABC):
    """A named product that xDSL does not have."""

    def get_indexing_maps(self) -> ArrayAttr[AffineMapAttr]:
        return self.indexing_maps

    def get_default_indexing_maps(self) -> list[AffineMap]:
        return [attribute.data for attribute in self.indexing_maps]

    def get_iterator_types(self) -> ArrayAttr[IteratorTypeAttr]:
        """Loops that C has no dimension along are summed over."""
        maps = [attribute.data for attribute in self.indexing_maps]
        kinds = IteratorTypeAttr.reduction(), IteratorTypeAttr.parallel()
        return ArrayAttr([kinds[loop in loops_of(maps[-1])] for loop in range(maps[-1].num_dims)])


class ContractionRow(NamedTuple):
    """A named product: what it is, the loops of its operands, and whether maps may move them."""

    means: str
    operands: tuple[str, str, str]
    movable: bool = False


ORDER = "bMNKmnk"
"""The order of loops: those of a batch, of tiles, and in a tile."""

PRODUCTS = {
    "matmul_transpose_a": ContractionRow("`C += A^T * B`, A being k x m.", ("km", "kn", "mn")),
    "matmul_transpose_b": ContractionRow("`C += A * B^T`, B being n x k.", ("mk", "nk", "mn")),
    "batch_matmul": ContractionRow("`C[b] += A[b] * B[b]` for each b.", ("bmk", "bkn", "bmn"), movable=True),
    "batch_matmul_transpose_a": ContractionRow("`C[b] += A[b]^T * B[b]` for each b.", ("bkm", "bkn", "bmn")),
    "batch_matmul_transpose_b": ContractionRow("`C[b] += A[b] * B[b]^T` for each b.", ("bmk", "bnk", "bmn")),
    "matvec": ContractionRow("`c += A * b` of a matrix and a vector.", ("mk", "k", "m")),
    "vecmat": ContractionRow("`c += a * B` of a vector and a matrix.", ("k", "kn", "n")),
    "dot": ContractionRow("`c += a * b` of two vectors, a number.", ("k", "k", "")),
    "batch_matvec": ContractionRow("`C[b] += A[b] * B[b]` of matrices and vectors.", ("bmk", "bk", "bm")),
    "batch_vecmat": ContractionRow("`C[b] += A[b] * B[b]` of vectors and matrices.", ("bk", "bkn", "bn")),
    "batch_reduce_matmul": ContractionRow("`C += A[b] * B[b]`, summed over b too.", ("bmk", "bkn", "mn"), movable=True),
    "mmt4d": ContractionRow("`C[m, n] += A[m, k] * B[n, k]^T`, each element a tile.", ("MKmk", "NKnk", "MNmn")),
    "batch_mmt4d": ContractionRow("`linalg.mmt4d` for each of a batch.", ("bMKmk", "bNKnk", "bMNmn")),
}  # fmt: skip
"""The products that differ in their loops alone."""


def _operation(name: str, row: ContractionRow) -> type[NamedContractionOp]:
    loops = "".join(loop for loop in ORDER if any(loop in dimensions for dimensions in row.operands))
    maps = prop_def(ArrayAttr[AffineMapAttr], default_value=maps_of(loops, row.operands))
    own = {"LOOPS": loops, "OPERANDS": row.operands, "MOVABLE": row.movable, "indexing_maps": maps}
    return defined(NamedContractionOp, f"linalg.{name}", row.means, **own)


@irdl_op_definition
class ContractOp(NamedContractionOp):
    """`C += A * B` over loops that `indexing_maps` alone say, as in a `linalg.generic`."""

    name = "linalg.contract"
    LOOPS: ClassVar = ""
    OPERANDS: ClassVar = ("", "", "")
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr], default_value=maps_of("", OPERANDS))

    def maps_problem(self) -> str | None:
        """The error of the maps; None if each dimension runs along a loop of its own and no map has more loops than
        C's."""
        maps = [attribute.data for attribute in self.indexing_maps]
        if len(maps) != len(self.OPERANDS):
            return f"expected three indexing_maps, one each for A, B and C, got {len(maps)}"
        for name, map_ in zip("ABC", maps, strict=True):
            if map_.num_dims != maps[-1].num_dims or not is_plain(map_):
                return f"expected the dimensions of {name} along loops of their own, got {map_}"
        return None

    def loop_name(self, loop: int) -> str:
        return f"d{loop}"


CONTRACTIONS = (MatmulOp, *(_operation(name, row) for name, row in PRODUCTS.items()), ContractOp)
