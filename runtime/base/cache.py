"""What was compiled before, kept in files: kernels, and machine code.

An entry is one file: a checksum, and a record of the compiler. Nothing but records is made of it, and no code in it is
ever run. Writers put a whole file in its place at once, so that others see the old
one or the new one; an entry that is damaged is dropped. Entries that were used least recently go first when there is no
room. `WARPLOOM_CACHE` names another folder, or is "off".
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import is_dataclass
from functools import cache
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, cast

from .errors import ArgumentError

VARIABLE = "WARPLOOM_CACHE"
OFF = "off"

LIMIT = 512 * 1024 * 1024
"""Bytes of all entries, at most."""

UNCOUNTED = 64
"""A process writes this part of the limit before it looks at all entries again: to look takes 30 us for each."""

SUFFIX, UNFINISHED, DIGEST = ".entry", ".part", ".digest"

ABANDONED_S = 3600.0
"""After so many seconds nobody writes an unfinished entry any more."""

DIGITS = 64
"""Of a checksum: SHA-256, hexadecimal."""

_ROOM: dict[Path, int] = {}
"""Bytes that this process may write in a folder before it looks at the entries there."""

PACKAGE, PACKAGES = __name__.partition(".")[0], ("dialect", "passes", "runtime")


class CacheEntry(NamedTuple):
    """An entry as a file: when it was last used, in seconds since 1970, and its size."""

    path: Path
    used: float
    bytes: int


class Cache(NamedTuple):
    """The entries in a folder, at most `limit` bytes in total and what each process wrote since it last counted."""

    folder: Path
    limit: int = LIMIT

    def get(self, key: str) -> Any:
        """What an entry holds; None without one. A damaged entry is deleted."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        value = _unpacked(data)
        with suppress(OSError):
            if value is None:
                path.unlink()
            else:
                os.utime(path)
        return value

    def put(self, key: str, value: object) -> None:
        """Stores an entry. Errors of the file system are ignored, for a cache may not make a compilation fail."""
        data = _packed(value)
        if len(data) > self.limit:
            return
        with suppress(OSError):
            self.write(self._path(key), data)
            _ROOM[self.folder] = _ROOM.get(self.folder, 0) - len(data)
            if _ROOM[self.folder] <= 0:
                self._evict()
                _ROOM[self.folder] = self.limit // UNCOUNTED

    def write(self, path: Path, data: bytes) -> None:
        """Puts a file in the folder, whole and at once. Raises OSError if it cannot be written."""
        from tempfile import NamedTemporaryFile

        self.folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=self.folder, suffix=UNFINISHED, delete=False) as file:
            written = Path(file.name)
        try:
            written.write_bytes(data)
            os.replace(written, path)
        except OSError:  # the disk may be full: what is there of the file must not stay
            written.unlink(missing_ok=True)
            raise

    def entries(self) -> list[CacheEntry]:
        """All entries, the one used least recently first."""
        return sorted(self._files(SUFFIX), key=lambda entry: entry.used)

    def clear(self) -> int:
        """Drops all entries, digests of sources, and what was left unfinished; how many entries there were. Raises
        OSError if one cannot be dropped."""
        entries = self.entries()
        for entry in (*entries, *self._files(UNFINISHED), *self._files(DIGEST)):
            entry.path.unlink(missing_ok=True)
        return len(entries)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"

    def _files(self, suffix: str) -> Iterator[CacheEntry]:
        try:
            names = sorted(os.listdir(self.folder))
        except OSError:
            return
        for path in (self.folder / name for name in names if name.endswith(suffix)):
            with suppress(OSError):  # another process may just have dropped it
                status = path.stat()
                yield CacheEntry(path, status.st_mtime, status.st_size)

    def _evict(self) -> None:
        """Drops the least recently used entries until the rest fits, and temporary files of interrupted writers."""
        entries = self.entries()
        total = sum(entry.bytes for entry in entries)
        for entry in entries:
            if total <= self.limit:
                break
            entry.path.unlink(missing_ok=True)
            total -= entry.bytes
        old = time.time() - ABANDONED_S
        for entry in self._files(UNFINISHED):
            if entry.used < old:
                entry.path.unlink(missing_ok=True)


def _sha256(*data: bytes) -> str:
    import hashlib  # 3 ms, which a compilation without the cache does not wait for

    digest = hashlib.sha256()
    for part in data:
        digest.update(part)
    return digest.hexdigest()


def _packed(value: object) -> bytes:
    import pickle  # 2 ms, which a compilation without the cache does not wait for

    body = pickle.dumps(value)
    return _sha256(body).encode() + b"\n" + body


