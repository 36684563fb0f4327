"""The file that `warploom run --trace` writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ...passes.version import versions
from ..errors import ArgumentError
from ..interp.traces.cycles import DESCRIPTION
from ..launch_trace import LaunchTrace, chrome_trace
from ..trace_picture import trace_svg
from .inputs import check_writable

ENDINGS = (".json", ".svg")


def check_trace(path: str) -> None:
    """Refuses a path before anything is run for it.

    Raises:
        WarploomError: for another ending, or a folder that is not there.
    """
    if Path(path).suffix not in ENDINGS:
        raise ArgumentError(f"--trace {path}: expected a file that ends in .json (Chrome trace) or .svg (picture)")
    if Path(path).is_dir():
        raise ArgumentError(f"--trace {path}: this is a folder")
    check_writable(path)


def save_trace(path: str, traces: Sequence[LaunchTrace]) -> str:
    """Writes the Chrome trace of all launches, or the picture of the first CTA of the one that took longest; what was
    written, in words.

    Raises:
        ArgumentError: where nothing was launched, of which there is no picture.
    """
    if not traces and Path(path).suffix == ".svg":
        raise ArgumentError(f"--trace {path}: nothing was launched, so there is nothing to draw")
    if Path(path).suffix == ".svg":
        longest = max(traces, key=lambda trace: trace.cycles)
        written, what = trace_svg(longest, DESCRIPTION), f"a picture of {longest.kernel}"
    else:
        written = json.dumps(chrome_trace(traces, DESCRIPTION, versions("warploom")), separators=(",", ":"))
        what = f"{sum(len(trace.events) for trace in traces):,} events"
    Path(path).write_text(written, encoding="utf-8")
    traced, total = sum(len(trace.places) for trace in traces), sum(trace.total for trace in traces)
    return f"{what} to {path}, in modelled cycles, of {traced} of {total} CTAs"
