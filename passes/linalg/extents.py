"""Sizes that are not known while compiling: what stands for them, and what is known of them.

Passes reason about a product with numbers. For a size or stride that only the caller knows they use a sample: a number
of the usual magnitude that is divisible by what the caller promises and by nothing more, so that whatever follows from
its divisors is true of every size. What needs the size itself takes it from the memory when the kernel runs.
"""

from __future__ import annotations

import math
from typing import cast

from xdsl.dialects import arith, func, gpu, memref
from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, DictionaryAttr, IndexType, IntegerAttr, NoneAttr
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue
from xdsl.rewriter import Rewriter

from ...dialect.warp.attributes import Memory, memory_of
from ...dialect.warp.divisible import AssumeDivisibleOp
from ...dialect.warp.view import DIVISIBLE, MatrixOp, strides_of

SIZE_LIMIT = (1 << 31) - (1 << 16)
"""Sizes that only a call knows are below it: kernels compute with indices of 32 bits, and a little beyond the end."""

USUAL = 4095
"""About how large a dynamic size is taken to be when a schedule is chosen."""


def sample(divisor: int, usual: int = USUAL) -> int:
    """An odd multiple of a divisor, of the usual magnitude."""
    return divisor * ((max(1, usual // divisor) - 1) | 1)


def divisor_of(value: SSAValue) -> int:
    """What the function promises of an argument: a number that divides every dynamic size of the dimension along which
    its elements are neighbours, every dynamic stride, and a dynamic offset."""
    if isinstance(value.owner, MatrixOp):
        return divisor_of(value.owner.memory)
    if isinstance(value.owner, AssumeDivisibleOp):
        return math.lcm(value.owner.number, divisor_of(value.owner.memory))
    function = value.block.parent_op() if isinstance(value, BlockArgument) else None
    if isinstance(value, BlockArgument) and isinstance(function, gpu.FuncOp):
        return kernel_promised(function, value.index)
    if not isinstance(value, BlockArgument) or not isinstance(function, func.FuncOp) or function.arg_attrs is None:
        return 1
    return promised(function.arg_attrs, value.index)


def kernel_promised(kernel: gpu.FuncOp, number: int) -> int:
    """The `warp.divisible` of an argument of a kernel; 1 without."""
    found = kernel.attributes.get(DIVISIBLE)
    listed = cast("ArrayAttr[Attribute]", found).data if isinstance(found, ArrayAttr) else ()
    divisor = listed[number] if number < len(listed) else None
    return divisor.value.data if isinstance(divisor, IntegerAttr) else 1


def promised(attributes: ArrayAttr[DictionaryAttr], number: int) -> int:
    """The `warp.divisible` among the attributes of an argument; 1 without."""
    found = attributes.data[number].data.get(DIVISIBLE) if number < len(attributes.data) else None
    return max(1, found.value.data) if isinstance(found, IntegerAttr) else 1


def strides(kind: Memory, sizes: tuple[int, ...], divisor: int) -> tuple[int, ...]:
    """The strides of memory, with samples for those that are not known; `sizes` has samples already."""
    found = strides_of(kind) or ()
    if len(found) != len(sizes):
        return ()
    plain = isinstance(kind.layout, NoneAttr)
    return tuple(
        stride if stride is not None else math.prod(sizes[i + 1 :]) if plain else sample(divisor)
        for i, stride in enumerate(found)
    )


def pitch(kind: Memory, column: int, divisor: int, sizes: tuple[int, ...] = ()) -> int:
    """Elements that divide the place of every row in memory, whose neighbours lie along the dimension `column`.

    `sizes` are those of memory, with samples for what is not known; without them, they follow from the divisor.
    """
    known = sizes or tuple(
        size if size >= 0 else sample(divisor if i == column else 1) for i, size in enumerate(kind.get_shape())
    )
    steps = [stride for i, stride in enumerate(strides(kind, known, divisor)) if i != column]
    offset = kind.get_offset()
    return math.gcd(divisor if offset is None else offset, *steps)


def fold_dimensions(op: Operation) -> None:
    """Replaces the sizes that are asked of allocations by those that they were made with."""
    for found in list(op.walk()):
        if not isinstance(found, memref.DimOp) or not isinstance(found.source.owner, memref.AllocOp | memref.AllocaOp):
            continue
        number, shape = found.index.owner, memory_of(found.source).get_shape()
        if not isinstance(number, arith.ConstantOp) or not isinstance(number.value, IntegerAttr):
            continue
        if not 0 <= (at := number.value.value.data) < len(shape):
            continue
        if shape[at] == DYNAMIC_INDEX:
            Rewriter.replace_op(found, [], [found.source.owner.dynamic_sizes[shape[:at].count(DYNAMIC_INDEX)]])
        else:
            Rewriter.replace_op(found, arith.ConstantOp(IntegerAttr(shape[at], IndexType())))
