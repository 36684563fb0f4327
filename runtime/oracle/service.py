"""What the process of a candidate answers: calls, with what was seen of them; runs under checks; proofs."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dialect.isa.row import VARYING
from ..base.errors import WarploomError
from ..interp.machine.events import MemoryAccess
from ..interp.machine.kernel import Observer
from ..interp.machine.memory import Finding, InterpreterError
from .candidate import Candidate, CandidateCall, Made, PythonCandidate, judged_name
from .findings import ERROR, NOTE, JudgeFinding, note
from .tensors import as_reals, is_array, is_ndarray, overwrite, to_arrays
from .worker import Forbidden, Watch

if TYPE_CHECKING:
    from ..numerics.floats import Array


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
        """Loads the candidate."""
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
    """What `warploom check` says of the text."""
    from ..kernel.check import check_text

    wrong = check_text(candidate.ptx, None, candidate.file).diagnostics
    diagnostics = [
        JudgeFinding("ptx-invalid", d.message, ERROR, candidate.file, d.line, d.column, d.source) for d in wrong
    ]
    for number, line in enumerate(candidate.ptx.splitlines(), 1):
        for name in VARYING.intersection(_SPECIAL.findall(line.partition("//")[0])):
            text = f"{name} has another value in each run, of which this judges one"
            diagnostics.append(JudgeFinding("machine-dependent", text, NOTE, candidate.file, number))
    return diagnostics
