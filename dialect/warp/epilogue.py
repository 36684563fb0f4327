"""What becomes of accumulators: `warp.epilogue`, `warp.map`, `warp.subfragment`, `warp.powers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    DenseArrayBase,
    Float8E4M3FNType,
    FloatAttr,
    IndexType,
    MemRefType,
    f32,
    i64,
)
from xdsl.ir import Attribute, SSAValue, TypeAttribute
from xdsl.ir.affine import AffineMap
from xdsl.irdl import (
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import IsolatedFromAbove, MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

from ..mlir.affine import loops_of, may_be_alike
from ..mlir.words import irdl_op_definition
from .attributes import FragmentType, fragment_of, memory_of
from .elements import ElementRegion, LoopSizes, M, N, PointwiseOp, PointwiseType, pointwise_of, verify_elements
from .fragments import alike, is_column_of
from .op_shapes import WarpOp, bounds, verify_indices

# What `warp.matmul` and `warp.epilogue` share: C, D, and the epilogue that makes the elements of D.


class WithEpilogue(WarpOp):
    """An operation whose function `through` computes the stored elements of `d` from those of a product."""

    c = opt_operand_def(MemRefType)
    d = operand_def(MemRefType)
    through = opt_operand_def(PointwiseType())

    @property
    def epilogue(self) -> PointwiseOp | None:
        """The function of the epilogue; None without one."""
        return pointwise_of(self.through)

    @property
    def placed_operands(self) -> list[tuple[SSAValue, AffineMap]]:
        """The operands of the epilogue, with the loops that they run along."""
        return [] if self.epilogue is None else self.epilogue.placed

    @property
    def epilogue_operands(self) -> list[SSAValue]:
        """The operands of the epilogue."""
        return [value for value, _ in self.placed_operands]

    @property
    def product_type(self) -> TypeAttribute:
        """The type to which the product is rounded: that of D, or that of the epilogue's argument."""
        kind = memory_of(self.d).element_type if self.epilogue is None else self.epilogue.argument_type
        if not isinstance(kind, TypeAttribute):
            raise VerifyException(f"expected elements of a type, got {kind}")
        return kind

    def verify_stored(self, loops: int, along: Sequence[int], sizes: LoopSizes) -> None:
        """Checks C, D and the epilogue. C must have the shape of D, which runs along some of the `loops`. Raises
        VerifyException if the shapes differ, or the epilogue makes another type or has operands along other loops."""
        if self.c is not None and not may_be_alike(memory_of(self.c).get_shape(), memory_of(self.d).get_shape()):
            raise VerifyException(f"expected C of the shape of D, got {self.c.type} and {self.d.type}")
        if self.epilogue is not None:
            made = memory_of(self.d).element_type
            self.epilogue.verify_use("epilogue operand", made, loops, along, sizes)


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


@irdl_op_definition
class PowersOp(WarpOp):
    """Powers of two as e4m3::

        %p = warp.powers %s, %b {factor = 1.275000e-01 : f32}
          : !warp.fragment<a, 64x256xf32, ...>, !warp.fragment<acc, 64x1xf32, ...>
          to !warp.fragment<a, 64x256xf8E4M3FN, ...>

    An element x becomes 2^(factor x + b), with b that of its row; the exponent is at most 9. Of eight registers of
    the result, five are made by `ex2.approx.ftz` from f32, three by a polynomial in f16, whose relative error is below
    2^-6.9 (rounding to e4m3 has 2^-4); what is below 2^-10.5 is 0 there. Its multiply-adds run beside the exponentials,
    of which a multiprocessor computes 16 a cycle.
    """

    name = "warp.powers"

    input = operand_def(FragmentType)
    exponents = operand_def(FragmentType)
    factor = prop_def(FloatAttr)
    fragment = result_def(FragmentType)

    traits = traits_def(Pure())
    assembly_format = "$input `,` $exponents attr-dict `:` type($input) `,` type($exponents) `to` type($fragment)"

    def __init__(self, value: SSAValue, exponents: SSAValue, factor: float) -> None:
        super().__init__(value, exponents, FloatAttr(factor, f32), fragment_of(value).with_element(Float8E4M3FNType()))

    def verify_(self) -> None:
        source, made = fragment_of(self.input), fragment_of(self.fragment)
        if source.element_type != f32 or made != source.with_element(Float8E4M3FNType()):
            raise VerifyException(f"expected powers of f32 as f8E4M3FN in the same layout, got {source} to {made}")
        if (kind := fragment_of(self.exponents)).element_type != f32 or kind.shape[0] != source.shape[0]:
            raise VerifyException(f"expected f32 for each of {source.shape[0]} rows, got {kind}")
