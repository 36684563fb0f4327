"""`warp.matrix`: one matrix of memory that holds several, or holds it another way than row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    NoneAttr,
    StridedLayoutAttr,
    i64,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import NoMemoryEffect
from xdsl.utils.exceptions import VerifyException

from .attributes import Memory, memory_of

DIVISIBLE = "warp.divisible"
"""The attribute of a function's argument that promises a divisor of its dynamic sizes and strides, in elements: of
the size of the dimension along which elements are neighbours, of every dynamic stride, and of a dynamic offset."""

Dimensions: TypeAlias = tuple[int | None, int | None]
"""The dimensions of memory that are the rows and the columns of a matrix; None where one is repeated."""

WORDS = ("row", "column")
ALL = "all"
"""The word for a dimension of which every index is kept."""


def dynamic_parts(memory: Memory) -> tuple[list[int], list[int]]:
    """The dimensions whose sizes, and those whose strides, come with the address of a kernel's argument, in order.

    Strides of memory without a layout follow from its sizes.
    """
    sizes = [i for i, size in enumerate(memory.get_shape()) if size < 0]
    if isinstance(memory.layout, NoneAttr):
        return sizes, []
    return sizes, [i for i, stride in enumerate(strides_of(memory) or ()) if stride is None]


def strides_of(memory: Memory) -> tuple[int | None, ...] | None:
    """Elements from one index to the next along each dimension, None for what is not known while compiling.

    None for a layout that is not strided.
    """
    found = memory.get_strides()
    return None if found is None else tuple(found)


@irdl_op_definition
class MatrixOp(IRDLOperation):
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
    """

    name = "warp.matrix"

    memory = operand_def(MemRefType)
    indices = var_operand_def(IndexType())
    row = opt_prop_def(IntegerAttr)
    column = opt_prop_def(IntegerAttr)
    kept = opt_prop_def(DenseArrayBase.constr(i64))
    matrix = result_def(MemRefType)

    traits = traits_def(NoMemoryEffect())

    def __init__(
        self,
        memory: SSAValue,
        indices: Sequence[SSAValue],
        row: int | None,
        column: int | None,
        kept: Sequence[int] = (),
    ):
        super().__init__(
            operands=[memory, list(indices)],
            properties={
                "row": None if row is None else IntegerAttr(row, i64),
                "column": None if column is None else IntegerAttr(column, i64),
                "kept": _kept(kept),
            },
            result_types=[matrix_type(memory_of(memory), row, column, kept)],
        )

    @property
    def dimensions(self) -> Dimensions:
        """The dimensions of memory that are the rows and the columns."""
        row, column = (None if found is None else found.value.data for found in (self.row, self.column))
        return row, column

    @property
    def dimensions_kept(self) -> tuple[int, ...]:
        """The dimensions of memory that the result has before its rows and columns."""
        return () if self.kept is None else self.kept.get_values()

    def at(self, indices: Sequence[SSAValue], row: int | None, column: int | None) -> MatrixOp:
        """A matrix of this result, as one of the memory: at indices of its other dimensions, in order."""
        own = [*self.dimensions_kept, *self.dimensions]
        rest = [d for i, d in enumerate(own) if i not in (row, column) and d is not None]
        given = dict(zip(rest, indices, strict=True))
        rank, held = memory_of(self.memory).get_num_dims(), iter(self.indices)
        merged = [given[d] if d in given else next(held) for d in range(rank) if d in given or d not in own]
        rows, columns = (None if d is None else own[d] for d in (row, column))
        return MatrixOp(self.memory, merged, rows, columns)

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
        expected = matrix_type(memory, row, column, self.dimensions_kept)
        if self.matrix.type != expected:
            raise VerifyException(f"expected the matrix to be {expected}, got {self.matrix.type}")

    @classmethod
    def parse(cls, parser: Parser) -> MatrixOp:
        position = parser.pos
        memory = parser.parse_unresolved_operand()
        places: list[str | UnresolvedOperand] = parser.parse_comma_separated_list(
            parser.Delimiter.SQUARE,
            lambda: parser.parse_optional_keyword_in((*WORDS, ALL)) or parser.parse_unresolved_operand(),
        )
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        kind = parser.parse_type()
        parser.parse_punctuation("->")
        result = parser.parse_type()
        for word in WORDS:
            if places.count(word) > 1:
                parser.raise_error(f"expected '{word}' at most once among the indices", position)
        indices = [place for place in places if isinstance(place, UnresolvedOperand)]
        return cls.create(
            operands=parser.resolve_operands([memory, *indices], [kind, *(IndexType() for _ in indices)], position),
            properties={
                **{word: IntegerAttr(places.index(word), i64) for word in WORDS if word in places},
                **({"kept": kept} if (kept := _kept([i for i, p in enumerate(places) if p == ALL])) else {}),
            },
            attributes=attributes,
            result_types=[result],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.memory)
        words: list[str | SSAValue] = list(self.indices)
        named = [(place, word) for place, word in zip(self.dimensions, WORDS, strict=True) if place is not None]
        named += [(place, ALL) for place in self.dimensions_kept]
        for place, word in sorted(named):
            words.insert(place, word)
        with printer.in_square_brackets():
            printer.print_list(
                words, lambda w: printer.print_string(w) if isinstance(w, str) else printer.print_ssa_value(w)
            )
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.memory.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.matrix.type)


def _kept(dimensions: Sequence[int]) -> DenseArrayBase[IntegerType] | None:
    return DenseArrayBase.from_list(i64, list(dimensions)) if dimensions else None


def matrix_type(memory: Memory, row: int | None, column: int | None, kept: Sequence[int] = ()) -> MemRefType[Attribute]:
    """The type of a matrix whose rows and columns are two dimensions of memory, or repeated, or of one for each
    index of those kept; it may start anywhere."""
    shape, strides = memory.get_shape(), strides_of(memory)
    if strides is None or not max(row or 0, column or 0, *kept) < max(1, len(shape)):
        raise VerifyException(f"expected strided memory with dimensions {row} and {column}, got {memory}")
    layout = StridedLayoutAttr([0 if d is None else strides[d] for d in (*kept, row, column)], None)
    sizes = [DYNAMIC_INDEX if d is None else shape[d] for d in (*kept, row, column)]
    return MemRefType(memory.element_type, sizes, layout, memory.memory_space)
