"""What `check_ptx` says of PTX text, for tests."""

from __future__ import annotations

from warploom.runtime import Diagnostic, check_ptx


def messages(text: str) -> list[str]:
    """All that is said, without its places."""
    return [diagnostic.message for diagnostic in check_ptx(text)]


def expect(text: str, message: str) -> list[Diagnostic]:
    """One diagnostic with `message` in it; none where that is empty."""
    diagnostics = check_ptx(text)
    assert len(diagnostics) == bool(message), diagnostics
    assert all(message in diagnostic.message for diagnostic in diagnostics), diagnostics
    return diagnostics
