"""Judges of cuda/functions.cu."""

from __future__ import annotations

from typing import Any

import numpy as np
from corpus.case import Array, Judge, Random, equal, kernels_of, output

case = kernels_of("functions")
I32, F32 = np.int32, np.float32


def _ints(random: Random, shape: Any, low: int = -1000, high: int = 1000) -> Array:
    return random.integers(low, high, shape).astype(I32)


def _mix(a: int, b: int) -> int:
    return (a ^ b) * 31 + (a & b)


@case(1, 64, sample=True)
def function_table(random: Random) -> tuple[list[Any], Judge]:
    which, a, b = _ints(random, 64, 0, 8), _ints(random, 64), _ints(random, 64)
    out, wanted = output(64, I32), []
    for i, (w, x, y) in enumerate(zip(which.tolist(), a.tolist(), b.tolist(), strict=True)):
        first = (x + y, x - y, x * y, _mix(x, y))[w & 3]
        wanted.append(first + (y - i if w >> 2 else _mix(y, i)))
    return [out, which, a, b], equal((out, wanted))


@case(1, 32)
def function_argument(random: Random) -> tuple[list[Any], Judge]:
    a, b, out = _ints(random, 32), _ints(random, 32), output(32, I32)
    pairs = enumerate(zip(a.tolist(), b.tolist(), strict=True))
    return [out, a, b], equal((out, [(x + y, x - y, _mix(x, y))[i % 3] + 1 for i, (x, y) in pairs]))


@case(1, 32)
def virtual_calls(random: Random) -> tuple[list[Any], Judge]:
    x, kind, out = _ints(random, 32).astype(F32), _ints(random, 32, 0, 3), output(32, F32)
    areas = np.stack([x * x + 4000, x * 3 + 4000, x * 5 / 2 + 3000])
    return [out, x, kind], equal((out, areas[kind, np.arange(32)]))
