"""`linalg`: xDSL's dialect, and the operations and forms of MLIR that it lacks."""

from .attributes import TypeFnAttr
from .contraction import METADATA, ContractionOp
from .convolution import ConvolutionOp
from .matmul import CONTRACTIONS, MatmulOp
from .softmax import SoftmaxOp

__all__ = [
    "CONTRACTIONS",
    "METADATA",
    "ContractionOp",
    "ConvolutionOp",
    "MatmulOp",
    "SoftmaxOp",
    "TypeFnAttr",
]
