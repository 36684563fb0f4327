"""Binary floating-point formats in exact fractions, rounded by code of the tests' own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from interpreted import apply
from numpy.typing import NDArray

Array = NDArray[Any]
random = np.random.default_rng(11)


@dataclass(frozen=True)
class Format:
    """A binary format, its NaN word, and its values as fractions or floats (inf, nan)."""

    name: str
    exponent: int
    mantissa: int
    nan: int

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def least(self) -> int:
        """The exponent of the smallest normal value."""
        return 2 - (1 << (self.exponent - 1))

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.mantissa

    def value(self, word: int) -> Fraction | float:
        """A fraction where it is finite."""
        field, fraction = word >> self.mantissa & ((1 << self.exponent) - 1), word & ((1 << self.mantissa) - 1)
        sign = -1 if word >> (self.bits - 1) else 1
        if field == (1 << self.exponent) - 1:
            return math.nan if fraction else sign * math.inf
        if field:
            fraction |= 1 << self.mantissa
        return sign * Fraction(fraction) * Fraction(2) ** (max(field, 1) - 1 + self.least - self.mantissa)

    def word(self, value: Fraction | float, mode: str = "rn", zero_sign: int = 0) -> int:
        """The word of a value, rounded; `zero_sign` is the sign of an exact zero."""
        if isinstance(value, float):
            return self.nan if math.isnan(value) else self.infinity | (value < 0) << (self.bits - 1)
        sign = int(value < 0) if value else zero_sign
        size = abs(value)
        exponent = self.least
        if size:
            exponent = max(exponent, size.numerator.bit_length() - size.denominator.bit_length() - 1)
        while size >= Fraction(2) ** (exponent + 1):
            exponent += 1
        scaled = size / Fraction(2) ** (exponent - self.mantissa)
        integer = int(scaled)
        if mode == "rn":
            integer = round(scaled)
        elif mode == "rna":
            integer = int(scaled + Fraction(1, 2))
        elif scaled != integer and mode == ("rm" if sign else "rp"):
            integer += 1
        word = integer + (exponent - self.least << self.mantissa)
        if word >= self.infinity:
            outward = mode in ("rn", "rna") or mode == ("rm" if sign else "rp")
            word = self.infinity if outward else self.infinity - 1
        return word | sign << (self.bits - 1)

    def words(self, count: int = 500) -> Array:
        """Random bits, some of moderate size, and the special values."""
        values = random.integers(0, (1 << 64) - 1, count, np.uint64) >> np.uint64(64 - self.bits)
        bias = (1 << (self.exponent - 1)) - 1
        near = random.integers(bias - 4, bias + 4, count).astype(np.uint64) << np.uint64(self.mantissa)
        keep = np.uint64((1 << self.mantissa) - 1 | 1 << (self.bits - 1))
        values[::2] = values[::2] & keep | near[::2]
        values[5::7] &= keep
        sign = 1 << (self.bits - 1)
        special = [0, sign, 1, sign | 1, self.infinity, self.infinity | sign, self.infinity - 1, self.infinity + 1]
        values[: len(special)] = special
        return random.permutation(values).astype(f"u{self.bits // 8}")


F16 = Format("f16", 5, 10, 0x7FFF)
BF16 = Format("bf16", 8, 7, 0x7FFF)
F32 = Format("f32", 8, 23, 0x7FFFFFFF)
F64 = Format("f64", 11, 52, 0x7FF8000000000000)
FORMATS = (F16, BF16, F32, F64)


# Arithmetic on words


def negative(word: int, form: Format) -> int:
    return word >> (form.bits - 1)


def add(form: Format, x: int, y: int, mode: str = "rn") -> int:
    a, b = form.value(x), form.value(y)
    if isinstance(a, float) or isinstance(b, float):
        return form.word(float(a if isinstance(a, float) else 0) + float(b if isinstance(b, float) else 0))
    signs = negative(x, form), negative(y, form)
    return form.word(a + b, mode, max(signs) if mode == "rm" else min(signs))


def multiply(form: Format, x: int, y: int, mode: str = "rn") -> int:
    a, b = form.value(x), form.value(y)
    sign = negative(x, form) ^ negative(y, form)
    if isinstance(a, float) or isinstance(b, float):
        return special_product(form, a, b, sign)
    return form.word(a * b, mode, sign)


def special_product(form: Format, a: Fraction | float, b: Fraction | float, sign: int) -> int:
    if a == 0 or b == 0 or a != a or b != b:
        return form.nan
    return form.infinity | sign << (form.bits - 1)


def fma(form: Format, x: int, y: int, z: int, mode: str = "rn") -> int:
    a, b, c = form.value(x), form.value(y), form.value(z)
    sign = negative(x, form) ^ negative(y, form)
    if isinstance(a, float) or isinstance(b, float):
        word = special_product(form, a, b, sign)
        if word == form.nan or c != c or (isinstance(c, float) and negative(z, form) != sign):
            return form.nan
        return word
    if isinstance(c, float):
        return form.word(c)
    signs = sign, negative(z, form)
    return form.word(a * b + c, mode, max(signs) if mode == "rm" else min(signs))


def compare(spelling: str, form: Format, model: Callable[..., int], *operands: Array) -> None:
    names = ", ".join(f"%{x}" for x in "abcefg"[: len(operands)])
    got = apply(f"{spelling} %d, {names};", f"u{form.bits // 8}", *operands)
    for i, word in enumerate(got.tolist()):
        inputs = [int(o[i]) for o in operands]
        if form is F64 and is_nan(form, word) and is_nan(form, model(*inputs)):
            continue
        assert word == model(*inputs), (spelling, *map(hex, inputs), hex(word), hex(model(*inputs)))


def is_nan(form: Format, word: int) -> bool:
    return (word & ((1 << (form.bits - 1)) - 1)) > form.infinity
