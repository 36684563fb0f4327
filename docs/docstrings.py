"""Docstrings as Markdown, for the pages of the reference."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence


def markdown(text: str, language: str = "mlir") -> str:
    """A docstring as Markdown: what is indented behind `::` is code in a language, sections become lists."""
    out, code, margin = list[str](), False, "    "
    lines = inspect.cleandoc(text).splitlines()
    for number, line in enumerate(lines):
        if code and line.strip() and not line.startswith(margin):
            out += ["```", ""]
            code = False
        if code:
            out.append(line.removeprefix(margin))
        elif line.endswith("::"):
            out += [line[:-1], "", f"```{language}"]
            code, margin = True, "" if _is_all_code(lines[number + 1 :]) else "    "
        elif line in ("Raises:", "Returns:"):
            out += ["", f"**{line[:-1]}:**", ""]
        elif line.startswith("    ") and _in_section(lines, number):
            continues = line.startswith("     ") or not re.match(r"    \w+:|    [A-Z]", line)
            out.append(f"  {line.strip()}" if continues else f"- {line.strip()}")
        else:
            out.append(line)
    page = "\n".join([*out, *(["```"] if code else [])])
    return page.replace(f"```{language}\n\n", f"```{language}\n").replace("\n\n```\n", "\n```\n")


def _is_all_code(lines: Sequence[str]) -> bool:
    """Whether what follows `::` begins without indentation: cleaning a docstring takes it where only code follows."""
    first = next((line for line in lines if line.strip()), "")
    return not first.startswith("    ")


def _in_section(lines: Sequence[str], number: int) -> bool:
    """Whether an indented line belongs to a list of what is raised or returned."""
    before = next((line for line in reversed(lines[:number]) if line.strip() and not line.startswith(" ")), "")
    return before in ("Raises:", "Returns:")


def sentence(text: str) -> str:
    """The first sentence."""
    return re.split(r"(?<=[.;])\s", " ".join(text.split()), maxsplit=1)[0].rstrip(".;") + "."
