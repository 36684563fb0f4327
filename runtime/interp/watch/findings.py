"""What checks found, collected while a kernel runs on; the base of all checks, and several observers as one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from ..machine.events import Events, Look
from ..machine.kernel import DecodedKernel, Observer
from ..machine.memory import Finding, InterpreterError, WarpOrder
from ..machine.state import State

LISTED = 10
"""Findings of each check that are listed; more are counted."""


class CheckError(InterpreterError):
    """A kernel ran to its end, and checks reported findings, in the order of their occurrence."""


class Findings:
    """Findings by subject. A finding that occurs again is counted. With `strict`, notes are errors."""

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self._found: dict[Hashable, Finding] = {}
        self._places: dict[Hashable, set[tuple[int, int]]] = {}

    def add(self, key: Hashable, finding: Finding) -> None:
        """Keeps a finding, or adds its count and place to those of an earlier one of the same key."""
        earlier, places = self._found.get(key), self._places.setdefault(key, set())
        places.add((finding.line, finding.column))
        if earlier is None:
            self._found[key] = finding
        else:
            self._found[key] = replace(earlier, count=earlier.count + finding.count, places=len(places))

    def all(self) -> list[Finding]:
        """Each once."""
        return list(self._found.values())

    def notes(self) -> tuple[Finding, ...]:
        """The findings that are notes."""
        return tuple(f for f in self.all() if f.severity == "note")

    def error(self, last: InterpreterError | None = None) -> InterpreterError | None:
        """The error to raise at the end; None if there are only notes. `last` is the error that ended the launch
        early."""
        findings = sorted(self.all(), key=lambda f: f.severity)
        if not findings or (last is None and findings[0].severity == "note"):
            return last
        lines: list[str] = []
        for check in dict.fromkeys(f.check for f in findings):
            mine = [f for f in findings if f.check == check]
            lines += [str(f) for f in mine[:LISTED]]
            if len(mine) > LISTED:
                lines.append(f"{mine[0].file}: {mine[-1].severity}: {check}: {len(mine) - LISTED} more findings")
        if last is not None:
            lines.append(str(last))
        return CheckError("\n".join(lines), [*findings, *(last.findings if last else ())])


class Check(Observer):
    """An observer that reports findings under its name."""

    name = ""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings

    def line(self, pc: int) -> int:
        """Where an instruction stands."""
        return self.kernel.code[pc].source.line

    def name_of(self, thread: int, default: int | None = None) -> str:
        """A thread in words; with its CTA, unless the thread `default` is of the same."""
        cta, warp, lane = self.state.geometry.place(thread)
        same = default is not None and self.state.geometry.place(default)[0] == cta
        return f"{'' if same else f'CTA {cta}, '}warp {warp}, lane {lane}"

    def bound(self, what: str, about: Hashable = ()) -> None:
        """Notes at the entry of the kernel how far the check looks."""
        finding = replace(self.kernel.finding(self.name, self.kernel.entry, what), severity="note")
        self.findings.add((self.name, self.kernel.name, about), finding)

    def report(
        self, pc: int, message: str, thread: int | None, address: int | None = None, *, about: Hashable = (),
        count: int = 1, check: str = "", note: bool = False, together: bool = False, schedule: tuple[str, ...] = (),
        order: WarpOrder | None = None,
    ) -> None:  # fmt: skip
        """Adds a finding at an instruction, of which there is one for each place in the file and `about`; with
        `together` one for each `about`, whatever the place. `schedule` says in which order of warps it happens, and
        `order` runs it."""
        text = f"{self.kernel.code[pc].source.opcode}: {message}"
        finding = self.kernel.finding(check or self.name, pc, text, self.state.geometry, thread, address)
        place = None if together else (finding.line, finding.column)
        key = (finding.check, self.kernel.name, place, about, note)
        severity = "note" if note and not self.findings.strict else "error"
        self.findings.add(key, replace(finding, count=count, severity=severity, schedule=schedule, order=order))


_EVENTS = tuple(name for name in vars(Events) if name not in ("watch", "issue") and not name.startswith("_"))


class Observers(Observer):
    """Several observers, of batches in one process. An event goes to those that listen to it."""

    def __init__(self, members: Sequence[Observer]) -> None:
        self.members = tuple(members)
        for event in _EVENTS:
            handlers = [getattr(member, event) for member in self.members]
            ignored = getattr(Events, event)
            if call := _all([h for h in handlers if getattr(h, "__func__", None) is not ignored]):
                setattr(self, event, call)

    def weight(self, shared: int, warps: int) -> int:
        return sum(member.weight(shared, warps) for member in self.members)

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        for member in self.members:
            member.begin(state, kernel)

    def end(self) -> None:
        for member in self.members:
            member.end()

    def watch(self, pc: int) -> Look | None:
        return _all([member.watch(pc) for member in self.members])

    def issue(self, pc: int) -> Look | None:
        return _all([member.issue(pc) for member in self.members])


def _all(calls: Sequence[Callable[..., None] | None]) -> Callable[..., None] | None:
    """One callback that makes all calls that are not None; None if there are none."""
    some = [call for call in calls if call is not None]
    if len(some) < 2:
        return some[0] if some else None

    def call(*told: object, **named: object) -> None:
        for one in some:
            one(*told, **named)

    return call
