"""The turns of the loop over K: the K tiles of k, for each index of the other loops that are summed over.

All of them are one loop, so that copies run ahead from the last K tile of one index to the first of the next::

    for turn = 0 to sizes * span step depth of a K tile:
      s = min(turn / span, sizes - 1);  k = turn - s * span

KTurns behind the last one, which copies that run ahead reach, are so at a k behind the end, where zeros are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

from xdsl.ir import SSAValue

from ...dialect.warp.attributes import memory_of
from ...dialect.warp.operand_forms import drop_forms, memories_behind
from ...dialect.warp.view import MatrixOp
from ..linalg.operand import MatrixOperand
from .index_builder import Index, IndexBuilder
from .tiling import Tiling


def axis(loop: int) -> str:
    """The name of a loop that is summed over beside k."""
    return f"s{loop}"


class KTurns(NamedTuple):
    """How far the turns of one k go, in elements, and the sizes of the other loops that are summed over."""

    span: Index
    sizes: tuple[Index, ...]

    @staticmethod
    def of(index: IndexBuilder, tiling: Tiling) -> KTurns:
        product, depth = tiling.product, tiling.schedule.tile.cta[2]
        a = product.a
        k = index.dim(a.value, a.loops[1]) if _unknown(a, a.loops[1]) else product.k
        if not product.summed:
            return KTurns(k, ())
        others = [d for d in range(len(a.sizes)) if d not in a.dimensions]
        along = dict(zip(a.batch, others, strict=True))
        sizes = (index.dim(a.value, along[loop]) for loop in range(len(product.summed)))
        return KTurns(index.mul(index.ceildiv(k, depth), depth), tuple(sizes))

    def end(self, index: IndexBuilder) -> Index:
        return reduce(index.mul, self.sizes, self.span)

    def place(self, index: IndexBuilder, turn: Index) -> dict[str, Index]:
        """Where a turn is: its k, and the indices of the other loops. If a loop has no indices, which perhaps only the
        caller knows, the k of each turn is behind the end: then `last` is -1."""
        if not self.sizes:
            return {"k": turn}
        if 0 in (self.span, *self.sizes):
            return {"k": index.add(turn, self.span)} | {axis(loop): 0 for loop in range(len(self.sizes))}
        last = index.sub(reduce(index.mul, self.sizes, 1), 1)
        rest = number = index.minimum(index.div(turn, self.span), last, signed=not isinstance(last, int))
        found: dict[str, Index] = {"k": index.sub(turn, index.mul(number, self.span))}
        for loop in range(len(self.sizes) - 1, 0, -1):
            found[axis(loop)] = index.rem(rest, self.sizes[loop])
            rest = index.div(rest, self.sizes[loop])
        return found | {axis(0): rest}


def matrix_of(index: IndexBuilder, operand: MatrixOperand, at: dict[str, Index]) -> SSAValue:
    """The matrix of an operand at the indices of the loops that are summed over beside k."""
    if not operand.batch:
        return operand.value
    indices, held = index.values([at[axis(loop)] for loop in operand.batch]), operand.value.owner
    if isinstance(held, MatrixOp):
        return index.insert(held.at(indices, *operand.dimensions)).matrix
    return index.insert(MatrixOp(operand.value, indices, *operand.dimensions)).matrix


def _unknown(operand: MatrixOperand, dimension: int) -> bool:
    return memory_of(operand.value).get_shape()[dimension] < 0


def drop_unused(values: Sequence[SSAValue]) -> None:
    """Erases matrices that nothing is taken from any more, and forms of operands that nothing multiplies."""
    memories = [memory for value in values for memory in memories_behind(value)]
    drop_forms(values)
    for value in dict.fromkeys(memories):
        if isinstance(value.owner, MatrixOp) and not value.uses:
            value.owner.detach()
            value.owner.erase()
