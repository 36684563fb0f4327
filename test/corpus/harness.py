"""Runs cases on the interpreter, with every check, and says what came of each."""

from __future__ import annotations

import io
import re
import signal
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from types import FrameType
from typing import Any

from corpus.case import Array, Case
from corpus.cases import CASES
from corpus.store import Store, alone

from warploom.runtime import WarploomError, load_ptx
from warploom.runtime.interp.machine.memory import InterpreterError
from warploom.runtime.interp.watch.checks import CHECKS
from warploom.runtime.kernel.module import PtxModule

LIMIT = 60
"""Seconds that a case may take."""


@dataclass(frozen=True)
class Verdict:
    """`kind` is right; refused; alarm, if a check found something although the result is right; wrong; or endless."""

    case: Case
    kind: str
    reason: str = ""

    @property
    def expected(self) -> bool:
        """Right, or refused or reported for the reason that the case itself gives."""
        reason = self.case.refused
        return self.kind in ("refused", "alarm") and reason in self.reason if reason else self.kind == "right"

    def __str__(self) -> str:
        return f"{self.kind:8} {self.case.file}.{self.case.name}{f': {self.reason}' if self.reason else ''}"


def arguments(module: PtxModule, case: Case) -> tuple[list[Any], Any]:
    """The arguments of a case, with zeros for Triton's pointers to scratch memory, which no kernel here uses."""
    args, judge = case.arguments()
    return args + [0] * (len(module.kernel(case.name).parameters) - len(args)), judge


def launch(module: PtxModule, case: Case, args: list[Any], device: str, **options: Any) -> None:
    """Launches a case; Triton's PTX says itself how much shared memory it takes."""
    asked = re.match(r"// shared (\d+)", module.text)
    shared = int(asked[1]) if asked else case.shared
    module.launch(case.name, case.grid, case.block, args, shared, device=device, cluster=case.cluster, **options)


def arrays(values: list[Any] | tuple[Any, ...]) -> Iterator[Array]:
    """The arrays among arguments, those in structs too."""
    for value in values:
        if isinstance(value, tuple):
            yield from arrays(value)
        elif hasattr(value, "dtype") and getattr(value, "ndim", 0):
            yield value


def judge(module: PtxModule, case: Case) -> Verdict:
    """What the interpreter makes of a case."""
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LIMIT)
    try:
        _attempt(module, case, ("all",))
    except TimeoutError as error:
        return Verdict(case, "endless", str(error))
    except InterpreterError as error:
        first = str(error).splitlines()[0]
        is_planted = any(finding.check in CHECKS for finding in error.findings)
        return _unchecked(module, case, first) if is_planted else Verdict(case, "refused", first)
    except WarploomError as error:
        return Verdict(case, "refused", str(error).splitlines()[0])
    except AssertionError as error:
        return Verdict(case, "wrong", str(error))
    finally:
        signal.alarm(0)
    return Verdict(case, "right")


def _attempt(module: PtxModule, case: Case, checks: tuple[str, ...]) -> None:
    args, look = arguments(module, case)
    text = io.StringIO()
    with redirect_stdout(text):
        launch(module, case, args, "interp", checks=checks)
    look()
    if case.printed is not None and text.getvalue() != case.printed():
        raise AssertionError(f"printed {text.getvalue()!r}, expected {case.printed()!r}")


def _unchecked(module: PtxModule, case: Case, alarm: str) -> Verdict:
    try:
        _attempt(module, case, ())
    except WarploomError as error:
        return Verdict(case, "refused", str(error).splitlines()[0])
    except AssertionError as error:
        return Verdict(case, "wrong", f"{error}; {alarm}")
    return Verdict(case, "alarm", alarm)


def _too_long(signal: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"not done after {LIMIT} s")


def load(store: Store, case: Case, target: str, everything: bool = False) -> PtxModule | None:
    """The module of a case's kernel, without the others in its file or as a `everything`; None if the store has none.

    Raises:
        WarploomError: if the text is no PTX.
    """
    name = store.find(case.file, case.name, target)
    if name is None:
        return None
    text = store.texts[name]
    return load_ptx(text if everything else alone(text, case.name), name)


def verdicts(store: Store, target: str, names: tuple[str, ...] = (), everything: bool = False) -> Iterator[Verdict]:
    """What the interpreter makes of every case whose kernel the store has, of `names` only: sources or kernels."""
    for case in CASES:
        if names and not {case.file, case.name} & set(names):
            continue
        try:
            module = load(store, case, target, everything)
        except WarploomError as error:
            yield Verdict(case, "refused", str(error).splitlines()[0])
            continue
        if module is not None:
            yield judge(module, case)
