"""The trace of a launch: the clocks of warps, the model of time, the Chrome trace format, and a picture."""

from __future__ import annotations

import textwrap
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal, TypeAlias

import numpy as np

from ....dialect.isa.mma import Mma
from ....dialect.isa.wgmma import Wgmma
from ....dialect.isa.wmma import WmmaMma
from ....dialect.layouts.pictures import bar, document, number, text
from ....dialect.ptx.instructions import Traits
from ....dialect.ptx.text.syntax import Immediate
from ....passes.schedule.model import RATES, SPARSE_RATE
from ...base.launch import Dim3
from ...numerics.floats import Array
from ..machine.events import Look, Selection, warps_with
from ..machine.kernel import Observer

TraceKind: TypeAlias = Literal["tensor copy", "cp.async", "product", "wait", "store"]
"""What goes on: a bulk or tensor copy to shared memory, a group of `cp.async`, matrix products, a wait, stores."""


@dataclass(frozen=True)
class TraceEvent:
    """Something that a warp did or started, from cycle `start` to cycle `end`.

    `warp` is the number, within the CTA, of the warp that issued the instruction. `line` is the line of the instruction
    in the PTX text, `source` that of the program that it was compiled from, if the text says so. While an
    `asynchronous` event lasts, the warp executes other instructions. `details` has more numbers: bytes, instructions,
    cycles in which the tensor cores are busy.
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
    source: str = ""


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
    """The rows of a CTA's events, warp by warp. Overlapping asynchronous events take several rows."""
    for warp in sorted({event.warp for event in events}):
        mine = [event for event in events if event.warp == warp]
        yield TraceRow(warp, f"warp {warp}", tuple(e for e in mine if not e.asynchronous))
        for kind in dict.fromkeys(event.kind for event in mine if event.asynchronous):
            for again, row in enumerate(_apart([e for e in mine if e.asynchronous and e.kind == kind])):
                suffix = f" ({again + 1})" if again else ""
                yield TraceRow(warp, f"warp {warp}: {kind}{suffix}", tuple(row))


def _apart(events: Sequence[TraceEvent]) -> list[list[TraceEvent]]:
    """Events in as few rows as need be, so that none overlap in a row."""
    rows: list[list[TraceEvent]] = []
    for event in sorted(events, key=lambda e: e.start):
        free = next((row for row in rows if row[-1].end <= event.start), None)
        if free is None:
            rows.append([event])
        else:
            free.append(event)
    return rows


