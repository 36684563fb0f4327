"""`warp.mma`: the product of two fragments, added to a third."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ..isa import mma
from .attributes import FragmentType, fragment_of, target_of


@irdl_op_definition
class MmaOp(IRDLOperation):
    """D = A * B + C, with A m x k, B k x n and C, D m x n fragments of a warp.

    The instruction is one row of the ISA, named by its shape and the element types of the operands; the
    fragments are whole multiples of its matrices. Printed as::

        %d = warp.mma m16n8k16 %a, %b, %c : !warp.fragment<a, ...>, !warp.fragment<b, ...>, !warp.fragment<acc, ...>

    Source: PTX ISA 9.7.14.5.14.
    """

    name = "warp.mma"

    a = operand_def(FragmentType)
    b = operand_def(FragmentType)
    c = operand_def(FragmentType)
    shape = prop_def(StringAttr)
    d = result_def(FragmentType)

    traits = traits_def(Pure())
    ROLES: ClassVar = (("a", "A", "a"), ("b", "B", "b"), ("c", "C", "acc"))

    def __init__(self, shape: mma.Shape, a: SSAValue, b: SSAValue, c: SSAValue):
        super().__init__(operands=[a, b, c], properties={"shape": StringAttr(str(shape))}, result_types=[c.type])

    @property
    def fragments(self) -> tuple[FragmentType, FragmentType, FragmentType]:
        """The types of A, B and C."""
        return fragment_of(self.a), fragment_of(self.b), fragment_of(self.c)

    @property
    def row(self) -> mma.Mma:
        """The ISA's row of the instruction.

        Raises:
            VerifyException: if the ISA has no such instruction, naming the nearest that it has.
        """
        a, b, c = (t.element.name for t in self.fragments)
        shape = self._shape()
        row = mma.find(shape, a, b, c, c)
        if row is None:
            like = ", ".join(f"{r.shape} {r.a.name} x {r.b.name} -> {r.d.name}" for r in mma.nearest(shape, a, b, c, c))
            raise VerifyException(f"the ISA has no mma {shape} {a} x {b} -> {c}; the nearest are {like}")
        return row

    def _shape(self) -> mma.Shape:
        try:
            return mma.Shape.parse(self.shape.data)
        except ValueError as e:
            raise VerifyException(str(e)) from None

    def verify_(self) -> None:
        row, fragments = self.row, self.fragments
        for (role, name, expected), fragment in zip(self.ROLES, fragments, strict=True):
            self._verify_fragment(row, role, name, expected, fragment)
        a, b, c = (fragment.shape for fragment in fragments)
        if a[1] != b[0] or (a[0], b[1]) != c:
            raise VerifyException(
                f"expected A m x k, B k x n and C m x n, got {a[0]}x{a[1]}, {b[0]}x{b[1]} and {c[0]}x{c[1]}"
            )
        if self.d.type != self.c.type:
            raise VerifyException(f"expected D of the type of C, {self.c.type}, got {self.d.type}")
        target = target_of(self)
        if target is not None and not row.runs_on(target):
            raise VerifyException(f"{row.spelling} needs sm_{row.sm} or later, the module's target is {target}")

    @staticmethod
    def _verify_fragment(row: mma.Mma, role: str, name: str, expected: str, fragment: FragmentType) -> None:
        if fragment.role.data != expected:
            raise VerifyException(f"expected {name} to be a fragment of role {expected}, got {fragment.role.data}")
        layout = row.layout(role)
        if fragment.layout.data == layout:
            return
        registers = fragment.layout.data.elements * fragment.element.bits // 32
        raise VerifyException(
            f"expected matrix {name} of {row.shape} {row.element(role).name} to be "
            f"{row.registers(role)} x b32 per lane in layout [{layout}], got {registers} in [{fragment.layout.data}]"
        )

    @classmethod
    def parse(cls, parser: Parser) -> MmaOp:
        shape = parser.parse_identifier(" as the shape of the instruction")
        position = parser.pos
        operands = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        if len(operands) != 3 or len(types) != 3:
            parser.raise_error(f"expected 3 operands and 3 types, got {len(operands)} and {len(types)}", position)
        values = parser.resolve_operands(operands, types, position)
        return cls.create(
            operands=values,
            properties={"shape": StringAttr(shape)},
            attributes=attributes,
            result_types=[types[2]],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.shape.data} ")
        printer.print_list(self.operands, printer.print_ssa_value)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_list(self.operand_types, printer.print_attribute)
