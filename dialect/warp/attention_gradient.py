"""`warp.attention_gradient`: the gradients of an attention, from what the forward pass keeps of each row of scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xdsl.dialects.builtin import Float32Type, FloatAttr, IndexType, MemRefType, f32
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from ..mlir.affine import loops_of
from .attention import HALVES, LOOPS, D, E, Keys, M, N, OverKeys, verify_documents
from .attributes import memory_of
from .elements import LoopSizes, loops_around, verify_along

INNER = len(LOOPS)
"""Loops behind those of the batch: queries, keys, columns of Q and K, columns of V."""

MATRICES = {"Q": (M, D), "K": (N, D), "V": (N, E), "dO": (M, E)}
"""The loops of the matrices that are read."""

ROWS = ("lse", "delta")
"""What is read for each query."""

INPUTS = (*MATRICES, *ROWS, "mask")
"""What is read; the mask if there is one."""

GRADIENTS = {"dQ": (M, D), "dK": (N, D), "dV": (N, E)}
"""The loops of the matrices that may be written."""


class Gradient(NamedTuple):
    """A result: its name, memory, and map."""

    name: str
    memory: SSAValue
    map: AffineMap


@irdl_op_definition
class AttentionGradientOp(OverKeys):
    """Gradients of O = softmax(scale * Q K^T + mask) V, from that of O::

        P = exp(scale * Q K^T + mask - lse)
        dS = scale * P * (dO V^T - delta)
        dQ = dS K                       dK = dS^T Q                        dV = P^T dO

        warp.attention_gradient %Q, %K, %V, %dO, %lse, %delta into %dK, %dV {
          scale = 1.250000e-01 : f32, indexing_maps = [affine_map<(h, m, n, d, e) -> (h, m, d)>, ...]
        } : memref<16x512x64xf16>, ..., memref<16x512xf32>, memref<16x512xf32>
          into memref<16x512x64xf16>, memref<16x512x64xf16>

    The loops are those of `warp.attention`. For each query, `lse` is the logarithm of the sum of the exponentials of
    its scores, and `delta` is the sum of dO * O along its row, both in f32. The results are dQ, dK, dV, or both dK and
    dV; the maps say which. Loops of the batch that index no result are summed over: if several heads share K and V, so
    are dK and dV the sums over these heads.

    With `diagonal = c`, scores with n > m + c count as minus infinity, with `window = w` those with n < m - w, with two
    `documents` those of queries and keys whose numbers differ, as in `warp.attention`. A mask, the last input where
    there is one, of f16, bf16 or f32, is along queries, keys or both, and loops of the batch.

    P and dS are computed in f32, and rounded to the type of the matrices that they are multiplied with. Sums are f32.

    In a kernel, the operation computes the tile of one CTA: `tile [%row, ...]` has the first row of the results, then
    the index along each loop of the batch that the results run along; `from` and `until` are the first column of the
    scores that counts for any of its rows, and the first that counts for none from there on.
    """

    name = "warp.attention_gradient"

    q = operand_def(MemRefType)
    k = operand_def(MemRefType)
    v = operand_def(MemRefType)
    do = operand_def(MemRefType)
    lse = operand_def(MemRefType)
    delta = operand_def(MemRefType)
    mask = opt_operand_def(MemRefType)
    outputs = var_operand_def(MemRefType)
    tile = var_operand_def(IndexType())
    first = opt_operand_def(IndexType())
    until = opt_operand_def(IndexType())
    documents = var_operand_def(MemRefType)

    assembly_format = (
        "$q `,` $k `,` $v `,` $do `,` $lse `,` $delta (`,` $mask^)? `into` $outputs (`tile` $tile^)? (`from` $first^)?"
        " (`until` $until^)? attr-dict `:` type($q) `,` type($k) `,` type($v) `,` type($do) `,` type($lse) `,`"
        " type($delta) (`,` type($mask)^)? `into` type($outputs) (`documents` $documents^ `:` type($documents))?"
    )

    def __init__(
        self,
        inputs: Sequence[SSAValue],
        outputs: Sequence[SSAValue],
        maps: Sequence[AffineMap],
        *,
        scale: float,
        keys: Keys | None = None,
        tile: Sequence[SSAValue] = (),
        span: Sequence[SSAValue | None] = (None, None),
    ):
        """`inputs` are Q, K, V, dO, lse, delta and a mask, if there is one; `maps` are theirs, then those of the
        outputs. `span` is `from` and `until`."""
        keys, count, scaled = keys or Keys(), len(MATRICES) + len(ROWS), FloatAttr(scale, f32)
        read = [*inputs[:count], list(inputs[count:])]
        super().__init__(*read, outputs, tile, *span, scale=scaled, **keys.fields(), indexing_maps=maps)

    @property
    def inputs(self) -> tuple[SSAValue, ...]:
        """Q, K, V, dO, lse, delta and a mask, if there is one."""
        mask = () if self.mask is None else (self.mask,)
        return self.q, self.k, self.v, self.do, self.lse, self.delta, *mask

    @property
    def keys(self) -> Keys:
        """The range of keys."""
        return self.keys_with(self.documents)

    @property
    def gradients(self) -> list[Gradient]:
        """The results by name."""
        maps = self.maps[len(self.inputs) :]
        return [
            Gradient(name, memory, map_)
            for memory, map_ in zip(self.outputs, maps, strict=True)
            for name, loops in GRADIENTS.items()
            if {loop - self.batch for loop in loops_of(map_) if loop >= self.batch} == set(loops)
        ]

    @property
    def rows(self) -> int:
        """The loop along the rows of the results: over queries, or over keys."""
        return M if self.gradients[0].name == "dQ" else N

    @property
    def sizes(self) -> LoopSizes:
        """The sizes of all loops. Raises VerifyException if operands disagree."""
        sizes = LoopSizes()
        names = (*INPUTS[: len(self.inputs)], *(gradient.name for gradient in self.gradients))
        for name, operand, map_ in zip(names, (*self.inputs, *self.outputs), self.maps, strict=True):
            sizes.add(name, operand, loops_of(map_))
        return sizes

    def verify_(self) -> None:
        if len(self.maps) != len(self.inputs) + len(self.outputs):
            raise VerifyException(
                f"expected a map of each of {len(self.inputs) + len(self.outputs)} operands, got {len(self.maps)}"
            )
        names = [gradient.name for gradient in self.gradients]
        if names not in [["dQ"], ["dK"], ["dV"], ["dK", "dV"]] or len(names) != len(self.outputs):
            raise VerifyException(f"expected maps of dQ, dK, dV, or of dK and dV, got those of {', '.join(names)}")
        for (name, loops), map_ in zip(MATRICES.items(), self.maps, strict=False):
            loops_around(name, loops, map_, self.batch, INNER)
        for name, map_ in zip(ROWS, self.maps[len(MATRICES) :], strict=False):
            verify_along(name, map_, self.batch + INNER, range(self.batch + 1))
            if self.batch + M not in loops_of(map_):
                raise VerifyException(f"expected {name} to be indexed by d{self.batch + M}, got {map_}")
        for map_ in self.maps[len(MATRICES) + len(ROWS) : len(self.inputs)]:
            verify_along("the mask", map_, self.batch + INNER, range(self.batch + N + 1))
        around = [
            loops_around(gradient.name, GRADIENTS[gradient.name], gradient.map, self.batch, INNER)
            for gradient in self.gradients
        ]
        if any(sorted(loops) != sorted(around[0]) for loops in around):
            raise VerifyException("expected dK and dV to be indexed by the same loops of the batch")
        if len(self.tile) not in (0, 1 + len(around[0])):
            raise VerifyException(f"expected a row and {len(around[0])} indices of the batch, got {len(self.tile)}")
        verify_documents(self.documents, self.documents_maps, self.batch, of_tile=False)
        self._verify_types()
        _ = self.sizes

    def _verify_types(self) -> None:
        kinds = [memory_of(value).element_type for value in self.inputs]
        if not isinstance(kinds[0], HALVES) or any(kind != kinds[0] for kind in kinds[: len(MATRICES)]):
            raise VerifyException(f"expected Q, K, V and dO of f16, or of bf16, got {', '.join(map(str, kinds[:4]))}")
        if any(not isinstance(kind, Float32Type) for kind in kinds[len(MATRICES) :][: len(ROWS)]):
            raise VerifyException(f"expected lse and delta of f32, got {kinds[4]} and {kinds[5]}")
        if not all(isinstance(kind, (*HALVES, Float32Type)) for kind in kinds):
            raise VerifyException(f"expected a mask of f16, bf16 or f32, got {kinds[-1]}")
        for gradient in self.gradients:
            if (kind := memory_of(gradient.memory).element_type) not in (kinds[0], Float32Type()):
                raise VerifyException(f"expected {gradient.name} of {kinds[0]} or f32, got {kind}")
