"""What looks on while a kernel runs: checks and reports.

A launch has an observer or none. Without one nothing here is called: steps are bound without it. With one, the machine
tells it of every CTA batch, instruction, memory access and meeting of threads, before their effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ...numerics.array import Array
from ..machine.kernel import DecodedKernel
from ..machine.memory import Buffer
from ..machine.state import State
from ..machine.threads import Selection
from .events import Events, Look, MemoryAccess


class Observer(Events):
    """Is told of every batch of CTAs too. Thread numbers and masks are those of the state begun last.

    With `merges`, batches may be observed in processes of their own: `take` gives there what was found, and `add` adds
    it here.
    """

    merges = False

    def take(self) -> object:
        """What was found since the last time."""
        return None

    def add(self, kernel: DecodedKernel, found: object) -> None:
        """Adds what another process took of a kernel's CTAs."""

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        """A batch of CTAs starts, and the one before is done."""


class Observers(Observer):
    """Several of them."""

    def __init__(self, members: Sequence[Observer]) -> None:
        self.members = tuple(members)
        self.merges = all(member.merges for member in self.members)

    def take(self) -> object:
        return [member.take() for member in self.members]

    def add(self, kernel: DecodedKernel, found: object) -> None:
        if isinstance(found, list):
            for member, own in zip(self.members, cast("list[object]", found), strict=True):
                member.add(kernel, own)

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        for member in self.members:
            member.begin(state, kernel)

    def watch(self, pc: int) -> Look | None:
        return _all([member.watch(pc) for member in self.members])

    def issue(self, pc: int) -> Look | None:
        return _all([member.issue(pc) for member in self.members])

    def access(self, access: MemoryAccess) -> None:
        for member in self.members:
            member.access(access)

    def come(self, number: int, expected: int, threads: Array) -> None:
        for member in self.members:
            member.come(number, expected, threads)

    def join(self, number: int, arrived: Array, waiting: Array) -> None:
        for member in self.members:
            member.join(number, arrived, waiting)

    def meet(self, pc: int, threads: Selection, members: Array, lanes: Array) -> None:
        for member in self.members:
            member.meet(pc, threads, members, lanes)

    def arrive(self, start: Array, threads: Array) -> None:
        for member in self.members:
            member.arrive(start, threads)

    def passed(self, start: Array, threads: Array) -> None:
        for member in self.members:
            member.passed(start, threads)

    def land(self, buffer: Buffer, start: Array, width: int, threads: Array | None) -> None:
        for member in self.members:
            member.land(buffer, start, width, threads)

    def end(self) -> None:
        for member in self.members:
            member.end()

    def weight(self, shared: int, warps: int) -> int:
        return sum(member.weight(shared, warps) for member in self.members)


def _all(looks: Sequence[Look | None]) -> Look | None:
    some = [look for look in looks if look is not None]
    if len(some) < 2:
        return some[0] if some else None

    def look(sel: Selection) -> None:
        for one in some:
            one(sel)

    return look
