"""Where the `warploom` command starts."""

from __future__ import annotations

from ...passes.start import start


def main() -> int:
    """`warploom`."""
    return start(f"{__package__}.command")
