"""A process of its own for a candidate: its time and memory are bounded, and it reaches no network, writes no files but
those of its folder, and neither reads nor calls the reference."""

from __future__ import annotations

import ctypes
import gc
import inspect
import multiprocessing
import os
import pickle
import resource
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import FunctionType
from typing import Any

from ..arguments.dtypes import DTYPES
from ..base.cache import read_records

SOCKETS = ("socket.connect", "socket.getaddrinfo", "socket.sendto", "socket.bind")
CHANGES: Mapping[str, Sequence[tuple[int, int | None]]] = {
    "open": ((0, None),), "os.truncate": ((0, None),), "os.remove": ((0, 1),), "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),), "os.chmod": ((0, 2),), "os.symlink": ((1, 2),), "os.rename": ((0, 2), (1, 3)),
    "os.link": ((0, 2), (1, 3)),
}  # fmt: skip
"""Audit events of changes: where a name is among their arguments, and the descriptor of the folder that it is in."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
MEGABYTE = 1 << 20
SHARED = "/dev/shm"
"""Where processes that a candidate starts have locks and memory in common."""
ARRAYS = {"_reconstruct", "_frombuffer", "scalar", "ndarray", "dtype"} | {t.name for t in DTYPES.values()}
"""What arrays and numbers of answers are made of."""
SPARE, LOADING = 64, 4096
"""Megabytes above what the process has before a request, at the least; and more while the candidate is loaded."""


class LimitError(Exception):
    """A candidate went over a limit, or its process ended: `code` is that of the finding."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Forbidden:
    """What a candidate may not use: the reference, a function or a file, and its names in the candidate's file."""

    function: Callable[..., Any] | None = None
    file: str = ""
    names: frozenset[str] = frozenset()

    def hide(self, module: object = None) -> None:
        """Lets calls of the reference raise an error in this process; `module` is that of the candidate's file."""
        for reference in (self.function, *(getattr(module, name, None) for name in self.names)):
            if isinstance(reference, type):
                methods = [m for name, m in vars(reference).items() if name != "__init__"]
            else:
                methods = [reference, *([inspect.unwrap(reference)] if callable(reference) else [])]
            for method in methods:
                function = getattr(method, "__func__", method)
                if isinstance(function, FunctionType):
                    free = function.__code__.co_freevars
                    function.__code__ = _called.__code__.replace(co_freevars=free)


def _called(*_: object, **__: object) -> None:
    """Stands for the reference. It has the globals of that."""
    __import__("sys").audit("warploom.reference")


class Watch:
    """The forbidden actions of a candidate's process: a sentence for each code."""

    def __init__(self, forbidden: str = "", folder: str = "") -> None:
        self.events: dict[str, str] = {}
        self.forbidden, self.folder = forbidden, folder
        self.places = (folder, SHARED) if os.path.isdir(SHARED) else (folder,)

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """The hook: no connections, no changes outside of the folder; who opens the reference is noted."""
        if event in CHANGES and (event != "open" or args[2] & WRITING):
            for name, folder in CHANGES[event]:
                self._changed(args[name], -1 if folder is None else args[folder])
        if event == "warploom.reference":
            self.events["reference-called"] = "the candidate calls the reference"
            raise PermissionError("a candidate does not call the reference")
        if event in SOCKETS and not (event == "socket.bind" and args[0].family == socket.AF_UNIX):
            self.events["network"] = f"{event}: the candidate opens a network connection"
            raise PermissionError("a candidate has no network")
        if event == "open" and self.forbidden and not isinstance(args[0], int):
            name = os.fsdecode(args[0])
            if os.path.realpath(name) == self.forbidden:
                self.events["reference-read"] = f"the candidate opens {name}"

    def _changed(self, name: Any, folder: int) -> None:
        if isinstance(name, int):
            return
        inside = os.readlink(f"/proc/self/fd/{folder}") if folder >= 0 else ""
        path = os.path.realpath(os.path.join(inside, os.fsdecode(name)))
        if path != os.devnull and all(os.path.commonpath([path, place]) != place for place in self.places):
            self.events["file-written"] = f"the candidate changes {path}"
            raise PermissionError(f"a candidate changes no files but those of its folder {self.folder}")


