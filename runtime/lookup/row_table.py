"""The support table of the other instructions, those that are no matrix instructions: a line for each row."""

from __future__ import annotations

from collections.abc import Sequence

from ...dialect.isa.families import FAMILIES
from ...dialect.isa.targets import Target, Version
from ...dialect.ptx.instructions import ROWS
from ...dialect.ptx.rows.grammar import Row, pieces
from ..errors import WarploomError
from .isa_table import Json, Line, Query, as_target, as_version, version_text


def rows(query: Query) -> tuple[Row, ...]:
    """The rows of the instruction that a query names, in the order of the manual; none for a matrix instruction.

    Raises:
        WarploomError: if the target or the version that is asked for has none of them; for a target or version that
            there is not; for a type or shape, which these have not.
    """
    name = query.family or ""
    if not name or any(f"{family}.".startswith(f"{name}.") for family in FAMILIES):
        return ()
    named = [row for row in ROWS if f"{row.samples()[0]}.".startswith(f"{name}.")]
    if named and (query.type or query.shape):
        raise WarploomError(f"only matrix instructions are asked for by type and shape, got {name}")
    target, version = as_target(query.target), as_version(query.ptx)
    found = [row for row in named if _has(row, target, version)]
    if named and not found:
        needed = dict.fromkeys(f"PTX {version_text(row.ptx)} and {row.requirement()}" for row in named)
        raise WarploomError(f"there is no form of {query}; needed: {'; or '.join(needed)}")
    return tuple(found)


def _has(row: Row, target: Target | None, version: Version | None) -> bool:
    since = row.since(target) if target else row.ptx
    return since is not None and (version is None or since <= version)


def row_lines(found: Sequence[Row], query: Query, every: bool = False) -> tuple[Line, ...]:
    """The rows as patterns, or a line for each of their spellings."""
    target = as_target(query.target)
    table: list[Line] = []
    for row in found:
        for text, count in [(s, 1) for s in row.spellings()] if every else [(_shown(row), row.size)]:
            since = (row.since(target) if target else None) or row.ptx
            operands = f"  {row.operands}" if row.operands else ""
            table.append(Line(row.section, version_text(since), row.requirement(), f"{text}{operands}", count))
    return tuple(table)


def row_objects(found: Sequence[Row], query: Query) -> list[dict[str, Json]]:
    """The fields of the rows, and since when the target has them."""
    target = as_target(query.target)
    return [
        {
            "spelling": _shown(row),
            "operands": row.operands,
            "section": row.section,
            "ptx": version_text((row.since(target) if target else None) or row.ptx),
            "requirement": row.requirement(),
            "interpreter": row.means,
        }
        for row in found
    ]


def _shown(row: Row) -> str:
    """A row's spelling as the table writes those of matrix instructions."""
    text = ""
    for piece in pieces(row.spelling):
        words = [word for word in piece.alternatives if word]
        if len(words) == 1:
            one = words[0]
        elif words and all(word[0] == "." for word in words):
            one = f".({'|'.join(word[1:] for word in words)})"
        else:
            one = f"({'|'.join(words)})" if words else ""
        text += f"[{one}]" if "" in piece.alternatives and words else one
    return text
