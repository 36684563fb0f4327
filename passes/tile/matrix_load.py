"""Matrices that lie as D does, loaded as a fragment lies, and their elements in another type."""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, BoolAttr
from xdsl.ir import SSAValue, TypeAttribute

from ...dialect.warp.attributes import FragmentType, element_row, fragment_of, memory_of
from ...dialect.warp.elementwise import ConvertOp
from ...dialect.warp.memory import LoadOp
from .index_builder import Index, IndexBuilder

InBounds = ArrayAttr[BoolAttr] | None
"""The property `in_bounds` of operations on memory."""


def load(
    index: IndexBuilder, memory: SSAValue, kind: FragmentType, m: Index, n: Index, in_bounds: InBounds
) -> SSAValue:
    """The elements of a matrix like D, those at (m, n) and behind, as a fragment lies."""
    held = kind.with_element(held_type(memory))
    return index.insert(LoadOp(memory, index.values([m, n]), held, in_bounds)).fragment


def held_type(memory: SSAValue) -> TypeAttribute:
    """The type of the elements of memory."""
    kind = memory_of(memory).element_type
    if not isinstance(kind, TypeAttribute):
        raise TypeError(f"expected elements of a type, got {kind}")
    return kind


def converted(index: IndexBuilder, fragment: SSAValue, wanted: TypeAttribute) -> SSAValue:
    """The fragment's elements in a type."""
    if fragment_of(fragment).element == element_row(wanted):
        return fragment
    return index.insert(ConvertOp(fragment, wanted)).fragment
