"""What becomes of a fragment: `warp.convert`, other elements; `warp.convert_layout`, another layout; `warp.reduce` and
`warp.scan`, its rows taken together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import (
    DenseArrayBase,
    Float8E4M3FNType,
    FloatAttr,
    IntegerAttr,
    MemRefType,
    StringAttr,
    UnitAttr,
    f32,
    f64,
    i64,
)
from xdsl.ir import Operation, SSAValue, TypeAttribute
from xdsl.irdl import operand_def, opt_operand_def, opt_prop_def, prop_def, result_def, traits_def
from xdsl.traits import EffectInstance, MemoryEffect, MemoryEffectKind, Pure
from xdsl.utils.exceptions import VerifyException

from ..layouts.layout import LANES, Bit, Layout, column, permuted, row
from ..mlir.words import irdl_op_definition
from .attributes import BYTE, FragmentType, Memory, element_row, fragment_of, is_shared, memory_of
from .fragments import Kind, KindAttr
from .op_shapes import WarpOp
from .stored import StoredIntegers

if TYPE_CHECKING:
    from .conversions import Conversion


@irdl_op_definition
class ConvertOp(WarpOp):
    """Converts each element to another type, rounding to nearest even: `%h = warp.convert %f : ... to ...`. Of 8-bit
    floats the largest stands for finite numbers beyond it.

    Integers of 8 and 4 bits, minus a zero point, become f16 or bf16 exactly. This may change the order of the elements
    of a lane::

        %b = warp.convert %w {stored = "u4", zero = 8 : i64} : !warp.fragment<b, 16x8xi4, ...> to ...

    Where four lanes have copies of the same integers of 4 bits, each may convert a byte of every word, by its number
    among them::

        %a = warp.convert %w {stored = "s4"} : !warp.fragment<a, 64x32xi4, [x0 x1 r0 r1 r2 | c0 c1 c2 c3 c4 r3 | r4 r5]>
                                            to !warp.fragment<a, 64x32xbf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>

    With `powers`, an element x of f32 becomes 2^(factor x + b) as e4m3, with b that of its row; the exponent is at most
    9::

        %p = warp.convert %s powers %b {factor = 1.275000e-01 : f32}
          : !warp.fragment<a, 64x256xf32, ...>, !warp.fragment<acc, 64x1xf32, ...>
          to !warp.fragment<a, 64x256xf8E4M3FN, ...>

    Of eight registers of the result, five are made by `ex2.approx.ftz` from f32, three by a polynomial in f16, whose
    relative error is below 2^-6.9 (rounding to e4m3 has 2^-4); what is below 2^-10.5 is 0 there. Its multiply-adds run
    beside the exponentials, of which a multiprocessor computes 16 a cycle.
    """

    name = "warp.convert"

    input = operand_def(FragmentType)
    exponents = opt_operand_def(FragmentType)
    fragment = result_def(FragmentType)
    stored = opt_prop_def(StringAttr)
    zero = opt_prop_def(IntegerAttr)
    factor = opt_prop_def(FloatAttr)

    traits = traits_def(Pure())
    assembly_format = (
        "$input (`powers` $exponents^)? attr-dict `:` type($input) (`,` type($exponents)^)? `to` type($fragment)"
    )

    def __init__(
        self,
        value: SSAValue,
        element_type: TypeAttribute,
        stored: StoredIntegers | None = None,
        layout: Layout | None = None,
        exponents: SSAValue | None = None,
        factor: float | None = None,
    ):
        kind = fragment_of(value).with_element(element_type)
        kind = kind if layout is None else kind.with_layout(layout)
        properties = {} if stored is None else stored.properties()
        factor_ = None if factor is None else FloatAttr(factor, f32)
        super().__init__(value, exponents, kind, **properties, factor=factor_)

    @property
    def integers(self) -> StoredIntegers | None:
        """The stored integers of the input; None if the input has no integers."""
        return None if self.stored is None else StoredIntegers.of(self.stored, self.zero)

    @property
    def order(self) -> list[int]:
        """Which element of the input each element of a lane is."""
        source, result = fragment_of(self.input), fragment_of(self.fragment)
        bits = self._reordered(source, result) or ()
        places, size = range(1 << len(bits)), source.layout.data.elements
        tile = [sum((place >> i & 1) << bit for i, bit in enumerate(bits)) for place in places]
        return [first + place for first in range(0, math.prod(source.tiles) * size, size) for place in tile]

    @property
    def by_bytes(self) -> bool:
        """Whether each of four lanes with the same integers converts a byte of every word."""
        return any(bit.axis == "x" for bit in fragment_of(self.input).layout.data.lane)

    @staticmethod
    def _reordered(source: FragmentType, result: FragmentType) -> list[int] | None:
        """The input's bit for each bit of the result's element number; None if lanes hold other elements."""
        held_as, wanted = source.layout.data, result.layout.data
        # Tiles of the result that follow each other in one of the input are numbered on.
        more = range(wanted.columns.bit_length() - 1, held_as.columns.bit_length() - 1)
        elements = (*wanted.element, *map(column, more))
        chosen = [to for of, to in zip(held_as.lane, wanted.lane, strict=True) if of.axis == "x"]
        lane = tuple(to if of.axis == "x" else of for of, to in zip(held_as.lane, wanted.lane, strict=True))
        by_bytes = source.bits == 4 and [column(0), *chosen] == [*held_as.element[:3]] == [*map(column, range(3))]
        if (chosen and not by_bytes) or (more and source.tiles[0] > 1):
            return None
        all_bits = sorted((*elements, *chosen))
        if (lane, held_as.warp, sorted(held_as.element)) != (wanted.lane, wanted.warp, all_bits):
            return None
        return [held_as.element.index(bit) for bit in elements]

    def verify_(self) -> None:
        source, result = fragment_of(self.input), fragment_of(self.fragment)
        if self.integers is not None:
            self.integers.verify(result.element.name, source.element)
            source = source if self._reordered(source, result) is None else source.with_layout(result.layout.data)
        if source.with_element(result.element_type) != result:
            raise VerifyException(f"expected only the element type to change, got {source} to {result}")
        if (self.exponents is None) != (self.factor is None):
            raise VerifyException("expected the exponents of rows and a factor, or neither")
        if self.exponents is None:
            return
        if source.element_type != f32 or result.element_type != Float8E4M3FNType():
            raise VerifyException(f"expected powers of f32 as f8E4M3FN, got {source} to {result}")
        if (kind := fragment_of(self.exponents)).element_type != f32 or kind.shape[0] != source.shape[0]:
            raise VerifyException(f"expected f32 for each of {source.shape[0]} rows, got {kind}")


# `warp.convert_layout`: the same matrix with its elements in other places of the warp's registers.


class ScratchEffects(MemoryEffect):
    """Effects of an operation that reads and writes its scratch memory, if it has some."""

    @classmethod
    def get_effects(cls, op: Operation) -> set[EffectInstance]:
        through_memory = isinstance(op, ConvertLayoutOp) and op.scratch is not None
        return {EffectInstance(kind) for kind in (MemoryEffectKind.READ, MemoryEffectKind.WRITE) if through_memory}


@irdl_op_definition
class ConvertLayoutOp(WarpOp):
    """Converts a fragment to another layout, and to another role if the type of the result has one::

        %a = warp.convert_layout %p : !warp.fragment<acc, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3]>
                                   to !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>

        %b = warp.convert_layout %raw : !warp.fragment<b, 32x16xi8, [r2 r3 c1 c2 c3 | c0 r1 r0 r4]>
                                     to !warp.fragment<b, 32x16xi8, [r2 r3 c1 c2 c3 | r0 r1 r4 c0]>

    `Conversion` (`dialect/warp/conversions.py`) chooses the cheapest way: another order of registers, which needs no
    instruction, moves within lanes, `movmatrix`, or shuffles between lanes.

    With `columns`, bit i of the number of a column becomes bit `columns[i]`, as in `columns = [0, 2, 3, 1]`; bits that
    are not named stay.

    With `via`, elements go through scratch memory, which has a row for each warp of the CTA, as large as its part of
    the fragment; several warps that hold one together keep their rows of it::

        %rows = warp.convert_layout %acc via %s : !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>
          via memref<8x1024xf32, 3> to !warp.fragment<acc, 16x64xf32, [c2 c3 c4 c5 r0 | c0 c1 r1 r2 r3]>

    The lanes of a warp wait for each other before they write, and again before they read. They do not wait for other
    warps. Elements have 16, 32 or 64 bits, and the base tile of the result is a multiple of the operand's.
    """

    name = "warp.convert_layout"

    input = operand_def(FragmentType)
    fragment = result_def(FragmentType)
    scratch = opt_operand_def(MemRefType)
    columns = opt_prop_def(DenseArrayBase.constr(i64))

    traits = traits_def(ScratchEffects())
    assembly_format = (
        "$input (`via` $scratch^)? attr-dict `:` type($input) custom<TypeOfOptional>(`via`, type($scratch))"
        " `to` type($fragment)"
    )

    @staticmethod
    def to(
        value: SSAValue, layout: Layout, scratch: SSAValue | None = None, columns: Sequence[int] = ()
    ) -> ConvertLayoutOp:
        """The same fragment in another layout."""
        return ConvertLayoutOp(value, fragment_of(value).with_layout(layout), scratch, columns)

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of the smallest tile that both base tiles divide."""
        layouts = [fragment_of(value).layout.data for value in (self.input, self.fragment)]
        return max(layout.rows for layout in layouts), max(layout.columns for layout in layouts)

    def conversion(self) -> Conversion:
        """The conversions from one layout to the other, for a tile. Raises VerifyException if there are none."""
        from .conversions import LayoutMismatchError, convert

        source, result = fragment_of(self.input), fragment_of(self.fragment)
        if source.layout.data.warp != result.layout.data.warp:
            raise VerifyException(f"expected the warps to keep their rows, got {source} to {result}")
        try:
            before, after = (_of_a_warp(kind.layout.data, self.tile) for kind in (source, result))
            if self.columns is not None:
                rows, columns = (range(size.bit_length() - 1) for size in (before.rows, before.columns))
                named = self.columns.get_values()
                before = permuted(before, rows, (*named, *columns[len(named) :]))
            # A register of 64 bits moves as a whole.
            return convert(before, after, min(source.bits, 32))
        except (LayoutMismatchError, KeyError, IndexError, ValueError) as error:
            raise VerifyException(str(error)) from None

    def verify_(self) -> None:
        source, result = fragment_of(self.input), fragment_of(self.fragment)
        if any(size % step for size, step in zip(source.shape, self.tile, strict=True)):
            raise VerifyException(f"expected whole tiles of {self.tile[0]}x{self.tile[1]}, got {source} to {result}")
        if (source.shape, source.element_type, source.bits) != (result.shape, result.element_type, result.bits):
            raise VerifyException(f"expected only the layout and the operand to change, got {source} to {result}")
        if self.scratch is None:
            self.conversion()
        else:
            _verify_scratch(source, result, memory_of(self.scratch))

    def registers(self, kind: FragmentType) -> Iterator[tuple[int, ...]]:
        """For each tile, row by row of tiles: the numbers of the registers that hold it of a fragment of this type."""
        (rows, columns), layout, (_, across) = self.tile, kind.layout.data, kind.tiles
        down, wide = rows // layout.rows, columns // layout.columns
        for top in range(0, kind.tiles[0], down):
            for left in range(0, across, wide):
                tiles = ((top + i) * across + left + j for i in range(down) for j in range(wide))
                yield tuple(tile * kind.tile_registers + i for tile in tiles for i in range(kind.tile_registers))


