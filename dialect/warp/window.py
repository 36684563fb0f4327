"""`warp.window`: memory as the loops of an operation go through it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import AffineMapAttr, IndexType, MemRefType, StridedLayoutAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
)
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def, result_def, traits_def, var_operand_def
from xdsl.traits import NoMemoryEffect
from xdsl.utils.exceptions import VerifyException

from .attributes import Memory, memory_of
from .view import strides_of

LinearForm: TypeAlias = tuple[dict[int, int], int]
"""What a sum multiplies each of its loops with, and what it adds."""


def linear(expr: AffineExpr) -> LinearForm | None:
    """An expression as a sum of loops times constants; None if it is anything else."""
    match expr:
        case AffineDimExpr():
            return {expr.position: 1}, 0
        case AffineConstantExpr():
            return {}, expr.value
        case AffineBinaryOpExpr(kind=AffineBinaryOpKind.Add | AffineBinaryOpKind.Mul):
            left, right = linear(expr.lhs), linear(expr.rhs)
            if left is None or right is None:
                return None
            return _sum(left, right) if expr.kind == AffineBinaryOpKind.Add else _product(left, right)
        case _:
            return None


def _sum(left: LinearForm, right: LinearForm) -> LinearForm:
    loops = {loop: left[0].get(loop, 0) + right[0].get(loop, 0) for loop in {**left[0], **right[0]}}
    return loops, left[1] + right[1]


def _product(left: LinearForm, right: LinearForm) -> LinearForm | None:
    if left[0] and right[0]:
        return None
    (loops, offset), by = (left, right[1]) if left[0] else (right, left[1])
    return {loop: factor * by for loop, factor in loops.items()}, offset * by


def windows(map_: AffineMap) -> list[LinearForm] | None:
    """The linear forms of a map's results; None for a map with another result, or one that runs backwards."""
    found = [linear(expr) for expr in map_.results]
    known = [form for form in found if form is not None]
    if len(known) < len(found) or any(offset < 0 or min(by.values(), default=0) < 0 for by, offset in known):
        return None
    return known


def steps_of(map_: AffineMap, strides: Sequence[int | None]) -> tuple[list[int | None], int | None]:
    """Elements from one index of each loop to the next, and those before the first, of memory with these strides."""
    steps: list[int | None] = [0] * map_.num_dims
    first: int | None = 0
    for (by, offset), stride in zip(windows(map_) or (), strides, strict=True):
        for loop, factor in by.items():
            before = steps[loop]
            steps[loop] = (
                before if not factor else None if stride is None or before is None else before + factor * stride
            )
        first = first if not offset else None if stride is None or first is None else first + offset * stride
    return steps, first


def passed(map_: AffineMap, sizes: Sequence[int], shape: Sequence[int]) -> int | None:
    """The first dimension of memory of a shape whose end loops of these sizes would pass; None if they pass none.

    Sizes that are not known, below 0, pass nothing.
    """
    for dimension, ((by, offset), size) in enumerate(zip(windows(map_) or (), shape, strict=True)):
        lengths = {loop: sizes[loop] for loop in by}
        if size < 0 or min(lengths.values(), default=1) < 1:
            continue
        if offset + sum(factor * (lengths[loop] - 1) for loop, factor in by.items()) >= size:
            return dimension
    return None


@irdl_op_definition
class WindowOp(IRDLOperation):
    """A view of memory with a dimension for each loop of a map. The results of the map are indices of the memory::

        %w = warp.window %x affine_map<(i, j, k) -> (i * 2 + j, k)>
            : memref<9x16xf16> -> memref<4x3x16xf16, strided<[32, 16, 16]>>

    An element may appear at several places of the result, so the result is only read. Along a loop that the map does
    not use, the elements repeat. `sizes` are the dynamic sizes of the result, in order.
    """

    name = "warp.window"

    memory = operand_def(MemRefType)
    sizes = var_operand_def(IndexType())
    map_ = prop_def(AffineMapAttr, prop_name="map")
    result = result_def(MemRefType)

    traits = traits_def(NoMemoryEffect())
    assembly_format = "$memory $map (`sizes` `(` $sizes^ `)`)? attr-dict `:` type($memory) `->` type($result)"

    def __init__(self, memory: SSAValue, map_: AffineMap, shape: Sequence[int], sizes: Sequence[SSAValue] = ()):
        """`shape` has -1 for each of `sizes`."""
        super().__init__(
            operands=[memory, list(sizes)],
            properties={"map": AffineMapAttr(map_)},
            result_types=[window_type(memory_of(memory), map_, shape)],
        )

    @property
    def along(self) -> AffineMap:
        """The map."""
        return self.map_.data

    def verify_(self) -> None:
        memory, result = memory_of(self.memory), memory_of(self.result)
        if self.along.num_dims != result.get_num_dims():
            raise VerifyException(f"expected a loop for each dimension of {result}, got {self.along}")
        expected = window_type(memory, self.along, result.get_shape())
        if result != expected:
            raise VerifyException(f"expected the result to be {expected}, got {result}")
        unknown = [size for size in result.get_shape() if size < 0]
        if len(unknown) != len(self.sizes):
            raise VerifyException(f"expected {len(unknown)} sizes of {result}, got {len(self.sizes)}")


def window_type(memory: Memory, map_: AffineMap, shape: Sequence[int]) -> MemRefType[Attribute]:
    """The type of memory seen along the loops of a map, of these sizes.

    Raises:
        VerifyException: for a map that no strides follow, memory without strides, or loops that pass its end.
    """
    strides = strides_of(memory)
    if strides is None or len(map_.results) != len(strides) or map_.num_symbols or windows(map_) is None:
        raise VerifyException(
            f"expected sums of loops times constants, none of them below 0, for each dimension of {memory}, got {map_}"
        )
    if (dimension := passed(map_, shape, memory.get_shape())) is not None:
        loops = "x".join(str(size) if size >= 0 else "?" for size in shape)
        raise VerifyException(f"loops of {loops} along {map_} pass the end of dimension {dimension} of {memory}")
    steps, first = steps_of(map_, strides)
    start = memory.get_offset()
    offset = None if start is None or first is None else start + first
    return MemRefType(memory.element_type, shape, StridedLayoutAttr(steps, offset), memory.memory_space)
