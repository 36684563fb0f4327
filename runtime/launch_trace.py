"""What the warps of an interpreted launch do over time, and the same in the Chrome trace format.

Times are cycles of a model, `interp/traces/cycles.py`; nothing is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from .grid import Dim3

TraceKind: TypeAlias = Literal["tensor copy", "cp.async", "product", "wait", "store"]
"""What goes on: a bulk or tensor copy to shared memory, a group of `cp.async`, matrix products, a wait, stores."""


@dataclass(frozen=True)
class TraceEvent:
    """Something that a warp did or started, from cycle `start` to cycle `end`.

    `warp` is the number, within the CTA, of the warp that issued the instruction. `line` is the line of the instruction
    in the PTX text. While an `asynchronous` event lasts, the warp executes other instructions. `details` has more
    numbers: bytes, instructions, cycles in which the tensor cores are busy.
    """

    cta: int
    warp: int
    kind: TraceKind
    name: str
    line: int
    start: int
    end: int
    asynchronous: bool = False
    details: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class LaunchTrace:
    """A timeline of the first CTAs of one launch. `places` has their indices in the grid, and `total` is the number of
    CTAs.

    Every CTA begins at cycle 0, as if it had an SM to itself. `events` are sorted by their start.
    """

    kernel: str
    grid: Dim3
    block: Dim3
    places: tuple[Dim3, ...]
    total: int
    events: tuple[TraceEvent, ...]

    @property
    def cycles(self) -> int:
        """When the last event ends."""
        return max((event.end for event in self.events), default=0)

    def of_cta(self, cta: int) -> tuple[TraceEvent, ...]:
        """The events of the CTA at this position of `places`."""
        return tuple(event for event in self.events if event.cta == cta)


@dataclass(frozen=True)
class TraceRow:
    """Events of one warp that do not overlap: what it does itself, or asynchronous ones of one kind."""

    warp: int
    name: str
    events: tuple[TraceEvent, ...]


def rows(events: Sequence[TraceEvent]) -> Iterator[TraceRow]:
    """The rows of one CTA's events, warp by warp; asynchronous events take as many rows as overlap."""
    for warp in sorted({event.warp for event in events}):
        mine = [event for event in events if event.warp == warp]
        yield TraceRow(warp, f"warp {warp}", tuple(e for e in mine if not e.asynchronous))
        for kind in dict.fromkeys(event.kind for event in mine if event.asynchronous):
            for number, row in enumerate(_apart([e for e in mine if e.asynchronous and e.kind == kind])):
                again = f" ({number + 1})" if number else ""
                yield TraceRow(warp, f"warp {warp}: {kind}{again}", tuple(row))


def _apart(events: Sequence[TraceEvent]) -> list[list[TraceEvent]]:
    """Events in as few rows as need be, so that none overlap in a row."""
    found: list[list[TraceEvent]] = []
    for event in sorted(events, key=lambda e: e.start):
        free = next((row for row in found if row[-1].end <= event.start), None)
        if free is None:
            found.append([event])
        else:
            free.append(event)
    return found


def chrome_trace(traces: Sequence[LaunchTrace], time: str, version: str) -> dict[str, Any]:
    """The object form of the Chrome trace format, for chrome://tracing and Perfetto.

    A CTA is a process, a row a thread. A cycle is written as a microsecond, the unit of the format; `time` says in
    words what it is. Launches follow each other.
    """
    events: list[dict[str, Any]] = []
    begin = 0
    for launch in traces:
        for cta in range(len(launch.places)):
            events += _process(launch, cta, len({e["pid"] for e in events}), begin)
        begin += launch.cycles
    about = {
        "time": time,
        "unit": "1 us shown is 1 modelled cycle",
        "generator": version,
        "launches": [
            {"kernel": t.kernel, "grid": t.grid, "block": t.block, "ctas": t.total, "traced": len(t.places)}
            for t in traces
        ],
    }
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}


def _process(launch: LaunchTrace, cta: int, pid: int, begin: int) -> Iterator[dict[str, Any]]:
    """The events of one CTA."""
    place = ", ".join(map(str, launch.places[cta]))
    yield _named("process_name", pid, 0, {"name": f"{launch.kernel}, CTA ({place})"})
    yield _named("process_sort_index", pid, 0, {"sort_index": pid})
    for tid, row in enumerate(rows(launch.of_cta(cta))):
        yield _named("thread_name", pid, tid, {"name": row.name})
        yield _named("thread_sort_index", pid, tid, {"sort_index": tid})
        for event in row.events:
            yield {
                "name": event.name,
                "cat": event.kind,
                "ph": "X",
                "ts": begin + event.start,
                "dur": event.end - event.start,
                "pid": pid,
                "tid": tid,
                "args": {"warp": event.warp, "line": event.line, **event.details},
            }


def _named(what: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": args}
