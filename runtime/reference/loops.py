"""Elementwise operations and reductions of `linalg` in float64, and operands along windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.lib.stride_tricks import as_strided
from xdsl.dialects import memref
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.attrs import IteratorType
from xdsl.dialects.linalg.ops import IndexOp, YieldOp
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind, AffineConstantExpr, AffineDimExpr, AffineMap

from ...dialect.mlir.affine import loops_of, steps_of, windows
from ...passes.linalg.elementwise import Elementwise
from ...passes.linalg.fuse_weights import dequantised
from ..arguments.dtypes import DTYPES, DType, Floats, rounded
from ..base.errors import HostError
from .elements import EXACT, Bounded, Slack, bounded, evaluate, evaluate_body, operations
from .product import ROUNDINGS, History, Reference, letters_of

# Operands of a product along its loops, where dimensions run along sums of loops, as those of a convolution do.


def along_loops(
    operand: Reference,
    map_: AffineMap,
    maps: Sequence[AffineMap],
    op: LinalgStructuredOperation,
    scope: Mapping[SSAValue, Reference],
) -> tuple[Reference, str]:
    """An operand with a dimension for each loop, and a letter for each; `maps` are those of all operands.

    Raises:
        HostError: for dimensions that run along anything but sums of loops.
    """
    found = loops_of(map_)
    if -1 not in found and len(set(found)) == len(found):
        return operand, letters_of(op, map_)
    forms, sizes = windows(map_), dict[int, int]()
    if forms is None:
        raise HostError(f"no float64 reference for {op.name} with the indexing map {map_}")
    for value, other in zip(op.operands, maps, strict=True):
        sizes |= {
            loop: size for loop, size in zip(loops_of(other), scope[value].value.shape, strict=False) if loop >= 0
        }
    used = sorted({loop for by, _ in forms for loop in by})

    def window(array: Floats) -> Floats:
        steps, first = steps_of(map_, array.strides)
        return as_strided(_from(array, first or 0), [sizes[loop] for loop in used], [steps[loop] or 0 for loop in used])

    seen = replace(operand, value=window(operand.value), error=window(operand.error))
    return seen, "".join(chr(ord("a") + loop) for loop in used)


def _from(array: Floats, first: int) -> Floats:
    """The memory of an array from a number of bytes on."""
    return as_strided(array, (1 + first // array.itemsize,), (array.itemsize,))[first // array.itemsize :]


# Elementwise operations of `linalg`, and those that reduce along some loops, in float64.
#
# Every operand gets a dimension for each loop. A sum of n terms in any order, with the roundings u of its type, or of
# f32 if that is wider, is off by
#
#     sum of the errors of the terms + (n + 1) u (|C| + sum of |terms|)
#
# a product of n factors by the same share of all factors' largest absolute values, a maximum or minimum by the largest
# error of a term.

UNITS: Mapping[DType, float] = {
    DTYPES["f64"]: 2.0**-52,
    DTYPES["f32"]: 2.0**-23,
    DTYPES["f16"]: 2.0**-23,
    DTYPES["bf16"]: 2.0**-23,
}
"""The roundings of sums and products along loops, by type: those of 16 bits are made in f32 and rounded once."""

APPROXIMATE = Slack(2.0**-16, 2.0**-126)
"""How far off an element may be that rows were reduced for, before it is rounded to 16 bits. What is smaller in f32
than the second may be taken for 0 on the way to it."""

EXTREMES: Mapping[str, Callable[..., Floats]] = {
    "arith.maximumf": np.maximum.reduce,
    "arith.maxnumf": np.fmax.reduce,
    "arith.minimumf": np.minimum.reduce,
    "arith.minnumf": np.fmin.reduce,
    "arith.maxsi": np.maximum.reduce,
    "arith.minsi": np.minimum.reduce,
}
SUMS = ("arith.addf", "arith.addi")
SUBTRACTED = "arith.subf"
PRODUCTS = ("arith.mulf", "arith.muli")


@dataclass(frozen=True)
class Combination:
    """A body that combines one value with the output: by which operation, and which value."""

    by: str
    value: SSAValue


def is_elementwise(op: LinalgStructuredOperation) -> bool:
    """Whether each element of every output comes from one element of each input."""
    loops = list(range(op.get_num_loops()))
    parallel = all(kind.data == IteratorType.PARALLEL for kind in op.get_iterator_types())
    return parallel and all(sorted(_output_loops(op, at)) == loops for at in range(len(op.outputs)))


def reduction_of(op: LinalgStructuredOperation) -> Combination | None:
    """How an operation reduces along the loops that its only output does not run along; None if it does not."""
    last = op.body.block.last_op
    loops = _output_loops(op)
    kinds = [kind.data for kind in op.get_iterator_types()]
    kept = [i for i, kind in enumerate(kinds) if kind == IteratorType.PARALLEL]
    if len(op.outputs) != 1 or sorted(loops) != kept or not isinstance(last, YieldOp) or len(last.operands) != 1:
        return None
    combined, old = last.operands[0].owner, op.body.block.args[-1]
    if not isinstance(combined, Operation) or combined.name not in (*EXTREMES, *SUMS, *PRODUCTS, SUBTRACTED):
        return None
    if combined.name == SUBTRACTED and combined.operands[0] is not old:
        return None
    others = [value for value in combined.operands if value is not old]
    return Combination(combined.name, others[0]) if len(others) == 1 and old.uses.get_length() == 1 else None


def elementwise(op: LinalgStructuredOperation, scope: Mapping[SSAValue, Reference]) -> list[Reference]:
    """What an elementwise operation leaves in each of its outputs."""
    sizes = _sizes(op, scope)
    inputs = _inputs(op, scope, sizes)
    history = _history(op, scope, History(elementwise=operations(op.body.block)))
    results: list[Reference] = []
    for at, output in enumerate(op.outputs):
        dtype, order = scope[output].dtype, _output_loops(op, at)
        slack = APPROXIMATE if history.reductions and dtype in ROUNDINGS else EXACT
        found = evaluate_body(op.body.block, inputs, at, slack)
        value, error = (np.broadcast_to(array, sizes).transpose(order).copy() for array in (found.value, found.error))
        error = error + _left_unrounded(op, value, dtype)
        results.append(Reference(value, error, dtype, history))
    return results


def _left_unrounded(op: LinalgStructuredOperation, value: Floats, dtype: DType) -> Floats | float:
    """What the roundings of integers times scales change, for a product that may multiply its sums with the scales
    (`docs/narrow.md`)."""
    if dtype not in ROUNDINGS or not isinstance(op.outputs[0].owner, memref.AllocOp):
        return 0.0
    how = dequantised(Elementwise(op, (*op.inputs, *op.outputs), (), ()))
    if how is None or not (how.scales or how.factors or how.objection):
        return 0.0
    unit, least = ROUNDINGS[dtype]
    return operations(op.body.block) * (unit * np.abs(value) + least)


def reduced(op: LinalgStructuredOperation, how: Combination, scope: Mapping[SSAValue, Reference]) -> Reference:
    """What an operation that reduces leaves in its output."""
    out, order, sizes = scope[op.outputs[0]], _output_loops(op), _sizes(op, scope)
    found = evaluate(op.body.block, how.value, _inputs(op, scope, sizes))
    axes = tuple(loop for loop in range(len(sizes)) if loop not in order)
    value, error = (np.broadcast_to(array, sizes) for array in (found.value, found.error))
    terms = Bounded(*(_in_order(array, axes, order) for array in (value, error)))
    result = _combined(how.by, bounded(out), terms, _unit(out.dtype))
    if out.dtype.kind in "iu":
        result = Bounded(rounded(result.value, out.dtype), result.error)
    history = History(elementwise=operations(op.body.block) - 1, reductions=1)
    return Reference(result.value, result.error, out.dtype, _history(op, scope, history))


def _in_order(array: Floats, axes: tuple[int, ...], order: Sequence[int]) -> Floats:
    """An array with the dimensions of the output first, and one for all that is reduced."""
    moved: Floats = array.transpose([*order, *axes])
    return moved.reshape([*moved.shape[: len(order)], math.prod(moved.shape[len(order) :])])


def _combined(by: str, start: Bounded, terms: Bounded, unit: float) -> Bounded:
    """All terms along the last dimension with what was there before."""
    added = -terms.value if by == SUBTRACTED else terms.value
    value = np.concatenate([start.value[..., None], added], axis=-1)
    error = np.concatenate([start.error[..., None], terms.error], axis=-1)
    count = value.shape[-1]
    if by in EXTREMES:
        return Bounded(EXTREMES[by](value, axis=-1), error.max(axis=-1))
    if by in (*SUMS, SUBTRACTED):
        total = value.sum(axis=-1)
        off = error.sum(axis=-1) + count * unit * np.abs(value).sum(axis=-1)
    else:
        total = value.prod(axis=-1)
        largest = (np.abs(value) + error).prod(axis=-1)
        off = largest - np.abs(total) + count * unit * largest
    return Bounded(total, np.where(np.isinf(error).any(axis=-1), np.inf, np.where(np.isfinite(total), off, 0.0)))


def _unit(dtype: DType) -> float:
    return UNITS.get(dtype, 0.0)


def _history(op: LinalgStructuredOperation, scope: Mapping[SSAValue, Reference], own: History) -> History:
    read = (value for value, argument in zip(op.operands, op.body.block.args, strict=True) if argument.uses)
    return own.after(*(scope[value].history for value in read))


def _inputs(
    op: LinalgStructuredOperation, scope: Mapping[SSAValue, Reference], sizes: Sequence[int]
) -> dict[SSAValue, Bounded]:
    """What a body reads: numbers from outside, elements of operands, and the numbers of loops."""
    inputs: dict[SSAValue, Bounded] = {value: bounded(found) for value, found in scope.items() if found.value.ndim == 0}
    maps = [attribute.data for attribute in op.get_indexing_maps()]
    for argument, value, map_ in zip(op.body.block.args, op.operands, maps, strict=True):
        found = bounded(scope[value])
        both = (_along_loops(op, array, map_, sizes) for array in (found.value, found.error))
        inputs[argument] = Bounded(*both)
    for index in op.body.block.ops:
        if isinstance(index, IndexOp):
            shape = [-1 if loop == index.dim.value.data else 1 for loop in range(len(sizes))]
            number = np.arange(sizes[index.dim.value.data], dtype=np.float64).reshape(shape)
            inputs[index.result] = Bounded(number, np.zeros_like(number))
    return inputs


def _sizes(op: LinalgStructuredOperation, scope: Mapping[SSAValue, Reference]) -> list[int]:
    """The size of each loop."""
    sizes = [1] * op.get_num_loops()
    for value, map_ in zip(op.operands, (attribute.data for attribute in op.get_indexing_maps()), strict=True):
        for expression, size in zip(map_.results, scope[value].value.shape, strict=True):
            if isinstance(expression, AffineDimExpr):
                sizes[expression.position] = size
    return sizes


def _output_loops(op: LinalgStructuredOperation, at: int = 0) -> list[int]:
    """The loops that the dimensions of an output run along; -1 for anything else."""
    map_ = list(op.get_indexing_maps())[len(op.inputs) + at].data
    return [e.position if isinstance(e, AffineDimExpr) else -1 for e in map_.results]


def _repeated(array: Floats, map_: AffineMap, sizes: Sequence[int]) -> tuple[Floats, AffineMap]:
    """An operand with as many elements along a dimension as the loop has turns that its map divides by a number."""
    results = list(map_.results)
    for axis, expression in enumerate(results):
        if not isinstance(expression, AffineBinaryOpExpr) or expression.kind is not AffineBinaryOpKind.FloorDiv:
            continue
        loop, by = expression.lhs, expression.rhs
        if isinstance(loop, AffineDimExpr) and isinstance(by, AffineConstantExpr):
            array, results[axis] = np.repeat(array, by.value, axis).take(range(sizes[loop.position]), axis), loop
    return array, AffineMap(map_.num_dims, 0, tuple(results))


def _along_loops(op: Operation, array: Floats, map_: AffineMap, sizes: Sequence[int]) -> Floats:
    """An operand with a dimension for each loop, in order; of size 1 for those that it does not run along."""
    array, map_ = _repeated(array, map_, sizes)
    fixed = [isinstance(e, AffineConstantExpr) and e.value == 0 for e in map_.results]
    array = array[tuple(0 if zero else slice(None) for zero in fixed)]
    letters = letters_of(
        op, AffineMap(map_.num_dims, 0, tuple(e for e, zero in zip(map_.results, fixed, strict=True) if not zero))
    )
    where = [slice(None) if chr(ord("a") + loop) in letters else None for loop in range(len(sizes))]
    ordered: Floats = array.transpose([letters.index(letter) for letter in sorted(letters)])
    return ordered[tuple(where)]
