"""What the rows of all matrix instructions share: spelling, operands, block scales, and the parts of a product."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import ClassVar, NamedTuple, TypeVar, cast

from ..layouts.layout import Bit, Layout, accumulator, multiplicand
from .row import SELECTOR, TENSOR_MEMORY, VECTOR, Bindings, Row, Slot, Specific, Target, Version, choice

# Element types of the matrix instructions.
#
# Source: PTX ISA 5.2 (Types) and 9.7.14.2 (Matrix Data-types).


NOT_IN_MLIR = "-"
"""What `mlir` says of a type that MLIR has no name for."""


@dataclass(frozen=True)
class ElementType:
    """One matrix element type, by its PTX name, and what MLIR calls it (the same unless `mlir` says so). `bits` is the
    width in a packed register, and in memory unless `memory_bits` says otherwise; `exponent` and `mantissa` are field
    widths of a binary floating-point format (0 for integers). A format that is not `signed` has no sign bit."""

    name: str
    bits: int
    exponent: int = 0
    mantissa: int = 0
    signed: bool = True
    mlir: str = ""

    @property
    def is_float(self) -> bool:
        return self.exponent > 0

    @property
    def numpy(self) -> str:
        """The type of its words in numpy or `ml_dtypes`: `float8_e4m3fn`, MLIR's f8E4M3FN, or `int4`."""
        word = "bfloat" if self.name == "bf16" else "float" if self.is_float else "int" if self.signed else "uint"
        return f"{word}{self.bits}" + f"_{self.mlir[2:].lower()}" * (self.is_float and self.bits <= 8)

    @property
    def memory_bits(self) -> int:
        """Bits of an element in memory. Types of 6 bits take the low bits of a byte."""
        return 8 if self.bits == 6 else self.bits

    @property
    def largest(self) -> float:
        """The largest value of an integer type; the largest finite one of an IEEE binary format."""
        if not self.is_float:
            return float((1 << self.bits - self.signed) - 1)
        bias = (1 << (self.exponent - 1)) - 1
        return (2.0 - 2.0**-self.mantissa) * 2.0**bias

    def nearest(self, value: float) -> float:
        """A number rounded to an IEEE binary format, to nearest even; an infinity beyond its largest."""
        if value == 0 or not math.isfinite(value):
            return value
        least = 2 - (1 << (self.exponent - 1))
        unit = 2.0 ** (max(math.frexp(value)[1] - 1, least) - self.mantissa)
        rounded = round(value / unit) * unit
        return rounded if abs(rounded) <= self.largest else math.copysign(math.inf, value)


_ROWS = (
    # 9.7.14.2  floating point
    ElementType("f16", 16, exponent=5, mantissa=10),
    ElementType("bf16", 16, exponent=8, mantissa=7),
    ElementType("f32", 32, exponent=8, mantissa=23),
    ElementType("tf32", 32, exponent=8, mantissa=10),
    ElementType("f64", 64, exponent=11, mantissa=52),
    # 5.2.3  alternate floating point
    ElementType("e4m3", 8, exponent=4, mantissa=3, mlir="f8E4M3FN"),
    ElementType("e5m2", 8, exponent=5, mantissa=2, mlir="f8E5M2"),
    ElementType("e3m2", 6, exponent=3, mantissa=2, mlir="f6E3M2FN"),
    ElementType("e2m3", 6, exponent=2, mantissa=3, mlir="f6E2M3FN"),
    ElementType("e2m1", 4, exponent=2, mantissa=1, mlir="f4E2M1FN"),
    # 9.7.14.3  scales; unsigned, so that all bits are exponent and mantissa
    ElementType("ue8m0", 8, exponent=8, signed=False, mlir="f8E8M0FNU"),
    ElementType("ue4m3", 8, exponent=4, mantissa=3, signed=False, mlir=NOT_IN_MLIR),
    # 9.7.14.2  integers; a signless MLIR integer is read as the signed type
    ElementType("s32", 32, mlir="i32"),
    ElementType("s8", 8, mlir="i8"),
    ElementType("u8", 8, signed=False, mlir="ui8"),
    ElementType("s4", 4, mlir="i4"),
    ElementType("u4", 4, signed=False, mlir="ui4"),
    ElementType("b1", 1, signed=False, mlir="i1"),
)

