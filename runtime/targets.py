"""The target that a call or a command names."""

from __future__ import annotations

from ..dialect.isa.targets import Target, UnknownTargetError, target
from .errors import ArgumentError


def known_target(option: str, name: str) -> Target:
    """The row of the target that an option names.

    Raises:
        ArgumentError: naming the option and the known targets.
    """
    try:
        return target(name)
    except UnknownTargetError as error:
        raise ArgumentError(f"{option}: {error}") from None
