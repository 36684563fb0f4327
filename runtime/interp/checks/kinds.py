"""Which instructions only compute: their results are those of the thread's own operands, and they do nothing else."""

from __future__ import annotations

from ..decode import family

_ACTING = frozenset((
    "access", "atomics", "barriers", "bulk", "calls", "control", "copies", "matrix", "mbarrier", "moves",
    "tensor_copies", "tensor_maps", "warpgroup", "warps", "wmma",
))  # fmt: skip
"""The modules of the instructions that touch memory, order or move threads, or join the lanes of a warp."""


def computes(opcode: str) -> bool:
    """Whether the instruction of an opcode does."""
    return opcode.partition(".")[0] in ("cvta", "isspacep") or family(opcode) not in _ACTING
