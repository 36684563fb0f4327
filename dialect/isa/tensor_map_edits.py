"""What `tensormap.replace` writes where: a field of the 128 bytes of a tensor map in tile mode.

Source: machine code that ptxas 13.0 makes for sm_90a. It leaves the bit of tf32 set when the elements become others.
"""

from __future__ import annotations

from typing import NamedTuple

from .tensor_map import ELEMENTS

ORDERED = ("box_dim", "global_dim", "element_stride", "global_stride")
"""The fields that each dimension has."""

MOST_STRIDES = 4


class Edit(NamedTuple):
    """Of the 32-bit word at a byte of the map, the bits of a mask become those of a value."""

    byte: int
    mask: int
    bits: int


class EditError(ValueError):
    """A field that no map of tile mode has, or a value that is none of it."""


def edits(field: str, ordinal: int, value: int) -> list[Edit]:
    """What replacing a field does; `ordinal` is the dimension for fields that are `ORDERED`, else 0.

    Raises:
        EditError: for what these maps do not have.
    """
    match field:
        case "global_address":
            return [Edit(0x00, 0xFFFFFFFF, value & 0xFFFFFFFF), Edit(0x04, 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF)]
        case "rank":
            return [_bits(0x08, 4, 3, value)]
        case "elemtype":
            return _element(value)
        case "interleave_layout":
            return [_bits(0x08, 11, 2, value)]
        case "swizzle_mode" if value < 4:
            return [_bits(0x08, 13, 2, value)]
        case "fill_mode":
            return [_bits(0x08, 15, 1, value)]
        case "box_dim":
            return [_bits(0x34, 24, 8, value - 1) if ordinal == 0 else _bits(0x38, 8 * (ordinal - 1), 8, value - 1)]
        case "global_dim":
            return [_bits(0x20 + 4 * ordinal, 0, 32, value - 1)]
        case "element_stride":
            return [_bits(0x34, 3 * ordinal, 3, value - 1)]
        case "global_stride" if ordinal < MOST_STRIDES:
            return [_bits(0x0C + 4 * ordinal, 0, 32, value >> 4), _bits(0x1C, 4 * ordinal, 4, value >> 36)]
        case "global_stride":
            raise EditError(f"a tensor map has the strides 0 to {MOST_STRIDES - 1}, got number {ordinal}")
        case _:
            raise EditError(f"the maps of tile mode have no {field} {value}")


def _element(value: int) -> list[Edit]:
    if value >= len(ELEMENTS):
        raise EditError(f"expected an element type of 0 to {len(ELEMENTS) - 1}, got {value}")
    element = ELEMENTS[value]
    return [_bits(0x08, 7, 4, element.code), *([_bits(0x08, 16, 1, 1)] if element.rounded else [])]


def _bits(byte: int, low: int, width: int, value: int) -> Edit:
    mask = (1 << width) - 1
    return Edit(byte, mask << low, (value & mask) << low)
