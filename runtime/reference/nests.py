"""Nests of loops in float64: elementwise operations, reductions, and sums of products."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided
from xdsl.dialects import arith, func, memref
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, IntegerType
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.math import FmaOp
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap

from ...dialect.mlir.affine import (
    FIXED,
    Combination,
    Factor,
    Nest,
    NestAccess,
    Weighted,
    is_plain,
    may_scale_sums,
    steps_of,
    weighted,
    windows,
)
from ...dialect.mlir.contraction import METADATA
from ..arguments.arrays import DTYPES, DType, integer_limits
from ..numerics.floats import Floats
from .elements import EXACT, Bounded, Slack, bounded, evaluate, operations
from .product import ACCUMULATORS, ROUNDINGS, Accumulator, History, Reference, expanded, product_of, rounded

Arrays: TypeAlias = Mapping[SSAValue, Reference]
"""The arrays that values stand for."""

# Operands along loops.


def sizes_of(nest: Nest, scope: Arrays) -> list[int]:
    """The size of each loop."""
    sizes = [1] * nest.loops
    for access in nest.accesses:
        for loop, size in zip(access.loops, scope[access.value].value.shape, strict=True):
            if loop != FIXED:
                sizes[loop] = size
    return sizes


def along(array: Floats, map_: AffineMap, sizes: Sequence[int]) -> tuple[Floats, list[int]]:
    """An array with a dimension for each loop that its map uses, and these loops, in order."""
    loops = sorted(map_.used_dims())
    lengths = [sizes[loop] for loop in loops]
    if windows(map_) is None:
        numbers: Any = np.ogrid[tuple(slice(size) for size in sizes)]
        return array[map_.eval(numbers, [])].reshape(lengths), loops
    steps, first = steps_of(map_, array.strides)
    start = (first or 0) // array.itemsize
    memory = as_strided(array, (1 + start,), (array.itemsize,))[start:]
    return as_strided(memory, lengths, [steps[loop] or 0 for loop in loops]), loops


def along_all(array: Floats, map_: AffineMap, sizes: Sequence[int]) -> Floats:
    """An array with a dimension for each loop. Loops that its map does not use get size 1."""
    array, loops = along(array, map_, sizes)
    return array[tuple(slice(None) if loop in loops else None for loop in range(len(sizes)))]


def letters(loops: Sequence[int]) -> str:
    """A letter for each loop."""
    return "".join(chr(ord("a") + loop) for loop in loops)


# Elementwise operations, and those that reduce along some loops.
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
COMBINED = (*EXTREMES, *SUMS, *PRODUCTS, SUBTRACTED)


def evaluate_nest(op: LinalgStructuredOperation, scope: Arrays, accumulator: Accumulator) -> list[Reference] | None:
    """What an operation leaves in each of its outputs; None if it has no meaning here."""
    nest = Nest.of(op)
    zeros = [i for i, value in enumerate(op.inputs) if not scope[value].value.ndim and not scope[value].value]
    if (product := weighted(nest.body, zeros)) and is_plain(nest.maps[-1]):
        return [_multiplied(op, nest, product, scope, accumulator)]
    if nest.is_elementwise:
        return elementwise(nest, scope)
    if (reduction := nest.combination) is not None and _reduces(nest, reduction):
        return [_reduced(nest, reduction, scope)]
    return _in_turns(nest, scope) if all(is_plain(access.map) for access in nest.writes) else None


def elementwise(nest: Nest, scope: Arrays) -> list[Reference]:
    """What an elementwise operation leaves in each of its outputs."""
    sizes = sizes_of(nest, scope)
    inputs = _inputs(nest, scope, sizes)
    history = _history(nest, scope, History(elementwise=operations(nest.body)))
    results: list[Reference] = []
    for written, value in zip(nest.writes, nest.yielded, strict=True):
        dtype = scope[written.value].dtype
        slack = APPROXIMATE if history.reductions and dtype in ROUNDINGS else EXACT
        made = evaluate(nest.body, value, inputs, slack)
        elements, error = (_in_order(array, sizes, written.loops)[..., 0].copy() for array in (made.value, made.error))
        error = error + _left_unrounded(nest, elements, dtype)
        results.append(Reference(elements, error, dtype, history))
    return results


def _left_unrounded(nest: Nest, value: Floats, dtype: DType) -> Floats | float:
    """The effect of omitted roundings of integers times scales, for products that may multiply their sums by the scales
    instead, as flags allow (`docs/narrow.md`)."""
    if dtype not in ROUNDINGS or not isinstance(nest.writes[0].value.owner, memref.AllocOp):
        return 0.0
    kinds = [access.element.type for access in nest.reads]
    narrow = any(isinstance(kind, IntegerType) and kind.bitwidth in (4, 8) for kind in kinds)
    unrounded = sum(map(may_scale_sums, nest.body.ops))
    if not narrow or not unrounded:
        return 0.0
    unit, least = ROUNDINGS[dtype]
    return unrounded * (unit * np.abs(value) + least)


def _reduces(nest: Nest, how: Combination) -> bool:
    """Whether an operation reduces along the loops that its only output does not run along, in a way that is known."""
    kept = [loop for loop in range(nest.loops) if loop not in nest.summed]
    if how.by.name == SUBTRACTED and how.by.operands[0] is not nest.writes[0].element:
        return False
    return sorted(nest.writes[0].loops) == kept and how.by.name in COMBINED


def _reduced(nest: Nest, how: Combination, scope: Arrays) -> Reference:
    (written,), sizes = nest.writes, sizes_of(nest, scope)
    out, made = scope[written.value], evaluate(nest.body, how.value, _inputs(nest, scope, sizes))
    terms = Bounded(*(_in_order(array, sizes, written.loops) for array in (made.value, made.error)))
    result = _combined(how.by.name, bounded(out), terms, UNITS.get(out.dtype, 0.0))
    if out.dtype.kind in "iu":
        result = Bounded(rounded(result.value, out.dtype), result.error)
    history = History(elementwise=operations(nest.body) - 1, reductions=1)
    return Reference(result.value, result.error, out.dtype, _history(nest, scope, history))


def _in_turns(nest: Nest, scope: Arrays) -> list[Reference]:
    """What an operation leaves in its outputs whose body computes them in any way from what they were: turn by turn of
    the loops that it reduces along, as the largest element so far and its place."""
    sizes, summed = sizes_of(nest, scope), nest.summed
    inputs = _inputs(nest, scope, sizes)
    history = _history(nest, scope, History(elementwise=operations(nest.body), reductions=1))
    shapes = [[1 if loop in {*summed} - {*out.loops} else n for loop, n in enumerate(sizes)] for out in nest.writes]
    results = [Bounded.exact(np.zeros(shape)) for shape in shapes]
    units = list(map(_unit_of_turns, nest.yielded, (scope[out.value].dtype for out in nest.writes)))
    last, changes = [np.zeros(1)] * len(shapes), [np.zeros(1)] * len(shapes)
    for count, turn in enumerate(itertools.product(*(range(sizes[loop]) for loop in summed)), 1):
        at = dict(zip(summed, turn, strict=True))
        here = {v: Bounded(_part(x.value, at), _part(x.error, at)) for v, x in inputs.items()}
        made = [evaluate(nest.body, value, here) for value in nest.yielded]
        changes = [change + np.abs(new.value - old) for change, new, old in zip(changes, made, last, strict=True)]
        last = [new.value for new in made]
        for out, result, new, unit, change in zip(nest.writes, results, made, units, changes, strict=True):
            off = np.where(np.isfinite(new.value) & (unit > 0), count * unit * change, 0.0)
            _part(result.value, at)[...], _part(result.error, at)[...] = new.value, new.error + off
            if not {*summed} & {*out.loops}:
                inputs[out.element] = new
    made = zip(nest.writes, shapes, results, strict=True)
    return [
        Reference(
            *(_in_order(array, shape, out.loops)[..., 0].copy() for array in (result.value, result.error)),
            dtype=scope[out.value].dtype,
            history=history,
        )
        for out, shape, result in made
    ]


def _unit_of_turns(value: SSAValue, dtype: DType) -> float:
    """The rounding of a value that turns compute from what was before, as a part of its changes so far: they may be
    added up in another order. 0 for what is exact, as the larger of two."""
    is_rounded = isinstance(value.owner, arith.AddfOp | arith.SubfOp | arith.MulfOp | arith.DivfOp | FmaOp)
    return (ROUNDINGS[dtype][0] if dtype in ROUNDINGS else UNITS.get(dtype, 0.0)) if is_rounded else 0.0


def _part(array: Floats, at: Mapping[int, int]) -> Floats:
    """The elements of one turn, of an array with a dimension for each loop, or with none."""
    return array[
        tuple(slice(at[d], at[d] + 1) if d in at and n > 1 else slice(None) for d, n in enumerate(array.shape))
    ]


def _in_order(array: Floats, sizes: Sequence[int], order: Sequence[int]) -> Floats:
    """An array along all loops with the dimensions of the output first, and one for all other loops."""
    others = [loop for loop in range(len(sizes)) if loop not in order]
    moved: Floats = np.broadcast_to(array, sizes).transpose([*order, *others])
    return moved.reshape([*(sizes[loop] for loop in order), math.prod(sizes[loop] for loop in others)])


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


def _history(nest: Nest, scope: Arrays, own: History) -> History:
    return own.after(*(scope[access.value].history for access in nest.used))


def _inputs(nest: Nest, scope: Arrays, sizes: Sequence[int]) -> dict[SSAValue, Bounded]:
    """What a body reads: numbers from outside, elements of operands, and the numbers of loops."""
    inputs: dict[SSAValue, Bounded] = {v: bounded(r) for v, r in scope.items() if r.value.ndim == 0}
    for access in nest.used:
        reference = bounded(scope[access.value])
        both = (along_all(array, access.map, sizes) for array in (reference.value, reference.error))
        inputs[access.element] = Bounded(*both)
    return inputs | {index: Bounded.exact(numbers) for index, numbers in loop_numbers(nest, sizes).items()}


def loop_numbers(nest: Nest, sizes: Sequence[int]) -> dict[SSAValue, Floats]:
    """The numbers of loops that a body reads, with a dimension for each loop."""
    numbers = np.ogrid[tuple(slice(float(size)) for size in sizes)]
    return {index: numbers[loop] for index, loop in nest.indices.items()}


# Sums of products.


def _multiplied(
    op: LinalgStructuredOperation, nest: Nest, product: Weighted, scope: Arrays, accumulator: Accumulator
) -> Reference:
    sizes, weight = sizes_of(nest, scope), _weight(product, scope)
    if product.converted:
        accumulator = replace(accumulator, unit=max(accumulator.unit, ACCUMULATORS["f32"].unit))
    factors: list[Reference] = []
    maps: list[str] = []
    for factor in product.factors:
        access = nest.reads[factor.argument]
        operand = _read(dense(op, access, scope), factor)
        value, loops = along(operand.value, access.map, sizes)
        error, _ = along(operand.error, access.map, sizes)
        by = 1.0 if factors else weight
        factors.append(replace(operand, value=value * by, error=error * abs(by)))
        maps.append(letters(loops))
    written = nest.writes[0]
    return product_of(op, factors, scope[written.value], [*maps, letters(written.loops)], accumulator)


def _weight(body: Weighted, scope: Arrays) -> float:
    """What a product is multiplied with before it is added."""
    weight = -1.0 if body.negated else 1.0
    for value in body.weights:
        constant = value.owner.value if isinstance(value.owner, arith.ConstantOp) else None
        number = constant.value.data if isinstance(constant, FloatAttr | IntegerAttr) else scope[value].value
        weight *= float(number)
    return weight


def dense(op: LinalgStructuredOperation, access: NestAccess, scope: Arrays) -> Reference:
    """An input; of a sparse A, the matrix that it stands for."""
    stored, words, function = scope[access.value].stored(), op.attributes.get(METADATA), op.parent_op()
    if access.value is not op.inputs[0] or not isinstance(words, IntegerAttr) or not isinstance(function, func.FuncOp):
        return stored
    return expanded(op, stored, scope[function.body.block.args[words.value.data]])


def _read(operand: Reference, factor: Factor) -> Reference:
    """An operand as the body reads it: integers that are extended with zeros are unsigned."""
    limits = integer_limits(operand.dtype)
    if factor.unsigned and limits is not None and limits[0] < 0:
        span = limits[1] - limits[0] + 1.0
        return replace(operand, value=np.where(operand.value < 0, operand.value + span, operand.value))
    return operand
