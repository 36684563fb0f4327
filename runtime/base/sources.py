"""Source files and targets that a call names, read with located errors."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import cast

from ...dialect.isa.targets import Target, UnknownTargetError, target
from ...passes.source import InputError, begins_as_ptx, decode
from .errors import ArgumentError, WarploomError

# Reading source files, with errors fit to read.

STDIN = "-"
"""The path that stands for standard input."""


def read_mlir(path: str) -> str:
    """The text of an MLIR file, or of standard input.

    Raises:
        WarploomError: as `read_source`, or if the name does not end in .mlir.
    """
    if path != STDIN and not path.endswith(".mlir"):
        raise WarploomError(f"{path}: expected a file ending in .mlir, or {STDIN} for standard input")
    return read_source(path)


def read_source(path: str | Path) -> str:
    """The text of an MLIR or PTX file. The path `-` is standard input.

    Raises:
        WarploomError: naming the file, if it cannot be read or is no text.
    """
    language = "PTX" if Path(path).suffix == ".ptx" else "MLIR"
    try:
        data = sys.stdin.buffer.read() if str(path) == STDIN else Path(path).read_bytes()
        return decode(data, str(path), language)
    except OSError as error:
        raise WarploomError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:  # a path with a zero byte
        raise WarploomError(f"{str(path)!r}: {error}") from error
    except InputError as error:
        raise WarploomError(str(error)) from error


def is_ptx(path: str | Path, text: str) -> bool:
    """Whether a file is PTX: by the ending of its name, and standard input by how it begins."""
    return begins_as_ptx(text) if str(path) == STDIN else Path(path).suffix == ".ptx"


def text_or_file(source: str | os.PathLike[str], suffix: str, unnamed: str) -> tuple[str, str]:
    """The text that is given itself, or is in the file that is given, and what messages call it.

    A string is a path if it is one line that ends in `suffix` or names a file or folder.

    Raises:
        ArgumentError: for anything else than text and paths.
        WarploomError: naming the file, if it cannot be read or is no text.
    """
    if not isinstance(cast("object", source), str | os.PathLike):
        what = f"the text or the path of a {suffix} file"
        raise ArgumentError(f"expected {what}, got {type(source).__name__}")
    if isinstance(source, str) and ("\n" in source or not (source.endswith(suffix) or os.path.exists(source))):
        return source, unnamed
    return read_source(Path(source)), str(Path(source))


# The target that a call or a command names.


def known_target(option: str, name: str) -> Target:
    """The row of the target that an option names.

    Raises:
        ArgumentError: naming the option and the known targets.
    """
    try:
        return target(name)
    except UnknownTargetError as error:
        raise ArgumentError(f"{option}: {error}") from None
