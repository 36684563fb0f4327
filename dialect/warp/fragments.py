"""Fragments: `warp.constant`, `warp.elementwise`, `warp.subfragment`; and how they lie in memory."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import auto
from typing import NamedTuple, TypeAlias, TypeVar

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, i64
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import SpacedOpaqueSyntaxAttribute, SSAValue
from xdsl.irdl import base, irdl_attr_definition, prop_def, result_def, traits_def, var_operand_def
from xdsl.traits import ConstantLike, Pure
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum

from ..isa.form import Form, having
from ..isa.mma import SHARED, LoadMatrix, StoreMatrix, load_rows, store_rows
from ..layouts.layout import LANES, Layout, column, multiplicand, places_of
from ..mlir.words import irdl_op_definition
from .attributes import (
    BYTE,
    SHARED_SPACE,
    FragmentType,
    Memory,
    SwizzleAttr,
    element_row,
    float_type,
    fragment_of,
    is_shared,
    known_element,
)
from .op_shapes import WarpOp, in_memory, verify_element

# On fragments, element by element, and parts of them.


class Kind(StrEnum):
    """The function of a `warp.elementwise`. `Neg` has one operand, the others have two. `Maximum` and `Minimum`, which
    take rows together, are NaN where an operand is; `Max` and `Min` are the other one."""

    Add = auto()
    Sub = auto()
    Mul = auto()
    Max = auto()
    Min = auto()
    Maximum = auto()
    Minimum = auto()
    Neg = auto()

    @property
    def operands(self) -> int:
        return 1 if self is Kind.Neg else 2


@irdl_attr_definition
class KindAttr(EnumAttribute[Kind], SpacedOpaqueSyntaxAttribute):
    name = "warp.kind"


@irdl_op_definition
class ConstantOp(WarpOp):
    """A fragment with the same value everywhere: `%z = warp.constant 0.0 : f32 : !warp.fragment<...>`."""

    name = "warp.constant"

    value = prop_def(base(FloatAttr) | base(IntegerAttr))
    fragment = result_def(FragmentType)

    traits = traits_def(Pure(), ConstantLike())
    assembly_format = "$value attr-dict `:` type($fragment)"

    @staticmethod
    def of(value: float, fragment: FragmentType) -> ConstantOp:
        """A fragment with a value as one of its elements."""
        element = known_element(fragment.element_type)
        if element.is_float:
            return ConstantOp(FloatAttr(value, float_type(element)), fragment)
        return ConstantOp(IntegerAttr(int(value), element.bits), fragment)

    def verify_(self) -> None:
        element_type = self.fragment.type.element_type
        if self.value.type != element_type:
            raise VerifyException(f"expected a value of the element type {element_type}, got {self.value.type}")


def is_zero(fragment: SSAValue) -> bool:
    """Whether all elements of a fragment are a constant zero."""
    return isinstance(made := fragment.owner, ConstantOp) and not made.value.value.data


@irdl_op_definition
class ElementwiseOp(WarpOp):
    """Applies one operation to each element: `%r = warp.elementwise add %x, %y : !warp.fragment<...>`. The result is
    rounded once, to nearest even. `max` and `min` return the number when one operand is NaN. Source: PTX ISA 9.7.3 and
    9.7.4."""

    name = "warp.elementwise"

    kind = prop_def(KindAttr)
    inputs = var_operand_def(FragmentType)
    fragment = result_def(FragmentType)

    traits = traits_def(Pure())
    assembly_format = "$kind $inputs attr-dict `:` type($inputs) `->` type($fragment)"

    def __init__(self, kind: Kind, *inputs: SSAValue):
        super().__init__(KindAttr(kind), inputs, inputs[0].type)

    def verify_(self) -> None:
        kind, types = self.kind.data, [value.type for value in self.inputs]
        if kind in (Kind.Maximum, Kind.Minimum):
            raise VerifyException(f"expected an operation on each element, got {kind}, which takes rows together")
        if len(types) != kind.operands:
            raise VerifyException(f"expected {kind.operands} operand(s) for {kind}, got {len(types)}")
        if any(t != self.fragment.type for t in types):
            got = ", ".join(map(str, types))
            raise VerifyException(f"expected operands of the result's type {self.fragment.type}, got {got}")


@irdl_op_definition
class SubfragmentOp(WarpOp):
    """Selects some base tiles of a fragment, or of several alike: rows below each other, or, where the result is wider
    than they are, columns of one row of base tiles side by side. It emits no instruction, for each lane already has the
    registers::

        %top = warp.subfragment %d[16, 0] : !warp.fragment<acc, 64x64xf32, ...> to !warp.fragment<acc, 16x64xf32, ...>
        %d = warp.subfragment %top, %bottom[0, 0]
            : !warp.fragment<acc, 16x64xf32, ...>, !warp.fragment<acc, 48x64xf32, ...>
            to !warp.fragment<acc, 64x64xf32, ...>

    The offsets are the first row and the first column, and are multiples of the base tile's sizes.
    """

    name = "warp.subfragment"

    sources = var_operand_def(FragmentType)
    offsets = prop_def(DenseArrayBase.constr(i64))
    fragment = result_def(FragmentType)

    traits = traits_def(Pure())
    assembly_format = "$sources `` $offsets attr-dict `:` type($sources) `to` type($fragment)"

    def __init__(self, sources: Sequence[SSAValue], offsets: tuple[int, int], shape: tuple[int, int]):
        super().__init__(sources, offsets, fragment_of(sources[0]).with_shape(*shape))

    @staticmethod
    def join(parts: Sequence[SSAValue], columns: int) -> SubfragmentOp:
        """All of several fragments, side by side if there are more `columns` than one has, or else below each other."""
        return SubfragmentOp(parts, (0, 0), _joined(parts, columns).shape)

    @property
    def at(self) -> tuple[int, ...]:
        """(row, column) of the first element."""
        return tuple(int(offset) for offset in self.offsets.iter_values())

    def verify_(self) -> None:
        if not self.sources:
            raise VerifyException("expected a fragment")
        part, first = fragment_of(self.fragment), fragment_of(self.sources[0])
        source, layout = _joined(self.sources, part.shape[1]), first.layout.data
        beside = source.shape[1] > first.shape[1]
        for other in map(fragment_of, self.sources):
            high, wide = other.shape
            if other != first.with_shape(*((layout.rows, wide) if beside else (high, first.shape[1]))):
                what = f"the columns of {layout.rows}" if beside else "their"
                raise VerifyException(f"expected fragments that differ in {what} rows only, got {other} and {first}")
        if part != source.with_shape(*part.shape):
            raise VerifyException(f"expected only the shape to change, got {source} to {part}")
        if len(self.at) != 2 or self.at[0] % layout.rows or self.at[1] % layout.columns:
            raise VerifyException(f"expected offsets in whole {layout.rows}x{layout.columns} tiles, got {self.at}")
        if any(o < 0 or o + p > s for o, p, s in zip(self.at, part.shape, source.shape, strict=True)):
            raise VerifyException(f"expected a part of {source}, got {part} at {self.at}")


def _joined(parts: Sequence[SSAValue], columns: int) -> FragmentType:
    """The type of several fragments, of which so many columns are a part, as the first one lies."""
    heights, widths = zip(*(fragment_of(part).shape for part in parts), strict=True)
    beside = len(parts) > 1 and columns > widths[0]
    shape = (heights[0], sum(widths)) if beside else (sum(heights), widths[0])
    return fragment_of(parts[0]).with_shape(*shape)


def alike(kind: FragmentType, other: FragmentType) -> bool:
    """Whether fragments differ at most in the type of their elements."""
    return kind.shape == other.shape and kind.layout == other.layout and kind.with_element(other.element_type) == other


# Fragments that lie in memory as registers hold them: nothing has to be put together, or sent to other lanes.

WORD, BYTE_WORD = 32, 4
"""Bits and bytes of a word."""

VECTOR_BYTES = 16
"""The most that a lane moves at once."""

AXES = ("rows", "columns")
"""The dimensions of a fragment along which a vector in memory runs."""

ORDERS = ("vectors", "tiles")
"""The orders in which registers lie in memory; `LoadOp` says what they are."""


def register_bytes(fragment: FragmentType) -> int:
    """Bytes of each register of a fragment."""
    return max(BYTE_WORD, fragment.bits // BYTE)


def together(fragment: FragmentType) -> int:
    """Registers that a lane moves at once in the order `vectors`."""
    return math.gcd(fragment.registers, VECTOR_BYTES // register_bytes(fragment))


def fragment_bytes(fragment: FragmentType) -> int:
    """Bytes of a warp's registers of a fragment."""
    return LANES * fragment.registers * register_bytes(fragment)


