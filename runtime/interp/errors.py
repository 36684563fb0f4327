"""What the interpreter raises."""

from __future__ import annotations

from ..errors import WarploomError


class InterpreterError(WarploomError):
    """A PTX program that cannot be run, or that did something wrong while it ran.

    The message is one line: `file:line:col: error: what`, then where (kernel, CTA, warp, lane, address) as far
    as it applies.
    """


class DecodeError(Exception):
    """What is wrong with the statement being decoded; the decoder adds where."""


class FaultError(Exception):
    """What an instruction did wrong; the machine adds where.

    `thread` is the number of the first thread at fault among those in flight, None if no single one is.
    """

    def __init__(self, message: str, thread: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.thread = thread
