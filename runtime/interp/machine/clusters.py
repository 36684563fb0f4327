"""Clusters of CTAs: shared memory of each other, and their barrier. PTX ISA 9.7.13.3.

An address of shared memory in a cluster has the rank of its CTA above the lowest 24 bits, that of an own variable too.
Without a rank it is of CTA 0; but what is not for the cluster takes it as an offset in the own CTA's memory.
"""

from __future__ import annotations

import numpy as np

from ...numerics.array import Array
from ..errors import FaultError
from .flow import Flow
from .memory import RANK_BITS, Buffer, Window
from .threads import LEFT, Geometry, Selection

BARRIER = 16
"""The number under which an observer learns of the cluster's barrier; those of a CTA are 0 to 15."""


class SharedWindow(Window):
    """Shared memory by addresses with the rank of a CTA; without `remote` only the own CTA's, and plain offsets."""

    def __init__(self, buffer: Buffer, geometry: Geometry, stride: int, size: int, remote: bool) -> None:
        super().__init__("shared", buffer, geometry.cta() * stride, size)
        self.remote = remote
        self._rank = geometry.rank()
        self._ranks = geometry.cluster_size
        self.plain = 0 if remote and self._ranks > 1 else size
        self._stride = stride

    def beyond(self, addresses: Array, base: Array, width: int, lanes: Array | None) -> tuple[Array, Array]:
        """Addresses of the cluster are taken apart."""
        own = self._rank if lanes is None else self._rank[lanes]
        named, plain = addresses >> RANK_BITS, addresses & ((1 << RANK_BITS) - 1)
        away = named - own if self.remote else np.where(named > 0, named - own, 0)
        outside = (addresses < 0) | (named >= self._ranks) | (plain > self.size - width)
        if outside.any():
            super().beyond(np.where(outside, addresses, 0), base, width, lanes)
        if not self.remote and away.any():
            first = int(np.flatnonzero(away)[0])
            raise FaultError(
                f"address {int(addresses[first]):#x} is of CTA {int(named[first])} of the cluster, this is CTA "
                f"{int(own[first])}; the memory of others needs .shared::cluster or a generic address",
                first if lanes is None else int(lanes[first]),
            )
        return plain, base + away * self._stride


class ClusterBarrier:
    """`barrier.cluster` of the clusters in flight. A thread arrives, and waits before it arrives again."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.arrived = np.zeros(flow.live.size, np.bool_)
        self.complete = np.zeros(flow.live.size, np.bool_)
        self.parked: list[tuple[int, Array]] = []
        self._cluster = flow.geometry.cta() // flow.geometry.cluster_size
        flow.on_exit.append(self.release)

    def arrive(self, sel: Selection) -> None:
        """Raises:
        FaultError: if a thread has arrived already and not waited since.
        """
        mask = self.flow.mask(sel)
        again = mask & (self.arrived | self.complete)
        if again.any():
            message = "a thread arrives again at the cluster's barrier before it waits"
            raise FaultError(message, int(np.flatnonzero(again)[0]))
        if self.flow.observer is not None:
            self.flow.observer.come(BARRIER, 0, mask)
        self.arrived |= mask
        self.release()

    def wait(self, sel: Selection, pc: int) -> int | None:
        """Raises:
        FaultError: if a thread has not arrived.
        """
        mask = self.flow.mask(sel)
        early = mask & ~(self.arrived | self.complete)
        if early.any():
            message = "a thread waits at the cluster's barrier and has not arrived"
            raise FaultError(message, int(np.flatnonzero(early)[0]))
        done = mask & self.complete
        if self.flow.observer is not None and done.any():
            self.flow.observer.join(BARRIER, np.zeros_like(done), done)
        self.complete &= ~mask
        if np.array_equal(done, mask):
            return None
        self.parked.append((pc, mask & ~done))
        if done.any():
            self.flow.go(pc + 1, done)
        return LEFT

    def release(self) -> None:
        """Completes the barriers at which all threads that have not exited have arrived."""
        if not self.arrived.any():
            return
        missing = np.bincount(self._cluster[self.flow.live & ~self.arrived], minlength=int(self._cluster[-1]) + 1)
        ready = self.arrived & (missing == 0)[self._cluster]
        if not ready.any():
            return
        if self.flow.observer is not None:
            waiting = np.logical_or.reduce([mask & ready for _, mask in self.parked] or [np.zeros_like(ready)])
            self.flow.observer.join(BARRIER, ready, waiting)
        self.arrived &= ~ready
        parked, self.parked = self.parked, []
        for pc, mask in parked:
            woken, rest = mask & ready, mask & ~ready
            if woken.any():
                self.flow.go(pc + 1, woken)
                ready &= ~woken
            if rest.any():
                self.parked.append((pc, rest))
        self.complete |= ready