def _verify_vectors(memory: Memory, fragment: FragmentType) -> None:
    element, shape, needed = element_row(memory.element_type), memory.get_shape(), fragment_bytes(fragment)
    if isinstance(memory.layout, SwizzleAttr):
        _verify_lines(memory, fragment)
        return
    if len(shape) != 2 or element is None or element.memory_bits < BYTE:
        raise VerifyException(f"expected memory of 2 dimensions and whole bytes, got {memory}")
    if 0 <= shape[1] * element.memory_bits // BYTE < needed:
        raise VerifyException(
            f"expected rows of at least {needed} bytes, a warp's registers of {fragment}, got {memory}"
        )


def _verify_lines(memory: Memory, fragment: FragmentType) -> None:
    """Checks that the lines of a swizzled tile hold the vectors of all threads, line after line."""
    element, (*_, lines, columns) = element_row(memory.element_type), memory.get_shape()
    line = 0 if element is None else columns * element.memory_bits // BYTE
    needed = fragment_bytes(fragment) * fragment.layout.data.threads // LANES
    is_line = isinstance(memory.layout, SwizzleAttr) and memory.layout.bytes == line
    if not is_line or lines * line < needed or together(fragment) * register_bytes(fragment) != VECTOR_BYTES:
        raise VerifyException(f"expected {needed} bytes of vectors in lines of a panel, for {fragment}, got {memory}")