ELEMENT_TYPES = {row.name: row for row in _ROWS}
BY_MLIR_NAME = {row.mlir or row.name: row for row in _ROWS if row.mlir != NOT_IN_MLIR}


def element_type(name: str) -> ElementType:
    """The row of the element type called `name`. Raises KeyError with the known names, if there is none."""
    try:
        return ELEMENT_TYPES[name]
    except KeyError:
        raise KeyError(f"unknown element type '{name}'; known: {', '.join(ELEMENT_TYPES)}") from None


def element_types(names: str) -> tuple[ElementType, ...]:
    """The rows of several element types, with spaces between their names."""
    return tuple(map(element_type, names.split()))


FP8 = ("e4m3", "e5m2")
"""The 8-bit floats that products take."""

F8F6F4 = (*FP8, "e3m2", "e2m3", "e2m1")
"""All floats of up to 8 bits that products take."""


_HELD_AS = {"f16": "f16x2", "bf16": "bf16x2", "f32": "f32", "f64": "f64", "s32": "s32"}


def register_type(element: ElementType) -> str:
    """The type of the registers that hold elements of this type (ISA 9.7.14.4.1, 9.7.14.5): `b32` unless it has one."""
    return _HELD_AS.get(element.name, "b32")


_IN_ORDER = (
    frozenset(ELEMENT_TYPES),
    frozenset(("row", "col")),
    frozenset(("b8x16", "b6x16_p32", "b4x16_p64")),
    frozenset(("xor", "and", "popc")),
)
"""Qualifiers that must keep their order among their like."""

_ORDERED = frozenset[str]().union(*_IN_ORDER)

Key = tuple[tuple[str, ...], ...]


def order_key(spelling: str) -> Key:
    """A key that is equal for spellings that differ only in the order of their qualifiers. The ISA gives one order.
    ptxas takes any order, and published kernels use others: `ldmatrix.sync.aligned.x4.m8n8`. Types, layouts, formats
    and bit operations keep their order, each kind by itself. The matrix that is loaded or stored (`wmma.load.a`) comes
    first."""
    words = spelling.split(".")
    lead = 3 if words[0] == "wmma" and words[1:2] != ["mma"] else 1
    return (
        tuple(words[:lead]),
        *(tuple(w for w in words if w in alike) for alike in _IN_ORDER),
        tuple(sorted(w for w in words[lead:] if w not in _ORDERED)),
    )


def word(name: str, *, braces: bool = False, written: bool = False) -> Slot:
    """An operand that is one 32-bit register. With `braces`, it may also be written in braces, as published
    kernels do."""
    return Slot(name, written=written, register=True, braces=braces, own=True)


def fragment(name: str, element: ElementType, count: int, *, written: bool = False) -> Slot:
    """An operand of `count` registers with elements of a matrix. Words of integers or of tf32 have a kind of their own,
    which other registers do not hold."""
    type = register_type(element)
    holds = "" if type != "b32" else "tf32" if element.name == "tf32" else "" if element.is_float else "u32"
    return Slot(name, VECTOR, type, count, holds=holds, written=written, own=(holds or type)[0] == "b")


class Form(Row):
    """One form of a matrix instruction: a row with one spelling, which follows from its shape, types and qualifiers."""

    @property
    def layouts(self) -> Mapping[str, Layout]:
        """The layouts of the operands that have one, by the name of the operand."""
        return {}

    def since(self, target: Target) -> Version | None:
        """The first PTX version in which the target has it, no earlier than the target; None if it never has."""
        since = super().since(target)
        return None if since is None else max(since, target.ptx)

    def match(self, opcode: str) -> Bindings | None:
        """Nothing is bound: each form has a row of its own."""
        return {} if opcode == self.spelling or order_key(opcode) == order_key(self.spelling) else None


FormRow = TypeVar("FormRow", bound=Form)


def having(rows: Callable[[], tuple[FormRow, ...]], **fields: object) -> tuple[FormRow, ...]:
    """The rows of a table whose fields, or properties, have these values, in the order of the table."""
    values = tuple(fields.values())
    rows_ = _by_fields(rows, tuple(fields)).get(values[0] if len(values) == 1 else values, ())
    return cast("tuple[FormRow, ...]", rows_)


