"""`linalg.pack` and `linalg.unpack`, which xDSL 0.74 lacks: matrices as tiles that lie one after another.

Source: MLIR, Linalg dialect, `LinalgRelayoutOps.td`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, IndexType, IntegerType, TensorType, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
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

Tensor = TensorType[Attribute]
Numbers = DenseArrayBase[IntegerType]

NUMBERS = DenseArrayBase.constr(i64)


class _Tiled(IRDLOperation):
    """What a tensor and the same in tiles have in common. `inner_dims_pos` names the dimensions that are cut, of which
    `inner_tiles` has the sizes; with `outer_dims_perm` the tiles lie in another order."""

    source = operand_def(TensorType)
    dest = operand_def(TensorType)
    inner_tiles = var_operand_def(IndexType)
    inner_dims_pos = prop_def(NUMBERS)
    static_inner_tiles = prop_def(NUMBERS)
    outer_dims_perm = opt_prop_def(NUMBERS)
    result = result_def(TensorType)

    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    PACKS: ClassVar[bool]

    @property
    def order(self) -> tuple[int, ...]:
        """Which dimension each outer dimension of the tiles runs along."""
        given = () if self.outer_dims_perm is None else tuple(self.outer_dims_perm.get_values())
        return given or tuple(range(self.plain.get_num_dims()))

    @property
    def tiles(self) -> dict[int, int]:
        """The size of a tile along each dimension that is cut; negative where only the program knows it."""
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
        if self.result.type != self.dest.type:
            raise VerifyException(f"expected a result of the type of what it is written into, {self.dest.type}")
        if len(set(cut)) < len(cut) or not all(0 <= dimension < rank for dimension in cut):
            raise VerifyException(
                f"expected inner_dims_pos to name dimensions of 0 to {rank - 1} once, got {list(cut)}"
            )
        if len(cut) != len(self.static_inner_tiles):
            raise VerifyException(f"expected a tile size for each of {len(cut)} dimensions")
        if sorted(self.order) != list(range(rank)):
            raise VerifyException(f"expected outer_dims_perm to permute {rank} dimensions, got {list(self.order)}")
        if 0 in self.tiles.values():
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

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        source = parser.parse_unresolved_operand()
        padding: list[SSAValue] = []
        if cls.PACKS and parser.parse_optional_keyword("padding_value"):
            with parser.in_parens():
                value = parser.parse_unresolved_operand()
                parser.parse_punctuation(":")
                padding.append(parser.resolve_operand(value, parser.parse_type()))
        order = _numbers(parser) if parser.parse_optional_keyword("outer_dims_perm") else None
        parser.parse_keyword("inner_dims_pos")
        cut = _numbers(parser)
        parser.parse_keyword("inner_tiles")
        parser.parse_punctuation("=")
        unknown: list[SSAValue] = []

        def tile() -> int:
            if (value := parser.parse_optional_unresolved_operand()) is None:
                return parser.parse_integer(allow_negative=False, allow_boolean=False)
            unknown.append(parser.resolve_operand(value, IndexType()))
            return DYNAMIC_INDEX

        tiles = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, tile)
        parser.parse_keyword("into")
        dest = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        values = [parser.resolve_operand(source, parser.parse_type())]
        parser.parse_punctuation("->")
        values.append(parser.resolve_operand(dest, parser.parse_type()))
        return cls.create_of(values[0], values[1], cut, tiles, order, unknown, padding, attributes)

    @classmethod
    def create_of(
        cls,
        source: SSAValue,
        dest: SSAValue,
        cut: Sequence[int],
        tiles: Sequence[int],
        order: Sequence[int] | None,
        unknown: Sequence[SSAValue],
        padding: Sequence[SSAValue],
        attributes: dict[str, Attribute],
    ) -> Self:
        """An operation with these operands; `unknown` are the tile sizes that only the program knows."""
        return cls.build(
            operands=[source, dest, *([list(padding)] if cls.PACKS else []), list(unknown)],
            properties={
                "inner_dims_pos": DenseArrayBase.from_list(i64, cut),
                "static_inner_tiles": DenseArrayBase.from_list(i64, tiles),
                "outer_dims_perm": None if order is None else DenseArrayBase.from_list(i64, order),
            },
            attributes=attributes,
            result_types=[dest.type],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.source)
        for value in self.padding:
            printer.print_string(" padding_value(")
            printer.print_ssa_value(value)
            printer.print_string(" : ")
            printer.print_attribute(value.type)
            printer.print_string(")")
        if self.outer_dims_perm is not None and len(self.outer_dims_perm):
            printer.print_string(f" outer_dims_perm = {list(self.outer_dims_perm.get_values())}")
        printer.print_string(f" inner_dims_pos = {list(self.inner_dims_pos.get_values())} inner_tiles = [")
        unknown = iter(self.inner_tiles)
        for number, size in enumerate(self.static_inner_tiles.get_values()):
            printer.print_string(", " if number else "")
            if size == DYNAMIC_INDEX:
                printer.print_ssa_value(next(unknown))
            else:
                printer.print_string(str(size))
        printer.print_string("] into ")
        printer.print_ssa_value(self.dest)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.source.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.dest.type)

    @property
    def padding(self) -> Sequence[SSAValue]:
        """What stands around the tensor in its last tiles, if that is said."""
        return ()


def _numbers(parser: Parser) -> list[int]:
    parser.parse_punctuation("=")
    return parser.parse_comma_separated_list(
        parser.Delimiter.SQUARE, lambda: parser.parse_integer(allow_negative=False, allow_boolean=False)
    )


@irdl_op_definition
class PackOp(_Tiled):
    """A tensor as tiles that lie one after another::

    %t = linalg.pack %x inner_dims_pos = [0, 1] inner_tiles = [8, 32] into %e
           : tensor<64x96xf16> -> tensor<8x3x8x32xf16>
    """

    name = "linalg.pack"

    source = operand_def(TensorType)
    dest = operand_def(TensorType)
    padding_value = opt_operand_def()
    inner_tiles = var_operand_def(IndexType)
    PACKS: ClassVar = True

    @property
    def padding(self) -> Sequence[SSAValue]:
        return () if self.padding_value is None else (self.padding_value,)

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
