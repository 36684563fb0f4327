"""Judges of cuda/floats.cu: exact ones by rational arithmetic, others within the error that CUDA's manual states."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from binary_formats import BF16, F16, F32, F64, Format
from corpus.case import Array, Judge, Random, both, close, equal, kernels_of, output

case = kernels_of("floats")
HALF, FLOAT, DOUBLE, BFLOAT = np.float16, np.float32, np.float64, ml_dtypes.bfloat16
I32, U32, U16 = np.int32, np.uint32, np.uint16


def _numbers(random: Random, n: int, dtype: Any, spread: int = 6) -> Array:
    return (random.standard_normal(n) * 2.0 ** random.integers(-spread, spread, n)).astype(dtype)


def _specials(random: Random, n: int, dtype: Any, spread: int = 6) -> Array:
    x = _numbers(random, n, dtype, spread)
    x[: n // 3 : 2] = random.choice(
        np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5]), len(x[: n // 3 : 2])
    )
    return random.permutation(x)


def _rounded(form: Format, dtype: Any, value: Fraction, mode: str = "rn", zero: bool = False) -> Any:
    """The nearest number of a format in a direction, as numpy has it; a sum of opposites is +0, or -0 downwards."""
    if value == 0:
        return dtype(-0.0 if zero else 0.0)
    return np.array(form.word(value, mode), f"u{np.dtype(dtype).itemsize}").view(dtype)[()]


def _wide(x: Array) -> Array:
    return x.astype(DOUBLE)


def _fused(a: Array, b: Array, c: Array, form: Format) -> Array:
    """a * b + c rounded once, with IEEE's exceptional cases from float64."""
    with np.errstate(all="ignore"):
        out = (_wide(a) * _wide(b) + _wide(c)).astype(a.dtype)
    for i, (x, y, z) in enumerate(zip(_wide(a), _wide(b), _wide(c), strict=True)):
        if all(map(math.isfinite, (x, y, z))):
            exact = Fraction(x) * Fraction(y) + Fraction(z)
            if exact:
                out[i] = _rounded(form, a.dtype.type, exact)
    return out


def _saturated(x: Array) -> Array:
    return np.where(np.isnan(_wide(x)), 0, np.clip(_wide(x), 0, 1) + 0.0).astype(x.dtype)


def _relu(x: Array) -> Array:
    return np.where(_wide(x) > 0, x, np.where(np.isnan(_wide(x)), x, x.dtype.type(0)))


def _larger(a: Array, b: Array, sign: int = 1, nan: bool = False) -> Array:
    """max (or min), which drops NaN or keeps it; +0 is more than -0."""
    x, y = sign * _wide(a), sign * _wide(b)
    first = (x > y) | ((x == y) & (np.signbit(y) > np.signbit(x))) | (np.isnan(x) if nan else np.isnan(y))
    return np.where(first, a, b)


def _scalar_cases(a: Array, b: Array, c: Array, form: Format) -> dict[str, Array]:
    t = a.dtype
    with np.errstate(all="ignore"):
        add, sub, mul = (f(_wide(a), _wide(b)).astype(t) for f in (np.add, np.subtract, np.multiply))
        other = (_wide(a) - _wide(c)).astype(t), (_wide(b) * _wide(c)).astype(t), (_wide(a) * _wide(c)).astype(t)
    return {
        "add": add,
        "sub": sub,
        "mul": mul,
        "fma": _fused(a, b, c, form),
        "sub_ac": other[0],
        "mul_bc": other[1],
        "mul_ac": other[2],
    }


