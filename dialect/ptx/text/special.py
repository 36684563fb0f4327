"""Names that no declaration introduces: special registers and constants. Source: PTX ISA 4.5.3 and chapter 10."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from ...isa.targets import Target, Version


class Special(NamedTuple):
    """A special register: `ptx` and `sm` are the first version and target number that have it.

    Versions below 3.1 are the text's, the others what ptxas 13.0.88 takes.
    """

    ptx: Version = (1, 0)
    sm: int = 0
    widths: tuple[int, ...] = (32,)
    """The bits that may be read of it."""

    def misfit(self, bits: int, *, wider: bool = False) -> str | None:
        """Why a type of so many bits does not read it; `wider` where a part of it will do. None if it does."""
        if bits in self.widths or (wider and bits < max(self.widths)):
            return None
        return f"the special register has {' or '.join(map(str, self.widths))} bits, the type {bits}"

    def unavailable(self, target: Target, version: Version) -> str | None:
        """Why the target does not have it in this PTX version, such as "needs sm_90 or later"; None if it has."""
        if target.sm < self.sm:
            return f"needs sm_{self.sm} or later"
        return "needs PTX {}.{} or later".format(*self.ptx) if version < self.ptx else None


_CLUSTER = Special((7, 8), 90)
_RESERVED = Special((7, 6), 80)

_VECTORS = {  # 10.1 to 10.13, with .x, .y, .z
    "tid ntid ctaid nctaid": Special(widths=(32, 16)),
    "clusterid nclusterid cluster_ctaid cluster_nctaid": _CLUSTER,
}
_SCALARS = {
    "smid clock laneid warpid nwarpid nsmid": Special(),
    "gridid": Special(widths=(32, 64)),
    "is_explicit_cluster": Special((7, 8), 90, (1,)),
    "cluster_ctarank cluster_nctarank": _CLUSTER,
    "lanemask_eq lanemask_le lanemask_lt lanemask_ge lanemask_gt": Special((2, 0), 20),
    "clock64": Special((2, 0), 20, (64,)),
    "clock_hi": Special((5, 0), 20),
    "globaltimer_lo globaltimer_hi": Special((3, 1), 30),
    "globaltimer": Special((3, 1), 30, (64,)),
    "reserved_smem_offset_begin reserved_smem_offset_end reserved_smem_offset_cap": _RESERVED,
    "reserved_smem_offset_0 reserved_smem_offset_1": _RESERVED,
    "total_smem_size dynamic_smem_size": Special((4, 1), 20),
    "aggr_smem_size": Special((8, 1), 90),
    "current_graph_exec": Special((8, 0), 50, (64,)),
    "perctamemoryoffset": Special((9, 4), 0, (64,)),
    "perctamemorysize": Special((9, 4)),
    "locality_domain_id locality_domain_supplemental_sm": Special((9, 5), 100),
    " ".join(f"envreg{i}" for i in range(32)): Special((2, 1)),
    " ".join(f"pm{i}" for i in range(8)): Special((1, 3)),
    " ".join(f"pm{i}_64" for i in range(8)): Special((4, 0), 50, (64,)),
}

SPECIAL_REGISTERS = {
    f"%{name}{part}": special
    for groups, parts in ((_VECTORS, ("", ".x", ".y", ".z", ".w")), (_SCALARS, ("",)))
    for group, special in groups.items()
    for name in group.split()
    for part in parts
}
"""Every special register, and each part of those that are vectors."""

VARYING = frozenset(
    f"%{name}" for name in (*["clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi"],
                            *["smid", "warpid", "locality_domain_id", "locality_domain_supplemental_sm"],
                            *(f"pm{i}{end}" for i in range(8) for end in ("", "_64")))
)  # fmt: skip
"""Those that a thread may read twice and get two values."""

VECTORS = frozenset(f"%{name}" for group in _VECTORS for name in group.split())
"""Special registers that are vectors of four."""

CONSTANTS = frozenset(("_", "WARP_SZ"))
"""Symbols that stand for no declaration: a discarded result, the number of lanes."""


@cache
def unavailable(targets: tuple[Target, ...], version: Version) -> dict[str, str]:
    """The special registers that a module for these targets cannot have, and why."""
    return {
        name: why
        for name, special in SPECIAL_REGISTERS.items()
        for target in targets
        if (why := special.unavailable(target, version)) is not None
    }
