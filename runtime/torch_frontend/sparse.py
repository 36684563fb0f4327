"""Sparse matrices of torch: compressed on the host."""

from __future__ import annotations

import ml_dtypes
import torch

from ...dialect.isa.types import ELEMENT_TYPES
from ...dialect.layouts.layout import LANES
from ...dialect.warp.sparse import METADATA_ROWS, metadata_span
from ..errors import ArgumentError
from ..numerics.array import Array
from ..sparse import compress
from .torch_api import from_numpy

WORDS = {torch.bfloat16: ml_dtypes.bfloat16, torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn}
"""numpy's types of elements that torch does not pass to it."""

NAMES = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "tf32",
    torch.int8: "s8",
    torch.float8_e4m3fn: "e4m3",
}
"""What the ISA calls the types that a sparse matrix can have."""


def metadata_shape(rows: int, columns: int, dtype: torch.dtype) -> tuple[int, int]:
    """The sizes of the metadata of a sparse matrix.

    Raises:
        ArgumentError: for elements that no instruction takes.
    """
    if dtype not in NAMES:
        raise ArgumentError(f"there is no sparse matrix of {dtype}; expected {', '.join(map(str, NAMES))}")
    return -(-rows // METADATA_ROWS), -(-columns // metadata_span(ELEMENT_TYPES[NAMES[dtype]])) * LANES


def compressed(dense: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The stored elements and the metadata of a matrix with half of its elements zero; see `runtime.compress`.

    Raises:
        ArgumentError: if it breaks the pattern, naming the place.
    """
    values, metadata = compress(_array(dense.detach().cpu().contiguous()))
    stored = from_numpy(values.view(f"i{values.itemsize}")).view(dense.dtype)
    return stored.to(dense.device), from_numpy(metadata).to(dense.device)


def _array(tensor: torch.Tensor) -> Array:
    if tensor.dtype not in WORDS:
        return tensor.numpy()
    integer = torch.int16 if tensor.element_size() == 2 else torch.int8
    return tensor.view(integer).numpy().view(WORDS[tensor.dtype])
