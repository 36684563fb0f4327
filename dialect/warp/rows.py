"""`warp.rows`: what becomes of each row of memory, in one pass; `warp.scan`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, MemRefType, f32, f64, i32, i64
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind, AffineConstantExpr, AffineDimExpr, AffineMap
from xdsl.irdl import operand_def, opt_operand_def, prop_def, region_def, result_def, traits_def, var_operand_def
from xdsl.traits import IsolatedFromAbove, MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

from ..mlir.affine import FIXED, loops_of
from ..mlir.words import irdl_op_definition
from .attributes import FragmentType, element_row
from .elements import IndexOp, LoopSizes, all_yielded, element_type, shape_of, verify_along, verify_elements
from .fragments import IDENTITIES, ROW_BITS, Kind, KindAttr, ReduceOp, column_of
from .op_shapes import WarpOp


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


ACROSS = (ReduceOp, ScanOp)
"""What takes elements of a row together."""


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
