"""Matrices of a product, read from the memory that they are in."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Operation, SSAValue, TypeAttribute
from xdsl.ir.affine import AffineMap

from ...dialect.isa.types import ElementType
from ...dialect.warp.attributes import Memory, element_row, memory_of, memory_space
from ...dialect.warp.loops import loops_of
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.view import strides_of
from ..diagnostics import fail
from . import extents
from .operand import MatrixOperand

GLOBAL_SPACE = 0
"""The memory space of operands: none named, or 0."""


def read_matrix(
    op: MatmulOp,
    name: str,
    value: SSAValue,
    loops: tuple[int, int],
    sizes: Mapping[int, int],
    map_: AffineMap | None = None,
    element: ElementType | None = None,
) -> MatrixOperand:
    """The matrix in memory that an operand is, or has beside it; its rows and columns run along two loops.

    Raises a located diagnostic for memory and elements that are not lowered.
    """
    kind = memory_of(value)
    if memory_space(kind) != GLOBAL_SPACE:
        fail(op, f"expected {name} in global memory, got {kind}")
    stored, element_type = element_row(kind.element_type), kind.element_type
    if stored is None or not isinstance(element_type, TypeAttribute):
        fail(op, f"expected {name} of a type that matrix instructions know, got {kind.element_type}")
    found = range(2) if map_ is None else loops_of(map_)
    axes = tuple(found.index(op.outer * (map_ is not None) + loop) for loop in loops)
    row, column = lie_in_memory(op, name, kind, (axes[0], axes[1]))
    batch = tuple(loop for dimension, loop in enumerate(found) if dimension not in axes)
    lengths = tuple(s if s >= 0 else sizes[found[i]] for i, s in enumerate(kind.get_shape()))
    types = (element_type, element or stored)
    turned = (row, column) != axes
    return MatrixOperand(name, value, kind, *types, turned, (row, column), batch, lengths, extents.divisor_of(value))


def lie_in_memory(op: Operation, name: str, kind: Memory, axes: tuple[int, int]) -> tuple[int, int]:
    """Two dimensions of memory in the order (rows, columns) in which they lie there.

    Raises a located diagnostic if neighbours along neither are neighbours in memory.
    """
    strides = strides_of(kind)
    for row, column in (axes, axes[::-1]) if axes[0] < axes[1] else (axes[::-1], axes):
        if strides is not None and strides[column] == 1:
            return row, column
    fail(op, f"expected the rows or the columns of {name} to be contiguous, got {kind}")
