"""Are directives between a function's header and its body ones that PTX has, with the numbers that they take.

Source: PTX ISA 11.4 and 11.7; where the text leaves it open, what ptxas 13.0.88 takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...isa.targets import Version
from ..text.syntax import Function, directive_numbers
from ..verifier import TargetContext


@dataclass(frozen=True)
class DirectiveRow:
    """A directive: the least and the most numbers that follow it, whether 0 may be one, if kernels have it or other
    functions, since when, and the directives that cannot stand with it, or must."""

    name: str
    least: int
    most: int
    zero: bool = False
    entry: bool = True
    version: Version = (1, 0)
    sm: int = 0
    without: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

    @property
    def form(self) -> str:
        counts = f"{self.least} to {self.most} numbers" if self.least < self.most else (
            f"{self.most or 'no'} number{'' if self.most == 1 else 's'}"
        )  # fmt: skip
        return counts if self.zero or not self.most else f"{counts} above 0"


MOST = (1 << 32) - 1
_CLUSTERS = ((7, 8), 90)

ROWS = (
    DirectiveRow(".maxnreg", 1, 1),
    DirectiveRow(".maxntid", 1, 3, without=(".reqntid",)),
    DirectiveRow(".reqntid", 1, 3),
    DirectiveRow(".minnctapersm", 1, 1),
    DirectiveRow(".reqnctapercluster", 1, 3, True, True, *_CLUSTERS),
    DirectiveRow(".maxclusterrank", 1, 1, True, True, *_CLUSTERS, without=(".reqnctapercluster",)),
    DirectiveRow(".explicitcluster", 0, 0, True, True, *_CLUSTERS),
    DirectiveRow(".blocksareclusters", 0, 0, True, True, (9, 0), 90, beside=(".reqntid", ".reqnctapercluster")),
    DirectiveRow(".local_maxnreg", 1, 1),
    DirectiveRow(".noreturn", 0, 0, entry=False, version=(6, 4), sm=30),
    DirectiveRow(".abi_preserve", 1, 1, True, False, (9, 0), 80),
    DirectiveRow(".abi_preserve_control", 1, 1, True, False, (9, 0), 80),
)
_BY_NAME = {row.name: row for row in ROWS}


def directive_problems(function: Function, context: TargetContext) -> Iterator[str]:
    """What is wrong with each directive of a function; `.pragma` may say anything."""
    for text in function.directives:
        name = text.split()[0]
        row = _BY_NAME.get(name)
        if name == ".pragma" and not function.entry:
            yield "'.pragma' does not follow the header of a .func"
        elif row is None and name != ".pragma":
            known = ", ".join(row.name for row in ROWS if row.entry == function.entry)
            yield f"'{name}' does not follow the header of a function; {known} and .pragma do"
        elif row is not None and (problem := _problem(row, text, function, context)):
            yield f"{name}: {problem}"


def _problem(row: DirectiveRow, text: str, function: Function, context: TargetContext) -> str:
    if row.entry != function.entry:
        return f"expected it at {'an .entry' if row.entry else 'a .func'}, got it at '{function.name}'"
    if context.version < row.version:
        return "needs PTX {}.{} or later, the module's version is {}.{}".format(*row.version, *context.version)
    if any(target.sm < row.sm for target in context.rows):
        return f"needs sm_{row.sm} or later, the module's target is {', '.join(context.targets)}"
    numbers = directive_numbers(text)
    if numbers is None or not row.least <= len(numbers) <= row.most or (0 in numbers and not row.zero):
        return f"expected {row.form}, got {' '.join(text.split()[1:]) or 'none'}"
    if any(number > MOST for number in numbers):
        return f"expected numbers of 32 bits, got {max(numbers)}"
    others = {text.split()[0] for text in function.directives}
    if conflict := next((name for name in row.without if name in others), ""):
        return f"cannot stand with {conflict}"
    if missing := next((name for name in row.beside if name not in others), ""):
        return f"needs {missing} beside it"
    return ""