def _verify_tiles(memory: Memory, fragment: FragmentType) -> None:
    element = element_row(memory.element_type)
    if element is None or element.bits != WORD or memory.get_shape()[-1] < LANES:
        raise VerifyException(f"expected memory of 32-bit words, {LANES} in a row, got {memory}")
    if not is_shared(memory):
        raise VerifyException(f"expected metadata in shared memory (memory space {SHARED_SPACE}), got {memory}")
    if any(bit.axis != "r" for bit in fragment.layout.data.warp):
        raise VerifyException(f"expected metadata of 16 rows for each warp, got {fragment}")
    if fragment.role.data != "meta" or fragment.tiles[1] != 1 or fragment.tile_registers != 1:
        raise VerifyException(f"expected a fragment of metadata, one base tile wide, got {fragment}")


def verify_registers(order: str, orders: Sequence[str], memory: Memory, fragment: FragmentType) -> None:
    """Checks memory that holds the registers of a fragment in one of the supported `orders`. Raises VerifyException if
    the element type differs, or rows are too short."""
    if order not in orders:
        raise VerifyException(f"expected registers in the order {' or '.join(orders)}, got '{order}'")
    if order == "vectors":
        _verify_vectors(memory, fragment)
    else:
        _verify_tiles(memory, fragment)


# How fragments are made of the matrices that `ldmatrix`, `stmatrix` and `movmatrix` move.
#
# Source: PTX ISA 9.7.14.5.15 to 9.7.14.5.17.

MoveRow: TypeAlias = LoadMatrix | StoreMatrix
Row = TypeVar("Row", LoadMatrix, StoreMatrix)

ROW_BITS = 128
"""A matrix's row in memory is 16 bytes."""


class Matrix(NamedTuple):
    """One matrix of a fragment: the row and column in memory of its first element, and the fragment's registers. Bit i
    of the number of a row of the matrix is bit `rows[i]` of the row in memory: each row has an address of its own, so a
    matrix may be made of rows that do not follow each other."""

    row: int
    column: int
    registers: tuple[int, ...]
    rows: tuple[int, ...]