@cache
def _by_fields(rows: Callable[[], tuple[Form, ...]], names: tuple[str, ...]) -> Mapping[object, tuple[Form, ...]]:
    """The rows of a table by the value of a field, or the values of some."""
    table, key_of = defaultdict[object, list[Form]](list), attrgetter(*names)
    for row in rows():
        table[key_of(row)].append(row)
    return {key: tuple(alike) for key, alike in table.items()}


# Block scaling: the scales of A and B, who holds them, and which selectors are legal.
#
# Source: PTX ISA 9.7.14.3 (Block Scaling), tables 36 and 37, figures 43 to 45.

SCALES_OF_WORD = 4
"""Scales that a lane has in a register."""

BYTE_IDS = {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}
"""Table 37: the legal byte-ids by scales per row; scale s of a row is byte `byte-id + s` of its lane's word."""

THREAD_IDS = {"a": (0, 1), "b": (0, 1, 2, 3)}
"""Table 37: which thread-ids are legal, by operand."""

_LAYOUTS = {
    # Lane 4g + 2 * thread-id + h holds the scales of row g + 8h of A (m x vector).
    "a": {
        1: Layout.parse("r3 t0 r0 r1 r2 | b0 b1", "rctb"),
        2: Layout.parse("r3 t0 r0 r1 r2 | c0 b0", "rctb"),
        4: Layout.parse("r3 t0 r0 r1 r2 | c0 c1", "rctb"),
    },
    # Lane 4n + thread-id holds the scales of column n of B (vector x n).
    "b": {
        1: Layout.parse("t0 t1 c0 c1 c2 | b0 b1", "rctb"),
        2: Layout.parse("t0 t1 c0 c1 c2 | r0 b0", "rctb"),
        4: Layout.parse("t0 t1 c0 c1 c2 | r0 r1", "rctb"),
    },
}

THREAD_BITS = {role: (len(legal) - 1).bit_length() for role, legal in THREAD_IDS.items()}


@cache
def _layout(role: str, vector: int, tiles: int) -> Layout:
    alone = _LAYOUTS[role][vector]
    if not 0 <= tiles <= THREAD_BITS[role]:
        raise ValueError(f"words of {1 << tiles} matrices share a register, {1 << THREAD_BITS[role]} at most can")
    axis, size = ("r", alone.rows) if role == "a" else ("c", alone.columns)
    tile, bits = size.bit_length() - 1, range(THREAD_BITS[role])
    names = {Bit("t", i): Bit(axis, tile + i) if i < tiles else Bit("t", i - tiles) for i in bits}
    return Layout(tuple(names.get(bit, bit) for bit in alone.lane), alone.element)


@dataclass(frozen=True)
class BlockScale:
    """How the multiplicands are scaled: `vector` scales of type `type` for each row of A and each column of B.

    `written` says whether the spelling names `.scale_vec::nX` or leaves it to the default of its kind.
    """

    vector: int
    type: ElementType
    written: bool = True

    @property
    def qualifiers(self) -> str:
        """The part of the spelling before the types."""
        return f".block_scale.scale_vec::{self.vector}X" if self.written else ".block_scale"

    @property
    def byte_ids(self) -> tuple[int, ...]:
        """The legal values of byte-id-a and byte-id-b."""
        return BYTE_IDS[self.vector]

    @property
    def operands(self) -> tuple[Slot, ...]:
        """The operands of a block-scaled product that follow A, B, C: a word of scales and a selector for each of A and
        B."""
        slots: list[Slot] = []
        for role in "ab":
            span = f"{choice(self.byte_ids)};{choice(self.thread_ids(role))}"
            slots += [word(f"scale_{role}", braces=True), Slot(f"selector_{role}", SELECTOR, "u16", span=span)]
        return tuple(slots)

    def shared_by(self, role: str, layout: Layout) -> int:
        """The `tiles` for which `layout(role, tiles)` is a layout; 0 if it is no layout of these scales."""
        return next((i for i in range(THREAD_BITS[role], 0, -1) if self.layout(role, i) == layout), 0)

    def thread_ids(self, role: str) -> tuple[int, ...]:
        """The legal values of thread-id-a (role "a") or thread-id-b."""
        return THREAD_IDS[role]

    def layout(self, role: str, tiles: int = 0) -> Layout:
        """The layout of the scales of A (m x vector) or B (vector x n): each element of a lane is a byte of its word.
        The axis `t` is the thread-id; the axis `b` is the byte-id, counted among the legal ones. With `tiles`, the
        words of 2**tiles adjacent matrices share a register, and the low bits of the thread-id select one. Raises
        ValueError if the thread-id has fewer bits."""
        return _layout(role, self.vector, tiles)


