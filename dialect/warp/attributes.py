"""Attributes and types of the dialect `warp`, and how a tile lies in shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias, TypeGuard, TypeVar

from xdsl.dialects.builtin import (
    AnyFloat,
    BFloat16Type,
    Float4E2M1FNType,
    Float6E2M3FNType,
    Float6E3M2FNType,
    Float8E4M3FNType,
    Float8E5M2Type,
    Float8E8M0FNUType,
    Float16Type,
    Float32Type,
    Float64Type,
    FloatTF32Type,
    IntAttr,
    IntegerAttr,
    IntegerType,
    MemRefLayoutAttr,
    MemRefType,
    NoneAttr,
    Signedness,
    StridedLayoutAttr,
    StringAttr,
)
from xdsl.ir import Attribute, Data, Operation, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.ir.affine import AffineMap
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from ..isa.form import BY_MLIR_NAME, ELEMENT_TYPES, ElementType
from ..isa.row import Target, UnknownTargetError, target
from ..layouts.layout import AXES, Layout
from ..schedule import ALWAYS, SWIZZLES, PartialSchedule, Schedule, ScheduleError

OpT = TypeVar("OpT", bound=Operation)
DataT = TypeVar("DataT")

ROLES = ("a", "b", "acc", "meta", "scale")
"""Operands of a product: A, B, C and D; the metadata of a sparse A; the scales of A or of B."""

PAIRS = "warp.pairs"
"""The attribute of a kernel whose CTAs, two in each cluster, multiply together in tensor memory: a product has 128 rows
of A and D in each, and half of the columns of B. The first CTA starts all products, and waits at barriers of its
own for copies and readers in both; both are told when products are done. Source: PTX ISA 9.7.16.5.1."""

UNUSED = "warp.unused"
"""On a function: it computes something that nobody uses, and that is left out."""

COMPUTES = "warp.computes"
"""The attribute of a kernel that says in words which operation it is; a comment in the text."""

ZEROED = "warp.zeroed"
"""The attribute of a `memref.alloc` of memory that is all zeros at first, and once more when all launches are done."""

SHARED_SPACE = 3
"""The memory space number of shared memory, as in MLIR's NVVM and LLVM's NVPTX."""

TENSOR_SPACE = 6
"""That of tensor memory, in whose 128 lanes and 512 columns of 32 bits products add up (sm_100a). PTX ISA 9.7.16.1."""

_FLOATS: dict[str, AnyFloat] = {
    str(kind): kind
    for kind in (
        Float16Type(), BFloat16Type(), Float32Type(), FloatTF32Type(), Float64Type(), Float8E4M3FNType(),
        Float8E5M2Type(), Float6E3M2FNType(), Float6E2M3FNType(), Float4E2M1FNType(), Float8E8M0FNUType(),
    )
}  # fmt: skip

SCALES = {"ue4m3": "e4m3"}
"""Types of scales that MLIR has no name for, and the type whose name they take: ue4m3 is e4m3 without a sign."""


def float_type(element: ElementType) -> AnyFloat:
    """The MLIR type of a floating-point element type."""
    return _FLOATS[element.mlir or element.name]


def type_of_element(element: ElementType) -> AnyFloat | IntegerType:
    """The MLIR type of an element type: of a signed integer, the signless one."""
    if element.name in SCALES:
        return _FLOATS[ELEMENT_TYPES[SCALES[element.name]].mlir]
    if element.is_float:
        return float_type(element)
    unsigned = element.mlir.startswith("ui")
    return IntegerType(element.bits, Signedness.UNSIGNED if unsigned else Signedness.SIGNLESS)


Memory: TypeAlias = MemRefType[Attribute]


def is_memory(kind: Attribute) -> TypeGuard[Memory]:
    """Whether a type is a memref. `isa` would build the constraint of that type each time."""
    return isinstance(kind, MemRefType)


def memory_of(value: SSAValue) -> Memory:
    """The memref type of a value. Raises VerifyException if it has another type."""
    if not is_memory(value.type):
        raise VerifyException(f"expected a memref, got {value.type}")
    return value.type


def is_row_by_row(tile: Memory) -> bool:
    """Whether the rows of a tile lie behind each other, by its strides."""
    strides = (tile.get_strides() or ()) if isinstance(tile.layout, StridedLayoutAttr) else ()
    return [*strides][-2:] == [tile.get_shape()[-1], 1]


SPACES = {"#gpu.address_space<workgroup>": SHARED_SPACE, "#gpu.address_space<private>": 5}
"""The numbers of memory spaces in PTX, by what `gpu` calls them."""


def memory_space(memory: Memory) -> int:
    """The number of a memref's memory space; 0, global memory, when it names none."""
    space = memory.memory_space
    if isinstance(space, IntegerAttr):
        return space.value.data
    return 0 if isinstance(space, NoneAttr) else SPACES.get(str(space), 0)


