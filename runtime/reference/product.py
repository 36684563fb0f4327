"""A product in float64, and the bound on the error of a correct evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from xdsl.ir import Operation

from ...dialect.layouts.layout import LANES
from ...passes.diagnostics import place_of
from ..arguments.arrays import DTYPES, DType, element_of
from ..arguments.packed import sparse_row
from ..base.errors import HostError
from ..numerics.floats import Floats
from ..numerics.sparse import dense_of, metadata_codes


def rounded(values: Floats, dtype: DType) -> Floats:
    """Values as a type holds them; integers modulo their width."""
    if dtype.kind in "iu":
        span = 2.0 ** (8 * dtype.itemsize)
        return values - span * np.floor((values - np.iinfo(dtype).min) / span)
    with np.errstate(over="ignore"):
        return values.astype(dtype).astype(np.float64)


# How a value came about, as far as its bound depends on it; and that bound in words.


@dataclass
class History:
    """The products that a value went through, by how many terms each sums, whether f32 became tf32 in one of them, of
    how many terms sums were cut short, and how many elementwise operations and reductions after or between them. Memory
    that is seen in several ways has one."""

    terms: list[int] = field(default_factory=list[int])
    elementwise: int = 0
    reductions: int = 0
    tf32: bool = False
    short: int = 0
    narrow: bool = False
    """Whether it was made of 8-bit floats, which instructions may multiply themselves."""

    def after(self, *others: History) -> History:
        """This history with that of the inputs before it."""
        terms = [count for other in (*others, self) for count in other.terms]
        elementwise = self.elementwise + sum(other.elementwise for other in others)
        reductions = self.reductions + sum(other.reductions for other in others)
        tf32, short = (max(getattr(h, name) for h in (self, *others)) for name in ("tf32", "short"))
        return History(terms, elementwise, reductions, tf32, short, any(h.narrow for h in (self, *others)))

    def become(self, other: History) -> None:
        """Replaces this history by another one: the memory has been overwritten."""
        vars(self).update(vars(replace(other, terms=list(other.terms))))


def bound_text(history: History, unit: float) -> str:
    """What a value is held against. `unit` is that of the accumulators, 0 for integers."""
    others = [_counted(history.elementwise, "elementwise operation")] if history.elementwise else []
    others += [_counted(history.reductions, "reduction")] if history.reductions else []
    if not history.terms:
        counted = " and ".join(others) or _counted(0, "elementwise operation")
        return f"the errors of {counted}, each rounded to its type"
    if unit == 0:
        product = "exact, modulo 2^32"
    else:
        counts = " and ".join(map(str, dict.fromkeys(history.terms)))
        cut = f" + 2^{int(math.log2(2 * TF32_UNIT))} |A| |B|" if history.tf32 else ""
        if 0 < history.short < max(history.terms):
            cut = f" + {history.short + 2} 2^{int(math.log2(FP8_UNIT))} |A| |B|{cut}"
        elif history.short:
            unit = FP8_UNIT
        product = f"(K + 2) 2^{int(math.log2(unit))} (|C| + |A| |B|){cut}, K = {counts}"
    through = [f"{len(history.terms)} products in a chain"] if len(history.terms) > 1 else []
    if through := [*through, *others]:
        return f"{product}, carried through {' and '.join(through)}, each rounded to its type"
    return product if unit == 0 else f"{product}, rounded once to the output's type"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


# A product in float64, and how far from it a correct evaluation may be: the bound is that of `functions`.
#
# Operands are as stored, rounded to their types.

ROUNDINGS: Mapping[DType, tuple[float, float]] = {
    DTYPES["f16"]: (2.0**-11, 2.0**-24),
    DTYPES["bf16"]: (2.0**-8, 2.0**-133),
}
"""By how much rounding to a type changes a number at most: relative to it, or absolute."""

FP8 = {DTYPES["f8E4M3FN"], DTYPES["f8E5M2"]}
FLOAT64 = np.dtype(np.float64)


@dataclass(frozen=True)
class Accumulator:
    """How a type of accumulator rounds: `unit` relative to the terms, `tiny` absolute; whether f32 becomes tf32; and of
    how many products of 8-bit floats instructions cut the sums short, before these are added to others."""

    unit: float
    tiny: float
    tf32: bool = False
    short: float = 0


ACCUMULATORS: Mapping[str, Accumulator] = {
    "f32": Accumulator(2.0**-23, 2.0**-149),
    "f16": Accumulator(2.0**-10, 2.0**-24),
    # The reference is computed in f64 too, so both err.
    "f64": Accumulator(2.0**-52, 2.0**-1074),
    "s32": Accumulator(0.0, 0.0),
}

FP8_UNIT = 2.0**-13
"""By how much short sums of 8-bit floats cut each term, relative to the largest: 13 bits below it."""

TF32_UNIT = 2.0**-10
"""What a tf32 lacks of the f32 that it is made of, relative to it."""


def distance(value: Floats, *others: Floats) -> Floats:
    """The largest distance of values to `others`; infinite between a number and a NaN."""
    distances = np.zeros_like(value)
    for other in others:
        same = (other == value) | (np.isnan(other) & np.isnan(value))
        distances = np.maximum(distances, np.where(same, 0.0, np.abs(other - value)))
    return np.where(np.isnan(distances), np.inf, distances)


@dataclass(frozen=True)
class Reference:
    """An array in float64, a bound on the error of a computed one before it is rounded, its type, and its history."""

    value: Floats
    error: Floats
    dtype: DType
    history: History = field(default_factory=History)

    @staticmethod
    def exact(value: Floats, dtype: DType = FLOAT64) -> Reference:
        """An array without error: of a type, or of numbers that no type holds yet."""
        return Reference(value, np.zeros_like(value), dtype)

    def interval(self) -> tuple[Floats, Floats]:
        """The least and the greatest value of `dtype` that a correct evaluation may give."""
        return rounded(self.value - self.error, self.dtype), rounded(self.value + self.error, self.dtype)

    def stored(self) -> Reference:
        """The array as stored, rounded to its type, with a bound on the error of that."""
        if self.dtype.kind in "iu" or self.dtype == np.float64:
            return self
        value = rounded(self.value, self.dtype)
        if not self.error.any():
            return replace(self, value=value)
        off = np.where(np.isfinite(self.error), distance(value, *self.interval()), np.inf)
        return replace(self, value=value, error=np.where(self.error == 0, 0.0, off))


def product_of(
    op: Operation, inputs: Sequence[Reference], c: Reference, maps: Sequence[str], accumulator: Accumulator
) -> Reference:
    """C + A * B; `maps` have a letter for each dimension of A, B and C: the loop that it runs along."""
    a, b = (_multiplied(operand, accumulator) for operand in inputs)
    c = c.stored()
    c_open = np.isinf(c.error)
    cut = accumulator.short if all(x.dtype in FP8 or x.history.narrow for x in (a, b)) else 0
    a_map, b_map, c_map = maps
    sizes = {loop: size for operand, map_ in ((a, a_map), (b, b_map)) for loop, size in zip(
        map_, operand.value.shape, strict=True)}  # fmt: skip
    if missing := [i for i, loop in enumerate(c_map) if loop not in sizes]:
        # What no operand has is the same for each index.
        before = [c.value.shape[i] for i in missing]
        a_map, sizes = "".join(c_map[i] for i in missing) + a_map, sizes | {c_map[i]: c.value.shape[i] for i in missing}
        value, error = (np.broadcast_to(array, (*before, *array.shape)) for array in (a.value, a.error))
        a = replace(a, value=value, error=error)

    def multiply(x: Floats, y: Floats) -> Floats:
        product: Floats = np.einsum(f"{a_map},{b_map}->{c_map}", x, y, optimize=True)
        return product

    value = c.value + multiply(a.value, b.value)
    summed = math.prod(size for loop, size in sizes.items() if loop not in c_map)
    shortened = any(_is_shortened(operand, accumulator) for operand in inputs)
    short = int(min(cut, summed))
    if short and short == summed:
        accumulator = replace(accumulator, unit=max(accumulator.unit, FP8_UNIT))
    history = History([summed], tf32=shortened, short=short).after(a.history, b.history, c.history)
    if c.dtype.kind in "iu":
        return Reference(rounded(value, c.dtype), np.zeros_like(value), c.dtype, history)
    products = multiply(np.abs(a.value), np.abs(b.value))
    magnitude = np.abs(c.value) + products
    error = (summed + 2) * (accumulator.unit * magnitude + accumulator.tiny) + c.error
    if 0 < short < summed:
        error = error + (short + 2) * FP8_UNIT * products
    open_ = np.zeros(value.shape, bool)
    if a.error.any() or b.error.any():
        error_a, error_b = _rounded_anywhere(a), _rounded_anywhere(b)
        error = error + multiply(np.abs(a.value), error_b) + multiply(error_a, np.abs(b.value))
        error = error + multiply(error_a, error_b)
        if not (np.isfinite(error_a).all() and np.isfinite(error_b).all()):
            open_ = multiply(np.isinf(error_a) * 1.0, np.ones_like(error_b)) > 0
            open_ |= multiply(np.ones_like(error_a), np.isinf(error_b) * 1.0) > 0
    # An infinity or NaN is none by a bounded error.
    error = np.where(open_ | c_open, np.inf, np.where(np.isfinite(value), error, 0.0))
    return Reference(value, error, c.dtype, history)


def _rounded_anywhere(operand: Reference) -> Floats:
    """The error of an operand. One that rows were reduced for may be rounded before these reductions are applied to it,
    as attention does, and so by as much as its type rounds anything."""
    error = operand.error
    if not operand.history.reductions or operand.dtype not in ROUNDINGS:
        return error
    unit, least = ROUNDINGS[operand.dtype]
    return error + unit * np.abs(operand.value) + least


def _multiplied(operand: Reference, accumulator: Accumulator) -> Reference:
    """An operand with the error of the type that it is multiplied as."""
    if not _is_shortened(operand, accumulator):
        return operand
    return replace(operand, error=operand.error + TF32_UNIT * np.abs(operand.value))


def _is_shortened(operand: Reference, accumulator: Accumulator) -> bool:
    """Whether an operand is multiplied as tf32."""
    return accumulator.tf32 and operand.dtype == np.float32


# A sparse operand in float64: the matrix that stored elements and metadata stand for.


def expanded(op: Operation, stored: Reference, words: Reference) -> Reference:
    """The dense A of an operation, from what is stored of it, (m, stored k), and the words of its metadata; or those of
    a batch. Raises HostError for metadata that describes no such matrix."""
    if stored.value.ndim > 2:
        parts = zip(stored.value, stored.error, words.value, strict=True)
        each = [expanded(op, replace(stored, value=v, error=e), replace(words, value=w)) for v, e, w in parts]
        return replace(stored, value=np.stack([a.value for a in each]), error=np.stack([a.error for a in each]))
    row, how = sparse_row(element_of(stored.dtype))
    numbers = np.arange(1, stored.value.size + 1, dtype=np.uint32).reshape(stored.value.shape)
    try:
        packed = words.value.astype(np.int64).astype(np.uint32)
        chunks = stored.value.shape[-1] // how.stored
        codes = metadata_codes(packed.reshape(len(packed), -1, LANES), row, len(numbers), chunks)
        # as floats, for these are bits to the function, which takes no other elements of 4 bytes
        places = dense_of(numbers.view(np.float32), codes, how).view(np.uint32)
    except ValueError as error:
        raise HostError(f"{place_of(op)}no float64 reference for this sparse A: {error}") from error
    value, error = (np.concatenate(([0.0], part.reshape(-1)))[places] for part in (stored.value, stored.error))
    return replace(stored, value=value, error=error)
