"""Our verdict on the statements of PTX files beside ptxas's: which each of the two refuses, by spelling.

ptxas's errors can hide others, so what it blames is blanked and the rest is tried again, until it takes the file.
"""

from __future__ import annotations

import bisect
import itertools
import re
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pool
from pathlib import Path
from typing import NoReturn

from assembler import CURRENT, PTXAS
from refused import DEVIATES, fault, reason

from warploom.dialect.ptx.check.module import check_text

OLDEST = 75
"""The oldest GPU that ptxas makes code for; it checks PTX for older ones too."""
RENAMED = {101: 110}
ROUNDS = 40
TIMEOUT_S = 300
MAX_REFUSED = 0.0005
"""The part of a suite's statements that we may refuse and ptxas takes, but for the spellings of `deviations`, each of
which the tests know."""
SHOWN = 60
"""Lines of a report that are printed."""


class UnavailableError(Exception):
    """What a suite needs is not here, and why."""


def require_ptxas() -> None:
    """Raises:
    UnavailableError: where there is no ptxas.
    """
    if PTXAS is None:
        raise UnavailableError("ptxas is not here; the package nvidia-cuda-nvcc brings it")


@dataclass(frozen=True)
class Case:
    """A PTX file, and `arch`: what ptxas makes code for, which the file's own `.target` may be older than."""

    name: str
    text: str
    arch: str


@dataclass
class Outcome:
    """What came of one file: how many statements it has, and those on which the two disagree."""

    name: str
    instructions: int = 0
    taken: list[tuple[int, str, str]] = field(default_factory=list[tuple[int, str, str]])
    """Line, statement and ptxas's message, where we have no objection."""
    refused: list[tuple[int, str, str]] = field(default_factory=list[tuple[int, str, str]])
    """Line, statement and our message, where ptxas has none and nothing says why."""
    listed: list[tuple[int, str, str]] = field(default_factory=list[tuple[int, str, str]])
    """Line, statement and the reason, where we differ from ptxas on purpose."""
    skipped: str = ""
    """Why no ptxas of this version can judge the file."""
    failed: str = ""
    """Why the verdict of ptxas is not all there is."""


_HEAD = re.compile(r"\.version\s+(\d+)\.(\d+).*?\.target\s+sm_(\d+)([af]?)", re.DOTALL)
_INSTRUCTION = re.compile(
    r"\s*(?:@!?\s*[%\w$]+\s+)?[a-z]\w*(?:(?:\.|::)\w+)*(?:\s[^:]*)?;|\s*\{?\s*(?:@!?\s*[%\w$]+\s+)?[a-z]\w*[.\s]"
)
_ERROR = re.compile(r"^ptxas [^\n]*, line (\d+); (?:error|fatal)\s*: (.*)$", re.MULTILINE)


def arch_for(text: str) -> str | None:
    """What ptxas is asked to make code for, so that it takes the file's target; None without a header."""
    head = _HEAD.search(text)
    if head is None:
        return None
    number, suffix = int(head[3]), head[4]
    number = RENAMED.get(number, number)
    return f"sm_{number}{suffix}" if number >= OLDEST else f"sm_{OLDEST}"


def unjudged(text: str) -> str:
    """Why ptxas says nothing of a file at all; "" if it does."""
    head = _HEAD.search(text)
    if head is None:
        return "no .version or .target"
    if (int(head[1]), int(head[2])) > CURRENT:
        return f"PTX {head[1]}.{head[2]} is newer than ptxas"
    if ".address_size 32" in text:
        return "32-bit addresses, which ptxas no longer takes"
    return ""


def owners(lines: Sequence[str]) -> list[int]:
    """The first line of the statement that each line is part of, from 0."""
    first: list[int] = []
    start = 0
    for number, line in enumerate(lines):
        code = re.sub(r"//.*|\".*?\"", "", line).strip()
        first.append(start)
        if not code or code[-1] in ";{}:" or code.startswith((".version", ".target", ".address_size", ".loc", ".file")):
            start = number + 1
    return first


