"""What `warp.attention` asks for, read once for the passes that lower it: its two products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects import memref
from xdsl.dialects.builtin import FloatAttr, MemRefType, f32
from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap

from ...dialect.warp.attention import LOOPS, AttentionOp, M, N, matmul_maps
from ...dialect.warp.attributes import element_row, memory_of
from ...dialect.warp.loops import loops_of
from ...dialect.warp.matmul import MatmulOp
from .operand import Argument, Operand, VectorOperand
from .product import Product, read


def padded(columns: int) -> int:
    """Columns of Q, K or V in a tile, of as many in memory."""
    return max(16, 1 << (columns - 1).bit_length())


@dataclass(frozen=True)
class Attention:
    """The two products of an attention: scores = Q K^T, with the region on scores as its epilogue, and O = P V.

    Scores and P are in no memory: what stands for them there is an allocation in no block.
    """

    op: AttentionOp
    scores: Product
    values: Product

    @staticmethod
    def of(op: AttentionOp) -> Attention:
        """Reads a verified operation. Raises a located diagnostic for layouts that are not lowered."""
        sizes = _sizes(op)
        of_scores, of_values = matmul_maps(op)
        half = memory_of(op.v).element_type
        row = element_row(half)
        names = [row.name if row is not None else str(half)] * 2
        inner = [sizes[loop] for loop in range(op.batch + 2)]
        extras = [_without(map_, op.batch) for map_ in op.maps[len(LOOPS) :]]
        scores = MatmulOp(
            *(op.q, op.k, _nowhere(f32, inner), names),
            init=FloatAttr(0.0, f32),
            maps=[*of_scores, *extras],
            epilogue_operands=op.score_operands,
            epilogue=None if op.score is None else op.score.clone(),
        )
        values = MatmulOp(_nowhere(half, inner), op.v, op.o, names, init=FloatAttr(0.0, f32), maps=of_values)
        scores.location = values.location = op.location
        return Attention(op, read(scores), read(values))

    @property
    def q(self) -> Operand:
        return replace(self.scores.a, name="Q")

    @property
    def k(self) -> Operand:
        return replace(self.scores.b, name="K")

    @property
    def v(self) -> Operand:
        return replace(self.values.b, name="V")

    @property
    def o(self) -> Operand:
        return replace(self.values.d, name="O")

    @property
    def memories(self) -> tuple[Argument, ...]:
        """The operands of the kernel: each memory once."""
        found: dict[SSAValue, Argument] = {}
        for operand in (self.q, self.k, self.v, *self.scores.epilogue_operands, self.o):
            found.setdefault(operand.value, operand)
        return tuple(found.values())

    def tile(self, seen: Sequence[SSAValue], row: SSAValue) -> AttentionOp:
        """What one CTA computes from a row on, where `seen` stand for Q, K, V, O and the score operands."""
        op = self.op
        extras = [_kernel_map(operand) for operand in self.scores.epilogue_operands]
        scores, values = self.scores, self.values
        turned = (scores.a.transposed, not scores.b.transposed, values.b.transposed, False)
        loops = [own[::-1] if other else own for own, other in zip(LOOPS, turned, strict=True)]
        found = AttentionOp(
            seen[:4],
            [_map(own) for own in loops] + extras,
            scale=op.scale.value.data,
            diagonal=None if op.diagonal is None else op.diagonal.value.data,
            score_operands=seen[4:],
            score=None if op.score is None else op.score.clone(),
            tile=[row],
        )
        found.location = op.location
        return found


def _kernel_map(operand: Argument) -> AffineMap:
    """The loops that a score operand runs along in the kernel."""
    if isinstance(operand, VectorOperand):
        return _map(tuple({"m": M, "n": N}[axis] for axis in operand.axis))
    return _map((M, N))


def _map(loops: Sequence[int]) -> AffineMap:
    return AffineMap(len(LOOPS), 0, tuple(map(AffineDimExpr, loops)))


def _nowhere(kind: Attribute, shape: Sequence[int]) -> SSAValue:
    """Memory that stands for a matrix which is never in memory."""
    return memref.AllocOp([], [], MemRefType(kind, shape)).memref


def _without(map_: AffineMap, batch: int) -> AffineMap:
    """The map of a score operand over the loops of the scores."""
    return AffineMap(batch + 3, 0, tuple(AffineDimExpr(loop) for loop in loops_of(map_)))


def _sizes(op: AttentionOp) -> Mapping[int, int]:
    """The size of each loop; -1 for what no operand tells."""
    sizes: dict[int, int] = {}
    for value, map_ in zip(op.matrices, op.maps, strict=False):
        for loop, size in zip(loops_of(map_), memory_of(value).get_shape(), strict=True):
            sizes[loop] = max(size, sizes.get(loop, -1))
    return sizes
