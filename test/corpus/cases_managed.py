"""Judges of cuda/managed.cu."""

from __future__ import annotations

from typing import Any

import numpy as np
from corpus.case import Judge, Random, equal, kernels_of, output

case = kernels_of("managed")


@case(1, 32)
def managed_memory(random: Random) -> tuple[list[Any], Judge]:
    out = output(32, np.float32)
    return [out], equal((out, 39 + np.tile([1, 2.5, -3, 4], 8)))
