"""Attributes of `nvvm`: words such as `#nvvm.mma_layout<row>`, shapes, ranges. Source: MLIR 22, `NVVMOps.td`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DictionaryAttr, IntAttr, IntegerAttr, IntegerType, StringAttr, UnitAttr
from xdsl.ir import Attribute, ParametrizedAttribute, SpacedOpaqueSyntaxAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.hints import isa


class WordAttr(ParametrizedAttribute):
    """One of several words."""

    WORDS: ClassVar[Sequence[str]] = ()

    word: StringAttr

    @classmethod
    def of(cls, word: str) -> WordAttr:
        return cls(StringAttr(word))

    @classmethod
    def parse_word(cls, parser: AttrParser) -> StringAttr:
        """Reads a word, which may have dots."""
        place = parser.pos
        word = parser.parse_identifier(f" as one of {', '.join(cls.WORDS)}")
        if word not in cls.WORDS:
            parser.raise_error(f"expected one of {', '.join(cls.WORDS)}, got {word}", place)
        return StringAttr(word)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return (cls.parse_word(parser),)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.word.data)


class BareWordAttr(WordAttr, SpacedOpaqueSyntaxAttribute):
    """One of several words, which an operation writes without brackets: `#nvvm<shfl_kind bfly>` alone."""

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        return (cls.parse_word(parser),)

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string(self.word.data)


def _words(name: str, words: str, base: type[WordAttr] = WordAttr) -> type[WordAttr]:
    listed = tuple(words.split())
    members = {
        "name": f"nvvm.{name}",
        "WORDS": listed,
        "__module__": __name__,
        "__doc__": f"One of {', '.join(listed)}.",
    }
    return irdl_attr_definition(type(name, (base,), members))


MMA_LAYOUT = _words("mma_layout", "row col")
MMA_TYPE = _words("mma_type", "f16 f32 tf32 u8 s8 s32 b1 u4 s4 bf16 f64 e4m3 e5m2 e3m2 e2m3 e2m1")
MMA_OVERFLOW = _words("mma_int_overflow", "wrapped satfinite")
MMA_BIT_OP = _words("mma_b1op", "none xor_popc and_popc")
MMA_FRAGMENT = _words("mma_frag", "a b c")
MATRIX_TYPE = _words("ld_st_matrix_elt_type", "b16 b8 b8x16.b6x16_p32 b8x16.b4x16_p64")
PROXY = _words("proxy_kind", "alias async async.global async.shared tensormap generic")
SHARED_SPACE = _words("shared_space", "cta cluster")
SCOPE = _words("mem_scope", "cta cluster gpu sys")
PERMUTE_MODE = _words("permute_mode", "default f4e b4e rc8 ecl ecr rc16")
WGMMA_TYPE = _words("wgmma_type", "f16 tf32 u8 s8 b1 bf16 e4m3 e5m2 f32 s32")
WGMMA_SCALE_OUT = _words("wgmma_scale_out", "zero one")
WGMMA_SCALE_IN = _words("wgmma_scale_in", "one neg")
TMA_LOAD_MODE = _words("tma_load_mode", "tile im2col im2col_w im2col_w_128 tile_gather4")
TMA_STORE_MODE = _words("tma_store_mode", "tile im2col tile_scatter4")
CTA_GROUP = _words("cta_group", "cta_1 cta_2")
REDUCTION = _words("reduction", "and or popc")
CACHE_MODIFIER = _words("load_cache_modifier", "ca cg cs lu cv", BareWordAttr)
SHUFFLE = _words("shfl_kind", "bfly up down idx", BareWordAttr)
VOTE = _words("vote_sync_kind", "any all ballot uni", BareWordAttr)
REDUX = _words("redux_kind", "add and max min or umax umin xor fmin fmax", BareWordAttr)
MATCH = _words("match_sync_kind", "any all", BareWordAttr)
REGISTER_ACTION = _words("action", "increase decrease", BareWordAttr)
CACHE_LEVEL = _words("prefetch_cache_level", "L1 L2", BareWordAttr)
EVICTION = _words(
    "cache_eviction_priority", "evict_normal evict_first evict_last evict_unchanged no_allocate", BareWordAttr
)
GRID_ACTION = _words("grid_dep_action", "wait launch_dependents", BareWordAttr)


class SizesAttr(ParametrizedAttribute):
    """Sizes by name: `<m = 16, n = 8, k = 16>`."""

    @classmethod
    def sizes(cls) -> tuple[str, ...]:
        return tuple(name for name, _ in cls.get_irdl_definition().parameters)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        def parse_size() -> tuple[str, IntAttr]:
            name = parser.parse_identifier(" as a size")
            parser.parse_punctuation("=")
            return name, IntAttr(parser.parse_integer())

        place = parser.pos
        values = dict(parser.parse_comma_separated_list(parser.Delimiter.ANGLE, parse_size))
        if set(values) != set(cls.sizes()):
            parser.raise_error(f"expected the sizes {', '.join(cls.sizes())}", place)
        return [values[name] for name in cls.sizes()]

    def print_parameters(self, printer: Printer) -> None:
        pairs = zip(self.sizes(), self.parameters, strict=True)
        text = ", ".join(f"{name} = {value.data}" for name, value in pairs if isa(value, IntAttr))
        printer.print_string(f"<{text}>")

    def __str__(self) -> str:
        """As opcodes spell them: `m16n8k16`."""
        pairs = zip(self.sizes(), self.parameters, strict=True)
        return "".join(f"{name}{value.data}" for name, value in pairs if isa(value, IntAttr))


@irdl_attr_definition
class ShapeAttr(SizesAttr):
    """M x N x K of a product."""

    name = "nvvm.shape"

    m: IntAttr
    n: IntAttr
    k: IntAttr


@irdl_attr_definition
class MatrixShapeAttr(SizesAttr):
    """Rows and columns of a matrix of `ldmatrix`."""

    name = "nvvm.ld_st_matrix_shape"

    m: IntAttr
    n: IntAttr


@irdl_attr_definition
class ConstantRangeAttr(ParametrizedAttribute):
    """The values that a special register has: `#llvm.constant_range<i32, 0, 32>`, the last one excluded."""

    name = "llvm.constant_range"

    type: IntegerType
    lower: IntAttr
    upper: IntAttr

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            kind = parser.parse_type()
            bounds: list[Attribute] = []
            for _ in range(2):
                parser.parse_punctuation(",")
                bounds.append(IntAttr(parser.parse_integer()))
        return (kind, *bounds)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_attribute(self.type)
            printer.print_string(f", {self.lower.data}, {self.upper.data}")


@irdl_attr_definition
class NvvmTargetAttr(ParametrizedAttribute):
    """What LLVM compiles a `gpu.module` for: `#nvvm.target<chip = "sm_90a", features = "+ptx80">`."""

    name = "nvvm.target"

    fields: DictionaryAttr

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        def parse_field() -> tuple[str, Attribute]:
            name = parser.parse_identifier(" as a field of the target")
            parser.parse_punctuation("=")
            if name != "flags":
                return name, parser.parse_attribute()
            return name, DictionaryAttr({word: UnitAttr() for word in _flags(parser)})

        listed = parser.parse_optional_comma_separated_list(parser.Delimiter.ANGLE, parse_field)
        return (DictionaryAttr(dict(listed or ())),)

    def print_parameters(self, printer: Printer) -> None:
        if not self.fields.data:
            return

        def print_field(field: tuple[str, Attribute]) -> None:
            name, value = field
            printer.print_string(f"{name} = ")
            if name == "flags" and isinstance(value, DictionaryAttr):
                printer.print_string(f"{{{', '.join(value.data)}}}")
            elif isinstance(value, IntegerAttr):
                printer.print_string(str(value.value.data))
            else:
                printer.print_attribute(value)

        with printer.in_angle_brackets():
            printer.print_list(self.fields.data.items(), print_field)


def _flags(parser: AttrParser) -> Sequence[str]:
    return parser.parse_comma_separated_list(
        parser.Delimiter.BRACES, lambda: parser.parse_identifier(" as a flag of the target")
    )


_KINDS = [kind for kind in list(globals().values()) if isinstance(kind, type)]

ATTRIBUTES = [k for k in _KINDS if issubclass(k, ParametrizedAttribute) and vars(k).get("name", "").startswith("nvvm.")]
"""Those of the dialect itself."""
