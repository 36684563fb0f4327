"""Matrices that lie as D does, loaded as a fragment lies, and their elements in another type."""

from __future__ import annotations

from xdsl.ir import SSAValue, TypeAttribute

from ...dialect.warp.attributes import FragmentType, element_row, fragment_of, memory_of
from ...dialect.warp.elementwise import ConvertOp
from ...dialect.warp.memory import LoadOp, bounds_attribute
from ..diagnostics import fail
from ..linalg.operand import Argument, Operand, Spread
from .index_builder import Index, IndexBuilder
from .tiling import Tiling


def load(
    tiling: Tiling, index: IndexBuilder, operand: Operand | Spread, kind: FragmentType, m: Index, n: Index
) -> SSAValue:
    """The elements of a matrix like D, those at (m, n) and behind, as a fragment lies."""
    memory, where = operand.value, index.values([m, n])
    held = kind.with_element(held_type(tiling, operand))
    return index.insert(LoadOp(memory, where, held, bounds_attribute(*map(tiling.inside, "mn")))).fragment


def held_type(tiling: Tiling, operand: Argument) -> TypeAttribute:
    """The type of the elements of memory."""
    kind = memory_of(operand.value).element_type
    if not isinstance(kind, TypeAttribute):
        fail(tiling.product.op, f"expected elements of a type, got {kind}")
    return kind


def converted(index: IndexBuilder, fragment: SSAValue, wanted: TypeAttribute) -> SSAValue:
    """The fragment's elements in a type."""
    if fragment_of(fragment).element == element_row(wanted):
        return fragment
    return index.insert(ConvertOp(fragment, wanted)).fragment
