"""Semi-structured sparse tensors of torch, whose metadata lies as CUTLASS's kernels read it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from ...dialect.sparsity.metadata import metadata_words
from ..sparse import operand_of
from .sparse import NAMES, metadata_shape
from .torch_api import aten, from_numpy
from .types import UnsupportedError

METADATA = {aten._sparse_semi_structured_mm.default: 1, aten._sparse_semi_structured_addmm.default: 2}
"""Operators that take such a tensor, and which argument the metadata is."""

TYPES = (torch.float16, torch.bfloat16, torch.int8)
"""Elements of which two in four are stored."""

CHUNK, CODE_BITS = 4, 4
"""Elements that one code is about, and its bits."""


def metadata_of(node: Node) -> tuple[Node, Node] | None:
    """Of a product with such a tensor: the nodes of the metadata and of the stored elements.

    Raises:
        UnsupportedError: for elements that are stored otherwise.
    """
    place = METADATA.get(node.target)
    if place is None:
        return None
    metadata: Any = node.args[place]
    values: Any = node.args[place - 1]
    if values.meta["val"].dtype not in TYPES:
        raise UnsupportedError(f"a sparse matrix of {values.meta['val'].dtype} is not lowered")
    return metadata, values


def words_shape(values: torch.Tensor) -> tuple[int, int]:
    """The sizes of the metadata that a kernel takes, for the stored elements of a matrix."""
    rows, stored = values.shape
    return metadata_shape(rows, 2 * stored, values.dtype)


def _words(metadata: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The metadata that a kernel takes, made on the host of that of CUTLASS."""
    conversions: Any = import_module("torch.sparse._semi_structured_conversions")
    held = metadata.cpu()
    rows, columns = held.shape
    places = conversions._calculate_meta_reordering_scatter_offsets(rows, columns, held.dtype, held.device)
    plain = torch.gather(held.view(-1), 0, places).view(rows, columns).numpy()
    codes = 8 * plain.itemsize // CODE_BITS
    unsigned = plain.view(f"u{plain.itemsize}")[..., None] >> (CODE_BITS * np.arange(codes, dtype=np.uint8))
    chunks = (unsigned & ((1 << CODE_BITS) - 1)).astype(np.uint8).reshape(rows, columns * codes)
    words = metadata_words(chunks, operand_of(NAMES[dtype]))
    return from_numpy(words.reshape(len(words), -1).view(np.int32)).to(metadata.device)


class CutlassMetadata:
    """Metadata of torch's tensors as kernels take it: of each tensor it is made once, and again where that changed."""

    def __init__(self) -> None:
        weak: Any = import_module("torch.utils.weak")
        self._made: Any = weak.WeakTensorKeyDictionary()

    def words(self, metadata: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """What a kernel takes for the metadata of a matrix of a type."""
        found = self._made.get(metadata)
        if found is None or found[0] != metadata._version:
            found = (metadata._version, _words(metadata, dtype))
            self._made[metadata] = found
        return found[1]