def chrome_trace(traces: Sequence[LaunchTrace], version: str) -> dict[str, Any]:
    """The object form of the Chrome trace format, for chrome://tracing and Perfetto. A CTA is a process, a row a
    thread. A cycle is written as a microsecond, the unit of the format. Launches follow each other."""
    events: list[dict[str, Any]] = []
    begin = 0
    for launch in traces:
        for cta in range(len(launch.places)):
            events += _process(launch, cta, len({e["pid"] for e in events}), begin)
        begin += launch.cycles
    about = {
        "time": DESCRIPTION,
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
            source = {"source": event.source} if event.source else {}
            yield {
                "name": event.name,
                "cat": event.kind,
                "ph": "X",
                "ts": begin + event.start,
                "dur": event.end - event.start,
                "pid": pid,
                "tid": tid,
                "args": {"warp": event.warp, "line": event.line, **source, **event.details},
            }


def _named(what: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": args}


# The model of time of a trace: how many cycles what takes, on an SM like one of an H200.
#
# A CTA has an SM for itself. A warp issues one instruction in a cycle, and has its result at once; a copy takes the
# time that it is on its way; a product takes a tensor core as long as the hardware does. There are no caches, no bank
# conflicts, and no warps that compete for an issue slot.

LATENCY = 600
"""From the issue of a copy until its first bytes arrive. An assumption."""

BYTES_PER_CYCLE = 64
"""Bytes that reach an SM, or leave it: those of L2 (`passes/schedule/model.py`, at 1.75 GHz)."""

WARP_PRODUCT = 2048 / 6
"""Multiply-adds of 16 bits that the tensor core of a warp scheduler does: m16n8k16 in 6 cycles, on an H200."""

WARPGROUP_PRODUCT = 2048.0
"""Those of the four tensor cores together, for `wgmma`: m64n256k16 in 128 cycles."""

TENSOR_PRODUCT = 256
"""Words of D of a product in tensor memory, of 32 bytes along K, that are done in a cycle: 128x256 of any type in 128
cycles (B200: 2.25 PFLOP/s of 16 bits, 148 SMs, 1.85 GHz)."""

SCHEDULERS = 4
"""Warp schedulers of an SM, each with a tensor core; warp w of a CTA belongs to scheduler w modulo 4."""

DESCRIPTION = (
    "modelled cycles of an SM like an H200's, nothing measured: an instruction of a warp takes 1; a copy from or to "
    f"global memory {LATENCY}, and 1 more for each {BYTES_PER_CYCLE} bytes in the order of issue; m16n8k16 of 16 bits "
    "takes the tensor core of a scheduler for 6, m64n256k16 of wgmma all four for 128; every CTA has an SM for itself"
)
"""What a time is, in words."""

WarpRow: TypeAlias = Mma | WmmaMma
"""A product of one warp."""


def product_cycles(row: WarpRow | Wgmma) -> int:
    """Cycles for which a product occupies its tensor core, at least 1."""
    work = row.shape.m * row.shape.n * row.shape.k * row.products / RATES.get(row.a.name, 1.0)
    rate = WARPGROUP_PRODUCT if isinstance(row, Wgmma) else WARP_PRODUCT
    return max(1, round(work / (rate * (SPARSE_RATE if row.sparse else 1.0))))


def copy_cycles(size: int) -> int:
    """Cycles for which a copy occupies the path between an SM and L2. `size` is in bytes."""
    return max(1, -(-size // BYTES_PER_CYCLE))


class Pipe:
    """A unit that does one thing at a time, with its busy intervals in order."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def take(self, earliest: int, cycles: int) -> int:
        """Occupies the first time from `earliest` on that is long enough; when it begins. Warps run ahead of each other
        in the interpreter, so times are not asked for in their order. Adjacent intervals are joined."""
        starts, ends = self._starts, self._ends
        at, start = max(0, bisect_right(starts, earliest) - 1), earliest
        while at < len(starts) and starts[at] < start + cycles:
            at, start = at + 1, max(start, ends[at])
        joined_before = at > 0 and ends[at - 1] == start
        joined_behind = at < len(starts) and starts[at] == start + cycles
        first, last = starts[at - 1] if joined_before else start, ends[at] if joined_behind else start + cycles
        place = slice(at - joined_before, at + joined_behind)
        starts[place], ends[place] = [first], [last]
        return start


# The clocks of warps, and the events that are written down.
#
# The interpreter runs warps in an order of its own. Each warp has a clock here, which its instructions advance; where
# it waits, its clock goes to when that happened which it waits for. So times hardly depend on the interpreter's order.

TRACED = 16
"""CTAs that are followed, from the first on; of clusters, whole ones, and one at least."""


class Timeline(Observer):
    """The clocks of the warps that are followed, numbered as in the state; `warps` is how many they are."""

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []
        self.places: list[tuple[int, int, int]] = []
        self.warps = 0
        self._runs: dict[int, TraceEvent] = {}
        """Of each warp, the instructions of one kind that it issues one after the other."""

    def begun(self) -> None:
        """The CTAs of every batch begin at cycle 0."""
        geometry = self.state.geometry
        limit = max(geometry.cluster_size, TRACED // geometry.cluster_size * geometry.cluster_size)
        ctas = max(0, min(geometry.ctas, limit - geometry.first))
        self.first, self.per_cta = geometry.first, geometry.warps_per_cta
        self.places += [geometry.cta_index(geometry.first + i) for i in range(ctas)]
        self.warps = ctas * self.per_cta
        self.clock: Array = np.zeros(self.warps, np.int64)
        self.pc = 0

    def issue(self, pc: int) -> Look | None:
        """Charges one cycle for an instruction, whether or not its guard holds."""
        if not self.warps:
            return None

        def look(sel: Selection) -> None:
            self.pc = pc
            self.clock[self.of(sel)] += 1

        return look

    def end(self) -> None:
        """Ends the runs that are still open."""
        for warp in list(self._runs):
            self._settle(warp)

    # Warps

    def of(self, sel: Selection) -> Array:
        """The numbers of the selected threads' warps."""
        return np.arange(self.warps) if sel.mask is None else self.of_mask(sel.mask)

    def of_mask(self, mask: Array) -> Array:
        """The numbers of the warps of masked threads."""
        return np.flatnonzero(warps_with(mask)[: self.warps])

    def of_threads(self, threads: Array) -> Iterator[tuple[int, int]]:
        """The warp of each thread, by its number in the state, where it is followed; with the thread's place here."""
        for i, warp in enumerate((threads % self.state.warps).tolist()):
            if warp < self.warps:
                yield i, warp

    def cta(self, warp: int) -> int:
        """The number of a warp's CTA among those in flight."""
        return warp // self.per_cta

    def now(self, warp: int) -> int:
        """What the clock of a warp shows."""
        return int(self.clock[warp])

    def traits(self, pc: int) -> Traits:
        """The traits of the instruction."""
        return self.kernel.code[pc].traits

    def constant(self, pc: int) -> int:
        """The constant that an instruction has for an operand."""
        return next(int(o.value) for o in self.kernel.code[pc].source.operands if isinstance(o, Immediate))

    # Events

    def wait(self, warp: int, pc: int, name: str, until: int) -> None:
        """A warp waits until a time, if that is not yet."""
        now = self.now(warp)
        if until > now:
            self._settle(warp)
            self.events.append(self.event(warp, "wait", name, pc, now, until))
            self.clock[warp] = until

    def run(self, warp: int, kind: TraceKind, name: str, pc: int, start: int, details: dict[str, int]) -> None:
        """A warp issues an instruction that joins those of its kind before it; `details` are added up."""
        run, event = self._runs.get(warp), self.event(warp, kind, name, pc, start, start + 1, details)
        if run is None or (run.kind, run.name) != (kind, name):
            self._settle(warp)
        else:
            event = joined(run, event)
        self._runs[warp] = event

    def _settle(self, warp: int) -> None:
        """The run of a warp is over."""
        if (run := self._runs.pop(warp, None)) is not None:
            self.events.append(run)

    def event(
        self, warp: int, kind: TraceKind, name: str, pc: int, start: int, end: int,
        details: dict[str, int] | None = None, asynchronous: bool = False,
    ) -> TraceEvent:  # fmt: skip
        """An event of a warp, which begins at an instruction."""
        cta, within = divmod(warp, self.per_cta)
        line, source = self.kernel.code[pc].source.line, self.kernel.source_of(pc)
        return TraceEvent(self.first + cta, within, kind, name, line, start, end, asynchronous, details or {}, source)


def joined(one: TraceEvent, other: TraceEvent) -> TraceEvent:
    """An event and a later one of its kind as one."""
    details = {key: one.details[key] + value for key, value in other.details.items()}
    return replace(one, end=max(one.end, other.end), details=details)


# A trace as a picture: what one CTA does over time, row by row, as SVG.


COLOURS: dict[TraceKind, str] = {
    "tensor copy": "#7fb2e5",
    "cp.async": "#7fb2e5",
    "product": "#4f9d5d",
    "wait": "#dcdcdc",
    "store": "#e69a4c",
}
UNDER_WAY = "#bfe3c5"
"""Products of a warpgroup until the wait that covers them; the part in their own colour is when they multiply."""

LEFT, MARGIN, WIDTH, TOP = 150, 16, 960, 62
THICK, THIN, SPACE = 16, 8, 4
"""Heights of a warp's own row and of those of asynchronous events, and what is between."""

LEGEND = (
    ("copies, from issue to arrival", COLOURS["tensor copy"]),
    ("products", COLOURS["product"]),
    ("products of a warpgroup, from issue to wait", UNDER_WAY),
    ("waits", COLOURS["wait"]),
    ("stores", COLOURS["store"]),
)

STYLE = (
    "text{fill:#111}.h{font-size:13px;font-weight:bold}.r{text-anchor:end}.t{text-anchor:middle;fill:#666}.n{fill:#444}"
)


@dataclass(frozen=True)
class _Band:
    """Rows with one label: of one warp, or of neighbours that do the same."""

    label: str
    rows: tuple[TraceRow, ...]

    @property
    def height(self) -> int:
        return THICK if len(self.rows) == 1 else (THIN + 1) * len(self.rows)


def trace_svg(launch: LaunchTrace) -> str:
    """The picture of the first CTA."""
    events = launch.of_cta(0)
    bands = list(_bands(events))
    notes = textwrap.wrap(f"Time: {DESCRIPTION}.", 165)
    bottom = TOP + sum(band.height + SPACE for band in bands)
    place = ", ".join(map(str, launch.places[0]))
    body = [
        text(MARGIN, 20, f"{launch.kernel}, CTA ({place}) of {launch.total}: {launch.cycles:,} cycles", "h"),
        *_legend(events, 36),
        *_axis(max(launch.cycles, 1), bottom),
        *_drawn(bands, max(launch.cycles, 1)),
        *(text(MARGIN, bottom + 40 + 14 * i, note, "n") for i, note in enumerate(notes)),
    ]
    return document(LEFT + WIDTH + 2 * MARGIN, bottom + 40 + 14 * len(notes), body, STYLE)


def _bands(events: Sequence[TraceEvent]) -> Iterator[_Band]:
    """Warps next to each other whose own rows are alike and that begin nothing asynchronous share a row."""
    rows_ = list(rows(events))
    for alike, group in groupby(rows_, key=lambda row: _alike(row, rows_)):
        mine = list(group)
        if alike and len({row.warp for row in mine}) > 1:
            yield _Band(f"warps {mine[0].warp}-{mine[-1].warp}", (mine[0],))
            continue
        for label, band in groupby(mine, key=lambda row: row.name.partition(" (")[0]):
            yield _Band(label, tuple(band))


def _alike(row: TraceRow, rows_: Sequence[TraceRow]) -> tuple[object, ...]:
    own = row.name == f"warp {row.warp}"
    busy = any(other.warp == row.warp and other is not row for other in rows_)
    if not own or busy:
        return ()
    return tuple((event.kind, event.name, event.start, event.end) for event in row.events)


def _legend(events: Sequence[TraceEvent], y: float) -> Iterator[str]:
    colours = {COLOURS[event.kind] for event in events}
    if any(event.asynchronous and event.kind == "product" for event in events):
        colours.add(UNDER_WAY)
    x = float(MARGIN)
    for words, fill in LEGEND:
        if fill in colours:
            yield bar(x, y, 14, 10, fill)
            yield text(x + 19, y + 9, words)
            x += 40 + 5.0 * len(words)


def _axis(cycles: int, bottom: float) -> Iterator[str]:
    """A line and a number every so many cycles."""
    step = next(s for s in (10**k * m for k in range(1, 12) for m in (1, 2, 5)) if cycles / s <= 12)
    for at in range(0, cycles + 1, step):
        x = LEFT + MARGIN + WIDTH * at / cycles
        yield f'<path d="M{number(x)} {TOP - 4}V{number(bottom)}" stroke="#ccc" stroke-width=".6"/>\n'
        yield text(x, bottom + 14, f"{at:,}", "t")


def _drawn(bands: Sequence[_Band], cycles: int) -> Iterator[str]:
    y = float(TOP)
    for band in bands:
        yield text(LEFT + MARGIN - 8, y + band.height / 2 + 3.5, band.label, "r")
        for i, row in enumerate(band.rows):
            high = THICK if len(band.rows) == 1 else THIN
            for event in row.events:
                yield from _event(event, y + i * (THIN + 1), high, WIDTH / cycles)
        y += band.height + SPACE


def _event(event: TraceEvent, y: float, high: float, scale: float) -> Iterator[str]:
    x, wide = LEFT + MARGIN + event.start * scale, (event.end - event.start) * scale
    if not (event.asynchronous and event.kind == "product"):
        yield bar(x, y, max(wide, 0.5), high, COLOURS[event.kind], event.name)
        return
    done, busy = event.details["done"], event.details["busy"]
    start = max(event.start, done - busy)
    yield bar(x, y, wide, high, UNDER_WAY, event.name)
    yield bar(LEFT + MARGIN + start * scale, y, (done - start) * scale, high, COLOURS["product"])
