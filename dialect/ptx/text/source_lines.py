"""Lines of the source that a compiler wrote PTX from, by `.file`, `.loc` and inlining. PTX ISA 11.5.3 and 11.5.4."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from .syntax import Directive, Function, Module, Statement, statements

_FILE = re.compile(r'\.file\s+(?P<number>\d+)\s+"(?P<path>[^"]*)"', re.ASCII)
_LOC = re.compile(
    r"\.loc\s+(?P<file>\d+)\s+(?P<line>\d+)(?:\s+(?P<column>\d+))?"
    r"(?:\s*,\s*function_name\s+(?P<name>[\w$%.]+)(?:\s*\+\s*(?P<offset>\d+))?"
    r"\s*,\s*inlined_at\s+(?P<caller>\d+)\s+(?P<caller_line>\d+)(?:\s+\d+)?)?",
    re.ASCII,
)
_LABEL = re.compile(r"^\s*([\w$%.]+):", re.ASCII | re.MULTILINE)
_BYTES = re.compile(r"\.b8\s+([\d\s,]+)", re.ASCII)
_PTX_LINE = re.compile(r"\bline (\d+)\b")


class SourcePlace(NamedTuple):
    """A line of a source file. Of code that was inlined, `function` is where it is from, `caller` the outermost line
    that it was inlined at; of a function that is called, `function` is that."""

    file: str
    line: int
    column: int = 0
    function: str = ""
    caller: str = ""

    def __str__(self) -> str:
        inside = f" in {self.function}" if self.function else ""
        return f"{self.file}:{self.line}{inside}{f', inlined at {self.caller}' if self.caller else ''}"


@dataclass(eq=False)
class SourceLines:
    """The source lines of a module's instructions, read at the first request."""

    module: Module

    def at(self, line: int) -> SourcePlace | None:
        """The source place of an instruction at a line of the PTX; None without a `.loc`."""
        starts, places = self._places
        number = bisect_right(starts, line) - 1
        return places[number] if number >= 0 else None

    def note_at(self, line: int) -> str:
        """The same in words; "" where it is not known."""
        place = self.at(line)
        return "" if place is None or place.line == 0 else str(place)

    def annotated(self, text: str) -> str:
        """The text with the source line added to each line of PTX that it names."""
        if not self._places[0]:
            return text

        def named(match: re.Match[str]) -> str:
            place = self.note_at(int(match[1]))
            return f"{match[0]} ({place})" if place else match[0]

        return _PTX_LINE.sub(named, text)

    @cached_property
    def _places(self) -> tuple[Sequence[int], Sequence[SourcePlace | None]]:
        """The lines of `.loc` in order, with what they say; the end of a function says nothing."""
        files = {m["number"]: m["path"] for text in self._directives() if (m := _FILE.match(text))}
        names = self._names()
        places: list[tuple[int, SourcePlace | None]] = []
        for function in self._functions():
            outer: dict[str, str] = {}
            places.append((function.line, None))
            for statement in statements(function.body or ()):
                if isinstance(statement, Directive) and (match := _LOC.match(statement.text)):
                    place = _place(match, files, names, outer)
                    inside = place.function or ("" if function.entry else _plain(function.name))
                    places.append((statement.line, place._replace(function=inside)))
        if not any(place for _, place in places):
            return [], []
        places.sort(key=lambda item: item[0])
        return [line for line, _ in places], [place for _, place in places]

    def _functions(self) -> Iterator[Function]:
        return (item for item in self.module.items if isinstance(item, Function))

    def _directives(self) -> Iterator[str]:
        bodies: list[Sequence[Statement]] = [function.body or () for function in self._functions()]
        inside = (s for body in bodies for s in statements(body))
        return (s.text for s in (*self.module.items, *inside) if isinstance(s, Directive))

    def _names(self) -> dict[str, bytes]:
        """The strings of `.debug_str` by label."""
        names: dict[str, bytes] = {}
        for text in self._directives():
            if not re.match(r"\.section\s+\.debug_str\b", text):
                continue
            labels = [(m.end(), m[1]) for m in _LABEL.finditer(text)]
            for start, label in labels:
                numbers = " ".join(m[1] for m in _BYTES.finditer(text, start))
                names[label] = bytes(int(n) & 0xFF for n in re.findall(r"\d+", numbers))
        return names


def _place(match: re.Match[str], files: dict[str, str], names: dict[str, bytes], outer: dict[str, str]) -> SourcePlace:
    """What a `.loc` says; `outer` has the outermost callers of the lines so far, and of this one then."""

    def file(number: str) -> str:
        return files.get(number, f"file {number}")

    name = (
        names.get(match["name"] or "", b"")[int(match["offset"] or 0) :].partition(b"\0")[0].decode("utf-8", "replace")
    )
    here, caller = f"{file(match['file'])}:{match['line']}", ""
    if match["caller"]:
        caller = f"{file(match['caller'])}:{match['caller_line']}"
        caller = outer[here] = outer.get(caller, caller)
    return SourcePlace(file(match["file"]), int(match["line"]), int(match["column"] or 0), _plain(name), caller)


def _plain(name: str) -> str:
    """The last of the names that a mangled one has; another one as it is."""
    nested = re.match(r"_ZN?K?", name)
    position, last = nested.end() if nested else len(name), name
    while size := re.match(r"\d+", name[position:]):
        start = position + size.end()
        position = start + int(size.group())
        last = name[start:position]
        if template := re.match(r"I(?:L?[a-z][\dn]*E?|[a-z])*E", name[position:]):
            position += template.end()
    return last
