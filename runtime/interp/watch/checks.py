"""Checks of a running kernel, by name; what they find, and the base of all of them.

What costs nothing is always looked at and ends a launch: accesses out of bounds or misaligned, stores to read-only
arrays, divergence around `.aligned` instructions, deadlocks, metadata that means nothing. The checks here are asked for
by name; the kernel runs on to its end, and all findings are reported together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from ....dialect import plugins
from ...base.errors import ArgumentError
from ..machine.kernel import DecodedKernel, Observer, Observers
from ..machine.memory import Finding, InterpreterError, WarpOrder
from ..machine.state import State

if TYPE_CHECKING:
    from .orders import Orders

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
        """The error to raise at the end; None if there are only notes. `last` is that which ended the launch early."""
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

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        self.state = state
        self.kernel = kernel

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


# Checks by name.

CHECKS = {
    "races": "accesses to shared memory, and different values stored to one place in global memory, that nothing "
    "orders; data of copies that nobody has waited for; what wgmma and stores of copies still read, or cannot see yet",
    "uninitialised": "registers, shared and local memory that are read before they are written",
    "barriers": "threads that do not agree on a barrier or a member mask: counts, repeated arrivals, lanes outside; "
    "bytes that no mbarrier expects; setmaxnreg that waits for ever",
    "bounds": "accesses to shared or local memory beyond the variable that their address is computed from",
    "wmma": "fragments of wmma used as if their arrangement were known",
    "wgmma": "registers of wgmma that are touched while it runs, or before a wgmma.fence; products never waited for",
    "tensor": "tensor memory that is read before it is written, used without a wait or a fence, or never freed; "
    "registers that tcgen05.ld has not brought yet",
}
"""What each check looks for."""
ALL_ORDERS = "all-orders"
"""Named among checks, it makes those of races and barriers, and looks for orders of warps that decide otherwise."""
STRICT = "strict"
"""Named among checks, it makes errors of notes; alone, of those of all checks."""


def chosen(names: str | Sequence[str]) -> tuple[str, ...]:
    """The checks that names mean: one, several (in one string, with commas between), or "all"; "all-orders" and
    "strict" behind them if they are named. The beginning of a name will do. Raises ArgumentError for a name that means
    no check, or several."""
    every = (*CHECKS, ALL_ORDERS, STRICT)
    if not isinstance(cast("object", names), str | Sequence):
        raise ArgumentError(f"expected checks among {', '.join(every)} and all, got {names!r}")
    words = names.split(",") if isinstance(names, str) else names
    selected: list[str] = []
    for word in words:
        fits = list(CHECKS) if word == "all" else [n for n in every if word and n.startswith(word)]
        fits = fits or [n for n in plugins.entries(plugins.CHECKS) if n == word]
        if not fits or (len(fits) > 1 and word != "all"):
            raise ArgumentError(f"expected checks among {', '.join(every)} and all, got '{word}'")
        selected += fits
    checks = [name for name in dict.fromkeys(selected) if name != STRICT]
    return (*(checks or CHECKS), STRICT) if STRICT in selected else tuple(checks)


class CheckObserver(Observers):
    """An observer that makes the checks named, and keeps what they find."""

    def __init__(self, names: str | Sequence[str]) -> None:
        from . import accesses, barriers, flags, orders, shared, tensor_memory, warpgroups, wmma_fragments, writers
        from .registers import UninitialisedRegisters

        wanted = chosen(names)
        findings = self.findings = Findings(strict=STRICT in wanted)
        members: list[Observer] = []
        registers = UninitialisedRegisters(findings) if "uninitialised" in wanted else None
        if registers is not None:
            members.append(registers)
        races = "races" in wanted or ALL_ORDERS in wanted
        if races or registers is not None or "tensor" in wanted:
            memory = shared.SharedMemory(findings, races, registers)
            members.append(memory)
            if "tensor" in wanted:
                tensor = tensor_memory.TensorAccesses(findings, memory)
                members += (tensor, tensor_memory.LoadedRegisters(findings, tensor))
            if races:
                stores = writers.GlobalWriters(findings, memory)
                members += (stores, writers.GlobalProxies(findings, stores))
                more = accesses.Proxies, accesses.PendingReads, barriers.Departures
                members += (member(findings, memory) for member in more)
        if "barriers" in wanted or ALL_ORDERS in wanted:
            more = barriers.Barriers, barriers.Transactions, barriers.RegisterPool
            members += (member(findings) for member in more)
        alone = {
            "bounds": accesses.Bounds, "wmma": wmma_fragments.WmmaFragments, "wgmma": warpgroups.WarpgroupRegisters,
        }  # fmt: skip
        members += (made(findings) for name, made in alone.items() if name in wanted)
        for name in wanted:
            if name not in CHECKS and (made := plugins.loaded(plugins.CHECKS, name)) is not None:
                members.append(cast("Callable[[Findings], Observer]", made)(findings))
        self._orders: Orders | None = None
        if ALL_ORDERS in wanted:
            self._orders = orders.Orders(findings)
            members += (self._orders, flags.Flags(findings))
        super().__init__(members)

    def error(self, last: InterpreterError | None = None) -> InterpreterError | None:
        """What to raise at the end, as `Findings.error` says. With all orders, deadlocks are explained."""
        if last is not None and self._orders is not None:
            self._orders.explain(last)
        return self.findings.error(last)