def is_shared(memory: Memory) -> bool:
    """Whether memory is that of a CTA."""
    return memory_space(memory) == SHARED_SPACE


@lru_cache
def type_name(attribute: Attribute) -> str:
    """The text of a type. Elements of a kernel have few types, and printing one takes longer than finding it."""
    return str(attribute)


@lru_cache
def element_row(attribute: Attribute) -> ElementType | None:
    """The ISA's element type behind an MLIR element type, if it has one; `si8` says the same as `i8`."""
    return BY_MLIR_NAME.get(type_name(attribute).removeprefix("s"))


def element_name(attribute: Attribute) -> str:
    """The name of that type; "" if there is none."""
    row = element_row(attribute)
    return "" if row is None else row.name


def known_element(element_type: Attribute) -> ElementType:
    """The ISA's row of an element type. Raises VerifyException if it has none."""
    row = element_row(element_type)
    if row is None:
        raise VerifyException(f"expected an element type of a matrix instruction, got {element_type}")
    return row


class Shown(Data[DataT]):
    """Data whose text in angle brackets is its attribute's."""

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(str(self.data))


@irdl_attr_definition
class LayoutAttr(Shown[Layout]):
    """A fragment layout: `#warp.layout<c1 c2 r0 r1 r2 | c0 r3 c3>`."""

    name = "warp.layout"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Layout:
        with parser.in_angle_brackets():
            return parse_layout(parser)


def _words(parser: AttrParser) -> str:
    words: list[str] = []
    while (word := parser.parse_optional_identifier()) is not None:
        words.append(word)
    return " ".join(words)


def parse_layout(parser: AttrParser) -> Layout:
    """Reads layout bits up to the closing delimiter."""
    position = parser.pos
    parts = [_words(parser)]
    while parser.parse_optional_punctuation("|"):
        parts.append(_words(parser))
    try:
        return Layout.parse(" | ".join(parts if len(parts) > 1 else [*parts, ""]), "".join(AXES))
    except ValueError as e:
        parser.raise_error(str(e), position)


BYTE = 8


