"""Special registers, by name: one value for each thread in flight.

Source: PTX ISA, chapter 10 (Special Registers). CTAs are spread over the multiprocessors in turn, of which there are as
many as an H100 has. What the driver says in `%envreg1` and `%envreg2`, and what the reserved part of shared memory is
for, CUDA's header of cooperative groups shows: the address where the CTAs of a grid meet, and room for the warps of a
tile that is wider than one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....dialect.ptx.special import VECTORS
from ...numerics.array import Array
from ..machine.clock import CLOCKS
from ..machine.state import State
from ..machine.storage import RESERVED_BYTES, WORKSPACE
from ..machine.threads import LANES, Geometry, unravel


def _thread(axis: int) -> Callable[[State], Array]:
    def values(state: State) -> Array:
        numbers = np.arange(state.geometry.warps_per_cta * LANES)
        return state.geometry.in_cta(unravel(numbers, state.geometry.block)[axis])

    return values


def _per_cta(values: Callable[[Geometry, Array, Array], Array]) -> Callable[[State], Array]:
    """What follows from the number of a CTA's cluster and from its rank there."""

    def per_thread(state: State) -> Array:
        geometry = state.geometry
        cluster, rank = np.divmod(geometry.first + np.arange(geometry.ctas), geometry.cluster_size)
        return geometry.per_cta(values(geometry, cluster, rank))

    return per_thread


def _cluster_index(axis: int) -> Callable[[State], Array]:
    return _per_cta(lambda g, cluster, rank: unravel(cluster, g.clusters)[axis])


def _cta_in_cluster(axis: int) -> Callable[[State], Array]:
    return _per_cta(lambda g, cluster, rank: unravel(rank, g.cluster)[axis])


def _cta(axis: int) -> Callable[[State], Array]:
    return _per_cta(
        lambda g, cluster, rank: unravel(cluster, g.clusters)[axis] * g.cluster[axis] + unravel(rank, g.cluster)[axis]
    )


def _constant(value: Callable[[State], int]) -> Callable[[State], Array]:
    return lambda state: np.full(state.threads, value(state), np.int64)


def _lane_mask(bits: Callable[[int], int]) -> Callable[[State], Array]:
    table = np.array([bits(lane) & 0xFFFFFFFF for lane in range(LANES)], np.uint32)
    return lambda state: table[state.geometry.lane()]


def _warp(state: State) -> Array:
    return state.geometry.thread_in_cta() // LANES


MULTIPROCESSORS = 132


def _multiprocessor(state: State) -> Array:
    return state.geometry.per_cta((state.geometry.first + np.arange(state.geometry.ctas)) % MULTIPROCESSORS)


SPECIALS: dict[str, Callable[[State], Array]] = {
    **{f"%tid.{a}": _thread(i) for i, a in enumerate("xyz")},
    **{f"%ntid.{a}": _constant(lambda s, i=i: s.geometry.block[i]) for i, a in enumerate("xyz")},
    **{f"%ctaid.{a}": _cta(i) for i, a in enumerate("xyz")},
    **{f"%nctaid.{a}": _constant(lambda s, i=i: s.geometry.grid[i]) for i, a in enumerate("xyz")},
    **{f"%clusterid.{a}": _cluster_index(i) for i, a in enumerate("xyz")},
    **{f"%nclusterid.{a}": _constant(lambda s, i=i: s.geometry.clusters[i]) for i, a in enumerate("xyz")},
    **{f"%cluster_ctaid.{a}": _cta_in_cluster(i) for i, a in enumerate("xyz")},
    **{f"%cluster_nctaid.{a}": _constant(lambda s, i=i: s.geometry.cluster[i]) for i, a in enumerate("xyz")},
    # The fourth element is unused, and 0 (10.1 to 10.13).
    **{f"{name}.w": _constant(lambda s: 0) for name in VECTORS},
    "%cluster_ctarank": _per_cta(lambda g, cluster, rank: rank),
    "%cluster_nctarank": _constant(lambda s: s.geometry.cluster_size),
    "%is_explicit_cluster": _constant(lambda s: s.explicit_cluster),
    "%laneid": lambda state: state.geometry.lane(),
    "%warpid": _warp,
    "%nwarpid": _constant(lambda s: s.geometry.warps_with_threads),
    "%lanemask_eq": _lane_mask(lambda n: 1 << n),
    "%lanemask_lt": _lane_mask(lambda n: (1 << n) - 1),
    "%lanemask_le": _lane_mask(lambda n: (2 << n) - 1),
    "%lanemask_gt": _lane_mask(lambda n: -(2 << n)),
    "%lanemask_ge": _lane_mask(lambda n: -(1 << n)),
    "%dynamic_smem_size": _constant(lambda s: s.dynamic_bytes),
    "%total_smem_size": _constant(lambda s: s.shared_bytes),
    "%aggr_smem_size": _constant(lambda s: s.shared_bytes),
    "%reserved_smem_offset_begin": _constant(lambda s: s.reserved),
    "%reserved_smem_offset_end": _constant(lambda s: s.reserved + RESERVED_BYTES),
    "%reserved_smem_offset_cap": _constant(lambda s: s.reserved + RESERVED_BYTES),
    "%reserved_smem_offset_0": _constant(lambda s: s.reserved),
    "%reserved_smem_offset_1": _constant(lambda s: s.reserved),
    "%envreg1": _constant(lambda s: s.addresses[WORKSPACE] >> 32),
    "%envreg2": _constant(lambda s: s.addresses[WORKSPACE] & 0xFFFFFFFF),
    "%smid": _multiprocessor,
    "%nsmid": _constant(lambda s: MULTIPROCESSORS),
    "%gridid": _constant(lambda s: 1),
    **{name: lambda s, name=name: s.clock.values(name, np.int64) for name in CLOCKS},
}
