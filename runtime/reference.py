"""What a host function means, in float64, and how far from it a result may be.

The function is evaluated as written, before any lowering: constants, `linalg.fill` and `linalg.matmul`. Beside
every value goes a bound on the error of any correct evaluation with the accumulators of the schedule:

    |result - exact| <= (K + 2) u (|C| + |A| |B|) + (K + 2) t + |A| eB + eA |B| + eA eB + eC

then rounded to the output's type. u is 2^-23 for f32 accumulators and 2^-10 for f16 ones, t the
least subnormal; eA, eB, eC are the bounds of operands computed by the function itself (0 for its
arguments). It holds for any order of summation and for tensor cores that cut every term at 24 bits
or more below the largest one, as those of sm_80 and later do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from xdsl.dialects import arith, func
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.dialects.linalg.ops import FillOp, MatmulOp
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap

from ..passes.diagnostics import location_of
from .arrays import Array, DType
from .errors import HostError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Accumulator:
    """How a type of accumulator rounds: `unit` relative to the terms, `tiny` absolute."""

    unit: float
    tiny: float


ACCUMULATORS: Mapping[str, Accumulator] = {
    "f32": Accumulator(2.0**-23, 2.0**-149),
    "f16": Accumulator(2.0**-10, 2.0**-24),
}


@dataclass(frozen=True)
class Reference:
    """An array in float64, a bound on the error of a computed one before it is rounded, and its type."""

    value: Floats
    error: Floats
    dtype: DType

    def interval(self) -> tuple[Floats, Floats]:
        """The least and the greatest value of `dtype` that a correct evaluation may give."""
        return _rounded(self.value - self.error, self.dtype), _rounded(self.value + self.error, self.dtype)

    def stored_error(self) -> Floats:
        """A bound on the error of the array as stored, rounded to its type."""
        low, high = self.interval()
        return np.where(self.error == 0, 0, np.maximum(np.abs(high - self.value), np.abs(self.value - low)))


def _rounded(values: Floats, dtype: DType) -> Floats:
    with np.errstate(over="ignore"):
        return values.astype(dtype).astype(np.float64)


def bound_text(accumulate: str) -> str:
    """The bound for arguments that are exact, as the command states it."""
    exponent = int(np.log2(ACCUMULATORS[accumulate].unit))
    return f"(K + 2) 2^{exponent} (|C| + |A| |B|), rounded to the output's type"


def evaluate(function: func.FuncOp, arguments: Sequence[Array], accumulate: str = "f32") -> list[Reference]:
    """The arguments of `function` as it leaves them, scalars included as arrays of no dimension.

    Raises:
        HostError: naming the first operation that has no meaning here.
    """
    scope: dict[SSAValue, Reference] = {}
    for parameter, array in zip(function.body.block.args, arguments, strict=True):
        value = array.astype(np.float64)
        scope[parameter] = Reference(value, np.zeros_like(value), array.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        for op in function.body.block.ops:
            _evaluate(op, scope, ACCUMULATORS[accumulate])
    return [scope[parameter] for parameter in function.body.block.args]


def _evaluate(op: Operation, scope: dict[SSAValue, Reference], accumulator: Accumulator) -> None:
    match op:
        case arith.ConstantOp(value=FloatAttr() | IntegerAttr() as constant):
            value = np.array(float(constant.value.data))
            scope[op.result] = Reference(value, np.zeros_like(value), np.dtype(np.float64))
        case FillOp():
            _store(op, _fill(op, scope), scope)
        case MatmulOp():
            _store(op, _matmul(op, scope, accumulator), scope)
        case func.ReturnOp() if all(isinstance(v, BlockArgument) for v in op.operands):
            pass
        case _:
            place = location_of(op)
            raise HostError(
                f"{f'{place}: ' if place else ''}no float64 reference for {op.name}; "
                "--check knows constants, linalg.fill and linalg.matmul on memrefs"
            )


def _store(op: FillOp | MatmulOp, result: Reference, scope: dict[SSAValue, Reference]) -> None:
    scope[op.outputs[0] if not op.results else op.results[0]] = result


def _fill(op: FillOp, scope: dict[SSAValue, Reference]) -> Reference:
    old = scope[op.outputs[0]]
    value = np.full_like(old.value, _rounded(scope[op.inputs[0]].value, old.dtype))
    return Reference(value, np.zeros_like(value), old.dtype)


def _matmul(op: MatmulOp, scope: dict[SSAValue, Reference], accumulator: Accumulator) -> Reference:
    maps = [attribute.data for attribute in op.get_indexing_maps()]
    a, b = (
        _operand(op, scope[v], map_, axes) for v, map_, axes in zip(op.inputs, maps, ((0, 2), (2, 1)), strict=False)
    )
    c = scope[op.outputs[0]]
    if _dimensions(op, maps[2]) != (0, 1):
        raise HostError(f"no float64 reference for {op.name} with a transposed C")
    terms = a.value.shape[1] + 2
    magnitude = np.abs(c.value) + np.abs(a.value) @ np.abs(b.value)
    error = terms * (accumulator.unit * magnitude + accumulator.tiny) + c.stored_error()
    if a.error.any() or b.error.any():
        error_a, error_b = a.stored_error(), b.stored_error()
        error = error + np.abs(a.value) @ error_b + error_a @ np.abs(b.value) + error_a @ error_b
    return Reference(c.value + a.value @ b.value, error, c.dtype)


def _operand(op: Operation, array: Reference, map_: AffineMap, axes: tuple[int, int]) -> Reference:
    found = _dimensions(op, map_)
    if found == axes:
        return array
    if found == axes[::-1]:
        return Reference(array.value.T, array.error.T, array.dtype)
    raise HostError(f"no float64 reference for {op.name} with the indexing map {map_}")


def _dimensions(op: Operation, map_: AffineMap) -> tuple[int, ...]:
    if not all(isinstance(e, AffineDimExpr) for e in map_.results):
        raise HostError(f"no float64 reference for {op.name} with the indexing map {map_}")
    return tuple(e.position for e in map_.results if isinstance(e, AffineDimExpr))


@dataclass(frozen=True)
class Comparison:
    """How a result differs from its reference.

    `relative` is against the exact value, where that is not zero. `share` is the largest part of its
    bound that an element's error uses; `outside` counts elements beyond it; `worst` is the index of
    the one that uses most.
    """

    absolute: float
    relative: float
    share: float
    outside: int
    worst: tuple[int, ...]
    got: float
    expected: float

    @property
    def ok(self) -> bool:
        return self.outside == 0


def compare(reference: Reference, result: Array) -> Comparison:
    """Hold a computed array against its reference. NaN and infinities must be where the reference has them, or
    where rounding to the output's type overflows."""
    got, exact = result.astype(np.float64), reference.value
    low, high = reference.interval()
    inside = ((got >= low) & (got <= high)) | (np.isnan(got) & np.isnan(exact))
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.where(got == exact, 0.0, np.abs(got - exact))
        allowed = np.maximum(high - exact, exact - low)
        share = np.where(inside & ~(error > 0), 0.0, error / allowed)
        relative = np.where(exact != 0, error / np.abs(exact), 0.0)
    rank = np.where(inside, np.nan_to_num(share, nan=0.0, posinf=0.0), np.inf)
    worst = tuple(int(i) for i in np.unravel_index(int(rank.argmax()), rank.shape)) if rank.size else ()
    return Comparison(
        absolute=_largest(error),
        relative=_largest(relative),
        share=_largest(share),
        outside=int((~inside).sum()),
        worst=worst,
        got=float(got[worst]) if rank.size else 0.0,
        expected=float(exact[worst]) if rank.size else 0.0,
    )


def _largest(values: Floats) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.max()) if finite.size else 0.0


def poison(dtype: DType) -> object:
    """A value no correct kernel leaves behind: NaN, or the least integer."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max
    return np.array(np.nan).astype(dtype)[()]
