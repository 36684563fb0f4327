"""The matrix descriptor of `wgmma`: where a matrix lies in shared memory, and how, in one word of 64 bits.

A matrix is made of 16-byte units. Along K (K-major) eight rows of units make a core matrix; `stride` leads to the next
eight rows and, without a swizzle, `leading` to the next unit along K. Along M or N (MN-major) the roles change, as
`offset` says. A swizzle of 32, 64 or 128 bytes puts so many bytes of a row side by side and permutes their units by
bits of the address.
Source: PTX ISA 9.7.15.5.1.2 (Shared Memory Matrix Layout, Matrix Descriptor Format).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

UNIT = 16
"""Bytes that always stay together."""

ADDRESS_BITS = 18
"""Of a byte address in shared memory, what a descriptor holds."""

SWIZZLES = {0: 0, 128: 1, 64: 2, 32: 3}
"""Bytes of a swizzle, and the code of the two highest bits."""

_FIELDS = {"address": 0, "leading": 16, "stride": 32}
_FIELD_BITS = ADDRESS_BITS - 4
_BASE_OFFSET, _BASE_BITS, _SWIZZLE = 49, 3, 62
_UNUSED = ((1 << 64) - 1) & ~(
    sum(((1 << _FIELD_BITS) - 1) << at for at in _FIELDS.values()) | 7 << _BASE_OFFSET | 3 << _SWIZZLE
)

Place = TypeVar("Place", int, "NDArray[np.int64]")


class DescriptorError(ValueError):
    """A word that is no descriptor, or a layout that no descriptor can say."""


@dataclass(frozen=True, slots=True)
class MatrixDescriptor:
    """A matrix descriptor of `wgmma`. Its fields are in bytes: `swizzle` is 0 (none), 32, 64 or 128. `base_offset`
    counts rows of 128 bytes.

    Raises:
        DescriptorError: if an address or offset is not a multiple of 16 below 2^18, or for another swizzle.
    """

    address: int
    leading: int
    stride: int
    swizzle: int = 0
    base_offset: int = 0

    def __post_init__(self) -> None:
        for name in _FIELDS:
            value = int(getattr(self, name))
            if value % UNIT or not 0 <= value < 1 << ADDRESS_BITS:
                raise DescriptorError(
                    f"{name}: expected a multiple of {UNIT} bytes below {1 << ADDRESS_BITS}, got {value}"
                )
        if self.swizzle not in SWIZZLES:
            raise DescriptorError(f"expected a swizzle of 0, 32, 64 or 128 bytes, got {self.swizzle}")
        if not 0 <= self.base_offset < 1 << _BASE_BITS:
            raise DescriptorError(f"expected a base offset from 0 to 7, got {self.base_offset}")

    def encode(self) -> int:
        """The descriptor as a 64-bit word."""
        fields = sum(int(getattr(self, name)) // UNIT << at for name, at in _FIELDS.items())
        return fields | self.base_offset << _BASE_OFFSET | SWIZZLES[self.swizzle] << _SWIZZLE

    @staticmethod
    def decode(word: int) -> MatrixDescriptor:
        """The descriptor with the fields of a 64-bit word.

        Raises:
            DescriptorError: if bits are set that mean nothing.
        """
        if word & _UNUSED:
            raise DescriptorError(f"bits {word & _UNUSED:#x} of the matrix descriptor {word:#018x} mean nothing")
        fields = {name: (word >> at & (1 << _FIELD_BITS) - 1) * UNIT for name, at in _FIELDS.items()}
        swizzle = next(size for size, code in SWIZZLES.items() if code == word >> _SWIZZLE)
        return MatrixDescriptor(**fields, swizzle=swizzle, base_offset=word >> _BASE_OFFSET & 7)

    @property
    def span(self) -> int:
        """The contiguous bytes of a row before the next row begins."""
        return self.swizzle or UNIT

    @property
    def row_of_pattern(self) -> int:
        """The row of 128 bytes of the swizzle's pattern in which the matrix begins."""
        return (self.address // 128 - self.base_offset) % max(self.swizzle // 16, 1)

    def offset(self, mn: Place, k: Place, size: int, *, along_mn: bool) -> Place:
        """The offset from the start, before the swizzle, of the element of `size` bytes with index `mn` along M or N
        and index `k` along K."""
        if not along_mn:
            byte = k * size
            units = byte // UNIT * (UNIT if self.swizzle else self.leading)
            return mn % 8 * self.span + mn // 8 * self.stride + byte % UNIT + units
        byte = mn * size
        atoms, rows = (self.leading, self.stride) if self.swizzle else (self.stride, self.leading)
        return byte % self.span + byte // self.span * atoms + k % 8 * self.span + k // 8 * rows

    def swizzled(self, address: Place) -> Place:
        """The address of a byte after the swizzle. The pattern consists of rows of 128 bytes, and begins `base_offset`
        rows after a multiple of 1024 bytes."""
        mask = self.span // UNIT - 1
        return address ^ ((address >> 7) - self.base_offset & mask) << 4
