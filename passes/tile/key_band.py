"""The scores of an attention that count by their place, and masks of those that do not."""

from __future__ import annotations

import math
from typing import NamedTuple

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Region, SSAValue

from ...dialect.schedule import Schedule
from ...dialect.warp.attention import StepOp
from ...dialect.warp.attributes import FragmentType, fragment_of
from ..patterns import Index, IndexBuilder
from .fragment_math import below, mapped, until


class Band(NamedTuple):
    """The scores that count by their place: in row r the columns up to r + `right`, from r - `left` on; of all where
    there is no such number."""

    right: int | None
    left: int | None

    def end(self, index: IndexBuilder, columns: Index, start: Index, rows: int) -> Index:
        """Where columns end that count for so many rows from `start` on; there are so many `columns`."""
        if self.right is None:
            return columns
        reached = index.add(start, rows + self.right)
        columns, reached = index.value(columns), index.value(reached)
        return index.insert(arith.MinSIOp(columns, reached, IndexType())).result

    def first(self, index: IndexBuilder, start: Index, step: int) -> Index:
        """The tile of `step` columns with the first that counts for a row from `start` on."""
        return 0 if self.left is None else index.div(index.from_zero(index.sub(start, self.left)), step)

    def masked(
        self, index: IndexBuilder, schedule: Schedule, scores: SSAValue, row: Index, at: SSAValue, columns: Index
    ) -> SSAValue:
        """Scores of a warp, which begin at a row and at a column, with minus infinity where they do not count; so many
        `columns` do, a multiple of a tile's where zeros may stand for scores behind the end."""
        beyond: list[SSAValue] = []
        rows, width = schedule.warp
        last = index.add(at, width)
        if not isinstance(columns, int) or columns % schedule.cta[1]:
            beyond.append(index.compare("sgt", last, columns))
        if self.right is not None:
            # The last column of the tile against the last that counts for the first row of the warp.
            first = index.add(row, self.right + 1)
            beyond.append(index.compare("sgt", last, first))
        if self.left is not None:
            # The first column of the tile against the first that counts for the last row of the warp.
            first = index.add(row, rows - 1 - self.left)
            beyond.append(index.compare("slt", at, first))
        if not beyond:
            return scores
        condition, *others = beyond
        for other in others:
            condition = index.insert(arith.OrIOp(condition, other)).result
        then, otherwise = Block(), Block()
        inner = index.within(then)
        inner.insert(scf.YieldOp(self._mask(inner, schedule, scores, row, at, columns)))
        otherwise.add_op(scf.YieldOp(scores))
        op = scf.IfOp(condition, [scores.type], Region(then), Region(otherwise))
        return index.insert(op).results[0]

    def _mask(
        self, index: IndexBuilder, schedule: Schedule, scores: SSAValue, row: Index, at: SSAValue, columns: Index
    ) -> SSAValue:
        kind = fragment_of(scores)
        if not isinstance(columns, int) or columns % schedule.cta[1]:
            scores = until(index, scores, index.sub(at, columns), -math.inf)
        if self.right is not None:
            places = self._places(index, row, at, kind, self.right + 1)
            scores = mapped(index, lambda x: below(x[1], x[2], x[0], -math.inf), scores, *places)
        if self.left is not None:
            places = self._places(index, row, at, kind, -self.left - 1)
            scores = mapped(index, lambda x: below(x[2], x[1], x[0], -math.inf), scores, *places)
        return scores

    @staticmethod
    def _places(
        index: IndexBuilder, row: Index, at: SSAValue, kind: FragmentType, less: int
    ) -> tuple[SSAValue, SSAValue]:
        """The columns of scores counted from the warp's first row, less a number, and their rows."""
        start = index.sub(index.sub(at, index.value(row)), less)
        column = index.insert(StepOp("columns", index.value(start), kind)).fragment
        return column, index.insert(StepOp("rows", index.value(0), kind)).fragment
