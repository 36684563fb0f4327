"""Writes reference/: the Python API, the commands and the operations of the dialects, from docstrings and definitions.

python docs/reference.py       # or: make docs
"""

from __future__ import annotations

import argparse
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from api import python
from docstrings import markdown, sentence
from xdsl.irdl import IRDLOperation

from warploom.passes.opt import WarploomOptMain
from warploom.passes.universe import WARPLOOM_UNIVERSE
from warploom.runtime.cli.command import parser

HERE = Path(__file__).parent
ROOT = HERE.parent
FOLDER = HERE / "reference"
GENERATED = "<!-- Written by docs/reference.py; `make docs` writes it again. -->\n\n"


def pages() -> dict[str, str]:
    """Every page, by its name in the folder."""
    made = {"python.md": python(), "commands.md": commands(), "operations.md": operations()}
    return {name: re.sub(r"\n{3,}", "\n\n", GENERATED + "".join(text)).rstrip() + "\n" for name, text in made.items()}


# Commands

COMMANDS = """# Commands

`warploom` compiles, runs, checks and measures, and `warploom-opt` runs passes. Both print their version with
`--version`, and `-h` prints the text on this page. `warploom` exits with 0 on success, with 1 after an error or if a
result exceeds its bound, and with 2 for misuse.

"""


def commands() -> Iterator[str]:
    """Every command with its options, then the passes."""
    yield COMMANDS
    top = parser()
    (subparsers,) = (a for a in top._actions if isinstance(a, argparse._SubParsersAction))
    for name, command in subparsers.choices.items():
        described = re.sub(r"(?m)^  (\w+)  +", r"- `\1`: ", command.description or "")
        yield f"## warploom {name}\n\n{described}\n\n"
        yield from _options(command)
        if command.epilog:
            yield f"```sh\n{_examples(command.epilog)}```\n\n"
    yield "## warploom-opt\n\nAn `mlir-opt`-style driver: MLIR or PTX in, MLIR or PTX out.\n\n"
    driver = WarploomOptMain.__new__(WarploomOptMain)
    driver.available_frontends = dict.fromkeys(("mlir", "ptx"))  # pyright: ignore[reportAttributeAccessIssue]
    driver.available_targets = dict.fromkeys(WARPLOOM_UNIVERSE.all_targets)  # pyright: ignore[reportAttributeAccessIssue]
    driver.available_passes = {}
    arguments = argparse.ArgumentParser("warploom-opt")
    driver.register_all_arguments(arguments)
    yield from _options(arguments)
    yield from _passes()


def _options(command: argparse.ArgumentParser) -> Iterator[str]:
    """A table of arguments, those of groups under their titles."""
    for group in command._action_groups:
        actions = [a for a in group._group_actions if a.help != argparse.SUPPRESS and a.dest not in ("help", "version")]
        if not actions:
            continue
        if group.title not in ("positional arguments", "options"):
            yield f"{group.title}:\n\n"
        yield "| argument | |\n|---|---|\n"
        for action in actions:
            yield f"| {_spelled(action)} | {_cell(_help(action))} |\n"
        yield "\n"


def _spelled(action: argparse.Action) -> str:
    value = action.metavar or (f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper())
    value = " ".join(value) if isinstance(value, tuple) else value
    if not action.option_strings:
        return f"`{value}`"
    shown = "" if action.nargs == 0 else f" {value}"
    return ", ".join(f"`{option}{shown}`" for option in action.option_strings).replace("` [=", "[=")


def _help(action: argparse.Action) -> str:
    """The help text; names that xDSL lists in its own are left out."""
    text = re.sub(r"Available (passes|targets) are:.*", "", " ".join((action.help or "").split()))
    return text.replace("%%", "%").replace("%(default)s", str(action.default)).strip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _examples(epilog: str) -> str:
    return textwrap.dedent(epilog.partition("\n")[2]).strip("\n") + "\n"


def _passes() -> Iterator[str]:
    yield "## Passes\n\n`warploom-opt --list-passes` prints them with the types of their options.\n\n"
    yield "| pass | what it does | options |\n|---|---|---|\n"
    for name, factory in WARPLOOM_UNIVERSE.all_passes.items():
        made = factory()
        options = ", ".join(f"`{field}`" for field, *_ in _infos(made) if field not in _SCHEDULE) or "-"
        if any(field in _SCHEDULE for field, *_ in _infos(made)):
            options = f"every [field of a schedule](../schedules.md), {options}".removesuffix(", -")
        yield f"| `{name}` | {_cell(sentence(made.__doc__ or ''))} | {options} |\n"


def _infos(made: Any) -> list[tuple[str, ...]]:
    return [(field.name.replace("_", "-"),) for field in fields(made) if field.init]


