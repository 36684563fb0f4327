"""`warp.mma` and `warp.mma_sp`: the product of two fragments, added to a third."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, IntegerType, StringAttr, UnitAttr, i64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, traits_def, var_operand_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ..isa import mma
from ..isa.form import Shape
from ..layouts.layout import Layout
from .attributes import FragmentType
from .product import Key, ProductOp, key_of, parse_scales, parse_selected, parse_types, selection, word_properties

# `warp.mma`: the product of two fragments, added to a third.


@cache
def _rows() -> Mapping[Key, mma.Mma]:
    """Every row by its key; of two spellings of one instruction, the one that says more."""
    return {_key(row): row for row in mma.rows()}


def _key(row: mma.Mma) -> Key:
    layouts = f"{row.a_layout}.{row.b_layout}"
    return key_of(row)._replace(
        layouts="" if layouts == "row.col" else layouts, rounding=row.rounding, bit_op=row.bit_op
    )


@irdl_op_definition
class MmaOp(ProductOp):
    """D = A * B + C, with A m x k, B k x n and C, D m x n fragments of a warp.

    The shape, the element types of the operands, and further words determine the instruction. The sizes of the
    fragments are multiples of its shape. Printed as::

        %d = warp.mma m16n8k16 %a, %b, %c : !warp.fragment<a, ...>, !warp.fragment<b, ...>, !warp.fragment<acc, ...>
        %d = warp.mma m16n8k32 satfinite %a, %b, %c : ...
        %d = warp.mma m8n8k4 col.row %a, %b, %c : !a, !b, !half -> !float
        %d = warp.mma m16n8k64 mxf4nvf4 %a, %b, %c scaled %sa[0, 1], %sb[0, 3] : !a, !b, !acc, !sa, !sb

    The words are the layouts of m8n8k4 (`row.row`, `col.row`, `col.col`), `satfinite`, the rounding of f64 (`rn`, `rz`,
    `rm`, `rp`), the operation of b1 (`xor`, `and`) and the `.kind`. The numbers after scales are byte-id and thread-id.
    D has the type of C unless another one is given.

    Source: PTX ISA 9.7.14.5.14.
    """

    name = "warp.mma"

    a = operand_def(FragmentType)
    b = operand_def(FragmentType)
    c = operand_def(FragmentType)
    layouts = opt_prop_def(StringAttr)
    rounding = opt_prop_def(StringAttr)
    bit_op = opt_prop_def(StringAttr)
    scales = var_operand_def(FragmentType)

    traits = traits_def(Pure())

    def __init__(
        self,
        shape: mma.Shape,
        a: SSAValue,
        b: SSAValue,
        c: SSAValue,
        *words: str,
        scales: Sequence[SSAValue] = (),
        selectors: Sequence[int] = (),
        result: FragmentType | None = None,
    ):
        """`words` are those of the text; `result` is the type of D where it is not that of C."""
        super().__init__(
            operands=[a, b, c, list(scales)],
            properties={"shape": StringAttr(str(shape)), **word_properties(words), **selection(selectors)},
            result_types=[c.type if result is None else result],
        )

    @classmethod
    def rows(cls) -> Mapping[Key, mma.Mma]:
        """Every row of the instruction."""
        return _rows()

    @classmethod
    def parse(cls, parser: Parser) -> MmaOp:
        properties = cls.parse_words(parser)
        position = parser.pos
        operands = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        scales = parse_scales(parser, properties)
        attributes = parser.parse_optional_attr_dict()
        values, result = parse_types(parser, [*operands, *scales], 3 + len(scales), position)
        return cls.create(operands=values, properties=properties, attributes=attributes, result_types=[result])

    def print(self, printer: Printer) -> None:
        self.print_words(printer)
        printer.print_list(self.operands[:3], printer.print_ssa_value)
        self.print_scales(printer)
        self.print_types(printer)


# `warp.mma_sp`: the product of a sparse and a dense fragment, added to a third.

NIBBLE = IntegerType(4)
"""The element type of metadata: one code for each chunk of a row of A."""


@cache
def _sparse_rows() -> Mapping[Key, mma.MmaSparse]:
    """Every row by its key; of two spellings of one instruction, the one that says more."""
    return {key_of(row)._replace(ordered=row.ordered): row for row in mma.sparse_rows()}


def metadata_type(layout: Layout, down: int = 1, deep: int = 1) -> FragmentType:
    """The type of the metadata of `down` by `deep` instructions' A: a nibble for each row and chunk."""
    return FragmentType.of("meta", down * layout.rows, deep * layout.columns, NIBBLE, layout)


