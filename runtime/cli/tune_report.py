"""What `warploom tune` shows: a progress bar while it measures, then the fastest schedules."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ...passes.schedule.search import spread
from ..cuda.driver import gpu
from ..errors import DeviceUnavailableError
from ..lowering import parse
from ..source import read_mlir
from ..tune import Measured, OnMeasured, arguments, schedules
from ..tune import tune as measure_all
from .target import target_asked


def list_schedules(args: argparse.Namespace) -> int:
    """Prints the schedules that would be measured, the default first."""
    module = parse(read_mlir(args.file), args.file)
    target = target_asked(args, module)
    key, found = schedules(module, target, tf32=args.tf32)
    if args.inputs:
        key += arguments(module, target, args.inputs, tf32=args.tf32)[2]
    print(f"{key}: {len(found)} schedules fit")
    for schedule in spread(found, args.limit):
        print(f"  {schedule}")
    return 0


def tune(args: argparse.Namespace) -> int:
    """Measures, and prints the fastest schedules beside the default."""
    module = parse(read_mlir(args.file), args.file)
    try:
        device = gpu()
    except DeviceUnavailableError as error:
        raise DeviceUnavailableError(error.reason, "--list shows, without one, what would be measured") from error
    target = target_asked(args, module, device.device.target)
    with _progress() as on_measured:
        results = measure_all(
            module, device, args.tuned, target=target, tf32=args.tf32, limit=args.limit, seed=args.seed,
            on_measured=on_measured, given=args.inputs,
        )  # fmt: skip
    base = next(r.microseconds for r in results if r.default)
    out = Console(highlight=False)
    table = Table(box=None, pad_edge=False)
    for name in ("us", "of the default's time", "schedule"):
        table.add_column(name, justify="left" if name == "schedule" else "right", overflow="fold")
    timed = [r for r in results if r.microseconds is not None]
    for result in timed[: args.top]:
        table.add_row(*_row(result, base), str(result.schedule))
    out.print(table)
    again = sum(r.remembered for r in results)
    failed = [r for r in results if r.microseconds is None]
    out.print(f"{len(results)} schedules on {device.device}, {again} of them measured before, in {args.tuned}")
    for result in failed:
        if result.problem:
            out.print(f"left out: {result.schedule}: {result.problem}", soft_wrap=True)
    return 0


def _row(result: Measured, base: float | None) -> tuple[str, str]:
    time = result.microseconds or 0.0
    return f"{time:.1f}", f"{100 * time / base:.0f} %" if base else "-"


@contextmanager
def _progress() -> Generator[OnMeasured | None]:
    """A progress bar on standard error; None where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task, fastest = bar.add_task("measuring", total=None), float("inf")

        def show(result: Measured, total: int) -> None:
            nonlocal fastest
            fastest = min(fastest, result.microseconds or fastest)
            bar.update(task, advance=1, total=total, description=f"fastest {fastest:.1f} us")

        yield show
