"""`linalg` but for its convolutions: xDSL's dialect, and the operations and forms of MLIR that it lacks."""

from xdsl.dialects.linalg import Linalg, ops
from xdsl.dialects.linalg.abstract_ops import ConvOperation
from xdsl.ir import Dialect

from .attributes import TypeFnAttr
from .generic import GenericOp
from .matmul import BATCH_PRODUCTS, CONTRACTIONS, MATRIX_PRODUCTS
from .packs import PackOp, UnPackOp
from .pointwise import ElementwiseKindAttr, ElementwiseOp, MapOp
from .softmax import SoftmaxOp

_OWN = (ops.MatmulOp, ops.GenericOp)

BASE = Dialect(
    "linalg",
    [
        *(op for op in Linalg.operations if op not in _OWN and not issubclass(op, ConvOperation)),
        *(GenericOp, MapOp, ElementwiseOp),
        *(*MATRIX_PRODUCTS, *BATCH_PRODUCTS, *CONTRACTIONS, SoftmaxOp, PackOp, UnPackOp),
    ],
    [*Linalg.attributes, TypeFnAttr, ElementwiseKindAttr],
)
"""xDSL's `linalg` with our matmul and generic in place of its own, and the other named products."""
