"""What functions of elements make: `warp.map` of fragments, `warp.epilogue` of sums, `warp.rows` of rows of memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, BoolAttr, IndexType, MemRefType, i32, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind, AffineConstantExpr, AffineDimExpr, AffineMap
from xdsl.irdl import operand_def, opt_prop_def, prop_def, region_def, result_def, traits_def, var_operand_def
from xdsl.traits import IsolatedFromAbove, MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

from ..mlir.affine import FIXED, loops_of
from ..mlir.words import irdl_op_definition
from .attributes import FragmentType, element_row, fragment_of, memory_of
from .convert import ReduceOp, ScanOp, is_column_of
from .elements import (
    ElementRegion,
    IndexOp,
    LoopSizes,
    M,
    N,
    WithEpilogue,
    all_yielded,
    element_type,
    shape_of,
    verify_along,
    verify_elements,
)
from .fragments import alike
from .op_shapes import WarpOp, bounds, verify_indices


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

    def verify_(self) -> None:
        verify_indices("D", memory_of(self.d), self.at)
        bounds(self.in_bounds)
        self.verify_stored(len(self.at), (M, N), LoopSizes())
        for number, (_, map_) in enumerate(self.placed_operands):
            if loops_of(map_) not in ALONG:
                raise VerifyException(f"expected epilogue operand {number} by rows and columns as D is, got {map_}")


# Along the rows of memory: `warp.rows`.

ACROSS = (ReduceOp, ScanOp)
"""What takes elements of a row together."""


def apart(parts: int, *, along: bool = True) -> AffineMap:
    """The map of sums over rows m of equal m % `parts`: a sum of each column if `along`, else of one value a row."""
    return AffineMap(2, 0, (AffineDimExpr(0) % parts, *([AffineDimExpr(1)] if along else [])))


def times_of(map_: AffineMap) -> int:
    """How often the elements of an input repeat along rows, `(m, n) -> (n floordiv 1024)`; 0 for any other map."""
    last = map_.results[-1] if map_.results else None
    if not isinstance(last, AffineBinaryOpExpr) or last.kind != AffineBinaryOpKind.FloorDiv:
        return 0
    along = last.lhs == AffineDimExpr(map_.num_dims - 1)
    return last.rhs.value if along and isinstance(last.rhs, AffineConstantExpr) else 0


@irdl_op_definition
class RowsOp(WarpOp):
    """Computes each row of the output from a row of each input::

        warp.rows %x, %weight into %y {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>,
                                                        affine_map<(m, n) -> (m, n)>]}
            : memref<64x100xf16>, memref<100xf32> into memref<64x100xf16> {
        ^bb0(%a: f16, %w: f32):
          %x = arith.extf %a : f16 to f32
          %square = arith.mulf %x, %x : f32
          %sum = warp.reduce add %square : f32 to f32
          ...
          warp.yield %r : f16
        }

    The last loop runs along a row, and the others run over rows. An output is indexed by all loops in order, or by all
    except the last if each row has one result of it. Several outputs are made in one pass::

        warp.rows %x into %y, %mean {indexing_maps = [...]} : memref<64x100xf16> into memref<64x100xf16>, memref<64xf32>

    Of two loops, an output may have sums of elements of rows that are a number apart, `(m, n) -> (m mod 96, n)`, or of
    one value of each, `(m, n) -> (m mod 96)`, from zero. Inputs are numbers, or memory that is indexed by any loops.
    The arguments of the region are one element of each input; it yields one element of each output, for integers of 64
    bits one of 32, and computes floats in f32 or f64. An element of an input may stand for several of a row, side by
    side, `(m, n) -> (m, n floordiv 1024)`: a multiple of what a warp holds.
    `warp.index` is the index along a loop, `warp.scan` combines an element with all before it.

    A symbol in the map of an input, `(m, n)[s] -> (s, n)`, is a number of the row, such as that of the row of a table.
    The region computes it of inputs that are not indexed by the last loop, and yields it behind the outputs.
    """

    name = "warp.rows"

    inputs = var_operand_def()
    outputs = var_operand_def(MemRefType)
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr])
    body = region_def("single_block")

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect(), IsolatedFromAbove())
    assembly_format = "$inputs `into` $outputs attr-dict `:` type($inputs) `into` type($outputs) $body"

    @property
    def maps(self) -> tuple[AffineMap, ...]:
        """The indexing maps of the inputs and the outputs."""
        return tuple(attribute.data for attribute in self.indexing_maps)

    @property
    def loops(self) -> int:
        """How many loops there are; the last one runs along a row."""
        return self.maps[-1].num_dims

    @property
    def written(self) -> tuple[AffineMap, ...]:
        """The maps of the outputs."""
        return self.maps[len(self.inputs) :]

    @property
    def numbers(self) -> Sequence[SSAValue]:
        """The numbers of a row that the region yields for the symbols of maps."""
        return all_yielded(self.body)[len(self.outputs) :]

    @property
    def row_indices(self) -> list[IndexOp]:
        """The indices along loops over rows that the region uses."""
        return [op for op in self.body.block.ops if isinstance(op, IndexOp) and op.number < self.loops - 1]

    @property
    def is_numbered(self) -> bool:
        """Whether it computes with numbers that differ from row to row: indices, or those that it yields."""
        return bool(self.numbers or self.row_indices)

    def is_of_rows(self, output: int) -> bool:
        """Whether an output has one element for each row."""
        return len(self.written[output].results) < self.loops

    def is_summed(self, output: int) -> bool:
        """Whether an output has sums of elements of several rows."""
        return FIXED in loops_of(self.written[output])

    def verify_(self) -> None:
        values, count = (*self.inputs, *self.outputs), len(self.inputs)
        if len(self.maps) != len(values) or not self.outputs:
            raise VerifyException(f"expected a map of each input and of the output, got {len(self.maps)}")
        every = tuple(range(self.loops))
        for number, map_ in enumerate(self.written):
            parts = max((1, *shape_of(self.outputs[number])[:1]))
            summed = map_ in (apart(parts), apart(parts, along=False))
            if loops_of(map_) not in (every, every[:-1]) and not summed:
                raise VerifyException(
                    f"expected the output to be indexed by all loops, or all but the last, got {map_}"
                )
        sizes = LoopSizes()
        for number, (value, map_) in enumerate(zip(values, self.maps, strict=True)):
            name = f"input {number}" if number < count else "the output"
            times = times_of(map_) if number < count else 0
            if number < count or not self.is_summed(number - count):
                symbols = range(FIXED - len(self.numbers), FIXED) if number < count else ()
                own = AffineMap(map_.num_dims, map_.num_symbols, map_.results[:-1]) if times else map_
                verify_along(name, own, self.loops, every[:-1] if times else every, symbols)
            sizes.add(name, value, loops_of(map_))
        if not any(every[-1] in loops_of(map_) for map_ in self.maps):
            raise VerifyException(f"expected an input that is indexed by d{every[-1]}")
        kinds = list(map(element_type, self.inputs))
        kinds += [i32 if (kind := element_type(value)) == i64 else kind for value in self.outputs]
        for number, kind in enumerate(kinds):
            row = element_row(i32 if kind == i64 else kind)
            if row is None or row.bits not in (8, 16, 32) or (number >= count and not row.is_float and kind != i32):
                raise VerifyException(f"expected elements of f16, bf16 or f32, got {kind}")
        numbers = [value.type for value in self.numbers]
        if other := [kind for kind in numbers if kind not in (i32, i64)]:
            raise VerifyException(f"expected numbers of rows of i32 or i64, got {other[0]}")
        verify_elements(self.body, kinds[:count], *kinds[count:], *numbers)
