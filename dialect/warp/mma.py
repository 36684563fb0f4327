"""`warp.mma`: the product of two fragments, added to a third."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, traits_def, var_operand_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from ..isa import mma
from .attributes import FragmentType
from .product import Key, ProductOp, key_of, parse_scales, parse_types, selection, word_properties


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