@case(2, 64, sample=True)
def half_arithmetic(random: Random) -> tuple[list[Any], Judge]:
    a, b, c = (_specials(random, 128, HALF) for _ in range(3))
    out, r = output((128, 16), HALF), _scalar_cases(a, b, c, F16)
    add, sub, mul, fma = (r[k] for k in ("add", "sub", "mul", "fma"))
    columns = [
        *(add, sub, mul, fma, _saturated(add), _saturated(mul), _saturated(fma), _relu(fma)),
        *(-a, np.abs(b), _larger(a, b), _larger(a, b, -1), _larger(a, b, nan=True), _larger(b, c, -1, nan=True)),
        *(_saturated(r["sub_ac"]), r["mul_bc"]),
    ]
    return [out, a, b, c], equal((out, np.stack(columns, 1)))


@case(1, 64)
def half2_arithmetic(random: Random) -> tuple[list[Any], Judge]:
    a, b, c = (_numbers(random, 128, HALF, 3) for _ in range(3))
    out, r = output((64, 12, 2), HALF), _scalar_cases(a, b, c, F16)
    p, q, z = (v.reshape(64, 2) for v in (a, b, c))
    real = _fused(p[:, 0], q[:, 0], z[:, 0], F16)
    imaginary = _fused(p[:, 0], q[:, 1], z[:, 1], F16)
    complex_ = [_fused(-p[:, 1], q[:, 1], real, F16), _fused(p[:, 1], q[:, 0], imaginary, F16)]
    columns = [
        *(r["add"], (_wide(r["mul"]) - _wide(c)).astype(HALF), r["fma"], _relu(r["fma"])),
        *(_larger(a, b), _larger(b, c, -1, nan=True), -a, p[:, ::-1]),
        *(np.stack(complex_, 1), np.stack([p[:, 0], q[:, 1]], 1), np.abs(c), _saturated(r["fma"])),
    ]
    return [out, a, b, c], equal((out, np.stack([v.reshape(64, 2) for v in columns], 1)))


@case(2, 64)
def half_comparisons(random: Random) -> tuple[list[Any], Judge]:
    x, y = (_specials(random, 256, HALF, 1).reshape(128, 2) for _ in range(2))
    y[::3] = x[::3]
    out, rows = output((128, 3), U32), []
    for p, q in zip(_wide(x).tolist(), _wide(y).tolist(), strict=True):
        a, b = p[0], q[1]
        unordered = math.isnan(a) or math.isnan(b)
        bits = [a == b, a != b and not unordered, a < b, a <= b, a > b, a >= b]
        bits += [a == b or unordered, a != b, a < b or unordered, a >= b or unordered, math.isnan(a)]
        word = sum(bool(bit) << i for i, bit in enumerate(bits))
        word |= (1 + (math.isinf(b) and (1 if b > 0 else -1))) << 11
        pairs = list(zip(p, q, strict=True))
        lost = [math.isnan(s) or math.isnan(t) for s, t in pairs]
        word |= all(s == t for s, t in pairs) << 13
        word |= all(n or s < t for n, (s, t) in zip(lost, pairs, strict=True)) << 14
        word |= all(s >= t for s, t in pairs) << 15
        mask = sum(0xFFFF << 16 * i for i, (s, t) in enumerate(pairs) if s < t)
        ones = sum(0x3C00 << 16 * i for i, (s, t) in enumerate(pairs) if lost[i] or s > t)
        rows.append([word, mask, ones])
    return [out, x, y], equal((out, np.array(rows, U32)))


