"""What a product reads beside a sparse A: metadata."""

from __future__ import annotations

from xdsl.dialects.builtin import DYNAMIC_INDEX

from ...dialect.warp.attributes import memory_of
from ...dialect.warp.matmul import MatmulOp
from ..diagnostics import fail
from .matrices import read_matrix
from .operand import MatrixOperand


def read_metadata(op: MatmulOp, a: MatrixOperand, *, dynamic: bool) -> MatrixOperand | None:
    """The metadata of a sparse A; None of a dense one. `dynamic` says that sizes of the product are not known.

    Raises a located diagnostic for a sparse A that is not lowered.
    """
    if op.metadata is None:
        return None
    if dynamic or DYNAMIC_INDEX in memory_of(op.metadata).get_shape():
        fail(op, f"a sparse A and its metadata need static sizes, got {a.type} and {op.metadata.type}")
    metadata = read_matrix(op, "E", op.metadata, (0, 1), {})
    if a.transposed or metadata.transposed:
        fail(op, "a sparse A is stored row by row, it cannot be transposed")
    if op.outer:
        fail(op, "a sparse A in a batch is not lowered; write a product for each matrix")
    return metadata
