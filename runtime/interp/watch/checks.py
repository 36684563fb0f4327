"""Checks of a running kernel, by name.

What costs nothing is always looked at and ends a launch: accesses out of bounds or misaligned, stores to read-only
arrays, divergence around `.aligned` instructions, deadlocks, metadata that means nothing. The checks here are asked for
by name; the kernel runs on to its end, and all findings are reported together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from ....dialect import plugins
from ...base.errors import ArgumentError
from ..machine.kernel import Observer
from .accesses import Bounds, PendingReads, Proxies
from .barriers import Barriers, Departures, RegisterPool, Transactions
from .clocks import Clocks
from .findings import CheckError, Findings, Observers
from .registers import UninitialisedRegisters
from .shared import SharedMemory
from .tensor_memory import LoadedRegisters, TensorAccesses
from .warpgroups import WarpgroupRegisters
from .wmma_fragments import WmmaFragments
from .writers import GlobalProxies, GlobalWriters

if TYPE_CHECKING:
    from ..machine.memory import InterpreterError
    from .orders import Orders

CHECKS = {
    "races": "accesses to shared memory, and different values stored to one place in global memory, that nothing "
    "orders; data of copies that nobody has waited for; what wgmma and stores of copies still read, or cannot see yet",
    "uninitialised": "registers, shared and local memory that are read before they are written",
    "barriers": "threads that do not agree on a barrier or a member mask: counts, repeated arrivals, lanes outside; "
    "bytes that no mbarrier expects; setmaxnreg that waits for ever",
    "bounds": "accesses to shared or local memory beyond the variable that their address is computed from",
    "wmma": "fragments of wmma used as if their arrangement were known",
    "wgmma": "registers of wgmma that are touched while it runs, or before a wgmma.fence; products never waited for; "
    "descriptors of another swizzle or other offsets than the tensor copy's",
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
        wanted = chosen(names)
        self.findings = Findings(strict=STRICT in wanted)
        members: list[Observer] = []
        registers = UninitialisedRegisters(self.findings) if "uninitialised" in wanted else None
        if registers is not None:
            members.append(registers)
        races = "races" in wanted or ALL_ORDERS in wanted
        if races or registers is not None or "tensor" in wanted:
            clocks = Clocks()
            shared = SharedMemory(self.findings, clocks, races, registers)
            members += (clocks, *([Proxies(self.findings, shared)] if races else ()), shared)
            if "tensor" in wanted:
                tensor = TensorAccesses(self.findings, shared)
                members += (tensor, LoadedRegisters(self.findings, tensor))
            if races:
                writers = GlobalWriters(self.findings, clocks)
                members += (writers, GlobalProxies(self.findings, writers))
                members += (PendingReads(self.findings, shared), Departures(self.findings, shared))
        if "barriers" in wanted or ALL_ORDERS in wanted:
            members += (member(self.findings) for member in (Barriers, Transactions, RegisterPool))
        if "bounds" in wanted:
            members.append(Bounds(self.findings))
        if "wmma" in wanted:
            members.append(WmmaFragments(self.findings))
        if "wgmma" in wanted:
            members.append(WarpgroupRegisters(self.findings))
        for name in wanted:
            if name not in CHECKS and (made := plugins.loaded(plugins.CHECKS, name)) is not None:
                members.append(cast("Callable[[Findings], Observer]", made)(self.findings))
        self._orders: Orders | None = None
        if ALL_ORDERS in wanted:
            from .flags import Flags
            from .orders import Orders

            self._orders = Orders(self.findings)
            members += (self._orders, Flags(self.findings))
        super().__init__(members)

    def error(self, last: InterpreterError | None = None) -> InterpreterError | None:
        """What to raise at the end, as `Findings.error` says. With all orders, deadlocks are explained."""
        if last is not None and self._orders is not None:
            self._orders.explain(last)
        return self.findings.error(last)


__all__ = ["ALL_ORDERS", "CHECKS", "STRICT", "CheckError", "CheckObserver", "chosen"]
