"""Element types that arrays can have, as MLIR spells them, and the bits that an element takes in memory."""

from __future__ import annotations

from collections.abc import Mapping

from ...dialect.isa.tensor_map import ELEMENTS, Element

ELEMENT_BITS: Mapping[str, int] = {
    "f16": 16, "bf16": 16, "f32": 32, "f64": 64,
    "f8E4M3FN": 8, "f8E5M2": 8, "f8E8M0FNU": 8, "f6E2M3FN": 8, "f6E3M2FN": 8, "f4E2M1FN": 4,
    "i1": 1, "i4": 4, "ui4": 4, "i8": 8, "i16": 16, "i32": 32, "i64": 64,
    "ui8": 8, "ui16": 16, "ui32": 32, "ui64": 64,
}  # fmt: skip
"""Elements of 6 bits take a byte each; `dtypes.DTYPES` has the numpy type of each."""


def memory_bytes(element: str, count: int) -> int:
    """Bytes that many elements take in the memory of a kernel."""
    return -(-count * ELEMENT_BITS[element] // 8)


MAP_ELEMENTS = {
    "f16": "f16", "bf16": "bf16", "f32": "f32", "f64": "f64", "tf32": "tf32",
    "i8": "u8", "ui8": "u8", "f8E4M3FN": "u8", "f8E5M2": "u8",
    "i16": "u16", "ui16": "u16", "i32": "s32", "ui32": "u32", "i64": "s64", "ui64": "u64",
}  # fmt: skip
"""What the map calls an array's elements: 8-bit floats are bytes to it."""


def map_element(kind: str) -> Element | None:
    """What a map calls elements of an MLIR type; None if it has none such."""
    return next((e for e in ELEMENTS if e.name == MAP_ELEMENTS.get(kind)), None)
