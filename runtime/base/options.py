"""What the interpreter is asked for besides a launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

from .errors import ArgumentError
from .launch import known_target

if TYPE_CHECKING:
    from ..interp.machine.kernel import Observer
    from ..interp.machine.memory import WarpOrder

Output: TypeAlias = Callable[[str], object]
"""Takes the text that an interpreted kernel prints."""

Checks: TypeAlias = str | Sequence[str]
"""What the interpreter looks for: names of `interp.checks.CHECKS` or "all", several in a sequence or with commas."""


@dataclass(frozen=True)
class Options:
    """What only the interpreter does: the arithmetic of another target, checks, reports, traces, a limit of steps.

    Raises:
        ArgumentError: for a limit below 1, or a target that there is not.
    """

    arch: str | None = None
    checks: Checks = ()
    report: bool = False
    max_steps: int | None = None
    output: Output | None = None
    trace: bool = False
    observer: Observer | None = None
    order: WarpOrder | None = None

    def __post_init__(self) -> None:
        limit = cast("object", self.max_steps)
        if limit is not None and (not isinstance(limit, int) or limit < 1):
            raise ArgumentError(f"expected max_steps to be an integer from 1 on, got {limit!r}")
        if self.arch is not None:
            known_target(self.arch, "arch")

    @property
    def unsupported_options(self) -> list[str]:
        """Why a GPU does not do what these options ask for."""
        arch = [] if self.arch is None else [f"arch='{self.arch}' is arithmetic for device='interp'; a GPU has its own"]
        asked = {
            "checks are made": self.checks,
            "a report is made": self.report,
            "a trace is made": self.trace,
            "steps are counted": self.max_steps is not None,
        }
        return arch + [f"{what} by the interpreter; pass device='interp'" for what, value in asked.items() if value]

    def on(self, device: str) -> str:
        """The device: the interpreter, where an option needs it."""
        needed = self.arch or self.checks or self.report or self.trace or self.max_steps or self.observer
        return "interp" if needed else device


DEFAULT = Options()
