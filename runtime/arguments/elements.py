"""Element types that arrays can have: bits in memory, and what numpy, torch and tensor maps call them."""

from __future__ import annotations

from typing import NamedTuple

from ...dialect.isa.tensor_map import ELEMENTS, Element


class ElementNames(NamedTuple):
    """The names of one element type. `bits` is its size in memory. `numpy` is the type of equal words in numpy,
    ml_dtypes and torch. `map` is the type in a tensor map, which has 8-bit floats as bytes; "" if maps have none."""

    bits: int
    numpy: str
    map: str = ""


ELEMENT_NAMES = {
    "f16": ElementNames(16, "float16", "f16"),
    "bf16": ElementNames(16, "bfloat16", "bf16"),
    "f32": ElementNames(32, "float32", "f32"),
    "f64": ElementNames(64, "float64", "f64"),
    "f8E4M3FN": ElementNames(8, "float8_e4m3fn", "u8"),
    "f8E5M2": ElementNames(8, "float8_e5m2", "u8"),
    "f8E8M0FNU": ElementNames(8, "float8_e8m0fnu", "u8"),
    "f6E2M3FN": ElementNames(8, "float6_e2m3fn", "u8"),
    "f6E3M2FN": ElementNames(8, "float6_e3m2fn", "u8"),
    "f4E2M1FN": ElementNames(4, "float4_e2m1fn"),
    "i1": ElementNames(1, "bool"),
    "i4": ElementNames(4, "int4"),
    "ui4": ElementNames(4, "uint4"),
    "i8": ElementNames(8, "int8", "u8"),
    "i16": ElementNames(16, "int16", "u16"),
    "i32": ElementNames(32, "int32", "s32"),
    "i64": ElementNames(64, "int64", "s64"),
    "ui8": ElementNames(8, "uint8", "u8"),
    "ui16": ElementNames(16, "uint16", "u16"),
    "ui32": ElementNames(32, "uint32", "u32"),
    "ui64": ElementNames(64, "uint64", "u64"),
}
"""Element types by MLIR's names. Signless integers read as signed; elements of 6 bits take a byte each."""


def memory_bytes(element: str, count: int) -> int:
    """Bytes of `count` elements in the memory of a kernel."""
    return -(-count * ELEMENT_NAMES[element].bits // 8)


def map_element(kind: str) -> Element | None:
    """The element type of a tensor map for an MLIR type, or tf32; None without one."""
    name = ELEMENT_NAMES[kind].map if kind in ELEMENT_NAMES else kind
    return next((e for e in ELEMENTS if e.name == name), None)
