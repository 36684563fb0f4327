"""What other packages add to this one, by entry points. Nothing is looked for until something is asked for by a name
that this package does not have.

| group | a name is that of | and the object is |
|---|---|---|
| `xdsl.universe` | anything | a `xdsl.universe.Universe` of dialects, passes and targets |
| `warploom.patterns` | a pattern, for strategies | a class of rewrite patterns |
| `warploom.lowerings` | an operation | the module that has the function `@lowers` |
| `warploom.models` | a model, for `warp-schedule{model=...}` | a function of an operation and a target to fields |
| `warploom.rows` | anything | rows of PTX instructions |
| `warploom.meanings` | a meaning that rows name | the module that has the function `@meaning` |
| `warploom.checks` | a check | a function of `Findings` to an observer of the interpreter |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

UNIVERSES = "xdsl.universe"
PATTERNS = "warploom.patterns"
LOWERINGS = "warploom.lowerings"
MODELS = "warploom.models"
ROWS = "warploom.rows"
MEANINGS = "warploom.meanings"
CHECKS = "warploom.checks"

OF_NAMES = (PATTERNS, LOWERINGS, MODELS, ROWS, MEANINGS, CHECKS)
"""The groups of this package."""


@cache
def entries(group: str) -> Mapping[str, EntryPoint]:
    """The entry points of a group, by name."""
    from importlib.metadata import entry_points  # reads the metadata of all installed packages: 20 ms

    return {entry.name: entry for entry in entry_points(group=group)}


@cache
def loaded(group: str, name: str) -> object:
    """The object of an entry point; None if there is none."""
    entry = entries(group).get(name)
    return None if entry is None else entry.load()


def everything(group: str) -> Iterator[object]:
    """What all entry points of a group name, imported."""
    return (loaded(group, name) for name in entries(group))


def origin(entry: EntryPoint) -> str:
    """The package and the version that an entry point is of."""
    return "an unknown package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
