"""The epilogue of a product on accumulators: epilogue operands loaded to lie as they do, and `warp.map`."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import i32
from xdsl.ir import Region, SSAValue
from xdsl.rewriter import Rewriter

from ...dialect.warp.attributes import FragmentType, fragment_of, memory_of
from ...dialect.warp.epilogue import AXES, LoadVectorOp, MapOp
from ...dialect.warp.indices import IndexOp
from ...dialect.warp.rows import StepOp
from ...dialect.warp.view import strides_of
from ..linalg.operand import Argument, Operand, Spread, VectorOperand
from .index_builder import Index, IndexBuilder
from .matrix_load import held_type, load
from .tiling import Tiling


class EpilogueOperands:
    """Applies the epilogue to parts of a warp's accumulators, whose first element is that of row m and column n.

    Parts are of the type `part`: a matrix beside all accumulators would take as many registers as they do. What runs
    along the columns is the same for all of them and loaded once, before the first.
    """

    def __init__(self, tiling: Tiling, index: IndexBuilder, part: FragmentType, m: Index, n: Index) -> None:
        self.tiling, self.index, self.part, self.m, self.n = tiling, index, part, m, n
        vectors = [extra for extra in tiling.product.epilogue_operands if isinstance(extra, VectorOperand)]
        self._along_columns = {extra.value: self._vector(extra, n) for extra in vectors if extra.axis == "n"}
        self._same_rows = {
            extra: self._matrix(extra, m)
            for extra in tiling.product.epilogue_operands
            if isinstance(extra, Operand | Spread) and _repeats(extra.value)
        }

    def load(self, row: int) -> list[SSAValue]:
        """The epilogue operands for the part that starts at a row."""
        return [self._load(extra, self.index.add(self.m, row)) for extra in self.tiling.product.epilogue_operands]

    def map(self, part: SSAValue, loaded: Sequence[SSAValue], row: int) -> SSAValue:
        """The elements of D for the part of the product's that starts at a row, and what was loaded for it."""
        product, region = self.tiling.product, self.tiling.product.op.epilogue
        result = fragment_of(part).with_element(product.d.element_type)
        region = Region() if region is None else region.clone()
        indices = self._indices(region, result, self.index.add(self.m, row))
        return self.index.insert(MapOp([part, *loaded, *indices], result, region)).fragment

    def _indices(self, region: Region, kind: FragmentType, m: Index) -> list[SSAValue]:
        """The indices that a region uses, which become arguments of it."""
        steps: dict[int, tuple[SSAValue, SSAValue]] = {}
        for op in [op for op in region.block.ops if isinstance(op, IndexOp)]:
            loop = op.number - self.tiling.product.op.outer
            if loop not in steps:
                start = self.index.value((m, self.n)[loop])
                step = self.index.insert(StepOp(AXES[loop], start, kind)).fragment
                steps[loop] = step, region.block.insert_arg(i32, len(region.block.args))
            Rewriter.replace_op(op, [], [steps[loop][1]])
        return [step for step, _ in steps.values()]

    def _load(self, extra: Argument, m: Index) -> SSAValue:
        if isinstance(extra, VectorOperand):
            known = self._along_columns.get(extra.value) if extra.axis else extra.value
            return known or self._vector(extra, m)
        return self._same_rows.get(extra) or self._matrix(extra, m)

    def _matrix(self, extra: Operand | Spread, m: Index) -> SSAValue:
        return load(self.tiling, self.index, extra, self.part, m, self.n)

    def _vector(self, extra: VectorOperand, start: Index) -> SSAValue:
        kind, inside = self.part.with_element(held_type(self.tiling, extra)), self.tiling.inside(extra.axis)
        along = {"m": "rows", "n": "columns"}[extra.axis]
        memory, where = extra.value, self.index.value(start)
        return self.index.insert(LoadVectorOp(memory, where, along, kind, in_bounds=inside)).fragment


def _repeats(memory: SSAValue) -> bool:
    """Whether all rows of a matrix are the same."""
    return (strides_of(memory_of(memory)) or (None,))[0] == 0
