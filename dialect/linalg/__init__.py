"""`linalg` as MLIR's users write it: xDSL's dialect, with the products that it lacks or does not take whole."""

from xdsl.dialects.linalg import Linalg, ops
from xdsl.ir import Dialect

from .attributes import TypeFnAttr
from .contraction import METADATA, ContractionOp
from .matmul import BATCH_PRODUCTS, CONTRACTIONS, MATRIX_PRODUCTS, MatmulOp
from .softmax import SoftmaxOp

LINALG = Dialect(
    "linalg",
    [
        *(op for op in Linalg.operations if op is not ops.MatmulOp),
        *(*MATRIX_PRODUCTS, *BATCH_PRODUCTS, *CONTRACTIONS, SoftmaxOp),
    ],
    [*Linalg.attributes, TypeFnAttr],
)
"""xDSL's `linalg` with our matmul in place of its own, and the other named products."""

__all__ = ["CONTRACTIONS", "LINALG", "METADATA", "ContractionOp", "MatmulOp", "SoftmaxOp", "TypeFnAttr"]
