"""What is wrong with a candidate: a code that stays, a sentence, a place; and the verdict that collects them.

`docs/judge.md` says what each code means. Codes stay; new ones may come. Those of notes refuse no candidate."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

ERROR, NOTE = "error", "note"


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
    """What `judge` says. It is true if there is no error. `runs` are the calls that were compared, `proof` what `prove`
    says, `accesses` the bytes of each argument that a kernel reads and writes, `counts` the totals of its report."""

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
