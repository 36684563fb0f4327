"""What becomes of A and B on their way from memory to the instruction."""

from __future__ import annotations

from dataclasses import dataclass

from .fields import ScheduleRecord, rare


@dataclass(frozen=True, slots=True)
class OperandSchedule(ScheduleRecord):
    """The operands A and B."""

    pack: str = rare(
        7,
        "which operands a separate kernel first copies to scratch memory, into whole tiles of aligned rows",
        "none",
        ("none", "a", "b", "ab"),
    )
    fp8_as: str = rare(
        15,
        "the type to which 8-bit floats are converted in registers before they are multiplied; chosen where their own "
        "instruction is slower or its sums are short (`none`: they are not converted)",
        "none",
        ("none", "f16"),
    )
    access: int = rare(
        19,
        "the most bytes that a thread copies to shared memory at a time; the alignment of rows may allow fewer",
        16,
        (16, 8, 4),
    )
    transpose: str = rare(
        23,
        "which operands a separate kernel first transposes, so that elements along K are contiguous (`wgmma` needs "
        "this, except for 16-bit elements)",
        "none",
        ("none", "a", "b", "ab"),
    )
    padded: str = rare(
        24,
        "`d`: D is computed in scratch memory, with rows that are multiples of 16 bytes, and another kernel copies it",
        "none",
        ("none", "d"),
    )