@cache
def _fields_of_schedules() -> frozenset[str]:
    from warploom.dialect.schedule.schedule import FIELDS

    return frozenset(name.replace("_", "-") for name in FIELDS)


_SCHEDULE = _fields_of_schedules()


# Operations

OPERATIONS = """# Operations

This page lists the operations of three dialects:

- `warp` is the level of kernels between `linalg` and PTX: products of fragments, copies to shared memory, barriers. Its
  kernels also use `gpu`, `scf`, `arith` and `memref`.
- `ptx` has the PTX instructions.
- `nvgpu` is upstream's dialect of operations on tensor cores, which xDSL lacks; kernels in it are lowered too.

The page is generated from the definitions of the operations. An example comes from the docstring, or from a test that
prints the operation and parses it again.

"""


def operations() -> Iterator[str]:
    """Every operation and attribute, dialect by dialect."""
    yield OPERATIONS
    for name, factory in WARPLOOM_UNIVERSE.all_dialects.items():
        dialect = factory()
        yield f"## {name}\n\n"
        links = (f"[`{op.name}`](#{op.name.replace('.', '')})" for op in dialect.operations)
        yield f"{', '.join(links)}\n\n"
        for op in dialect.operations:
            if issubclass(op, IRDLOperation):
                yield from _operation(op)
        yield f"### Types and attributes of {name}\n\n"
        for attribute in dialect.attributes:
            if attribute.__doc__:
                yield f"**{attribute.name}**: {markdown(attribute.__doc__)}\n\n"


def _operation(op: type[IRDLOperation]) -> Iterator[str]:
    definition = op.get_irdl_definition()
    text = inspect.cleandoc(op.__doc__ or "")
    yield f"### {op.name}\n\n{markdown(text)}\n\n"
    if not re.search(rf"{re.escape(op.name)}(?![\w.])", text.replace(f"`{op.name}`", "")):
        yield f"```mlir\n{example(op.name)}\n```\n\n"
    rows = [
        *(("operand", name, _shown(one.constr), type(one).__name__) for name, one in definition.operands),
        *(("result", name, _shown(one.constr), type(one).__name__) for name, one in definition.results),
        *(
            ("attribute", name, _shown(one.constr), type(one).__name__)
            for name, one in (*definition.properties.items(), *definition.attributes.items())
            if name not in ("operandSegmentSizes", "resultSegmentSizes")
        ),
        *(("region", name, "", type(one).__name__) for name, one in definition.regions),
    ]
    if rows:
        yield "| | name | type | |\n|---|---|---|---|\n"
        for kind, name, type_, definition_ in rows:
            yield f"| {kind} | `{name or '-'}` | {type_} | {_number(definition_)} |\n"
        yield "\n"


def _number(definition: str) -> str:
    return "optional" if definition.startswith("Opt") else "any number" if definition.startswith("Var") else ""


@cache
def _lines() -> tuple[str, ...]:
    folder = ROOT / "test" / "filecheck" / "dialect"
    texts = [path.read_text() for path in sorted(folder.rglob("*.mlir")) if "invalid" not in path.name]
    return tuple(line.strip() for text in texts for line in text.splitlines() if not line.lstrip().startswith("//"))


def example(name: str) -> str:
    """The shortest line of the tests that has the operation.

    Raises:
        ValueError: if no line has it.
    """
    word = re.compile(rf"(?<![\w.#!]){re.escape(name)}(?![\w.])")
    lines = [line for line in _lines() if word.search(line)]
    lines = [line for line in lines if not line.endswith("{")] or lines
    if not lines:
        raise ValueError(f"neither the docstring nor a test in test/filecheck/dialect has an example of {name}")
    return min(lines, key=len)


def _shown(constraint: Any) -> str:
    """What a constraint allows, in words."""
    match type(constraint).__name__:
        case "RangeLengthConstraint" | "VarConstraint":
            return _shown(constraint.constraint)
        case "RangeOf":
            return _shown(constraint.constr)
        case "BaseAttr":
            return _named(constraint.attr)
        case "EqAttrConstraint":
            return f"`{constraint.attr}`"
        case "AnyOf":
            return " or ".join(dict.fromkeys(map(_shown, constraint.attr_constrs)))
        case "ArrayOfConstraint":
            return f"array of {_shown(constraint.elem_range_constraint)}"
        case "ParamAttrConstraint":
            return _named(constraint.base_attr)
        case _:
            return "any"


_NAMES = {
    "unit": "present or not",
    "string": "string",
    "int": "integer",
    "integer": "integer",
    "float": "float",
    "array": "integers",
    "memref": "`memref`",
}


def _named(attribute: Any) -> str:
    name = getattr(attribute, "name", attribute.__name__)
    return _NAMES.get(name, f"`{name}`")


def write() -> None:
    """Writes the pages, and removes those that there are no more."""
    made = pages()
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
