"""Checks of directives: those of functions, pragmas, places in source files, sections. Source: PTX ISA 11. Where the
text leaves it open, what ptxas 13.5 takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...isa.row import Version
from ..text.syntax import Function, directive_numbers, integer
from ..verifier import TargetContext

UNIFIED = ((8, 0), 90)

# Are directives between a function's header and its body ones that PTX has, with the numbers that they take.
# Source: PTX ISA 11.4 and 11.7.


@dataclass(frozen=True)
class DirectiveRow:
    """A directive of a function. It takes `minimum` to `most` numbers, which may be 0 if `zero`. `entry` says whether
    kernels or other functions may have it, None that both may. It cannot occur with the directives in `without`, and
    needs one of `beside`. No number is above `top`."""

    name: str
    minimum: int
    maximum: int
    zero: bool = False
    entry: bool | None = True
    version: Version = (1, 0)
    sm: int = 0
    without: tuple[str, ...] = ()
    together: tuple[str, ...] = ()
    top: int = (1 << 32) - 1

    @property
    def form(self) -> str:
        counts = f"{self.minimum} to {self.maximum} numbers" if self.minimum < self.maximum else (
            f"{self.maximum or 'no'} number{'' if self.maximum == 1 else 's'}"
        )  # fmt: skip
        return counts if self.zero or not self.maximum else f"{counts} above 0"


MAX = (1 << 32) - 1
_CLUSTERS = ((7, 8), 90)
ABI_REGISTERS = 254, 15
"""The most registers, and the most predicates, that a function preserves."""

ROWS = (
    DirectiveRow(".maxnreg", 1, 1),
    DirectiveRow(".maxntid", 1, 3, without=(".reqntid",)),
    DirectiveRow(".reqntid", 1, 3),
    DirectiveRow(".minnctapersm", 1, 1),
    DirectiveRow(".reqnctapercluster", 1, 3, True, True, *_CLUSTERS),
    DirectiveRow(".maxclusterrank", 1, 1, True, True, *_CLUSTERS, without=(".reqnctapercluster",)),
    DirectiveRow(".explicitcluster", 0, 0, True, True, *_CLUSTERS),
    DirectiveRow(".blocksareclusters", 0, 0, True, True, (9, 0), 90, together=(".reqntid", ".reqnctapercluster")),
    DirectiveRow(".minperctamemory", 1, 1, True, True, (9, 4)),
    DirectiveRow(".local_maxnreg", 1, 1, entry=None),
    DirectiveRow(".noreturn", 0, 0, entry=False, version=(6, 4), sm=30),
    DirectiveRow(".abi_preserve", 1, 1, True, False, (9, 0), 80, top=ABI_REGISTERS[0]),
    DirectiveRow(".abi_preserve_control", 1, 1, True, False, (9, 0), 80, top=ABI_REGISTERS[1]),
)
_BY_NAME = {row.name: row for row in ROWS}


def directive_problems(text: str, function: Function, context: TargetContext) -> Iterator[str]:
    """What is wrong with a directive of a function."""
    name = text.split()[0]
    row = _BY_NAME.get(name)
    if name.startswith(".attribute("):
        if function.entry or ".unified" not in text or context.lacks(*UNIFIED):
            yield f"{text} is for a .func of PTX 8.0 and sm_90 or later, and is .unified(uuid1, uuid2)"
    elif name == ".language":
        yield from (f".language: {problem}" for problem in _language_problems(text))
    elif name == ".pragma":
        yield from text_problems(text, context, "header")
        if not function.entry:
            yield "'.pragma' does not follow the header of a .func"
    elif row is None:
        directives = ", ".join(row.name for row in ROWS if row.entry in (None, function.entry))
        yield f"'{name}' does not follow the header of a function; {directives} and .pragma do"
    elif problem := _problem(row, text, function, context):
        yield f"{name}: {problem}"


LANGUAGES = (
    "unknown", "", "", "ptx", "nvvm", "cuda c++", "cuda c++ tile", "tile ir", "python-cutile", "fortran", "optix",
)  # fmt: skip
"""What a function is written in, by number (PTX ISA 9.4, 11.8.2). ptxas takes the directive in every version."""


def _language_problems(text: str) -> Iterator[str]:
    for item in re.split(r"\s*,\s*", text.partition(" ")[2].strip()):
        if item[:1] == '"':
            if item[1:-1].lower() not in LANGUAGES or item == '""':
                yield f"{item} is no language; expected one of {', '.join(filter(None, LANGUAGES))}"
        elif not item[:1].isdigit() or not 0 <= integer(item) < len(LANGUAGES):
            yield f"expected strings or numbers from 0 to {len(LANGUAGES) - 1}, got {item or 'none'}"


def _problem(row: DirectiveRow, text: str, function: Function, context: TargetContext) -> str:
    if row.entry not in (None, function.entry):
        return f"expected it at {'an .entry' if row.entry else 'a .func'}, got it at '{function.name}'"
    if row.name == ".noreturn" and function.returns:
        return "the function returns a value"
    if row.name == ".noreturn" and function.directives.count(text) > 1:
        return "it stands twice"
    if lacking := context.lacks(row.version, row.sm):
        return lacking
    numbers = directive_numbers(text)
    if numbers is None or not row.minimum <= len(numbers) <= row.maximum or (0 in numbers and not row.zero):
        return f"expected {row.form}, got {' '.join(text.split()[1:]) or 'none'}"
    if any(number > row.top for number in numbers):
        return f"expected numbers up to {row.top}, got {max(numbers)}"
    others = {text.split()[0] for text in function.directives}
    if conflict := next((name for name in row.without if name in others), ""):
        return f"cannot stand with {conflict}"
    if missing := next((name for name in row.together if name not in others), ""):
        return f"needs {missing} beside it"
    return ""


# Is a `.pragma` a list of strings, and does each that PTX has stand where it may, with the number that it takes.
# Source: PTX ISA 11.4.7; others are ignored inside functions.


@dataclass(frozen=True)
class PragmaRow:
    """A pragma: the version that introduced it, whether a number follows, the least number, and its legal places."""

    name: str
    version: Version = (2, 0)
    number: bool = False
    minimum: int | None = None
    places: tuple[str, ...] = ("body",)


PRAGMAS = (
    PragmaRow("nounroll", places=("module", "header", "body")),
    PragmaRow("abi_param_reg", places=("module", "header")),
    PragmaRow("used_bytes_mask", (8, 3), number=True),
    PragmaRow("enable_smem_spilling", (8, 7)),
    PragmaRow("frequency", (9, 0), number=True, minimum=1),
    PragmaRow("mma_throughput", (9, 3)),
)
_STRING = r'"[^"\n]*"'
_PRAGMA = re.compile(rf"\.pragma\s*{_STRING}(?:\s*,\s*{_STRING})*\s*;", re.ASCII)


def text_problems(text: str, context: TargetContext, where: str) -> Iterator[str]:
    """What is wrong with a directive by itself: of a "module", or of a function's "header" or "body"."""
    name = (re.match(r"\.\w+", text) or [""])[0]
    if where == "body" and name in (".file", ".section", ".alias"):
        yield f"'{name}' stands outside of functions"
    elif name in _SOURCES:
        yield from _source_problems(name, text)
    elif name == ".section":
        yield from _section_problems(text)
    elif name == ".loc_intermediate" and (lacking := context.lacks((9, 4))):
        yield f".loc_intermediate {lacking}"
    elif name == ".pragma":
        if _PRAGMA.fullmatch(text) is None:
            yield f'expected strings such as .pragma "nounroll";, got {text}'
            return
        for quoted in re.findall(_STRING, text):
            if problem := _pragma(quoted[1:-1], context, where):
                yield f".pragma {quoted}: {problem}"


