"""The support table of all instructions, from the rows: in terminals, in plain lines, in JSON."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...dialect.isa.form import ELEMENT_TYPES, ElementType, Form, Shape
from ...dialect.isa.mma import Mma
from ...dialect.isa.row import NEWEST, TARGETS, Row, Target, Version
from ...dialect.isa.row import target as target_row
from ...dialect.layouts.layout import Layout
from ...dialect.ptx.instructions import FAMILIES, every_row, family
from ...dialect.ptx.rows.grammar import PatternRow, pieces
from ..base.errors import WarploomError
from ..base.launch import known_target

Json = None | bool | int | str | Sequence["Json"] | Mapping[str, "Json"]

TYPES = (*ELEMENT_TYPES, "b16", "b8", "b6x16_p32", "b4x16_p64")
"""Names of element types that spellings have, those of matrix moves too."""

NOTATION = "`.(a|b)` stands for one of several qualifiers, and `[.a]` for an optional one."


def order(section: str) -> tuple[int, ...]:
    """What sorts section numbers as the manual does: 9.7.14.5.9 before 9.7.14.5.10."""
    return tuple(int(part) for part in section.split("."))


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
    """Forms that differ in their qualifiers alone, as one pattern: `text`; `count` of them, since `ptx`. `section` is
    their heading: "9.7.14.5.9  mma m16n8k16, s8 u8"."""

    section: str
    ptx: str
    requirement: str
    text: str
    count: int


def version_text(version: Version) -> str:
    """(8, 7) as "8.7"."""
    return f"{version[0]}.{version[1]}"


def forms(query: Query) -> tuple[Form, ...]:
    """The forms that match a query, in the order of the manual. Raises WarploomError for an unknown target,
    instruction, type, shape or PTX version."""
    target, version = as_target(query.target), as_version(query.ptx)
    names = _families(query.family)
    asked = [form for name in names for form in FAMILIES[name]()]
    if of := dict.fromkeys(form.a.name for form in asked if isinstance(form, Mma) and form.kind == query.type):
        raise WarploomError(f"{query.type} is a kind of product, of {', '.join(of)}; see --family tcgen05.mma, too")
    _require(query.type, "element type", TYPES)
    if query.shape is not None:
        _require(query.shape, "shape", {word: None for form in asked for word in _words(form) if _is_shape(word)})
    kept = (form for form in asked if _has(form, query) and _available(form, target, version))
    return tuple(sorted(kept, key=lambda form: order(form.section)))


def as_target(name: str | None) -> Target | None:
    """The target of a name; ArgumentError if there is none."""
    return None if name is None else known_target(name)


def as_version(text: str | None) -> Version | None:
    """The PTX version of a text such as 8.7. Raises WarploomError if it is no version, or newer than the tables."""
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


def lines(rows_: Iterable[Row], target: str | None = None, every: bool = False) -> tuple[Line, ...]:
    """The rows as patterns, or as a line for each spelling, in the order of the manual. Forms that differ in their
    spellings alone share patterns. `ptx` is since when the target has them, if one is given."""
    on, groups, sections = as_target(target), dict[tuple[str, str, str, int], list[Row]](), dict[str, list[Row]]()
    for number, row in enumerate(rows_):
        sections.setdefault(row.section, []).append(row)
        own = number if every or isinstance(row, PatternRow) else -1
        groups.setdefault((row.section, _since(row, on), row.requirement(), own), []).append(row)
    titles = {section: f"{section}  {_title(mine)}".rstrip() for section, mine in sections.items()}
    return tuple(
        Line(titles[section], ptx, requirement, text, count)
        for (section, ptx, requirement, _), group in groups.items() for text, count in _texts(group, every)
    )  # fmt: skip


def _title(rows_: Sequence[Row]) -> str:
    """What a section is about: its matrix instruction; of `mma` the shape, and the types of A."""
    if products := [row for row in rows_ if isinstance(row, Mma)]:
        types = " ".join(dict.fromkeys(row.a.name for row in products))
        return f"{family(products[0].spelling)} {products[0].shape}, {types}"
    return next((family(row.spelling) or "" for row in rows_ if isinstance(row, Form)), "")


def _texts(group: Sequence[Row], every: bool) -> Sequence[tuple[str, int]]:
    """What stands for the spellings of rows on the lines of a table, and how many each of these stands for."""
    row = group[0]
    if not isinstance(row, PatternRow):
        return patterns(form.spelling for form in group)
    operands = f"  {row.notation}" if row.notation else ""
    texts = [(spelling, 1) for spelling in row.spellings()] if every else [(_shown(row), row.size)]
    return [(f"{text}{operands}", count) for text, count in texts]


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
            return [(_show(pattern), prod(map(len, pattern))) for pattern in merging]
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


_ORDER = {word: i for i, word in enumerate((*TYPES, "row", "col", "rn", "rz", "rm", "rp", "global", "shared"))}


def _show(pattern: Pattern) -> str:
    def rank(word: str) -> tuple[int, list[int], str]:
        return _ORDER.get(word, len(_ORDER)), [*map(int, re.findall(r"\d+", word))], word

    return "".join(_choice([word and f".{word}" for word in sorted(words, key=rank)]) for words in pattern)[1:]


def _choice(alternatives: Sequence[str]) -> str:
    """One place of a spelling: `.a`, `.(a|b)`, or `(.a.b|.c)::d`; in brackets where nothing may stand there too."""
    words = [word for word in alternatives if word]
    dot = "." if words and all(word[0] == "." for word in words) else ""
    text = f"{dot}({'|'.join(word[len(dot) :] for word in words)})" if len(words) > 1 else "".join(words)
    return f"[{text}]" if words and "" in alternatives else text


def by_section(lines_: Sequence[Line]) -> dict[str, list[Line]]:
    """The lines under a heading for each section."""
    groups: dict[str, list[Line]] = {}
    for line in lines_:
        groups.setdefault(line.section, []).append(line)
    return groups


_OF_ALL = ("section", "ptx", "sm", "only")
_OF_SLOT = ("name", "kind", "type", "count", "optional", "values")


def as_json(form: Form | PatternRow, target: str | None = None) -> dict[str, Json]:
    """All fields of a form, its operands and layouts, and since when targets have it; less of other rows."""
    if isinstance(form, PatternRow):
        return {
            "spelling": _shown(form),
            "operands": form.notation,
            "section": form.section,
            "ptx": _since(form, as_target(target)),
            "requirement": form.requirement(),
            "interpreter": form.means,
        }
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
    return value if value is None or isinstance(value, bool | int | str) else dict(_fields(value))


# The support table of the other instructions, those that are no matrix instructions: a line for each row.


def rows(query: Query) -> Sequence[Form | PatternRow]:
    """The forms that match a query, or the rows of the other instruction that it names, in the order of the manual.
    Raises WarploomError if the target or the version that is asked for has none of these rows; for a type or shape,
    which they have not; for an unknown target, instruction, type, shape or PTX version."""
    name = query.family
    matrix = name is None or any(f"{family}.".startswith(f"{name}.") for family in FAMILIES)
    named = () if matrix else [row for row in every_row() if f"{row.samples()[0]}.".startswith(f"{name}.")]
    if not named:
        return forms(query)
    if query.type or query.shape:
        raise WarploomError(f"only matrix instructions are asked for by type and shape, got {name}")
    target, version = as_target(query.target), as_version(query.ptx)
    available = [row for row in named if _available(row, target, version)]
    if not available:
        raise WarploomError(_nothing(query, named))
    return available


def _shown(row: PatternRow) -> str:
    """A row's spelling as the table writes those of matrix instructions."""
    return "".join(_choice(piece.alternatives) for piece in pieces(row.spelling))


# What `warploom isa` prints: tables on a terminal, plain lines elsewhere, or JSON.


def report(query: Query, every: bool = False, as_objects: bool = False) -> int:
    """Print the table: a line for each form if `every`, or a list of JSON objects. Returns the exit code. Raises
    WarploomError if there is no such form, or no such thing as is asked for."""
    found = rows(query)
    if as_objects:
        print(json.dumps([as_json(row, query.target) for row in found], indent=1))
        return 0
    if not found:
        raise WarploomError(_nothing(query, forms(Query(family=query.family, type=query.type, shape=query.shape))))
    table = lines(found, query.target, every)
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
