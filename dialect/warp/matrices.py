"""Fragments in shared memory that `ldmatrix` and `stmatrix` move: `warp.ldmatrix`, `warp.stmatrix`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, TypeAlias, TypeVar

from xdsl.dialects.builtin import IntegerAttr, StringAttr, UnitAttr, i64
from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, opt_prop_def, prop_def
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    ParsingState,
    PrintingState,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from ..isa import moves
from ..isa.form import having
from ..isa.moves import LoadMatrix, StoreMatrix
from ..layouts.layout import Layout, column, multiplicand
from .attributes import SHARED_SPACE, FragmentType, Memory, element_row, fragment_of, memory_of, memory_space
from .memory import in_memory, verify_element, verify_indices
from .op_shapes import BareWord, FragmentLoad, FragmentStore, flag, verify_target

# How fragments are made of the matrices that `ldmatrix`, `stmatrix` and `movmatrix` move.
#
# Source: PTX ISA 9.7.14.5.15 to 9.7.14.5.17.

MoveRow: TypeAlias = LoadMatrix | StoreMatrix
Row = TypeVar("Row", LoadMatrix, StoreMatrix)

ROW_BITS = 128
"""A matrix's row in memory is 16 bytes."""


class Matrix(NamedTuple):
    """One matrix of a fragment: the row and column in memory of its first element, and the fragment's registers.

    Bit i of the number of a row of the matrix is bit `rows[i]` of the row in memory: each row has an address of its
    own, so a matrix may be made of rows that do not follow each other.
    """

    row: int
    column: int
    registers: tuple[int, ...]
    rows: tuple[int, ...]


def _type(instruction: str, bits: int, transpose: bool) -> str:
    """The `.type`: without `.trans` rows of 16 bytes move as they are, whatever is in them."""
    if not transpose or bits == 16:
        return "b16"
    if bits != 8:
        raise VerifyException(f"{instruction} with trans moves elements of 8 or 16 bits, got {bits}")
    return "b8"


def load_rows(bits: int, transpose: bool, count: int, source: str) -> tuple[LoadMatrix, ...]:
    """The forms of `ldmatrix` for elements of `bits` bits, of `count` matrices or fewer: widest first.

    Raises:
        VerifyException: if there is none of `count` matrices.
    """
    type = "b8x16" if source else _type("ldmatrix", bits, transpose)
    rows = having(moves.load_rows, space=moves.SHARED, type=type, source=source, transpose=transpose)
    return _up_to("ldmatrix loads", count, rows)


def store_rows(bits: int, transpose: bool, count: int) -> tuple[StoreMatrix, ...]:
    """The forms of `stmatrix` for elements of `bits` bits, of `count` matrices or fewer: widest first.

    Raises:
        VerifyException: if there is none of `count` matrices.
    """
    type = _type("stmatrix", bits, transpose)
    rows = having(moves.store_rows, space=moves.SHARED, type=type, transpose=transpose)
    return _up_to("stmatrix stores", count, rows)


def _up_to(what: str, count: int, rows: tuple[Row, ...]) -> tuple[Row, ...]:
    fitting = tuple(sorted((row for row in rows if row.count <= count), key=lambda row: -row.count))
    if not fitting or fitting[0].count != count:
        *few, last = sorted(row.count for row in rows)
        raise VerifyException(f"{what} {', '.join(map(str, few))} or {last} matrices, got {count}")
    return fitting


