"""Who looks on while the launches of a call run on the interpreter: what makes reports, and what makes traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..machine.kernel import Observer, Observers

if TYPE_CHECKING:
    from .report import LaunchReport
    from .reporter import Reporter
    from .timeline import LaunchTrace
    from .tracer import Tracer


class LaunchObservers:
    """The observers of a number of launches, none where nothing is asked for."""

    def __init__(self, launches: int, report: bool, trace: bool) -> None:
        self._reporters = _reporters(launches) if report else []
        self._tracers = _tracers(launches) if trace else []

    def of(self, launch: int) -> Observer | None:
        """The observer of the launch of a number."""
        found: list[Observer] = [*self._reporters[launch : launch + 1], *self._tracers[launch : launch + 1]]
        return Observers(found) if len(found) > 1 else next(iter(found), None)

    @property
    def reports(self) -> tuple[LaunchReport, ...]:
        """What each launch did, counted, if that was asked for."""
        return tuple(reporter.report() for reporter in self._reporters)

    @property
    def traces(self) -> tuple[LaunchTrace, ...]:
        """What each launch did over time, if that was asked for."""
        return tuple(tracer.trace() for tracer in self._tracers)


def _reporters(launches: int) -> list[Reporter]:
    from .reporter import Reporter

    return [Reporter() for _ in range(launches)]


def _tracers(launches: int) -> list[Tracer]:
    from .tracer import Tracer

    return [Tracer() for _ in range(launches)]