def _pragma(text: str, context: TargetContext, where: str) -> str:
    name, _, value = text.partition(" ")
    row = next((row for row in PRAGMAS if row.name == name), None)
    if row is None or (where == "module" and row.name == "nounroll" and value):
        return "" if where != "module" else f"a module has no such pragma; expected {' or '.join(_MODULE_PRAGMAS)}"
    if where not in row.places:
        return f"it stands in the {' or '.join(row.places)} of a function, not in its {where}"
    if lacking := context.lacks(row.version):
        return lacking
    if not row.number:
        return ""
    try:
        number = integer(value.strip())
    except ValueError:
        return f"expected a number, got '{value}'"
    return "" if row.minimum is None or number >= row.minimum else f"expected a number from {row.minimum}, got {number}"


_MODULE_PRAGMAS = tuple(row.name for row in PRAGMAS if "module" in row.places)


# Do places in source files have their numbers, and sections the data that they may. Source: PTX ISA 11.5.

_PLACE = r"(?:\s+\d\w*){3}"
_SOURCES = {
    ".loc": re.compile(
        rf"\.loc{_PLACE}(?:\s*,\s*function_name\s+[.\w$]+(?:\s*\+\s*\w+)?\s*,\s*inlined_at{_PLACE})?", re.ASCII
    ),
    ".file": re.compile(rf"\.file\s+\d\w*\s+{_STRING}(?:\s*,\s*\d\w*){{0,2}}", re.ASCII),
}
_SECTION = re.compile(r"\.section\s+\.[a-zA-Z_$][\w$]*\s*\{(?P<data>[^}]*)\}", re.ASCII)
_LABELS = re.compile(r"[\w$]+\s*:", re.ASCII)
_NAME = re.compile(r"[.\w$]+(?:\s*[+-]\s*[.\w$]+)?", re.ASCII)
SECTION_BITS = {"b8": 8, "b16": 16, "b32": 32, "b64": 64}
"""Types of data in sections; addresses have 32 or 64 bits."""


def _source_problems(name: str, text: str) -> Iterator[str]:
    if _SOURCES[name].fullmatch(text) is None:
        form = '.file 1 "name"' if name == ".file" else ".loc file line column, or , function_name name, inlined_at ..."
        yield f"expected {form}, got {text}"
    elif any(integer(number) > MAX for number in re.findall(r"\s(\d\w*)", text.partition(",")[0])):
        yield f"{name}: expected numbers of 32 bits, got {text}"


def _section_problems(text: str) -> Iterator[str]:
    section = _SECTION.fullmatch(text)
    if section is None:
        yield f"expected a section such as .section .debug_str {{ .b8 0 }}, got {text[:60]}"
        return
    first, *data = re.split(r"(?<![\w$])\.([bsuf]\d+)\b", _LABELS.sub(" ", section["data"]))
    if first.strip():
        yield f".section: expected data such as .b8 0, got {first.strip()}"
    for type, values in zip(data[::2], data[1::2], strict=True):
        bits = SECTION_BITS.get(type, 0)
        if not bits:
            yield f".section: expected .b8, .b16, .b32 or .b64, got .{type}"
        for value in map(str.strip, values.split(",") if bits else ()):
            if re.fullmatch(r"-?\d\w*", value):
                if not -(1 << bits - 1) <= integer(value) < 1 << bits:
                    yield f".section: expected a number of {bits} bits for .{type}, got {value}"
            elif bits < 32 or _NAME.fullmatch(value) is None or value[0].isdigit():
                yield f".section: expected numbers{' or addresses' * (bits >= 32)} for .{type}, got {value or 'none'}"
