"""`warp.attention` as the passes that lower it read it: its two products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from xdsl.dialects import memref
from xdsl.dialects.builtin import FloatAttr, MemRefType, f32
from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import AffineMap

from ...dialect.mlir.affine import loops_of, map_along
from ...dialect.warp.attention import AttentionOp, D, E, M, N
from ...dialect.warp.attributes import element_row, memory_of
from ...dialect.warp.elements import PointwiseOp
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.views import PagedOp
from .operand import KernelArgument, VectorOperand, each_once
from .product import Product, read

FACTORS = ((M, D), (D, N), (N, E), (M, E))
"""The loops that Q, K, V and O run along, as A of Q K^T, B of it, B of P V and D of that do."""


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

        def moved(function: PointwiseOp | None, every: Sequence[int]) -> SSAValue | None:
            """A function, in a product over these loops."""
            if function is None:
                return None
            inputs = [
                (value, map_along(len(every), map(every.index, loops_of(map_)))) for value, map_ in function.placed
            ]
            return function.moved(inputs, len(every), 0).function

        inner = [sizes[loop] for loop in (*outer, m, n)]
        scores = MatmulOp(
            *(op.q, op.k, _nowhere(f32, inner), names),
            init=FloatAttr(0.0, f32),
            maps=along((*outer, m, n, d), q, k, (*outer, m, n)),
            through=moved(op.score, (*outer, m, n, d)),
        )
        maps = along((*outer, m, e, n), (*outer, m, n), v, o)
        values = MatmulOp(
            *(_nowhere(half, inner), op.v, op.o, names),
            init=FloatAttr(0.0, f32),
            maps=maps,
            through=moved(op.function, (*outer, m, e, n)),
        )
        scores.location = values.location = op.location
        return Attention(op, read(scores), read(values))

    @property
    def operands(self) -> tuple[KernelArgument, ...]:
        """Q, K, V, O and what the regions on scores and on results take."""
        scores, values = self.scores, self.values
        matrices = zip("QKVO", (scores.a, scores.b, values.b, values.d), strict=True)
        named = (replace(operand, name=name) for name, operand in matrices)
        return (*named, *scores.epilogue_operands, *values.epilogue_operands)

    @property
    def lengths(self) -> VectorOperand | None:
        """How many keys each sequence has, where memory says it."""
        return None if self.op.lengths is None else VectorOperand("lengths", self.op.lengths)

    def tiles(self, rows: int) -> int:
        """How many tiles of so many rows O has; the sizes are known."""
        return -(-self.scores.m // rows) * math.prod(self.values.batch)

    @property
    def memories(self) -> tuple[KernelArgument, ...]:
        """The operands of the kernel: each memory once."""
        q, k, v, o, *of_scores = self.operands
        lengths = [] if self.lengths is None else [self.lengths]
        pages = [VectorOperand("pages", view.table) for view in self.paged]
        lse = [] if self.op.lse is None else [VectorOperand("lse", self.op.lse)]
        sinks = [] if self.op.sinks is None else [VectorOperand("sinks", self.op.sinks)]
        given = [_in_memory(operand) for operand in (q, k, v)]
        documents = [VectorOperand(f"of_{axis}", v) for axis, v in zip("mn", self.op.documents, strict=False)]
        return each_once((*given, *of_scores, *pages, *lengths, *sinks, *documents, o, *lse))

    @property
    def paged(self) -> list[PagedOp]:
        """The views of pages that K and V are."""
        return [view for operand in (self.op.k, self.op.v) if isinstance(view := operand.owner, PagedOp)]


def _in_memory(operand: KernelArgument) -> KernelArgument:
    """What a kernel takes for K or V: of a view of pages, all pages."""
    view = operand.value.owner
    return VectorOperand(operand.name, view.memory, divisor=operand.divisor) if isinstance(view, PagedOp) else operand


def _nowhere(kind: Attribute, shape: Sequence[int]) -> SSAValue:
    """Memory that stands for a matrix which is never in memory."""
    return memref.AllocOp([], [], MemRefType(kind, shape)).memref
