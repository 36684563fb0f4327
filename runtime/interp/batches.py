"""Runs a decoded kernel over a grid, some CTAs at a time, one batch after the other or in several processes."""

from __future__ import annotations

import numpy as np

from .cores import cores, independent
from .machine.kernel import align
from .machine.machine import KernelRun, Machine, Stats, geometry_of, shared_bytes

IN_FLIGHT_BYTES = 200 << 20
IN_FLIGHT_WARPS = 1024
IN_FLIGHT_WARPS_MATRIX = 128
WARPS_OF_BATCH = 64
"""The least that a process runs at a time of a kernel that multiplies matrices: half as many take 1.3 times as long
for each."""


def run(launch: KernelRun) -> Stats:
    """Runs all CTAs.

    Raises:
        InterpreterError: if a thread does something wrong, waits for ever, or the steps run out.
    """
    total = launch.grid[0] * launch.grid[1] * launch.grid[2]
    at_once = min(total, _ctas_in_flight(launch))
    stats = Stats()
    with np.errstate(all="ignore"):
        if not _side_by_side(launch, total, at_once, stats):
            for first in range(0, total, at_once):
                ctas = min(at_once, total - first)
                Machine(launch, geometry_of(launch, first, ctas), stats).run()
                if launch.progress:
                    launch.progress(first + ctas, total)
    return stats


def _side_by_side(launch: KernelRun, total: int, at_once: int, stats: Stats) -> bool:
    """Runs the CTAs in several processes, if there are so many that it pays, and none can see what another does."""
    observer = launch.observer
    if (observer is not None and not observer.merges) or launch.max_steps is not None or (processes := cores()) == 1:
        return False
    each = _ctas_of_batch(launch, total, at_once, processes)
    if each >= total or not independent(launch.kernel):
        return False
    from .parallel import run_batches

    finished = 0

    def work(number: int) -> tuple[int, Stats, object]:
        ctas, did = min(each, total - number * each), Stats()
        Machine(launch, geometry_of(launch, number * each, ctas), did).run()
        return ctas, did, None if observer is None else observer.take()

    def done(result: tuple[int, Stats, object]) -> None:
        nonlocal finished
        finished += result[0]
        stats.steps, stats.threads = stats.steps + result[1].steps, stats.threads + result[1].threads
        if observer is not None:
            observer.add(launch.kernel, result[2])
        if launch.progress:
            launch.progress(finished, total)

    return run_batches(work, -(-total // each), launch.memory, done)


def _ctas_of_batch(launch: KernelRun, total: int, at_once: int, processes: int) -> int:
    """How many CTAs a process runs at a time: alike many for each, but not so few that steps cost more than threads."""
    one = geometry_of(launch, 0, 1)
    size, least = one.cluster_size, at_once
    if launch.kernel.multiplies_matrices or launch.kernel.has_warpgroups:
        least = align(-(-WARPS_OF_BATCH // one.warps), size)
    batches = -(-total // min(at_once, max(least, -(-total // processes))))
    batches = min(align(batches, processes), max(1, total // least))
    return min(at_once, align(-(-total // batches), size))


def _ctas_in_flight(launch: KernelRun) -> int:
    layout = launch.kernel.layout
    one = geometry_of(launch, 0, 1)
    per_thread = sum(max(bits // 8, 1) * n for bits, n in layout.slots.items()) + layout.local_bytes + 64
    per_cta = one.threads * per_thread + shared_bytes(launch)
    if launch.observer is not None:
        per_cta += launch.observer.weight(shared_bytes(launch), one.warps * one.cluster_size)
    warps = IN_FLIGHT_WARPS_MATRIX if launch.kernel.multiplies_matrices else IN_FLIGHT_WARPS
    clusters = min(IN_FLIGHT_BYTES // per_cta, warps // one.warps) // one.cluster_size
    return max(1, clusters) * one.cluster_size