def _of_a_warp(base: Layout, tile: tuple[int, int]) -> Layout:
    """The layout of one warp's part of a tile, its bits of rows and columns numbered on without those of the warp."""
    from .conversions import tiled

    layout = tiled(base, tile[0] // base.rows, tile[1] // base.columns)
    if not layout.warp:
        return layout
    bits_ = (*layout.lane, *layout.element)
    own = (sorted(bit for bit in bits_ if bit.axis == axis) for axis in "rc")
    names = {bit: bit._replace(number=i) for bits in own for i, bit in enumerate(bits)}
    return Layout(tuple(names.get(b, b) for b in layout.lane), tuple(names.get(b, b) for b in layout.element))


WIDEST = 16
"""Bytes of the widest access of a lane."""

BANKS = 128
"""Bytes that shared memory moves at once; a warp's part of scratch memory is a multiple of it."""


def _verify_scratch(source: FragmentType, result: FragmentType, scratch: Memory) -> None:
    """Checks that a fragment can change its layout through scratch memory."""
    if source.bits not in (16, 32, 64):
        raise VerifyException(f"expected elements of 16, 32 or 64 bits, got {source.element.name}")
    for fragment in (source, result):
        if fragment.layout.data.warp != source.layout.data.warp:
            raise VerifyException(f"expected the warps to keep their rows, got {source} to {result}")
    before, after = source.layout.data, result.layout.data
    if after.rows % before.rows or after.columns % before.columns:
        raise VerifyException(
            f"expected base tiles of the result to consist of base tiles of the operand, got "
            f"{after.rows}x{after.columns} and {before.rows}x{before.columns}"
        )
    shape, element = scratch.get_shape(), element_row(scratch.element_type)
    needed = max(BANKS, (math.prod(source.shape) * source.bits // BYTE) >> len(before.warp))
    is_scratch = is_shared(scratch) and len(shape) == 2 and element is not None
    row_bytes = shape[-1] * element.bits // BYTE if is_scratch and element is not None else 0
    if row_bytes < needed or row_bytes % BANKS:
        raise VerifyException(
            f"expected shared memory with a row of {needed} bytes, or more in multiples of {BANKS}, for each warp, "
            f"got {scratch}"
        )


def in_lines(kind: FragmentType, aligned: int = BYTE * WIDEST) -> Layout:
    """The layout in which a warp's accesses to a row-major matrix are widest. A lane holds 16 bytes side by side, or as
    many elements as rows are `aligned` to, lanes follow each other along a row, then down. Where the columns are no
    power of two, their largest such part. Several warps keep their rows."""
    (rows, columns), bits, warp = kind.shape, kind.bits, kind.layout.data.warp
    down, across = ((size & -size).bit_length() - 1 for size in (rows, columns))
    lanes, down = LANES.bit_length() - 1, min(down, kind.layout.data.rows.bit_length() - 1) if warp else down
    rows_of_warp = [row(i) for i in range(down) if row(i) not in warp]
    own = min(min(aligned, BYTE * WIDEST // bits).bit_length() - 1, across, len(rows_of_warp) + across - lanes)
    further = [*(column(i) for i in range(own, across)), *rows_of_warp]
    return Layout(tuple(further[:lanes]), (*(column(i) for i in range(own)), *further[lanes:]), warp)


# Along the rows of fragments: `warp.reduce`.
#
# What a row gives is a column: a fragment of one column, whose layout says with the axis `x` which lanes hold the same
# element. A column of sums may still be in parts, one for each lane of a row::
#
#     c1 c2 r0 r1 r2 | c0 r3       a matrix: each row lies in four lanes
#     c0 c1 r0 r1 r2 | r3          what each lane makes of its own elements: four parts of a row
#     x0 x1 r0 r1 r2 | r3          what four lanes make of these: each of them has the whole

IDENTITIES = {
    Kind.Add: 0.0,
    Kind.Mul: 1.0,
    Kind.Max: -math.inf,
    Kind.Min: math.inf,
    Kind.Maximum: -math.inf,
    Kind.Minimum: math.inf,
}
"""What rows are taken together by, and the number that changes nothing."""

ROW_BITS = (32, 64)
"""Of the elements of a column."""


def column_layout(layout: Layout, *, parts: bool = False) -> Layout:
    """The layout of a vector with one value for each row. With `parts`, each lane has the value of its own elements."""

    def renamed(bits: tuple[Bit, ...]) -> Iterator[Bit]:
        counts = {"c": count(), "x": count()}
        for bit in bits:
            axis = bit.axis if bit.axis == "r" or (parts and bit.axis == "c") else "x"
            yield bit if axis == "r" else Bit(axis, next(counts[axis]))

    element = tuple(bit for bit in layout.element if bit.axis == "r")
    return Layout(tuple(renamed(layout.lane)), element, layout.warp)


def column_of(kind: FragmentType, *, parts: bool = False) -> FragmentType:
    """The type of what becomes of each row of a fragment."""
    layout = column_layout(kind.layout.data, parts=parts)
    return FragmentType.of(kind.role.data, kind.shape[0], layout.columns, kind.element_type, layout)


def is_column_of(kind: FragmentType, fragment: FragmentType) -> bool:
    """Whether a type is that of columns of a fragment, of elements that fill registers."""
    return kind.bits in ROW_BITS and kind == column_of(fragment.with_element(kind.element_type))


@irdl_op_definition
class ReduceOp(WarpOp):
    """Reduces each row of a fragment to one element, or to a partial result for each lane that has elements of the
    row::

        %m = warp.reduce max %s : !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>
                               to !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]>
        %l = warp.reduce add %p : ... to !warp.fragment<acc, 16x4xf32, [c0 c1 r0 r1 r2 | r3]>
        %sum = warp.reduce add %l : ... to !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]>

    Elements have 32 or 64 bits. Each lane combines the first and the second half of its elements, then the halves of
    the result, and so on. Then the lanes exchange their results by `shfl.sync.bfly`, beginning with the lowest bit of
    the lane number. If one operand is NaN, `max` and `min` return the number, and `maximum` and `minimum` return NaN.

    `positive` says that most rows of f32 have an element above zero, as products of matrices do. Their `max` is then
    that of the bits as integers, three at a time from sm_90 on, and the rows of a warp are reduced again where one has
    no such element. A row with a NaN may be reduced to it.

    In the region of `warp.rows`, it reduces an element with all others of its row::

        %m = warp.reduce max %x : f32 to f32
    """

    name = "warp.reduce"

    kind = prop_def(KindAttr)
    positive = opt_prop_def(UnitAttr)
    input = operand_def()
    result = result_def()

    traits = traits_def(Pure())
    assembly_format = "$kind (`positive` $positive^)? $input attr-dict `:` type($input) `to` type($result)"

    def __init__(self, kind: Kind, value: SSAValue, *, parts: bool = False, positive: bool = False):
        result = column_of(value.type, parts=parts) if isinstance(value.type, FragmentType) else value.type
        super().__init__(KindAttr(kind), UnitAttr() if positive else None, value, result)

    def verify_(self) -> None:
        source, result = self.input.type, self.result.type
        if self.kind.data not in IDENTITIES:
            raise VerifyException(f"expected {', '.join(IDENTITIES)}, got {self.kind.data}")
        if self.positive is not None and not (
            self.kind.data == Kind.Max and isinstance(source, FragmentType) and source.element_type == f32
        ):
            raise VerifyException(f"expected max of a fragment of f32 where positive, got {self.kind.data} of {source}")
        if not isinstance(source, FragmentType):
            if source != result or source not in (f32, f64):
                raise VerifyException(f"expected an element of f32 or f64, and a result of its type, got {source}")
            return
        if source.bits not in ROW_BITS:
            raise VerifyException(f"expected elements of 32 or 64 bits, got {source}")
        if source.layout.data.warp and any(bit.axis == "c" for bit in source.layout.data.warp):
            raise VerifyException(f"expected each row within one warp, got {source}")
        complete, parts = column_of(source), column_of(source, parts=True)
        if result not in (complete, parts):
            raise VerifyException(f"expected a result of {complete} or {parts}, got {result}")


@irdl_op_definition
class ScanOp(WarpOp):
    """Combines each element of a row with all before it, and with those of a column that `start` has for each row::

        %y = warp.scan add %x from %before : !column : !fragment to !fragment

    The columns of lanes follow each other, in the order of lanes. Each lane combines its neighbours, then lanes by
    `shfl.sync.up`. In the region of `warp.rows`, it goes along the whole row::

        %y = warp.scan add %x : f32 to f32
    """

    name = "warp.scan"

    kind = prop_def(KindAttr)
    input = operand_def()
    start = opt_operand_def()
    result = result_def()

    traits = traits_def(Pure())
    assembly_format = "$kind $input (`from` $start^ `:` type($start))? attr-dict `:` type($input) `to` type($result)"

    def __init__(self, kind: Kind, value: SSAValue, start: SSAValue | None = None) -> None:
        super().__init__(KindAttr(kind), value, start, value.type)

    def verify_(self) -> None:
        source, start = self.input.type, None if self.start is None else self.start.type
        if self.kind.data not in IDENTITIES:
            raise VerifyException(f"expected {', '.join(IDENTITIES)}, got {self.kind.data}")
        if self.result.type != source:
            raise VerifyException(f"expected a result of {source}, got {self.result.type}")
        if not isinstance(source, FragmentType):
            if source not in (f32, f64) or start is not None:
                raise VerifyException(f"expected an element of f32 or f64 alone, got {source}")
            return
        lanes = [(at, bit.number) for at, bit in enumerate(source.layout.data.lane) if bit.axis == "c"]
        follow = all((at + 1, column + 1) == after for (at, column), after in pairwise(lanes))
        if source.bits not in ROW_BITS or source.layout.data.warp or not follow:
            raise VerifyException(f"expected columns that lanes hold in order, of 32 or 64 bits, got {source}")
        if start not in (None, column_of(source)):
            raise VerifyException(f"expected a start of {column_of(source)}, got {start}")
