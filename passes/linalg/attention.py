"""What `warp.attention` asks for, read once for the passes that lower it: its two products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from xdsl.dialects import memref
from xdsl.dialects.builtin import FloatAttr, MemRefType, f32
from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import AffineMap

from ...dialect.warp.attention import AttentionOp, D, E, M, N
from ...dialect.warp.attributes import element_row, memory_of
from ...dialect.warp.loops import loops_of, map_along
from ...dialect.warp.matmul import MatmulOp
from .operand import KernelArgument, each_once
from .product import Product, read

FACTORS = ((M, D), (D, N), (N, E), (M, E))
"""The loops that Q, K, V and O run along, as A of Q K^T, B of it, B of P V and D of that do."""


def padded(columns: int) -> int:
    """Columns of Q, K or V in a tile, of as many in memory."""
    return max(16, 1 << (columns - 1).bit_length())


class Attention(NamedTuple):
    """The two products of an attention: scores = Q K^T, with the region on scores as its epilogue, and O = P V.

    Scores and P are in no memory: what stands for them there is an allocation in no block.
    """

    op: AttentionOp
    scores: Product
    values: Product

    @staticmethod
    def of(op: AttentionOp) -> Attention:
        """Reads a verified operation. Raises a located diagnostic for layouts that are not lowered."""
        half, sizes = memory_of(op.v).element_type, op.sizes
        m, n, d, e = (op.batch + loop for loop in (M, N, D, E))
        outer = tuple(range(op.batch))
        row = element_row(half)
        names = [row.name if row is not None else str(half)] * 2
        q, k, v, o = map(loops_of, op.maps)

        def along(every: Sequence[int], *operands: Sequence[int]) -> list[AffineMap]:
            """The maps of a product over these loops."""
            return [map_along(len(every), map(every.index, loops)) for loops in operands]

        changed = None
        if op.score is not None:
            inputs = [(value, map_along(len(outer) + 3, loops_of(map_))) for value, map_ in op.score.placed]
            changed = op.score.moved(inputs, len(outer) + 3, 0).function
        inner = [sizes[loop] for loop in (*outer, m, n)]
        scores = MatmulOp(
            *(op.q, op.k, _nowhere(f32, inner), names),
            init=FloatAttr(0.0, f32),
            maps=along((*outer, m, n, d), q, k, (*outer, m, n)),
            through=changed,
        )
        maps = along((*outer, m, e, n), (*outer, m, n), v, o)
        values = MatmulOp(_nowhere(half, inner), op.v, op.o, names, init=FloatAttr(0.0, f32), maps=maps)
        scores.location = values.location = op.location
        return Attention(op, read(scores), read(values))

    @property
    def operands(self) -> tuple[KernelArgument, ...]:
        """Q, K, V, O and what the region on scores takes."""
        scores, values = self.scores, self.values
        matrices = zip("QKVO", (scores.a, scores.b, values.b, values.d), strict=True)
        return (*(replace(operand, name=name) for name, operand in matrices), *scores.epilogue_operands)

    @property
    def memories(self) -> tuple[KernelArgument, ...]:
        """The operands of the kernel: each memory once."""
        q, k, v, o, *of_scores = self.operands
        return each_once((q, k, v, *of_scores, o))


def _nowhere(kind: Attribute, shape: Sequence[int]) -> SSAValue:
    """Memory that stands for a matrix which is never in memory."""
    return memref.AllocOp([], [], MemRefType(kind, shape)).memref
