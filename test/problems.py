"""Numbers for the products of `products.py`: arguments, and what a kernel must make of them, by numpy in float64."""

from __future__ import annotations

from dataclasses import dataclass
from math import erf
from typing import Any

import ml_dtypes
import numpy as np
from products import EPILOGUES, Product

from warploom.dialect.isa.form import BY_MLIR_NAME
from warploom.runtime import compress, prune
from warploom.runtime.arguments.arrays import DTYPES

Array = np.ndarray[Any, np.dtype[Any]]

_UNITS = {"f32": 2.0**-24, "f64": 2.0**-53, "f16": 2.0**-11, "bf16": 2.0**-8}
"""By how much rounding to a type changes a number at most, relative to it."""

_MIN = {"f32": 2.0**-149, "f64": 0.0, "f16": 2.0**-24, "bf16": 2.0**-133}
"""The same where numbers are smaller than the normal ones: absolute."""


@dataclass(frozen=True)
class Problem:
    """A kernel's arguments; which of them it writes, what must be there then, and how far from it a float may be."""

    arguments: list[Array]
    output: int
    value: Array
    bound: Array
    gaps: tuple[Array, Array] | None = None
    """The memory in which the output lies, if it has gaps, and what it held at first."""

    def wrong(self) -> str:
        """What is wrong with the output as it is now; "" if nothing."""
        result = self.arguments[self.output]
        if self.value.dtype.kind in "iu":
            bad = result != self.value
        else:
            with np.errstate(invalid="ignore"):
                bad = ~(np.abs(result.astype(np.float64) - self.value) <= self.bound)
        if not bad.any():
            return self._spilt()
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        allowed = f" +- {self.bound[at]:.3g}" if self.bound.size else ""
        return f"{bad.sum()} of {bad.size} are wrong, first {at}: {result[at]}, expected {self.value[at]}{allowed}"

    def _spilt(self) -> str:
        """Whether the kernel has written beside the output."""
        if self.gaps is None:
            return ""
        now, before = self.gaps
        result = self.arguments[self.output]
        start = (result.ctypes.data - now.ctypes.data) // result.itemsize
        surroundings = now.copy()
        place = (result.shape, result.strides[0] // result.itemsize, start)
        _within(surroundings, *place)[...] = _within(before, *place)
        wrong = np.flatnonzero(surroundings.view(np.uint8) != before.view(np.uint8))
        return f"{wrong.size} bytes are written beside C, first {wrong[0] // result.itemsize}" if wrong.size else ""


def problem(product: Product, seed: int = 0) -> Problem:
    """Arguments and what is expected: floats of mixed exponents, integers of every value; what is cleared starts as NaN
    or -1, and so are the gaps around matrices with strides."""
    random = np.random.default_rng([seed, *product.size])
    *first, dense, b = _operands(product, random)
    c_shape = product.shapes()[2]
    start = _draw(product, random, product.types.c, c_shape)
    epilogue_operands = [_draw(product, random, *place) for place in product.epilogue_operands()]
    value, bound = _sums(product, dense, b, None if product.cleared else start)
    if product.form in EPILOGUES:
        value, bound = _after(product, value, bound, epilogue_operands)
    output = np.full(c_shape, -1 if product.types.integers else np.nan).astype(DTYPES[product.stored])
    if product.types.integers:
        value = value.astype(output.dtype)
    else:
        bound = bound + np.abs(value) * _UNITS[product.stored] + _MIN[product.stored]
    if product.form == "tensors":
        epilogue_operands = [start]
    elif not product.cleared:
        output = start
    arguments = [*first, b, *epilogue_operands, output]
    if product.form == "generic":
        arguments = [x.view(_SIGNLESS.get(x.dtype, x.dtype)) for x in arguments]
    if product.form != "strided":
        return Problem(arguments, len(arguments) - 1, value, bound)
    spread = [_spread(x, *place) for x, place in zip(arguments, product.strides(), strict=True)]
    memory = spread[-1][1]
    return Problem([placed for placed, _ in spread], 2, value, bound, (memory, memory.copy()))


_SIGNLESS = {np.dtype(np.uint8): np.int8, np.dtype(ml_dtypes.uint4): ml_dtypes.int4}


def _operands(product: Product, random: np.random.Generator) -> list[Array]:
    """The arguments before B, then A with its zeros, then B."""
    a_shape, b_shape, _ = product.shapes()
    b = _draw(product, random, product.types.b, b_shape)
    if not product.sparse:
        a = _draw(product, random, product.types.a, a_shape)
        return [a, a, b]
    dense = prune(_draw(product, random, product.types.a, (a_shape[0], 2 * a_shape[1])))
    values, metadata = compress(dense)
    return [values.view(dense.dtype), metadata, dense, b]


def _sums(product: Product, a: Array, b: Array, c: Array | None) -> tuple[Array, Array]:
    """C + A * B and the bound on the error of its sums; nothing of that for integers."""
    wide = np.int64 if product.types.integers else np.float64
    x, y = a.astype(wide), b.astype(wide)
    start = np.zeros((), wide) if c is None else c.astype(wide)
    spec = "{},{}->{}".format(*product.loops)
    value = start + np.einsum(spec, x, y)
    if product.types.integers:
        return value, np.zeros(0)
    return value, _sum_bound(product, np.abs(start) + np.einsum(spec, np.abs(x), np.abs(y)))


def _draw(product: Product, random: np.random.Generator, kind: str, shape: tuple[int, ...]) -> Array:
    dtype = DTYPES[kind]
    if "i" in kind:
        unsigned, bits = kind.startswith("u"), BY_MLIR_NAME[kind].bits
        low, high = (0, 2**bits) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        return random.integers(low, high, shape).astype(dtype)
    binades = 2 if "f16" in (kind, product.stored) or dtype.itemsize == 1 else 6
    return (random.standard_normal(shape) * 2.0 ** random.integers(-binades, binades, shape)).astype(dtype)


def _sum_bound(product: Product, magnitude: Array) -> Array:
    """The error of sums in any order: of each operand, and of each of K + 2 terms.

    Of 8-bit floats tensor cores may cut the terms 13 bits below the largest; `runtime/reference/functions.py` says why.
    """
    operand = 2.0**-10 if product.types.a == "f32" else 0.0
    unit, tiny = (2.0**-10, 2.0**-24) if product.types.accumulate == "f16" else (2.0**-23, 2.0**-149)
    if product.types.c == "f64":
        unit, tiny = 2.0**-52, 0.0
    elif product.types.bits == 8:
        unit = 2.0**-13
    return magnitude * (2.1 * operand + (product.size[2] + 2) * unit) + (product.size[2] + 2) * tiny


def _after(product: Product, x: Array, bound: Array, epilogue_operands: list[Array]) -> tuple[Array, Array]:
    """What the epilogue makes of sums, and of the bound on their error."""
    wide = [extra.astype(x.dtype) for extra in epilogue_operands]
    if product.form == "minus, cast":
        return -x, bound
    if product.types.integers:  # sums wrap around before they are compared
        after = (x + wide[0]).astype(np.int32)
        return (np.maximum(after, 0) if product.form == "bias, relu" else after), bound
    unit = 2.0**-52 if product.types.c == "f64" else 2.0**-23
    if product.form == "bias, relu":
        return np.maximum(x + wide[0], 0), bound + unit * (np.abs(x) + np.abs(wide[0]))
    if product.form == "residual":
        return x + wide[0], bound + unit * (np.abs(x) + np.abs(wide[0]))
    if product.form == "log, residual":
        return np.log1p(np.abs(x)) + wide[0], bound + 4 * unit * (2 + np.log1p(np.abs(x)) + np.abs(wide[0]))
    # Both have a slope of at most 1.13.
    gate = np.tanh(0.7978845608 * (x + 0.044715 * x**3)) if "tanh" in product.form else _erf(x / np.sqrt(2))
    return 0.5 * x * (1 + gate), 1.2 * bound + 8 * unit * (1 + np.abs(x))


def _erf(x: Array) -> Array:
    return np.vectorize(erf, otypes=[np.float64])(x)


def _spread(array: Array, stride: int, start: int) -> tuple[Array, Array]:
    """A copy of a matrix with gaps behind its rows and elements before them, which are NaN, or -1; and its memory."""
    gap = -1 if array.dtype.kind in "iu" else np.nan
    memory = np.full(start + array.shape[0] * stride + 64, gap).astype(array.dtype)
    placed = _within(memory, array.shape, stride, start)
    placed[...] = array
    return placed, memory


def _within(memory: Array, shape: tuple[int, ...], stride: int, start: int) -> Array:
    """The matrix that lies in memory after `start` elements, rows `stride` elements apart."""
    size = memory.dtype.itemsize
    return np.ndarray(shape, memory.dtype, memory.view(np.uint8).data, start * size, (stride * size, size))
