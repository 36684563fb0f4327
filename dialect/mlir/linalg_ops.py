"""`linalg` beside products and convolutions, as far as xDSL 0.74 lacks it: `linalg.map` and `linalg.elementwise`, one
element of the result from one of each input; `linalg.pack` and `linalg.unpack`, matrices as tiles that lie one after
another. Source: MLIR, Linalg dialect, its operations, and `LinalgRelayoutOps.td`."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Self

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AffineMapAttr,
    AnyFloat,
    ArrayAttr,
    DenseArrayBase,
    FloatAttr,
    IndexType,
    IntegerType,
    MemRefType,
    TensorType,
    i64,
)
from xdsl.dialects.linalg.abstract_ops import ElementwiseOperation, LinalgStructuredOperation
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.dialects.linalg.ops import MaxOp, MinOp, YieldOp
from xdsl.dialects.utils.dynamic_index_list import DynamicIndexList
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.irdl import (
    BaseAttr,
    IRDLOperation,
    SameVariadicOperandSize,
    VarConstraint,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from .affine import ARITHMETIC, converted, map_along
from .contraction import parse_operands, parse_results, print_operands
from .generic import TensorOrMemory, check_yield
from .upstream import SEGMENTS, print_listed
from .words import defined, irdl_op_definition, words

KIND = words(
    "linalg.elementwise_kind",
    "exp log abs ceil floor negf reciprocal round sqrt rsqrt square tanh erf add sub mul div div_unsigned"
    " max_signed min_signed max_unsigned min_unsigned powf select",
)
"""The function of a `linalg.elementwise`: `#linalg.elementwise_kind<add>`."""

UNARY: Mapping[str, Callable[[SSAValue], Operation]] = {
    "exp": math.ExpOp,
    "log": math.LogOp,
    "abs": math.AbsFOp,
    "ceil": math.CeilOp,
    "floor": math.FloorOp,
    "negf": arith.NegfOp,
    "round": math.RoundOp,
    "sqrt": math.SqrtOp,
    "rsqrt": math.RsqrtOp,
    "tanh": math.TanhOp,
    "erf": math.ErfOp,
}
"""Functions of one float."""

BINARY: Mapping[str, tuple[Callable[..., Operation] | None, Callable[..., Operation] | None]] = {
    **ARITHMETIC,
    "div": (arith.DivfOp, arith.DivSIOp),
    "max_signed": (arith.MaximumfOp, arith.MaxSIOp),
    "min_signed": (arith.MinimumfOp, arith.MinSIOp),
    "div_unsigned": (None, arith.DivUIOp),
    "max_unsigned": (None, arith.MaxUIOp),
    "min_unsigned": (None, arith.MinUIOp),
    "powf": (math.PowFOp, None),
}
"""Operations on two floats, and on two integers; None where there is none."""


class PointwiseOp(LinalgStructuredOperation, ABC):
    """An operation all of whose loops are parallel."""

    @property
    def rank(self) -> int:
        """The number of loops, which is the rank of the result."""
        kind = self.outputs[0].type
        return len(kind.get_shape()) if isinstance(kind, MemRefType | TensorType) else 0

    def get_iterator_types(self) -> ArrayAttr[IteratorTypeAttr]:
        return ArrayAttr([IteratorTypeAttr.parallel()] * self.rank)

    def verify_(self) -> None:
        if len(self.outputs) != 1:
            raise VerifyException(f"expected one operand in outs(...), got {len(self.outputs)}")
        super().verify_()
        check_yield(self.body.block, self.outputs)


@irdl_op_definition
class MapOp(PointwiseOp):
    """A body for each element of inputs and output, whose shapes are the same. It is read in its short form too, which
    names the operation: `linalg.map {arith.addf} ins(...) outs(...)`."""

    name = "linalg.map"

    def get_indexing_maps(self) -> ArrayAttr[AffineMapAttr]:
        return ArrayAttr([AffineMapAttr(AffineMap.identity(self.rank))] * len(self.operands))

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        start, named = parser.pos, _short_name(parser)
        inputs, outputs = (parse_operands(parser, keyword) for keyword in ("ins", "outs"))
        if len(outputs) != 1:
            parser.raise_error(f"expected one operand in outs(...), got {len(outputs)}", start)
        if named is not None:
            body = _short_body(parser, named, [*inputs, outputs[0]], range(len(inputs)), start)
        else:
            arguments = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_argument)
            body = parser.parse_region(arguments)
            if len(arguments) == len(inputs):
                body.block.insert_arg(_element(outputs[0]), len(inputs))  # as it was written before LLVM 22
        results: list[Attribute] = [v.type for v in outputs if isa(v.type, TensorType[Attribute])]
        return cls.build(operands=(inputs, outputs), result_types=(results,), regions=(body,))

    def print(self, printer: Printer) -> None:
        print_operands(self, printer, results=False)
        print_listed(printer, "", self.body.block.args, printer.print_block_argument)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)


@irdl_op_definition
class ElementwiseOp(PointwiseOp):
    """The operation named by `kind`, on elements that are first extended to the result's type. `indexing_maps` may
    broadcast or transpose inputs."""

    name = "linalg.elementwise"

    kind = prop_def(KIND)
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr])

    def get_indexing_maps(self) -> ArrayAttr[AffineMapAttr]:
        return self.indexing_maps

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        start = parser.pos
        parser.parse_keyword("kind")
        parser.parse_punctuation("=")
        kind = parser.parse_attribute()
        maps: Attribute | None = None
        if parser.parse_optional_keyword("indexing_maps"):
            parser.parse_punctuation("=")
            maps = parser.parse_attribute()
        attributes = parser.parse_optional_attr_dict()
        inputs, outputs = (parse_operands(parser, keyword) for keyword in ("ins", "outs"))
        results = parse_results(parser)
        if not isinstance(kind, KIND) or len(outputs) != 1:
            parser.raise_error("expected a #linalg.elementwise_kind, and one operand in outs(...)", start)
        out = outputs[0].type
        rank = len(out.get_shape()) if isinstance(out, MemRefType | TensorType) else 0
        default = ArrayAttr([AffineMapAttr(AffineMap.identity(rank))] * (len(inputs) + 1))
        try:
            body = body_of(kind.word.data, inputs, outputs[0])
        except ValueError as error:
            parser.raise_error(str(error), start)
        return cls.build(
            operands=(inputs, outputs),
            result_types=(results,),
            properties={"kind": kind, "indexing_maps": default if maps is None else maps},
            attributes=attributes,
            regions=(body,),
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" kind=")
        printer.print_attribute(self.kind)
        if any(map_.data != AffineMap.identity(self.rank) for map_ in self.indexing_maps):
            printer.print_string(" indexing_maps = ")
            printer.print_attribute(self.indexing_maps)
        printer.print_op_attributes(self.attributes)
        print_operands(self, printer)


def _element(value: SSAValue) -> Attribute:
    return value.type.element_type if isa(value.type, MemRefType | TensorType) else value.type


def _short_name(parser: Parser) -> str | None:
    """The operation of a short form, `{arith.addf}`."""
    if not parser.parse_optional_punctuation("{"):
        return None
    named = parser.parse_identifier(" as the operation")
    parser.parse_optional_attr_dict()
    parser.parse_punctuation("}")
    return named


def _short_body(parser: Parser, name: str, values: Sequence[SSAValue], of: Sequence[int], start: int) -> Region:
    """The body of `{name}` for elements of inputs and output, `of` which the operation takes some, in this order."""
    op_type = parser.ctx.get_optional_op(name)
    if op_type is None:
        parser.raise_error(f"expected an operation on elements, got '{name}'", start)
    block = Block(arg_types=[*map(_element, values)])
    op = op_type.create(operands=[block.args[i] for i in of], result_types=[_element(values[-1])])
    block.add_ops([op, YieldOp(op.results[0])])
    return Region(block)


def body_of(kind: str, inputs: Sequence[SSAValue], output: SSAValue) -> Region:
    """The body of a kind, on elements extended to the result's type. Raises ValueError for another number of inputs, or
    elements that the kind does not have."""
    target = _element(output)
    block = Block(arg_types=[*map(_element, inputs), target])
    wanted = 3 if kind == "select" else 2 if kind in BINARY else 1
    number = isinstance(target, AnyFloat) or (isa(target, IntegerType) and wanted > 1)
    of_type = BINARY[kind][0 if isinstance(target, AnyFloat) else 1] if kind in BINARY else _computed
    if len(inputs) != wanted or not number or of_type is None:
        of = f"{kind} of floats{' or integers' * (wanted > 1)}, got {target}"
        raise ValueError(f"expected {of if len(inputs) == wanted else f'{wanted} inputs of {kind}, got {len(inputs)}'}")
    with ImplicitBuilder(block):
        skipped = 1 if kind == "select" else 0
        values = [v if i < skipped else converted(v, target) for i, v in enumerate(block.args[:-1])]
        YieldOp(_computed(kind, values).results[0])
    return Region(block)


def _computed(kind: str, values: Sequence[SSAValue]) -> Operation:
    """The operation of a kind on elements of one type."""
    number = values[-1].type
    if kind == "select":
        return arith.SelectOp(*values)
    if (of_type := BINARY.get(kind, (None, None))[0 if isinstance(number, AnyFloat) else 1]) is not None:
        return of_type(*values)
    if kind == "square":
        return arith.MulfOp(values[0], values[0])
    if kind == "reciprocal":
        one = arith.ConstantOp(FloatAttr(1.0, number))  # pyright: ignore[reportArgumentType, reportCallIssue]
        return arith.DivfOp(one.result, values[0])
    return UNARY[kind](values[0])


@irdl_op_definition
class ReduceOp(LinalgStructuredOperation):
    """Elements combined along `dimensions`, of one input or of several of the same shape::

    %m, %i = linalg.reduce ins(%x, %n : tensor<4x9xf32>, tensor<4x9xi32>) outs(%a, %b : tensor<4xf32>, tensor<4xi32>)
               dimensions = [1] (%0: f32, %1: i32, %2: f32, %3: i32) { ... }

    It is read in its short form too: `linalg.reduce {arith.addf} ins(...) outs(...) dimensions = [1]`.
    """

    name = "linalg.reduce"

    dimensions = prop_def(DenseArrayBase.constr(i64))

    irdl_options = (SameVariadicOperandSize(),)

    def get_indexing_maps(self) -> ArrayAttr[AffineMapAttr]:
        loops = len(self.get_iterator_types())
        kept = map_along(loops, (d for d in range(loops) if d not in self.dimensions.get_values()))
        count = len(self.inputs)
        return ArrayAttr(map(AffineMapAttr, [AffineMap.identity(loops)] * count + [kept] * count))

    def get_iterator_types(self) -> ArrayAttr[IteratorTypeAttr]:
        kind, along = self.inputs[0].type if self.inputs else None, self.dimensions.get_values()
        loops = range(kind.get_num_dims() if isa(kind, TensorOrMemory) else 0)
        both = IteratorTypeAttr.parallel(), IteratorTypeAttr.reduction()
        return ArrayAttr([both[d in along] for d in loops])

    def verify_(self) -> None:
        super().verify_()
        check_yield(self.body.block, self.outputs)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        start, named = parser.pos, _short_name(parser)
        inputs, outputs = (parse_operands(parser, keyword) for keyword in ("ins", "outs"))
        parser.parse_keyword("dimensions")
        parser.parse_punctuation("=")
        along = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
        if not inputs or len(inputs) != len(outputs) or (named is not None and len(inputs) != 1):
            parser.raise_error("expected an operand in outs(...) for each in ins(...), one in the short form", start)
        if named is None:
            body = parser.parse_region(parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_argument))
        else:  # what is there so far comes first (MLIR, `addBodyWithPayloadOp` with `initFirst`)
            body = _short_body(parser, named, [inputs[0], outputs[0]], (1, 0), start)
        results: list[Attribute] = [value.type for value in outputs if isa(value.type, TensorType[Attribute])]
        properties = {"dimensions": DenseArrayBase.from_list(i64, along)}
        return cls.build(operands=(inputs, outputs), result_types=(results,), properties=properties, regions=(body,))

    def print(self, printer: Printer) -> None:
        print_operands(self, printer, results=False)
        printer.print_string(f" dimensions = {list(self.dimensions.get_values())}")
        print_listed(printer, "", self.body.block.args, printer.print_block_argument)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)


# `linalg.tanh` and the others: a name for each kind. xDSL has some, which it reads without attributes.


class NamedPointwiseOp(ElementwiseOperation, ABC):
    """An operation that its name names, on elements of one shape."""

    KIND: ClassVar[str]
    PRINT_ATTRS_IN_FRONT: ClassVar[bool] = True

    @classmethod
    def get_hidden_region(cls, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> Region:
        try:
            return body_of(cls.KIND, inputs, outputs[0])
        except ValueError as error:  # of which xDSL says nothing
            raise VerifyException(str(error)) from None


NAMED = [
    defined(NamedPointwiseOp, f"linalg.{kind}", f"Applies {kind} to each element.", KIND=kind)
    for kind in KIND.WORDS
    if kind == "div_unsigned" or not kind.endswith("signed")  # of both kinds of integers, the name is that of one
]


Tensor = TensorType[Attribute]

NUMBERS = DenseArrayBase.constr(i64)

TILING = (
    "(`outer_dims_perm` `=` $outer_dims_perm^)? `inner_dims_pos` `=` $inner_dims_pos `inner_tiles` `=` "
    "custom<DynamicIndexList>($inner_tiles, $static_inner_tiles) `into` $dest attr-dict "
    "`:` type($source) `->` type($dest)"
)
"""What the text of both operations ends with."""


class _Tiled(IRDLOperation, ABC):
    """What `linalg.pack` and `linalg.unpack` have in common: a tensor and the same tensor in tiles. `inner_dims_pos`
    are the dimensions that are tiled, `inner_tiles` the tile sizes, `outer_dims_perm` the order of the tiles."""

    WRITTEN: ClassVar = VarConstraint("WRITTEN", BaseAttr(TensorType))
    """The type of `dest`, and of the result."""

    source = operand_def(TensorType)
    dest = operand_def(WRITTEN)
    inner_tiles = var_operand_def(IndexType())
    inner_dims_pos = prop_def(NUMBERS)
    static_inner_tiles = prop_def(NUMBERS)
    outer_dims_perm = opt_prop_def(NUMBERS)
    result = result_def(WRITTEN)

    irdl_options = SEGMENTS
    custom_directives: ClassVar = (DynamicIndexList,)
    PACKS: ClassVar[bool]

    @property
    def order(self) -> tuple[int, ...]:
        """Which dimension each outer dimension of the tiles runs along."""
        dimensions = () if self.outer_dims_perm is None else tuple(self.outer_dims_perm.get_values())
        return dimensions or tuple(range(self.plain.get_num_dims()))

    @property
    def tiles(self) -> dict[int, int]:
        """The tile size of each tiled dimension; negative if it is dynamic."""
        return dict(zip(self.inner_dims_pos.get_values(), self.static_inner_tiles.get_values(), strict=True))

    @property
    def plain(self) -> Tensor:
        """The type of the tensor that is not in tiles."""
        return self._types[0 if self.PACKS else 1]

    @property
    def tiled(self) -> Tensor:
        """The type of the tensor in tiles."""
        return self._types[1 if self.PACKS else 0]

    @property
    def _types(self) -> tuple[Tensor, Tensor]:
        source, dest = self.source.type, self.dest.type
        if not isa(source, Tensor) or not isa(dest, Tensor):
            raise VerifyException(f"expected tensors of known rank, got {source} and {dest}")
        return source, dest

    def verify_(self) -> None:
        rank, cut = self.plain.get_num_dims(), self.inner_dims_pos.get_values()
        if len(set(cut)) < len(cut) or not all(0 <= dimension < rank for dimension in cut):
            raise VerifyException(f"expected inner_dims_pos to name dimensions 0 to {rank - 1} once, got {list(cut)}")
        if len(cut) != len(self.static_inner_tiles):
            raise VerifyException(f"expected a tile size for each of {len(cut)} dimensions")
        if sorted(self.order) != list(range(rank)):
            raise VerifyException(f"expected outer_dims_perm to permute {rank} dimensions, got {list(self.order)}")
        if any(size < 1 and size != DYNAMIC_INDEX for size in self.tiles.values()):
            raise VerifyException("expected tiles of one element or more")
        wanted, got = self._shape(), self.tiled.get_shape()
        if len(wanted) != len(got) or any(min(a, b) >= 0 and a != b for a, b in zip(wanted, got, strict=True)):
            raise VerifyException(f"expected tiles of {'x'.join(map(str, wanted))} elements, got {self.tiled}")

    def _shape(self) -> list[int]:
        """The shape in tiles, negative where a size is not known."""
        tiles, sizes = self.tiles, self.plain.get_shape()
        outer = (
            size if (tile := tiles.get(d, 1)) == 1 else -1 if min(size, tile) < 0 else -(-size // tile)
            for d, size in ((d, sizes[d]) for d in self.order)
        )
        return [*outer, *tiles.values()]


@irdl_op_definition
class PackOp(_Tiled):
    """A tensor as tiles that lie one after another::

    %t = linalg.pack %x inner_dims_pos = [0, 1] inner_tiles = [8, 32] into %e
           : tensor<64x96xf16> -> tensor<8x3x8x32xf16>
    """

    name = "linalg.pack"

    source = operand_def(TensorType)
    dest = operand_def(_Tiled.WRITTEN)
    padding_value = opt_operand_def()
    inner_tiles = var_operand_def(IndexType())
    PACKS: ClassVar = True

    assembly_format = "$source (`padding_value` `` `(` $padding_value^ `:` type($padding_value) `)`)? " + TILING

    def verify_(self) -> None:
        super().verify_()
        sizes = self.plain.get_shape()
        uneven = [d for d, tile in self.tiles.items() if min(sizes[d], tile) >= 0 and sizes[d] % tile]
        if uneven and self.padding_value is None:
            raise VerifyException(f"expected a padding_value, as tiles do not divide dimension {uneven[0]}")
        if self.padding_value is not None and self.padding_value.type != self.plain.element_type:
            raise VerifyException(f"expected a padding_value of {self.plain.element_type}")


@irdl_op_definition
class UnPackOp(_Tiled):
    """The tensor that lies in tiles one after another::

    %x = linalg.unpack %t inner_dims_pos = [0, 1] inner_tiles = [8, 32] into %e
           : tensor<8x3x8x32xf16> -> tensor<64x96xf16>
    """

    name = "linalg.unpack"

    PACKS: ClassVar = False

    assembly_format = "$source " + TILING


OPERATIONS = (MapOp, ElementwiseOp, ReduceOp, *NAMED, MaxOp, MinOp, PackOp, UnPackOp)
ATTRIBUTES = (KIND,)
