"""What operations of `arith`, `math` and `llvm` compute, by numpy: for the kernels of `door_programs.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Function = Callable[..., Array]

DTYPES: dict[str, Any] = {
    "i1": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "index": np.int64,
}
FLOATS = ("f16", "bf16", "f32", "f64")
WIDTH = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "f16": 16, "bf16": 16, "f32": 32, "f64": 64}


class UndefinedError(Exception):
    """An operation has no result for operands of a thread that executes it."""


def words(array: Array) -> Array:
    """Integers of the same bits, and one NaN for all."""
    bits = array.view(f"u{array.dtype.itemsize}").copy()
    if array.dtype.kind not in "biu":
        bits[np.isnan(array.astype(np.float64))] = 0xFFFF
    return bits


def unsigned(a: Array) -> Array:
    return a.view(f"u{a.dtype.itemsize}")


def by_element(function: Callable[..., Any]) -> Function:
    """An exact function of Python's integers, whose results wrap around."""

    def apply(*arrays: Array) -> Array:
        kind, flat = arrays[0].dtype, zip(*(a.ravel().tolist() for a in arrays), strict=True)
        bits = 8 * kind.itemsize
        made = np.array([int(function(*each)) & (1 << bits) - 1 for each in flat], np.uint64)
        return made.astype(f"u{kind.itemsize}").view(kind).reshape(arrays[0].shape)

    return apply


def require(holds: Array) -> None:
    if not np.all(holds):
        raise UndefinedError


def divided(function: Callable[[int, int], int], signed: bool) -> Function:
    def apply(a: Array, b: Array) -> Array:
        require(b != 0)
        if signed:
            require((a != np.iinfo(a.dtype).min) | (b != -1))
            return by_element(function)(a, b)
        return by_element(function)(unsigned(a), unsigned(b)).view(a.dtype)

    return apply


def shifted(function: Callable[[int, int], int], signed: bool) -> Function:
    def apply(a: Array, b: Array) -> Array:
        require(unsigned(b) < 8 * a.dtype.itemsize)
        return by_element(function)(a if signed else unsigned(a), b.astype(np.int64)).view(a.dtype)

    return apply


def quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def of_unsigned(function: Function) -> Function:
    return lambda a, b: function(unsigned(a), unsigned(b)).view(a.dtype)


def largest(sign: int, quiet: bool) -> Function:
    """The larger, or the smaller, of two numbers: NaN if one is, or if both are; -0 is below +0."""

    def apply(a: Array, b: Array) -> Array:
        above = (a > b) if sign > 0 else (a < b)
        above |= (a == b) & (np.signbit(b) if sign > 0 else np.signbit(a))
        chosen = np.where(above, a, b)
        nan_a, nan_b = np.isnan(a), np.isnan(b)
        return np.where(nan_a, b if quiet else a, np.where(nan_b, a if quiet else b, chosen)).astype(a.dtype)

    return apply


def copied_sign(a: Array, b: Array) -> Array:
    require(~np.isnan(b))  # whose sign is not defined
    return np.copysign(a, b)


def same_bits(to: str) -> Function:
    def apply(a: Array) -> Array:
        require(a == a)
        return a.view(DTYPES[to])

    return apply


