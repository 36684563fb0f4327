"""`warp.wmma.mma`, and its opaque fragments."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from xdsl.dialects.builtin import StringAttr, UnitAttr
from xdsl.ir import Attribute, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ..isa import wmma
from ..isa.form import ElementType, Shape, having
from .attributes import SHARED_SPACE, Memory, known_element, memory_space
from .mma import Key, nearest
from .op_shapes import parse_words, verify_target, word_of, word_properties

# `!warp.opaque`: fragments of `wmma`.
#
# Which lane holds which element is the hardware's own affair (PTX ISA 9.7.14.4.1), so the type has no layout, and only
# operations of `wmma` take it.

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


# `warp.wmma.mma`: products of fragments that nobody can look into, and their memory.

SPACES = {0: wmma.GLOBAL, SHARED_SPACE: wmma.SHARED}
"""State spaces by the number of a memref's memory space."""


def verify_opaque(what: str, memory: Memory, kind: OpaqueType, swapped: bool) -> None:
    """Checks element type, memory space, stride and alignment of the memory of a fragment (PTX ISA 9.7.14.4.2).

    Raises:
        VerifyException: if one of them is illegal for the instruction.
    """
    if swapped and kind.layout.data:
        raise VerifyException(f"the type of {kind.role.data.upper()} says its layout; swapped is for accumulators")
    if memory.element_type != kind.element_type:
        raise VerifyException(
            f"expected memory of the fragment's element type {kind.element_type}, got {memory.element_type}"
        )
    if memory_space(memory) not in SPACES:
        raise VerifyException(f"{what} global or shared memory (memory space 0 or {SHARED_SPACE}), got {memory}")
    stride, role = memory.get_shape()[-1], kind.role.data
    least = wmma.default_stride(kind.product, role, _layout(kind, swapped))
    if stride < least:
        raise VerifyException(f"expected rows of at least {least} elements in memory, got {stride} in {memory}")
    size = wmma.alignment(kind.product, role, kind.element)
    if stride * kind.element.bits % (8 * size):
        raise VerifyException(
            f"expected each row of memory to start at a multiple of {size} bytes, the size of the fragment in a lane; "
            f"rows of {memory} are {stride * kind.element.bits / 8:g} bytes"
        )


def load_row(kind: OpaqueType, memory: Memory, swapped: bool) -> wmma.WmmaLoad:
    """The ISA's row of the instruction that reads a fragment; `swapped`: by columns."""
    role, layout = "c" if kind.role.data == "acc" else kind.role.data, _layout(kind, swapped)
    space = SPACES[memory_space(memory)]
    (row,) = having(wmma.load_rows, role=role, layout=layout, shape=kind.product, space=space, type=kind.element)
    return row


def store_row(kind: OpaqueType, memory: Memory, swapped: bool) -> wmma.WmmaStore:
    """The ISA's row of the instruction that writes an accumulator; `swapped`: by columns.

    Raises:
        VerifyException: for a fragment that is no accumulator.
    """
    if kind.role.data != "acc":
        raise VerifyException(f"wmma.store writes accumulators, got {kind}")
    layout, space = _layout(kind, swapped), SPACES[memory_space(memory)]
    (row,) = having(wmma.store_rows, layout=layout, shape=kind.product, space=space, type=kind.element)
    return row


def _layout(kind: OpaqueType, swapped: bool) -> str:
    """How memory holds the matrix: "row", or "col" where the rows of the memref are its columns."""
    return kind.layout.data or ("col" if swapped else "row")


# Products


WORDS = ("satfinite", "rounding", "bit_op")
"""The properties of a product that are words of its text."""


@cache
def _products() -> Mapping[Key, wmma.WmmaMma]:
    return {
        Key(
            row.shape,
            *(row.element(role).name for role in "abcd"),
            layouts=f"{row.a_layout}.{row.b_layout}",
            satfinite=row.satfinite,
            rounding=row.rounding,
            bit_op=row.bit_op,
        ): row
        for row in wmma.mma_rows()
    }


