"""The named products of `linalg`.

MLIR's newer versions write a transposed operand with `indexing_maps` on `matmul` and `batch_matmul`; older ones had
an operation for each. Both are read. The order of loops is m, n, k, behind the batch where there is one.
Source: MLIR, Linalg dialect, named operations.
"""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr
from xdsl.dialects.linalg import ops
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.ir.affine import AffineMap
from xdsl.irdl import irdl_op_definition, opt_prop_def, prop_def

from .attributes import TypeFnAttr
from .contraction import ContractionOp, maps_of


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
        parallel = [IteratorTypeAttr.parallel() for _ in self.LOOPS[:-1]]
        return ArrayAttr([*parallel, IteratorTypeAttr.reduction()])


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


MATRIX_PRODUCTS = (MatmulOp, MatmulTransposeAOp, MatmulTransposeBOp)
BATCH_PRODUCTS = (BatchMatmulOp, BatchMatmulTransposeAOp, BatchMatmulTransposeBOp)
