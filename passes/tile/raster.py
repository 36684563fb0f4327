"""Which tile a CTA and a warp compute, and the turns of the loop over K."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from xdsl.dialects import gpu
from xdsl.ir import SSAValue

from ...dialect.mlir.gpu import BlockIdOp, SubgroupIdOp
from ...dialect.schedule import Schedule
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.operands import drop_forms, memories_behind
from ...dialect.warp.views import MatrixOp
from ..builder import Index, IndexBuilder
from ..linalg.operand import MatrixOperand
from ..linalg.product import Product
from .tiling import Tiling

# The turns of the loop over K: the K tiles of k, for each index of the other loops that are summed over.
#
# All of them are one loop, so that copies run ahead from the last K tile of one index to the first of the next::
#
#     for turn = 0 to sizes * span step depth of a K tile:
#       s = min(turn / span, sizes - 1);  k = turn - s * span
#
# KTurns behind the last one, which copies that run ahead reach, are so at a k behind the end, where zeros are copied.


def axis(loop: int) -> str:
    """The name of a loop that is summed over beside k."""
    return f"s{loop}"


class KTurns(NamedTuple):
    """How far the turns of one k go, in elements, and the sizes of the other loops that are summed over."""

    span: Index
    sizes: tuple[Index, ...]

    @staticmethod
    def of(index: IndexBuilder, tiling: Tiling[Product]) -> KTurns:
        product, depth = tiling.product, tiling.schedule.cta[2]
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
        number = index.minimum(index.div(turn, self.span), last, signed=not isinstance(last, int))
        k = index.sub(turn, index.mul(number, self.span))
        return {"k": k} | {axis(loop): at for loop, at in enumerate(batch_index(index, self.sizes, number))}


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


# Which tile of the product a CTA and a warp compute.


class Extents(NamedTuple):
    """The sizes of a product where it is multiplied: numbers, or values for those that are not known; `batch` those of
    the loops around it."""

    m: Index
    n: Index
    batch: tuple[Index, ...]

    @staticmethod
    def of(index: IndexBuilder, product: Product, memory: Mapping[SSAValue, SSAValue]) -> Extents:
        """The sizes of the product, of which `memory` tells those that are not known."""

        def size(axis: str, known: int, operand: MatrixOperand, dimension: int) -> Index:
            return known if product.is_known(axis) else index.dim(memory[operand.value], dimension)

        a, b = product.a, product.b
        m = size("m", product.m, a, a.loops[0])
        n = size("n", product.n, b, b.loops[1])
        return Extents(m, n, batch_sizes(index, product, memory))


def batch_sizes(index: IndexBuilder, product: Product, memory: Mapping[SSAValue, SSAValue]) -> tuple[Index, ...]:
    """The sizes of the loops around a product; `memory` tells those that are not known, by what stands for D."""
    d = product.d
    others = [i for i in range(len(d.sizes)) if i not in d.dimensions]
    where = dict(zip(d.batch, others, strict=True))
    return tuple(
        index.dim(memory[d.value], where[loop]) if loop in product.dynamic else known
        for loop, known in enumerate(product.batch)
    )


def grid(index: IndexBuilder, extents: Extents, schedule: Schedule) -> tuple[Index, Index]:
    """CTA tiles along M and N. Clusters are whole: tiles may lie beyond the end, where they are moved back or store
    nothing."""
    (rows, columns, _), (high, wide) = schedule.cta, schedule.cluster
    down, across = index.ceildiv(extents.m, rows * high), index.ceildiv(extents.n, columns * wide)
    return index.mul(down, high), index.mul(across, wide)


def cta_number(index: IndexBuilder) -> SSAValue:
    """The number of this CTA."""
    return index.insert(BlockIdOp(gpu.DimensionAttr(gpu.DimensionEnum.X))).result


def cta_origin(index: IndexBuilder, extents: Extents, schedule: Schedule, tile: Index) -> tuple[Index, Index]:
    """The first row and column of a CTA tile.

    CTAs that run at the same time should share rows of A and columns of B in L2, so they walk `group`
    rows of tiles together, column by column. Those of a cluster have its tiles, which lie side by side.
    """
    (down, across), (high, wide) = grid(index, extents, schedule), schedule.cluster
    rank = index.rem(tile, high * wide)
    tile, down, across = index.div(tile, high * wide), index.div(down, high), index.div(across, wide)
    group = index.minimum(down, max(1, schedule.group // high))
    together = index.mul(group, across)
    within = index.rem(tile, together)
    first = index.mul(index.div(tile, together), group)
    height = group
    if not isinstance(down, int) or not isinstance(group, int) or down % group:
        height = index.minimum(index.sub(index.value(down), first), group)
    row, column = index.add(first, index.rem(within, height)), index.div(within, height)
    row = index.add(index.mul(row, high), index.rem(rank, high))
    column = index.add(index.mul(column, wide), index.div(rank, high) if wide > 1 else 0)
    return index.mul(row, schedule.cta[0]), index.mul(column, schedule.cta[1])


def moved_inside(index: IndexBuilder, tiling: Tiling[Product], axis: str, start: Index) -> Index:
    """The start of a CTA's tile along an axis, moved back where the tile would pass the end."""
    last = tiling.last_start(axis)
    return start if last is None else index.minimum(start, last)


def batch_index(index: IndexBuilder, sizes: Sequence[Index], number: Index) -> list[Index]:
    """The matrices with a number in a batch: an index for each loop around the product."""
    if not sizes:
        return []
    rest, found = number, list[Index]()
    for size in reversed(sizes[1:]):
        found.insert(0, index.rem(rest, size))
        rest = index.div(rest, size)
    return [rest, *found]


def warp_origin(index: IndexBuilder, schedule: Schedule) -> tuple[Index, Index]:
    """The first row and column of this warp's tile within the CTA's."""
    rows, columns = schedule.warp
    across = schedule.cta[1] // columns
    if schedule.warps == schedule.sliced_k * schedule.together:
        return 0, 0
    warp: Index = index.div(index.insert(SubgroupIdOp()).result, schedule.together)
    if schedule.sliced_k > 1:
        warp = index.rem(warp, schedule.warps // schedule.sliced_k)
    down: Index = index.div(warp, across) if schedule.cta[0] > rows else 0
    return index.mul(down, rows), index.mul(index.rem(warp, across) if across > 1 else 0, columns)


def slice_number(index: IndexBuilder, schedule: Schedule) -> Index:
    """Which slice this warp belongs to."""
    if schedule.sliced_k == 1:
        return 0
    return index.div(index.insert(SubgroupIdOp()).result, schedule.warps // schedule.sliced_k)