def compare(case: Case) -> Outcome:
    """The statements of a file on which we and ptxas disagree."""
    lines = case.text.split("\n")
    first = owners(lines)
    outcome = Outcome(case.name, sum(map(_is_instruction, lines)))
    checked = check_text(case.text)
    ours = {first[min(d.line, len(lines)) - 1]: d.message for d in reversed(checked.diagnostics)}
    theirs, outcome.failed = verdict(lines, first, case.arch)
    for line in sorted(theirs.keys() - ours.keys()):
        statement = _statement(lines, first, line)
        why = fault(_opcode(statement), theirs[line])
        (outcome.taken if why is None else outcome.listed).append((line + 1, statement, why or theirs[line]))
    if not outcome.failed:
        for line in sorted(ours.keys() - theirs.keys()):
            statement = _statement(lines, first, line)
            why = reason(_opcode(statement), ours[line], case.arch)
            statements = outcome.refused if why is None else outcome.listed
            statements.append((line + 1, statement, why or ours[line]))
    return outcome


def _is_instruction(line: str) -> bool:
    return _INSTRUCTION.match(line.partition("//")[0]) is not None


def _statement(lines: Sequence[str], first: Sequence[int], start: int) -> str:
    end = start
    while end + 1 < len(lines) and first[end + 1] == start:
        end += 1
    return " ".join(" ".join(lines[start : end + 1]).split())


def verdict(lines: Sequence[str], first: Sequence[int], arch: str) -> tuple[dict[int, str], str]:
    """ptxas's message for each statement it refuses, by its first line; and why that is not all, if it is not."""
    left = list(lines)
    messages: dict[int, str] = {}
    for _ in range(ROUNDS):
        output, failed = ptxas("\n".join(left), arch)
        if not failed:
            return messages, ""
        blamed: dict[int, str] = {}
        for line, message in _ERROR.findall(output):
            blamed.setdefault(first[int(line) - 1], message)
        new = blamed.keys() - messages.keys()
        if not new:
            return messages, next(iter(output.strip().split("\n")), "ptxas failed")
        for start in new:
            messages[start] = blamed[start]
            for number in range(start, len(lines)):
                if first[number] != start:
                    break
                if "{" in left[number] and ";" not in left[number]:
                    return messages, f"ptxas refuses the header of a function: {blamed[start]}"
                left[number] = _braces(left[number])
    return messages, "ptxas goes on finding errors"


def _braces(line: str) -> str:
    """The braces of a line that have no partner on it: those of blocks."""
    code = re.sub(r"//.*", "", line)
    while (shorter := re.sub(r"\{[^{}]*\}", "", code)) != code:
        code = shorter
    return "".join(re.findall(r"[{}]", code))


