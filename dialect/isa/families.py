"""All the matrix instructions of warps and warpgroups, family by family, and the rows behind a spelling.

Source: PTX ISA 9.7.14 and 9.7.15.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from . import mma, mma_sp, moves, wgmma, wmma
from .form import Form
from .types import ELEMENT_TYPES

FAMILIES: Mapping[str, Callable[[], tuple[Form, ...]]] = {
    # 9.7.14.4
    "wmma.load": wmma.load_rows,
    "wmma.store": wmma.store_rows,
    "wmma.mma": wmma.mma_rows,
    # 9.7.14.5
    "mma": mma.rows,
    "ldmatrix": moves.load_rows,
    "stmatrix": moves.store_rows,
    "movmatrix": lambda: (moves.MOVMATRIX,),
    # 9.7.14.6
    "mma.sp": mma_sp.rows,
    # 9.7.15.5 and .6
    "wgmma.mma_async": wgmma.rows,
}
"""The rows of each instruction, by its name."""


SPARSE = frozenset(("sp", "sp::ordered_metadata"))
"""The qualifiers of `mma.sp`, wherever they stand."""


def family(spelling: str) -> str | None:
    """The instruction that an opcode begins with, such as "wmma.load"; None if it is none of these."""
    first, *words = spelling.split(".")
    if first == "mma":
        return "mma.sp" if any(word in SPARSE for word in words) else first
    name = f"{first}.{words[0]}" if words else first
    return name if name in FAMILIES else first if first in FAMILIES else None


BY_SPELLING: Mapping[str, Form] = {row.spelling: row for rows in FAMILIES.values() for row in rows()}
"""Every spelling of the text and its row."""

_IN_ORDER = (
    frozenset(ELEMENT_TYPES),
    frozenset(("row", "col")),
    frozenset(("b8x16", "b6x16_p32", "b4x16_p64")),
    frozenset(("xor", "and", "popc")),
)
"""Qualifiers that must keep their order among their like."""

_ORDERED = frozenset[str]().union(*_IN_ORDER)

Key = tuple[tuple[str, ...], ...]


def _key(spelling: str) -> Key:
    words = spelling.split(".")
    lead = 3 if words[0] == "wmma" and words[1] != "mma" else 1
    return (
        tuple(words[:lead]),
        *(tuple(w for w in words if w in alike) for alike in _IN_ORDER),
        tuple(sorted(w for w in words[lead:] if w not in _ORDERED)),
    )


@cache
def _by_key() -> dict[Key, Form]:
    """All rows whatever the order of qualifiers: what older and newer PTX versions have, then what the text has."""
    others = (*wmma.former_rows(), *mma.later_rows(), *mma_sp.later_rows())
    return {_key(row.spelling): row for row in (*others, *BY_SPELLING.values())}


def find(opcode: str) -> Form | None:
    """The row of an opcode, whatever the order of its qualifiers.

    The text gives one order. ptxas takes any, and published kernels use that: `ldmatrix.sync.aligned.x4.m8n8`. Only
    types, layouts, formats and bit operations must keep theirs, each among their like, and what is loaded or stored
    (`wmma.load.a`) comes first.
    """
    if (exact := BY_SPELLING.get(opcode)) is not None:
        return exact
    return None if family(opcode) is None else _by_key().get(_key(opcode))
