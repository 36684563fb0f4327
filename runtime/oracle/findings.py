"""What is wrong with a candidate: a code that stays, a sentence, a place; and the verdict that collects them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

ERROR, NOTE = "error", "note"

CODES: Mapping[str, str] = {
    "load-failed": "the candidate cannot be loaded",
    "ptx-invalid": "the PTX has an error that `warploom check` reports",
    "call-failed": "the candidate raises an error",
    "time-limit": "the candidate takes longer than --seconds",
    "memory-limit": "the candidate takes more memory than --megabytes",
    "network": "the candidate opens a network connection",
    "file-written": "the candidate changes a file outside its folder",
    "reference-called": "the candidate calls the reference",
    "reference-read": "the candidate opens the file of the reference",
    "missing-output": "the candidate returns fewer or more outputs than the reference",
    "wrong-shape": "an output has another shape than that of the reference",
    "wrong-type": "an output has another element type than that of the reference",
    "unwritten": "elements of an output are not written",
    "zeros": "an output is all zeros, and should not be",
    "constant": "an output is the same number everywhere, and should not be",
    "copied-input": "an output is a copy of an input, and should not be",
    "stale": "an output is that of an earlier call with other inputs",
    "ignores-input": "an output does not depend on an input that it should depend on",
    "reduced-precision": "an output is what inputs or results rounded to a smaller type give",
    "not-finite": "an output has infinities or NaN where the reference has none",
    "wrong-bits": "an output is another number where no rounding can occur",
    "wrong-value": "an output is farther from the reference than any order of roundings allows",
    "input-modified": "the candidate changes an input that the reference leaves as it is",
    "result-overwritten": "a later call changes the result of an earlier one",
    "check-fault": "the kernel accesses memory that is not there, or cannot go on",
    "check-races": "accesses race",
    "check-uninitialised": "registers or memory are read before they are written",
    "check-barriers": "threads do not agree on a barrier",
    "check-bounds": "an access is beyond the variable that its address is computed from",
    "check-wmma": "fragments are used as if their arrangement were known",
    "check-wgmma": "registers of a warpgroup's product are touched while it runs",
    "check-tensor": "tensor memory is used wrongly",
    "check-all-orders": "another order of warps decides otherwise",
    "check-load": "the interpreter cannot run an instruction",
    "proof-refuted": "the proof finds an output that is another function, or a run that fails",
}
"""Each code of an error, and what it says. Codes stay; new ones may come."""

NOTES: Mapping[str, str] = {
    "proof-undecided": "there is no proof, and no refutation",
    "proof-conditional": "the proof holds for inputs whose comparisons and branches have the outcomes of the run",
    "not-deterministic": "two calls with the same inputs give different bits",
    "library": "operations of a library that compute",
    "reference-constant": "the reference does not depend on its inputs, so that constants pass",
    "not-compared": "data for which the reference is not finite, or raises an error",
    "machine-dependent": "a kernel reads clocks or the number of its multiprocessor",
    "check-note": "what a check has seen and is no error",
}
"""The same of notes, which refuse no candidate."""


@dataclass(frozen=True)
class JudgeFinding:
    """One finding. `file` and `line` are a place in PTX, Python or CUDA, if there is one, and `source` the place that
    this was compiled from. `output` and `index` name an element of a result."""

    code: str
    message: str
    severity: str = ERROR
    file: str = ""
    line: int = 0
    column: int = 0
    source: str = ""
    output: str = ""
    index: tuple[int, ...] = ()

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}: " if self.line else ""
        source = f" ({self.source})" if self.source else ""
        return f"{place}{self.severity}: {self.message}{source} [{self.code}]"


def note(code: str, message: str) -> JudgeFinding:
    return JudgeFinding(code, message, NOTE)


@dataclass
class Verdict:
    """What `judge` says. It is true if there is no error. `runs` are the calls that were compared, `proof` what
    `prove` says, `accesses` the bytes of each argument that a kernel reads and writes, `counts` the totals of its
    report."""

    candidate: str
    reference: str
    findings: list[JudgeFinding] = field(default_factory=list[JudgeFinding])
    runs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    proof: dict[str, Any] | None = None
    accesses: dict[str, dict[str, int]] | None = None
    counts: dict[str, Any] | None = None
    seconds: float = 0.0

    def __bool__(self) -> bool:
        return not any(f.severity == ERROR for f in self.findings)

    @property
    def codes(self) -> list[str]:
        """The codes of the errors, each once."""
        return list(dict.fromkeys(f.code for f in self.findings if f.severity == ERROR))

    def add(self, finding: JudgeFinding) -> None:
        """Keeps a finding, once for each code, place and output."""
        key = (finding.code, finding.file, finding.line, finding.column, finding.output)
        if key not in [(f.code, f.file, f.line, f.column, f.output) for f in self.findings]:
            self.findings.append(finding)

    def as_json(self) -> dict[str, Any]:
        """The verdict as JSON objects."""
        return {"passed": bool(self), "codes": self.codes} | asdict(self)

    def __str__(self) -> str:
        word = "passes" if self else "is refused"
        runs = f"{len(self.runs)} calls compared with {self.reference} in {self.seconds:.1f} s"
        return "\n".join([*map(str, self.findings), f"{self.candidate}: {word}: {runs}"])
