"""The process of a candidate: what bounds it, and what it answers to the judge.

Its time and memory are bounded, and it reaches no network, writes no files but those of its folder, and neither reads
nor calls the reference. It answers calls, with what was seen of them, runs under checks, and proofs.
"""

from __future__ import annotations

import ctypes
import gc
import inspect
import multiprocessing
import os
import pickle
import re
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
from dataclasses import asdict, dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dialect.isa.row import VARYING
from ..arguments.arrays import DTYPES
from ..base.cache import read_records
from ..base.errors import WarploomError
from ..interp.machine.events import MemoryAccess
from ..interp.machine.kernel import Observer
from ..interp.machine.memory import Finding, InterpreterError
from .answers import ERROR, NOTE, JudgeFinding, as_reals, is_array, is_ndarray, note, overwrite, to_arrays
from .candidate import Candidate, CandidateCall, Made, PythonCandidate, judged_name

if TYPE_CHECKING:
    from ..numerics.floats import Array

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


_SPECIAL = re.compile(r"%[a-z]\w*")
MOVES = ("view", "empty", "copy", "detach", "transpose", "permute", "reshape", "aten.t.", "expand", "slice", "select")
"""What names of operations of torch that compute nothing have in them."""


@dataclass
class Answer:
    """What came of a call: the outputs and the arguments as they are afterwards; None and findings if it failed."""

    outputs: list[Any] | None = None
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    findings: list[JudgeFinding] = field(default_factory=list[JudgeFinding])
    seconds: float = 0.0
    proof: dict[str, Any] | None = None
    accesses: dict[str, dict[str, int]] | None = None
    counts: dict[str, Any] | None = None


class Service:
    """Answers requests of the judge by the methods that they name; `make` loads the candidate from its data."""

    candidate: Candidate

    def __init__(self, watch: Watch, make: Callable[[Made], Candidate], forbidden: Forbidden) -> None:
        self.watch, self.forbidden, self.make = watch, forbidden, make
        self._last: dict[str, Any] = {}
        self._returned: list[tuple[Any, Any]] = []

    def __call__(self, method: str, *arguments: Any, **options: Any) -> Answer | str:
        """Answers a request. A result of type `str` is an error of the judge's request."""
        try:
            answer: Answer | str = getattr(self, method)(*arguments, **options)
        except WarploomError as error:
            answer = Answer(findings=[_failed("call-failed", error)])
        if isinstance(answer, Answer):
            answer.findings += self._events()
        return answer

    def load(self, made: Made) -> Answer | str:
        try:
            self.candidate = self.make(made)
        except WarploomError as error:
            return str(error)
        except Exception as error:
            return Answer(findings=[_failed("load-failed", error)])
        self.forbidden.hide(sys.modules.get(judged_name(self.candidate.file)))
        return Answer(findings=_statically(self.candidate) if self.candidate.ptx else [])

    def _events(self) -> list[JudgeFinding]:
        events, self.watch.events = self.watch.events, {}
        return [JudgeFinding(code, message) for code, message in events.items()]

    def call(self, call: CandidateCall, *, reuse: bool = False) -> Answer:
        """A call. One that is to `reuse` memory puts its arguments where those of the last one were."""
        prepared = self.candidate.prepare(call)
        if reuse:
            for name, value in prepared.items():
                if name in self._last and overwrite(self._last[name], value):
                    prepared[name] = self._last[name]
        start = time.monotonic()
        try:
            returned = self.candidate.call(call, list(prepared.values()))
        except MemoryError:
            raise
        except InterpreterError as error:
            return Answer(findings=_located(error))
        except Exception as error:
            return Answer(findings=[_failed("call-failed", error)])
        seconds = time.monotonic() - start
        findings: list[JudgeFinding] = []
        if not reuse and any(not _same(kept, now) for kept, now in self._changed()):
            findings.append(JudgeFinding("result-overwritten", "this call changes what the last one returned"))
        self._last = prepared
        inplace = returned is None and call.written
        raw = [prepared[name] for name in call.written if name in prepared] if inplace else list(returned or ())
        if odd := [f"{type(value).__module__}.{type(value).__qualname__}" for value in raw if not is_array(value)]:
            text = f"expected arrays, tensors or numbers as outputs, got {', '.join(odd)}"
            return Answer(findings=[*findings, JudgeFinding("wrong-type", text)])
        outputs = [as_reals(each) for each in to_arrays(raw)]
        self._returned = [] if inplace else list(zip(raw, [np.copy(o) for o in to_arrays(raw)], strict=True))
        after = {n: v for n, v in zip(prepared, to_arrays(list(prepared.values())), strict=True) if n in call.arguments}
        return Answer(outputs, after, findings, seconds)

    def _changed(self) -> list[tuple[Any, Any]]:
        """The outputs of the last call as they were, and as they are."""
        now = to_arrays([returned for returned, _ in self._returned])
        return [(kept, one) for (_, kept), one in zip(self._returned, now, strict=True)]

    def inspect(self, call: CandidateCall) -> Answer:
        """A run of a kernel under all checks, with the counts of its report and what it accesses."""
        launch = self.candidate.launch(call)
        if launch is None:
            return Answer()
        from ..interp.watch.checks import ALL_ORDERS, CHECKS

        prepared = self.candidate.prepare(call)
        names = list(prepared)
        touched = Touched([arg if isinstance(arg, str) else "" for arg in launch.args])
        answer, start = Answer(), time.monotonic()
        try:
            place = launch.run(names)(list(prepared.values()), touched, (*CHECKS, ALL_ORDERS), report=True)
        except InterpreterError as error:
            return Answer(findings=_located(error))
        answer.findings += [_of_finding(f, self.candidate.file) for f in place.notes]
        for report in place.reports:
            kept = ("multiply_adds", "wavefronts", "wavefronts_extra", "sectors", "sectors_extra")
            every = report.as_json()
            counts = {"instructions": sum(report.mix.values()), "mix": report.mix}
            answer.counts = {key: every[key] for key in kept} | counts
        answer.accesses, answer.seconds = touched.bytes(), time.monotonic() - start
        wanted = (*call.written, *call.outputs)
        for name, accessed in answer.accesses.items():
            if accessed["written"] and name not in wanted:
                answer.findings.append(JudgeFinding("input-modified", f"the kernel writes {name}, which is an input"))
        return answer

    def library(self, call: CandidateCall) -> Answer:
        """The operations of torch that compute in a call."""
        candidate = self.candidate
        if not isinstance(candidate, PythonCandidate) or candidate.framework != "torch":
            return Answer()
        mode: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode
        names: dict[str, None] = {}

        class Recorder(mode):
            @classmethod
            def _should_skip_dynamo(cls) -> bool:
                return False  # To skip its compiler, torch would import it, which takes seconds.

            def __torch_dispatch__(
                self, function: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
            ) -> Any:
                if not any(word in str(function) for word in MOVES):
                    names[str(function)] = None
                return function(*args, **(kwargs or {}))

        prepared = list(candidate.prepare(call).values())
        with Recorder():
            candidate.call(call, prepared)
        return Answer(findings=[note("library", f"torch computes {', '.join(names)}")] if names else [])

    def prove(self, call: CandidateCall, text: str, function: str | None) -> Answer:
        """The proof against a function of linalg."""
        from ..proof.prove import prove
        from ..proof.question import PARTLY, Difference

        launch = self.candidate.launch(call)
        if launch is None:
            return Answer()
        arrays = {name: value for name, value in call.arguments.items() if is_ndarray(value)}
        names = [*call.arguments, *call.outputs]
        try:
            proof = prove(launch, text, arrays, function=function, names=names)
        except WarploomError as error:
            undecided = {"outcome": "undecided", "text": str(error)}
            return Answer(findings=[note("proof-undecided", str(error))], proof=undecided)
        answer = Answer(proof=asdict(proof))
        if proof.outcome == "refuted":
            first = next(iter(proof.differences), Difference("", (), 0))
            answer.findings.append(JudgeFinding("proof-refuted", proof.text, output=first.argument, index=first.index))
        elif proof.outcome == PARTLY:
            answer.findings.append(note("proof-conditional", proof.text))
        elif not proof:
            answer.findings.append(note("proof-undecided", proof.text))
        elif proof.compared:
            lines = ", ".join(map(str, proof.compared[:8]))
            answer.findings.append(note("proof-conditional", f"comparisons of data at lines {lines}"))
        return answer


