"""A sparse operand in float64: the matrix that stored elements and metadata stand for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from xdsl.ir import Operation

from ...dialect.sparsity import matrix
from ...dialect.sparsity.metadata import metadata_codes
from ..arguments.dtypes import element_of
from ..errors import HostError
from ..plan import place_of
from ..sparse import operand_for
from .product import Reference


def expanded(op: Operation, stored: Reference, words: Reference) -> Reference:
    """The dense A of an operation, from what is stored of it, (m, stored k), and the words of its metadata.

    Raises:
        HostError: for metadata that describes no such matrix.
    """
    operand = operand_for(element_of(stored.dtype))
    numbers = np.arange(1, stored.value.size + 1, dtype=np.uint32).reshape(stored.value.shape)
    try:
        packed = words.value.astype(np.int64).astype(np.uint32)
        chunks = stored.value.shape[-1] // operand.pattern.stored
        codes = metadata_codes(packed.reshape(len(packed), -1, operand.threads), operand, len(numbers), chunks)
        # as floats, for these are bits to the function, which takes no other elements of 4 bytes
        places = matrix.expand(numbers.view(np.float32), codes, operand.pattern).view(np.uint32)
    except ValueError as error:
        raise HostError(f"{place_of(op)}no float64 reference for this sparse A: {error}") from error
    value, error = (np.concatenate(([0.0], part.reshape(-1)))[places] for part in (stored.value, stored.error))
    return replace(stored, value=value, error=error)
