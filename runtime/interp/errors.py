"""What the interpreter raises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import WarploomError


@dataclass(frozen=True)
class Finding:
    """Something a kernel did wrong, and where.

    `check` names the kind: "load" for what cannot be run, "fault" for what ends a launch, otherwise the check that
    found it. `line` and `column` are the instruction's in `file`. `cta`, `warp`, `lane` and `address` are those of the
    first time, None where there is no single one; an address is one of its own state space. `count` is how often it
    was seen, at so many `places` in the file. A note is worth knowing and no error: a launch with nothing but notes is
    right.
    """

    check: str
    message: str
    file: str
    line: int
    column: int
    kernel: str
    cta: tuple[int, int, int] | None = None
    warp: int | None = None
    lane: int | None = None
    address: int | None = None
    count: int = 1
    places: int = 1
    severity: Literal["error", "note"] = "error"

    def __str__(self) -> str:
        place = [f"kernel {self.kernel}"]
        place += [f"CTA {self.cta}"] if self.cta is not None else []
        place += [f"warp {self.warp}"] if self.warp is not None else []
        place += [f"lane {self.lane}"] if self.lane is not None else []
        if self.address is not None and f"address {self.address:#x}" not in self.message:
            place.append(f"address {self.address:#x}")
        times = f"; {self.count} times" if self.count > 1 else ""
        times += f" at {self.places} places" if self.places > 1 else ""
        return f"{self.file}:{self.line}:{self.column}: {self.severity}: {self.message} ({', '.join(place)}{times})"


class InterpreterError(WarploomError):
    """A PTX program that cannot be run, or that did something wrong while it ran.

    The message is one line for each thing wrong: `file:line:col: error: what`, then where (kernel, CTA, warp, lane,
    address) as far as it applies. What went wrong in a run is in `findings`, too.
    """

    def __init__(self, message: str, findings: Sequence[Finding] = ()) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


class DecodeError(Exception):
    """What is wrong with the statement being decoded; the decoder adds where."""


class FaultError(Exception):
    """What an instruction did wrong; the machine adds where.

    `thread` is the number of the first thread at fault among those in flight, None if no single one is; `address` the
    one it used, if that is what is wrong.
    """

    def __init__(self, message: str, thread: int | None = None, address: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.thread = thread
        self.address = address
