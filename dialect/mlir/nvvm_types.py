"""What operations of `nvvm` are made of: attributes, such as `#nvvm.mma_layout<row>`, the lines of their instructions,
fields by their names. Source: MLIR 22, `mlir/include/mlir/Dialect/LLVMIR/NVVMOps.td`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

from xdsl.dialects.builtin import BoolAttr, IntAttr, IntegerAttr, UnitAttr, VectorType, i1, i16, i32, i64
from xdsl.dialects.llvm import LLVMPointerType
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import (
    IRDLOperation,
    OpDef,
    irdl_attr_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    opt_result_def,
    prop_def,
    result_def,
    var_operand_def,
)
from xdsl.utils.hints import isa

from .upstream import NvvmOp, operation
from .words import BareWordAttr, FieldsAttr, WordAttr, carried, words

MMA_LAYOUT = words("nvvm.mma_layout", "row col")
MMA_TYPE = words("nvvm.mma_type", "f16 f32 tf32 u8 s8 s32 b1 u4 s4 bf16 f64 e4m3 e5m2 e3m2 e2m3 e2m1")
MMA_OVERFLOW = words("nvvm.mma_int_overflow", "wrapped satfinite")
MMA_BIT_OP = words("nvvm.mma_b1op", "none xor_popc and_popc")
MMA_KIND = words("nvvm.mma_kind", "f8f6f4")
SCALE_VECTOR = words("nvvm.scale_vec_size", "x1 x2 x4")
SCALE_FORMAT = words("nvvm.block_scale_format", "ue8m0 ue4m3")
SCALE_KIND = words("nvvm.block_scale_kind", "mxf8f6f4 mxf4 mxf4nvf4")
DOT_TYPE = words("nvvm.dot_accumulate_type", "signed unsigned")
MMA_FRAGMENT = words("nvvm.mma_frag", "a b c")
MATRIX_TYPE = words("nvvm.ld_st_matrix_elt_type", "b16 b8 b8x16.b6x16_p32 b8x16.b4x16_p64")
PROXY = words("nvvm.proxy_kind", "alias async async.global async.shared tensormap generic")
SHARED_SPACE = words("nvvm.shared_space", "cta cluster")
SCOPE = words("nvvm.mem_scope", "cta cluster gpu sys")
PERMUTE_MODE = words("nvvm.permute_mode", "default f4e b4e rc8 ecl ecr rc16")
WGMMA_TYPE = words("nvvm.wgmma_type", "f16 tf32 u8 s8 b1 bf16 e4m3 e5m2 f32 s32")
WGMMA_SCALE_OUT = words("nvvm.wgmma_scale_out", "zero one")
WGMMA_SCALE_IN = words("nvvm.wgmma_scale_in", "one neg")
TMA_LOAD_MODE = words("nvvm.tma_load_mode", "tile im2col im2col_w im2col_w_128 tile_gather4")
TMA_STORE_MODE = words("nvvm.tma_store_mode", "tile im2col tile_scatter4")
CTA_GROUP = words("nvvm.cta_group", "cta_1 cta_2")
REDUCTION = words("nvvm.reduction", "and or popc")
CACHE_MODIFIER = words("nvvm.load_cache_modifier", "ca cg cs lu cv", BareWordAttr)
SHUFFLE = words("nvvm.shfl_kind", "bfly up down idx", BareWordAttr)
GRID_ACTION = words("nvvm.grid_dep_action", "wait launch_dependents", BareWordAttr)
VOTE = words("nvvm.vote_sync_kind", "any all ballot uni", BareWordAttr)
REDUX = words("nvvm.redux_kind", "add and max min or umax umin xor fmin fmax", BareWordAttr)
MATCH = words("nvvm.match_sync_kind", "any all", BareWordAttr)
CACHE_LEVEL = words("nvvm.prefetch_cache_level", "L1 L2", BareWordAttr)
EVICTION = words(
    "nvvm.cache_eviction_priority", "evict_normal evict_first evict_last evict_unchanged no_allocate", BareWordAttr
)
TENSOR_FENCE = words("nvvm.tcgen05_fence", "before after")
TENSOR_WAIT = words("nvvm.tcgen05_wait", "load store")
TENSOR_COPY_SHAPE = words(
    "nvvm.tcgen05_cp_shape", "shape_128x256b shape_4x256b shape_128x128b shape_64x128b shape_32x128b"
)
TENSOR_COPY_MULTICAST = words("nvvm.tcgen05_cp_multicast", "none warpx2_02_13 warpx2_01_23 warpx4")
TENSOR_COPY_FORMAT = words("nvvm.tcgen05_cp_src_fmt", "b6x16_p32 b4x16_p64")
TENSOR_MOVE_SHAPE = words(
    "nvvm.tcgen05_ldst_shape", "shape_16x64b shape_16x128b shape_16x256b shape_32x32b shape_16x32bx2"
)
TENSOR_KIND = words("nvvm.tcgen05_mma_kind", "f16 tf32 f8f6f4 i8")
TENSOR_COLLECTOR = words("nvvm.tcgen05_mma_collectorop", "discard lastuse fill use")
TENSOR_COLLECTOR_B = words("nvvm.tcgen05_mma_collectorb", "b0 b1 b2 b3")
TENSOR_SCALE = words("nvvm.tcgen05_mma_block_scale", "default block16 block32")


class SizesAttr(FieldsAttr):
    """Sizes by name: `<m = 16, n = 8, k = 16>`."""

    SIZES: ClassVar = True

    def __str__(self) -> str:
        """As opcodes spell them: `m16n8k16`."""
        pairs = zip(self.names(), self.parameters, strict=True)
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


TARGET = carried("nvvm.target")
"""What LLVM compiles a `gpu.module` for: `#nvvm.target<chip = "sm_90a", features = "+ptx80">`."""

_KINDS = [kind for kind in list(globals().values()) if isinstance(kind, type)]

ATTRIBUTES = [k for k in _KINDS if issubclass(k, ParametrizedAttribute) and vars(k).get("name", "").startswith("nvvm.")]
"""Those of the dialect itself, but for what `upstream` has."""


# Which instruction of PTX an operation of `nvvm` is, as one line that is read in both directions.
#
#     cp.async.{modifier}.shared.global [dst@shared], [src@global], {size}, cpSize?
#
# In an opcode:
# - `{name}`: the word of a property; `{name/a=x/b}`: what stands for each word, others have another line;
#   `{name?/=.x}`: where it is set; `{name?a/a=x/b}`: where it is not, as for `a`;
# - `{@name}`: the state space of a pointer, `{@name/shared=shared::cta}`: as the instruction spells it;
# - `{#name}`: how many operands `name` is, `{*name}`: how many times the words of the property `shape` it is;
# - `{name?=.x}`: where the operand is there; `{name#i32=.x/i64=}`: what stands where its registers have these types,
#   `{name#}` the element type of a matrix in such registers.
#
# Operands are names of operands and results, `name@space` of a pointer as a number; `name?` may be left out, as may
# `name=text`, for which the text stands then; `[name]` is an address in the space of its pointer, `[name@space]` in
# that space, `[name@space|i64]` such an address or a number, `[name+indices]` that of an element of memory;
# `[name, {names}]` a place in a tensor; `(name)` a vector:
# several operands, or the parts of a struct, `(name:element)` registers of elements of a type, or of the word of a
# property, `(name+more)` also of others, numbers where all are constant, `(name<sums)` those of `sums`, which become
# `name`; one name in several places is divided among them; `<name>` the elements of one `vector`, or a number in its
# stead; `{name}` the number that a property is, `{name?0}` and `{name/a=x}` as in an opcode; others are text.
#
# An operation of several lines is the first of which it has the words and types. A line behind `<` is read one way
# only: no instruction becomes the operation.


WORD, SPACE, COUNT, TIMES, PRESENT, TYPED = "word", "space", "count", "times", "present", "typed"
"""Kinds of pieces of an opcode."""

VALUE, ADDRESS, TENSOR, VECTOR, SUMS = "value", "address", "tensor", "vector", "sums"
CONSTANT, TEXT, ELECTED, ELEMENTS = "constant", "text", "elected", "elements"
"""Kinds of operands."""

FRAGMENTS = {"vector<2xf16>": ".f16", "f16": ".f16", "f32": ".f32", "f64": ".f64", "i32": ".s32"}
"""What opcodes call the elements of a sum in registers of a type."""


@dataclass(frozen=True)
class TextPiece:
    """A part of an opcode: text, or what follows from a property or an operand called `name`. Where that is not there,
    an optional part is as for the word `default`."""

    kind: str
    name: str
    texts: Mapping[str, str]
    optional: bool = False
    default: str = ""

    @property
    def pattern(self) -> str:
        """The regular expression of the text that may stand."""
        match self.kind:
            case "text":
                return re.escape(self.name)
            case "space" if self.texts:
                words = "|".join(re.escape(f".{text}") for text in self.texts.values())
                return rf"(?P<{self.name}__space>({words})?)"
            case "space":
                return rf"(?P<{self.name}__space>(\.global|\.shared(::c\w+)?|\.local|\.const)?)"
            case "count":
                return rf"(?P<{self.name}__count>\d+)"
            case "times":
                return r"\d+"
            case "word" if not self.texts:
                return rf"(?P<{self.name}>[a-z\d][\w:]*(\.b[46]x16_p\d\d)?|L\d)"
            case _:
                words = "|".join(map(re.escape, self.texts.values()))
                suffix = "" if self.kind == WORD else "__given"
                return rf"(?P<{self.name}{suffix}>{words}){'?' if self.optional else ''}"


@dataclass(frozen=True)
class TextPlace:
    """An operand: see the kinds. `more` are the coordinates of a tensor, further operands of a vector, or what stands
    where the operand is left out; `space` is that of a pointer; `element` says what registers of a vector hold, or
    which operands are the indices of an element of memory."""

    kind: str
    name: str
    more: str = ""
    optional: bool = False
    space: str = ""
    element: str = ""
    texts: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Template:
    """The instruction of an operation."""

    pieces: tuple[TextPiece, ...]
    places: tuple[TextPlace, ...]
    pattern: re.Pattern[str]

    @property
    def root(self) -> str:
        """The first word of the opcode."""
        return self.pieces[0].name.partition(".")[0]


@cache
def template(text: str) -> Template:
    """Reads a line."""
    opcode, _, operands = text.removeprefix("<").partition(" ")
    pieces = tuple(map(_piece, filter(None, re.split(r"(\{[^}]*\})", opcode))))
    places = tuple(map(_place, re.findall(r"\[[^\]]*\]|[^,\s]+", operands)))
    words = [piece.name if piece.kind == WORD else "" for piece in pieces]
    patterns = (
        f"(?P={piece.name})" if words[i] in filter(None, words[:i]) else piece.pattern for i, piece in enumerate(pieces)
    )
    return Template(pieces, places, re.compile("".join(patterns)))


def _texts(words: Sequence[str]) -> dict[str, str]:
    """What stands for each word: `a=x`, or `a` for itself."""
    return {word: text if equal else word for word, equal, text in (each.partition("=") for each in words)}


def _piece(text: str) -> TextPiece:
    if text[0] != "{":
        return TextPiece("text", text, {})
    name, *words = text[1:-1].split("/")
    if match := re.fullmatch(r"(\w+)#(.*)", name):
        return TextPiece(TYPED, match[1], _texts((match[2], *words)) if match[2] else FRAGMENTS)
    if kind := {"@": SPACE, "#": COUNT, "*": TIMES}.get(name[0]):
        return TextPiece(kind, name[1:], _texts(words))
    if match := re.fullmatch(r"(\w+)\?=(.*)", name):
        return TextPiece(PRESENT, match[1], {"": match[2]}, optional=True)
    name, optional, default = name.partition("?")
    return TextPiece(WORD, name, _texts(words), bool(optional), default)


def _place(text: str) -> TextPlace:
    if match := re.fullmatch(r"\[(\w+), \{(\w+)\}\]", text):
        return TextPlace(TENSOR, match[1], match[2])
    if match := re.fullmatch(r"\[(\w+)(?:\+(\w+))?(?:@([\w:]+))?(?:\|(\w+))?\]", text):
        return TextPlace(ADDRESS, match[1], match[4] or "", space=match[3] or "", element=match[2] or "")
    if match := re.fullmatch(r"\((\w+)(?:([+<])(\w+))?(?::(\w+))?\)", text):
        return TextPlace(SUMS if match[2] == "<" else VECTOR, match[1], match[3] or "", element=match[4] or match[1])
    if match := re.fullmatch(r"<(\w+)>(\?)?", text):
        return TextPlace(ELEMENTS, match[1], optional=bool(match[2]), element=match[1])
    if match := re.fullmatch(r"\{(\w+)(?:\?(\w+))?/?(.*)\}", text):
        return TextPlace(CONSTANT, match[1], match[2] or "", texts=_texts(match[3].split("/") if match[3] else ()))
    if match := re.fullmatch(r"_\|(\w+)", text):
        return TextPlace(ELECTED, match[1])
    if match := re.fullmatch(r"([A-Za-z]\w*)(?:@([\w:]+))?(\?|=(\w+))?", text):
        return TextPlace(VALUE, match[1], match[4] or "", bool(match[3]), match[2] or "")
    return TextPlace(TEXT, text)


def spelled(attribute: Attribute | None) -> str:
    """The word of a property in an opcode: "" if it is not set or a flag."""
    match attribute:
        case WordAttr():
            return attribute.word.data
        case SizesAttr():
            return str(attribute)
        case IntegerAttr() if attribute.type == i1:
            return "true" if attribute.value.data else "false"
        case IntegerAttr():
            return str(attribute.value.data)
        case _:
            return ""


def property_of(definition: OpDef, name: str, text: str) -> Attribute:
    """A property of an operation from its text. Raises ValueError if the operation has no such word."""
    (base,) = definition.properties[name].constr.get_bases() or {UnitAttr}
    if issubclass(base, WordAttr):
        if text not in base.WORDS:
            raise ValueError(f"{definition.name} has no {name} = {text}")
        return base.of(text)
    if issubclass(base, SizesAttr):
        numbers = map(int, re.findall(r"\d+", text))
        kind = ShapeAttr if base is ShapeAttr else MatrixShapeAttr
        return kind.new([IntAttr(number) for number in numbers])
    if base is UnitAttr:
        return UnitAttr()
    if text in ("true", "false"):
        return BoolAttr.from_bool(text == "true")
    return IntegerAttr(int(text), 64 if name == "group" and "wgmma" in definition.name else 32)


def templates(operations: Sequence[type[IRDLOperation]]) -> dict[str, list[tuple[type[IRDLOperation], Template]]]:
    """The operations that an instruction becomes, by the first word of its opcode."""
    by_root: dict[str, list[tuple[type[IRDLOperation], Template]]] = {}
    for op in operations:
        for made in (template(line) for line in getattr(op, "PTX", "").splitlines() if line[0] != "<"):
            by_root.setdefault(made.root, []).append((op, made))
    return by_root


# What a field is by its name: an operand by its type, a property by its words.

Integer = IntegerAttr[i32]
TensorPointer = LLVMPointerType(IntAttr(6))

_OPERANDS: Mapping[Attribute | type[Attribute], str] = {
    i32: "barrierId numberOfThreads reductionPredicate thread_mask offset mask_and_clamp count txcount phase ticks "
    "coordinates b c nCols idesc stride sources selector lo hi sparsitySelector scaleAData scaleBData",
    i1: "pred predicate enableInputD",
    i16: "multicastMask im2colOffsets byteIdA threadIdA byteIdB threadIdB",
    i64: "l2CacheHint size smem_desc matrixB scaleInputD zeroColMask descriptorA descriptorB",
    LLVMPointerType: "addr ptr dst src dstMem srcMem tmaDescriptor a",
    TensorPointer: "taddr tmemAddr matrixD scaleA scaleB sparseMetadata",
    VectorType: "disableOutputLane",
    Attribute: "mask val stateOrPhase cpSize matrixA args operandA operandB operandC",
}

_SEVERAL = ("coordinates", "im2colOffsets", "sources", "args", "operandA", "operandB", "operandC")

_PROPERTIES: Mapping[Any, str] = {
    UnitAttr: "aligned read uniform in_param_space tensormap pack unpack aShift orderedMetadata",
    Integer: "num m n k",
    MMA_LAYOUT: "layout layoutA layoutB",
    MMA_TYPE: "eltype eltypeA eltypeB multiplicandAPtxType multiplicandBPtxType",
    MMA_OVERFLOW: "intOverflowBehavior satfinite",
    MMA_BIT_OP: "b1Op",
    ShapeAttr: "shape",
    SCALE_VECTOR: "scaleVecSize",
    SCALE_FORMAT: "blockScaleFormat",
    WGMMA_TYPE: "typeA typeB typeD",
    WGMMA_SCALE_OUT: "scaleD",
    MMA_FRAGMENT: "frag",
    MATRIX_TYPE: "eltType",
    CTA_GROUP: "ctaGroup",
    CACHE_LEVEL: "cacheLevel",
    EVICTION: "evictPriority",
    REDUCTION: "reductionOp",
    TENSOR_COPY_FORMAT: "srcFormat",
}

_DEFINED: tuple[tuple[Mapping[Any, str], Any], ...] = (
    (_OPERANDS, (operand_def, opt_operand_def)),
    (_PROPERTIES, (prop_def, opt_prop_def)),
    ({Attribute: "res"}, (result_def, opt_result_def)),
)
KINDS: Mapping[str, tuple[Any, Any]] = {
    name: ((var_operand_def,) * 2 if name in _SEVERAL else definitions, kind)
    for table, definitions in _DEFINED
    for kind, names in table.items()
    for name in names.split()
}
"""How a field is defined, how one that may be left out, and its type."""

_OPTIONAL = re.compile(r"\(((?:[^()]|\([^()]*\))*)\)\?")
"""A part of a text that may be left out."""


def row(name: str, summary: str, ptx: str, text: str, **own: object) -> type[NvvmOp]:
    """An operation whose fields are what its text and its opcode name, as `KINDS` says, unless they are its `own`.
    Operands are in the order of the text, behind those of `own`. May be left out what stands in an optional part of the
    text, or in front of `?` in the opcode."""
    optional = {*re.findall(r"\$(\w+)", " ".join(_OPTIONAL.findall(text))), *re.findall(r"\{(\w+)\?", ptx)}
    names = dict.fromkeys((*re.findall(r"\$(\w+)", text), *re.findall(r"\{(\w+)(?:\?\w*)?[/}]", ptx)))
    kinds = {each: KINDS[each] for each in names if each not in own}
    fields = {each: definitions[each in optional](kind) for each, (definitions, kind) in kinds.items()}
    return operation(name, summary, ptx, text, **own, **fields)
