"""Functions of one element that front ends write, at every width."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.runtime import CompileError, compile

Array = NDArray[Any]
SHAPE = (7, 33)


def applied(body: str, source: str, result: str, *arrays: Array) -> Array:
    """What a body makes of elements %a and %b of one or two arrays."""
    values, kind, made = ("%x", "%y")[: len(arrays)], f"tensor<7x33x{source}>", f"tensor<7x33x{result}>"
    arguments = ", ".join(f"{value}: {kind}" for value in values)
    elements = ", ".join(f"%{name}: {source}" for name in "ab"[: len(arrays)])
    maps = ", ".join(["affine_map<(i, j) -> (i, j)>"] * (len(arrays) + 1))
    kernel = compile(
        f"""func.func @f({arguments}) -> {made} {{
          %e = tensor.empty() : {made}
          %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel"]}}
            ins({", ".join(values)} : {", ".join([kind] * len(arrays))}) outs(%e : {made}) {{
          ^bb0({elements}, %o: {result}):
            {body}
            linalg.yield %r : {result}
          }} -> {made}
          return %r : {made} }}""",
        target="sm_90a",
        cache=False,
    )
    return kernel(*arrays, device="interp")


WIDTHS = (8, 16, 32, 64)


def drawn(bits: int) -> Array:
    """Integers of every size, the extremes among them."""
    rng, limits = np.random.default_rng(), np.iinfo(f"int{bits}")
    numbers = rng.integers(limits.min, limits.max, SHAPE, dtype=f"int{bits}", endpoint=True)
    numbers >>= rng.integers(0, bits, SHAPE).astype(numbers.dtype)
    numbers[0, :4] = limits.min, limits.max, 0, -1
    return numbers


QUOTIENTS: dict[str, Callable[[int, int], int]] = {
    "floordivsi": lambda a, b: a // b,
    "ceildivsi": lambda a, b: -(-a // b),
    "ceildivui": lambda a, b: -(-a // b),
}


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("name", QUOTIENTS)
def test_integers_are_divided_to_the_floor_and_to_the_ceiling(name: str, bits: int) -> None:
    a, b = drawn(bits), drawn(bits)
    b[(b == 0) | (b == -1)] = 3  # by 0, and the least number by -1, have no quotient
    unsigned = f"uint{bits}" if name.endswith("ui") else f"int{bits}"
    pairs = zip(a.view(unsigned).flat, b.view(unsigned).flat, strict=True)
    wanted = np.array([QUOTIENTS[name](int(x), int(y)) for x, y in pairs], unsigned).view(a.dtype)
    got = applied(f"%r = arith.{name} %a, %b : i{bits}", f"i{bits}", f"i{bits}", a, b)
    np.testing.assert_array_equal(got, wanted.reshape(SHAPE))


COUNTS: dict[str, Callable[[str], int]] = {
    "ctpop": lambda digits: digits.count("1"),
    "ctlz": lambda digits: len(digits) - len(digits.lstrip("0")),
    "cttz": lambda digits: len(digits) - len(digits.rstrip("0")),
}


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("name", COUNTS)
def test_bits_are_counted(name: str, bits: int) -> None:
    a = drawn(bits)
    wanted = [COUNTS[name](f"{int(x):0{bits}b}") for x in a.view(f"uint{bits}").flat]
    got = applied(f"%r = math.{name} %a : i{bits}", f"i{bits}", f"i{bits}", a)
    np.testing.assert_array_equal(got, np.array(wanted, a.dtype).reshape(SHAPE))


PAIRS: Sequence[tuple[str, str, Any, Any]] = (
    ("f32", "i32", np.float32, np.int32), ("i32", "f32", np.int32, np.float32),
    ("f64", "i64", np.float64, np.int64), ("i64", "f64", np.int64, np.float64),
    ("bf16", "i16", ml_dtypes.bfloat16, np.int16), ("i16", "bf16", np.int16, ml_dtypes.bfloat16),
    ("f16", "i16", np.float16, np.int16), ("i16", "f16", np.int16, np.float16),
)  # fmt: skip


@pytest.mark.parametrize(("source", "kind", "of", "to"), PAIRS)
def test_bits_are_those_of_another_type(source: str, kind: str, of: Any, to: Any) -> None:
    float_type = to if kind.startswith(("f", "b")) else of
    x = np.random.default_rng().standard_normal(SHAPE).astype(float_type).view(of)
    got = applied(f"%r = arith.bitcast %a : {source} to {kind}", source, kind, x)
    np.testing.assert_array_equal(got.view(x.dtype), x)


def test_bits_of_eight_are_refused_at_their_place() -> None:
    x = np.ones(SHAPE, np.int8)
    with pytest.raises(CompileError, match=r":6:13: error: arith\.bitcast from i8 to f8E5M2 is not lowered; between"):
        applied("%r = arith.bitcast %a : i8 to f8E5M2", "i8", "f8E5M2", x)


@pytest.mark.parametrize(
    ("name", "rounded"),
    [
        ("floor", np.floor),
        ("ceil", np.ceil),
        ("trunc", np.trunc),
        ("roundeven", np.rint),
        ("round", lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x)),
    ],
)
@pytest.mark.parametrize(("kind", "dtype"), [("f64", np.float64), ("f32", np.float32), ("f16", np.float16)])
def test_whole_numbers_keep_the_sign_of_what_is_rounded(name: str, rounded: Any, kind: str, dtype: Any) -> None:
    x = (np.round(np.random.default_rng().standard_normal(SHAPE) * 20) / 4).astype(dtype)
    x[0, :2] = -0.25, -0.0
    got = applied(f"%r = math.{name} %a : {kind}", kind, kind, x)
    np.testing.assert_array_equal(got, rounded(x))
    np.testing.assert_array_equal(np.signbit(got), np.signbit(rounded(x)))


Long = np.longdouble
OF_ONE: dict[str, Callable[[Any], Any]] = {
    **{name: getattr(np, name) for name in ("exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "sinh", "cosh")},
    **{name: getattr(np, name) for name in ("tanh", "sin", "cos", "tan", "cbrt")},
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "rsqrt": lambda x: 1 / np.sqrt(x),
    **{name: np.vectorize(getattr(math, name), [Long]) for name in ("erf", "erfc")},
}
LIMITS = {"sinh": 9.0, "cosh": 9.0, "asinh": 126.0, "acosh": 126.0}
"""Exponents of two up to which a function, or what it is computed from, has a number."""


def floats(dtype: Any, largest: float = 1e9) -> Array:
    """Floats of every size below a power of two, and those that have no like."""
    rng, limits = np.random.default_rng(), np.finfo(dtype)
    exponents = rng.uniform(limits.minexp - limits.nmant, min(limits.maxexp, largest), SHAPE)
    exponents[:4] = rng.uniform(-12, 8, (4, 33))
    numbers = (np.exp2(exponents.astype(Long)) * rng.choice([-1, 1], SHAPE)).astype(dtype)
    numbers[0, :9] = 0, -0.0, np.inf, -np.inf, np.nan, 1, -1, limits.smallest_subnormal, limits.tiny
    return numbers


def check_close(got: Array, wanted: Array, units: float | Array) -> None:
    """Compares with results of more digits: by units of the least difference from 1, and words of other numbers."""
    limits, rounded = np.finfo(got.dtype), wanted.astype(got.dtype)
    unusual = ~np.isfinite(rounded) | (rounded == 0)
    np.testing.assert_array_equal(got[unusual], rounded[unusual])
    unit = limits.eps * np.maximum(np.abs(wanted), limits.tiny)
    assert (np.abs(got.astype(Long) - wanted)[~unusual] <= (units * unit)[~unusual]).all()


@pytest.mark.parametrize(("kind", "dtype"), [("f32", np.float32), ("f64", np.float64)])
@pytest.mark.parametrize("name", OF_ONE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions_are_off_by_three_units_at_most(name: str, kind: str, dtype: Any) -> None:
    x = floats(dtype, 40.0 if name in ("sin", "cos", "tan") else LIMITS.get(name, 1e9))
    wanted = OF_ONE[name](x.astype(Long))
    got = applied(f"%r = math.{name} %a : {kind}", kind, kind, x)
    own = {("tanh", "f32"): 9.0, ("erf", "f32"): 9.0, ("erfc", "f64"): 5.0}  # of 480,000 erfc 4.2 at most
    check_close(got, wanted, own.get((name, kind), 3.0))


@pytest.mark.parametrize(("kind", "dtype"), [("f32", np.float32), ("f64", np.float64)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_angles_have_the_quadrant_of_both_numbers(kind: str, dtype: Any) -> None:
    y, x = floats(dtype), floats(dtype)
    both = np.array([0.0, -0.0, np.inf, -np.inf, 1.5, -2.5, np.nan], dtype)
    y[:2, :7], x[:2, :7] = both, both[::-1]
    y[2:, :7], x[2:, :7] = np.repeat(both[:5, None], 7, 1), both
    got = applied(f"%r = math.atan2 %a, %b : {kind}", kind, kind, y, x)
    check_close(got, np.arctan2(y.astype(Long), x.astype(Long)), 3.0)
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(y[~np.isnan(got)]))


@pytest.mark.parametrize(("kind", "dtype"), [("f32", np.float32), ("f16", np.float16)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_rests_of_floats_are_exact(kind: str, dtype: Any) -> None:
    x, y = floats(dtype), np.roll(floats(dtype), 3, axis=1)
    got = applied(f"%r = arith.remf %a, %b : {kind}", kind, kind, x, y)
    np.testing.assert_array_equal(got, np.fmod(x, y))
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(x[~np.isnan(got)]))


CLASSES: dict[str, Callable[[Array], Array]] = {
    "isnormal": lambda x: np.isfinite(x) & (np.abs(x) >= np.finfo(x.dtype).tiny),
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
}


@pytest.mark.parametrize(("kind", "dtype"), [("f32", np.float32), ("f64", np.float64), ("f16", np.float16)])
@pytest.mark.parametrize("name", CLASSES)
def test_floats_are_classified(name: str, kind: str, dtype: Any) -> None:
    x = floats(dtype)
    got = applied(f"%p = math.{name} %a : {kind} %r = arith.extui %p : i1 to i8", kind, "i8", x)
    np.testing.assert_array_equal(got, CLASSES[name](x))


@pytest.mark.parametrize("bits", WIDTHS)
def test_integers_are_raised_to_powers_as_they_wrap_around(bits: int) -> None:
    x, y = drawn(bits), np.random.default_rng().integers(-9, 9, SHAPE).astype(f"int{bits}")
    x[0] = np.tile([1, -1, 3], 11)
    wanted = [
        int(a) ** int(b) if b >= 0 else int(a) ** -int(b) * (abs(int(a)) == 1)
        for a, b in zip(x.flat, y.flat, strict=True)
    ]
    got = applied(f"%r = math.ipowi %a, %b : i{bits}", f"i{bits}", f"i{bits}", x, y)
    np.testing.assert_array_equal(
        got, np.array([w % 2**bits for w in wanted], f"uint{bits}").view(x.dtype).reshape(SHAPE)
    )


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("sign", ["s", "u"])
def test_products_have_an_upper_half(sign: str, bits: int) -> None:
    x, y = drawn(bits), drawn(bits)
    as_read = [each.view(f"{'u' * (sign == 'u')}int{bits}").astype(object) for each in (x, y)]
    product = as_read[0] * as_read[1]
    for part, wanted in (("%low", product), ("%high", product >> bits)):
        body = f"%low, %high = arith.mul{sign}i_extended %a, %b : i{bits} %c = arith.constant 0 : i{bits}"
        got = applied(f"{body} %r = arith.addi {part}, %c : i{bits}", f"i{bits}", f"i{bits}", x, y)
        np.testing.assert_array_equal(got.view(f"uint{bits}"), (wanted % 2**bits).astype(f"uint{bits}"))


@pytest.mark.parametrize("bits", WIDTHS)
def test_sums_say_whether_they_wrap_around(bits: int) -> None:
    x, y = drawn(bits), drawn(bits)
    body = f"%s, %c = arith.addui_extended %a, %b : i{bits}, i1 %r = arith.extui %c : i1 to i{bits}"
    unsigned = [each.view(f"uint{bits}").astype(object) for each in (x, y)]
    np.testing.assert_array_equal(applied(body, f"i{bits}", f"i{bits}", x, y), sum(unsigned) >> bits)


@pytest.mark.parametrize(("kind", "dtype"), [("f32", np.float32), ("f64", np.float64), ("f16", np.float16)])
def test_floats_are_clamped_and_have_both_waves(kind: str, dtype: Any) -> None:
    x, y = floats(dtype, 5.0), floats(dtype, 5.0)
    body = f"%l = arith.constant -1.5 : {kind} %r = math.clampf %a to [%l, %b] : {kind}"
    np.testing.assert_array_equal(applied(body, kind, kind, x, y), np.minimum(np.maximum(x, -1.5), y))
    with np.errstate(invalid="ignore"):
        wanted = np.cos(x.astype(Long)) - np.sin(x.astype(Long))
    got = applied(f"%s, %c = math.sincos %a : {kind} %r = arith.subf %c, %s : {kind}", kind, kind, x)
    np.testing.assert_allclose(got, wanted.astype(dtype), 0, 4 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize(("kind", "dtype"), [("f32", np.float32), ("f64", np.float64)])
def test_powers_of_integers_are_those_of_negative_floats_too(kind: str, dtype: Any) -> None:
    """Of f64 within |y log(x)| 2^-52 more where the integer is not known, as `powf` is."""
    x = np.random.default_rng().uniform(-3, 3, SHAPE).astype(dtype)
    for power in (3, -2, 7, 0):
        known = f"%n = arith.constant {power} : i32 %r = math.fpowi %a, %n : {kind}, i32"
        check_close(applied(known, kind, kind, x), x.astype(Long) ** power, 4.0)
    powers = np.random.default_rng().choice([3, -2, 7, 0], SHAPE).astype(dtype)
    computed = f"%n = arith.fptosi %b : {kind} to i32 %r = math.fpowi %a, %n : {kind}, i32"
    units = 2.0 + (kind == "f64") * np.abs(powers * np.log(np.abs(x)))
    check_close(applied(computed, kind, kind, x, powers), x.astype(Long) ** powers.astype(Long), units)


@pytest.mark.parametrize(("kind", "dtype"), [("f32", np.float32), ("f64", np.float64), ("f16", np.float16)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_powers_are_those_of_c(kind: str, dtype: Any) -> None:
    x, y = floats(dtype), (np.random.default_rng().normal(size=SHAPE) * 20).astype(dtype)
    x[4:, 5:], y[5:] = np.abs(x[4:, 5:]), np.round(y[5:])
    both = np.array([0.0, -0.0, np.inf, -np.inf, 1.0, -1.0, 0.5, -2.0, 3.0, 2.5, np.nan], dtype)
    x[:4, :11], y[:4, :11] = both, both[[0, 2, 3, 8]][:, None]
    x[:4, 11:22], y[:4, 11:22] = both, both[[1, 5, 6, 10]][:, None]
    wanted = np.power(x.astype(Long), y.astype(Long))
    got = applied(f"%r = math.powf %a, %b : {kind}", kind, kind, x, y)
    check_close(got, wanted, 1500.0 if kind == "f64" else 1.0)


def test_functions_without_a_form_in_f64_are_refused_at_their_place() -> None:
    x = np.ones(SHAPE)
    with pytest.raises(CompileError, match=r":6:13: error: arith\.remf of f64 is not lowered; of 32 bits and fewer"):
        applied("%r = arith.remf %a, %a : f64", "f64", "f64", x)
