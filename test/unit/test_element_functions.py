"""Functions of one element that front ends write, at every width."""

from __future__ import annotations

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
)  # fmt: skip


@pytest.mark.parametrize(("source", "kind", "of", "to"), PAIRS)
def test_bits_are_those_of_another_type(source: str, kind: str, of: Any, to: Any) -> None:
    float_type = to if kind.startswith(("f", "b")) else of
    x = np.random.default_rng().standard_normal(SHAPE).astype(float_type).view(of)
    got = applied(f"%r = arith.bitcast %a : {source} to {kind}", source, kind, x)
    np.testing.assert_array_equal(got.view(x.dtype), x)


def test_bits_of_f16_are_refused_at_their_place() -> None:
    x = np.ones(SHAPE, np.float16)
    with pytest.raises(CompileError, match=r":6:13: error: arith\.bitcast from f16 to i16 is not lowered; between"):
        applied("%r = arith.bitcast %a : f16 to i16", "f16", "i16", x)


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
    if (name, kind) == ("round", "f64"):
        return  # has no form
    x = (np.round(np.random.default_rng().standard_normal(SHAPE) * 20) / 4).astype(dtype)
    x[0, :2] = -0.25, -0.0
    got = applied(f"%r = math.{name} %a : {kind}", kind, kind, x)
    np.testing.assert_array_equal(got, rounded(x))
    np.testing.assert_array_equal(np.signbit(got), np.signbit(rounded(x)))
