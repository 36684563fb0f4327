"""Where operations stand, as messages say it."""

from __future__ import annotations

from xdsl.ir import Operation

from ...passes.diagnostics import location_of


def place_of(op: Operation) -> str:
    """ "file:line:col: " of an operation, empty where it is not known."""
    location = location_of(op)
    return "" if location is None else f"{location}: "
