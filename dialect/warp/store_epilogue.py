"""`warp.epilogue`: what becomes of the sums of a product on their way to D."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, IndexType, MemRefType, StringAttr
from xdsl.ir import Attribute, Region, SSAValue, TypeAttribute
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    base,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    opt_region_def,
    prop_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from .attributes import FragmentType, memory_of
from .cta_tile import CtaTileType
from .elements import parse_elements, print_elements
from .endings import product_type, verify_epilogue, verify_like
from .epilogue import AXES
from .loops import M, N
from .memory import bounds, verify_indices

MATRIX, NUMBER = "matrix", "number"
"""What an epilogue operand may be beside a vector along the rows or the columns of D."""


@irdl_op_definition
class EpilogueOp(IRDLOperation):
    """Stores sums of a product to D, from a row and a column on, rounded to its type::

        warp.epilogue %sum into %D[%m, %n] {in_bounds = [true, true]} : !warp.cta_tile<64x64xf32>, memref<256x320xf32>

    With `plus %C`, C is added first. It has the layout of D. The arguments of an epilogue are the sum, rounded to the
    type of the first argument, and an element of each operand. It yields the element of D::

        warp.epilogue %sum plus %C into %D[%m, %n] with %bias {along = ["columns"]}
          : !warp.fragment<acc, ...>, memref<256x320xbf16>, memref<256x320xbf16>, memref<320xf32>
          epilogue(%x: f32, %b: f32) {...}

    `along` has a word for each operand: it is a `matrix` like D, a vector along the `rows` or the `columns` of D, or a
    `number`. In the region `warp.index 0` is the row in D, and `warp.index 1` the column. Elements outside D are not
    stored. `in_bounds` [rows, columns] promises that there are none.

    The sums are those of a CTA or, after `warp-distribute`, of a warp. `warp.schedule` determines how a warp stores
    them. `warp-epilogue` expands the operation.
    """

    name = "warp.epilogue"

    sums = operand_def(base(CtaTileType) | base(FragmentType))
    c = opt_operand_def(MemRefType)
    d = operand_def(MemRefType)
    at = var_operand_def(IndexType())
    epilogue_operands = var_operand_def()
    along = prop_def(ArrayAttr[StringAttr])
    in_bounds = opt_prop_def(ArrayAttr[BoolAttr])
    epilogue = opt_region_def()

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect(), IsolatedFromAbove())
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    def __init__(
        self,
        sums: SSAValue,
        d: SSAValue,
        at: Sequence[SSAValue],
        *,
        c: SSAValue | None = None,
        in_bounds: ArrayAttr[BoolAttr] | None = None,
        epilogue_operands: Sequence[tuple[SSAValue, str]] = (),
        epilogue: Region | None = None,
    ):
        """`epilogue_operands` come with what they are along."""
        super().__init__(
            operands=[sums, [] if c is None else [c], d, list(at), [value for value, _ in epilogue_operands]],
            properties={
                "along": ArrayAttr([StringAttr(along) for _, along in epilogue_operands]),
                "in_bounds": in_bounds,
            },
            regions=[[] if epilogue is None else [epilogue]],
        )

    def of_warp(self, sums: SSAValue, at: Sequence[SSAValue]) -> EpilogueOp:
        """The same of a warp's part of the sums, a fragment, which begins elsewhere."""
        region = None if self.epilogue is None else self.epilogue.clone()
        operands = self.placed()
        found = EpilogueOp(sums, self.d, at, c=self.c, in_bounds=self.in_bounds, epilogue_operands=operands,
                           epilogue=region)  # fmt: skip
        found.attributes |= self.attributes
        found.location = self.location
        return found

    @property
    def product_type(self) -> TypeAttribute:
        """The type that a sum is rounded to: D's, or what the epilogue takes."""
        return product_type(self.d, self.epilogue)

    def matrices(self) -> list[SSAValue]:
        """The epilogue's operands that are matrices."""
        return [value for value, along in self.placed() if along == MATRIX]

    def placed(self) -> list[tuple[SSAValue, str]]:
        """The epilogue's operands with what they are along."""
        return [(v, along.data) for v, along in zip(self.epilogue_operands, self.along, strict=True)]

    def verify_(self) -> None:
        verify_indices("D", memory_of(self.d), self.at)
        bounds(self.in_bounds)
        verify_like(self.c, self.d)
        if len(self.along) != len(self.epilogue_operands):
            raise VerifyException(
                f"expected `along` of each of {len(self.epilogue_operands)} epilogue operands, got {self.along}"
            )
        for value, along in self.placed():
            _verify_along(value, along)
        verify_epilogue(self.d, self.epilogue, self.epilogue_operands, (M, N))

    @classmethod
    def parse(cls, parser: Parser) -> EpilogueOp:
        position = parser.pos
        names = [parser.parse_unresolved_operand()]
        added = parser.parse_optional_keyword("plus") is not None
        if added:
            names.append(parser.parse_unresolved_operand())
        parser.parse_keyword("into")
        names.append(parser.parse_unresolved_operand())
        at = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)
        if parser.parse_optional_keyword("with"):
            names += parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        if len(types) != len(names):
            parser.raise_error(f"expected a type for each of {len(names)} operands, got {len(types)}", position)
        values = parser.resolve_operands(names, types, position)
        along, in_bounds = attributes.pop("along", ArrayAttr([])), attributes.pop("in_bounds", None)
        if not isa(along, ArrayAttr[StringAttr]):
            parser.raise_error(f"expected `along` to be a list of words, got {along}", position)
        if in_bounds is not None and not isa(in_bounds, ArrayAttr[BoolAttr]):
            parser.raise_error(f"expected in_bounds to be a list of truth values, got {in_bounds}", position)
        given = values[2 + added :]
        if len(along) != len(given):
            parser.raise_error(f"expected `along` of each of {len(given)} epilogue operands, got {along}", position)
        op = cls(
            values[0],
            values[1 + added],
            parser.resolve_operands(at, [IndexType()] * len(at), position),
            c=values[1] if added else None,
            in_bounds=in_bounds,
            epilogue_operands=[(value, word.data) for value, word in zip(given, along, strict=True)],
            epilogue=parse_elements(parser) if parser.parse_optional_keyword("epilogue") else None,
        )
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.sums)
        if self.c is not None:
            printer.print_string(" plus ")
            printer.print_ssa_value(self.c)
        printer.print_string(" into ")
        printer.print_ssa_value(self.d)
        with printer.in_square_brackets():
            printer.print_list(self.at, printer.print_ssa_value)
        if self.epilogue_operands:
            printer.print_string(" with ")
            printer.print_list(self.epilogue_operands, printer.print_ssa_value)
        said: dict[str, Attribute] = {} if not self.along.data else {"along": self.along}
        said |= {} if self.in_bounds is None else {"in_bounds": self.in_bounds}
        printer.print_op_attributes(said | self.attributes)
        printer.print_string(" : ")
        values = [self.sums, *([] if self.c is None else [self.c]), self.d, *self.epilogue_operands]
        printer.print_list([value.type for value in values], printer.print_attribute)
        if self.epilogue is not None:
            printer.print_string(" epilogue")
            print_elements(printer, self.epilogue)


def _verify_along(value: SSAValue, along: str) -> None:
    """Checks that an epilogue operand can be what it is said to be."""
    ranks = {MATRIX: 2, **dict.fromkeys(AXES, 1)}
    if along not in (*ranks, NUMBER):
        raise VerifyException(f"expected `along` to be {', '.join((*ranks, NUMBER))}, got '{along}'")
    kind: Attribute = value.type
    rank = memory_of(value).get_num_dims() if isinstance(kind, MemRefType) else None
    if rank != ranks.get(along):
        what = "that is no memory" if along == NUMBER else f"of rank {ranks[along]}"
        raise VerifyException(f"expected an epilogue operand {what} along '{along}', got {kind}")
