"""What is around a run of the compiler: the text of source files, files that options of passes name, and the remarks
that somebody collects."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

REMARKS: ContextVar[list[str] | None] = ContextVar("remarks", default=None)
"""What passes have said, if somebody collects it (`diagnostics.remarks`)."""

# The text of a source file, or what its bytes are instead.

BYTECODE = b"ML\xefR"
"""How MLIR's bytecode starts. Source: MLIR Bytecode Format, Magic Number."""

_PTX = re.compile(r"(?:\s|//[^\n]*\n|/\*.*?\*/)*\.version\b", re.DOTALL)
"""How PTX begins: with the directive `.version`, behind comments."""

_MARKS = {b"\xef\xbb\xbf": "UTF-8", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


class InputError(Exception):
    """The input cannot be read as what it claims to be."""


def decode(data: bytes, name: str, language: str) -> str:
    """The text of a file called `name`; `language` is what it should be: "MLIR" or "PTX".

    Raises:
        InputError: for MLIR's bytecode, a byte-order mark, or a byte that is not UTF-8.
    """
    if data.startswith(BYTECODE):
        raise InputError(
            f"{name}: expected {language} text, got MLIR bytecode; mlir-opt without --emit-bytecode writes text"
        )
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            raise InputError(f"{name}: expected {language} text without a byte-order mark, got one of {encoding}")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name}: expected {language} text, got byte 0x{data[error.start]:02x} at offset {error.start}, "
            "which is not UTF-8"
        ) from error


def begins_as_ptx(text: str) -> bool:
    """Whether text is PTX rather than MLIR."""
    return _PTX.match(text) is not None


# Files that options of passes name, read once while a module is compiled: all that asks for one sees the same text.

_TEXTS: ContextVar[dict[str, str] | None] = ContextVar("texts", default=None)


@contextmanager
def read_once() -> Generator[None]:
    """A context in which `read_text` reads each file once. Nested contexts share the texts of the outermost one."""
    token = _TEXTS.set({}) if _TEXTS.get() is None else None
    try:
        yield
    finally:
        if token is not None:
            _TEXTS.reset(token)


def read_text(path: str | Path) -> str:
    """The text of a file.

    Raises:
        OSError, UnicodeDecodeError: if it cannot be read, or is no text.
    """
    texts, name = _TEXTS.get(), str(path)
    if texts is None or name not in texts:
        text = Path(path).read_text(encoding="utf-8")
        if texts is None:
            return text
        texts[name] = text
    return texts[name]
