"""The epilogue of a product on accumulators: epilogue operands loaded to lie as they do, and `warp.map`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xdsl.dialects.builtin import i32
from xdsl.ir import Region, SSAValue, TypeAttribute
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import Rewriter

from ...dialect.warp.attributes import FragmentType, fragment_of, memory_of
from ...dialect.warp.epilogue import AXES, LoadVectorOp, MapOp
from ...dialect.warp.indices import IndexOp
from ...dialect.warp.loops import M, N, loops_of, map_along
from ...dialect.warp.memory import bounds
from ...dialect.warp.pointwise import PointwiseOp
from ...dialect.warp.rows import StepOp
from ...dialect.warp.view import strides_of
from ..linalg.operand import KernelArgument, VectorOperand
from .index_builder import Index, IndexBuilder
from .matrix_load import InBounds, held_type, load


class PlacedOperand(NamedTuple):
    """What an epilogue takes beside the sums: a number, a vector along rows or columns of D, or a matrix like D."""

    value: SSAValue
    loops: tuple[int, ...]


def placed(operand: KernelArgument) -> tuple[SSAValue, AffineMap]:
    """An operand of a product, with the rows and the columns of D that it runs along."""
    loops = tuple("mn".index(axis) for axis in operand.axis) if isinstance(operand, VectorOperand) else (M, N)
    return operand.value, map_along(2, loops)


class EpilogueOperands:
    """Loads the epilogue operands of parts of a warp's accumulators, whose first element is that of row m and column n.

    Parts are of the type `part`: a matrix beside all accumulators would take as many registers as they do. What runs
    along the columns is the same for all of them and loaded once, before the first.
    """

    def __init__(
        self,
        index: IndexBuilder,
        operands: Sequence[tuple[SSAValue, AffineMap]],
        part: FragmentType,
        m: Index,
        n: Index,
        in_bounds: InBounds,
    ) -> None:
        self.index, self.part, self.m, self.n, self.in_bounds = index, part, m, n, in_bounds
        self.operands = [PlacedOperand(value, loops_of(map_)) for value, map_ in operands]
        self._same = {o: self._vector(o, n) for o in self.operands if o.loops == (N,)}
        self._same |= {o: self._matrix(o, m) for o in self.operands if o.loops == (M, N) and _repeats(o.value)}

    def load(self, row: int) -> list[SSAValue]:
        """The epilogue operands for the part that starts at a row."""
        return [self._load(operand, self.index.add(self.m, row)) for operand in self.operands]

    def map(
        self, part: SSAValue, loaded: Sequence[SSAValue], epilogue: PointwiseOp, wanted: TypeAttribute, row: int
    ) -> SSAValue:
        """The elements, of a type, that an epilogue makes of the part that starts at a row, and of what was loaded for
        it."""
        result, region = fragment_of(part).with_element(wanted), epilogue.body.clone()
        indices = self._indices(region, result, self.index.add(self.m, row))
        return self.index.insert(MapOp([part, *loaded, *indices], result, region)).fragment

    def _indices(self, region: Region, kind: FragmentType, m: Index) -> list[SSAValue]:
        """The indices that a region uses, which become arguments of it."""
        steps: dict[int, tuple[SSAValue, SSAValue]] = {}
        for op in [op for op in region.block.ops if isinstance(op, IndexOp)]:
            loop = op.number
            if loop not in steps:
                start = self.index.value((m, self.n)[loop])
                step = self.index.insert(StepOp(AXES[loop], start, kind)).fragment
                steps[loop] = step, region.block.insert_arg(i32, len(region.block.args))
            Rewriter.replace_op(op, [], [steps[loop][1]])
        return [step for step, _ in steps.values()]

    def _load(self, operand: PlacedOperand, m: Index) -> SSAValue:
        if not operand.loops:
            return operand.value
        if (known := self._same.get(operand)) is not None:
            return known
        return self._matrix(operand, m) if operand.loops == (M, N) else self._vector(operand, m)

    def _matrix(self, operand: PlacedOperand, m: Index) -> SSAValue:
        return load(self.index, operand.value, self.part, m, self.n, self.in_bounds)

    def _vector(self, operand: PlacedOperand, start: Index) -> SSAValue:
        kind, inside = self.part.with_element(held_type(operand.value)), bounds(self.in_bounds)
        (loop,), where = operand.loops, self.index.value(start)
        return self.index.insert(LoadVectorOp(operand.value, where, AXES[loop], kind, in_bounds=inside[loop])).fragment


def _repeats(memory: SSAValue) -> bool:
    """Whether all rows of a matrix are the same."""
    return (strides_of(memory_of(memory)) or (None,))[0] == 0