def _unpacked(data: bytes) -> Any:
    """What an entry holds; None if it is not what was written."""
    import pickle

    checksum, body = data[:DIGITS], data[DIGITS + 1 :]
    with suppress(pickle.UnpicklingError):
        return read_records(body) if _sha256(body).encode() == checksum else None


def read_records(data: bytes, is_other: Callable[[str, str], bool] = lambda module_name, global_name: False) -> Any:
    """The records of this package that `data`, a pickle, holds. `is_other` accepts what else may be in it, by the names
    of its module and of itself.

    Raises:
        pickle.UnpicklingError: for anything else, so that data can not run code.
    """
    import pickle

    class Records(pickle.Unpickler):
        def find_class(self, module_name: str, global_name: str, /) -> Any:
            if (module_name, global_name) == ("builtins", "frozenset") or is_other(module_name, global_name):
                return super().find_class(module_name, global_name)
            if module_name.startswith(f"{PACKAGE}."):
                kind = super().find_class(module_name, global_name)
                if isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, tuple)):
                    return cast("Any", kind)
            raise pickle.UnpicklingError(f"{module_name}.{global_name}, expected a record of {PACKAGE}")

    return Records(BytesIO(data)).load()


_UNUSED: ContextVar[bool] = ContextVar("unused", default=False)


@contextmanager
def unused() -> Generator[None]:
    """Nothing is read from the cache, or kept in it, within."""
    token = _UNUSED.set(True)
    try:
        yield
    finally:
        _UNUSED.reset(token)


def kept() -> Cache | None:
    """The cache that is in use; None where it is off."""
    return None if _UNUSED.get() else configured()


def configured() -> Cache | None:
    """The cache that the environment configures: in the folder WARPLOOM_CACHE, else in that of the platform. None if
    the variable is "off". Raises ArgumentError if the variable refers to the home of an unknown user."""
    named = os.environ.get(VARIABLE, "")
    if named.lower() == OFF:
        return None
    if named:
        try:
            return Cache(Path(named).expanduser())
        except RuntimeError:
            raise ArgumentError(f"{VARIABLE}: no user has the home folder in {named!r}") from None
    from platformdirs import user_cache_path

    return Cache(user_cache_path("warploom", appauthor=False))


def key_of(kind: str, what: Mapping[str, object]) -> str:
    """The key of an entry: a digest of everything that it depends on, as JSON has it, and of the compiler itself."""
    return _sha256(json.dumps([kind, compiler(), what], sort_keys=True).encode())


def _version_of_xdsl() -> str:
    """The version of xDSL, from the name of its metadata folder, which is faster than `importlib.metadata`."""
    spec = find_spec("xdsl")
    places = [] if spec is None else [Path(place).parent for place in spec.submodule_search_locations or ()]
    versions = sorted(path.name for place in places for path in place.glob("xdsl-*.dist-info"))
    if versions:
        return " ".join(versions)
    from importlib.metadata import version

    return version("xdsl")


ROOT = Path(__file__).parents[2]
"""The folder of the packages."""


def sources() -> Iterator[tuple[str, int, int]]:
    """The source files of the compiler: the path of each, when it was changed, in nanoseconds since 1970, its size."""
    folders = [str(ROOT / package) for package in PACKAGES]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    status = entry.stat()
                    yield entry.path, status.st_mtime_ns, status.st_size
                elif entry.name != "__pycache__" and entry.is_dir():
                    folders.append(entry.path)


@cache
def compiler() -> str:
    """A digest of xDSL's version and of what the sources contain, wherever they lie. To read them takes longer than all
    else of a call: the digest is kept for each place, with the times and sizes of the files that it was made of."""
    files, store = _sha256(json.dumps(sorted(sources())).encode()), kept()
    path = None if store is None else store.folder / f"{_sha256(os.fsencode(ROOT))}{DIGEST}"
    value = None
    with suppress(OSError):
        value = None if path is None else _unpacked(path.read_bytes())
    if value is None or value[0] != files:
        value = files, _contents()
        with suppress(OSError):
            if store is not None and path is not None:
                store.write(path, _packed(value))
    return _sha256(_version_of_xdsl().encode(), value[1].encode())


def _contents() -> str:
    """A digest of the sources, by their paths within the folder of the packages."""
    digests = ((os.path.relpath(path, ROOT), _sha256(Path(path).read_bytes())) for path, *_ in sources())
    return _sha256(json.dumps(sorted(digests)).encode())
