"""Elementwise operations in float64, with a bound on the error of any correct evaluation carried through.

Each operation of a body is evaluated in float64 and rounded to its type, as the IR says: a `truncf` to f16 gives a
number of f16, or an infinity. Beside the value goes how far a computed one may be from it: what the operation gives at
the ends of its operands' intervals, rounded as well. The bound of a rounding is so 0 where every value in the interval
is rounded to one number, and else the distance to the others. Functions add the relative bounds below, which hold for
any good implementation; with `fastmath<afn>` those of the GPU's approximate instructions. A bound is infinite where
nothing is known: a number divided by what may be 0, a sum that may be infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import FloatAttr, IndexType, IntegerAttr, IntegerType, i1
from xdsl.dialects.linalg.ops import YieldOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from ...dialect.mlir.affine import contracted
from ...dialect.warp.elements import YieldOp as WarpYieldOp
from ...dialect.warp.elements import is_approximate
from ...passes.diagnostics import place_of
from ..arguments.arrays import DTYPES, DType
from ..base.errors import HostError
from ..numerics.floats import Floats
from .product import ROUNDINGS, Reference, distance, rounded

FLOAT64 = 2.0**-52
"""The relative error of float64 itself, which stands for exact arithmetic here. Rounded to f32 or less, a sum, product,
quotient or root of such numbers is what rounding the exact one gives ("When is double rounding innocuous?", Figueroa,
1995)."""

TWICE_ROUNDED, TWICE_OFF = 2.0**-126, 2.0**-149
"""Below the first, a result in bf16 may be rounded to f32 before, which is off by the second at most."""


@dataclass(frozen=True)
class Bounded:
    """Values, and how far computed ones may be from them. Truth values are 0 and 1, off by 1 where they are open."""

    value: Floats
    error: Floats

    @staticmethod
    def exact(value: Floats) -> Bounded:
        """Values without error."""
        return Bounded(value, np.zeros_like(value))

    @property
    def ends(self) -> tuple[Floats, Floats]:
        """The least and the greatest value."""
        return self.value - self.error, self.value + self.error


def bounded(reference: Reference) -> Bounded:
    """What is read of an array: its elements as stored."""
    stored = reference.stored()
    return Bounded(stored.value, stored.error)


@dataclass(frozen=True)
class Slack:
    """How much farther than its bound a value may be off before it is rounded to 16 bits: relative and absolute."""

    relative: float = 0.0
    absolute: float = 0.0


EXACT = Slack()

FloatsFunction = Callable[[Floats], Floats]


def _vectorized(function: Callable[[float], float]) -> FloatsFunction:
    vectorized: FloatsFunction = np.vectorize(function, otypes=[np.float64])
    return vectorized


def _halves_away(values: Floats) -> Floats:
    rounded_: Floats = np.trunc(values + np.copysign(0.5, values))
    return rounded_


OTHERS: Mapping[str, FloatsFunction] = {
    "math.asinh": np.arcsinh, "math.acosh": np.arccosh, "math.atanh": np.arctanh, "math.sinh": np.sinh,
    "math.asin": np.arcsin, "math.acos": np.arccos, "math.atan": np.arctan, "math.cbrt": np.cbrt,
    "math.log1p": np.log1p, "math.expm1": np.expm1, "math.log2": np.log2, "math.log10": np.log10,
    "math.erfc": _vectorized(math.erfc),
}  # fmt: skip
"""Monotonous functions that become several others. One at the ends of an interval says more than those do together."""

OF_OTHERS = 5e-7
"""Their relative error: 4 units of f32."""

FUNCTIONS: Mapping[str, tuple[FloatsFunction, float, float]] = {
    "math.exp": (np.exp, 2e-7, 1e-5),
    "math.exp2": (np.exp2, 2e-7, 2.0**-20),
    "math.log": (np.log, 2e-7, 2.0**-19),
    "math.tanh": (np.tanh, 1e-6, 2.0**-10),
    "math.erf": (_vectorized(math.erf), 1e-6, 2.0**-9),
    "math.sqrt": (np.sqrt, 0.0, 2.0**-20),
    "math.rsqrt": (lambda x: 1 / np.sqrt(x), 2e-7, 2.0**-20),
    "math.floor": (np.floor, 0.0, 0.0),
    "math.ceil": (np.ceil, 0.0, 0.0),
    "math.roundeven": (np.rint, 0.0, 0.0),
    "math.trunc": (np.trunc, 0.0, 0.0),
    "math.round": (_halves_away, 0.0, 0.0),
    **{name: (function, OF_OTHERS, OF_OTHERS) for name, function in OTHERS.items()},
}
"""Monotonous functions, and the errors of computing them, relative to the result (to 1 where that is less): good ones,
and the approximate ones that `fastmath<afn>` allows."""

PERIODIC: Mapping[str, FloatsFunction] = {"math.sin": np.sin, "math.cos": np.cos}
"""Functions whose values change at most as much as their arguments."""

OF_F64 = 2e-7
"""The relative error of what is computed in f64 and rounded to f32."""

FROM_ZERO = ("math.sqrt", "math.rsqrt", "math.log")
"""Those of no number below 0."""

APPROXIMATE_QUOTIENT = 2.0**-20
"""The relative error of a quotient that `fastmath<afn>` allows: `div.approx` is within 2 units of f32."""

INTEGER: Mapping[str, Callable[[Floats, Floats], Floats]] = {
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.maxsi": np.maximum,
    "arith.minsi": np.minimum,
    "arith.divsi": lambda a, b: np.trunc(a / b),
    "arith.remsi": np.fmod,
    "arith.divui": lambda a, b: np.trunc(a / b),
    "arith.remui": np.fmod,
    "arith.maxui": np.maximum,
    "arith.minui": np.minimum,
}
BITWISE: Mapping[str, Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], npt.NDArray[np.int64]]] = {
    "arith.andi": np.bitwise_and, "arith.ori": np.bitwise_or, "arith.xori": np.bitwise_xor,
    "arith.shli": np.left_shift, "arith.shrsi": np.right_shift,
    "arith.shrui": lambda a, b: np.right_shift(a.view(np.uint64), b.view(np.uint64)).view(np.int64),
}  # fmt: skip
"""Operations on bits; where an operand may be another number, nothing is known of the result."""
UNSIGNED = ("arith.uitofp", "arith.extui", "arith.divui", "arith.remui", "arith.maxui", "arith.minui")
"""Operations that read integers without a sign."""
_COMPARED: Mapping[str, Callable[[npt.NDArray[np.generic], npt.NDArray[np.generic]], npt.NDArray[np.bool_]]] = {
    "eq": np.equal, "ne": np.not_equal, "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal,
}  # fmt: skip


def evaluate(body: Block, wanted: SSAValue, inputs: Mapping[SSAValue, Bounded], slack: Slack = EXACT) -> Bounded:
    """A value of a body, for arrays of elements. Operations after it are not evaluated."""
    values = dict(inputs)
    for op in body.ops:
        if wanted in values:
            break
        if isinstance(op, scf.IfOp):
            values |= _branches(op, values, slack)
        elif op.results and op.results[0] not in values and op.results[0].uses:
            values[op.results[0]] = _contracted(op, values) or _apply(op, [values[v] for v in op.operands], slack)
    return values[wanted]


def _branches(op: scf.IfOp, values: Mapping[SSAValue, Bounded], slack: Slack) -> dict[SSAValue, Bounded]:
    """The results of a branch: where its condition holds those of the first region, else those of the second."""
    yes, no = (
        [evaluate(region.block, value, values, slack) for value in region.block.last_op.operands]
        for region in op.regions if region.block.last_op
    )  # fmt: skip
    condition = values[op.cond]
    return {result: _select(condition, *either) for result, *either in zip(op.results, yes, no, strict=True)}


def evaluate_one(op: Operation, operands: Sequence[Floats]) -> Floats:
    """The value of one operation of a body."""
    return _apply(op, list(map(Bounded.exact, operands)), EXACT).value


def operations(body: Block) -> int:
    """How many operations of a body compute something."""
    return sum(not isinstance(op, YieldOp | WarpYieldOp | arith.ConstantOp) for op in body.ops)


def _contracted(op: Operation, values: Mapping[SSAValue, Bounded]) -> Bounded | None:
    """The interval of an extension whose truncation may be dropped: the rounded and the exact value; else None."""
    if (wide := contracted(op)) is None:
        return None
    exact, narrow = values[wide], values[op.operands[0]]
    return Bounded(narrow.value, np.maximum(narrow.error, distance(narrow.value, *exact.ends)))


def _apply(op: Operation, operands: Sequence[Bounded], slack: Slack) -> Bounded:
    name, kind = op.name, op.results[0].type
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, FloatAttr | IntegerAttr):
        return Bounded.exact(as_elements(np.array(float(op.value.value.data)), kind))
    if name in FUNCTIONS:
        return _function(op, operands[0], slack)
    if name in PERIODIC or name == "math.powf":
        return _of_f64(op, operands, slack)
    if name == "arith.cmpf":
        return _compare_floats(op, *operands)
    if name == "arith.cmpi":
        return _compare_integers(op, *operands)
    if name == "arith.select":
        return _select(*operands)
    if name in BITWISE:
        a, b = (each.value.astype(np.int64) for each in operands)
        if name == "arith.shrui" and (bits := _bits(kind)) < 64:
            a &= 2**bits - 1
        error = np.where(sum(each.error for each in operands) > 0, 1.0 if kind == i1 else np.inf, 0.0)
        return Bounded(as_elements(BITWISE[name](a, b).astype(np.float64), kind), error)
    if name == "arith.trunci":
        return Bounded(rounded(operands[0].value, _dtype(op, kind)), operands[0].error)
    if name in UNSIGNED:
        operands = [_of_unsigned(op, each) for each in operands]
    if name in INTEGER:
        a, b = operands
        error = a.error + b.error
        if name == "arith.muli":
            error = a.error * b.error + a.error * np.abs(b.value) + b.error * np.abs(a.value)
        value = INTEGER[name](a.value, b.value)
        error = error + np.where(np.abs(value) > 2.0**53, np.spacing(value), 0.0)
        return Bounded(rounded(value, _dtype(op, kind)), error)
    if name == "arith.bitcast":
        bits = operands[0].value.astype(_dtype(op, op.operands[0].type)).view(_dtype(op, kind))
        return Bounded(bits.astype(np.float64), np.where(operands[0].error > 0, np.inf, 0.0))
    if name not in _FLOAT:
        raise HostError(f"{place_of(op)}no float64 reference for {name} in an elementwise operation")
    result = _FLOAT[name](*operands)
    approximate = APPROXIMATE_QUOTIENT * _size(result.value) if name == "arith.divf" and is_approximate(op) else 0.0
    exact = name in EXACTLY
    error = result.error + approximate + (0.0 if exact else _rounded_before(op, result.value))
    return _round(result.value, error, _dtype(op, kind), EXACT if exact and name != "arith.truncf" else slack)


def as_elements(values: Floats, kind: Attribute) -> Floats:
    """Values rounded to an element type; those of `index` and of truth are as they are."""
    return rounded(values, DTYPES[str(kind)]) if str(kind) in DTYPES else values


def _dtype(op: Operation, kind: Attribute) -> DType:
    if isinstance(kind, IndexType):
        return np.dtype(np.int64)
    if str(kind) not in DTYPES:
        raise HostError(f"no float64 reference for {op.name} on elements of {kind}")
    return DTYPES[str(kind)]


def _size(value: Floats) -> Floats:
    """Absolute values; 0 for infinities and NaN, which no relative error changes."""
    return np.where(np.isfinite(value), np.abs(value), 0.0)


def _rounded_before(op: Operation, value: Floats) -> Floats | float:
    """What float64, or f32 for subnormal numbers of bf16, may be off by before a result is rounded to its type."""
    kind = str(op.results[0].type)
    twice = np.where(np.abs(value) < TWICE_ROUNDED, TWICE_OFF, 0.0) if kind == "bf16" else 0.0
    return twice + (FLOAT64 * _size(value) if kind == "f64" or op.name == "math.fma" else 0.0)


def _round(value: Floats, error: Floats, dtype: DType, slack: Slack = EXACT) -> Bounded:
    """Values rounded to a type, and the distance to the roundings of all values in their intervals."""
    if dtype.kind in "iu":
        return Bounded(rounded(value, dtype), error)
    if slack is not EXACT and dtype in ROUNDINGS:
        error = error + slack.relative * _size(value) + slack.absolute
    error = error + np.where(error > 0, FLOAT64 * _size(value), 0.0)
    stored = rounded(value, dtype)
    off = distance(stored, rounded(value - error, dtype), rounded(value + error, dtype))
    return Bounded(stored, np.where(np.isfinite(error), off, np.inf))


def _function(op: Operation, x: Bounded, slack: Slack) -> Bounded:
    function, good, approximate = FUNCTIONS[op.name]
    fast = is_approximate(op)
    low, high = x.ends
    if op.name in FROM_ZERO:
        # What is computed of a sum of squares is never below 0.
        low = np.where(x.value >= 0, np.maximum(low, 0.0), low)
    value = function(x.value)
    off = distance(value, function(low), function(high))
    size = _size(value)
    computed = (approximate if fast else good) * (np.maximum(size, 1.0) if fast else size)
    error = off + computed + _rounded_before(op, value)
    return _round(value, error, _dtype(op, op.results[0].type), slack)


def _of_f64(op: Operation, operands: Sequence[Bounded], slack: Slack) -> Bounded:
    """A sine, a cosine, or a power, which grows or falls along each of its operands."""
    if op.name in PERIODIC:
        value = PERIODIC[op.name](operands[0].value)
        off = np.minimum(operands[0].error, 2.0)
    else:
        base, power = operands
        value = np.power(base.value, power.value)
        off = distance(value, *(np.power(x, y) for x in base.ends for y in power.ends))
    error = off + OF_F64 * _size(value) + _rounded_before(op, value)
    return _round(value, error, _dtype(op, op.results[0].type), slack)


def _compare_floats(op: Operation, a: Bounded, b: Bounded) -> Bounded:
    """Compares by a predicate. Ordered predicates (`o`) do not hold for NaN, unordered ones (`u`) do."""
    name = _predicate(op, arith.CMPF_COMPARISON_OPERATIONS)
    ordered = ~(np.isnan(a.value) | np.isnan(b.value))
    if name in ("ord", "uno"):
        return Bounded((ordered == (name == "ord")).astype(np.float64), np.zeros(ordered.shape))
    truth = _compared(op, name, name[1:], a.value, b.value)
    return Bounded((truth & ordered if name.startswith("o") else truth | ~ordered).astype(np.float64), _open(a, b))


def _compare_integers(op: Operation, a: Bounded, b: Bounded) -> Bounded:
    name = _predicate(op, arith.CMPI_COMPARISON_OPERATIONS)
    # without a sign, negative ones are 2^64 more: of any width, for no more than their order is asked for
    x, y = (v.value.astype(np.int64).view(np.uint64) if name.startswith("u") else v.value for v in (a, b))
    return Bounded(_compared(op, name, name[-2:], x, y).astype(np.float64), _open(a, b))


def _predicate(op: Operation, names: Sequence[str]) -> str:
    predicate = op.properties["predicate"]
    return names[predicate.value.data] if isinstance(predicate, IntegerAttr) else ""


def _compared(
    op: Operation, name: str, word: str, x: npt.NDArray[np.generic], y: npt.NDArray[np.generic]
) -> npt.NDArray[np.bool_]:
    if word not in _COMPARED:
        raise HostError(f"no float64 reference for {op.name} {name}")
    return _COMPARED[word](x, y)


def _open(a: Bounded, b: Bounded) -> Floats:
    """Where the errors of the operands leave the result of a comparison open."""
    slack = a.error + b.error
    is_open: Floats = (~(np.abs(a.value - b.value) > slack) & (slack > 0)).astype(np.float64)
    return is_open


def _of_unsigned(op: Operation, x: Bounded) -> Bounded:
    """Integers read without a sign: negative ones are 2^n more, n being their bits."""
    kind = op.operands[0].type
    return Bounded(x.value + 2.0 ** _bits(kind) * (x.value < 0), x.error)


def _bits(kind: Attribute) -> int:
    return kind.bitwidth if isinstance(kind, IntegerType) else 64


def _select(condition: Bounded, yes: Bounded, no: Bounded) -> Bounded:
    value = np.where(condition.value != 0, yes.value, no.value)
    either = np.maximum(distance(value, yes.value) + yes.error, distance(value, no.value) + no.error)
    return Bounded(value, np.where(condition.error > 0, either, np.where(condition.value != 0, yes.error, no.error)))


def _at_corners(compute: Callable[[Floats, Floats], Floats], a: Bounded, b: Bounded) -> Bounded:
    """What is monotonous in both operands: it is farthest off where both are at an end."""
    value = compute(a.value, b.value)
    if not (a.error.any() or b.error.any()):
        return Bounded.exact(value)
    return Bounded(value, distance(value, *(compute(x, y) for x in a.ends for y in b.ends)))


def _divide(a: Bounded, b: Bounded) -> Bounded:
    quotient = _at_corners(np.divide, a, b)
    low, high = b.ends
    open_ = (b.error > 0) & ~((low > 0) | (high < 0))
    return Bounded(quotient.value, np.where(open_, np.inf, quotient.error))


def _copysign(a: Bounded, b: Bounded) -> Bounded:
    value, either = np.copysign(a.value, b.value), (b.error > 0) & (np.abs(b.value) <= b.error)
    return Bounded(value, a.error + np.where(either, 2 * np.abs(value), 0.0))


def _atan2(y: Bounded, x: Bounded) -> Bounded:
    """An angle, off by that of the largest distance from the point; beyond a half turn, by a whole one."""
    value, off, size = np.arctan2(y.value, x.value), np.hypot(y.error, x.error), np.hypot(y.value, x.value)
    beyond = (off > 0) & ((off >= size) | ((np.abs(y.value) <= y.error) & (x.value - x.error < 0)))
    share = np.divide(off, size, out=np.zeros_like(off), where=size > off)
    return Bounded(value, np.where(beyond, 2 * math.pi, np.arcsin(share)) + OF_OTHERS * np.abs(value))


def _multiply_add(a: Bounded, b: Bounded, c: Bounded) -> Bounded:
    return _at_corners(np.add, _at_corners(np.multiply, a, b), c)


_MONOTONOUS: Mapping[str, Callable[[Floats, Floats], Floats]] = {
    "addf": np.add, "subf": np.subtract, "mulf": np.multiply,
    "maximumf": np.maximum, "minimumf": np.minimum, "maxnumf": np.fmax, "minnumf": np.fmin,
}  # fmt: skip
_CONVERSIONS = ("extf", "truncf", "sitofp", "uitofp", "index_cast", "extsi", "extui")


def _truncated(x: Bounded) -> Bounded:
    value = np.trunc(x.value)
    return Bounded(value, distance(value, *map(np.trunc, x.ends)))


_OF_ONE: Mapping[str, Callable[[Bounded], Bounded]] = {
    **{f"arith.{name}": lambda x: x for name in _CONVERSIONS},
    **dict.fromkeys(("arith.fptosi", "arith.fptoui"), _truncated),
    "arith.negf": lambda x: Bounded(-x.value, x.error),
    "math.absf": lambda x: Bounded(np.abs(x.value), x.error),
}

_FLOAT: Mapping[str, Callable[..., Bounded]] = {
    **_OF_ONE,
    **{f"arith.{name}": partial(_at_corners, function) for name, function in _MONOTONOUS.items()},
    "arith.divf": _divide,
    "math.fma": _multiply_add,
    "math.copysign": _copysign,
    "math.atan2": _atan2,
}
"""Operations whose result is rounded to its type."""

EXACTLY = ("arith.negf", "math.absf", "math.copysign", "arith.maximumf", "arith.minimumf", "arith.maxnumf",
           "arith.minnumf", "arith.extf", "arith.truncf", "arith.sitofp", "arith.uitofp")  # fmt: skip
"""Operations whose value float64 holds before it is rounded."""