@irdl_op_definition
class MmaSparseOp(ProductOp):
    """D = A * B + C with a sparse A, m x k. Half of each row is stored, so the fragment of A is m x k/2.

    It is like `warp.mma`, with two more operands: the metadata gives the positions of the stored elements, and the
    sparsity selector gives the lanes that hold the metadata. Printed as::

        %d = warp.mma_sp m16n8k32 ordered %a, %b, %c, %e[1] : !a, !b, !acc, !warp.fragment<meta, 16x8xi4, [...]>
        %d = warp.mma_sp m16n8k64 ordered mxf8f6f4 %a, %b, %c, %e[0] scaled %sa[0, 1], %sb[0, 3] : ...

    `ordered` is `::ordered_metadata`: the indices of each chunk increase.

    Source: PTX ISA 9.7.14.6.3.
    """

    name = "warp.mma_sp"

    a = operand_def(FragmentType)
    b = operand_def(FragmentType)
    c = operand_def(FragmentType)
    e = operand_def(FragmentType)
    ordered = opt_prop_def(UnitAttr)
    selector = prop_def(IntegerAttr)
    scales = var_operand_def(FragmentType)

    traits = traits_def(Pure())
    SPARSITY: ClassVar = 2
    UNSCALED: ClassVar = 4

    def __init__(
        self,
        shape: Shape,
        a: SSAValue,
        b: SSAValue,
        c: SSAValue,
        e: SSAValue,
        selector: int,
        *words: str,
        scales: Sequence[SSAValue] = (),
        selectors: Sequence[int] = (),
    ):
        """`words` are those of the text."""
        super().__init__(
            operands=[a, b, c, e, list(scales)],
            properties={
                "shape": StringAttr(str(shape)),
                "selector": IntegerAttr(selector, i64),
                **word_properties(words),
                **selection(selectors),
            },
            result_types=[c.type],
        )

    @classmethod
    def rows(cls) -> Mapping[Key, mma.MmaSparse]:
        """Every row of the instruction."""
        return _sparse_rows()

    def verify_(self) -> None:
        super().verify_()
        row = _sparse_rows().get(self.key)
        if row is None:
            return
        expected = metadata_type(row.metadata, *self.fragments[0].tiles)
        if self.e.type != expected:
            raise VerifyException(f"expected the metadata to be {expected}, got {self.e.type}")
        selector, legal = self.selector.value.data, row.selectors
        if selector not in legal:
            listed = ", ".join(map(str, legal))
            raise VerifyException(f"expected a sparsity selector of {listed} for {row.spelling}, got {selector}")

    @classmethod
    def parse(cls, parser: Parser) -> MmaSparseOp:
        properties = cls.parse_words(parser)
        position = parser.pos
        operands = [parser.parse_unresolved_operand()]
        for _ in range(2):
            parser.parse_punctuation(",")
            operands.append(parser.parse_unresolved_operand())
        parser.parse_punctuation(",")
        metadata, numbers = parse_selected(parser)
        if len(numbers) != 1:
            parser.raise_error(f"expected one sparsity selector, got {len(numbers)}", position)
        properties["selector"] = IntegerAttr(numbers[0], i64)
        scales = parse_scales(parser, properties)
        attributes = parser.parse_optional_attr_dict()
        values, result = parse_types(parser, [*operands, metadata, *scales], 4 + len(scales), position)
        return cls.create(operands=values, properties=properties, attributes=attributes, result_types=[result])

    def print(self, printer: Printer) -> None:
        self.print_words(printer)
        printer.print_list(self.operands[:4], printer.print_ssa_value)
        printer.print_string(f"[{self.selector.value.data}]")
        self.print_scales(printer)
        self.print_types(printer)