class Worker:
    """A process that answers by what `make(watch)` returns after a fork. Its time limit starts at once."""

    def __init__(
        self, make: Callable[[Watch], Callable[..., Any]], seconds: float, megabytes: int, forbidden: str = ""
    ) -> None:
        self.end = time.monotonic() + seconds
        self.seconds, self.megabytes = seconds, megabytes
        context = multiprocessing.get_context("fork")
        self.connection, other = context.Pipe()
        sys.stdout.flush()
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="warploom-"))
        arguments = (other, make, megabytes, Watch(forbidden, self.folder))
        self.process = context.Process(target=_main, args=arguments)
        self.process.start()
        other.close()

    def ask(self, *request: Any, **options: Any) -> Any:
        """The answer of the candidate's process to these arguments. Raises LimitError if it exceeds its time or memory,
        or ends."""
        try:
            self.connection.send((request, options))
            if not self.connection.poll(max(0.0, self.end - time.monotonic())):
                raise LimitError("time-limit", f"the candidate takes longer than {self.seconds:g} seconds")
            kind, answer = read_records(self.connection.recv_bytes(), _is_array)
        except pickle.UnpicklingError as error:
            raise LimitError("call-failed", f"the candidate's process answers with {error}") from None
        except (EOFError, ConnectionError, OSError):
            self.process.join(1)
            code = self.process.exitcode
            killed = code == -signal.SIGKILL
            what = f"the candidate's process ended with {'signal' if (code or 0) < 0 else 'code'} {abs(code or 0)}"
            raise LimitError("memory-limit" if killed else "call-failed", what) from None
        if kind == "memory":
            raise LimitError("memory-limit", f"the candidate takes more than {self.megabytes} megabytes")
        return answer

    def close(self) -> None:
        """Ends the process, and what it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid or 0, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.connection.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _is_array(module_name: str, global_name: str) -> bool:
    return module_name.partition(".")[0] in ("numpy", "ml_dtypes") and global_name in ARRAYS


def _main(connection: Connection, make: Callable[[Watch], Callable[..., Any]], megabytes: int, watch: Watch) -> None:
    """The process of a candidate: it answers requests until the connection closes."""
    os.setpgid(0, 0)
    gc.freeze()  # What the process was forked from is never collected here: to look through it takes seconds.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.dont_write_bytecode = True
    tempfile.tempdir = watch.folder
    os.environ |= dict.fromkeys(("TMPDIR", "XDG_CACHE_HOME", "TRITON_HOME", "TRITON_CACHE_DIR"), watch.folder)
    _restricted(watch.places, watch.forbidden)
    sys.addaudithook(watch.audit)
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)  # Threads of the process that this one was forked from are not here.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        serve, extra = make(watch), LOADING
        while True:
            request, options = connection.recv()
            _limit(megabytes + extra)
            extra = 0
            try:
                connection.send(("answer", serve(*request, **options)))
            except MemoryError:
                gc.collect()
                connection.send(("memory", None))
    except (EOFError, ConnectionError):
        return
    except MemoryError:
        connection.send(("memory", None))


CREATE_RULESET, ADD_RULE, RESTRICT_SELF, NO_NEW_PRIVILEGES = 444, 445, 446, 38
"""System calls of Landlock, by which Linux restricts a process and all that it starts, and what `prctl` asks first."""
MAY_WRITE, FOLDERS, MAY_READ = 1 << 1 | 1 << 14, 0b11111111 << 4 | 1 << 12 | 1 << 13, 1 << 2
"""Rights of Landlock's versions: to write and truncate files; to make, remove and move them; to read."""


def _restricted(places: Sequence[str], unread: str) -> None:
    """Restricts native code and children by Landlock (Linux 5.19): writing to `places` alone, no reading `unread`."""
    if not sys.platform.startswith("linux"):
        return
    library = ctypes.CDLL(None)
    rights = MAY_WRITE | FOLDERS | (MAY_READ if unread else 0)
    rules = library.syscall(CREATE_RULESET, struct.pack("Q", rights), 8, 0)
    if rules < 0:
        return
    allowed = [*((place, rights) for place in places), (os.devnull, rights & (MAY_WRITE | MAY_READ))]
    for path, right in [*allowed, *((str(path), MAY_READ) for path in _beside(unread))]:
        with suppress(OSError):
            place = os.open(path, os.O_PATH)
            library.syscall(ADD_RULE, rules, 1, struct.pack("=Qi", right, place), 0)
            os.close(place)
    library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    library.syscall(RESTRICT_SELF, rules, 0)
    os.close(rules)


def _beside(unread: str) -> Iterator[Path]:
    """All files and folders except for one file, its parents, and its compiled Python files."""
    path = Path(unread)
    for folder in path.parents if unread else ():
        others = (each for each in folder.iterdir() if each != path and each.name != "__pycache__")
        yield from (each for each in others if not each.is_symlink())  # What one leads to may be above the file.
        path = folder


def _limit(megabytes: int) -> None:
    """Limits further allocations to `megabytes`, if Linux tells how much is allocated now."""
    if not os.path.exists("/proc/self/statm"):
        return
    with open("/proc/self/statm") as file:
        data = int(file.read().split()[5]) * resource.getpagesize()
    bound = data + max(SPARE, megabytes) * MEGABYTE
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (bound if hard < 0 else min(bound, hard), hard))
