"""The arithmetic of matrix instructions in Python's integers and fractions, one element of D at a time.

Written from the rules alone, to be compared with the interpreter's arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

from warploom.dialect.isa.form import ElementType, element_type
from warploom.runtime.interp import Arithmetic

INF = "inf"
NAN = "nan"
Value: TypeAlias = tuple[Fraction, int] | str
"""A finite value with its unnormalised exponent, or "nan", "inf", "-inf"."""


def decode(word: int, kind: ElementType) -> Value:
    top = (1 << kind.exponent) - 1
    bias = top >> 1
    sign = -1 if word >> (kind.exponent + kind.mantissa) & 1 else 1
    exponent, mantissa = word >> kind.mantissa & top, word & ((1 << kind.mantissa) - 1)
    if kind.name == "tf32":
        word &= 0xFFFFE000
        return decode(word, element_type("f32"))
    if kind.name in ("e4m3", "ue4m3") and exponent == top and mantissa == 7:
        return NAN
    if exponent == top and kind.name in ("f16", "bf16", "f32", "e5m2"):
        return NAN if mantissa else (INF if sign > 0 else "-inf")
    if exponent:
        mantissa |= 1 << kind.mantissa
    scale = max(exponent, 1) - bias
    return Fraction(sign * mantissa, 1 << kind.mantissa) * Fraction(2) ** scale, scale


def multiply(a: Value, b: Value) -> Value:
    if isinstance(a, str) or isinstance(b, str):
        if NAN in (a, b):
            return NAN
        signs = [(-1 if x == "-inf" else 1) if isinstance(x, str) else (x[0] > 0) - (x[0] < 0) for x in (a, b)]
        product = signs[0] * signs[1]
        return NAN if product == 0 else INF if product > 0 else "-inf"
    return a[0] * b[0], a[1] + b[1]


def block(core: Arithmetic, products: list[Value], addend: Value, d: ElementType, exponents: Sequence[int] = ()) -> int:
    """One truncated fused sum, to a word of D; what rounds to zero is +0. `exponents` count as those of terms do."""
    terms = [*products, addend]
    specials = {t for t in terms if isinstance(t, str)}
    nan, infinity = (0x7FFFFFFF, 0x7F800000) if d.bits == 32 else (0x7FFF, 0x7C00)
    if NAN in specials or len(specials) == 2:
        return nan
    if specials:
        return infinity if INF in specials else infinity | 1 << (d.bits - 1)
    finite = [t for t in terms if not isinstance(t, str)]
    zero = core.zero_exponent + (112 if d.bits == 16 else 0)
    largest = max([zero, *(e for v, e in finite if v), *exponents])
    unit = Fraction(2) ** (largest - core.fraction)
    total = sum(int(v / unit) for v, _ in finite) * unit
    word = encode_f32(total, core.mantissa) if d.bits == 32 else encode_f16(total)
    return 0 if word == 1 << (d.bits - 1) else word


def encode_f32(value: Fraction, mantissa_bits: int = 23) -> int:
    """Toward zero, to so many bits, with gradual underflow; an infinity from 2^128 on."""
    if not value:
        return 0
    sign, size = (1 << 31 if value < 0 else 0), abs(value)
    if size >= 2**128:
        return sign | 0x7F800000
    exponent = -126
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    mantissa = int(size / Fraction(2) ** (exponent - mantissa_bits)) << (23 - mantissa_bits)
    return sign | (mantissa if mantissa < 1 << 23 else (exponent + 127) << 23 | mantissa - (1 << 23))


def encode_f16(value: Fraction) -> int:
    """To nearest, ties to even: among all finite halves and 65536, which stands for infinity."""
    if not value:
        return 0
    sign, size = (1 << 15 if value < 0 else 0), abs(value)
    exponent = -14
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    scaled = size / Fraction(2) ** (exponent - 10)
    mantissa = round(scaled)
    word = mantissa if exponent == -14 else ((exponent + 15) << 10) + mantissa - (1 << 10)
    return sign | min(word, 0x7C00)


def rounded(value: Fraction, mantissa: int, least: int, top: int, mode: str = "rn") -> Fraction | str:
    """To a binary format of so many mantissa bits and exponents, in an IEEE rounding mode; too large, "inf"."""
    size, negative = abs(value), value < 0
    exponent = least
    if size:
        guess = size.numerator.bit_length() - size.denominator.bit_length()
        exponent = max(least, guess if size >= Fraction(2) ** guess else guess - 1)
    unit = Fraction(2) ** (exponent - mantissa)
    scaled = size / unit
    away = {"rn": False, "rz": False, "rm": negative, "rp": not negative}[mode]
    count = round(scaled) if mode == "rn" else -int(-scaled // 1) if away else int(scaled)
    size = count * unit
    if size >= Fraction(2) ** (top + 1):
        if mode != "rn" and not away:
            size = Fraction(2) ** (top + 1) - Fraction(2) ** (top - mantissa)
        else:
            return "-inf" if negative else INF
    return -size if negative else size
