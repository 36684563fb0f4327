"""Threads in flight, the shared memory of their clusters, and the events that they raise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from ....dialect.isa.tensor_map import TensorMapFields
from ....dialect.isa.wgmma import MatrixDescriptor
from ...base.launch import Dim3
from ...numerics.floats import Array
from .memory import RANK_BITS, Buffer, FaultError, Part, Window, thread_of

# Threads in flight: which of them execute a step, and where they are in their CTAs.
#
# Thread number t of W warps is lane t // W of warp t % W: one register is one array over all threads, and for the
# instructions of a whole warp it is 32 rows of W.

LANES = 32


class Selection:
    """The threads that execute one step; `mask` None means all."""

    __slots__ = ("_lanes", "count", "mask", "total")

    def __init__(self, mask: Array | None, total: int) -> None:
        self.mask = mask
        self.total = total
        self.count = total if mask is None else int(np.count_nonzero(mask))
        self._lanes: Array | None = None

    @staticmethod
    def of(threads: Array | int, total: int) -> Selection:
        """Some threads by their numbers."""
        return Selection(mask_of(threads, total), total)

    @property
    def lanes(self) -> Array | None:
        """The numbers of the threads; None means all."""
        if self.mask is not None and self._lanes is None:
            self._lanes = np.flatnonzero(self.mask)
        return self._lanes

    @property
    def threads(self) -> Array:
        """The numbers of the threads."""
        return np.arange(self.total) if self.lanes is None else self.lanes

    @property
    def warps(self) -> Array:
        """The numbers of their warps."""
        return np.unique(self.threads % (self.total // LANES))

    @property
    def sparse(self) -> bool:
        """Whether picking the threads costs less than computing for all."""
        return self.count * 4 < self.total

    def where(self, predicate: Array) -> Selection:
        """The selected threads for which `predicate` holds."""
        if self.mask is None:
            return self if predicate.all() else Selection(predicate.copy(), self.total)
        return Selection(self.mask & predicate, self.total)

    def pick(self, values: Array) -> Array:
        """The values of the selected threads, one after the other."""
        return values if self.mask is None else values[self.lanes]

    def by_value(self, values: Array) -> list[tuple[Selection, int]]:
        """The threads for which an integer is the same, with it, the least first."""
        picked = self.pick(values)
        if (picked == picked[0]).all():
            return [(self, int(picked[0]))]
        return [(self.where(values == value), int(value)) for value in np.unique(picked)]

    def refuse(self, bad: Array, message: str, values: Array | None = None) -> None:
        """Checks that nothing is bad, of one flag for each selected thread; `{}` in the message stands for the value of
        the first that is. Raises FaultError by that thread."""
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            text = message if values is None else message.format(int(values[first]))
            raise FaultError(text, thread_of(first, self.lanes))

    def refuse_parts(self, parts: tuple[Part, ...], bad: Callable[[Buffer], bool], message: str) -> None:
        """Checks that no accesses are to a bad buffer. Raises FaultError by the first thread whose access is."""
        for part in parts:
            if bad(part.buffer):
                raise FaultError(message, thread_of(0 if part.chosen is None else int(part.chosen[0]), self.lanes))

    def put(self, out: Array, values: Array) -> None:
        """Writes one value per selected thread."""
        out[... if self.mask is None else self.lanes] = values


def warps_with(mask: Array) -> Array:
    """A mask of threads as one of the warps that have some of them."""
    return np.logical_or.reduce(mask.reshape(LANES, -1), axis=0)


def mask_of(threads: Array | int, total: int) -> Array:
    """A mask of some threads by their numbers."""
    mask = np.zeros(total, np.bool_)
    mask[threads] = True
    return mask


class Geometry(NamedTuple):
    """The grid, and which of its CTAs are in flight. CTAs are numbered cluster after cluster, those of a cluster by
    their rank; a `cluster` is 1x1x1 where none is asked for. Where warps work in groups of `together`, each CTA has
    whole groups, the last with warps of no threads."""

    grid: Dim3
    block: Dim3
    first: int
    ctas: int
    cluster: Dim3 = (1, 1, 1)
    together: int = 1

    @property
    def cluster_size(self) -> int:
        return self.cluster[0] * self.cluster[1] * self.cluster[2]

    @property
    def clusters(self) -> Dim3:
        """How many clusters the grid has along each axis."""
        x, y, z = (n // c for n, c in zip(self.grid, self.cluster, strict=True))
        return x, y, z

    @property
    def threads_per_cta(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps_with_threads(self) -> int:
        """The warps of a CTA, the last one perhaps of fewer threads."""
        return -(-self.threads_per_cta // LANES)

    @property
    def warps_per_cta(self) -> int:
        """Warps of a CTA, rounded up to whole groups."""
        return -(-self.warps_with_threads // self.together) * self.together

    @property
    def warps(self) -> int:
        return self.ctas * self.warps_per_cta

    @property
    def threads(self) -> int:
        return self.warps * LANES

    def per_cta(self, values: Array) -> Array:
        """One value per CTA in flight to one per thread."""
        return np.tile(np.repeat(values, self.warps_per_cta), LANES)

    def cta(self) -> Array:
        """The number of each thread's CTA among those in flight."""
        return self.per_cta(np.arange(self.ctas))

    def rank(self) -> Array:
        """The number of each thread's CTA in its cluster."""
        return self.per_cta(np.arange(self.ctas) % self.cluster_size)

    def lane(self) -> Array:
        return np.repeat(np.arange(LANES), self.warps)

    def thread_in_cta(self) -> Array:
        """The linear number of each thread in its CTA; a last warp can go beyond the CTA's threads."""
        return self.in_cta(np.arange(self.warps_per_cta * LANES))

    def in_cta(self, values: Array) -> Array:
        """One value per thread of a CTA, by its linear number there, to one per thread."""
        return np.tile(values.reshape(self.warps_per_cta, LANES).T, self.ctas).reshape(-1)

    def place(self, thread: int) -> tuple[Dim3, int, int]:
        """CTA, warp and lane of thread number `thread`."""
        lane, warp = divmod(thread, self.warps)
        cta, inner = divmod(warp, self.warps_per_cta)
        return self.cta_index(self.first + cta), inner, lane

    def thread_index(self, thread: int) -> Dim3:
        """The three numbers in its CTA of thread number `thread`."""
        _, warp, lane = self.place(thread)
        x, y, z = unravel(warp * LANES + lane, self.block)
        return int(x), int(y), int(z)

    def cta_index(self, number: int) -> Dim3:
        """The index in the grid of the CTA of a number."""
        cluster, rank = divmod(number, self.cluster_size)
        x, y, z = (
            c * n + r
            for c, n, r in zip(unravel(cluster, self.clusters), self.cluster, unravel(rank, self.cluster), strict=True)
        )
        return x, y, z


