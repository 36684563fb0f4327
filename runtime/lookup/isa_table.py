"""The support table of all instructions, from the rows: in terminals, in plain lines, in JSON."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...dialect.isa.families import FAMILIES, SECTIONS, order
from ...dialect.isa.form import ELEMENT_TYPES, ElementType, Form, Shape
from ...dialect.isa.row import NEWEST, TARGETS, Row, Target, Version
from ...dialect.isa.row import target as target_row
from ...dialect.layouts.layout import Layout
from ...dialect.ptx.instructions import ROWS
from ...dialect.ptx.rows.grammar import PatternRow, pieces
from ..base.errors import WarploomError
from ..base.launch import known_target

Json = None | bool | int | str | Sequence["Json"] | Mapping[str, "Json"]

TYPES = (*ELEMENT_TYPES, "b16", "b8", "b6x16_p32", "b4x16_p64")
"""Names of element types that spellings have, those of matrix moves too."""

NOTATION = "`.(a|b)` stands for one of several qualifiers, and `[.a]` for an optional one."


@dataclass(frozen=True)
class Query:
    """A query for forms of instructions. A field that is None or empty does not restrict it."""

    target: str | None = None
    ptx: str | None = None
    family: str | None = None
    type: str | None = None
    shape: str | None = None

    def __str__(self) -> str:
        on = f" on {self.target}" if self.target else ""
        within = f" in PTX {self.ptx}" if self.ptx else ""
        shape = f" in shape {self.shape}" if self.shape else ""
        type = f" with {self.type}" if self.type else ""
        return f"{self.family or 'any instruction'}{shape}{type}{on}{within}"


@dataclass(frozen=True)
class Line:
    """Forms that differ in their qualifiers alone, as one pattern: `text`. `count` of them, since `ptx`."""

    section: str
    ptx: str
    requirement: str
    text: str
    count: int


def version_text(version: Version) -> str:
    """(8, 7) as "8.7"."""
    return f"{version[0]}.{version[1]}"


def forms(query: Query) -> tuple[Form, ...]:
    """The forms that match a query, in the order of the manual.

    Raises:
        WarploomError: for an unknown target, instruction, type, shape or PTX version.
    """
    target, version = as_target(query.target), as_version(query.ptx)
    names = _families(query.family)
    _require(query.type, "element type", TYPES)
    asked = [form for name in names for form in FAMILIES[name]()]
    if query.shape is not None:
        _require(query.shape, "shape", {word: None for form in asked for word in _words(form) if _is_shape(word)})
    kept = (form for form in asked if _has(form, query) and _available(form, target, version))
    return tuple(sorted(kept, key=lambda form: order(form.section)))


def as_target(name: str | None) -> Target | None:
    """The target of a name; ArgumentError if there is none."""
    return None if name is None else known_target(name)


def as_version(text: str | None) -> Version | None:
    """The PTX version of a text such as 8.7.

    Raises:
        WarploomError: if it is no version, or newer than the tables.
    """
    if text is None:
        return None
    major, dot, minor = text.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise WarploomError(f"expected a PTX version such as 8.7, got '{text}'")
    version = int(major), int(minor)
    if version > NEWEST:
        raise WarploomError(f"the newest PTX version in the tables is {version_text(NEWEST)}, got '{text}'")
    return version


def _families(name: str | None) -> tuple[str, ...]:
    """The instructions called `name`: `wmma` is all of `wmma.load`, `wmma.store`, `wmma.mma`."""
    if name is None:
        return tuple(FAMILIES)
    if name in FAMILIES:
        return (name,)
    within = tuple(family for family in FAMILIES if family.startswith(f"{name}."))
    if not within:
        _require(name, "instruction", ("wmma", *FAMILIES))
    return within


def _require(name: str | None, what: str, names: Iterable[str]) -> None:
    """Raises WarploomError if a name is unknown; the message has the most similar names."""
    names = tuple(names)
    if name is not None and name not in names:
        near = difflib.get_close_matches(name, names, 3, 0.5)
        raise WarploomError(f"unknown {what} '{name}'; " + (f"nearest: {', '.join(near)}; " if near else "")
                            + f"known: {', '.join(names)}")  # fmt: skip


def _words(form: Form) -> tuple[str, ...]:
    return tuple(form.spelling.split("."))


def _is_shape(word: str) -> bool:
    return word[:1] == "m" and word[1:2].isdecimal()


def _types(form: Form) -> Iterator[str]:
    """The names of a form's element types, including those that its spelling omits."""
    for field in ("a", "b", "c", "d", "type"):
        value = getattr(form, field, None)
        if isinstance(value, ElementType):
            yield value.name
    yield from (word for word in _words(form) if word in TYPES)


def _has(form: Form, query: Query) -> bool:
    if query.shape is not None and query.shape not in _words(form):
        return False
    return query.type is None or query.type in _types(form)


