"""Types of `nvgpu`, and the text of a type that an operand can only have one kind of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, MemRefType, StringAttr, VectorType, i32
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import IRDLOperation, irdl_attr_definition
from xdsl.irdl.declarative_assembly_format import (
    CustomDirective,
    ParsingState,
    PrintingState,
    TypeDirective,
    irdl_custom_directive,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer


class StructType(ParametrizedAttribute, TypeAttribute):
    """A type whose parameters are written by name, in any order: `<tensor = memref<64x64xf16, 3>, swizzle = none>`."""

    WORDS: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Parameters that are one bare word, and which words there are."""

    DEFAULTS: ClassVar[Mapping[str, Attribute]] = {}
    """Parameters that are left out of the text where they have this value."""

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        values = dict(cls.DEFAULTS)
        fields = [name for name, _ in cls.get_irdl_definition().parameters]

        def parse_parameter() -> None:
            name = parser.expect(
                lambda: parser.parse_optional_keyword_in(fields), f"expected one of {', '.join(fields)}"
            )
            parser.parse_punctuation("=")
            values[name] = cls._parse_value(parser, name)

        parser.parse_comma_separated_list(parser.Delimiter.ANGLE, parse_parameter)
        if missing := [name for name in fields if name not in values]:
            parser.raise_error(f"expected {', '.join(missing)} in {cls.name}")
        return [values[name] for name in fields]

    @classmethod
    def _parse_value(cls, parser: AttrParser, name: str) -> Attribute:
        if (words := cls.WORDS.get(name)) is not None:
            return StringAttr(
                parser.expect(lambda: parser.parse_optional_keyword_in(words), f"expected one of {words}")
            )
        if isinstance(cls.DEFAULTS.get(name), IntegerAttr):
            return IntegerAttr(parser.parse_integer(), i32)
        return parser.parse_attribute()

    def print_parameters(self, printer: Printer) -> None:
        fields = zip((name for name, _ in self.get_irdl_definition().parameters), self.parameters, strict=True)
        written = [(name, value) for name, value in fields if self.DEFAULTS.get(name) != value]
        with printer.in_angle_brackets():
            printer.print_list(written, lambda field: self._print_field(printer, *field))

    @staticmethod
    def _print_field(printer: Printer, name: str, value: Attribute) -> None:
        printer.print_string(f"{name} = ")
        match value:
            case StringAttr():
                printer.print_string(value.data)
            case IntegerAttr():
                printer.print_string(str(value.value.data))
            case _:
                printer.print_attribute(value)


@irdl_attr_definition
class DeviceAsyncTokenType(ParametrizedAttribute, TypeAttribute):
    """A token that orders asynchronous copies, their group, and the wait for it."""

    name = "nvgpu.device.async.token"


@irdl_attr_definition
class MBarrierTokenType(ParametrizedAttribute, TypeAttribute):
    """The phase of an mbarrier that an arrival belongs to."""

    name = "nvgpu.mbarrier.token"


@irdl_attr_definition
class MBarrierGroupType(StructType):
    """Mbarriers in shared memory: `!nvgpu.mbarrier.group<memorySpace = 3 : i32, num_barriers = 4>`."""

    name = "nvgpu.mbarrier.group"
    DEFAULTS: ClassVar[Mapping[str, Attribute]] = {"num_barriers": IntegerAttr(1, i32)}

    memorySpace: Attribute  # noqa: N815
    num_barriers: IntegerAttr


@irdl_attr_definition
class TensorMapDescriptorType(StructType):
    """A tensor map: the shape of its copies, and their layout in shared memory."""

    name = "nvgpu.tensormap.descriptor"
    WORDS: ClassVar[Mapping[str, Sequence[str]]] = {
        "swizzle": ("none", "swizzle_32b", "swizzle_64b", "swizzle_128b"),
        "l2promo": ("none", "l2promo_64b", "l2promo_128b", "l2promo_256b"),
        "oob": ("zero", "nan"),
        "interleave": ("none", "interleave_16b", "interleave_32b"),
    }

    tensor: MemRefType[Attribute]
    swizzle: StringAttr
    l2promo: StringAttr
    oob: StringAttr
    interleave: StringAttr


@irdl_attr_definition
class WarpgroupDescriptorType(StructType):
    """The descriptor of a matrix in shared memory that `wgmma` reads."""

    name = "nvgpu.warpgroup.descriptor"

    tensor: MemRefType[Attribute]


@irdl_attr_definition
class WarpgroupAccumulatorType(StructType):
    """The sums of a warpgroup, distributed over its lanes as the D of `wgmma`."""

    name = "nvgpu.warpgroup.accumulator"

    fragmented: VectorType[Attribute]


class StructText(CustomDirective):
    """The type of an operand or result that can only be one: MLIR writes its parameters alone."""

    KIND: ClassVar[type[StructType]]

    types: TypeDirective

    def parse(self, parser: Parser, state: ParsingState) -> None:
        kind = parser.parse_optional_type()
        if kind is None:
            kind = self.KIND.new(self.KIND.parse_parameters(parser))
        self.types.set(state, (kind,))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        for kind in self.types.get(op):
            if isinstance(kind, StructType):
                kind.print_parameters(printer)


def _text(name: str, kind: type[StructType]) -> type[CustomDirective]:
    members = {"KIND": kind, "__annotations__": {"types": TypeDirective}, "__module__": __name__}
    return irdl_custom_directive(type(name, (StructText,), members))


TEXTS = (
    _text("GroupText", MBarrierGroupType),
    _text("TensorMapText", TensorMapDescriptorType),
    _text("DescriptorText", WarpgroupDescriptorType),
    _text("SumsText", WarpgroupAccumulatorType),
)
"""The directives that formats of operations name."""


TYPES: list[type[Attribute]] = [
    DeviceAsyncTokenType,
    MBarrierTokenType,
    MBarrierGroupType,
    TensorMapDescriptorType,
    WarpgroupDescriptorType,
    WarpgroupAccumulatorType,
]