# What the rows of all products share: the shape, the matrices, the qualifiers, how A is sparse.
#
# Source: PTX ISA 9.7.14.1 to 9.7.14.3, 9.7.14.6.1.

KIND_F8F6F4, KIND_MXF8F6F4, KIND_MXF4, KIND_MXF4NVF4 = "f8f6f4", "mxf8f6f4", "mxf4", "mxf4nvf4"

IN_BYTES = (KIND_F8F6F4, KIND_MXF8F6F4)
"""Kinds whose 4-bit and 6-bit elements lie each in a byte of its own (9.7.14.5.14)."""

SM_120: Specific = (("sm_120a", (8, 7)), ("sm_120f", (8, 8)))
"""Where `.kind`, `.block_scale` and the 4-bit and 6-bit types run (9.7.14.5.14 and 9.7.14.6.3, Target ISA Notes)."""

BLACKWELL: Specific = tuple(sorted((*TENSOR_MEMORY, *SM_120), key=lambda row: row[0][-1]))
"""Where shapes and types of bytes run (9.7.14.5.15, .16), and other things that came with sm_100 and sm_120."""


def blackwell(since: Version) -> Specific:
    """The targets of `BLACKWELL`, each from its own PTX version or from `since`, whichever is later."""
    return tuple((name, max(version, since)) for name, version in BLACKWELL)


class Shape(NamedTuple):
    """M x N x K of one instruction: A is m x k, B is k x n, C and D are m x n."""

    m: int
    n: int
    k: int

    @staticmethod
    def parse(text: str) -> Shape:
        """Reads `m16n8k16`. Raises ValueError if the text is not of that form."""
        match = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", text)
        if match is None:
            raise ValueError(f"expected a shape such as m16n8k16, got '{text}'")
        return Shape(*map(int, match.groups()))

    def __str__(self) -> str:
        return f"m{self.m}n{self.n}k{self.k}"


@cache
def fragment_layout(role: str, m: int, n: int, k: int, bits: int) -> Layout:
    """The layout of a dense operand whose elements have `bits` bits (ISA 9.7.14.5.2 to 9.7.14.5.13)."""
    if role == "a":
        return multiplicand(m, k, bits)
    if role == "b":
        return multiplicand(n, k, bits).transposed()
    return accumulator(m, n)


ORDERED_CODES = (0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110)
"""9.7.14.6.1: the nibbles that name two different elements (or pairs) of a chunk, the lower index first."""

ANY_CODES = tuple(code for code in range(16) if code & 3 != code >> 2)
"""The nibbles that name two different elements (or pairs): what `mma.sp` takes besides the ordered ones."""

PAIR_CODES = (0b0100, 0b1110)
"""9.7.14.6.1, tf32: the nibble of element 0 and that of element 1 of a chunk of two."""


@dataclass(frozen=True)
class Granularity:
    """How A is sparse: of each `chunk` elements of a row, `stored` are; they come in groups of `group`."""

    stored: int
    chunk: int
    group: int = 1

    def __str__(self) -> str:
        return f"{self.stored}:{self.chunk}" + (" in pairs" if self.group == 2 else "")

    @property
    def units(self) -> int:
        """Groups of a chunk: what an index counts."""
        return self.chunk // self.group

    @property
    def slots(self) -> int:
        """Stored groups of a chunk."""
        return self.stored // self.group

    def codes(self, ordered: bool) -> tuple[int, ...]:
        """The legal nibbles, with or without `::ordered_metadata`."""
        if self.chunk == 2:
            return PAIR_CODES
        return ORDERED_CODES if ordered else ANY_CODES


