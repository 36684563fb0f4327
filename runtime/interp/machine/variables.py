"""The first bytes of a module's variables: PTX ISA 5.4.4 (Initializers)."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from ....dialect.ptx.text.constant_expressions import ConstantError, evaluate
from ....dialect.ptx.text.syntax import Variable
from ...numerics.array import Array
from ..errors import DecodeError

Address = Callable[[str], int | None]
"""The generic address of a variable or a function by its name; None if there is none."""

_SYMBOL = re.compile(
    r"(?:(?P<mask>0[xX][0-9a-fA-F]+)\((?P<masked>.+)\)|generic\((?P<generic>[\w$%]+)\)|(?P<name>[\w$%]+))"
    r"(?P<offset>[+-](?:0[xX][0-9a-fA-F]+|\d+))?"
)


def initial(variable: Variable, size: int, address: Address) -> Array:
    """The first bytes of a variable: zeros, or what its initialiser says.

    Raises:
        DecodeError: for an initialiser that cannot be read, or that is too long.
    """
    data = np.zeros(size, np.uint8)
    if variable.init is None:
        return data
    items = [item for item in re.split(r"[{},]", re.sub(r"\s+", "", variable.init)) if item]
    try:
        encoded = b"".join(_word(variable.type, item, address) for item in items)
    except (ValueError, OverflowError) as error:
        raise DecodeError(f"variable '{variable.name}': initialiser '{variable.init}' is not supported") from error
    if len(encoded) > size:
        raise DecodeError(f"variable '{variable.name}' has {size} bytes, its initialiser {len(encoded)}")
    data[: len(encoded)] = np.frombuffer(encoded, np.uint8)
    return data


def _word(type: str, text: str, address: Address) -> bytes:
    """One item. Raises ValueError if it is no constant and no name."""
    size = int(re.sub(r"\D", "", type)) // 8
    if text[:2].lower() in ("0f", "0d") and len(text) in (10, 18) and "(" not in text:
        return int(text[2:], 16).to_bytes(size, "little")
    if type[0] == "f" or (type.startswith("b") and "." in text):
        return np.array(float(_constant(text)), f"f{size}").tobytes()
    try:
        value = _constant(text)
    except ValueError:
        value = _address(text, address)
    if isinstance(value, float):
        raise ValueError(text)
    return (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _constant(text: str) -> int | float:
    """The value of a constant expression. Raises ValueError if it is none."""
    try:
        return evaluate(text)
    except ConstantError as error:
        raise ValueError(str(error)) from error


def _address(text: str, address: Address) -> int:
    """The address of `f`, `x+8`, `generic(x)`, or the byte of one that `0xFF00(x)` masks out."""
    match = _SYMBOL.fullmatch(text)
    if match is None:
        raise ValueError(text)
    if match["mask"]:
        mask = int(match["mask"], 0)
        return (_address(match["masked"], address) & mask) >> ((mask & -mask).bit_length() - 1)
    found = address(match["generic"] or match["name"])
    if found is None:
        raise DecodeError(f"'{match['generic'] or match['name']}' is not declared in this module")
    return found + int(match["offset"] or "0", 0)
