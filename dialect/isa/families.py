"""All the matrix instructions of warps and warpgroups by family, the rows behind a spelling, and the ISA's sections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from heapq import nsmallest

from . import mma, moves, wgmma
from .form import Form, Key, order_key

# What the sections of PTX ISA 9.7.14 and 9.7.15 are about, for tables that are grouped as the manual is.

SECTIONS = {
    "9.7.14.4.3": "wmma.load",
    "9.7.14.4.4": "wmma.store",
    "9.7.14.4.5": "wmma.mma",
    "9.7.14.5.1": "mma m8n8k4, f16",
    "9.7.14.5.2": "mma m8n8k4, f64",
    "9.7.14.5.3": "mma m8n8k16",
    "9.7.14.5.4": "mma m8n8k32",
    "9.7.14.5.5": "mma m8n8k128",
    "9.7.14.5.6": "mma m16n8k4",
    "9.7.14.5.7": "mma m16n8k8",
    "9.7.14.5.8": "mma m16n8k16, 16 bits and wider",
    "9.7.14.5.9": "mma m16n8k16, 8 bits",
    "9.7.14.5.10": "mma m16n8k32",
    "9.7.14.5.11": "mma m16n8k64",
    "9.7.14.5.12": "mma m16n8k128",
    "9.7.14.5.13": "mma m16n8k256",
    "9.7.14.5.15": "ldmatrix",
    "9.7.14.5.16": "stmatrix",
    "9.7.14.5.17": "movmatrix",
    "9.7.14.6.2.1": "mma.sp m16n8k16, f16 and bf16",
    "9.7.14.6.2.2": "mma.sp m16n8k32, f16 and bf16",
    "9.7.14.6.2.3": "mma.sp m16n8k16, tf32",
    "9.7.14.6.2.4": "mma.sp m16n8k8, tf32",
    "9.7.14.6.2.5": "mma.sp m16n8k32, 8 bits",
    "9.7.14.6.2.6": "mma.sp m16n8k64, 8 bits",
    "9.7.14.6.2.7": "mma.sp m16n8k64, 4 bits",
    "9.7.14.6.2.8": "mma.sp m16n8k128, 4 bits",
    "9.7.15.5.2": "wgmma.mma_async",
    "9.7.15.6": "wgmma.mma_async.sp",
}
"""Titles by number, in the order of the manual."""


def order(section: str) -> tuple[int, ...]:
    """What sorts section numbers as the manual does: 9.7.14.5.9 before 9.7.14.5.10."""
    return tuple(int(part) for part in section.split("."))


# All the matrix instructions of warps and warpgroups, family by family, and the rows behind a spelling.
#
# Source: PTX ISA 9.7.14 and 9.7.15.

# Few kernels have `wmma`: its module is imported when one asks for it.


def _wmma_loads() -> tuple[Form, ...]:
    from .wmma import load_rows

    return load_rows()


def _wmma_stores() -> tuple[Form, ...]:
    from .wmma import store_rows

    return store_rows()


def _wmma_products() -> tuple[Form, ...]:
    from .wmma import mma_rows

    return mma_rows()


FAMILIES: Mapping[str, Callable[[], tuple[Form, ...]]] = {
    # 9.7.14.4
    "wmma.load": _wmma_loads,
    "wmma.store": _wmma_stores,
    "wmma.mma": _wmma_products,
    # 9.7.14.5
    "mma": mma.rows,
    "ldmatrix": moves.load_rows,
    "stmatrix": moves.store_rows,
    "movmatrix": lambda: (moves.MOVMATRIX,),
    # 9.7.14.6
    "mma.sp": mma.sparse_rows,
    # 9.7.15.5 and .6
    "wgmma.mma_async": wgmma.rows,
}
"""The rows of each instruction, by its name."""


ROOTS = frozenset(name.partition(".")[0] for name in FAMILIES)
"""The first words of these instructions."""

SPARSE = frozenset(("sp", "sp::ordered_metadata"))
"""The qualifiers of `mma.sp`, wherever they stand."""


def family(spelling: str) -> str | None:
    """The instruction that an opcode begins with, such as "wmma.load"; None if it is none of these."""
    first, *words = spelling.split(".")
    if first == "mma":
        return "mma.sp" if not SPARSE.isdisjoint(words) else first
    name = f"{first}.{words[0]}" if words else first
    return name if name in FAMILIES else first if first in FAMILIES else None


def _others(name: str) -> Iterator[Form]:
    """What older PTX versions have of a family besides the text."""
    if name in ("wmma.load", "wmma.store", "wmma.mma"):
        from .wmma import former_rows

        yield from (row for row in former_rows() if family(row.spelling) == name)


@cache
def _spelled(name: str) -> Mapping[str, Form]:
    """The rows of a family by their spelling."""
    return {row.spelling: row for row in FAMILIES[name]()}


@cache
def _byorder_key(name: str) -> Mapping[Key, Form]:
    """The rows of a family whatever the order of qualifiers, those of the text before others."""
    return {order_key(row.spelling): row for row in (*_others(name), *FAMILIES[name]())}


def find(opcode: str) -> Form | None:
    """The row of an opcode, whatever the order of its qualifiers."""
    name = family(opcode)
    if name is None:
        return None
    return _spelled(name).get(opcode) or _byorder_key(name).get(order_key(opcode))


# The spellings most like one that does not exist.


def likely(opcode: str) -> list[str]:
    """The spellings of these families that have most words in common with an opcode that does not exist."""
    name, root = family(opcode), opcode.partition(".")[0]
    names = [name] if name else [n for n in FAMILIES if n.partition(".")[0] == root]
    mask, masks = _mask(opcode), {spelling: other for n in names for spelling, other in _masks(n).items()}
    return nsmallest(LIKELY, masks, key=lambda spelling: (masks[spelling] ^ mask).bit_count())


LIKELY = 24
"""How many of them are compared in full."""

_BITS: dict[str, int] = {}


def _mask(spelling: str) -> int:
    """The words of a spelling as bits."""
    mask = 0
    for part in spelling.split("."):
        mask |= 1 << _BITS.setdefault(part, len(_BITS))
    return mask


@cache
def _masks(name: str) -> dict[str, int]:
    """All spellings of a family, as bits."""
    return {row.spelling: _mask(row.spelling) for row in FAMILIES[name]()}
