"""The named products of `linalg`, and the dialect without its convolutions."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr
from xdsl.dialects.linalg import Linalg, ops
from xdsl.dialects.linalg.abstract_ops import ConvOperation
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.ir import Dialect
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.irdl import irdl_op_definition, opt_prop_def, prop_def

from .contraction import ContractionOp, maps_of
from .generic import GenericOp, SoftmaxOp, TypeFnAttr
from .packs import PackOp, UnPackOp
from .pointwise import ElementwiseKindAttr, ElementwiseOp, MapOp

# The named products of `linalg`.
#
# MLIR's newer versions write a transposed operand with `indexing_maps` on `matmul` and `batch_matmul`; older ones had
# an operation for each. Both are read. The order of loops is m, n, k, behind the batch where there is one. Source:
# MLIR, Linalg dialect, named operations.


@irdl_op_definition
class MatmulOp(ContractionOp, ops.MatmulOp):
    """`C += A * B` on memrefs, or the tensor `C + A * B`; the operands are extended to C's type first.

    `indexing_maps`, when given, say which of A and B are stored transposed. A subclass of xDSL's operation, so that a
    pattern written for that matches this too.
    """

    name = "linalg.matmul"
    LOOPS: ClassVar = "mnk"
    OPERANDS: ClassVar = ("mk", "kn", "mn")
    MOVABLE: ClassVar = True

    indexing_maps = prop_def(ArrayAttr[AffineMapAttr], default_value=maps_of("mnk", OPERANDS))
    cast = opt_prop_def(TypeFnAttr)


class NamedContractionOp(ContractionOp, ABC):
    """A named product that xDSL does not have."""

    cast = opt_prop_def(TypeFnAttr)

    def get_indexing_maps(self) -> ArrayAttr[AffineMapAttr]:
        return self.indexing_maps

    def get_default_indexing_maps(self) -> list[AffineMap]:
        return [attribute.data for attribute in self.indexing_maps]

    def get_iterator_types(self) -> ArrayAttr[IteratorTypeAttr]:
        """Loops that C has no dimension along are summed over."""
        maps = [attribute.data for attribute in self.indexing_maps]
        kept = {e.position for e in maps[-1].results if isinstance(e, AffineDimExpr)}
        kinds = IteratorTypeAttr.reduction(), IteratorTypeAttr.parallel()
        return ArrayAttr([kinds[loop in kept] for loop in range(maps[-1].num_dims)])


@irdl_op_definition
class MatmulTransposeAOp(NamedContractionOp):
    """`C += A^T * B`, A being k x m."""

    name = "linalg.matmul_transpose_a"
    LOOPS: ClassVar = "mnk"
    OPERANDS: ClassVar = ("km", "kn", "mn")
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr], default_value=maps_of("mnk", OPERANDS))


@irdl_op_definition
class MatmulTransposeBOp(NamedContractionOp):
    """`C += A * B^T`, B being n x k."""

    name = "linalg.matmul_transpose_b"
    LOOPS: ClassVar = "mnk"
    OPERANDS: ClassVar = ("mk", "nk", "mn")
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr], default_value=maps_of("mnk", OPERANDS))


@irdl_op_definition
class BatchMatmulOp(NamedContractionOp):
    """`C[b] += A[b] * B[b]` for each b. `indexing_maps` may transpose A or B, or leave out its batch dimension."""

    name = "linalg.batch_matmul"
    LOOPS: ClassVar = "bmnk"
    OPERANDS: ClassVar = ("bmk", "bkn", "bmn")
    MOVABLE: ClassVar = True
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr], default_value=maps_of("bmnk", OPERANDS))


@irdl_op_definition
class BatchMatmulTransposeAOp(NamedContractionOp):
    """`C[b] += A[b]^T * B[b]` for each b."""

    name = "linalg.batch_matmul_transpose_a"
    LOOPS: ClassVar = "bmnk"
    OPERANDS: ClassVar = ("bkm", "bkn", "bmn")
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr], default_value=maps_of("bmnk", OPERANDS))


@irdl_op_definition
class BatchMatmulTransposeBOp(NamedContractionOp):
    """`C[b] += A[b] * B[b]^T` for each b."""

    name = "linalg.batch_matmul_transpose_b"
    LOOPS: ClassVar = "bmnk"
    OPERANDS: ClassVar = ("bmk", "bnk", "bmn")
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr], default_value=maps_of("bmnk", OPERANDS))


@irdl_op_definition
class MatvecOp(NamedContractionOp):
    """`c += A * b` of a matrix and a vector."""

    name = "linalg.matvec"
    LOOPS: ClassVar = "mk"
    OPERANDS: ClassVar = ("mk", "k", "m")
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr], default_value=maps_of("mk", OPERANDS))


@irdl_op_definition
class VecmatOp(NamedContractionOp):
    """`c += a * B` of a vector and a matrix."""

    name = "linalg.vecmat"
    LOOPS: ClassVar = "nk"
    OPERANDS: ClassVar = ("k", "kn", "n")
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr], default_value=maps_of("nk", OPERANDS))


@irdl_op_definition
class DotOp(NamedContractionOp):
    """`c += a * b` of two vectors, a number."""

    name = "linalg.dot"
    LOOPS: ClassVar = "k"
    OPERANDS: ClassVar = ("k", "k", "")
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr], default_value=maps_of("k", OPERANDS))


@irdl_op_definition
class BatchMatvecOp(NamedContractionOp):
    """`C[b] += A[b] * B[b]` of matrices and vectors."""

    name = "linalg.batch_matvec"
    LOOPS: ClassVar = "bmk"
    OPERANDS: ClassVar = ("bmk", "bk", "bm")
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr], default_value=maps_of("bmk", OPERANDS))


@irdl_op_definition
class BatchVecmatOp(NamedContractionOp):
    """`C[b] += A[b] * B[b]` of vectors and matrices."""

    name = "linalg.batch_vecmat"
    LOOPS: ClassVar = "bnk"
    OPERANDS: ClassVar = ("bk", "bkn", "bn")
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr], default_value=maps_of("bnk", OPERANDS))


@irdl_op_definition
class BatchReduceMatmulOp(NamedContractionOp):
    """`C += A[b] * B[b]`, summed over b too."""

    name = "linalg.batch_reduce_matmul"
    LOOPS: ClassVar = "bmnk"
    OPERANDS: ClassVar = ("bmk", "bkn", "mn")
    MOVABLE: ClassVar = True
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr], default_value=maps_of("bmnk", OPERANDS))


@irdl_op_definition
class Mmt4dOp(NamedContractionOp):
    """The product of matrices that were packed to tiles: `C[m, n] += A[m, k] * B[n, k]^T`, each element a tile."""

    name = "linalg.mmt4d"
    LOOPS: ClassVar = "MNKmnk"
    OPERANDS: ClassVar = ("MKmk", "NKnk", "MNmn")
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr], default_value=maps_of("MNKmnk", OPERANDS))


@irdl_op_definition
class BatchMmt4dOp(NamedContractionOp):
    """`linalg.mmt4d` for each of a batch."""

    name = "linalg.batch_mmt4d"
    LOOPS: ClassVar = "bMNKmnk"
    OPERANDS: ClassVar = ("bMKmk", "bNKnk", "bMNmn")
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr], default_value=maps_of("bMNKmnk", OPERANDS))


@irdl_op_definition
class ContractOp(NamedContractionOp):
    """`C += A * B` over loops that `indexing_maps` alone say, as in a `linalg.generic`."""

    name = "linalg.contract"
    LOOPS: ClassVar = ""
    OPERANDS: ClassVar = ("", "", "")
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr], default_value=maps_of("", OPERANDS))

    def maps_problem(self) -> str | None:
        """Every dimension runs along a loop of its own; no other map has more loops than C's has."""
        maps = [attribute.data for attribute in self.indexing_maps]
        if len(maps) != len(self.OPERANDS):
            return f"expected three indexing_maps, one each for A, B and C, got {len(maps)}"
        for name, map_ in zip("ABC", maps, strict=True):
            loops = {e.position for e in map_.results if isinstance(e, AffineDimExpr)}
            if map_.num_dims != maps[-1].num_dims or len(loops) != len(map_.results):
                return f"expected the dimensions of {name} along loops of their own, got {map_}"
        return None

    def loop_name(self, loop: int) -> str:
        return f"d{loop}"


