"""Fragments: `warp.constant`, `warp.elementwise`, `warp.subfragment`, `warp.reduce`, `warp.map`, `warp.epilogue`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from enum import auto
from itertools import count
from typing import ClassVar

from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    DenseArrayBase,
    FloatAttr,
    IndexType,
    IntegerAttr,
    UnitAttr,
    f32,
    f64,
    i64,
)
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Attribute, SpacedOpaqueSyntaxAttribute, SSAValue
from xdsl.irdl import (
    base,
    irdl_attr_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import ConstantLike, IsolatedFromAbove, MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum

from ..layouts.layout import Bit, Layout
from ..mlir.affine import loops_of
from ..mlir.words import irdl_op_definition
from .attributes import FragmentType, float_type, fragment_of, known_element, memory_of
from .elements import ElementRegion, LoopSizes, M, N, WithEpilogue, verify_elements
from .op_shapes import WarpOp, bounds, verify_indices

# On fragments, element by element: `warp.constant`, `warp.elementwise`; and parts of them: `warp.subfragment`.


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


IDENTITIES = {
    Kind.Add: 0.0,
    Kind.Mul: 1.0,
    Kind.Max: -math.inf,
    Kind.Min: math.inf,
    Kind.Maximum: -math.inf,
    Kind.Minimum: math.inf,
}
"""What rows are taken together by, and the number that changes nothing."""


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


# Along the rows of fragments: `warp.reduce`.
#
# What a row gives is a column: a fragment of one column, whose layout says with the axis `x` which lanes hold the same
# element. A column of sums may still be in parts, one for each lane of a row::
#
#     c1 c2 r0 r1 r2 | c0 r3       a matrix: each row lies in four lanes
#     c0 c1 r0 r1 r2 | r3          what each lane makes of its own elements: four parts of a row
#     x0 x1 r0 r1 r2 | r3          what four lanes make of these: each of them has the whole

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


def alike(kind: FragmentType, other: FragmentType) -> bool:
    """Whether fragments differ at most in the type of their elements."""
    return kind.shape == other.shape and kind.layout == other.layout and kind.with_element(other.element_type) == other


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


# Functions of elements: `warp.map`, and `warp.epilogue`, which stores what they make of sums.


@irdl_op_definition
class MapOp(WarpOp):
    """Computes each element of a fragment from the elements at the same position in other fragments, from those of the
    same row in columns, as `warp.reduce` makes them, and from numbers::

        %y = warp.map %d, %bias : !warp.fragment<...>, !warp.fragment<...> -> !warp.fragment<...> (%x: f32, %b: f32) {
          %sum = arith.addf %x, %b : f32
          warp.yield %sum : f32
        }

    Fragments that are no columns differ only in the type of their elements. Operations in the region have the semantics
    of `arith` and `math`: each is rounded once to its type. docs/epilogues.md says how they are lowered.
    """

    name = "warp.map"

    inputs = var_operand_def()
    fragment = result_def(FragmentType)
    body = region_def("single_block")

    traits = traits_def(Pure(), IsolatedFromAbove())
    custom_directives: ClassVar = (ElementRegion,)
    assembly_format = "$inputs attr-dict `:` type($inputs) `->` type($fragment) custom<ElementRegion>($body)"

    def verify_(self) -> None:
        result = fragment_of(self.fragment)
        types: list[Attribute] = []
        for value in self.inputs:
            kind = value.type
            if isinstance(kind, FragmentType) and not (alike(kind, result) or is_column_of(kind, result)):
                raise VerifyException(
                    f"expected fragments that differ only in their elements, or columns of them of 32 or 64 bits, got "
                    f"{kind} and {result}"
                )
            types.append(kind.element_type if isinstance(kind, FragmentType) else kind)
        verify_elements(self.body, types, result.element_type)


ALONG = ((M, N), (M,), (N,), ())
"""The loops of a matrix like D, of a vector along the rows or the columns of D, and of a number."""


@irdl_op_definition
class EpilogueOp(WithEpilogue):
    """Stores the sums of a product to D, beginning at a row and a column, and rounds them to the type of D::

        warp.epilogue %sum into %D[%m, %n] {in_bounds = [true, true]} : !warp.fragment<acc, ...>, memref<256x320xf32>

    With `plus %C`, C is added first. C has the layout of D. An epilogue, which `warp.pointwise` defines, takes the
    sums, rounded to the type of its element, and yields the elements of D. Its loops are the rows and the columns of D.
    An operand of the epilogue is a matrix like D, a vector along its rows or columns, or a number::

        %biased = warp.pointwise %bias maps [affine_map<(m, n) -> (n)>] : memref<320xf32> (%x: f32, %b: f32) {...}
        warp.epilogue %sum plus %C into %D[%m, %n] through %biased
          : !warp.fragment<acc, ...>, memref<256x320xbf16> plus memref<256x320xbf16>

    Elements outside D are not stored. `in_bounds` [rows, columns] promises that there are none.

    The sums are those of a warp, or of a warpgroup. `warp.schedule` determines how it stores them. `warp-epilogue`
    expands the operation.
    """

    name = "warp.epilogue"

    sums = operand_def(FragmentType)
    at = var_operand_def(IndexType())
    in_bounds = opt_prop_def(ArrayAttr[BoolAttr])

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = (
        "$sums (`plus` $c^)? `into` $d `[` $at `]` (`through` $through^)? attr-dict"
        " `:` type($sums) `,` type($d) custom<TypeOfOptional>(`plus`, type($c))"
    )

    def matrices(self) -> list[SSAValue]:
        """The epilogue's operands that are matrices."""
        return [value for value, map_ in self.placed_operands if loops_of(map_) == (M, N)]

    def verify_(self) -> None:
        verify_indices("D", memory_of(self.d), self.at)
        bounds(self.in_bounds)
        self.verify_stored(len(self.at), (M, N), LoopSizes())
        for number, (_, map_) in enumerate(self.placed_operands):
            if loops_of(map_) not in ALONG:
                raise VerifyException(f"expected epilogue operand {number} by rows and columns as D is, got {map_}")