INTEGERS: dict[str, tuple[str, Function]] = {
    "addi": ("add", by_element(lambda a, b: a + b)),
    "subi": ("sub", by_element(lambda a, b: a - b)),
    "muli": ("mul", by_element(lambda a, b: a * b)),
    "andi": ("and", np.bitwise_and),
    "ori": ("or", np.bitwise_or),
    "xori": ("xor", np.bitwise_xor),
    "maxsi": ("intr.smax", np.maximum),
    "minsi": ("intr.smin", np.minimum),
    "maxui": ("intr.umax", of_unsigned(np.maximum)),
    "minui": ("intr.umin", of_unsigned(np.minimum)),
    "divsi": ("sdiv", divided(quotient, True)),
    "divui": ("udiv", divided(lambda a, b: a // b, False)),
    "remsi": ("srem", divided(lambda a, b: a - b * quotient(a, b), True)),
    "remui": ("urem", divided(lambda a, b: a % b, False)),
    "floordivsi": ("", divided(lambda a, b: a // b, True)),
    "ceildivsi": ("", divided(lambda a, b: -(-a // b), True)),
    "ceildivui": ("", divided(lambda a, b: -(-a // b), False)),
    "shli": ("shl", shifted(lambda a, b: a << b, True)),
    "shrsi": ("ashr", shifted(lambda a, b: a >> b, True)),
    "shrui": ("lshr", shifted(lambda a, b: a >> b, False)),
}
"""What an operation of `arith` is in `llvm`, and what it computes."""

REALS: dict[str, tuple[str, Function]] = {
    "arith.addf": ("fadd", np.add),
    "arith.subf": ("fsub", np.subtract),
    "arith.mulf": ("fmul", np.multiply),
    "arith.divf": ("fdiv", np.divide),
    "arith.maximumf": ("intr.maximum", largest(1, False)),
    "arith.minimumf": ("intr.minimum", largest(-1, False)),
    "arith.maxnumf": ("intr.maxnum", largest(1, True)),
    "arith.minnumf": ("intr.minnum", largest(-1, True)),
    "arith.negf": ("fneg", np.negative),
    "math.absf": ("intr.fabs", np.abs),
    "math.sqrt": ("intr.sqrt", np.sqrt),
    "math.floor": ("", np.floor),
    "math.ceil": ("", np.ceil),
    "math.trunc": ("", np.trunc),
    "math.roundeven": ("", np.rint),
    "math.copysign": ("", copied_sign),
}
UNARY = ("arith.negf", "math.absf", "math.sqrt", "math.floor", "math.ceil", "math.trunc", "math.roundeven")

ORDERS: dict[str, Function] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def compared(predicate: str, real: bool) -> Function:
    order = ORDERS.get(predicate) or ORDERS.get(predicate[1:])

    def apply(a: Array, b: Array) -> Array:
        if order is None:
            return (np.isnan(a) | np.isnan(b)) == (predicate == "uno")
        if not real:
            return order(*((unsigned(a), unsigned(b)) if predicate[0] == "u" else (a, b)))
        unordered = np.isnan(a) | np.isnan(b)
        return (order(a, b) | unordered) if predicate[0] == "u" else (order(a, b) & ~unordered)

    return apply


def odd(a: Array) -> Array:
    """f64, or integers of any size, as f32, rounded to an odd number where that is not exact."""
    made = a.astype(np.float32)
    for i, (x, y) in enumerate(zip(a.ravel().tolist(), made.ravel().tolist(), strict=True)):
        if x == x and abs(x) != float("inf") and x != y:
            toward = made.flat[i] if abs(y) < abs(x) else np.nextafter(made.flat[i], np.float32(0))
            made.flat[i] = (toward.view(np.uint32) | np.uint32(1)).view(np.float32)
    return made


def converted(source: str, to: str, signed: bool) -> tuple[str, Function]:
    """The operation of `arith` and of `llvm` between two types, and what it computes."""
    into, real, was_real = DTYPES[to], to in FLOATS, source in FLOATS
    if real and was_real:
        if WIDTH[to] > WIDTH[source]:
            return "extf fpext", lambda a: a.astype(into)
        return "truncf fptrunc", lambda a: (odd(a) if (source, WIDTH[to]) == ("f64", 16) else a).astype(into)
    if real:
        name = "sitofp sitofp" if signed else "uitofp uitofp"

        def to_real(a: Array) -> Array:
            exact = a if signed and source != "i1" else unsigned(a) if source != "i1" else a.astype(np.int8)
            exact = -exact if signed and source == "i1" else exact
            return (odd(exact) if WIDTH[to] == 16 else exact).astype(into)

        return name, to_real
    if was_real:

        def to_integer(a: Array) -> Array:
            whole, bits = np.trunc(a.astype(np.float64)), WIDTH[to]
            low, high = (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1)) if signed else (0.0, 2.0**bits)
            require((whole >= low) & (whole < high))
            return whole.astype(into if signed else f"u{bits // 8}").view(into)

        return ("fptosi fptosi" if signed else "fptoui fptoui"), to_integer
    if WIDTH[to] < WIDTH[source]:
        return "trunci trunc", lambda a: (a & 1).astype(np.bool_) if to == "i1" else a.astype(into)
    if source == "i1":
        return ("extsi sext" if signed else "extui zext"), lambda a: -a.astype(into) if signed else a.astype(into)
    return (
        "extsi sext" if signed else "extui zext"
    ), lambda a: (a if signed else unsigned(a)).astype(into if signed else f"u{WIDTH[to] // 8}").view(into)
