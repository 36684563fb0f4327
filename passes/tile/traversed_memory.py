"""How an elementwise operation goes through one of its memories."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from xdsl.dialects.builtin import MemRefType, NoneAttr, StridedLayoutAttr
from xdsl.ir import SSAValue

from ...dialect.warp.attributes import Memory, element_row, memory_of
from ...dialect.warp.view import strides_of
from ..linalg import extents
from ..linalg.operand import VectorOperand
from ..linalg.views import collapsed
from .outliner import Outliner

ACCESS_BITS = 128
"""The widest access of a thread."""


class TraversedMemory(NamedTuple):
    """Memory as the loops of an operation go through it: `loops` says which loop each dimension runs along, -1 for one
    that is always 0; `kind` is its type with neighbouring dimensions taken together as `groups` say."""

    value: SSAValue
    kind: Memory
    loops: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    divisor: int

    @staticmethod
    def of(value: SSAValue, loops: Sequence[int]) -> TraversedMemory:
        kind = memory_of(value)
        groups = tuple((d,) for d in range(kind.get_num_dims()))
        return TraversedMemory(value, kind, tuple(loops), groups, extents.divisor_of(value))

    @property
    def bits(self) -> int:
        found = element_row(self.kind.element_type)
        return 0 if found is None else found.bits

    @property
    def neighbours(self) -> int | None:
        """The loop along which elements are neighbours in memory: the last of them if there are several."""
        strides = strides_of(self.kind) or ()
        along = [loop for loop, stride in zip(self.loops, strides, strict=True) if stride == 1 and loop >= 0]
        return along[-1] if along else None

    def size(self, loop: int | None) -> int:
        """The size of a dimension, or a sample; 1 of none."""
        size = 1 if loop is None else self.kind.get_shape()[loop]
        return size if size >= 0 else extents.USUAL

    def together(self) -> int:
        """Elements that divide every row of neighbours and the place of each in memory, a power of two."""
        strides = strides_of(self.kind) or ()
        sizes = tuple(
            size if size >= 0 else extents.sample(self.divisor if stride == 1 else 1)
            for size, stride in zip(self.kind.get_shape(), strides, strict=True)
        )
        dimension, offset = self.loops.index(self.neighbours or 0), self.kind.get_offset()
        steps = [s for i, s in enumerate(extents.strides(self.kind, sizes, self.divisor)) if i != dimension]
        common = math.gcd(sizes[dimension], self.divisor if offset is None else offset, *steps)
        return common & -common if common else ACCESS_BITS

    def joins(self, loop: int) -> bool:
        """Whether two loops, this and the next, are one to this memory: it knows neither, or steps from the last index
        of the second to the next of the first as between any two."""
        if loop not in self.loops and loop + 1 not in self.loops:
            return True
        strides, shape = strides_of(self.kind), self.kind.get_shape()
        if strides is None or loop not in self.loops or loop + 1 not in self.loops or min(shape) < 0:
            return False
        first, inner, outer = (
            self.loops.index(loop),
            strides[self.loops.index(loop + 1)],
            strides[self.loops.index(loop)],
        )
        neighbours = self.loops[first : first + 2] == (loop, loop + 1)
        return neighbours and inner is not None and outer == inner * shape[first + 1]

    def joined(self, loop: int) -> TraversedMemory:
        """This memory with two loops, this and the next, as one."""
        renamed = tuple(other - (other > loop) for other in self.loops)
        if loop not in self.loops:
            return TraversedMemory(self.value, self.kind, renamed, self.groups, self.divisor)
        at, shape, strides = self.loops.index(loop), list(self.kind.get_shape()), list(strides_of(self.kind) or ())
        shape[at : at + 2], strides[at : at + 2] = [shape[at] * shape[at + 1]], [strides[at + 1]]
        plain = isinstance(self.kind.layout, NoneAttr)
        layout = NoneAttr() if plain else StridedLayoutAttr(strides, self.kind.get_offset())
        kind = MemRefType(self.kind.element_type, shape, layout, self.kind.memory_space)
        groups = (*self.groups[:at], self.groups[at] + self.groups[at + 1], *self.groups[at + 2 :])
        return TraversedMemory(self.value, kind, renamed[:at] + renamed[at + 1 :], groups, self.divisor)


def operand_of(name: str, value: SSAValue, place: TraversedMemory | None, outliner: Outliner) -> VectorOperand:
    """What a kernel is given for memory, or a number, that an operation goes through like this: neighbouring dimensions
    are taken together before the launch."""
    name = value.name_hint or name
    if place is None:
        return VectorOperand(name, value)
    if any(len(group) > 1 for group in place.groups):
        value = outliner.insert(collapsed(value, place.kind, place.groups))
    return VectorOperand(name, value, divisor=place.divisor)
