"""Which instructions only compute: their results are those of the thread's own operands, and they do nothing else."""

from __future__ import annotations

from ..decode import TABLE

_ACTING = frozenset(
    ("access", "atomics", "barriers", "calls", "control", "copies", "matrix", "mbarrier", "moves", "warps", "wmma")
)
"""The modules of the instructions that touch memory, order or move threads, or join the lanes of a warp."""


def computes(root: str) -> bool:
    """Whether the instructions whose opcode begins with `root` do."""
    return root in ("cvta", "isspacep") or TABLE[root].__module__.rpartition(".")[2] not in _ACTING
