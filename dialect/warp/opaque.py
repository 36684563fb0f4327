"""`!warp.opaque`: fragments of `wmma`.

Which lane holds which element is the hardware's own affair (PTX ISA 9.7.14.4.1), so the type has no layout, and only
operations of `wmma` take it.
"""

from __future__ import annotations

from functools import cache

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from ..isa import wmma
from ..isa.product import Shape
from ..isa.types import ElementType
from .attributes import known_element

MATRICES = ("a", "b", "acc")


@irdl_attr_definition
class OpaqueType(ParametrizedAttribute, TypeAttribute):
    """A fragment of `wmma`: `!warp.opaque<a, m16n16k16, f16, row>`, `!warp.opaque<acc, m16n16k16, f32>`.

    It has a role, the shape of the product and an element type. For A and B it also has the layout of the matrix in
    memory.
    """

    name = "warp.opaque"

    role: StringAttr
    shape: StringAttr
    element_type: TypeAttribute
    layout: StringAttr

    @staticmethod
    def of(role: str, shape: Shape, element_type: TypeAttribute, layout: str = "") -> OpaqueType:
        """`layout` is "row" or "col" of A and B, "" of an accumulator."""
        return OpaqueType(StringAttr(role), StringAttr(str(shape)), element_type, StringAttr(layout))

    @property
    def product(self) -> Shape:
        """The shape of the product."""
        return Shape.parse(self.shape.data)

    @property
    def element(self) -> ElementType:
        """The ISA's row of the element type."""
        return known_element(self.element_type)

    @property
    def extent(self) -> tuple[int, int]:
        """(rows, columns) of the matrix."""
        return wmma.extent(self.product, self.role.data)

    @property
    def registers(self) -> int:
        """Registers each lane gives to it: 64-bit ones for f64, else 32-bit ones."""
        return wmma.registers(self.product, self.role.data, self.element)

    def verify(self) -> None:
        role, layout, key = self.role.data, self.layout.data, (self.shape.data, self.element.name)
        if role not in MATRICES:
            raise VerifyException(f"expected a role of {', '.join(MATRICES)}, got '{role}'")
        legal = ("",) if role == "acc" else wmma.LAYOUTS
        if layout not in legal:
            expected = "no layout of an accumulator" if role == "acc" else f"the layout {' or '.join(legal)}"
            raise VerifyException(f"expected {expected}, got '{layout}'")
        if (role, *key, layout) not in _fragments():
            wanted = (role, *key, layout)
            near = sorted(_fragments(), key=lambda f: (sum(x != y for x, y in zip(f, wanted, strict=True)), f))
            listed = "; ".join(", ".join(filter(None, f)) for f in near[:3])
            raise VerifyException(f"wmma has no fragment {', '.join(filter(None, wanted))}; the nearest are {listed}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            role = parser.parse_keyword_in(MATRICES, " as the fragment's role")
            parser.parse_punctuation(",")
            shape = parser.parse_identifier(" as the shape of the product")
            parser.parse_punctuation(",")
            element_type = parser.parse_type()
            layout = ""
            if parser.parse_optional_punctuation(","):
                layout = parser.parse_keyword_in(wmma.LAYOUTS, " as the layout in memory")
        return [StringAttr(role), StringAttr(shape), element_type, StringAttr(layout)]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"{self.role.data}, {self.shape.data}, ")
            printer.print_attribute(self.element_type)
            printer.print_string(f", {self.layout.data}" if self.layout.data else "")


@cache
def _fragments() -> frozenset[tuple[str, str, str, str]]:
    """(role, shape, element type, layout) of every fragment there is."""
    loaded = {
        (r.role if r.role in "ab" else "acc", str(r.shape), r.type.name, r.layout if r.role in "ab" else "")
        for r in wmma.load_rows()
    }
    return frozenset(loaded)


def opaque_of(value: SSAValue) -> OpaqueType:
    """The opaque type of a value.

    Raises:
        VerifyException: if it has another type.
    """
    if not isinstance(value.type, OpaqueType):
        raise VerifyException(f"expected a fragment of wmma, got {value.type}")
    return value.type
