"""What a host function means, in float64, and how far from it a result may be.

The function is evaluated as written, before any lowering: constants, `linalg.fill`, every operation of `linalg` whose
body adds products, by its indexing maps, elementwise ones (`elements.py` has their bounds), and those that reduce
(`loops.py`). Beside every value goes a bound on the error of any correct evaluation; of products with the accumulators
of the schedule:

    |result - exact| <= (K + 2) u (|C| + |A| |B|) + (K + 2) t + |A| eB + eA |B| + eA eB + eC

then rounded to the output's type. u is 2^-23 for f32 accumulators and 2^-10 for f16 ones, t the
least subnormal; eA, eB, eC are the bounds of operands computed by the function itself (0 for its
arguments). It holds for any order of summation and for tensor cores that cut every term at 24 bits
or more below the largest one, as those of sm_80 and later do. Of f64 u is 2^-52; where f32 is multiplied as tf32, eA
and eB are 2^-10 |A| and 2^-10 |B|. Where the schedule lets the instruction add up all products of 8-bit floats, u is
2^-13; where f32 registers add the sums of its K tiles, (T + 2) 2^-13 |A| |B| is added for tiles of T. Integers are
exact, modulo their width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.lib.stride_tricks import as_strided
from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import FloatAttr, IndexType, IntegerAttr, i1
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import FillOp, QuantizedMatmulOp
from xdsl.ir import BlockArgument, Operation, Region, SSAValue

from ...dialect.isa.targets import target as target_row
from ...dialect.linalg import METADATA
from ...dialect.linalg.body import Factor, Weighted, weighted
from ...dialect.schedule import Schedule
from ...dialect.warp.disjoint import DisjointOp
from ...dialect.warp.divisible import IsDivisibleOp
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.operand_forms import OperandForm
from ...dialect.warp.pointwise import PointwiseOp
from ...passes.linalg.views import VIEWING, View, Viewing, seen
from ..arguments.dtypes import DTYPES, DType, Floats, integer_limits, rounded
from ..constants import elements_of
from ..errors import HostError
from ..numerics.array import Array
from ..plan import index_result, place_of
from .history import bound_text
from .loops import elementwise, is_elementwise, reduced, reduction_of
from .matmul import evaluate_matmul
from .product import ACCUMULATORS, FP8_UNIT, TF32_UNIT, Accumulator, Reference, letters_of, product_of
from .sparse import expanded
from .windows import along_loops

FP8_DEPTHS, CUT_SM = (32, 64), 89
"""K of the instructions for 8-bit floats, dense and sparse; the target whose `mma` adds up short sums of them, as
`wgmma` does (docs/arithmetic.md)."""


def accumulator_of(schedules: Sequence[Schedule | None], target: str) -> Accumulator:
    """The least exact accumulator of the launches; f32 where none says."""
    used = [schedule for schedule in schedules if schedule is not None]
    kinds = {schedule.arithmetic.accumulate for schedule in used}
    kind = next((kind for kind in ("f16", "f32", "f64", "s32") if kind in kinds), "f32")
    return replace(ACCUMULATORS[kind], short=max((_short(schedule, target) for schedule in used), default=0))


def _short(schedule: Schedule, target: str) -> float:
    """Of how many products of 8-bit floats a schedule lets instructions add up short sums."""
    tile = schedule.tile
    if tile.mma.k not in FP8_DEPTHS:
        return 0
    if tile.together > 1:
        return tile.cta[2] if schedule.arithmetic.promote != "none" else math.inf
    return math.inf if target_row(target).sm == CUT_SM and schedule.operands.fp8_as == "none" else 0


def bound_of(reference: Reference, accumulator: Accumulator) -> str:
    """What a result is held against, in words, for arguments that are exact."""
    return bound_text(reference.history, accumulator.unit, TF32_UNIT, FP8_UNIT)


def evaluate(
    function: func.FuncOp, arguments: Sequence[Array], accumulator: Accumulator | None = None, *, tf32: bool = False
) -> list[Reference]:
    """The arguments of `function` as it leaves them, scalars included as arrays of no dimension, for an accumulator, or
    else for f32.

    `tf32` says that f32 operands may be multiplied as tf32.

    Raises:
        HostError: naming the first operation that has no meaning here.
    """
    scope: dict[SSAValue, Reference] = {}
    for parameter, array in zip(function.body.block.args, arguments, strict=True):
        value = array.astype(np.float64)
        scope[parameter] = Reference(value, np.zeros_like(value), array.dtype)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        for op in function.body.block.ops:
            _evaluate(op, scope, replace(accumulator or ACCUMULATORS["f32"], tf32=tf32))
    return [scope[parameter] for parameter in function.body.block.args]


def _evaluate(op: Operation, scope: dict[SSAValue, Reference], accumulator: Accumulator) -> None:
    match op:
        case arith.ConstantOp(value=FloatAttr() | IntegerAttr() as constant):
            value = np.array(float(constant.value.data))
            scope[op.result] = Reference(value, np.zeros_like(value), np.dtype(np.float64))
        case FillOp():
            _store(op, _fill(op, scope), scope)
        case QuantizedMatmulOp():
            map_a, map_b, _, _, map_c = _maps(op)
            a, b, zero_a, zero_b = (scope[v].stored() for v in op.inputs)
            shifted = (replace(a, value=a.value - zero_a.value), replace(b, value=b.value - zero_b.value))
            _store(op, product_of(op, shifted, scope[op.outputs[0]], [map_a, map_b, map_c], accumulator), scope)
        case LinalgStructuredOperation() if body := weighted(op.body.block, _zeros(op, scope)):
            found = body.factors
            read = [_read(_operand(op, factor.argument, scope), factor) for factor in found]
            weight = _weight(body, scope)
            read[0] = replace(read[0], value=read[0].value * weight, error=read[0].error * abs(weight))
            if body.converted:
                accumulator = replace(accumulator, unit=max(accumulator.unit, ACCUMULATORS["f32"].unit))
            maps = [attribute.data for attribute in op.get_indexing_maps()]
            seen_along = [along_loops(operand, maps[f.argument], maps, op, scope) for operand, f in zip(
                read, found, strict=True)]  # fmt: skip
            where = [*(names for _, names in seen_along), letters_of(op, maps[-1])]
            inputs = [operand for operand, _ in seen_along]
            _store(op, product_of(op, inputs, scope[op.outputs[0]], where, accumulator), scope)
        case LinalgStructuredOperation() if is_elementwise(op):
            for at, result in enumerate(elementwise(op, scope)):
                _store(op, result, scope, at)
        case LinalgStructuredOperation() if (reduction := reduction_of(op)) is not None:
            _store(op, reduced(op, reduction, scope), scope)
        case MatmulOp():
            result = evaluate_matmul(op, scope, accumulator)
            _put(result, scope[op.d])
        case memref.AllocOp() if str(op.memref.type.element_type) in DTYPES:
            kind, given = DTYPES[str(op.memref.type.element_type)], iter(op.dynamic_sizes)
            shape = [int(scope[next(given)].value) if n < 0 else n for n in op.memref.type.get_shape()]
            value = np.full(shape, np.nan if kind.kind not in "iu" else 0.0)
            scope[op.memref] = Reference(value, np.zeros_like(value), kind)
        case memref.GetGlobalOp():
            found = elements_of(op)
            scope[op.memref] = Reference(found.astype(np.float64), np.zeros(found.shape), found.dtype)
        case memref.DimOp():
            value = np.array(float(scope[op.source].value.shape[int(scope[op.index].value)]))
            scope[op.result] = Reference(value, np.zeros_like(value), np.dtype(np.float64))
        case _ if isinstance(op, VIEWING):
            _view(op, scope)
        case IsDivisibleOp():
            scope[op.answer] = _number(1)  # both of what it chooses between compute the same
        case memref.DeallocOp() | DisjointOp() | OperandForm() | PointwiseOp() | scf.YieldOp():
            pass
        case scf.ForOp() if not op.iter_args:
            start, end, step = (int(scope[value].value) for value in (op.lb, op.ub, op.step))
            for number in range(start, end, step):
                scope[op.body.block.args[0]] = _number(number)
                _evaluate_all(op.body, scope, accumulator)
        case scf.IfOp() if not op.results:
            taken = op.true_region if scope[op.cond].value else op.false_region
            _evaluate_all(taken, scope, accumulator)
        case _ if len(op.operands) == 2 and all(v.type in (IndexType(), i1) for v in op.operands):
            a, b = (int(scope[value].value) for value in op.operands)
            scope[op.results[0]] = _number(index_result(op, a, b))
        case func.ReturnOp() if all(isinstance(v, BlockArgument) for v in op.operands):
            pass
        case _:
            raise HostError(
                f"{place_of(op)}no float64 reference for {op.name}; "
                "--check knows constants, linalg.fill, warp.matmul, and operations of linalg that add products, "
                "reduce, or are elementwise"
            )


def _weight(body: Weighted, scope: Mapping[SSAValue, Reference]) -> float:
    """What a product is multiplied with before it is added."""
    weight = -1.0 if body.negated else 1.0
    for value in body.weights:
        constant = value.owner.value if isinstance(value.owner, arith.ConstantOp) else None
        known = constant.value.data if isinstance(constant, FloatAttr | IntegerAttr) else scope[value].value
        weight *= float(known)
    return weight


def _zeros(op: LinalgStructuredOperation, scope: Mapping[SSAValue, Reference]) -> list[int]:
    """The inputs that are the number 0."""
    return [i for i, value in enumerate(op.inputs) if not scope[value].value.ndim and not scope[value].value]


def _evaluate_all(region: Region, scope: dict[SSAValue, Reference], accumulator: Accumulator) -> None:
    for op in region.block.ops if region.blocks else ():
        _evaluate(op, scope, accumulator)


def _number(value: int) -> Reference:
    found = np.array(float(value))
    return Reference(found, np.zeros_like(found), np.dtype(np.float64))


def _store(op: LinalgStructuredOperation, result: Reference, scope: dict[SSAValue, Reference], at: int = 0) -> None:
    if op.results:
        scope[op.results[at]] = result
        return
    # In place, for others may see the same memory.
    _put(result, scope[op.outputs[at]])


def _put(result: Reference, held: Reference) -> None:
    """Writes a result into memory."""
    held.value[...], held.error[...] = result.value, result.error
    held.history.become(result.history)


def _view(op: Viewing, scope: dict[SSAValue, Reference]) -> None:
    """The same arrays seen otherwise."""
    source = scope[op.operands[0]]

    def array(of: Floats) -> Floats:
        steps = tuple(stride // of.itemsize for stride in of.strides)
        view = seen(op, View(0, of.shape, steps), lambda value: int(scope[value].value))
        reach = view.offset + 1 + sum((n - 1) * s for n, s in zip(view.shape, view.strides, strict=True))
        line = as_strided(of, (max(reach, view.offset),), (of.itemsize,))[view.offset :]
        return as_strided(line, view.shape, [stride * of.itemsize for stride in view.strides])

    scope[op.results[0]] = replace(source, value=array(source.value), error=array(source.error))


def _fill(op: FillOp, scope: dict[SSAValue, Reference]) -> Reference:
    old = scope[op.outputs[0]]
    value = np.full_like(old.value, rounded(scope[op.inputs[0]].value, old.dtype))
    return Reference(value, np.zeros_like(value), old.dtype)


def _operand(op: LinalgStructuredOperation, number: int, scope: Mapping[SSAValue, Reference]) -> Reference:
    """An input; of a sparse A, the matrix that it stands for."""
    found, words = scope[op.inputs[number]].stored(), op.attributes.get(METADATA)
    if number or not isinstance(words, IntegerAttr):
        return found
    function = op.parent_op()
    if not isinstance(function, func.FuncOp):
        return found
    return expanded(op, found, scope[function.body.block.args[words.value.data]])


def _read(operand: Reference, factor: Factor) -> Reference:
    """An operand as the body reads it: integers that are extended with zeros are unsigned."""
    limits = integer_limits(operand.dtype)
    if factor.unsigned and limits is not None and limits[0] < 0:
        span = limits[1] - limits[0] + 1.0
        return replace(operand, value=np.where(operand.value < 0, operand.value + span, operand.value))
    return operand


def _maps(op: LinalgStructuredOperation) -> list[str]:
    """The operation's indexing maps, each as a string with a letter for the loop of each dimension."""
    return [letters_of(op, attribute.data) for attribute in op.get_indexing_maps()]


