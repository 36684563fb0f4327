"""The elements that registers and memory hold: their values by number, or what they are."""

from __future__ import annotations

import numpy as np

from ...dialect.isa.types import element_type
from ..numerics import floats
from ..numerics.array import Array
from ..numerics.fused_sum import small_values
from . import field
from .values import PLANES, Table, codes_of

WIDTHS = {"f64": 8, "f32": 4, "tf32": 4, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "e3m2": 1, "e2m3": 1, "ue8m0": 1}
"""Bytes of the floating-point types that values have in registers."""


def element_of(type: str) -> tuple[str, int]:
    """The type of one element, and how many a register has."""
    scalar, x, count = type.rpartition("x")
    return (scalar, int(count)) if x and count.isdigit() and scalar in WIDTHS else (type, 1)


def elements(words: Array, scalar: str, count: int) -> list[Array]:
    """The elements of registers, from the low end, as f64; of integers the integer."""
    if scalar not in WIDTHS:
        return [words.astype(np.float64)]
    width = WIDTHS[scalar]
    kind = np.dtype(f"u{width}")
    columns = words.view(kind).reshape(words.size, -1)[:, :count]
    name = "f32" if scalar == "tf32" else scalar
    if width == 1:
        table = small_values(element_type(scalar)).astype(np.float64)
        return [table[columns[:, i] & (len(table) - 1)] for i in range(count)]
    return [floats.value(np.ascontiguousarray(columns[:, i]), name) for i in range(count)]


def indices(table: Table, planes: Array, words: Array, scalar: str, count: int) -> list[Array]:
    """The values of the elements of registers by their planes (planes, threads). An element that is made of parts of
    several values is a value of its own, of which nothing is known."""
    width = WIDTHS.get(scalar, planes.dtype.itemsize)
    kind = np.dtype(f"u{width}")
    split = planes.view(kind).reshape(PLANES, planes.shape[1], -1)
    raw = words.view(kind).reshape(words.size, -1)
    found: list[Array] = []
    for i in range(count):
        mine, word = np.ascontiguousarray(split[:, :, i]), np.ascontiguousarray(raw[:, i])
        codes = codes_of(mine)
        index = codes.value.copy()
        odd = codes.mixed | (codes.first > 0)
        if odd.any() and scalar in ("f32", "tf32"):
            upper = upper_half(table, mine, word)
            index, odd = np.where(upper > 0, upper, index), odd & (upper == 0)
        if odd.any() and scalar == "bf16":
            odd &= ~((codes.first == 2) & ~codes.mixed & table.is_kind(index, "f32"))
        if odd.any():
            index[odd] = table.add(field.hashed("bits", signature(table, mine[:, odd], word[odd])), "bits")
        found.append(index)
    return found


def upper_half(table: Table, planes: Array, words: Array) -> Array:
    """The bf16 that f32 words hold in their upper half, over zeros; 0 where there is none."""
    halves = np.ascontiguousarray(planes).view(np.uint16).reshape(*planes.shape, 2)
    low, upper = (np.ascontiguousarray(halves[..., i]) for i in range(2))
    codes = codes_of(upper)
    plain = ~low.any(axis=0) & ~codes.mixed & (codes.first == 0) & table.is_kind(codes.value, "bf16")
    bare = np.ascontiguousarray(words).view(np.uint16).reshape(*words.shape, 2)[..., 0] == 0
    return np.where(plain & bare, codes.value, 0)


def signature(table: Table, planes: Array, words: Array) -> Array:
    """A word that says what bytes are: of which values, and which of their bytes; or what they are."""
    width = planes.dtype.itemsize
    raw = np.ascontiguousarray(words).view(np.uint8).reshape(words.size, width)
    split = np.ascontiguousarray(planes).view(np.uint8).reshape(PLANES, words.size, width)
    found = np.zeros(words.size, np.uint64)
    for byte in range(width):
        codes = sum(split[k, :, byte].astype(np.uint64) << np.uint64(8 * k) for k in range(PLANES))
        codes = np.asarray(codes, np.uint64)
        key = table.word((codes >> np.uint64(3)).astype(np.int64)) + (codes & np.uint64(7))
        key = np.where(codes == 0, raw[:, byte].astype(np.uint64), key)
        found = field.hashed("byte", found, key).key
    return found
