"""Types and attributes of the `ptx` dialect: registers and declared variables.

Source: PTX ISA 5.1 (State Spaces), 5.2 (Types), 9.1 to 9.4 (type checking).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Data, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from .text.syntax import Variable

REGISTER_BITS = {
    "pred": 1,
    **{f"{kind}{bits}": bits for bits in (8, 16, 32, 64) for kind in "bus"},
    "b128": 128,
    "f16": 16,
    "f16x2": 32,
    "f32": 32,
    "f64": 64,
}
"""Width in bits of every type `.reg` may declare (5.2.1). Other formats (bf16, e4m3) live in `.b` registers."""

OPAQUE_TYPES = ("texref", "samplerref", "surfref")
"""Types of variables that no load reads (5.3)."""

PACKED_BITS = {
    "bf16": 16,
    "bf16x2": 32,
    "tf32": 32,
    "f32x2": 64,
    "u16x2": 32,
    "s16x2": 32,
    **dict.fromkeys(("e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2", "ue8m0x2", "e2m1x4"), 16),
    **dict.fromkeys(("e4m3x4", "e5m2x4", "e2m3x4", "e3m2x4"), 32),
    "e2m1x2": 8,
}
"""Instruction types that no register has: they live in `.b` registers (ISA 5.2.3)."""


@lru_cache(4096)
def compatible(instruction: str, register: str, *, wider: bool = False, own: bool = True) -> bool:
    """Whether a register of one type may be an operand of an instruction type (ISA 9.1); `wider` as in 9.4.1.

    ptxas takes a register of floats for bits, and two halves for an integer, only where the operand has the type that
    the opcode names: that is `own`.
    """
    if "pred" in (instruction, register):
        return instruction == register
    bits, held = bits_of(instruction), REGISTER_BITS[register]
    if held != bits and not (wider and held > bits):
        return False
    if register[0] == "b" or instruction == register:
        return True
    if instruction in PACKED_BITS:
        return register == "f16x2" and instruction[0] in "us"
    if instruction[0] == "b":
        return own or register[0] in "us"
    if instruction[0] in "us":
        return register[0] in "us" or (own and register == "f16x2")
    return False


def alike(types: Iterable[str]) -> bool:
    """Whether registers of these types may be the elements of one vector: of one width, and bits beside one other type,
    where integers are one."""
    held = {type for type in types if type}
    others = {"u" if type[0] in "us" else type for type in held if type[0] != "b"}
    return len({REGISTER_BITS[type] for type in held}) < 2 and len(others) < 2


def bits_of(type: str) -> int:
    """Width in bits of a type that instructions or registers have."""
    return PACKED_BITS.get(type) or REGISTER_BITS[type]


@irdl_attr_definition
class RegisterType(ParametrizedAttribute, TypeAttribute):  # pyright: ignore[reportUnsafeMultipleInheritance]
    """The storage of one register: `!ptx.reg<b32>`. A value of this type is the register, not its content."""

    name = "ptx.reg"

    type: StringAttr

    @staticmethod
    def of(type: str) -> RegisterType:
        """The register type called `type`, such as "b32" or "pred"."""
        return RegisterType(StringAttr(type))

    @property
    def bits(self) -> int:
        return REGISTER_BITS[self.type.data]

    def verify(self) -> None:
        if self.type.data not in REGISTER_BITS:
            raise VerifyException(
                f"'{self.type.data}' is not a register type; expected one of {', '.join(REGISTER_BITS)}"
            )

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return (StringAttr(parser.parse_identifier()),)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.type.data)


@irdl_attr_definition
class ParamAttr(Data[Variable]):
    """One parameter or returned value of a function: `#ptx.param<u64 "a" ...>`. The fields are those of
    `syntax.Variable`."""

    name = "ptx.param"

    @staticmethod
    def of(
        type: str,
        name: str,
        count: int | None = None,
        align: int | None = None,
        pointer: str = "",
        space: str = "param",
    ) -> ParamAttr:
        """A parameter `.param .align A .type name[count]`; `space` may be "reg" in a `.func`."""
        return ParamAttr(Variable(space, type, name, count=count, align=align, pointer=pointer))

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Variable:
        with parser.in_angle_brackets():
            return parse_variable(parser)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            print_variable(printer, self.data)


def print_variable(printer: Printer, variable: Variable) -> None:
    """Prints `u64 "a"`, then what differs from a plain parameter: `dims [4] align 16 vector 2 space "reg" ...`."""
    printer.print_string(f"{variable.type} ")
    printer.print_string_literal(variable.name)
    if variable.count is not None:
        dimensions = variable.dimensions or (variable.count,)
        printer.print_string(f" dims [{', '.join(map(str, dimensions))}]")
    if variable.align is not None:
        printer.print_string(f" align {variable.align}")
    if variable.vector != 1:
        printer.print_string(f" vector {variable.vector}")
    if variable.space != "param":
        printer.print_string(" space ")
        printer.print_string_literal(variable.space)
    if variable.pointer:
        printer.print_string(" pointer ")
        printer.print_string_literal(variable.pointer)
    if variable.attribute:
        printer.print_string(" attribute ")
        printer.print_string_literal(variable.attribute)
    if variable.init is not None:
        printer.print_string(" init ")
        printer.print_string_literal(variable.init)


def parse_variable(parser: AttrParser) -> Variable:
    """Reads what `print_variable` prints."""
    type, name = parser.parse_identifier(), parser.parse_str_literal()
    dimensions: Sequence[int] = ()
    if has_dimensions := parser.parse_optional_keyword("dims") is not None:
        dimensions = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
    align = parser.parse_integer() if parser.parse_optional_keyword("align") else None
    vector = parser.parse_integer() if parser.parse_optional_keyword("vector") else 1
    space = parser.parse_str_literal() if parser.parse_optional_keyword("space") else "param"
    pointer = parser.parse_str_literal() if parser.parse_optional_keyword("pointer") else ""
    attribute = parser.parse_str_literal() if parser.parse_optional_keyword("attribute") else ""
    init = parser.parse_str_literal() if parser.parse_optional_keyword("init") else None
    return Variable(
        space,
        type,
        name,
        count=extent(dimensions) if has_dimensions else None,
        align=align,
        vector=vector,
        init=init,
        pointer=pointer,
        dimensions=tuple(dimensions) if len(dimensions) > 1 else (),
        attribute=attribute,
    )


def extent(dimensions: Sequence[int]) -> int:
    """How many elements an array of these dimensions has; 0 when a dimension is left open."""
    count = 1
    for dimension in dimensions:
        count *= dimension
    return count
