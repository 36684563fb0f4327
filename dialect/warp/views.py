"""Views of memory: `warp.matrix`, `warp.window`, and sequences of pages, `warp.paged`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar, TypeAlias, cast

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AffineMapAttr,
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    MemRefType,
    StridedLayoutAttr,
    UnitAttr,
    i32,
    i64,
)
from xdsl.ir import Attribute, Data, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    ParsingState,
    PrintingState,
    VariadicOperandVariable,
    irdl_custom_directive,
)
from xdsl.parser import AttrParser, Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import NoMemoryEffect
from xdsl.utils.exceptions import VerifyException

from ..layouts.layout import Layout
from ..mlir.affine import passed, steps_of, strides_of, windows
from ..mlir.words import irdl_op_definition
from .attributes import Memory, element_row, memory_of, parse_layout
from .op_shapes import WarpOp

HALF_WORD = 16
"""Bits of the elements of which a word has two."""

DIVISIBLE = "warp.divisible"
"""The attribute of a function's argument that promises a divisor of its dynamic sizes and strides, in elements: of
the size of the dimension along which elements are neighbours, of every dynamic stride, and of a dynamic offset."""

Dimensions: TypeAlias = tuple[int | None, int | None]
"""The dimensions of memory that are the rows and the columns of a matrix; None where one is repeated."""

WORDS = ("row", "column")
ALL = "all"
"""The word for a dimension of which every index is kept."""


def im2col_type(
    memory: Memory, taps: Sequence[int], pixels: Sequence[int], steps: Sequence[int], dilations: Sequence[int], *,
    joined: bool, groups: int = 0,
) -> MemRefType[Attribute]:  # fmt: skip
    """The type of the matrices of images, one for each tap, and for each group of channels if there are `groups`.
    Raises VerifyException for images of unknown strides."""
    strides, shape = strides_of(memory), memory.get_shape()
    static = [stride for stride in strides or () if stride is not None]
    if not static or len(static) < len(shape):
        raise VerifyException(f"expected images with known strides, got {memory}")
    by_tap = [abs(dilation) * stride for dilation, stride in zip(dilations, static[1:-1], strict=False)]
    apart = prod(taps) > 1 and not joined
    sizes, along = ([*taps], by_tap) if apart else ([], [])
    channels = shape[-1] // max(1, groups)
    if groups:
        sizes, along = [groups, *sizes], [channels * static[-1], *along]
    columns = channels if apart else prod(taps) * channels
    layout = StridedLayoutAttr([*along, steps[-1] * static[-2], static[-1]], memory.get_offset())
    return MemRefType(memory.element_type, [*sizes, shape[0] * prod(pixels), columns], layout, memory.memory_space)


@irdl_custom_directive
class MatrixPlaces(CustomDirective):
    """What the dimensions of memory are, in brackets: an index, rows, columns, or one of which all is kept."""

    indices: VariadicOperandVariable
    row: AttributeVariable
    column: AttributeVariable
    kept: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        position = parser.pos
        places: list[str | UnresolvedOperand] = parser.parse_comma_separated_list(
            parser.Delimiter.SQUARE,
            lambda: parser.parse_optional_keyword_in((*WORDS, ALL)) or parser.parse_unresolved_operand(),
        )
        self.indices.set(state, [place for place in places if isinstance(place, UnresolvedOperand)])
        for variable, word in zip((self.row, self.column), WORDS, strict=True):
            if places.count(word) > 1:
                parser.raise_error(f"expected '{word}' at most once among the indices", position)
            if word in places:
                variable.set(state, IntegerAttr(places.index(word), i64))
        if kept := [i for i, place in enumerate(places) if place == ALL]:
            self.kept.set(state, DenseArrayBase.from_list(i64, kept))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        matrix = cast("MatrixOp", op)
        words: list[str | SSAValue] = list(matrix.indices)
        named = [(place, word) for place, word in zip(matrix.dimensions, WORDS, strict=True) if place is not None]
        for place, word in sorted([*named, *((place, ALL) for place in matrix.dimensions_kept)]):
            words.insert(place, word)
        with printer.in_square_brackets():
            printer.print_list(
                words, lambda w: printer.print_string(w) if isinstance(w, str) else printer.print_ssa_value(w)
            )
        state.should_emit_space, state.last_was_punctuation = True, False


@irdl_op_definition
class MatrixOp(WarpOp):
    """A matrix in memory with more dimensions. One dimension becomes its rows, one its columns, and the others are
    indexed::

        %X = warp.matrix %A[%b, row, column] : memref<4x16x32xf16> -> memref<16x32xf16, strided<[32, 1], offset: ?>>
        %Y = warp.matrix %B[column, row] : memref<16x32xf16> -> memref<32x16xf16, strided<[1, 32], offset: ?>>
        %Z = warp.matrix %v[%b, column] : memref<4x32xf16> -> memref<?x32xf16, strided<[0, 1], offset: ?>>

    Without `row`, all rows are the same, and their stride is 0. Without `column`, all columns are the same. The result
    type gives their number. Fragments can be loaded from every such matrix. Tiles can be copied only if the elements of
    a row are contiguous. With `all`, a dimension is not indexed, and the result has it before rows and columns::

        %M = warp.matrix %A[%b, all, row, column]
            : memref<4x3x16x32xf16> -> memref<3x16x32xf16, strided<[512, 32, 1], offset: ?>>

    With `part`, the matrix has so many of the rows, from one on::

        %P = warp.matrix %A[row, column] part [%first, %rows]
            : memref<96x32xf16> -> memref<?x32xf16, strided<[32, 1], offset: ?>>

    A matrix of integers of 64 bits is one of their low words::

        %L = warp.matrix %l[row] : memref<96xi64> -> memref<96x?xi32, strided<[2, 0], offset: ?>>

    With `high`, it is one of their high words. With `pairs`, a matrix of every second element of 16 bits is one of
    words, of this element and the next one::

        %W = warp.matrix %e[row, column] {pairs} : memref<8x4xf16, strided<[8, 2]>>
            -> memref<8x4xi32, strided<[4, 1], offset: ?>>
    """

    name = "warp.matrix"

    memory = operand_def(MemRefType)
    indices = var_operand_def(IndexType())
    part = var_operand_def(IndexType())
    row = opt_prop_def(IntegerAttr)
    column = opt_prop_def(IntegerAttr)
    kept = opt_prop_def(DenseArrayBase.constr(i64))
    high = opt_prop_def(UnitAttr)
    pairs = opt_prop_def(UnitAttr)
    matrix = result_def(MemRefType)

    traits = traits_def(NoMemoryEffect())
    custom_directives: ClassVar = (MatrixPlaces,)
    assembly_format = (
        "$memory custom<MatrixPlaces>($indices, $row, $column, $kept) (`part` `[` $part^ `]`)? attr-dict"
        " `:` type($memory) `->` type($matrix)"
    )

    def __init__(
        self,
        memory: SSAValue,
        indices: Sequence[SSAValue],
        row: int | None,
        column: int | None,
        kept: Sequence[int] = (),
        part: Sequence[SSAValue] = (),
        *,
        high: bool = False,
        pairs: bool = False,
    ):
        """`part` restricts the matrix to some rows: the first one and their number."""
        matrix = matrix_type(memory_of(memory), row, column, kept, part=bool(part), pairs=pairs)
        super().__init__(memory, indices, part, row, column, kept, high, pairs, matrix)

    @property
    def dimensions(self) -> Dimensions:
        """The dimensions of memory that are the rows and the columns."""
        row, column = (None if number is None else number.value.data for number in (self.row, self.column))
        return row, column

    @property
    def dimensions_kept(self) -> tuple[int, ...]:
        """The dimensions of memory that the result has before its rows and columns."""
        return () if self.kept is None else self.kept.get_values()

    def at(self, indices: Sequence[SSAValue], row: int | None, column: int | None) -> MatrixOp:
        """A matrix of this view, expressed as one of the underlying memory. `indices` are those of the view's other
        dimensions, in order."""
        own = [*self.dimensions_kept, *self.dimensions]
        rest = [d for i, d in enumerate(own) if i not in (row, column) and d is not None]
        chosen = dict(zip(rest, indices, strict=True))
        rank, own_indices = memory_of(self.memory).get_num_dims(), iter(self.indices)
        merged = [chosen[d] if d in chosen else next(own_indices) for d in range(rank) if d in chosen or d not in own]
        rows, columns = (None if d is None else own[d] for d in (row, column))
        return MatrixOp(self.memory, merged, rows, columns, part=self.part)

    def verify_(self) -> None:
        memory, (row, column) = memory_of(self.memory), self.dimensions
        rank, named = memory.get_num_dims(), [d for d in (row, column, *self.dimensions_kept) if d is not None]
        if len(set(named)) != len(named) or not set(named) <= set(range(rank)):
            raise VerifyException(
                f"expected dimensions of {rank} as rows and columns, not one as both, got {row} and {column}"
            )
        if len(self.indices) != rank - len(named):
            raise VerifyException(
                f"expected {rank - len(named)} indices besides row and column, got {len(self.indices)}"
            )
        if len(self.part) not in (0, 2) or (self.part and row is None):
            raise VerifyException(f"expected the first of some rows, and how many, got {len(self.part)} indices")
        pairs = self.pairs is not None
        if pairs and not are_pairs(memory):
            raise VerifyException(f"expected every second element of 16 bits in whole words, got {memory}")
        expected = matrix_type(memory, row, column, self.dimensions_kept, part=bool(self.part), pairs=pairs)
        if self.high is not None and memory.element_type != i64:
            raise VerifyException(f"only integers of 64 bits have high words, got {memory}")
        if self.matrix.type != expected:
            raise VerifyException(f"expected the matrix to be {expected}, got {self.matrix.type}")


def are_pairs(memory: Memory) -> bool:
    """Whether memory has every second element of 16 bits, each the first one of a word."""
    row, steps = element_row(memory.element_type), [*(strides_of(memory) or ()), memory.get_offset()]
    whole = all(step is not None and step % 2 == 0 for step in steps)
    return whole and len(steps) > 1 and row is not None and row.bits == HALF_WORD


def matrix_type(
    memory: Memory, row: int | None, column: int | None, kept: Sequence[int] = (), *, part: bool = False,
    pairs: bool = False,
) -> MemRefType[Attribute]:  # fmt: skip
    """The type of a matrix in memory. Its rows and columns are two dimensions of the memory; a missing one is repeated.
    It also has the `kept` dimensions. Rows may be limited to `part` of them. It may start anywhere. With `pairs` it has
    words of two elements."""
    shape, strides = memory.get_shape(), strides_of(memory)
    if strides is None or not max(row or 0, column or 0, *kept) < max(1, len(shape)):
        raise VerifyException(f"expected strided memory with dimensions {row} and {column}, got {memory}")
    along = [0 if d is None else strides[d] for d in (*kept, row, column)]
    element, words = (i32, 2) if memory.element_type == i64 else (memory.element_type, 1)
    steps = [stride and (stride // 2 if pairs else stride * words) for stride in along]
    element, layout = i32 if pairs else element, StridedLayoutAttr(steps, None)
    sizes = [DYNAMIC_INDEX if d is None or (part and d == row) else shape[d] for d in (*kept, row, column)]
    return MemRefType(element, sizes, layout, memory.memory_space)


@irdl_op_definition
class WindowOp(WarpOp):
    """A view of memory with a dimension for each loop of a map. The results of the map are indices of the memory::

        %w = warp.window %x affine_map<(i, j, k) -> (i * 2 + j, k)>
            : memref<9x16xf16> -> memref<4x3x16xf16, strided<[32, 16, 16]>>

    With `padded`, loops may pass the ends of the memory, where zeros are read: what copies the result to shared memory
    (`warp.copy`) knows the map. The result then begins where the memory does, without what the map adds. An element
    may appear at several places of the result, so the result is only read. It may run backwards; then only what reads
    images (`warp.im2col`) takes its place. Along a loop that the map does not use, the elements repeat. `sizes` are the
    dynamic sizes of the result, in order.
    """

    name = "warp.window"

    memory = operand_def(MemRefType)
    sizes = var_operand_def(IndexType())
    map_ = prop_def(AffineMapAttr, prop_name="map")
    padded = opt_prop_def(UnitAttr)
    result = result_def(MemRefType)

    traits = traits_def(NoMemoryEffect())
    assembly_format = "$memory $map (`sizes` `(` $sizes^ `)`)? attr-dict `:` type($memory) `->` type($result)"

    def __init__(self, memory: SSAValue, map_: AffineMap, shape: Sequence[int], sizes: Sequence[SSAValue] = (), *,
                 padded: bool = False) -> None:  # fmt: skip
        """`shape` has -1 for each of `sizes`."""
        result = window_type(memory_of(memory), map_, shape, padded=padded)
        super().__init__(memory, sizes, map_, padded, result)

    @property
    def along(self) -> AffineMap:
        """The map."""
        return self.map_.data

    def verify_(self) -> None:
        memory, result = memory_of(self.memory), memory_of(self.result)
        if self.along.num_dims != result.get_num_dims():
            raise VerifyException(f"expected a loop for each dimension of {result}, got {self.along}")
        expected = window_type(memory, self.along, result.get_shape(), padded=self.padded is not None)
        if result != expected:
            raise VerifyException(f"expected the result to be {expected}, got {result}")
        unknown = [size for size in result.get_shape() if size < 0]
        if len(unknown) != len(self.sizes):
            raise VerifyException(f"expected {len(unknown)} sizes of {result}, got {len(self.sizes)}")


def window_type(memory: Memory, map_: AffineMap, shape: Sequence[int], *,
                padded: bool = False) -> MemRefType[Attribute]:  # fmt: skip
    """The type of memory seen along the loops of a map, of these sizes. Raises VerifyException for a map that no
    strides follow, memory without strides, or loops that pass its end, unless it is `padded`."""
    strides, forms = strides_of(memory), windows(map_, padded=padded)
    if strides is None or len(map_.results) != len(strides) or map_.num_symbols or forms is None:
        raise VerifyException(
            f"expected sums of loops times constants, from 0 on or above, for each dimension of {memory}, got {map_}"
        )
    if not padded and (dimension := passed(map_, shape, memory.get_shape())) is not None:
        loops = "x".join(str(size) if size >= 0 else "?" for size in shape)
        raise VerifyException(f"loops of {loops} along {map_} pass the end of dimension {dimension} of {memory}")
    steps, first = steps_of(map_, strides)
    start = memory.get_offset()
    offset = start if padded else None if start is None or first is None else start + first
    return MemRefType(memory.element_type, shape, StridedLayoutAttr(steps, offset), memory.memory_space)


@irdl_op_definition
class PagedOp(WarpOp):
    """A view of memory of pages, as sequences whose pages a table has the numbers of::

        %K = warp.paged %cache by %table {along = array<i64: 1, 1, 2, 3>, table_along = array<i64: 0>, page = 0 : i64,
                                          slot = 1 : i64}
            : memref<512x64x8x128xbf16>, memref<16x32xi32> -> memref<16x2048x8x128xbf16, strided<[...]>>

    Of the memory, the dimension `page` counts pages, and `slot` the rows of a page; `along` has the dimension of the
    result for each of them. The table, of i32 or i64, has the dimensions `table_along` of the result, and behind them
    one that counts the pages of a sequence. Along that of `slot` the rows of a sequence follow each other in the
    result. The strides of the result are those of sequences whose pages follow each other, and say how rows are
    aligned. Only attention reads such a view, as K or V, tile by tile, each of them in one page.

    Without `slot` a page is one row. Products of groups of rows read such an A.
    """

    name = "warp.paged"

    memory = operand_def(MemRefType)
    table = operand_def(MemRefType)
    along = prop_def(DenseArrayBase.constr(i64))
    table_along = prop_def(DenseArrayBase.constr(i64))
    page = prop_def(IntegerAttr)
    slot = opt_prop_def(IntegerAttr)
    result = result_def(MemRefType)

    traits = traits_def(NoMemoryEffect())
    assembly_format = "$memory `by` $table attr-dict `:` type($memory) `,` type($table) `->` type($result)"

    def __init__(
        self, memory: SSAValue, table: SSAValue, along: Sequence[int], table_along: Sequence[int], page: int,
        slot: int | None = None,
    ):  # fmt: skip
        """`along` and `table_along` are the dimensions of the result, that of keys for the page and the slot."""
        result = paged_type(memory_of(memory), memory_of(table), along, table_along, page, slot)
        super().__init__(memory, table, along, DenseArrayBase.from_list(i64, list(table_along)), page, slot, result)

    @property
    def loops(self) -> tuple[int, ...]:
        """The dimension of the result along each of memory."""
        return tuple(self.along.get_values())

    @property
    def dimensions(self) -> tuple[int, int | None]:
        """The dimensions of memory that count pages, and the rows of a page."""
        return self.page.value.data, None if self.slot is None else self.slot.value.data

    @property
    def rows(self) -> int:
        """Rows of a page."""
        return 1 if self.slot is None else memory_of(self.memory).get_shape()[self.slot.value.data]

    def of(self, memory: SSAValue, table: SSAValue) -> PagedOp:
        """The same view of other memory and another table."""
        return PagedOp(memory, table, self.loops, self.table_along.get_values(), *self.dimensions)

    def verify_(self) -> None:
        if self.result.type != (expected := self.of(self.memory, self.table).result.type):
            raise VerifyException(f"expected the result to be {expected}, got {self.result.type}")


def paged_type(
    memory: Memory, table: Memory, along: Sequence[int], table_along: Sequence[int], page: int, slot: int | None
) -> MemRefType[Attribute]:
    """The type of a view of sequences of pages. Raises VerifyException for dimensions that do not match the memory and
    the table, or are dynamic (rows may be)."""
    shape, strides, blocks = memory.get_shape(), strides_of(memory), table.get_shape()
    rank, counted = len({*along, *table_along}), page if slot is None else slot
    named = [*(d for i, d in enumerate(along) if slot is None or i != page), *table_along]
    fits = len(along) == len(shape) and len(table_along) == len(blocks) - 1 and page != slot
    fits = fits and min(page, counted) >= 0 and max(page, counted) < len(shape)
    fits = fits and sorted(named) == list(range(rank)) and along[page] == along[counted]
    if strides is None or None in strides or not fits:
        raise VerifyException(f"expected dimensions of the result for those of {memory} and of {table}, got {along}")
    if table.element_type not in (i32, i64) or (slot is not None and min(*shape, *blocks) < 0):
        raise VerifyException(f"expected known sizes, and a table of i32 or i64, got {memory} and {table}")
    shape = [1 if slot is None and i == page else size for i, size in enumerate(shape)]
    sizes, steps = [0] * rank, [0] * rank
    for i, d in enumerate(along):
        if i != page or slot is None:
            sizes[d], steps[d] = shape[i] * (blocks[-1] if i == counted else 1), strides[i] or 0
    step = (strides[page] or 0) * blocks[-1]
    for d, size in reversed(list(zip(table_along, blocks, strict=False))):
        sizes[d], steps[d] = size, step
        step *= size
    layout = StridedLayoutAttr(steps, memory.get_offset())
    return MemRefType(memory.element_type, sizes, layout, memory.memory_space)


@irdl_attr_definition
class BlocksAttr(Data[tuple[int, int, Layout]]):
    """A matrix stored in blocks: `along` blocks of the same rows follow one another, and each tile of `rows` rows
    begins with a new block. A block has a line of elements for each thread of the layout, which says where in the block
    each element lies: `#warp.blocks<192, 4, r0 r1 r2 r3 r4 | c0 c1 r5 r6>`."""

    name = "warp.blocks"

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return self.data[0]

    @property
    def along(self) -> int:
        """Blocks of the same rows."""
        return self.data[1]

    @property
    def layout(self) -> Layout:
        """The places of the elements of a block."""
        return self.data[2]

    @property
    def of_tile(self) -> int:
        """Blocks below one another in a tile."""
        return -(-self.rows // self.layout.rows)

    @property
    def tile_lines(self) -> int:
        """Lines of the blocks that begin with a tile."""
        return self.of_tile * self.along * self.layout.threads

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[int, int, Layout]:
        with parser.in_angle_brackets():
            rows = parser.parse_integer(allow_negative=False, allow_boolean=False)
            parser.parse_punctuation(",")
            along = parser.parse_integer(allow_negative=False, allow_boolean=False)
            parser.parse_punctuation(",")
            return rows, along, parse_layout(parser)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"{self.rows}, {self.along}, {self.layout}")