@irdl_attr_definition
class FragmentType(ParametrizedAttribute, TypeAttribute):
    """A matrix in the registers of a warp: `!warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>`, or of a
    warpgroup: `!warp.fragment<acc, 64x8xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>`.

    The role says which operand of a product it is (`ROLES`). Rows x columns are the sizes of the whole matrix. B is k x
    n, and a sparse A has the stored elements. The layout describes a base tile, and repeats for each base tile, row by
    row.

    Elements fill registers without gaps. With `bytes` after the layout, each element of 4 or 6 bits has its own byte,
    as products of narrow floats require: e2m1 is in the middle four bits, e3m2 and e2m3 are in the low six (PTX ISA
    9.7.14.5.14).

    Metadata is a matrix of 4-bit numbers, one for each chunk of a row of A. Scales are a matrix of 8-bit numbers. The
    base tile of both has a third axis: the selectors, which say whose word, and which byte of it, an instruction uses.
    """

    name = "warp.fragment"

    role: StringAttr
    rows: IntAttr
    columns: IntAttr
    element_type: TypeAttribute
    layout: LayoutAttr
    container: IntAttr

    @staticmethod
    def of(
        role: str, rows: int, columns: int, element_type: TypeAttribute, layout: Layout, container: int | None = None
    ) -> FragmentType:
        """`container` is the number of bits of an element in a register; None stands for the element's own width."""
        bits = _width(element_type) if container is None else container
        return FragmentType(
            StringAttr(role), IntAttr(rows), IntAttr(columns), element_type, LayoutAttr(layout), IntAttr(bits)
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.rows.data, self.columns.data

    @property
    def element(self) -> ElementType:
        """The ISA's row of the element type."""
        return known_element(self.element_type)

    @property
    def bits(self) -> int:
        """How many bits of a register an element takes."""
        return self.container.data

    @property
    def tiles(self) -> tuple[int, int]:
        """Base tiles down and across."""
        return self.layout.data.tiles(*self.shape)

    @property
    def tile_registers(self) -> int:
        """Registers each lane gives to a base tile: 64-bit ones for elements of 64 bits, else 32-bit ones."""
        return self.layout.data.elements * self.bits // max(32, self.bits)

    @property
    def registers(self) -> int:
        """Registers each lane gives to the fragment: 64-bit ones for elements of 64 bits, else 32-bit ones."""
        down, across = self.tiles
        return down * across * self.tile_registers

    def with_element(self, element_type: TypeAttribute) -> FragmentType:
        """The same fragment of another element type, without gaps between elements."""
        return FragmentType.of(self.role.data, *self.shape, element_type, self.layout.data)

    def with_shape(self, rows: int, columns: int) -> FragmentType:
        """A fragment of more or fewer of its base tiles."""
        return FragmentType.of(self.role.data, rows, columns, self.element_type, self.layout.data, self.bits)

    def with_layout(self, layout: Layout) -> FragmentType:
        """The same matrix in another layout."""
        return FragmentType.of(self.role.data, *self.shape, self.element_type, layout, self.bits)

    def verify(self) -> None:
        if self.role.data not in ROLES:
            raise VerifyException(f"expected a fragment role of {', '.join(ROLES)}, got '{self.role.data}'")
        layout, element = self.layout.data, self.element
        try:
            layout.tiles(*self.shape)
        except ValueError as e:
            raise VerifyException(str(e)) from None
        if self.bits != element.bits and (self.bits != BYTE or element.bits not in (4, 6) or not element.is_float):
            raise VerifyException(f"expected elements of 4 or 6 floating-point bits in bytes, got {element.name}")
        if (layout.elements * self.bits) % 32:
            raise VerifyException(
                f"expected a base tile that fills whole 32-bit registers, the layout gives each lane "
                f"{layout.elements} x {element.name}"
            )

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            role = parser.parse_keyword_in(ROLES, " as the fragment's role")
            parser.parse_punctuation(",")
            shape, element_type = parser.parse_ranked_shape()
            if len(shape) != 2:
                parser.raise_error(f"expected a fragment of rank 2, got rank {len(shape)}")
            parser.parse_punctuation(",")
            with parser.in_square_brackets():
                layout = parse_layout(parser)
            bits = _width(element_type)
            if parser.parse_optional_punctuation(","):
                parser.parse_keyword("bytes", ": the word for elements that have a byte each")
                bits = BYTE
        rows, columns = shape
        return [StringAttr(role), IntAttr(rows), IntAttr(columns), element_type, LayoutAttr(layout), IntAttr(bits)]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"{self.role.data}, {self.rows.data}x{self.columns.data}x")
            printer.print_attribute(self.element_type)
            printer.print_string(f", [{self.layout.data}]")
            if self.bits != _width(self.element_type):
                printer.print_string(", bytes")


def _width(element_type: Attribute) -> int:
    """Bits of an element type; 0 for other types, which the verifier rejects."""
    row = element_row(element_type)
    return 0 if row is None else row.bits


def fragment_of(value: SSAValue) -> FragmentType:
    """The fragment type of a value. Raises VerifyException if it has another type."""
    if not isinstance(value.type, FragmentType):
        raise VerifyException(f"expected a fragment, got {value.type}")
    return value.type


@irdl_attr_definition
class PartialScheduleAttr(Shown[PartialSchedule]):
    """A schedule with some of its fields, `#warp.schedule<cta = 128x256x64>`. `warp-schedule` replaces it by a complete
    one."""

    name = "warp.schedule"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> PartialSchedule:
        return PartialSchedule.of(ScheduleAttr.parse_parameter(parser).options())


@irdl_attr_definition
class ScheduleAttr(Shown[Schedule]):
    """The schedule of one product: `#warp.schedule<cta = 128x256x64, warp = 64x64, ...>`."""

    name = "warp.schedule"

    def __new__(cls, data: Schedule | PartialSchedule | None = None) -> ScheduleAttr | PartialScheduleAttr:
        """A complete schedule, or a `PartialScheduleAttr` if fields are missing."""
        return PartialScheduleAttr(data) if isinstance(data, PartialSchedule) else super().__new__(cls)

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Schedule:
        """Reads `<cta = 128x128x32, ...>`: a schedule if all fields are there that its text always has."""
        options: dict[str, object] = {}

        def parse_field() -> None:
            name = parser.parse_identifier(" as a schedule field")
            parser.parse_punctuation("=")
            word = parser.parse_optional_identifier()
            options[name] = parser.parse_dimension_list() if word is None else word

        position = parser.pos
        parser.parse_comma_separated_list(parser.Delimiter.ANGLE, parse_field)
        kind = Schedule if options.keys() >= {*ALWAYS} else PartialSchedule
        try:
            return kind.of(options)  # pyright: ignore[reportReturnType]
        except ScheduleError as e:
            parser.raise_error(str(e), position)