@dataclass(frozen=True)
class Comparison:
    """How a result differs from its reference.

    `relative` is against the largest exact value. `share` is the largest part of its bound that an element's error
    uses; `outside` counts elements beyond it; `worst` is the index of the one that uses most, and `allowed` its bound.
    `unbounded` counts elements whose bound is infinite, so that any number would be within it: they are not checked.
    """

    absolute: float
    relative: float
    share: float
    outside: int
    worst: tuple[int, ...]
    got: float
    expected: float
    allowed: float
    unbounded: int = 0

    @property
    def ok(self) -> bool:
        return self.outside == 0 and self.unbounded == 0


def compare(reference: Reference, result: Array) -> Comparison:
    """Hold a computed array against its reference. NaN and infinities must be where the reference has them, or
    where rounding to the output's type overflows."""
    got, exact, unbounded = result.astype(np.float64), reference.value, ~np.isfinite(reference.error)
    with np.errstate(invalid="ignore"):
        low, high = reference.interval()
    inside = ((got >= low) & (got <= high)) | (got == exact) | (np.isnan(got) & np.isnan(exact)) | unbounded
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.where(got == exact, 0.0, np.abs(got - exact))
        allowed = np.maximum(high - exact, exact - low)
        share = np.where(inside & ~(error > 0), 0.0, error / allowed)
    rank = np.where(inside, np.nan_to_num(share, nan=0.0, posinf=0.0), np.inf)
    worst = tuple(int(i) for i in np.unravel_index(int(rank.argmax()), rank.shape)) if rank.size else ()
    return Comparison(
        absolute=_largest(error),
        relative=_largest(error) / (_largest(np.abs(exact)) or 1.0),
        share=_largest(share),
        outside=int((~inside).sum()),
        worst=worst,
        got=float(got[worst]) if rank.size else 0.0,
        expected=float(exact[worst]) if rank.size else 0.0,
        allowed=float(allowed[worst]) if rank.size else 0.0,
        unbounded=int(unbounded.sum()),
    )


def _largest(values: Floats) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.max()) if finite.size else 0.0


def poison(dtype: DType) -> object:
    """A value no correct kernel leaves behind: NaN, or the least number of a type that has none."""
    if (limits := integer_limits(dtype)) is not None:
        least, greatest = limits
        return np.array(least or greatest).astype(dtype)[()]
    value = np.array(np.nan).astype(dtype)
    return value[()] if np.isnan(value) else np.array(-math.inf).astype(dtype)[()]
