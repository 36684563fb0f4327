"""What `warp.matmul` means, in float64: the product in any of its forms, then its epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from xdsl.ir import SSAValue

from ...dialect.isa.mma import blocks
from ...dialect.isa.types import ELEMENT_TYPES
from ...dialect.warp.loops import K
from ...dialect.warp.matmul import MatmulOp
from ..arguments.dtypes import DTYPES
from .elements import Bounded, bounded, evaluate_body, operations
from .history import History
from .product import Accumulator, Reference, letters_of, product_of
from .sparse import expanded


def evaluate_matmul(op: MatmulOp, scope: Mapping[SSAValue, Reference], accumulator: Accumulator) -> Reference:
    """What the product leaves in D."""
    found = _product(op, scope, replace(accumulator, tf32=op.multiplied == ("tf32", "tf32")))
    if op.epilogue is None:
        return found
    names = letters_of(op, op.maps[2])
    inputs: dict[SSAValue, Bounded] = {value: bounded(known) for value, known in scope.items() if known.value.ndim == 0}
    block = op.epilogue.body.block
    inputs[block.args[0]] = bounded(found)
    for argument, (value, map_) in zip(block.args[1:], op.placed_operands, strict=True):
        inputs[argument] = _spread(scope[value], letters_of(op, map_), names)
    result = evaluate_body(block, inputs)
    value, error = (np.broadcast_to(array, found.value.shape).copy() for array in (result.value, result.error))
    history = History(elementwise=operations(block))
    others = (scope[operand].history for operand in op.epilogue_operands)
    return Reference(value, error, scope[op.d].dtype, history.after(found.history, *others))


def _product(op: MatmulOp, scope: Mapping[SSAValue, Reference], accumulator: Accumulator) -> Reference:
    """The product, in the type that an element of it is rounded to."""
    names = (op.multiplied[0], op.multiplied[1] if op.b_stored is None else op.b_stored.name)
    matrices = [scope[value].stored() for value in op.matrices]
    if op.metadata is not None:
        matrices[0] = expanded(op, matrices[0], scope[op.metadata])
    a, b = (_read(matrix, name) for matrix, name in zip(matrices, names, strict=True))
    if op.b_stored is not None:
        b = replace(b, value=b.value - op.b_stored.zero, dtype=np.dtype(np.float64))
    maps = [letters_of(op, map_) for map_ in op.maps]
    if op.scales:
        block, k = blocks()[op.variant], chr(ord("a") + op.outer + K)
        a, b = (
            _scaled(operand, scope[scales], map_.index(k), block)
            for operand, scales, map_ in zip((a, b), op.scales, maps, strict=False)
        )
    if op.group_scales is not None:
        b = _grouped(b, scope[op.group_scales])
    start, kind = scope[op.d if op.c is None else op.c], DTYPES[str(op.product_type)]
    if op.init is not None:
        value = np.full_like(start.value, float(op.init.value.data))
        start = Reference(value, np.zeros_like(value), kind)
    start = replace(start.stored(), dtype=kind)
    if op.variant.bit_op != "xor":
        return product_of(op, (a, b), start, maps, accumulator)
    # A bit of the xor is one where exactly one of the two is.
    first = product_of(op, (a, replace(b, value=1 - b.value)), start, maps, accumulator)
    return product_of(op, (replace(a, value=1 - a.value), b), first, maps, accumulator)


def _read(operand: Reference, multiplied: str) -> Reference:
    """An operand as the instruction reads it: integers of either sign."""
    element = ELEMENT_TYPES[multiplied]
    if element.is_float or element.signed:
        return operand
    value = np.where(operand.value < 0, operand.value + 2.0**element.bits, operand.value)
    return replace(operand, value=value)


def _scaled(operand: Reference, scales: Reference, along: int, block: int) -> Reference:
    """An operand times its scales, which are without sign; `along` is its dimension along k, the last or the one before
    that, with that of rows or columns."""
    each = np.repeat(np.abs(scales.value), block, axis=-1)[..., : operand.value.shape[along]]
    value = operand.value * (each if along == operand.value.ndim - 1 else each.swapaxes(-1, -2))
    return Reference(value, np.zeros_like(value), np.dtype(np.float64))


def _grouped(operand: Reference, scales: Reference) -> Reference:
    """B times the scales of its groups, which its dimension along k has several elements of."""
    each = scales.value
    for axis, (size, count) in enumerate(zip(operand.value.shape, each.shape, strict=True)):
        each = np.repeat(each, size // count, axis=axis)
    value = operand.value * each
    return Reference(value, np.zeros_like(value), np.dtype(np.float64))


def _spread(extra: Reference, along: str, names: str) -> Bounded:
    """An epilogue operand with a dimension for each of D's, of size 1 where it has none."""
    order, where = (
        [along.index(name) for name in names if name in along],
        tuple(slice(None) if name in along else None for name in names),
    )
    found = bounded(extra)
    value, error = (array.transpose(order)[where] if along else array for array in (found.value, found.error))
    return Bounded(value, error)