# Clusters of CTAs: shared memory of each other.
#
# An address of shared memory in a cluster has the rank of its CTA above the lowest 24 bits, that of an own variable
# too. Without a rank it is of CTA 0; but what is not for the cluster takes it as an offset in the own CTA's memory.


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
                thread_of(first, lanes),
            )
        return plain, base + away * self._stride


@dataclass
class CtaQueue:
    """The CTAs of a launch by number: `begun` have started; those from `total` on do not exist or were cancelled."""

    begun: int = 0
    total: int = 0

    def cancel(self, ctas: int) -> int | None:
        """Removes the last cluster of `ctas` CTAs from the queue. Returns its first CTA, None if all have begun."""
        if self.begun == self.total:
            return None
        self.total -= ctas
        return self.total


def unravel(linear: Any, sizes: Dim3) -> tuple[Any, Any, Any]:
    """x, y and z of linear numbers, an int or an array of them; x runs fastest."""
    x, y, _ = sizes
    return linear % x, linear // x % y, linear // (x * y)


BoundStep: TypeAlias = Callable[[Selection], "int | None"]
"""What an instruction does for some threads: None where all go on to the next one, a program counter, or LEFT."""

LEFT = -1
"""The threads went different ways, wait or are done: the machine knows where they are."""


# What a launch tells of while it runs: batches of CTAs, instructions, memory accesses, meetings of threads, each before
# its effects. A launch has an observer or none. Without one nothing here is called: steps are bound without it.

AccessKind: TypeAlias = Literal["load", "store", "atomic", "copy", "fetch"]
"""`copy` is the destination of an asynchronous copy, `load` its source; `fetch` is what a product will read."""