@irdl_op_definition
class WmmaMmaOp(IRDLOperation):
    """D = A * B + C on fragments of `wmma`. The types of the fragments and the words determine the instruction::

        %d = warp.wmma.mma %a, %b, %c : !warp.opaque<a, m16n16k16, f16, row>, !warp.opaque<b, ...>, !acc
        %d = warp.wmma.mma satfinite %a, %b, %c : ...
        %d = warp.wmma.mma %a, %b, %c : !a, !b, !half -> !float

    The words are `satfinite`, the rounding of f64 (`rn`, `rz`, `rm`, `rp`) and the operation of b1 (`xor`, `and`). D
    has the type of C unless another one is given.

    Source: PTX ISA 9.7.14.4.5.
    """

    name = "warp.wmma.mma"

    a = operand_def(OpaqueType)
    b = operand_def(OpaqueType)
    c = operand_def(OpaqueType)
    satfinite = opt_prop_def(UnitAttr)
    rounding = opt_prop_def(StringAttr)
    bit_op = opt_prop_def(StringAttr)
    d = result_def(OpaqueType)

    traits = traits_def(Pure())

    def __init__(self, a: SSAValue, b: SSAValue, c: SSAValue, *words: str, result: OpaqueType | None = None):
        """`words` are those of the syntax. `result` is the type of D if it differs from that of C."""
        super().__init__(
            operands=[a, b, c], properties=word_properties(words), result_types=[c.type if result is None else result]
        )

    @property
    def key(self) -> Key:
        """The key of the row."""
        kinds = [opaque_of(v) for v in (self.a, self.b, self.c, self.d)]
        return Key(
            kinds[0].product,
            *(kind.element.name for kind in kinds),
            layouts=f"{kinds[0].layout.data}.{kinds[1].layout.data}",
            satfinite=self.satfinite is not None,
            rounding=word_of(self, "rounding"),
            bit_op=word_of(self, "bit_op"),
        )

    @property
    def row(self) -> wmma.WmmaMma:
        """The ISA's row of the instruction.

        Raises:
            VerifyException: if the ISA has no such instruction, naming the nearest ones.
        """
        key, rows = self.key, _products()
        if key not in rows:
            raise VerifyException(f"the ISA has no wmma.mma {key}; the nearest are {nearest(key, rows)}")
        return rows[key]

    def verify_(self) -> None:
        kinds = [opaque_of(v) for v in (self.a, self.b, self.c, self.d)]
        for name, role, kind in zip("ABCD", ("a", "b", "acc", "acc"), kinds, strict=True):
            if kind.role.data != role:
                raise VerifyException(f"expected {name} to be a fragment of role {role}, got {kind}")
        if len({kind.shape.data for kind in kinds}) > 1:
            raise VerifyException(
                f"expected fragments of one shape, got {', '.join(kind.shape.data for kind in kinds)}"
            )
        verify_target(self, self.row)

    @classmethod
    def parse(cls, parser: Parser) -> WmmaMmaOp:
        properties = parse_words(parser, WORDS)
        position = parser.pos
        operands = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        if len(operands) != 3 or len(types) != 3:
            parser.raise_error(f"expected 3 operands and 3 types, got {len(operands)} and {len(types)}", position)
        result = parser.parse_type() if parser.parse_optional_punctuation("->") else types[2]
        values = parser.resolve_operands(operands, types, position)
        return cls.create(operands=values, properties=properties, attributes=attributes, result_types=[result])

    def print(self, printer: Printer) -> None:
        words = filter(None, (word_of(self, name) for name in WORDS))
        printer.print_string(" ".join(["", *words, ""]))
        printer.print_list(self.operands, printer.print_ssa_value)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_list(self.operand_types, printer.print_attribute)
        if self.d.type != self.c.type:
            printer.print_string(" -> ")
            printer.print_attribute(self.d.type)