def _same(a: Any, b: Any) -> bool:
    if not is_ndarray(a) or not is_ndarray(b):
        return True
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _failed(code: str, error: Exception) -> JudgeFinding:
    """An exception, with the last place of a file that it came through."""
    file, line, trace = "", 0, error.__traceback__
    while trace is not None:
        if "warploom" not in trace.tb_frame.f_code.co_filename:
            file, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    return JudgeFinding(code, f"{type(error).__name__}: {error}", ERROR, file, line)


def _located(error: InterpreterError) -> list[JudgeFinding]:
    findings = [_of_finding(f, f.file) for f in error.findings]
    return findings or [JudgeFinding("check-fault", str(error))]


def _of_finding(f: Finding, file: str) -> JudgeFinding:
    check = "fault" if f.check == "limit" else f.check
    code = "check-note" if f.severity == "note" else f"check-{check}"
    where = f" (CTA {f.cta}, warp {f.warp}, lane {f.lane})" if f.cta is not None else ""
    return JudgeFinding(code, f.message + where, f.severity, file, f.line, f.column, f.source)


class Touched(Observer):
    """The bytes of its arguments that a launch reads and writes. `names` are those of the arguments, "" for scalars."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self._seen: dict[str, tuple[Array, Array]] = {}

    def access(self, access: MemoryAccess) -> None:
        word, _, rest = access.buffer.name.partition("argument ")
        number = rest.split(" ")[0]
        if word or not number.isdigit() or int(number) >= len(self.names):
            return
        name = self.names[int(number)]
        empty = np.zeros(access.buffer.size, np.bool_)
        reads, writes = self._seen.setdefault(name, (empty, empty.copy()))
        at = access.start[:, None] + np.arange(access.width)
        if access.kind in ("load", "atomic", "fetch"):
            reads[at] = True
        if access.kind in ("store", "atomic", "copy"):
            writes[at] = True

    def bytes(self) -> dict[str, dict[str, int]]:
        """How many of each argument."""
        return {
            name: {"read": int(reads.sum()), "written": int(writes.sum()), "of": reads.size}
            for name, (reads, writes) in self._seen.items()
        }


def _statically(candidate: Candidate) -> list[JudgeFinding]:
    from ...dialect.ptx.check.module import check_text

    wrong = check_text(candidate.ptx, None, candidate.file).diagnostics
    diagnostics = [
        JudgeFinding("ptx-invalid", d.message, ERROR, candidate.file, d.line, d.column, d.source) for d in wrong
    ]
    for number, line in enumerate(candidate.ptx.splitlines(), 1):
        for name in VARYING.intersection(_SPECIAL.findall(line.partition("//")[0])):
            text = f"{name} has another value in each run, of which this judges one"
            diagnostics.append(JudgeFinding("machine-dependent", text, NOTE, candidate.file, number))
    return diagnostics
