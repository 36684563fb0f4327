"""What becomes of A and B on their way from memory to the instruction."""

from __future__ import annotations

from dataclasses import dataclass

from .fields import ScheduleRecord, rare


@dataclass(frozen=True, slots=True)
class OperandSchedule(ScheduleRecord):
    """The operands A and B."""

    pack: str = rare(
        7,
        "which operands are first copied to whole tiles of aligned rows in scratch memory",
        "none",
        ("none", "a", "b", "ab"),
    )
    fp8_as: str = rare(
        15,
        "the type that operands of 8-bit floats become in registers; each step of the instruction is then two of half "
        "its depth (`none`: as they are)",
        "none",
        ("none", "f16"),
    )
    access: int = rare(
        19, "the widest copy of a thread to shared memory, in bytes; rows may allow only narrower ones", 16, (16, 8, 4)
    )