def _available(row: Row, target: Target | None, version: Version | None) -> bool:
    since = row.since(target) if target else row.ptx
    return since is not None and (version is None or since <= version)


def lines(forms_: Iterable[Form], target: str | None = None) -> tuple[Line, ...]:
    """The forms as patterns, in the order of the manual; `ptx` is since when the target has them, if one is given."""
    on = as_target(target)
    groups: dict[tuple[str, str, str], list[Form]] = {}
    for form in forms_:
        groups.setdefault((form.section, _since(form, on), form.requirement()), []).append(form)
    return tuple(
        Line(*key, text, count)
        for key, group in groups.items()
        for text, count in patterns(form.spelling for form in group)
    )


def expanded(forms_: Iterable[Form], target: str | None = None) -> tuple[Line, ...]:
    """A line for each form."""
    return tuple(line for form in forms_ for line in lines((form,), target))


def _since(row: Row, target: Target | None) -> str:
    """The PTX version since when a target has a row, or that which introduced it."""
    return version_text((row.since(target) if target else None) or row.ptx)


Pattern = tuple[frozenset[str], ...]
"""What may stand at each place of a spelling; "" says that nothing may."""


def patterns(spellings: Iterable[str]) -> list[tuple[str, int]]:
    """The spellings as few patterns, in order, and how many spellings each stands for; exactly these, none twice."""
    merging: list[Pattern] = [tuple(frozenset({word}) for word in s.split(".")) for s in dict.fromkeys(spellings)]
    while True:
        merged = _with_options(_with_choices(merging))
        if merged == merging:
            return [(_show(pattern), _count(pattern)) for pattern in merging]
        merging = merged


def _with_choices(patterns_: list[Pattern]) -> list[Pattern]:
    """Patterns that differ at one place become one."""
    for at in range(max(map(len, patterns_), default=0) - 1, -1, -1):
        groups: dict[tuple[Pattern, str, Pattern], list[frozenset[str]]] = {}
        for pattern in patterns_:
            words = pattern[at : at + 1]
            sort = "".join({_sort(word) for word in words[0]}) if words else ""
            groups.setdefault((pattern[:at], sort, pattern[at + 1 :]), []).extend(words)
        patterns_ = [(*head, *_union(words), *tail) for (head, _, tail), words in groups.items()]
    return patterns_


_SORTS = (
    {*TYPES},
    {"row", "col"},
    {"rn", "rz", "rm", "rp"},
    {"global", "shared", "shared::cta"},
    {"x1", "x2", "x4"},
    {"a", "b", "c"},
    {"and", "xor"},
    {"kind::mxf4", "kind::mxf4nvf4"},
)
"""Qualifiers that one place of a pattern may offer together; shapes are another sort."""


def _sort(word: str) -> str:
    """What sort of qualifier a word is: itself, if it has no like."""
    return "m" if _is_shape(word) else next((str(i) for i, sort in enumerate(_SORTS) if word in sort), word)


def _union(words: Sequence[frozenset[str]]) -> Pattern:
    return (frozenset(word for group in words for word in group),) if words else ()


def _with_options(patterns_: list[Pattern]) -> list[Pattern]:
    """Merges two patterns that differ by one qualifier into a pattern with an optional qualifier."""
    left = dict.fromkeys(patterns_)
    for longer in patterns_:
        for at in range(1, len(longer)):
            shorter = (*longer[:at], *longer[at + 1 :])
            if "" not in longer[at] and shorter in left and longer in left:
                del left[shorter], left[longer]
                left[(*longer[:at], longer[at] | {""}, *longer[at + 1 :])] = None
    return list(left)


def _count(pattern: Pattern) -> int:
    count = 1
    for words in pattern:
        count *= len(words)
    return count


_ORDER = {word: i for i, word in enumerate((*TYPES, "row", "col", "rn", "rz", "rm", "rp", "global", "shared"))}