Look: TypeAlias = Callable[[Selection], None]
"""Called with the threads that are about to execute an instruction."""


class TileUnits(NamedTuple):
    """A box or a matrix in shared memory: what says how it lies there, and its units of 16 bytes in the buffer, (rows,
    columns); a row is contiguous but for a swizzle."""

    how: TensorMapFields | MatrixDescriptor
    units: Array


class MemoryAccess(NamedTuple):
    """Accesses of one instruction to one buffer. `start` is the first byte of each access in `buffer`, `threads` who
    makes it; each is `width` bytes long. Which buffer is shared memory, and where each thread's part of it begins, the
    state's memory says. `values` are the bytes that a store writes, a row for each access, where they are known.
    `tile` is the box that a tensor copy writes, or the matrix that a product reads."""

    pc: int
    kind: AccessKind
    buffer: Buffer
    start: Array
    width: int
    threads: Array
    values: Array | None = None
    tile: TileUnits | None = None


class Events:
    """Receives the events of a launch. These methods do nothing."""

    def watch(self, pc: int) -> Look | None:
        """The callback before the instruction at `pc`. It gets the threads whose guard holds, at least one. If lanes
        wait there for others of their warp, they execute the instruction again when those have arrived."""
        return None

    def issue(self, pc: int) -> Look | None:
        """The callback before the instruction at `pc`. It gets all threads that reach it, whatever their guard."""
        return None

    def access(self, access: MemoryAccess) -> None:
        """Memory is about to be read or written."""

    def come(self, pc: int, number: int, expected: int, threads: Array) -> None:
        """Threads (a mask) come to barrier `number` of their CTA, which is to have `expected` of them (0: all)."""

    def join(self, number: int, arrived: Array, waiting: Array) -> None:
        """Barrier `number` completes in some CTAs. The masks are of all threads that arrived, and of those that waited.
        At the barrier of a cluster, a thread may begin to wait after completion. Then `arrived` is empty."""

    def meet(self, pc: int, threads: Selection, members: Array, lanes: Array) -> None:
        """Lanes that wait for each other, as in `bar.warp.sync` and `shfl.sync`, have met: at most one group of each
        warp. For each thread, `members` is its member mask, and `lanes` the mask of lanes that it has met."""

    def arrive(self, start: Array, threads: Array, copy: int | None = None) -> None:
        """Threads arrive at the mbarrier objects whose first bytes in shared memory are `start`: now, or because their
        earlier `cp.async` completed. With `copy`, the bulk copy issued at that instruction arrives."""

    def defer(self, start: Array, threads: Array) -> None:
        """Threads begin operations whose arrivals or bytes mbarrier objects count later; `start` as in `arrive`."""

    def count(self, start: Array, threads: Array, arrivals: Array, transactions: Array, *, deferred: bool) -> None:
        """mbarrier objects are about to count arrivals, and transactions expected (positive) or complete (negative), of
        threads: now, or of what these have begun as `defer` told."""

    def passed(self, start: Array, threads: Array) -> None:
        """Threads have seen that a phase of mbarrier objects is complete; `start` as in `arrive`."""

    def land(self, buffer: Buffer, start: Array, width: int, threads: Array) -> None:
        """Asynchronous copies of the threads have been waited for: their bytes are written now."""


def tell(
    observer: Events | None, pc: int, kind: AccessKind, parts: tuple[Part, ...], width: int, sel: Selection,
    words: Array | None = None,
) -> None:  # fmt: skip
    """Reports the accesses of the selected threads, where somebody looks on; `words` are what each of them stores."""
    if observer is None:
        return
    threads = sel.threads
    values = None if words is None else np.ascontiguousarray(words).view(np.uint8).reshape(-1, width)
    for part in parts:
        stored = None if values is None else part.of(values)
        observer.access(MemoryAccess(pc, kind, part.buffer, part.index * width, width, part.of(threads), stored))


def tell_of_one(
    observer: Events | None, pc: int, kind: AccessKind, buffer: Buffer, start: Array, width: int, thread: int,
    values: Array | None = None, tile: TileUnits | None = None,
) -> None:  # fmt: skip
    """Reports accesses of one thread, where somebody looks on."""
    if observer is not None:
        observer.access(MemoryAccess(pc, kind, buffer, start, width, np.full(start.size, thread), values, tile))
