"""Where commands start, and the versions they print: heavy imports come where an interrupt is caught."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def versions(program: str) -> str:
    """A program with its versions: `warploom 0.1.0 on xDSL 0.74.0`."""
    return f"{program} {_version('warploom')} on xDSL {_version('xdsl')}"


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # takes as long to import as all else

    try:
        return version(package)
    except PackageNotFoundError:
        return "of a checkout"


INTERRUPTED = 130
"""Exit code of a command that was interrupted, as shells have it."""


UNCOLLECTED = 50_000
"""New objects after which a command collects cycles. Imports make many that stay, which Python's own 700 walk over and
over: a third of the time of a short command."""


def start(module: str) -> int:
    """Imports a module by its full name, runs its `main`, and returns the exit code. What is left then goes with the
    process: it is not walked for cycles once more."""
    gc.set_threshold(UNCOLLECTED, *gc.get_threshold()[1:])
    try:
        _hold_closed_streams()
        return import_module(module).main() or 0
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return INTERRUPTED
    finally:
        gc.freeze()


def parsed(parser: argparse.ArgumentParser, args: Sequence[str] | None = None) -> argparse.Namespace:
    """Arguments, as `parse_args` has them. Exits with code 2 for an unknown option, and names the one that it is
    like."""
    arguments, rest = parser.parse_known_args(args)
    if rest:
        import difflib  # for messages alone
        import re

        of_command = getattr(arguments, "parser", parser)
        options = re.findall(r"--[\w-]+", of_command.format_usage())
        near = difflib.get_close_matches(rest[0].partition("=")[0], options, 1, 0.75)
        of_command.error(f"unrecognized arguments: {' '.join(rest)}" + (f"; did you mean {near[0]}?" if near else ""))
    return arguments


def _hold_closed_streams() -> None:
    """Opens /dev/null for standard streams that the caller closed: their numbers would go to the next files.

    Writing to standard output is an error then, as it is for other programs.
    """
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # takes the lowest free number, which is this one
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)


def main() -> int:
    """`warploom-opt`."""
    return start(f"{__package__}.opt")
