"""Tensor maps as arguments: which array a kernel's tensor copies reach, and the box that one of them moves.

Names and limits are those of the driver's `cuTensorMapEncodeTiled` and `cuTensorMapEncodeIm2col`; dimensions are in
numpy's order, slowest first.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from ...dialect.isa.tensor_map import ELEMENTS, Element, PixelBox, TensorMapError, TensorMapFields
from ..base.errors import ArgumentError
from .arrays import Argument, borrow
from .elements import map_element

PROMOTIONS = (0, 64, 128, 256)


@dataclass(frozen=True)
class EncodedMap:
    """The tensor map of the part of an array that begins `offset` bytes behind its start: all of its fields are known
    but the address."""

    array: object
    offset: int
    known: TensorMapFields
    l2_promotion: int = 0
    memory: object = None

    def borrowed(self) -> Argument:
        """The array."""
        return borrow(self.array)

    def fields(self, address: int) -> TensorMapFields:
        """What the map says, for an array that begins at an address.

        Raises:
            ArgumentError: for an address that no map has.
        """
        try:
            return replace(self.known, address=address + self.offset)
        except TensorMapError as error:
            raise ArgumentError(
                f"tensor map of {self.borrowed()}: {error} (dimensions count from the fastest)"
            ) from None


@dataclass(frozen=True)
class TensorMap:
    """A tensor map of an array. Pass it for a parameter `.param .align 64 .b8 map[128]`, as a field of a struct, or for
    a pointer to a map, such as `.param .u64 map`.

    - `box`: the extents of the box that one copy moves, in elements, with the slowest dimension first. With a
      `PixelBox` the map is one of im2col mode. Its corners are in numpy's order as well: D, H, W.
    - `swizzle`: 0, 32, 64 or 128 bytes.
    - `element_strides`: for each dimension a step n; every n-th element of the box is copied.
    - `fill`: "zero" or "nan", the value that is read where the box lies outside of the array.
    - `l2_promotion`: 0, 64, 128 or 256 bytes. It changes only the speed.
    - `type`: the name of an element type, if it is not that of the array (`tf32`, `u8`, ...).

    Raises:
        ArgumentError: if the driver would refuse the map; the message has the limit.
    """

    array: object
    box: Sequence[int] | PixelBox
    swizzle: int = 0
    element_strides: Sequence[int] | None = None
    interleave: int = 0
    fill: str = "zero"
    l2_promotion: int = 0
    type: str = ""
    memory: object = field(default=None, repr=False)
    """The bytes of the array, where they lie elsewhere than in `array`, whose sizes still hold."""

    def __post_init__(self) -> None:
        if self.fill not in ("zero", "nan"):
            raise ArgumentError(f"expected fill to be 'zero' or 'nan', got {self.fill!r}")
        if self.l2_promotion not in PROMOTIONS:
            raise ArgumentError(f"expected l2_promotion to be 0, 64, 128 or 256, got {self.l2_promotion!r}")
        if not isinstance(self.box, PixelBox):
            _check_integers("box", self.box)
        if self.element_strides is not None:
            _check_integers("element_strides", self.element_strides)
        self.fields(0)

    def borrowed(self) -> Argument:
        """The array."""
        return borrow(self.array)

    def element(self) -> Element:
        """The element type.

        Raises:
            ArgumentError: if maps have no such element type.
        """
        name = self.type or self.borrowed().element
        element = next((e for e in ELEMENTS if e.name == name), None) if self.type else map_element(name)
        if element is None:
            known = ", ".join(e.name for e in ELEMENTS)
            raise ArgumentError(f"a tensor map has no elements of type {name}; known: {known}")
        return element

    def fields(self, address: int) -> TensorMapFields:
        """The fields of the map for an array at this address.

        Raises:
            ArgumentError: if the driver would refuse the map.
        """
        array, element = self.borrowed(), self.element()
        if array.itemsize != element.size:
            raise ArgumentError(
                f"elements of {element.name} have {element.size} bytes, those of {array} {array.itemsize}"
            )
        *strides, last = array.byte_strides or (element.size,)
        if last != element.size and array.shape[-1:] != (1,):
            raise ArgumentError(f"the last dimension of {array} must be contiguous, got a stride of {last} bytes")
        steps = self.element_strides or (1,) * len(array.shape)
        box = self.box.reversed() if isinstance(self.box, PixelBox) else tuple(reversed(self.box))
        try:
            return TensorMapFields(
                address, element, tuple(reversed(array.shape)), tuple(reversed(strides)), box,
                tuple(reversed(steps)), self.swizzle, self.interleave, self.fill == "nan",
            )  # fmt: skip
        except TensorMapError as error:
            raise ArgumentError(f"tensor map of {array}: {error} (dimensions count from the fastest)") from None


def _check_integers(name: str, given: object) -> None:
    try:
        for number in cast("Sequence[int]", given):
            operator.index(number)
    except TypeError:
        raise ArgumentError(f"expected {name} to be a sequence of integers, got {given!r}") from None
