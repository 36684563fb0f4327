"""Files that options of passes name, read once while a module is compiled: all that asks for one sees the same text."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

_TEXTS: ContextVar[dict[str, str] | None] = ContextVar("texts", default=None)


@contextmanager
def read_once() -> Generator[None]:
    """Keeps the text of each file that `read_text` reads, to the end of the outermost of such blocks."""
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
    held, name = _TEXTS.get(), str(path)
    if held is None or name not in held:
        text = Path(path).read_text(encoding="utf-8")
        if held is None:
            return text
        held[name] = text
    return held[name]