def ptxas(text: str, arch: str) -> tuple[str, bool]:
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(text)
        file.flush()
        command = [str(PTXAS), "-c", "-O0", "-arch", arch, file.name, "-o", "/dev/null"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return f"ptxas took longer than {TIMEOUT_S} s", True
    return done.stderr + done.stdout, done.returncode != 0


def accepted(head: str, kernels: Sequence[str], arch: str) -> set[int]:
    """The numbers of the kernels that ptxas takes when they follow `head` in one file.

    Those that it blames are left out, until it takes the rest. Where it blames none, each half is judged by itself.
    """
    return _accepted(head, kernels, range(len(kernels)), arch)


def _accepted(head: str, kernels: Sequence[str], left: Sequence[int], arch: str) -> set[int]:
    while left:
        starts = list(itertools.accumulate((kernels[n].count("\n") for n in left), initial=head.count("\n")))
        output, failed = ptxas(head + "".join(kernels[n] for n in left), arch)
        if not failed:
            break
        blamed = {left[bisect.bisect(starts, int(line) - 1) - 1] for line, _ in _ERROR.findall(output)}
        if not blamed:
            half = len(left) // 2
            parts = (left[:half], left[half:]) if half else ()
            return {n for part in parts for n in _accepted(head, kernels, part, arch)}
        left = [n for n in left if n not in blamed]
    return set(left)


@dataclass
class Report:
    """All outcomes of a suite."""

    outcomes: list[Outcome]

    @property
    def judged(self) -> list[Outcome]:
        """Those that ptxas has judged in full."""
        return [outcome for outcome in self.outcomes if not outcome.skipped and not outcome.failed]

    @property
    def instructions(self) -> int:
        return sum(outcome.instructions for outcome in self.judged)

    def rows(self, which: str) -> dict[tuple[str, str], list[str]]:
        """The places of each kind of disagreement: opcode and message, most frequent first."""
        kinds: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for outcome in self.outcomes:
            for line, statement, message in getattr(outcome, which):
                opcode = "" if which == "listed" else _opcode(statement)
                kinds[opcode, _kind(message)].append(f"{outcome.name}:{line}: {statement}")
        return dict(sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0])))

    @property
    def taken(self) -> int:
        """Statements that we take and ptxas refuses."""
        return sum(len(outcome.taken) for outcome in self.outcomes)

    @property
    def refused(self) -> float:
        """The part of all statements that we refuse and ptxas takes, and that are no deviations."""
        listed = sum(not why.startswith(DEVIATES) for o in self.judged for *_, why in o.listed)
        return (sum(len(o.refused) for o in self.judged) + listed) / max(1, self.instructions)

    @property
    def faults(self) -> list[str]:
        """Why the suite does not pass, a reason each.

        We take nothing that ptxas refuses, and refuse next to nothing that it takes, with a reason each. Of the files
        that ptxas can judge, all are judged in full, and there is one.
        """
        unexplained = sum(len(outcome.refused) for outcome in self.outcomes)
        failed = sum(bool(outcome.failed) for outcome in self.outcomes)
        reasons = {
            f"{self.taken} statements taken that ptxas refuses": self.taken,
            f"{unexplained} statements refused that ptxas takes, without a reason": unexplained,
            f"{self.refused:.4%} refused that ptxas takes, more than {MAX_REFUSED:.4%}": self.refused > MAX_REFUSED,
            f"{failed} files not judged in full": failed,
            "nothing judged": not self.instructions,
        }
        return [why for why, so in reasons.items() if so]

    def text(self) -> Iterator[str]:
        """The report, a line at a time."""
        judged = f"{len(self.judged)} files, {self.instructions} instructions judged"
        yield f"{judged}, {self.refused:.4%} refused that ptxas takes"
        for name, which in (
            ("taken by us, refused by ptxas", "taken"),
            ("refused by us, taken by ptxas, without a reason", "refused"),
            ("refused by us, taken by ptxas, with a reason", "listed"),
        ):
            rows = self.rows(which)
            yield f"\n== {name}: {sum(map(len, rows.values()))} in {len(rows)} kinds"
            for (opcode, message), places in rows.items():
                yield f"{len(places):5} {opcode}: {message}" if opcode else f"{len(places):5} {message}"
                yield f"        e.g. {places[0][:200]}"
        for name, which in (("not judged in full", "failed"), ("skipped", "skipped")):
            reasons: defaultdict[str, list[str]] = defaultdict(list)
            for outcome in self.outcomes:
                if why := getattr(outcome, which):
                    reasons[re.sub(r"'[^']*'|/tmp\S*", "...", why)].append(outcome.name)
            yield f"\n== {name}: {sum(map(len, reasons.values()))} files"
            for why, names in sorted(reasons.items(), key=lambda item: -len(item[1])):
                yield f"{len(names):5} {why}: {', '.join(names[:4])}"


def publish(lines: Sequence[str], out: Path, *, everything: bool) -> None:
    """Writes a report into a file, and prints it, or the beginning of it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(lines) + "\n")
    print("\n".join(lines[: len(lines) if everything else SHOWN]))
    print(f"the whole report: {out}")


def conclude(report: Report) -> NoReturn:
    """Ends the process: with 0 if the suite passes, otherwise with 1 after saying why not."""
    raise SystemExit("not passed: " + "; ".join(report.faults) if report.faults else 0)


def _opcode(statement: str) -> str:
    text = re.sub(r"^\{?\s*(@!?\s*[%\w$]+\s+)?", "", statement)
    match = re.match(r"\.?[\w.:]+", text)
    return match[0] if match else text[:20]


def _kind(message: str) -> str:
    return re.sub(r"%\w+|'_*\$?\w*\$\w*'|\b0x\w+|\b\d{3,}\b", "#", message)[:200]


def run(cases: Sequence[Case], jobs: int) -> Report:
    """Compares all files, in `jobs` processes."""
    outcomes: list[Outcome] = []
    todo: list[Case] = []
    for case in cases:
        why = unjudged(case.text)
        if why:
            outcomes.append(Outcome(case.name, skipped=why))
        else:
            todo.append(case)
    with Pool(jobs) as pool:
        outcomes.extend(pool.imap_unordered(compare, todo, chunksize=4))
    return Report(sorted(outcomes, key=lambda outcome: outcome.name))
