"""Names that no declaration introduces: special registers and constants. Source: PTX ISA 4.5.3 and chapter 10."""

from __future__ import annotations

_VECTORS = (
    "tid ntid ctaid nctaid clusterid nclusterid cluster_ctaid cluster_nctaid",  # 10.1 to 10.13, with .x, .y, .z
)
_SCALARS = (
    "laneid warpid nwarpid smid nsmid gridid is_explicit_cluster cluster_ctarank cluster_nctarank",
    "lanemask_eq lanemask_le lanemask_lt lanemask_ge lanemask_gt",
    "clock clock_hi clock64 globaltimer globaltimer_lo globaltimer_hi",
    "reserved_smem_offset_begin reserved_smem_offset_end reserved_smem_offset_cap",
    "reserved_smem_offset_0 reserved_smem_offset_1",
    "total_smem_size aggr_smem_size dynamic_smem_size current_graph_exec",
    *(f"envreg{i}" for i in range(32)),
    *(f"pm{i} pm{i}_64" for i in range(8)),
)

SPECIAL_REGISTERS = frozenset(
    f"%{name}{part}"
    for names, parts in ((_VECTORS, ("", ".x", ".y", ".z", ".w")), (_SCALARS, ("",)))
    for group in names
    for name in group.split()
    for part in parts
)
"""Every special register, and each part of those that are vectors."""

CONSTANTS = frozenset(("_", "WARP_SZ"))
"""Symbols that stand for no declaration: a discarded result, the number of lanes."""
