"""What `warploom run` prints: tables and colour on a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ...dialect.ptx.check.registers import UnroundedSum
from ..base.launch import Launch
from ..base.launch import Progress as OnProgress
from ..cuda.driver import LoadedKernel
from ..cuda.ptxas import Resources
from ..interp.watch.report import GlobalAccess, LaunchReport, SharedAccess, total
from ..kernel.kernel import Kernel
from ..reference.functions import Comparison

if TYPE_CHECKING:
    from ..interp.machine.memory import Finding

ROWS = 16
"""Instructions shown of each kind; those that cost most come first, and JSON has all."""

PLAIN_WIDTH = 120


def show(report: LaunchReport, out: Console) -> None:
    """Print a report."""
    console = out if out.is_terminal else Console(file=out.file, width=PLAIN_WIDTH, highlight=False)
    for heading, table in tables(report):
        console.print()
        console.print(Text(heading, "bold"), soft_wrap=True)
        console.print(table)
    for line in report.uncounted:
        console.print(Text(f"not counted: {line}", "yellow"), soft_wrap=True)


def tables(report: LaunchReport) -> Iterator[tuple[str, Table]]:
    """The parts of a report with their headings: instructions, matrix products, shared memory, global memory."""
    yield _mix(report)
    if report.products:
        yield _products(report)
    if report.shared:
        yield _accesses(
            "shared memory, by line", report.shared, ("wavefronts", "ideal", "extra", "worst"), "no bank conflicts"
        )
    if report.global_:
        yield _accesses("global memory, by line", report.global_, ("sectors", "ideal", "extra"), "no sectors wasted")


def short(opcode: str) -> str:
    """An opcode without the words that nearly all of its kind have."""
    return opcode.replace(".sync.aligned", "")


def _table(*columns: str) -> Table:
    """A table whose first column is text and whose others are numbers."""
    table = Table(box=None, pad_edge=False, expand=False, header_style="dim")
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if i else "left", overflow="fold", no_wrap=bool(i))
    return table


def _mix(report: LaunchReport) -> tuple[str, Table]:
    warps_in_all = sum(report.mix.values())
    table = _table("instruction", "warps", "share")
    for opcode, warps in islice(report.mix.items(), ROWS):
        table.add_row(Text(short(opcode)), f"{warps:,}", f"{100 * warps / warps_in_all:.1f} %")
    rest = list(report.mix.values())[ROWS:]
    if rest:
        table.add_row(Text(f"{len(rest)} others", "dim"), f"{sum(rest):,}", f"{100 * sum(rest) / warps_in_all:.1f} %")
    return f"{report.kernel}: {warps_in_all:,} instructions of warps", table


def _products(report: LaunchReport) -> tuple[str, Table]:
    problem = report.problem
    title = f"matrix instructions: {report.multiply_adds:,} multiply-adds"
    if problem is not None and report.useful is not None:
        title += f"; the product {problem} needs {problem.multiply_adds:,} ({100 * report.useful:.1f} %)"
    table = _table("instruction", "executed", "multiply-adds", *(("needed",) if problem else ()))
    for item in report.products:
        needed = (f"{item.needed(problem):,}",) if problem else ()
        table.add_row(Text(short(item.opcode)), f"{item.warps:,}", f"{item.multiply_adds:,}", *needed)
    return title, table


def _accesses(
    title: str, items: Sequence[SharedAccess | GlobalAccess], counts: tuple[str, ...], clean: str
) -> tuple[str, Table]:
    """The instructions sorted by their cost beyond the ideal, then by their cost."""
    extra, unit = total(items, "extra"), counts[0]
    total_ = total(items, unit)
    part = f"{extra:,} of them ({100 * extra / total_:.1f} %) beyond the ideal" if extra else clean
    sources = any(item.source for item in items)
    table = _table("instruction", "line", "kind", "requests", *counts, *(("source",) if sources else ()))
    ranked = sorted(items, key=lambda item: (-item.extra, -getattr(item, unit), item.line, item.column))
    for item in ranked[:ROWS]:
        cells = [*(f"{getattr(item, name):,}" for name in counts), *((item.source,) if sources else ())]
        table.add_row(
            Text(short(item.opcode)), str(item.line), item.kind, f"{item.requests:,}", *cells,
            style="yellow" if item.extra else "",
        )  # fmt: skip
    rest = ranked[ROWS:]
    if rest:
        sums = [f"{total(rest, name):,}" if name != "worst" else "" for name in counts]
        table.add_row(Text(f"{len(rest)} others", "dim"), "", "", f"{total(rest, 'requests'):,}", *sums)
    return f"{title}: {total_:,} {unit}, {part}", table


# The labelled lines around it.

LABEL_WIDTH = 9


class Report:
    """Collects the phases' times and prints what happened, one labelled line each."""

    def __init__(self, stderr: bool = False) -> None:
        self.out = Console(highlight=False, stderr=stderr)
        self.phases: list[tuple[str, float]] = []

    def line(self, label: str, text: str, style: str = "") -> None:
        """One line: a label and what it is about."""
        self.out.print(Text(label.ljust(LABEL_WIDTH), "bold") + Text(text, style), soft_wrap=True)

    def phase(self, name: str, seconds: float) -> None:
        """Remember how long a phase took."""
        self.phases.append((name, seconds))

    @contextmanager
    def timed(self, name: str) -> Generator[None]:
        """Time a phase."""
        start = time.perf_counter()
        yield
        self.phase(name, time.perf_counter() - start)

    def compiled(self, kernel: Kernel) -> None:
        """What was compiled, for what, and how it is launched."""
        self.line("function", str(kernel.function))
        self.line("target", kernel.target)
        for launch, schedule in zip(kernel.launches, kernel.schedule, strict=True):
            self.launch(launch)
            if schedule is not None:
                self.line("schedule", str(schedule))

    def launch(self, launch: Launch) -> None:
        """A launch's kernel and sizes."""
        self.line(
            "kernel",
            f"{launch.kernel}: grid {_sizes(launch.grid)}, block {_sizes(launch.block)}, "
            f"{launch.shared} bytes of dynamic shared memory",
        )

    def resources(self, name: str, needs: Resources, source: str) -> None:
        """Prints the resources of a kernel."""
        spills = f"{needs.spills} bytes of spills" if needs.spills else "no spills"
        style = "yellow" if needs.spills else ""
        text = f"{name}: {needs.registers} registers, {spills}, {needs.shared} bytes of static shared memory ({source})"
        self.line("uses", text, style)

    def loaded(self, kernel: LoadedKernel) -> None:
        """What a kernel needs on the GPU it was loaded on."""
        text = f"{kernel.name}: {kernel.registers} registers, {kernel.local} bytes of stack and spills a thread"
        self.line("uses", f"{text}, {kernel.shared} bytes of static shared memory (driver)")

    def checks(self, names: Sequence[str], notes: Sequence[Finding]) -> None:
        """Checks that found nothing wrong, if there were any; notes go to standard error."""
        for note in notes:
            print(note, file=sys.stderr)
        if names:
            result = f"{len(notes)} notes" if notes else "nothing found"
            self.line("checks", f"{', '.join(names)}: {result}", "green")

    def contracted(self, file: str, sums: Sequence[UnroundedSum]) -> None:
        """Says, on standard error, where a GPU may round once what the interpreter has rounded twice."""
        if sums:
            first, rest = sums[0], f" ({len(sums)} such sums)" if len(sums) > 1 else ""
            print(
                f"{file}:{first.line}:{first.column}: note: a GPU may contract this sum with the product of line "
                f"{first.product} and round once{rest}; docs/arithmetic.md",
                file=sys.stderr,
            )

    def times(self) -> None:
        """The phases and their times."""
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(style="bold", min_width=LABEL_WIDTH - 1)
        table.add_column()
        table.add_column(justify="right")
        for i, (name, seconds) in enumerate((*self.phases, ("total", sum(s for _, s in self.phases)))):
            table.add_row("" if i else "time", name, f"{1e3 * seconds:,.1f} ms")
        self.out.print(table)

    def launched(self, reports: Sequence[LaunchReport], as_json: bool) -> None:
        """Prints the reports of launches on the interpreter. JSON goes to standard output without other text."""
        if as_json:
            print(json.dumps([report.as_json() for report in reports], indent=1))
            return

        for report in reports:
            show(report, self.out)

    def checked(self, name: str, result: Comparison, bound: str) -> None:
        """How a result compares with float64; `bound` says what it is held against."""
        if result.unbounded and not result.outside:
            reason = "where a divisor may be 0 or a number infinite, any result would be within the bound"
            elements = f"{result.unbounded} element{'s' * (result.unbounded > 1)}"
            self.line("check", f"%{name} cannot be checked: the bound of {elements} is infinite", "red")
            self.line("", reason)
            return
        verdict = "within" if result.ok else f"{result.outside} elements outside"
        self.line(
            "check",
            f"%{name} against float64: largest error {result.absolute:.3g} absolute, {result.relative:.3g} relative; "
            f"{verdict} the bound {bound}",
            "green" if result.ok else "red",
        )
        if result.ok:
            used = f"at most {100 * result.share:.3g} % of the bound is used"
            self.line("", f"{used}, at {list(result.worst)}, where it is {result.allowed:.3g}")
        else:
            self.line("", f"worst at {list(result.worst)}: expected {result.expected:.9g}, got {result.got:.9g}")


def _sizes(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))


@contextmanager
def progress_bar(title: str) -> Generator[OnProgress | None]:
    """A progress bar on standard error while an interpreted launch runs; None where that is no terminal."""
    console = Console(stderr=True)
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
