"""Operations whose result is the memory of their first operand, seen otherwise: which they are, and what is seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from xdsl.dialects import memref
from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, DenseArrayBase, IntegerAttr, IntegerType, i64
from xdsl.ir import SSAValue

from ...dialect.warp.attributes import Memory, memory_of
from ...dialect.warp.divisible import AssumeDivisibleOp
from ...dialect.warp.operand_forms import OperandForm
from ...dialect.warp.window import WindowOp, passed, steps_of

if TYPE_CHECKING:
    from xdsl.dialects import tensor

Viewing: TypeAlias = (
    memref.SubviewOp | memref.CastOp | memref.CollapseShapeOp | memref.ExpandShapeOp | WindowOp | AssumeDivisibleOp
)

VIEWING = (
    memref.SubviewOp,
    memref.CastOp,
    memref.CollapseShapeOp,
    memref.ExpandShapeOp,
    WindowOp,
    AssumeDivisibleOp,
)
"""Operations of which a call knows what they make seen."""

VIEWS = (*VIEWING, memref.ReinterpretCastOp)


def root(value: SSAValue) -> SSAValue:
    """The memory that a value is a view of, or whose elements an operand of a product has."""
    while isinstance(value.owner, (*VIEWS, OperandForm)):
        value = value.owner.operands[0]
    return value


class View(NamedTuple):
    """Elements of memory: the first one's distance from the start, sizes, and distances along each dimension."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def __str__(self) -> str:
        return f"{'x'.join(map(str, self.shape))} from element {self.offset} with strides {list(self.strides)}"


Groups: TypeAlias = Sequence[Sequence[int]]

Number = Callable[[SSAValue], int]
"""What an index is in this call."""


class WindowError(Exception):
    """With the sizes of a call, loops pass the end of the memory that they go through."""


def seen(op: Viewing, source: View, number: Number) -> View:
    """What an operation makes of a view of memory."""
    match op:
        case memref.CastOp() | AssumeDivisibleOp():
            return source
        case memref.SubviewOp():
            return _part(op, source, number)
        case WindowOp():
            return _window(op, source, number)
        case memref.CollapseShapeOp():
            groups = groups_of(op)
            shape = tuple(math.prod(source.shape[d] for d in group) for group in groups)
            return View(source.offset, shape, tuple(_innermost(source, group) for group in groups))
        case memref.ExpandShapeOp():
            shape = _numbers(op.static_output_shape, op.output_shape, number)
            strides: list[int] = []
            for group, stride in zip(groups_of(op), source.strides, strict=True):
                strides += [stride * math.prod(shape[d + 1 : group[-1] + 1]) for d in group]
            return View(source.offset, shape, tuple(strides))


def _part(op: memref.SubviewOp, source: View, number: Number) -> View:
    offsets = _numbers(op.static_offsets, op.offsets, number)
    sizes = _numbers(op.static_sizes, op.sizes, number)
    steps = _numbers(op.static_strides, op.strides, number)
    offset = source.offset + sum(o * s for o, s in zip(offsets, source.strides, strict=True))
    strides = [step * stride for step, stride in zip(steps, source.strides, strict=True)]
    kept = kept_dimensions(sizes, memory_of(op.result).get_shape())
    return View(offset, tuple(sizes[d] for d in kept), tuple(strides[d] for d in kept))


def _window(op: WindowOp, source: View, number: Number) -> View:
    given = iter(op.sizes)
    shape = tuple(size if size >= 0 else number(next(given)) for size in memory_of(op.result).get_shape())
    if (dimension := passed(op.along, shape, source.shape)) is not None:
        raise WindowError(
            f"loops of {'x'.join(map(str, shape))} along {op.along} pass the end of dimension {dimension} of memory of "
            f"{'x'.join(map(str, source.shape))}"
        )
    steps, first = steps_of(op.along, source.strides)
    return View(source.offset + (first or 0), shape, tuple(step or 0 for step in steps))


def kept_dimensions(sizes: Sequence[int], shape: Sequence[int]) -> list[int]:
    """The dimensions that a result of lower rank keeps; others have size 1."""
    kept: list[int] = []
    for dimension, size in enumerate(sizes):
        spare = len(sizes) - dimension > len(shape) - len(kept)
        fits = len(kept) < len(shape) and shape[len(kept)] in (size, DYNAMIC_INDEX)
        if fits and not (size == 1 and spare and shape[len(kept)] != 1):
            kept.append(dimension)
    return kept


def expanded(value: SSAValue, kind: Memory, groups: Groups, sizes: Sequence[SSAValue] = ()) -> memref.ExpandShapeOp:
    """Memory with dimensions of several; `groups` says which become of each, `sizes` those that are not known."""
    shape = DenseArrayBase.from_list(i64, kind.get_shape())
    return memref.ExpandShapeOp.create(
        operands=[value, *sizes],
        properties={"reassociation": _attribute(groups), "static_output_shape": shape},
        result_types=[kind],
    )


def collapsed(value: SSAValue, kind: Memory, groups: Groups) -> memref.CollapseShapeOp:
    """Memory with several dimensions as one; `groups` says which."""
    return memref.CollapseShapeOp.create(
        operands=[value], properties={"reassociation": _attribute(groups)}, result_types=[kind]
    )


def _attribute(groups: Groups) -> ArrayAttr[ArrayAttr[IntegerAttr]]:
    return ArrayAttr(ArrayAttr(IntegerAttr(d, i64) for d in group) for group in groups)


def groups_of(
    op: memref.CollapseShapeOp | memref.ExpandShapeOp | tensor.CollapseShapeOp | tensor.ExpandShapeOp,
) -> list[list[int]]:
    """Which dimensions become one, or are made of one."""
    return [[d.value.data for d in group] for group in op.reassociation]


def _innermost(source: View, group: Sequence[int]) -> int:
    """The distance between neighbours of dimensions taken together: that of the last with more than one index."""
    last = next((d for d in reversed(group) if source.shape[d] != 1), group[-1])
    return source.strides[last]


def _numbers(static: DenseArrayBase[IntegerType], given: Sequence[SSAValue], number: Number) -> tuple[int, ...]:
    values = iter(given)
    return tuple(number(next(values)) if size == DYNAMIC_INDEX else int(size) for size in static.iter_values())
