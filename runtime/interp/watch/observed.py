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
    """The observers of a number of launches, none where nothing is asked for; one `more` sees all of them."""

    def __init__(self, launches: int, report: bool, trace: bool, more: Observer | None = None) -> None:
        self._more = () if more is None else (more,)
        self._reporters: list[Reporter] = []
        self._tracers: list[Tracer] = []
        if report:
            from .reporter import Reporter

            self._reporters = [Reporter() for _ in range(launches)]
        if trace:
            from .tracer import Tracer

            self._tracers = [Tracer() for _ in range(launches)]

    def of(self, launch: int) -> Observer | None:
        """The observer of the launch of a number."""
        own = [*self._reporters[launch : launch + 1], *self._tracers[launch : launch + 1], *self._more]
        return Observers(own) if len(own) > 1 else next(iter(own), None)

    def trace_of(self, launch: int) -> LaunchTrace | None:
        """The trace of a launch up to its failure, if a trace was requested and has begun."""
        begun = [t for t in self._tracers[launch : launch + 1] if t.timeline.kernel is not None]
        return begun[0].trace() if begun else None

    @property
    def reports(self) -> tuple[LaunchReport, ...]:
        """The report of each launch; empty if no reports were requested."""
        return tuple(reporter.report() for reporter in self._reporters)

    @property
    def traces(self) -> tuple[LaunchTrace, ...]:
        """The trace of each launch; empty if no traces were requested."""
        return tuple(tracer.trace() for tracer in self._tracers)
