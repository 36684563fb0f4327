"""Instructions that PTX has and that there are no rows for: they are counted, not checked. Source: PTX ISA 9.7."""

from __future__ import annotations

from .instructions import roots

FAMILIES = (
    *("tex", "tld4", "txq", "istypep"),  # Texture Instructions
    *("suld", "sust", "sured", "suq"),  # Surface Instructions
    *("clusterlaunchcontrol",),  # Data Movement and Conversion Instructions
    *("wgmma",),  # Asynchronous Warpgroup Level Matrix Instructions
    *("tcgen05",),  # TensorCore 5th Generation Family Instructions
)
"""First words of their opcodes. One that has rows by now is checked by them."""


def family(opcode: str) -> str | None:
    """The family that an opcode without a row is of; None if it is of none."""
    root = opcode.partition(".")[0]
    return root if root in FAMILIES and root not in roots() else None
