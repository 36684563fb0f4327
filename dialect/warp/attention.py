"""`warp.attention`: two products with a softmax between them, on memory."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    BFloat16Type,
    Float16Type,
    Float32Type,
    FloatAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    f32,
    i64,
)
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from .attributes import memory_of
from .loops import LoopSizes, loops_around, loops_of
from .pointwise import PointwiseOp, PointwiseType, pointwise_of

M, N, D, E = 0, 1, 2, 3
"""The loops of attention behind those of its batch: queries, keys, what both have in common, what values have."""

LOOPS = ((M, D), (N, D), (N, E), (M, E))
"""The loops that Q, K, V and O run along."""

HALVES = (Float16Type, BFloat16Type)


@irdl_op_definition
class AttentionOp(IRDLOperation):
    """O = softmax(scale * f(Q K^T)) V, row by row of the scores, in one pass over K and V::

        warp.attention %Q, %K, %V into %O {
          scale = 1.250000e-01 : f32, indexing_maps = [affine_map<(h, m, n, d, e) -> (h, m, d)>, ...]
        } : memref<16x512x64xf16>, memref<16x512x64xf16>, memref<16x512x64xf16>, memref<16x512x64xf16>

    The loops are those of a batch, then m over queries, n over keys, d over the columns of Q and K, and e over the
    columns of V. Q is indexed by m and d, K by n and d, V by n and e, and O by m and e. All loops of the batch index O.
    A loop of the batch indexes Q, K or V only if its matrices differ along the loop, so several heads may share K and
    V.

    Scores are f32. With `diagonal = c`, scores with n > m + c count as minus infinity. A `warp.pointwise`, given as
    `scores %f`, may change them: it takes a score before scaling, and yields a score in f32. Its operands are indexed
    by m, n and the batch.

    As the formula says, the result is NaN for a row whose scores are all minus infinity, and for a row with a NaN or
    plus infinity.

    In a kernel, the operation computes the tile of one CTA, `tile [%m]`: the rows of O from m on, as many as the
    schedule says.
    """

    name = "warp.attention"

    q = operand_def(MemRefType)
    k = operand_def(MemRefType)
    v = operand_def(MemRefType)
    o = operand_def(MemRefType)
    scores = opt_operand_def(PointwiseType())
    tile = var_operand_def(IndexType())
    scale = prop_def(FloatAttr)
    diagonal = opt_prop_def(IntegerAttr)
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr])

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    assembly_format = (
        "$q `,` $k `,` $v `into` $o (`scores` $scores^)? (`tile` $tile^)? attr-dict"
        " `:` type($q) `,` type($k) `,` type($v) `,` type($o)"
    )

    def __init__(
        self,
        matrices: Sequence[SSAValue],
        maps: Sequence[AffineMap],
        *,
        scale: float = 1.0,
        diagonal: int | None = None,
        scores: SSAValue | None = None,
        tile: Sequence[SSAValue] = (),
    ):
        """`matrices` are Q, K, V and O."""
        super().__init__(
            operands=[*matrices, scores, list(tile)],
            properties={
                "scale": FloatAttr(scale, f32),
                "diagonal": None if diagonal is None else IntegerAttr(diagonal, i64),
                "indexing_maps": ArrayAttr([AffineMapAttr(map_) for map_ in maps]),
            },
        )

    @property
    def matrices(self) -> tuple[SSAValue, SSAValue, SSAValue, SSAValue]:
        """Q, K, V and O."""
        return self.q, self.k, self.v, self.o

    @property
    def maps(self) -> tuple[AffineMap, ...]:
        """The indexing maps of Q, K, V and O."""
        return tuple(attribute.data for attribute in self.indexing_maps)

    @property
    def batch(self) -> int:
        """How many loops there are before m, n, d and e."""
        return self.maps[0].num_dims - len(LOOPS)

    @property
    def score(self) -> PointwiseOp | None:
        """What scores become before they are scaled."""
        return pointwise_of(self.scores)

    @property
    def score_operands(self) -> list[SSAValue]:
        """The operands of that."""
        return [] if self.score is None else list(self.score.inputs)

    @property
    def _along_scores(self) -> tuple[int, ...]:
        """The loops that scores run along."""
        return (*range(self.batch), self.batch + M, self.batch + N)

    @property
    def sizes(self) -> LoopSizes:
        """The sizes of all loops. Raises VerifyException if operands disagree."""
        found = LoopSizes()
        for name, operand, map_ in zip("QKVO", self.matrices, self.maps, strict=True):
            found.add(name, operand, loops_of(map_))
        return found

    def verify_(self) -> None:
        if len(self.maps) != len(LOOPS):
            raise VerifyException(f"expected maps of Q, K, V and O, got {len(self.maps)}")
        if len(self.tile) > 1:
            raise VerifyException(f"expected the row of a tile of O, got {len(self.tile)} indices")
        self._verify_types()
        for name, loops, map_ in zip("QKVO", LOOPS, self.maps, strict=False):
            around = loops_around(name, loops, map_, self.batch, len(LOOPS))
            if name == "O" and len(around) != self.batch:
                raise VerifyException(f"expected O to be indexed by every loop of the batch, got {map_}")
        sizes = self.sizes
        if self.score is not None:
            if self.score.taken != f32:
                raise VerifyException(f"expected scores of f32 to be taken, got {self.score.taken}")
            self.score.verify_use("score operand", f32, self.maps[0].num_dims, self._along_scores, sizes)

    def _verify_types(self) -> None:
        kinds = [memory_of(value).element_type for value in self.matrices]
        if not isinstance(kinds[0], HALVES) or kinds[1] != kinds[0] or kinds[2] != kinds[0]:
            raise VerifyException(f"expected Q, K and V of f16, or of bf16, got {', '.join(map(str, kinds[:3]))}")
        if kinds[3] not in (kinds[0], Float32Type()):
            raise VerifyException(f"expected O of {kinds[0]} or f32, got {kinds[3]}")
