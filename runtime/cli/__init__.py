"""The `warploom` command."""

from __future__ import annotations

from ...passes.start import start


def main() -> int:
    """Starts `warploom`: nothing heavy is imported before an interrupt is caught."""
    return start(f"{__package__}.command")