@irdl_attr_definition
class TargetAttr(Shown[Target]):
    """The GPU that a module is compiled for. It is an attribute of the module: `warp.target = #warp.target<sm_90a>`."""

    name = "warp.target"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Target:
        with parser.in_angle_brackets():
            position, name = parser.pos, parser.parse_identifier(" as a target name")
            try:
                return target(name)
            except UnknownTargetError as e:
                parser.raise_error(str(e), position)


def in_place_of(op: Operation, made: OpT) -> OpT:
    """The new operation, with the attributes and the location of the one that it replaces."""
    made.attributes |= op.attributes
    made.location = op.location
    return made


def enclosing(op: Operation) -> Iterator[Operation]:
    """The operations that an operation is in, the innermost first."""
    while (around := op.parent_op()) is not None:
        yield (op := around)


def in_pairs(op: Operation) -> bool:
    """Whether the kernel of an operation multiplies in pairs of CTAs."""
    return any(PAIRS in each.attributes for each in (op, *enclosing(op)))


def schedule_on(op: Operation) -> Schedule | None:
    """The schedule that an operation has; None without one, or with a part of one."""
    return attribute.data if isinstance(attribute := op.attributes.get(ScheduleAttr.name), ScheduleAttr) else None


def schedule_around(op: Operation) -> Schedule | None:
    """The schedule of the kernel that contains an operation; None without one."""
    return next(filter(None, map(schedule_on, enclosing(op))), None)


def target_of(op: Operation) -> Target | None:
    """The target of the module that `op` is in, if one is set. Raises VerifyException for a `warp.target` of another
    kind, such as a string."""
    targets = (each.attributes.get(TargetAttr.name) for each in (op, *enclosing(op)))
    attribute = next((each for each in targets if each is not None), None)
    if not isinstance(attribute, TargetAttr | None):
        raise VerifyException(f"expected warp.target = #warp.target<sm_90a> or another GPU, got {attribute}")
    return None if attribute is None else attribute.data


WORD_PANEL = 4
"""The width of panels that are one word wide."""

MAX_SKIP = 2
"""The most bits of the row that a swizzle leaves out: those of elements of 4 bits that share a 16-bit piece."""


@irdl_attr_definition
class SwizzleAttr(ParametrizedAttribute, MemRefLayoutAttr):
    """The layout of a tile in shared memory: `#warp.swizzle<128>`.

    The last dimension is divided into panels of this many bytes. A panel stores its rows one after another. Within a
    line, the 16-byte chunks are permuted: bits 4 and up of the byte address are XORed with bits 7 and up, as many bits
    as number the chunks of a line. So eight rows of one column of chunks are in different banks. 32, 64 and 128 are the
    swizzles of the bulk tensor copies (PTX ISA 5.5.5, Swizzling Modes). 16 and 4 permute nothing. With 4, the words of
    one column are contiguous.

    `#warp.swizzle<128, skip 1>` uses bits 8 and up instead, so that rows 2i and 2i + 1 share a permutation. Then eight
    rows whose numbers differ in bits 1 to 3 are in different banks. This is needed for matrices of 16-bit pieces if a
    piece is two elements of 8 bits, because one matrix delivers only every second of the rows that a lane holds. `skip
    2` is needed if a piece is four elements of 4 bits, because then it delivers only every fourth row.
    """

    name = "warp.swizzle"

    width: IntAttr
    skipped: IntAttr

    def __init__(self, width: int, skip: int = 0):
        super().__init__(IntAttr(width), IntAttr(skip))

    @property
    def bytes(self) -> int:
        """The width of a panel."""
        return self.width.data

    @property
    def skip(self) -> int:
        """How many low bits of the row do not count."""
        return self.skipped.data

    def verify(self) -> None:
        if self.bytes not in (WORD_PANEL, *SWIZZLES):
            raise VerifyException(
                f"expected a swizzle of {', '.join(map(str, (WORD_PANEL, *SWIZZLES)))} bytes, got {self.bytes}"
            )
        if not 0 <= self.skip <= MAX_SKIP:
            raise VerifyException(f"expected a swizzle to skip 0 to {MAX_SKIP} bits of the row, got {self.skip}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            width, skip = parser.parse_integer(allow_negative=False, allow_boolean=False), 0
            if parser.parse_optional_punctuation(","):
                parser.parse_keyword("skip", ": the word before the number of bits of the row left out")
                skip = parser.parse_integer(allow_negative=False, allow_boolean=False)
        return [IntAttr(width), IntAttr(skip)]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"{self.bytes}" + (f", skip {self.skip}" if self.skip else ""))

    def get_affine_map(self) -> AffineMap:
        raise VerifyException("#warp.swizzle permutes address bits and has no affine map")
