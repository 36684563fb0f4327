"""The types of instructions: how numpy sees their bits."""

from __future__ import annotations

import numpy as np

from ....dialect.ptx.types import bits_of

DTYPES: dict[str, type[np.generic]] = {
    "pred": np.bool_,
    **{f"b{n}": getattr(np, f"uint{n}") for n in (8, 16, 32, 64)},
    **{f"u{n}": getattr(np, f"uint{n}") for n in (8, 16, 32, 64)},
    **{f"s{n}": getattr(np, f"int{n}") for n in (8, 16, 32, 64)},
    "b128": np.complex128,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "bf16": np.uint16,
    "f16x2": np.uint32,
    "bf16x2": np.uint32,
    "f32x2": np.uint64,
    "u16x2": np.uint32,
    "s16x2": np.uint32,
}
"""How the bits of each type are seen: bf16 and packed types as words, 128 bits as what numpy has that is as wide."""

FLOATS = frozenset(("f16", "bf16", "f16x2", "bf16x2", "f32", "f64", "f32x2"))


def integer_range(type: str) -> tuple[int, int]:
    """The least and the greatest integer of a type."""
    bits = bits_of(type)
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if type[0] == "s" else (0, (1 << bits) - 1)
