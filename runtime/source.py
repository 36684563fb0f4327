"""Reading source files, with errors fit to read."""

from __future__ import annotations

from pathlib import Path

from ..passes.source import InputError, decode
from .errors import WarploomError


def read_source(path: str | Path) -> str:
    """The text of an MLIR or PTX file.

    Raises:
        WarploomError: naming the file, if it cannot be read or is no text.
    """
    language = "PTX" if Path(path).suffix == ".ptx" else "MLIR"
    try:
        return decode(Path(path).read_bytes(), str(path), language)
    except OSError as error:
        raise WarploomError(f"{path}: {error.strerror or error}") from error
    except InputError as error:
        raise WarploomError(str(error)) from error
