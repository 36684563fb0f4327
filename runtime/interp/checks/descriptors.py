"""What is wrong with the words of matrix descriptors: the start of a swizzle's pattern, and the rank of a CTA in them.

In a cluster an address of shared memory has the rank of its CTA from bit 24 on. In a descriptor that is made of the
whole of it, the rank is added to the other fields. PTX ISA 9.7.15.5.1.2.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ....dialect.isa.descriptor import UNIT, DescriptorError, MatrixDescriptor
from ..machine.memory import RANK_BITS

if TYPE_CHECKING:
    from ..machine.threads import Geometry

ALIGNMENT = "align"
"""The kind of what is no error: a matrix that begins beside the first row of its swizzle's pattern is right where its
data is permuted by the whole address, as tensor copies do it."""

_ADDRESS_MASK = 0x3FFFF
_FIELDS = 14
"""The first bit of a descriptor behind its address."""

_RANK = RANK_BITS - UNIT.bit_length() + 1
"""Where the rank is in a descriptor whose address was not masked."""


class Descriptors:
    """Those of CTA 0 of each cluster are what the fields of the others' are compared with."""

    def __init__(self, geometry: Geometry) -> None:
        self._size = geometry.cluster_size
        self._fields: dict[tuple[int, str], dict[int, dict[int, int]]] = {}

    def wrong(self, pc: int, name: str, word: int, group: int, rank: int) -> Iterator[tuple[str, int, str]]:
        """What is wrong with the word that a register has at an instruction: the kind, the warpgroup, the text."""
        yield from self._ranks(pc, name, word >> _FIELDS, group, rank)
        try:
            found = MatrixDescriptor.decode(word)
        except DescriptorError:  # The instruction says so.
            return
        if row := found.row_of_pattern:
            yield (
                ALIGNMENT,
                group,
                (
                    f"{name} says that a matrix begins at {found.address:#x} and that its base offset is "
                    f"{found.base_offset}: {128 * row} bytes behind the first row of the swizzle's pattern, which "
                    f"repeats every {8 * found.swizzle} bytes"
                ),
            )

    def _ranks(self, pc: int, name: str, fields: int, group: int, rank: int) -> Iterator[tuple[str, int, str]]:
        if self._size == 1:
            return
        known = self._fields.setdefault((pc, name), {})
        if fields in (seen := known.setdefault(rank, {})):
            return
        seen[fields] = group
        pairs = [(rank, fields)] if rank else [(r, f) for r, those in known.items() if r for f in those]
        for other, theirs in pairs:
            if any(_has_rank(theirs, plain, other) for plain in known.get(0, ())):
                text = (
                    f"{name} has the rank of its CTA in the cluster, {other}, from bit {_RANK} on: a matrix "
                    f"descriptor is made of the low 18 bits of an address (& {_ADDRESS_MASK:#x})"
                )
                yield "rank", known[other][theirs], text


def _has_rank(fields: int, plain: int, rank: int) -> bool:
    """Whether fields are those of CTA 0 with a rank in them."""
    added = rank << _RANK - _FIELDS
    return fields != plain and fields in (plain + added, plain | added)