def _numbers(word: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", word)]


def _show(pattern: Pattern) -> str:
    shown: list[str] = []
    for words in pattern:
        named = sorted(words - {""}, key=lambda word: (_ORDER.get(word, len(_ORDER)), _numbers(word), word))
        text = f".({'|'.join(named)})" if len(named) > 1 else f".{named[0]}"
        shown.append(f"[{text}]" if "" in words else text)
    return "".join(shown)[1:]


def by_section(lines_: Sequence[Line]) -> dict[str, list[Line]]:
    """The lines under a heading for each section: "9.7.14.5.8  mma m16n8k16, 16 bits and wider"."""
    groups: dict[str, list[Line]] = {}
    for line in lines_:
        groups.setdefault(f"{line.section}  {SECTIONS.get(line.section, '')}".rstrip(), []).append(line)
    return groups


_OF_ALL = ("section", "ptx", "sm", "only")
_OF_SLOT = ("name", "kind", "type", "count", "optional", "values")


def as_json(form: Form, target: str | None = None) -> dict[str, Json]:
    """Every field of a form, its operands and layouts, and since when each target has it, or the one given."""
    targets = TARGETS.values() if target is None else (target_row(target),)
    since = {row.name: version for row in targets if (version := form.since(row)) is not None}
    return {
        "spelling": form.spelling,
        "section": form.section,
        "ptx": version_text(form.ptx),
        "sm": form.sm,
        "only": {name: version_text(version) for name, version in form.only},
        "requirement": form.requirement(),
        "targets": {name: version_text(version) for name, version in since.items()},
        "fields": {name: value for name, value in _fields(form) if name not in _OF_ALL},
        "operands": [{name: getattr(slot, name) for name in _OF_SLOT} for slot in form.operands],
        "layouts": {name: str(layout) for name, layout in form.layouts.items()},
    }


def _fields(value: object) -> Iterator[tuple[str, Json]]:
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield field.name, _plain(getattr(value, field.name))


def _plain(value: object) -> Json:
    """A field of a row in the terms of JSON."""
    if isinstance(value, ElementType):
        return value.name
    if isinstance(value, Shape | Layout):
        return str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    return dict(_fields(value))


# The support table of the other instructions, those that are no matrix instructions: a line for each row.


def rows(query: Query) -> tuple[PatternRow, ...]:
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
    available = [row for row in named if _available(row, target, version)]
    if named and not available:
        raise WarploomError(_nothing(query, named))
    return tuple(available)


def row_lines(rows_: Sequence[PatternRow], query: Query, every: bool = False) -> tuple[Line, ...]:
    """The rows as patterns, or a line for each of their spellings."""
    target = as_target(query.target)
    table: list[Line] = []
    for row in rows_:
        for text, count in [(s, 1) for s in row.spellings()] if every else [(_shown(row), row.size)]:
            operands = f"  {row.notation}" if row.notation else ""
            table.append(Line(row.section, _since(row, target), row.requirement(), f"{text}{operands}", count))
    return tuple(table)


def row_objects(rows_: Sequence[PatternRow], query: Query) -> list[dict[str, Json]]:
    """The fields of the rows, and since when the target has them."""
    target = as_target(query.target)
    return [
        {
            "spelling": _shown(row),
            "operands": row.notation,
            "section": row.section,
            "ptx": _since(row, target),
            "requirement": row.requirement(),
            "interpreter": row.means,
        }
        for row in rows_
    ]


def _shown(row: PatternRow) -> str:
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


# What `warploom isa` prints: tables on a terminal, plain lines elsewhere, or JSON.


def report(query: Query, every: bool = False, as_objects: bool = False) -> int:
    """Print the table: a line for each form if `every`, or a list of JSON objects. Returns the exit code.

    Raises:
        WarploomError: if there is no such form, or no such thing as is asked for.
    """
    others = rows(query)
    forms_ = () if others else forms(query)
    if as_objects:
        objects = row_objects(others, query) if others else [as_json(form, query.target) for form in forms_]
        print(json.dumps(objects, indent=1))
        return 0
    if not others and not forms_:
        raise WarploomError(_nothing(query, forms(Query(family=query.family, type=query.type, shape=query.shape))))
    every_form = expanded if every else lines
    table = row_lines(others, query, every) if others else every_form(forms_, query.target)
    if sys.stdout.isatty():
        _tables(table, query)
    else:
        print(plain(table, query))
    return 0


def _nothing(query: Query, anywhere: Sequence[Row]) -> str:
    """The reason why a query has no result: its target or version, if there are rows without these."""
    needed = dict.fromkeys(f"PTX {version_text(row.ptx)} and {row.requirement()}" for row in anywhere)
    return f"there is no form of {query}" + (f"; needed: {'; or '.join(needed)}" if needed else "")


def _head(lines_: Sequence[Line], query: Query) -> str:
    count = sum(line.count for line in lines_)
    return f"{query}: {count} form{'s' if count > 1 else ''}"


def plain(lines_: Sequence[Line], query: Query) -> str:
    """The table as plain text: PTX version, where if no target is given, the forms."""
    out = [_head(lines_, query)]
    for title, group in by_section(lines_).items():
        wide = max(len(line.requirement) for line in group)
        out += ["", title]
        for line in group:
            where = "" if query.target else f"{line.requirement.ljust(wide)}  "
            out.append(f"  PTX {line.ptx}  {where}{line.text}")
    return "\n".join(out)


def _tables(lines_: Sequence[Line], query: Query) -> None:
    console = Console(highlight=False)
    console.print(_head(lines_, query), style="bold")
    for title, group in by_section(lines_).items():
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
