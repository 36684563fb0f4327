"""What a small `linalg` program gives, as sets of numbers: see `program_values`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from program_tree import Array, Body, Elementwise, Index, Product, Program, Reduction, Softmax, Statement
from program_values import (
    EXACT,
    FORMATS,
    ROWS,
    Doubles,
    Freedom,
    Reals,
    Values,
    Whole,
    apply,
    converted,
    rounded,
    signed,
)


@dataclass(frozen=True)
class Evaluator:
    """Evaluates a program. `dropped` is the (statement, step) of a rounding that is left out, to plant an error."""

    program: Program
    dropped: tuple[int, int] | None = None

    def evaluate(self, inputs: Mapping[str, Values]) -> dict[str, Values]:
        """The values of every array, by name."""
        scope = dict(inputs)
        with np.errstate(all="ignore"):
            for number, statement in enumerate(self.program.statements):
                scope[statement.out.name] = self.statement(number, statement, scope)
        return scope

    @property
    def freedom(self) -> Freedom:
        """That of rows, for a program with rows that stores 16 bits."""
        statements = self.program.statements
        rows = any(isinstance(s, Reduction | Softmax) for s in statements)
        return ROWS if rows and any(s.out.type in ("f16", "bf16") for s in statements) else EXACT

    def statement(self, number: int, it: Statement, scope: Mapping[str, Values]) -> Values:
        match it:
            case Elementwise():
                arrays, maps = list(it.inputs), list(it.maps)
                if it.old is not None:
                    arrays, maps = [*arrays, it.old], [*maps, tuple(range(len(it.out.sizes)))]
                return self.body(number, it.body, arrays, maps, it.out.sizes, scope)
            case Reduction():
                terms = self.body(number, it.body, it.inputs, it.maps, it.loops, scope)
                return reduced(it.by, it.out.type, terms, it.along, it.start)
            case Softmax(out, x):
                return softmax(scope[x.name], out.type)
            case Product():
                start = scope[it.c.name] if it.c is not None else None
                return self.product(number, it, scope, start)

    def body(
        self,
        number: int,
        body: Body,
        arrays: Sequence[Array],
        maps: Sequence[Index],
        loops: Sequence[str],
        scope: Mapping[str, Values],
    ) -> Values:
        shape = tuple(self.program.sizes[s] for s in loops)
        values = [spread(scope[a.name], m, shape) for a, m in zip(arrays, maps, strict=True)]
        return self.steps(number, body, values, shape)

    def steps(self, number: int, body: Body, values: list[Values], shape: tuple[int, ...]) -> Values:
        values = list(values)
        for i, step in enumerate(body.steps):
            operands = [values[o] for o in step.operands]
            if step.name == "arith.constant":
                points = Whole.points if step.type.startswith("i") else Reals.points
                values.append(points(step.type, np.full(shape, step.number)))
            elif step.name == "linalg.index":
                at = np.arange(shape[int(step.number)])
                spread_at = at.reshape([-1 if d == int(step.number) else 1 for d in range(len(shape))])
                values.append(Whole.points(step.type, np.broadcast_to(spread_at, shape)))
            elif (number, i) == self.dropped:
                values.append(without_rounding(operands[0], step.type))
            else:
                values.append(apply(step.name, step.type, step.attribute, operands, self.freedom))
        result = values[body.result]
        return result.map(lambda v: np.ascontiguousarray(np.broadcast_to(v, shape)))

    def product(self, number: int, it: Product, scope: Mapping[str, Values], start: Values | None) -> Values:
        shape = tuple(self.program.sizes[s] for s in it.loops)
        a, b = (spread(scope[x.name], m, shape) for x, m in zip((it.a, it.b), it.maps[:2], strict=True))
        if it.a.type == "f32" and isinstance(a, Reals) and isinstance(b, Reals):
            a, b = shortened(a), shortened(b)
        body, last = it.body, it.body.steps[-1]
        free = last.name == "arith.mulf" and last.type == it.out.type
        if free:
            # The instruction adds exact products.
            body = replace(body, steps=(*body.steps[:-1], replace(last, type="f64")))
        terms = self.steps(number, body, [a, b], shape)
        if it.out.type == "f64":
            terms = inexact(terms, a, b)
        axes = tuple(i for i in range(len(shape)) if i not in it.maps[2])
        rest = [i for i in range(len(shape)) if i not in axes]
        order = [rest.index(i) for i in it.maps[2] if i is not None]
        # wgmma adds 8-bit floats of one K tile in short sums; other targets have none that is used by default.
        short = it.a.type.startswith("f8") and self.program.target == "sm_90a"
        summed = product_sum(terms, axes, it.out.type, it.start, start, short=short)
        return summed.map(lambda v: np.ascontiguousarray(v.transpose(order)))


def inexact(products: Any, a: Any, b: Any) -> Reals:
    """Products in f64, of which those that have too many bits may be rounded or not."""
    fits = np.abs(products.low) <= 2.0**53 * _last_place(a.low) * _last_place(b.low)
    step = np.where(fits | ~np.isfinite(products.low), 0.0, np.spacing(np.abs(products.low)))
    # A chain of `fma` adds a product beyond the range as it is.
    beyond = np.isinf(products.low) & np.isfinite(a.low) & np.isfinite(b.low)
    low, high = np.where(beyond, -np.inf, products.low - step), np.where(beyond, np.inf, products.high + step)
    return Reals("f64", low, high, products.nan)


def without_rounding(x: Any, type_: str) -> Reals:
    """What is kept where a rounding is left out."""
    return Reals(type_, x.low, x.high, x.nan)


def spread(values: Values, index: Index, shape: tuple[int, ...]) -> Values:
    """The elements of an array at each place of the loops."""

    def arrange(v: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        taken = v[tuple(0 if i is None else slice(None) for i in index)]
        loops = [i for i in index if i is not None]
        order = sorted(range(len(loops)), key=lambda k: loops[k])
        placed = taken.transpose(order).reshape([shape[i] if i in loops else 1 for i in range(len(shape))])
        return np.broadcast_to(placed, shape)

    return values.map(arrange)


def shortened(x: Reals) -> Reals:
    """An f32 as tf32, of which nobody says whether it is cut off or rounded."""
    low, high = x.low.astype(np.float32), x.high.astype(np.float32)
    with np.errstate(all="ignore"):
        floor, ceiling = (v.view(np.uint32) & np.uint32(0xFFFFE000) for v in (low, high))
        step = np.uint32(0x2000)
        away = [
            np.where(np.isfinite(v) & (words != v.view(np.uint32)), words + step, words).view(np.float32)
            for v, words in ((low, floor), (high, ceiling))
        ]
    ends = [floor.view(np.float32), ceiling.view(np.float32), *away, low, high]
    stack = np.stack([np.where(x.must_be_nan, np.nan, e).astype(np.float64) for e in ends])
    least, upper = stack.min(axis=0), stack.max(axis=0)
    same = (floor == low.view(np.uint32)) & x.exact
    return Reals(x.type, np.where(same, x.low, least), np.where(same, x.high, upper), x.nan)


def _last_place(values: Doubles) -> Doubles:
    """What the lowest bit of each number that is set is worth; infinity for zeros and what is not finite."""
    mantissa, exponent = np.frexp(np.where(np.isfinite(values), values, 0.0))
    words = np.ldexp(mantissa, 53).astype(np.int64)
    low = np.ldexp((words & -words).astype(np.float64), exponent - 53)
    return np.where(words == 0, np.inf, low)


def _joined(values: Reals, axes: tuple[int, ...], start: Reals) -> Reals:
    """The terms along the last axis, the start among them."""

    def change(v: np.ndarray[Any, Any], s: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        rest = [i for i in range(v.ndim) if i not in axes]
        flat = v.transpose([*rest, *axes]).reshape([*(v.shape[i] for i in rest), -1])
        return np.concatenate([flat, np.broadcast_to(s, flat.shape[:-1])[..., None]], axis=-1)

    return Reals(
        values.type, change(values.low, start.low), change(values.high, start.high), change(values.nan, start.nan)
    )


def summed(terms: Reals, type_: str, unit: float, bits: int, tiny: float = 0.0) -> Reals:
    """The sum along the last axis in any order, of which each addition has a relative error of at most `unit`.

    A sum is exact if `bits` bits hold every partial sum.
    """
    count, form = terms.shape[-1], FORMATS[type_]
    low, high = (np.where(np.isfinite(v), v, 0.0) for v in (terms.low, terms.high))
    magnitude = np.maximum(np.abs(low), np.abs(high)).sum(axis=-1)
    positive, negative = np.maximum(high, 0).sum(axis=-1), -np.minimum(low, 0).sum(axis=-1)
    with np.errstate(all="ignore"):
        exact = terms.exact.all(axis=-1) & (magnitude <= 2.0**bits * _last_place(low).min(axis=-1))
        error = np.where(exact, 0.0, count * (unit * (1 + 2.0**-8) * magnitude + tiny))
        ends = low.sum(axis=-1) - error, high.sum(axis=-1) + error
    least, upper = (rounded(v, type_) for v in ends)
    zero = exact & (least == 0)
    least, upper = np.where(zero, -0.0, least), np.where(zero, 0.0, upper)
    plus, minus = (terms.high == np.inf).any(axis=-1), (terms.low == -np.inf).any(axis=-1)
    surely_plus, surely_minus = (terms.low == np.inf).any(axis=-1), (terms.high == -np.inf).any(axis=-1)
    both_may_overflow = np.minimum(positive, negative) > 0
    beyond = (magnitude * (1 + count * unit) > form.largest) & both_may_overflow
    clash = (plus | (beyond & (positive > form.largest / 2))) & (minus | (beyond & (negative > form.largest / 2)))
    beyond = beyond | (plus & (negative > form.largest / 2)) | (minus & (positive > form.largest / 2))
    upper, least = np.where(plus, np.inf, upper), np.where(minus, -np.inf, least)
    least, upper = np.where(surely_plus, np.inf, least), np.where(surely_minus, -np.inf, upper)
    wide = clash | beyond
    must = terms.must_be_nan.any(axis=-1) | (surely_plus & surely_minus)
    least, upper = np.where(wide, -np.inf, least), np.where(wide, np.inf, upper)
    nan = terms.nan.any(axis=-1) | wide | must
    return Reals(type_, np.where(must, np.nan, least), np.where(must, np.nan, upper), nan)


def _multiplied(terms: Reals, type_: str) -> Reals:
    """The product along the last axis, in any order."""
    form, count = FORMATS[type_], terms.shape[-1]
    unit = 2.0**-form.precision
    with np.errstate(all="ignore"):
        size = np.log2(np.maximum(np.abs(terms.low), np.abs(terms.high)))
        small = np.log2(np.minimum(np.abs(terms.low), np.abs(terms.high)))
        grown = np.where(np.isfinite(size), np.maximum(size, 0), 0).sum(axis=-1)
        shrunk = np.where(np.isfinite(small), np.minimum(small, 0), 0).sum(axis=-1)
        value = terms.low.prod(axis=-1)
        exact_bits = np.abs(value) <= 2.0**form.precision
        integral = (terms.low == np.rint(terms.low)).all(axis=-1) & exact_bits & terms.exact.all(axis=-1)
        must = np.isnan(value) & terms.exact.all(axis=-1) | terms.must_be_nan.any(axis=-1)
        wide = (grown > np.log2(form.largest) - 1) | (shrunk < form.least + 1)
        # An infinity takes over what is finite, a zero too, but not each other.
        wide = (wide | ~terms.exact.all(axis=-1)) & ~must
        error = np.where(integral | ~np.isfinite(value), 0.0, np.abs(value) * count * unit * (1 + 2.0**-8))
        ends = [rounded(np.where(must, 0.0, v), type_) for v in (value - error, value + error)]
    low, high = (np.where(wide, e, v) for v, e in zip(ends, (-np.inf, np.inf), strict=True))
    zero = (low == 0) & (high == 0)
    low, high = np.where(zero, -0.0, low), np.where(zero, 0.0, high)
    return Reals(type_, np.where(must, np.nan, low), np.where(must, np.nan, high), wide | must)


def reduced(by: str, type_: str, terms: Values, along: int, start: float) -> Values:
    """What is taken together along one axis, and with a start: sums and products in f32, rounded once to the type."""
    assert isinstance(terms, Reals)
    joined = _joined(terms, (along,), Reals.points(type_, start))
    if by in ("arith.addf", "arith.mulf"):
        form = FORMATS["f32"]
        unit = 2.0**-form.precision
        total = summed(joined, "f32", unit, form.precision) if by == "arith.addf" else _multiplied(joined, "f32")
        # a start of 0.0 is left out, so that zeros add up to a zero of their own sign
        total = replace(total, low=_signless(total.low, -0.0), high=_signless(total.high, 0.0))
        return converted(total, type_)
    result: Any = joined.map(lambda v: v[..., 0])
    for i in range(1, joined.shape[-1]):
        result = apply(by, type_, "", (result, joined.map(lambda v, i=i: v[..., i])))
    # In whichever order, the first of two zeros may stay.
    return replace(result, low=_signless(result.low, -0.0), high=_signless(result.high, 0.0))


def _signless(values: Doubles, zero: float) -> Doubles:
    return np.where(values == 0, zero, values)


def softmax(x: Values, type_: str) -> Reals:
    """exp(x - max) over its sum, in f32 and rounded once."""
    assert isinstance(x, Reals)
    wide = Reals("f32", x.low, x.high, x.nan)
    last = x.low.ndim - 1
    largest = reduced("arith.maximumf", "f32", wide, last, -np.inf).map(lambda v: v[..., None])
    apart = apply("arith.subf", "f32", "", (wide, largest))
    raised = apply("math.exp", "f32", "", (apart,), ROWS)
    total = reduced("arith.addf", "f32", raised, last, 0.0).map(lambda v: v[..., None])
    divided = apply("arith.divf", "f32", "", (raised, total), ROWS)
    assert isinstance(divided, Reals)
    return converted(divided, type_)


def product_sum(
    terms: Values, axes: tuple[int, ...], type_: str, number: float, start: Values | None, *, short: bool
) -> Values:
    """What a matrix instruction gives for the sum of products and a start: `short` of those that cut
    products off 13 bits below the largest."""
    if isinstance(terms, Whole):
        total = terms.low.sum(axis=axes) + (start.low if isinstance(start, Whole) else int(number))
        return Whole.points(type_, signed(total, type_))
    first = start if isinstance(start, Reals) else Reals.points(type_, number)
    joined = _joined(terms, axes, Reals(type_, first.low, first.high, first.nan))
    bits = FORMATS[type_].precision
    unit, tiny = (2.0**-52, 0.0) if type_ == "f64" else (2.0 ** (1 - bits), 2.0 ** (FORMATS[type_].least - bits + 1))
    unit *= 2 if type_ in ("f16", "bf16") else 1
    sums = summed(joined, type_, max(unit, 2.0**-13) if short else unit, min(bits, 13) if short else bits, tiny)
    return beyond_range(sums, joined, type_)


def beyond_range(result: Reals, terms: Reals, type_: str) -> Reals:
    """A product beyond the range of the sum's type is infinity or not: matrix instructions add it as it is."""
    largest = FORMATS[type_].largest
    far: Any = ((np.abs(terms.low) > largest) & np.isfinite(terms.low)).any(axis=-1)
    far = (far | ((np.abs(terms.high) > largest) & np.isfinite(terms.high)).any(axis=-1)) & ~result.must_be_nan
    return Reals(result.type, np.where(far, -np.inf, result.low), np.where(far, np.inf, result.high), result.nan | far)