MATRIX_PRODUCTS = (MatmulOp, MatmulTransposeAOp, MatmulTransposeBOp)
BATCH_PRODUCTS = (BatchMatmulOp, BatchMatmulTransposeAOp, BatchMatmulTransposeBOp)
CONTRACTIONS = (
    MatvecOp,
    VecmatOp,
    DotOp,
    BatchMatvecOp,
    BatchVecmatOp,
    BatchReduceMatmulOp,
    Mmt4dOp,
    BatchMmt4dOp,
    ContractOp,
)
"""Products that are read by their maps, as a `linalg.generic` is."""


# `linalg` but for its convolutions: xDSL's dialect, and the operations and forms of MLIR that it lacks.

_OWN = (ops.MatmulOp, ops.GenericOp)

LINALG_BASE = Dialect(
    "linalg",
    [
        *(op for op in Linalg.operations if op not in _OWN and not issubclass(op, ConvOperation)),
        *(GenericOp, MapOp, ElementwiseOp),
        *(*MATRIX_PRODUCTS, *BATCH_PRODUCTS, *CONTRACTIONS, SoftmaxOp, PackOp, UnPackOp),
    ],
    [*Linalg.attributes, TypeFnAttr, ElementwiseKindAttr],
)
"""xDSL's `linalg` with our matmul and generic in place of its own, and the other named products."""
