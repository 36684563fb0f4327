"""What a kernel sees of the operands of an operation that is outlined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from xdsl.dialects import arith
from xdsl.dialects.builtin import i32
from xdsl.ir import SSAValue

from ...dialect.mlir.affine import map_along
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.elements import IndexOp, M, N, PointwiseOp
from ...dialect.warp.operands import OperandForm, of_form
from ...dialect.warp.views import MatrixOp
from ..linalg.operand import KernelArgument, MatrixOperand, MatrixPlace, Spread, VectorOperand
from ..patterns import Index, IndexBuilder


class Inside(NamedTuple):
    """The operands of an operation inside its kernel: `arguments` by value of the host, `views` of matrices, and the
    indices of the `batch` loops that its region uses."""

    arguments: Mapping[SSAValue, SSAValue]
    views: Mapping[MatrixPlace, SSAValue]
    numbers: Mapping[int, SSAValue]
    batch: int

    @staticmethod
    def of(
        index: IndexBuilder,
        function: PointwiseOp | None,
        operands: Sequence[KernelArgument],
        arguments: Mapping[SSAValue, SSAValue],
        batch: Sequence[Index],
        number: Index,
        part: Sequence[Index] = (),
        parted: Sequence[KernelArgument] = (),
    ) -> Inside:
        """The operands for one CTA. Memory of a batch, or in another layout than one matrix row by row, is replaced by
        the matrix of this `number` in the batch, limited to a `part` of its rows if it is divided."""
        seen = [o for o in operands if isinstance(o, MatrixOperand | Spread) and (o in parted or not o.is_whole)]
        at, views = index.unflattened(batch, number) if seen else [], dict[MatrixPlace, SSAValue]()
        for operand in seen:
            if operand.place not in views:
                rows = part if operand in parted else ()
                views[operand.place] = _view(index, operand, arguments[operand.value], at, rows)
        indices = [] if function is None else [op.number for op in function.body.block.ops if isinstance(op, IndexOp)]
        loops = sorted({loop for loop in indices if loop < len(batch)})
        at = index.unflattened(batch, number) if loops else []
        numbers = {loop: index.insert(arith.IndexCastOp(index.value(at[loop]), i32)).result for loop in loops}
        return Inside(arguments, views, numbers, len(batch))

    def seen(self, operand: KernelArgument) -> SSAValue:
        """What stands for an operand."""
        view = None if isinstance(operand, VectorOperand) else self.views.get(operand.place)
        return view or self.arguments[operand.value]

    def factor(self, index: IndexBuilder, form: OperandForm | None, operands: Sequence[KernelArgument]) -> SSAValue:
        """The value of A or B in the kernel, in its form, with the operands that the form reads."""
        memory, *side_operands = map(self.seen, operands)
        return of_form(form, memory, side_operands, index.insert)

    def function(
        self,
        index: IndexBuilder,
        function: PointwiseOp | None,
        operands: Sequence[KernelArgument],
        outer: int,
        loops: int,
    ) -> SSAValue | None:
        """The function of elements for a tile of so many loops, with `outer` loops before the rows, if there is one."""
        if function is None:
            return None
        inputs = [
            (self.seen(operand), map_along(loops, (outer + loop for loop in loops_in_tile(operand))))
            for operand in operands
        ]
        return index.insert(function.moved(inputs, loops, self.batch, self.numbers)).function


def loops_in_tile(operand: KernelArgument, loops: tuple[int, int] = (M, N)) -> tuple[int, ...]:
    """The loops of a kernel that an operand runs along, of the two that a matrix in its place does."""
    if isinstance(operand, VectorOperand):
        return tuple(loops["mn".index(axis)] for axis in operand.axis)
    return loops[::-1] if isinstance(operand, MatrixOperand) and operand.transposed else loops


def _view(
    index: IndexBuilder, operand: MatrixOperand | Spread, memory: SSAValue, at: Sequence[Index], part: Sequence[Index]
) -> SSAValue:
    """The matrix of this CTA, a `part` of its rows, or those that it sums over; `at` are the indices of the batch."""
    kept = [loop >= len(at) for loop in operand.batch]
    others = (d for d in range(memory_of(memory).get_num_dims()) if d not in operand.dimensions)
    dimensions = [d for d, stays in zip(others, kept, strict=True) if stays]
    indices = index.values([at[loop] for loop in operand.batch if loop < len(at)])
    return index.insert(MatrixOp(memory, indices, *operand.dimensions, dimensions, index.values(part))).matrix
