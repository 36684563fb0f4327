"""All instruction rows, and finding the ones an opcode spells."""

from __future__ import annotations

from functools import cache, lru_cache

from .nearest import nearest as nearest_spellings
from .nearest import nearest_roots
from .rows import (
    asynchronous,
    atomics,
    barriers,
    comparison,
    control,
    conversion,
    floating,
    integer,
    matrix,
    mbarrier,
    memory,
    movement,
    multimem,
    tensor,
    video,
    warpgroup,
)
from .rows.grammar import Bindings, Row

ROWS: tuple[Row, ...] = (
    *integer.ROWS,
    *floating.ROWS,
    *comparison.ROWS,
    *movement.ROWS,
    *conversion.ROWS,
    *memory.ROWS,
    *asynchronous.ROWS,
    *control.ROWS,
    *barriers.ROWS,
    *atomics.ROWS,
    *mbarrier.ROWS,
    *multimem.ROWS,
    *tensor.ROWS,
    *warpgroup.ROWS,
    *video.ROWS,
)
"""All but those of the matrix instructions, which `matrix.find` makes when they are asked for."""


@cache
def roots() -> frozenset[str]:
    """The first words of all opcodes that there are rows for."""
    return matrix.ROOTS | frozenset(_by_root())


@cache
def _by_root() -> dict[str, list[Row]]:
    table: dict[str, list[Row]] = {}
    for row in ROWS:
        table.setdefault(row.root, []).append(row)
    return table


@lru_cache(65536)
def find(opcode: str) -> tuple[tuple[Row, Bindings], ...]:
    """The rows one of whose spellings is `opcode`, each with what the qualifiers bind."""
    if forms := matrix.find(opcode):
        return tuple((form, {}) for form in forms)
    rows = _by_root().get(opcode.partition(".")[0], ())
    return tuple((row.spelled(opcode), bindings) for row in rows if (bindings := row.match(opcode)) is not None)


def canonical(opcode: str) -> str:
    """The opcode with its qualifiers in the order of the text; as it is where no row spells it."""
    found = find(opcode)
    return found[0][0].canonical(opcode) if found else opcode


@lru_cache(4096)
def nearest(opcode: str, count: int = 3) -> tuple[str, ...]:
    """The spellings most like one that does not exist, of the same opcode root where there is one: best first."""
    root = opcode.partition(".")[0]
    if root in matrix.ROOTS:
        return matrix.nearest(opcode, count)
    if root not in roots():
        return nearest_roots(root, roots(), count)
    return nearest_spellings(opcode, _by_root()[root], count)