def _integer(value: float, mode: str, bits: int, sign: bool) -> int:
    """A float as an integer, rounded and cut to the type; NaN is 0."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if sign else (0, (1 << bits) - 1)
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return high if value > 0 else low
    exact = Fraction(value)
    rounded = {"rn": round(exact), "rz": math.trunc(exact), "ru": math.ceil(exact), "rd": math.floor(exact)}[mode]
    return min(max(rounded, low), high)


DIRECTIONS = {"rn": "rn", "rz": "rz", "ru": "rp", "rd": "rm"}


def _half_word(value: Fraction, mode: str = "rn") -> int:
    return F16.word(value, mode)


@case(2, 64, sample=True)
def half_conversions(random: Random) -> tuple[list[Any], Judge]:
    x = _numbers(random, 128, FLOAT, 9)
    out, ints, longs = output((128, 10), U16), output((128, 8), I32), output(128, np.int64)
    words, integers, wides = [], [], []
    for i, f in enumerate(x.tolist()):
        exact, h = Fraction(f), float(np.float16(f))
        hundred = math.trunc(float(FLOAT(f) * FLOAT(100)))
        nearest = np.array([np.rint(HALF(f))], HALF).view(U16)[0]
        words.append(
            [
                *(_half_word(exact, DIRECTIONS[w]) for w in ("rn", "rz", "ru", "rd")),
                _half_word(Fraction(f * 1.0000001)),
                _half_word(Fraction(hundred)),
                _half_word(Fraction(i * 77 & 0xFFFF), "rz"),
                _half_word(Fraction(i * 123456789), "rp"),
                _half_word(Fraction(i * 1000003 & 0xFFFFFFFF), "rm"),
                nearest,
            ]
        )
        edges = np.array([np.ceil(HALF(f)), np.floor(HALF(f))], HALF).view(U32)[0]
        kinds = [
            ("rn", 32, True),
            ("rz", 32, True),
            ("ru", 32, False),
            ("rd", 32, True),
            ("rn", 16, True),
            ("rz", 16, False),
            ("rz", 8, False),
        ]
        integers.append([*(_integer(h, *kind) & 0xFFFFFFFF for kind in kinds), edges])
        wides.append(_integer(h, "rd", 64, True))
    wanted = np.array(integers, U32).view(I32)
    return [out, ints, longs, x], equal((out, np.array(words)), (ints, wanted), (longs, np.array(wides)))


@case(2, 64, sample=True)
def bf16_arithmetic(random: Random) -> tuple[list[Any], Judge]:
    a, b, c = (_specials(random, 128, BFLOAT) for _ in range(3))
    out, r = output((128, 12), BFLOAT), _scalar_cases(a, b, c, BF16)
    for name, sign in (("add", 1), ("sub", -1)):
        with np.errstate(all="ignore"):
            r[name] = _fused(a, np.ones_like(a), (sign * b).astype(BFLOAT), BF16)
    add, sub, mul, fma = (r[k] for k in ("add", "sub", "mul", "fma"))
    columns = [
        *(add, sub, mul, fma, _relu(fma), _larger(a, b), _larger(a, b, -1, nan=True), -a),
        *(np.abs(a), _saturated(add), _saturated(r["mul_ac"]), _larger(b, c, nan=True)),
    ]
    return [out, a, b, c], equal((out, np.stack(columns, 1)))


@case(2, 64)
def bf16_conversions(random: Random) -> tuple[list[Any], Judge]:
    x = _numbers(random, 128, FLOAT, 9)
    out, floats, ints = output((128, 6), U16), output(128, FLOAT), output(128, I32)
    rows = []
    for i, f in enumerate(x.tolist()):
        exact = [BF16.word(Fraction(f), DIRECTIONS[w]) for w in ("rn", "rz", "ru", "rd")]
        rows.append([*exact, BF16.word(Fraction(f * 1.00000001), "rn"), BF16.word(Fraction(i * 7919), "rn")])
    wide = (np.arange(128, dtype=U32) * 517 & 0xFFFF) << 16
    truncated = np.trunc(_wide(x.astype(BFLOAT)))
    return [out, floats, ints, x], equal((out, rows), (floats, wide.view(FLOAT)), (ints, truncated))


def _math(f: Callable[..., float], *arrays: Array) -> Array:
    return np.array([f(*v) for v in zip(*(a.astype(DOUBLE).tolist() for a in arrays), strict=True)])


@case(2, 64, differs="approximate instructions")
def half_functions(random: Random) -> tuple[list[Any], Judge]:
    a = (random.random(128) * 8 - 4).astype(HALF)
    a[a == 0] = 1
    x, b = _wide(a), _wide(a.astype(BFLOAT))
    out, wide = output((128, 10), HALF), output((128, 4), BFLOAT)
    p = np.abs(x)
    columns = [
        np.exp(x),
        np.log(p),
        np.sin(x),
        np.cos(x),
        np.sqrt(p),
        1 / np.sqrt(p),
        1 / x,
        np.tanh(x),
        np.exp2(x),
        x / (2 * x),
    ]
    wides = [np.exp(b), np.sqrt(np.abs(b)), b / 3, np.log2(np.abs(b))]
    return [out, wide, a], both(
        close((out, np.stack(columns, 1)), rtol=2.5e-3, atol=1e-3),
        close((wide, np.stack(wides, 1)), rtol=8e-3, atol=4e-3),
    )


@case(4, 64)
def fp8_conversions(random: Random) -> tuple[list[Any], Judge]:
    x = _numbers(random, 256, FLOAT, 12)
    out, back = output((256, 4), np.uint8), output((256, 2), FLOAT)
    narrow, wide = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
    finite = [np.clip(x, -448, 448).astype(narrow), np.clip(x, -57344, 57344).astype(wide), x.astype(wide)]
    scaled = np.clip(x * FLOAT(0.01), -448, 448).astype(narrow)
    codes = np.stack([v.view(np.uint8) for v in (*finite, scaled)], 1)
    every = np.arange(256, dtype=np.uint8)
    values = np.stack([every.view(narrow).astype(FLOAT), every.view(wide).astype(FLOAT)], 1)
    return [out, back, x], equal((out, codes), (back, values))


def _directed(form: Format, dtype: Any, f: Callable[..., Fraction], mode: str, *x: float) -> Any:
    """An exact result rounded in a direction. The signs of zeros are left to the cases that have none."""
    return _rounded(form, dtype, f(*map(Fraction, x)), DIRECTIONS[mode])


def _root(form: Format, dtype: Any, x: float, mode: str) -> Any:
    """A square root rounded in a direction, by comparing squares."""
    near = dtype(math.sqrt(x))
    candidates = [np.nextafter(near, dtype(0)), near, np.nextafter(near, dtype(np.inf))]
    below = max(c for c in candidates if Fraction(float(c)) ** 2 <= Fraction(x))
    above = min(c for c in candidates if Fraction(float(c)) ** 2 >= Fraction(x))
    if mode in ("rz", "rd") or below == above:
        return below
    middle = (Fraction(float(below)) + Fraction(float(above))) / 2
    return above if mode == "ru" or middle**2 < Fraction(x) else below


@case(1, 64, sample=True)
def directed_floats(random: Random) -> tuple[list[Any], Judge]:
    a, b, c = (_numbers(random, 64, FLOAT) for _ in range(3))
    out, rows, ways = output((64, 24), FLOAT), [], ("rn", "rz", "ru", "rd")
    for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True):

        def r(f: Callable[..., Fraction], mode: str, *v: float) -> Any:
            return _directed(F32, FLOAT, f, mode, *v)

        rows.append(
            [
                *(r(lambda p, q: p + q, w, x, y) for w in ways),
                *(r(lambda p, q: p * q, w, x, y) for w in ways),
                *(r(lambda p, q, s: p * q + s, w, x, y, z) for w in ways),
                *(r(lambda p, q: p / q, w, x, y) for w in ways),
                *(_root(F32, FLOAT, abs(x), w) for w in ways),
                *(r(lambda p: 1 / p, w, x) for w in ("rn", "ru")),
                r(lambda p, q: p - q, "rz", x, y),
                r(lambda p, q: q - p, "rd", x, y),
            ]
        )
    return [out, a, b, c], equal((out, np.array(rows, FLOAT)))


@case(1, 64)
def directed_doubles(random: Random) -> tuple[list[Any], Judge]:
    a, b, c = (_numbers(random, 64, DOUBLE, 30) for _ in range(3))
    out, rows, ways = output((64, 18), DOUBLE), [], ("rn", "rz", "ru", "rd")
    for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True):

        def r(f: Callable[..., Fraction], mode: str, *v: float) -> Any:
            return _directed(F64, DOUBLE, f, mode, *v)

        rows.append(
            [
                *(r(lambda p, q: p + q, w, x, y) for w in ways),
                *(r(lambda p, q: p * q, w, x, y) for w in ways),
                *(r(lambda p, q, s: p * q + s, w, x, y, z) for w in ("rn", "ru")),
                *(r(lambda p, q: p / q, w, x, y) for w in ("rn", "ru", "rz")),
                *(_root(F64, DOUBLE, abs(x), w) for w in ("rn", "rd")),
                r(lambda p: 1 / p, "rn", x),
                r(lambda p: 1 / p, "rz", y),
                r(lambda p, q: p - q, "rd", x, z),
            ]
        )
    return [out, a, b, c], equal((out, np.array(rows)))


@case(2, 64)
def float_to_integer(random: Random) -> tuple[list[Any], Judge]:
    x = _specials(random, 128, FLOAT, 40)
    x[np.isnan(x)] = 2.5
    x[:6] = [0.5, 1.5, -2.5, 2147483648.0, -2147483904.0, 1e30]
    out, wide, back = output((128, 10), I32), output((128, 5), np.int64), output((128, 8), FLOAT)
    rows, wides, backs = [], [], []
    for i, f in enumerate(x.tolist()):
        n = _integer
        byte = math.trunc(min(max(f, -128), 127))
        row = [n(f, w, 32, True) for w in ("rn", "rz", "ru", "rd")] + [n(f, w, 32, False) for w in ("rn", "rz", "ru")]
        row += [byte, n(f * 3, "rn", 32, True), n(f / 3, "rd", 32, False)]
        rows.append([v & 0xFFFFFFFF for v in row])
        long = [
            n(f, "rn", 64, True),
            n(f, "rd", 64, True),
            n(f, "rz", 64, False),
            n(f * 1e3, "ru", 64, True),
            n(f, "rn", 64, False),
        ]
        wides.append([v & (1 << 64) - 1 for v in long])

        def single(value: int | float, mode: str = "rn") -> Any:
            if isinstance(value, float) and not math.isfinite(value):
                return FLOAT(value)
            return _rounded(F32, FLOAT, Fraction(value), DIRECTIONS[mode], zero=math.copysign(1, value) < 0)

        with np.errstate(all="ignore"):
            bits = np.array([np.array([f]).view(np.int64)[0] + 1]).view(DOUBLE)[0]
        products = (_s(row[0] * 77, 32), _s(i * 123456789, 32), i * 987654321 & 0xFFFFFFFF, _s(long[0] * 1000003, 64))
        backs.append(
            [
                *(single(v, w) for v, w in zip(products, ("rn", "rz", "ru", "rd"), strict=True)),
                *(single(v, w) for v, w in ((f * 1.1, "rn"), (f * 1.1, "ru"), (f / 3, "rz"))),
                FLOAT(bits),
            ]
        )
    return [out, wide, back, x], equal(
        (out, np.array(rows, U32).view(I32)),
        (wide, np.array(wides, np.uint64).view(np.int64)),
        (back, np.array(backs, FLOAT)),
    )


def _s(x: int, bits: int) -> int:
    x &= (1 << bits) - 1
    return x - (x >> bits - 1 << bits)


def _bessel0(x: float) -> float:
    n = 400
    return sum(math.cos(x * math.sin(math.pi * (k + 0.5) / n)) for k in range(n)) / n


def _normal(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


@case(2, 64, differs="approximate instructions inside")
def float_functions(random: Random) -> tuple[list[Any], Judge]:
    a, b = ((random.random(128) * 16 - 8).astype(FLOAT) for _ in range(2))
    x, y, p = _wide(a), _wide(b), np.abs(_wide(a))
    out = output((128, 24), FLOAT)
    small = _wide(a / FLOAT(20))
    columns = [
        *(np.sin(x), np.cos(x), np.tan(x), np.exp(x), np.log(p), p**y, np.tanh(x), _math(math.erf, x)),
        *(_math(math.lgamma, p), np.arctan2(x, y), np.arcsin(small), np.cbrt(x), np.exp2(x), np.log1p(p)),
        *(np.expm1(_wide(a / FLOAT(10))), np.hypot(x, y), np.sinh(x), np.arccosh(_wide(np.abs(a) + FLOAT(1)))),
        *(1 / np.sqrt(p), _math(_normal, _wide(a / FLOAT(5))), _math(_bessel0, x), np.sin(np.pi * x), np.log10(p)),
        _math(math.erfc, x / 4),
    ]
    return [out, a, b], close((out, np.stack(columns, 1)), rtol=3e-6, atol=4e-7)


@case(1, 64)
def large_arguments(random: Random) -> tuple[list[Any], Judge]:
    x = (random.standard_normal(64) * 2.0 ** random.integers(10, 100, 64)).astype(FLOAT)
    out, wide = output((64, 2), FLOAT), output(64, DOUBLE)
    wanted = np.stack([_math(math.sin, x), _math(math.cos, x)], 1)
    return [out, wide, x], both(
        close((out, wanted), rtol=3e-7, atol=1e-7),
        close((wide, _math(math.sin, _wide(x) * 1e10)), rtol=1e-15, atol=1e-15),
    )


@case(2, 64, differs="approximate instructions inside")
def double_functions(random: Random) -> tuple[list[Any], Judge]:
    x, y = (random.random(128) * 16 - 8 for _ in range(2))
    p, out = np.abs(x), output((128, 16), DOUBLE)
    columns = [
        *(np.sin(x), np.cos(x), np.exp(x), np.log(p), p**y, np.tanh(x), _math(math.erf, x)),
        *(_math(math.gamma, p / 4 + 0.5), np.arctan2(x, y), np.arcsin(x / 20), np.cbrt(x), np.exp2(x), np.log1p(p)),
        *(np.sinh(x), 1 / np.sqrt(p), np.hypot(x, y)),
    ]
    return [out, x, y], close((out, np.stack(columns, 1)), rtol=4e-15, atol=1e-300)


@case(2, 64)
def exact_functions(random: Random) -> tuple[list[Any], Judge]:
    a, b = _numbers(random, 128, FLOAT), _numbers(random, 128, FLOAT)
    a[:4], b[4:6] = [2.5, -3.5, 0.5, -0.5], [1.5, np.inf]
    out, wide, ints = output((128, 18), FLOAT), output((128, 9), DOUBLE), output((128, 6), I32)
    c, d, i = _wide(a), _wide(b), np.arange(128)
    away = np.copysign(np.floor(np.abs(c) + 0.5), c)
    remainder, parts = _math(math.remainder, a, b), np.modf(a)
    columns = [
        *(np.floor(a), np.ceil(a), np.trunc(a), np.rint(a), away, np.fmod(a, b), remainder, np.frexp(a)[0]),
        *(np.ldexp(a, i % 40 - 20), *parts, np.nextafter(a, b), np.copysign(a, b), np.maximum(a - b, 0) * (a > b)),
        *(np.minimum(a, b), np.floor(np.log2(np.abs(c))), np.ldexp(a, -5), remainder),
    ]
    wides = [
        np.floor(c),
        np.rint(d),
        np.fmod(c, d),
        _math(math.remainder, c, d),
        np.frexp(c * 3)[0],
        np.ldexp(c, i - 50),
    ]
    wides += [np.modf(c)[0], np.nextafter(c, d), np.sqrt(np.abs(c))]
    flags = (np.isinf(b) << 1) | (np.signbit(a) << 2) | (np.isfinite(b) << 3)
    low, high = c.view(np.uint64) & 0xFFFFFFFF, d.view(np.uint64) >> 32
    nearest = np.where(np.isinf(d), 0, np.copysign(np.floor(np.abs(np.where(np.isinf(d), 0, d)) + 0.5), d))
    nearest[np.isinf(d)] = -1  # the low word of the greatest integer of 64 bits
    integers = [np.frexp(c * 3)[1], np.floor(np.log2(np.abs(c))), flags, np.rint(a), nearest]
    word = a.view(U32) ^ low.astype(U32) ^ high.astype(U32)
    table = np.stack([*(np.asarray(v).astype(np.int64).astype(I32) for v in integers), word.view(I32)], 1)
    return [out, wide, ints, a, b], equal((out, np.stack(columns, 1)), (wide, np.stack(wides, 1)), (ints, table))


@case(2, 64, differs="approximate instructions")
def fast_functions(random: Random) -> tuple[list[Any], Judge]:
    a, b = ((random.random(128) * 5 - 2.5).astype(FLOAT) for _ in range(2))
    x, y, p = _wide(a), _wide(b), np.abs(_wide(a))
    out = output((128, 12), FLOAT)
    columns = [
        *(np.sin(x), np.cos(x), np.exp(x), np.log(p), x / y, p**y, 10 ** (x / 4), np.log2(p), np.tan(x)),
        *(1 / np.sqrt(p), np.clip(x, 0, 1), np.sin(y) * np.cos(y)),
    ]
    return [out, a, b], close((out, np.stack(columns, 1)), rtol=2e-4, atol=2e-6)


@case(2, 64)
def mandelbrot(random: Random) -> tuple[list[Any], Judge]:
    x = (random.integers(-8, 8, (128, 2)) / 4).astype(FLOAT)
    out, rows = output((128, 2), FLOAT), []
    for r, i in x.astype(DOUBLE).tolist():
        z, k = 0j, 0
        while k < 6 and abs(z) ** 2 < 4 - 1e-9:
            z, k = z * z + complex(r, i), k + 1
        rows.append([k, r * i])
    return [out, x, 6], equal((out, np.array(rows)))


@case(2, 64, differs="an approximate root")
def n_body(random: Random) -> tuple[list[Any], Judge]:
    body = random.standard_normal((128, 4)).astype(FLOAT)
    out = output((128, 4), FLOAT)
    p, mass = _wide(body[:, :3]), _wide(body[:, 3])
    d = p[None] - p[:, None]
    a = (d * (mass[None] / (np.sum(d * d, 2) + 0.01) ** 1.5)[..., None]).sum(1)
    return [out, body, 128], close((out, np.concatenate([a, mass[:, None]], 1)), rtol=1e-3, atol=1e-2)


@case(1, 64)
def lu_decomposition(random: Random) -> tuple[list[Any], Judge]:
    n = 12
    a = random.standard_normal((n, n))
    m = a.copy()
    for k in range(n):
        p = k + int(np.abs(m[k:, k]).argmax())
        m[[k, p]] = m[[p, k]]
        m[k + 1 :, k] /= m[k, k]
        m[k + 1 :, k + 1 :] -= np.outer(m[k + 1 :, k], m[k, k + 1 :])
    return [a, n], close((a, m), rtol=1e-9, atol=1e-12)


@case(4, 32)
def welford(random: Random) -> tuple[list[Any], Judge]:
    x = (random.standard_normal((4, 101)) + 3).astype(FLOAT)
    mean, variance = output(4, FLOAT), output(4, FLOAT)
    return [mean, variance, x, 101], close((mean, _wide(x).mean(1)), (variance, _wide(x).var(1)), rtol=1e-5)


@case(4, 32, differs="an approximate exponential")
def softmax_online(random: Random) -> tuple[list[Any], Judge]:
    x, out = (random.standard_normal((4, 75)) * 3).astype(HALF), output((4, 75), HALF)
    e = np.exp(_wide(x))
    return [out, x, 75], close((out, e / e.sum(1, keepdims=True)), rtol=2e-3, atol=1e-6)
