"""A `LaunchReport` as tables on a terminal or in plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..launch_report import GlobalAccess, LaunchReport, SharedAccess, total

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
    whole = sum(report.mix.values())
    table = _table("instruction", "warps", "share")
    for opcode, warps in islice(report.mix.items(), ROWS):
        table.add_row(Text(short(opcode)), f"{warps:,}", f"{100 * warps / whole:.1f} %")
    rest = list(report.mix.values())[ROWS:]
    if rest:
        table.add_row(Text(f"{len(rest)} others", "dim"), f"{sum(rest):,}", f"{100 * sum(rest) / whole:.1f} %")
    return f"{report.kernel}: {whole:,} instructions of warps", table


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
    """The instructions that cost most beyond the ideal first, then those that cost most."""
    extra, unit = total(items, "extra"), counts[0]
    whole = total(items, unit)
    part = f"{extra:,} of them ({100 * extra / whole:.1f} %) beyond the ideal" if extra else clean
    table = _table("instruction", "line", "kind", "requests", *counts)
    ranked = sorted(items, key=lambda item: (-item.extra, -getattr(item, unit), item.line, item.column))
    for item in ranked[:ROWS]:
        cells = [f"{getattr(item, name):,}" for name in counts]
        table.add_row(
            Text(short(item.opcode)), str(item.line), item.kind, f"{item.requests:,}", *cells,
            style="yellow" if item.extra else "",
        )  # fmt: skip
    rest = ranked[ROWS:]
    if rest:
        sums = [f"{total(rest, name):,}" if name != "worst" else "" for name in counts]
        table.add_row(Text(f"{len(rest)} others", "dim"), "", "", f"{total(rest, 'requests'):,}", *sums)
    return f"{title}: {whole:,} {unit}, {part}", table
