"""What we refuse and ptxas takes, each kind with its reason: a suite fails on any other."""

from __future__ import annotations

import re
from dataclasses import dataclass

from deviations import explanation

from warploom.dialect.isa.targets import TARGETS
from warploom.dialect.ptx.instructions import canonical


@dataclass(frozen=True, slots=True)
class Kind:
    """Statements whose opcode and our message match, and why we refuse them."""

    opcode: str
    message: str
    reason: str

    def explains(self, opcode: str, message: str) -> bool:
        """Whether a refusal is of this kind."""
        return re.fullmatch(self.opcode, opcode) is not None and re.search(self.message, message) is not None


KINDS = (
    Kind(
        r"(ld|st)(\.[\w:]+)+",
        r"expected an address that is a multiple of \d+ bytes",
        "an access whose address is known when the text is read and not a multiple of its size faults on every GPU "
        "(6.4.1); ptxas does not look",
    ),
)


def reason(opcode: str, message: str, target: str) -> str | None:
    """Why we refuse on a target what ptxas takes; None where nothing says it."""
    found = next((kind.reason for kind in KINDS if kind.explains(opcode, message)), None)
    if found is not None or target not in TARGETS:
        return found
    deviation = explanation(canonical(opcode), TARGETS[target])
    return f"ptxas takes what the text does not have, {deviation.section}: {deviation.sentence}" if deviation else None
