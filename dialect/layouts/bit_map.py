"""Linear maps over F2: what layouts, swizzles and their compositions are.

A map takes a number apart into bits, and sends the number to the xor of what its bits are sent to. It is given by the
images of the single bits, so composing, inverting and asking whether two lanes can meet are linear algebra over
a handful of bits, however large the matrix.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class BitMapError(ValueError):
    """Maps that do not fit each other, or have no inverse; the message says which."""


@dataclass(frozen=True, slots=True)
class BitMap:
    """A linear map from numbers of `len(images)` bits to numbers of `width` bits: bit i is sent to `images[i]`.

    Raises:
        BitMapError: if an image does not fit `width` bits.
    """

    images: tuple[int, ...]
    width: int

    def __post_init__(self) -> None:
        for bit, image in enumerate(self.images):
            if not 0 <= image < 1 << self.width:
                raise BitMapError(f"bit {bit}: expected an image of {self.width} bits, got {image:#b}")

    @staticmethod
    def identity(width: int) -> BitMap:
        """The map that changes nothing."""
        return BitMap.permutation(range(width))

    @staticmethod
    def permutation(places: Iterable[int]) -> BitMap:
        """The map that sends bit i to bit `places[i]`.

        Raises:
            BitMapError: if a place is not there, or there twice.
        """
        places = tuple(places)
        if sorted(places) != list(range(len(places))):
            raise BitMapError(f"expected each of the bits 0 to {len(places) - 1} once, got {places}")
        return BitMap(tuple(1 << place for place in places), len(places))

    def __call__(self, argument: int) -> int:
        value = 0
        for i, image in enumerate(self.images):
            if argument >> i & 1:
                value ^= image
        return value

    @property
    def rank(self) -> int:
        """How many bits the images span: the map has 2^rank values."""
        return span(self.images)

    def values(self) -> NDArray[np.intp]:
        """All values, by argument: an array of 2^len(images) numbers."""
        import numpy as np

        values = np.zeros(1, np.intp)
        for image in self.images:
            values = np.concatenate([values, values ^ image])
        return values

    def places(self) -> tuple[int, ...] | None:
        """Where each bit goes, if each goes to one bit of its own; None if the map is no permutation of bits."""
        if len(self.images) != self.width or {*self.images} != {1 << i for i in range(self.width)}:
            return None
        return tuple(image.bit_length() - 1 for image in self.images)


def span(numbers: Iterable[int]) -> int:
    """How many of the numbers are independent: the dimension of what they span by xor."""
    basis: list[int] = []
    for number in numbers:
        rest = number
        for known in basis:
            rest = min(rest, rest ^ known)
        if rest:
            basis.append(rest)
    return len(basis)


def compose(outer: BitMap, inner: BitMap) -> BitMap:
    """The map that applies `inner`, then `outer`.

    Raises:
        BitMapError: if what `inner` gives is not as wide as what `outer` takes.
    """
    if inner.width != len(outer.images):
        raise BitMapError(f"expected a map of {inner.width} bits to apply to {inner.width} bits, "
                          f"got one of {len(outer.images)}")  # fmt: skip
    return BitMap(tuple(map(outer, inner.images)), outer.width)


def is_bijection(bits: BitMap) -> bool:
    """Whether every value is that of exactly one argument."""
    return len(bits.images) == bits.width == bits.rank


def inverse(bits: BitMap) -> BitMap:
    """The map that takes a value back to its argument, by elimination.

    Raises:
        BitMapError: if the map is no bijection.
    """
    if not is_bijection(bits):
        raise BitMapError(f"a map from {len(bits.images)} bits to {bits.width} bits of rank {bits.rank} has no inverse")
    # each row is (image, argument); elimination turns the images into the single bits
    rows = [(image, 1 << i) for i, image in enumerate(bits.images)]
    for bit in range(bits.width):
        at = next(i for i in range(bit, bits.width) if rows[i][0] >> bit & 1)
        rows[bit], rows[at] = rows[at], rows[bit]
        image, argument = rows[bit]
        rows = [
            (other ^ image, source ^ argument) if i != bit and other >> bit & 1 else (other, source)
            for i, (other, source) in enumerate(rows)
        ]
    return BitMap(tuple(argument for _, argument in rows), bits.width)
