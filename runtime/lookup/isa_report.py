"""What `warploom isa` prints: tables on a terminal, plain lines elsewhere, or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...dialect.ptx.rows.grammar import Row
from ..errors import WarploomError
from .isa_table import Line, Query, as_json, by_section, expanded, forms, lines
from .row_table import row_lines, row_objects, rows


def report(query: Query, every: bool = False, as_objects: bool = False) -> int:
    """Print the table: a line for each form if `every`, or a list of JSON objects. Returns the exit code.

    Raises:
        WarploomError: if there is no such form, or no such thing as is asked for.
    """
    if others := rows(query):
        return _other(others, query, every, as_objects)
    found = forms(query)
    if as_objects:
        print(json.dumps([as_json(form, query.target) for form in found], indent=1))
        return 0
    if not found:
        raise WarploomError(_nothing(query))
    return _print(expanded(found, query.target) if every else lines(found, query.target), query)


def _other(found: Sequence[Row], query: Query, every: bool, as_objects: bool) -> int:
    """The same of instructions that are no matrix instructions."""
    if as_objects:
        print(json.dumps(row_objects(found, query), indent=1))
        return 0
    return _print(row_lines(found, query, every), query)


def _print(table: Sequence[Line], query: Query) -> int:
    if sys.stdout.isatty():
        _tables(table, query)
    else:
        print(plain(table, query))
    return 0


def _nothing(query: Query) -> str:
    """Why there is nothing to show: the reason is the target or the version, if without them there is something."""
    anywhere = forms(Query(family=query.family, type=query.type, shape=query.shape))
    if not anywhere:
        return f"there is no form of {query}"
    since = dict.fromkeys(f"PTX {line.ptx} and {line.requirement}" for line in lines(anywhere))
    return f"there is no form of {query}; needed: {'; or '.join(since)}"


def _head(found: Sequence[Line], query: Query) -> str:
    count = sum(line.count for line in found)
    return f"{query}: {count} form{'s' if count > 1 else ''}"


def plain(found: Sequence[Line], query: Query) -> str:
    """The table as plain text: PTX version, where if no target is given, the forms."""
    out = [_head(found, query)]
    for title, group in by_section(found).items():
        wide = max(len(line.requirement) for line in group)
        out += ["", title]
        for line in group:
            where = "" if query.target else f"{line.requirement.ljust(wide)}  "
            out.append(f"  PTX {line.ptx}  {where}{line.text}")
    return "\n".join(out)


def _tables(found: Sequence[Line], query: Query) -> None:
    console = Console(highlight=False)
    console.print(_head(found, query), style="bold")
    for title, group in by_section(found).items():
        table = Table(title=title, title_justify="left", title_style="bold cyan", expand=False)
        table.add_column("PTX", no_wrap=True)
        if not query.target:
            table.add_column("GPUs", min_width=16, max_width=28)
        table.add_column("forms", overflow="fold")
        table.add_column("count", justify="right", no_wrap=True)
        for line in group:
            where = () if query.target else (line.requirement,)
            table.add_row(line.ptx, *where, Text(line.text), str(line.count))
        console.print(table)
