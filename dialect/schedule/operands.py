"""What becomes of A and B on their way from memory to the instruction."""

from __future__ import annotations

from dataclasses import dataclass

from .fields import ScheduleRecord, rare


@dataclass(frozen=True, slots=True)
class OperandSchedule(ScheduleRecord):
    """The operands A and B."""

    pack: str = rare(
        7,
        "which operands a kernel before this one copies to scratch memory, into whole tiles of aligned rows",
        "none",
        ("none", "a", "b", "ab"),
    )
    fp8_as: str = rare(
        15,
        "the type to which 8-bit floats are converted in registers, before they are multiplied (`none`: they are "
        "multiplied as they are)",
        "none",
        ("none", "f16"),
    )
    access: int = rare(
        19,
        "the most bytes that a thread copies to shared memory at a time; rows may allow only fewer",
        16,
        (16, 8, 4),
    )
    transpose: str = rare(
        23,
        "which operands a kernel before this one transposes, so that they lie along K (`wgmma` of elements that have "
        "not 16 bits takes no others)",
        "none",
        ("none", "a", "b", "ab"),
    )
    padded: str = rare(
        24,
        "whether D is made in scratch memory with rows of whole 16 bytes, from where another kernel copies it (`d`)",
        "none",
        ("none", "d"),
    )