@dataclass(frozen=True, init=False, repr=False, eq=False)
class ProductForm(Form):
    """D = A * B + C by a warp or a warpgroup: `mma`, `mma.sp`, `wmma.mma`, `wgmma.mma_async`.

    `ptx` and `sm` are the first PTX version and the lowest target number that have it; `only` names the targets of a
    form that not all of those have. The qualifiers of some families are empty in the rest: `rounding` of f64, `bit_op`
    of b1 (the `op` of `op.popc`), `kind` and `scale` of the narrow floating-point types.

    `granularity` says how A is sparse, None if it is dense. Half of each row of a sparse A is stored. `metadata` says
    who holds the nibble of a row and a chunk of it; with `ordered` the indices of a chunk must increase.
    """

    shape: Shape
    a: ElementType
    b: ElementType
    c: ElementType
    d: ElementType
    ptx: Version
    sm: int
    section: str
    only: Specific = ()
    satfinite: bool = False
    rounding: str = ""
    bit_op: str = ""
    kind: str = ""
    scale: BlockScale | None = None
    granularity: Granularity | None = None
    metadata: Layout | None = None
    ordered: bool = False

    FRAGMENTS: ClassVar = "abcd"
    """The operands in registers whose layout the ISA says."""

    UNIT: ClassVar = ""
    """What the names of its arithmetic begin with, where that is not the arithmetic of a warp."""

    @property
    def products(self) -> int:
        """How many products of this shape one instruction computes."""
        return 1

    @property
    def sparse(self) -> bool:
        """Whether A is stored without half of its elements."""
        return self.granularity is not None

    @property
    def scale_type(self) -> str:
        """The type of the scales of A and B; empty where there are none."""
        return "" if self.scale is None else self.scale.type.name

    @property
    def stored_k(self) -> int:
        """The columns of A that are stored."""
        return self.shape.k // (2 if self.sparse else 1)

    @property
    def selectors(self) -> tuple[int, ...]:
        """The legal values of the sparsity selector f; none of a dense A."""
        return tuple(range(self.metadata.extent("f"))) if self.metadata else ()

    @property
    def codes(self) -> tuple[int, ...]:
        """The nibbles of metadata that mean something."""
        return self.granularity.codes(self.ordered) if self.granularity else ()

    def layout(self, role: str) -> Layout:
        """The fragment layout of operand "a", "b", "c" or "d"; that of a sparse A is over the stored elements."""
        raise TypeError(f"{type(self).__name__} has no layouts")

    @property
    def layouts(self) -> Mapping[str, Layout]:
        """The layouts of the fragments, of metadata and of scales, by the name of the operand."""
        layouts = {role: self.layout(role) for role in self.FRAGMENTS}
        if self.metadata:
            layouts["e"] = self.metadata
        if self.scale:
            layouts |= {f"scale_{role}": self.scale.layout(role) for role in "ab"}
        return layouts

    def element(self, role: str) -> ElementType:
        """The element type of operand "a", "b", "c" or "d"."""
        return self.a if role == "a" else self.b if role == "b" else self.c if role == "c" else self.d

    def container_bits(self, role: str) -> int:
        """Bits of a register that an element takes: 8 for 4-bit and 6-bit types of some kinds."""
        return 8 if self.kind in IN_BYTES and role in "ab" else self.element(role).bits

    @property
    def operand_bits(self) -> int:
        """How many bits of a register an element of A or B takes: of both the same."""
        return self.container_bits("a")

    def registers(self, role: str) -> int:
        """Registers per lane of operand "a", "b", "c" or "d": 64-bit registers for f64, 32-bit ones otherwise."""
        raise TypeError(f"{type(self).__name__} has no fragments of known size")

    @property
    def fragments(self) -> tuple[Slot, ...]:
        """The operands d, a, b, c."""
        return tuple(fragment(role, self.element(role), self.registers(role), written=role == "d") for role in "dabc")

    def metadata_problem(self, word: int) -> str | None:
        """Why a constant word is no metadata: the first nibble without a meaning, and the legal ones."""
        for place in range(8):
            code = word >> 4 * place & 0xF
            if code not in self.codes:
                listed = ", ".join(f"0b{c:04b}" for c in self.codes)
                text = f"nibble {place} of the metadata 0x{word & 0xFFFFFFFF:08X} is 0b{code:04b}"
                return f"{text}; expected one of {listed}"
        return None
