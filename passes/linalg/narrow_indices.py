"""Arithmetic on the indices of elements, `linalg.index`, in 32 bits.

MLIR's indices have as many bits as a target likes, and bodies cast them to i64; a kernel has registers of 32 bits. So
each number on the way from an index is bounded by the sizes of its loops: what fits 32 bits is computed in them, with
the same results, and anything else is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, IntegerAttr, IntegerType, i32, i64
from xdsl.dialects.linalg.ops import IndexOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from .extents import SIZE_LIMIT

Bounds = tuple[float, float]
"""The least and the largest value of a number."""

EVERYTHING = (-math.inf, math.inf)
BITS = 32
LIMIT = 1 << BITS - 1

CASTS = (arith.IndexCastOp, arith.ExtSIOp, arith.TruncIOp)
"""Conversions that keep the value, or its low bits, as two's complement."""

_ARITHMETIC: Mapping[type[Operation], Callable[[float, float], float]] = {
    arith.AddiOp: lambda a, b: a + b,
    arith.SubiOp: lambda a, b: a - b,
    arith.MuliOp: lambda a, b: a * b,
    arith.MinSIOp: min,
    arith.MaxSIOp: max,
}
"""Operations whose results at the ends of their operands bound them."""

_BITWISE = (arith.AndIOp, arith.OrIOp, arith.XOrIOp)
_QUOTIENTS = (arith.DivSIOp, arith.DivUIOp)
_REMAINDERS = (arith.RemSIOp, arith.RemUIOp)
_UNSIGNED = (arith.DivUIOp, arith.RemUIOp, arith.MinUIOp, arith.MaxUIOp)


def is_wide(kind: Attribute) -> bool:
    """Whether a type is an index, or an integer that an index is cast to and no register holds."""
    return isinstance(kind, IndexType) or kind == i64


def indexed(body: Block) -> tuple[int, ...]:
    """The loops whose indices a body uses."""
    return tuple(dict.fromkeys(op.dim.value.data for op in body.ops if isinstance(op, IndexOp) and op.result.uses))


def objection(body: Block, sizes: Sequence[int]) -> str:
    """Why a body cannot compute with its indices in 32 bits; "" if it can. `sizes` are those of the loops, -1 where one
    is not known."""
    if not indexed(body):
        return ""
    known: dict[SSAValue, Bounds] = {}
    for op in body.ops:
        if isinstance(op, IndexOp):
            size = sizes[op.dim.value.data]
            known[op.result] = 0, max(0, (SIZE_LIMIT if size < 0 else size) - 1)
        elif any(is_wide(value.type) for value in op.results):
            known[op.results[0]] = found = _bounds(op, known)
            if not _fits(found):
                return f"{op.name} of indices may pass {BITS} bits"
        elif isinstance(op, arith.UIToFPOp) and is_wide(op.input.type) and _of(op.input, known)[0] < 0:
            return f"{op.name} of an index that may be negative"
    return ""


def _of(value: SSAValue, known: Mapping[SSAValue, Bounds]) -> Bounds:
    if value in known:
        return known[value]
    if isinstance(owner := value.owner, arith.ConstantOp) and isinstance(owner.value, IntegerAttr):
        return owner.value.value.data, owner.value.value.data
    kind = value.type
    if isinstance(kind, IntegerType) and kind.bitwidth <= BITS:
        half = 1 << kind.bitwidth - 1
        return -half, half - 1
    return EVERYTHING


def _fits(bounds: Bounds) -> bool:
    """Whether 32 bits hold a number, with its sign."""
    return bounds[0] >= -LIMIT and bounds[1] < LIMIT


def _bounds(op: Operation, known: Mapping[SSAValue, Bounds]) -> Bounds:
    """The bounds of what an operation makes."""
    given = [_of(value, known) for value in op.operands]
    if isinstance(op, arith.ConstantOp | arith.SelectOp):
        every = [_of(op.result, known)] if isinstance(op, arith.ConstantOp) else given[1:]
        return min(low for low, _ in every), max(high for _, high in every)
    if isinstance(op, CASTS):
        return given[0]
    if (compute := _ARITHMETIC.get(type(op))) is not None and EVERYTHING not in given:
        ends = [compute(a, b) for a, b in product(*given)]
        return min(ends), max(ends)
    if not all(map(_fits, given)):
        return EVERYTHING
    if all(low >= 0 for low, _ in given) and isinstance(op, (*_QUOTIENTS, *_REMAINDERS, *_UNSIGNED)):
        return 0, given[1][1] - 1 if isinstance(op, _REMAINDERS) else max(high for _, high in given)
    overflows = isinstance(op, arith.DivSIOp) and given[0][0] == -LIMIT
    signed = isinstance(op, (*_BITWISE, arith.DivSIOp, arith.RemSIOp)) and not overflows
    return (-LIMIT, LIMIT - 1) if signed else EVERYTHING


def narrowed(op: Operation, known: dict[SSAValue, SSAValue], block: Block) -> SSAValue:
    """Appends an operation on indices to a block, in 32 bits; `known` has what stands for its operands. Returns its
    result."""
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr):
        copy: Operation = arith.ConstantOp(IntegerAttr(op.value.value.data, i32))
    elif isinstance(op, CASTS):
        source, target = known[op.operands[0]], op.results[0].type
        target = i32 if is_wide(target) else target
        if source.type == target:
            return source
        kind = arith.ExtSIOp if target == i32 else arith.TruncIOp
        copy = kind.build(operands=[source], result_types=[target])
    else:
        copy = op.clone(known)
        kinds = [i32 if is_wide(result.type) else result.type for result in copy.results]
        copy = type(op).create(operands=copy.operands, properties=copy.properties, result_types=kinds)
    copy.location = op.location
    block.add_op(copy)
    return copy.results[0]
