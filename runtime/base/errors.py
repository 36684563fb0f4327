"""What the runtime raises. Every message says what, where, what was expected, what was got, and the fix."""

from __future__ import annotations


class WarploomError(Exception):
    """The base of all errors that a user of `warploom.runtime` or of the command `warploom` can cause."""


class CompileError(WarploomError):
    """The input cannot be compiled: it does not parse or verify, or a pass refuses it."""


class HostError(WarploomError):
    """A module has no such host function, or the host cannot evaluate an operation or type of it."""


class ArgumentError(WarploomError):
    """An argument does not fit its parameter."""


class DeviceUnavailableError(WarploomError):
    """No usable GPU: the package, driver or device is missing, or the device cannot run the target.

    `reason` is the message without `hint`, which says what to do instead.
    """

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(f"{reason}; {hint}" if hint else reason)
        self.reason = reason


class CudaError(WarploomError):
    """The CUDA driver refused a call or a kernel failed on the device."""


class AssemblerError(WarploomError):
    """ptxas is absent or rejected the text."""