def unit(row: MoveRow, bits: int) -> Layout:
    """The layout of one matrix over memory, in elements of `bits` bits."""
    if row.type == "b16" and not row.transpose:
        return multiplicand(8, ROW_BITS // bits, bits)
    return _cut(row.layout, 16 // bits) if row.type == "b16" else row.layout


def _cut(layout: Layout, parts: int) -> Layout:
    """The layout of what each element is made of, `parts` of them side by side in a row."""
    finer = parts.bit_length() - 1
    lane, element = (
        tuple(column(bit.number + finer) if bit.axis == "c" else bit for bit in half)
        for half in (layout.lane, layout.element)
    )
    return Layout(lane, (*map(column, range(finer)), *element))


def matrices(fragment: FragmentType, swapped: bool, piece: Layout) -> list[Matrix] | None:
    """The matrices of layout `piece` that a fragment consists of, in the order of their first registers.

    None if the fragment is not made of such matrices.
    """
    layout, per = in_memory(fragment, swapped), max(1, 32 // fragment.bits)
    rows = _rows_of(layout, piece, per.bit_length() - 1)
    if rows is None:
        return None
    places = _register_places(fragment, swapped, per)
    free = {place: number for number, place in enumerate(places)}
    inner = [piece.element_offset(e) for e in range(0, piece.elements, per)]
    found: list[Matrix] = []
    for row, across in places:
        if (row, across) in free:
            held = [free.pop((row + _spread(r, rows), across + c), None) for r, c in inner]
            if None in held:
                return None
            found.append(Matrix(row, across, tuple(n for n in held if n is not None), rows))
    return found


def _rows_of(layout: Layout, piece: Layout, leading: int) -> tuple[int, ...] | None:
    """Which bit of the row in memory each bit of a matrix's row is; None if lanes or registers hold something else.

    `leading` is how many bits number the elements of a register.
    """
    found: dict[int, int] = {}
    pairs = zip((*layout.lane, *layout.element[:leading]), (*piece.lane, *piece.element[:leading]), strict=False)
    for ours, theirs in pairs:
        if ours.axis != theirs.axis or (ours.axis != "r" and ours != theirs):
            return None
        if ours.axis == "r":
            found[theirs.number] = ours.number
    if len(layout.element) < leading:
        return None
    rows = tuple(found.get(i, i) for i in range(piece.rows.bit_length() - 1))
    return rows if len({*rows}) == len(rows) else None


def _spread(number: int, places: tuple[int, ...]) -> int:
    """The number whose bit `places[i]` is bit i of `number`."""
    return sum((number >> i & 1) << place for i, place in enumerate(places))


def _register_places(fragment: FragmentType, swapped: bool, per: int) -> list[tuple[int, int]]:
    """What each register's first element adds to a lane's own position in memory, register by register."""
    layout, (down, across) = fragment.layout.data, fragment.tiles
    offsets = [layout.element_offset(e) for e in range(0, layout.elements, per)]
    places = [
        (i * layout.rows + row, j * layout.columns + column)
        for i in range(down)
        for j in range(across)
        for row, column in offsets
    ]
    return [(column, row) for row, column in places] if swapped else places


def verify_matrices(row: MoveRow, verb: str, fragment: FragmentType, swapped: bool) -> None:
    """Checks that a fragment consists of the instruction's matrices.

    Raises:
        VerifyException: with both layouts, and whether `trans` or `swapped` would help.
    """
    piece, layout = unit(row, fragment.bits), in_memory(fragment, swapped)
    if matrices(fragment, swapped, piece) is not None:
        return
    other = "without" if row.transpose else "with"
    swap = "without" if swapped else "with"
    holds = "the fragment" if swapped else "the transpose of the fragment"
    hint = f"; try {other} trans, or {swap} swapped if memory holds {holds}"
    if layout.lane != piece.transposed().lane:
        hint = ""
    raise VerifyException(
        f"{row.spelling} {verb} {piece.rows}x{piece.columns} matrices in layout [{piece}], the fragment over memory is "
        f"[{layout}]{hint}"
    )


# The operations: `warp.ldmatrix`, `warp.stmatrix`.


def verify_shared_matrix(what: str, memory: Memory, indices: Sequence[SSAValue], fragment: FragmentType) -> None:
    """Checks the memory that matrices are moved from or to; elements that have a byte each lie in memory as bytes."""
    verify_indices("the memref", memory, indices)
    if fragment.bits == fragment.element.bits:
        verify_element(memory, fragment)
    elif (held := element_row(memory.element_type)) is None or held.memory_bits != fragment.bits:
        raise VerifyException(
            f"expected memory of bytes for {fragment.element.name} in bytes, got {memory.element_type}"
        )
    if memory_space(memory) != SHARED_SPACE:
        raise VerifyException(f"{what} shared memory (memory space {SHARED_SPACE}), got {memory}")


@irdl_custom_directive
class MatrixCount(CustomDirective):
    """The text of a number of matrices: `x4`."""

    count: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        word = parser.parse_keyword_in(("x1", "x2", "x4"), " as the number of matrices")
        self.count.set(state, IntegerAttr(int(word[1:]), i64))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        if isinstance(count := self.count.get(op), IntegerAttr):
            state.print_whitespace(printer)
            printer.print_string(f"x{count.value.data}")
            state.should_emit_space = True


@irdl_op_definition
class LdmatrixOp(FragmentLoad):
    """Reads a fragment from shared memory with `ldmatrix`, `count` matrices at a time::

        %a = warp.ldmatrix x4 %As[%s, %m, %k] : memref<4x128x64xf16, #warp.swizzle<128>, 3> -> !warp.fragment<a, ...>
        %b = warp.ldmatrix x4 trans %Bs[%stage, %k, %n] : memref<...> -> !warp.fragment<b, ...>
        %b = warp.ldmatrix x4 trans b16 %Bs[%k, %n] : memref<...xi8, 3> -> !warp.fragment<b, ...>
        %b = warp.ldmatrix x2 swapped b6x16_p32 %Bs[%n, %k] : memref<...xi8, 3> -> !warp.fragment<b, ..., bytes>

    If `count` does not divide the number of matrices of the fragment, the last load is narrower. `trans` is the
    instruction's qualifier. With `swapped`, memory holds the transpose of the fragment, so the rows of memory run along
    the fragment's columns.

    - Without `trans`, a matrix is 8 rows of 16 bytes, whatever the element type.
    - With `trans`, elements of 16 bits move in 8x8 matrices, and elements of 8 bits in 16x16 matrices.
    - With `trans b16`, narrower elements move in 8x8 matrices of 16-bit pieces. Neighbours in a row then stay together,
      and `warp.convert_layout` separates them.
    - With a packed format, `b6x16_p32` or `b4x16_p64`, 16 bytes of memory hold 16 elements of 6 or 4 bits, followed by
      padding. The fragment gets one byte for each element.

    The rows of a matrix may be at any addresses: the layout of a fragment may have other bits of the row in place of
    bits 0 to 2.

    Source: PTX ISA 9.7.14.5.15.
    """

    name = "warp.ldmatrix"

    count = prop_def(IntegerAttr[i64])
    trans = opt_prop_def(UnitAttr)
    b16 = opt_prop_def(UnitAttr)
    swapped = opt_prop_def(UnitAttr)
    packed = opt_prop_def(StringAttr)

    custom_directives: ClassVar = (MatrixCount, BareWord)
    assembly_format = (
        "custom<MatrixCount>($count) (`trans` $trans^)? (`b16` $b16^)? (`swapped` $swapped^)? custom<BareWord>($packed)"
        " $memory `[` $indices `]` attr-dict `:` type($memory) `->` type($fragment)"
    )
    FORMATS: ClassVar = {"b6x16_p32": 6, "b4x16_p64": 4}

    def __init__(
        self,
        memory: SSAValue,
        indices: Sequence[SSAValue],
        fragment: FragmentType,
        *,
        count: int = 4,
        trans: bool = False,
        b16: bool = False,
        swapped: bool = False,
        packed: str = "",
    ):
        flags = {"trans": flag(trans), "b16": flag(b16), "swapped": flag(swapped)}
        given = {"count": IntegerAttr(count, i64), "packed": StringAttr(packed) if packed else None}
        super().__init__(memory, indices, fragment, flags | given)

    def rows(self) -> tuple[LoadMatrix, ...]:
        """The ISA's rows that may be used: `count` matrices or fewer, widest first."""
        packed = "" if self.packed is None else self.packed.data
        bits = fragment_of(self.fragment).bits
        if self.b16 is not None:
            if bits > 16 or packed:
                raise VerifyException(f"b16 is for elements of at most 16 bits, unpacked, got {bits} bits")
            bits = 16
        return load_rows(bits, self.trans is not None, self.count.value.data, packed)

    def in_memory(self) -> Layout:
        """The fragment's layout over the rows and columns of memory."""
        return in_memory(fragment_of(self.fragment), self.swapped is not None)

    def verify_(self) -> None:
        memory, fragment = memory_of(self.memory), fragment_of(self.fragment)
        verify_shared_matrix("ldmatrix reads", memory, self.indices, fragment)
        self._verify_packed(memory, fragment)
        row = self.rows()[0]
        verify_matrices(row, "delivers", fragment, self.swapped is not None)
        verify_target(self, row)

    def _verify_packed(self, memory: Memory, fragment: FragmentType) -> None:
        if self.packed is None:
            return
        packed, element = self.packed.data, fragment.element
        if packed not in self.FORMATS:
            raise VerifyException(f"expected a packed format of {', '.join(self.FORMATS)}, got '{packed}'")
        if element.bits != self.FORMATS[packed] or fragment.bits == element.bits:
            raise VerifyException(
                f"{packed} is of elements of {self.FORMATS[packed]} bits that get a byte each, got {fragment}"
            )
        if (held := element_row(memory.element_type)) is None or held.bits != fragment.bits:
            raise VerifyException(f"expected memory of bytes for {element.name} in {packed}, got {memory.element_type}")


@irdl_op_definition
class StmatrixOp(FragmentStore):
    """Writes a fragment to shared memory with `stmatrix`, `count` matrices at a time::

        warp.stmatrix x4 %d, %Ds[%m, %n] : !warp.fragment<acc, ...>, memref<128x64xf16, #warp.swizzle<128>, 3>
        warp.stmatrix x2 trans %d, %Ds[%n, %m] : ...

    The words are those of `warp.ldmatrix`. With `trans`, elements of 16 bits move in 8x8 matrices and those of 8 bits
    in matrices that are 8x16 in memory.

    Source: PTX ISA 9.7.14.5.16.
    """

    name = "warp.stmatrix"

    count = prop_def(IntegerAttr[i64])
    trans = opt_prop_def(UnitAttr)
    swapped = opt_prop_def(UnitAttr)

    custom_directives: ClassVar = (MatrixCount,)
    assembly_format = (
        "custom<MatrixCount>($count) (`trans` $trans^)? (`swapped` $swapped^)? $fragment `,` $memory `[` $indices `]`"
        " attr-dict `:` type($fragment) `,` type($memory)"
    )

    def __init__(
        self,
        fragment: SSAValue,
        memory: SSAValue,
        indices: Sequence[SSAValue],
        *,
        count: int = 4,
        trans: bool = False,
        swapped: bool = False,
    ):
        given = {"count": IntegerAttr(count, i64), "trans": flag(trans), "swapped": flag(swapped)}
        super().__init__(fragment, memory, indices, given)

    def rows(self) -> tuple[StoreMatrix, ...]:
        """The ISA's rows that may be used: `count` matrices or fewer, widest first."""
        return store_rows(fragment_of(self.fragment).bits, self.trans is not None, self.count.value.data)

    def verify_(self) -> None:
        memory, fragment = memory_of(self.memory), fragment_of(self.fragment)
        verify_shared_matrix("stmatrix writes", memory, self.indices, fragment)
        row = self.rows()[0]
        verify_matrices(row, "takes", fragment, self.swapped is not None)
        verify_target(self, row)
