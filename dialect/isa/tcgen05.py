"""The fifth generation's tensor cores: which targets have what, and what moves data. PTX ISA 9.7.16."""

from __future__ import annotations

from .targets import Specific

# Which targets have what. Source: PTX ISA 9.7.16, Target ISA Notes; ptxas 13.5.37 where they differ.

TENSOR_MEMORY: Specific = (
    ("sm_100a", (8, 6)), ("sm_101a", (8, 6)), ("sm_100f", (8, 8)), ("sm_101f", (8, 8)), ("sm_110f", (9, 0)),
)  # fmt: skip
"""Where there is tensor memory."""

EACH_ALONE: Specific = (
    ("sm_100a", (8, 6)), ("sm_101a", (8, 6)), ("sm_103a", (8, 8)), ("sm_110a", (9, 0)), ("sm_107a", (9, 4)),
)  # fmt: skip
"""The architecture-specific targets of these, for what no family has."""

INTEGERS: Specific = (("sm_100a", (8, 6)), ("sm_101a", (8, 6)), ("sm_110a", (9, 0)))
"""Where there are products of integers."""

SCALED_INPUT: Specific = (("sm_100a", (8, 6)), ("sm_100f", (8, 8)))
"""Where D can be scaled before a product is added to it."""

REDUCING: Specific = (("sm_101a", (8, 8)), ("sm_101f", (8, 8)), ("sm_103f", (8, 8)), ("sm_110f", (9, 0)))
"""Where loads from tensor memory can reduce."""

SM_107F: Specific = (("sm_107f", (9, 4)),)
SM_107A: Specific = (("sm_107a", (9, 4)),)

ALLOCATIONS = (32, 64, 128, 256, 512)
"""The columns that an allocation may have."""

LOAD_SHAPES = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
"""The shapes of `ld` and `st`, and the registers of one repetition."""