def unit(row: MoveRow, bits: int) -> Layout:
    """The layout of one matrix over memory, in elements of `bits` bits."""
    if row.type == "b16" and not row.transpose:
        return multiplicand(8, ROW_BITS // bits, bits)
    return _cut(row.layout, 16 // bits) if row.type == "b16" else row.layout


def _cut(layout: Layout, parts: int) -> Layout:
    """The layout in which each element is replaced by `parts` elements of a row."""
    finer = parts.bit_length() - 1
    lane, element = (
        tuple(column(bit.number + finer) if bit.axis == "c" else bit for bit in half)
        for half in (layout.lane, layout.element)
    )
    return Layout(lane, (*map(column, range(finer)), *element))


def matrices(fragment: FragmentType, swapped: bool, piece: Layout) -> list[Matrix] | None:
    """The matrices of layout `piece` that a fragment consists of, in the order of their first registers. None if the
    fragment is not made of such matrices."""
    layout, per = in_memory(fragment, swapped), max(1, 32 // fragment.bits)
    rows = _rows_of(layout, piece, per.bit_length() - 1)
    if rows is None:
        return None
    places = _register_places(fragment, swapped, per)
    free = {place: number for number, place in enumerate(places)}
    inner = [piece.element_offset(e) for e in range(0, piece.elements, per)]
    matrices_: list[Matrix] = []
    for row, across in places:
        if (row, across) in free:
            registers = [free.pop((row + _spread(r, rows), across + c), None) for r, c in inner]
            if None in registers:
                return None
            matrices_.append(Matrix(row, across, tuple(n for n in registers if n is not None), rows))
    return matrices_


def _rows_of(layout: Layout, piece: Layout, leading: int) -> tuple[int, ...] | None:
    """The bit of the row in memory for each bit of a matrix's row; None if lanes or registers differ otherwise.
    `leading` is the number of bits that number the elements of a register."""
    number_of: dict[int, int] = {}
    pairs = zip((*layout.lane, *layout.element[:leading]), (*piece.lane, *piece.element[:leading]), strict=False)
    for ours, theirs in pairs:
        if ours.axis != theirs.axis or (ours.axis != "r" and ours != theirs):
            return None
        if ours.axis == "r":
            number_of[theirs.number] = ours.number
    if len(layout.element) < leading:
        return None
    rows = tuple(number_of.get(i, i) for i in range(piece.rows.bit_length() - 1))
    return rows if len({*rows}) == len(rows) else None


def _spread(number: int, places: tuple[int, ...]) -> int:
    """The number whose bit `places[i]` is bit i of `number`."""
    return sum((number >> i & 1) << place for i, place in enumerate(places))


def _register_places(fragment: FragmentType, swapped: bool, per: int) -> list[tuple[int, int]]:
    """The position of each register's first element in memory, relative to the lane's own position."""
    places = places_of(fragment.layout.data, fragment.tiles, per)
    return [(column, row) for row, column in places] if swapped else places


def _verify_matrices(row: MoveRow, fragment: FragmentType, swapped: bool) -> None:
    """Checks that a fragment consists of the instruction's matrices. Raises VerifyException with both layouts, and
    whether `trans` or `swapped` would help."""
    piece, layout = unit(row, fragment.bits), in_memory(fragment, swapped)
    if matrices(fragment, swapped, piece) is not None:
        return
    other = "without" if row.transpose else "with"
    swap = "without" if swapped else "with"
    holds = "the fragment" if swapped else "the transpose of the fragment"
    hint = f"; try {other} trans, or {swap} swapped if memory holds {holds}"
    if layout.lane != piece.transposed().lane:
        hint = ""
    verb = "delivers" if isinstance(row, LoadMatrix) else "takes"
    raise VerifyException(
        f"{row.spelling} {verb} {piece.rows}x{piece.columns} matrices in layout [{piece}], the fragment over memory is "
        f"[{layout}]{hint}"
    )


PACKED = {"b6x16_p32": 6, "b4x16_p64": 4}
"""The packed formats of memory, and the bits of their elements."""


@dataclass(frozen=True)
class MatrixMove:
    """The matrices that one instruction moves, and how: the `matrices` of `warp.load` and `warp.store`. `count` is 1, 2
    or 4. With `b16`, what is transposed are pieces of 16 bits, whatever the elements. `packed` is a packed format, or
    empty."""

    count: int
    trans: bool
    b16: bool
    packed: str

    @staticmethod
    def of(text: str) -> MatrixMove:
        """Reads "x4", "x2.trans", "x4.trans.b16" or "x2.b6x16_p32". Raises VerifyException for other text."""
        count, *words = text.split(".")
        packed = next((word for word in words if word in PACKED), "")
        suffixes = [word for word in ("trans", "b16", packed) if word and word in words]
        if re.fullmatch(r"x\d+", count) is None or suffixes != words:
            raise VerifyException(
                f"expected x1, x2 or x4 matrices, then .trans, .b16 or .{', .'.join(PACKED)}, got '{text}'"
            )
        return MatrixMove(int(count[1:]), "trans" in words, "b16" in words, packed)

    def __str__(self) -> str:
        words = (f"x{self.count}", "trans" * self.trans, "b16" * self.b16, self.packed)
        return ".".join(filter(None, words))

    def loads(self, bits: int) -> tuple[LoadMatrix, ...]:
        """The forms of `ldmatrix` that may load elements of `bits` bits: `count` matrices or fewer, widest first.
        Raises VerifyException if there is none of `count` matrices."""
        if self.b16 and (bits > 16 or self.packed):
            raise VerifyException(f"b16 is for elements of at most 16 bits, unpacked, got {bits} bits")
        type = "b8x16" if self.packed else self._type("ldmatrix", 16 if self.b16 else bits)
        rows = having(load_rows, space=SHARED, type=type, source=self.packed, transpose=self.trans)
        return self._fitting("ldmatrix loads", rows)

    def stores(self, bits: int) -> tuple[StoreMatrix, ...]:
        """The forms of `stmatrix` that may store elements of `bits` bits: `count` matrices or fewer, widest first.
        Raises VerifyException if there is none of `count` matrices."""
        if self.b16 or self.packed:
            raise VerifyException(f"stmatrix has no {self.packed or 'b16'}: it stores elements as they are")
        type = self._type("stmatrix", bits)
        rows = having(store_rows, space=SHARED, type=type, transpose=self.trans)
        return self._fitting("stmatrix stores", rows)

    def _type(self, instruction: str, bits: int) -> str:
        """The `.type`: without `.trans` rows of 16 bytes move as they are, whatever is in them."""
        if not self.trans or bits == 16:
            return "b16"
        if bits != 8:
            raise VerifyException(f"{instruction} with trans moves elements of 8 or 16 bits, got {bits}")
        return "b8"

    def _fitting(self, what: str, rows: tuple[Row, ...]) -> tuple[Row, ...]:
        fitting = tuple(sorted((row for row in rows if row.count <= self.count), key=lambda row: -row.count))
        if not fitting or fitting[0].count != self.count:
            *few, last = sorted(row.count for row in rows)
            raise VerifyException(f"{what} {', '.join(map(str, few))} or {last} matrices, got {self.count}")
        return fitting


def verify_matrix_move(move: MatrixMove, memory: Memory, fragment: FragmentType, swapped: bool, *, loads: bool) -> Form:
    """Checks that `ldmatrix` loads a fragment from memory, or `stmatrix` stores it, and returns the widest form that
    does. Raises VerifyException if it does not."""
    _verify_memory("ldmatrix reads" if loads else "stmatrix writes", memory, fragment)
    if loads:
        _verify_packed(move.packed, memory, fragment)
    form = move.loads(fragment.bits)[0] if loads else move.stores(fragment.bits)[0]
    _verify_matrices(form, fragment, swapped)
    return form


def _verify_memory(what: str, memory: Memory, fragment: FragmentType) -> None:
    """Checks the memory of a matrix move. Elements that an instruction takes as bytes are bytes in memory."""
    if fragment.bits == fragment.element.bits:
        verify_element(memory, fragment)
    elif (stored := element_row(memory.element_type)) is None or stored.memory_bits != fragment.bits:
        raise VerifyException(
            f"expected memory of bytes for {fragment.element.name} in bytes, got {memory.element_type}"
        )
    if not is_shared(memory):
        raise VerifyException(f"{what} shared memory (memory space {SHARED_SPACE}), got {memory}")


def _verify_packed(packed: str, memory: Memory, fragment: FragmentType) -> None:
    """Checks the elements of a packed format, which get a byte each."""
    element = fragment.element
    if not packed:
        return
    if element.bits != PACKED[packed] or fragment.bits == element.bits:
        raise VerifyException(f"{packed} is of elements of {PACKED[packed]} bits that get a byte each, got {fragment}")
    if (stored := element_row(memory.element_type)) is None or stored.bits != fragment.bits:
        raise VerifyException(f"expected memory of bytes for {element.name} in {packed}, got {memory.element_type}")
