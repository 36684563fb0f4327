"""Synchronisation: barriers, mbarriers, groups of asynchronous operations, fences, counters of CTAs."""

from __future__ import annotations

from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType, StringAttr, UnitAttr, i1, i32, i64
from xdsl.ir import Operation
from xdsl.irdl import irdl_attr_definition, operand_def, opt_operand_def, opt_prop_def, prop_def, result_def, traits_def
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from ..layouts.layout import LANES
from ..mlir.words import irdl_op_definition
from .attributes import is_shared, memory_of, target_of
from .op_shapes import CountedType, WarpOp

# Where warps meet without all stopping at one place: mbarrier objects in shared memory.
#
# A mbarrier counts arrivals; when as many as it expects have come, its phase ends and the next one begins. Phases are
# told apart by their parity: the first has parity 0. `warp.make_barriers`, `warp.arrive`, `warp.await`.
# Source: PTX ISA 9.7.13.15.

BARRIER_BYTES = 8
"""The size of a mbarrier object, and its alignment. Source: PTX ISA 9.7.13.15.2."""

BARRIER_SM = 80
"""The first target with mbarrier. Source: PTX ISA 9.7.13.15.9."""

MAX_ARRIVALS = (1 << 20) - 1
"""Source: PTX ISA 9.7.13.15.1."""

MAX_BYTES = MAX_ARRIVALS
"""Bytes that a phase of a mbarrier can expect. Source: PTX ISA 9.7.13.15.5."""


@irdl_attr_definition
class BarriersType(CountedType):
    """An array of mbarrier objects in shared memory, such as one for each stage of a pipeline: `!warp.barriers<8>`."""

    name = "warp.barriers"

    COUNTED = "barrier"


class _Synchronises(WarpOp):
    """An operation that orders memory accesses of threads."""

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())


@irdl_op_definition
class MakeBarriersOp(WarpOp):
    """Allocates mbarriers, each of which expects `arrivals` arrivals in a phase. Threads may use them after a
    `gpu.barrier`::

    %full = warp.make_barriers {arrivals = 256 : i64} : !warp.barriers<8>
    """

    name = "warp.make_barriers"

    barriers = result_def(BarriersType)
    arrivals = prop_def(IntegerAttr)

    traits = traits_def(MemoryWriteEffect())
    assembly_format = "attr-dict `:` type($barriers)"

    def verify_(self) -> None:
        if not 0 < self.arrivals.value.data <= MAX_ARRIVALS:
            raise VerifyException(f"expected 1 to {MAX_ARRIVALS} arrivals, got {self.arrivals.value.data}")


@irdl_op_definition
class ArriveOp(_Synchronises):
    """Arrives once for each warp that executes it. After the phase, other warps may overwrite memory that its lanes
    have read::

        warp.arrive %empty[%stage] : !warp.barriers<8>

    With `at`, it arrives at the same barrier of another CTA of the cluster, the CTA with that rank::

        warp.arrive %empty[%stage] at %rank : !warp.barriers<8>

    With `copies`, each thread arrives when the asynchronous copies that it has started so far are done. The thread does
    not wait::

        warp.arrive %full[%stage] {copies} : !warp.barriers<8>

    With `by` alone, that thread of each warpgroup arrives for all of it, whose products have read the memory::

        warp.arrive %empty[%stage] at %rank {by = 32 : i64} : !warp.barriers<8>

    With `bytes`, one thread arrives, the first unless `by` names another, and announces so many bytes. The phase ends
    only after tensor copies have delivered them as well; `at` may name another CTA, to whose barrier they deliver::

        warp.arrive %full[%stage] {bytes = 16384 : i64, by = 128 : i64} : !warp.barriers<8>

    With `products`, one thread of the warpgroup arrives when the products that it has started in tensor memory are
    done, at the barriers of both CTAs of a pair. It does not wait::

        warp.arrive %empty[%stage] {products} : !warp.barriers<8>

    Source: PTX ISA 9.7.13.15.13, 9.7.13.15.15 and 9.7.16.12.1.
    """

    name = "warp.arrive"

    barriers = operand_def(BarriersType)
    number = operand_def(IndexType())
    cta = opt_operand_def(IndexType())
    copies = opt_prop_def(UnitAttr)
    products = opt_prop_def(UnitAttr)
    bytes = opt_prop_def(IntegerAttr)
    by = opt_prop_def(IntegerAttr)

    assembly_format = "$barriers `[` $number `]` (`at` $cta^)? attr-dict `:` type($barriers)"

    def verify_(self) -> None:
        _verify_one_of(copies=self.copies, products=self.products, bytes=self.bytes)
        _verify_one_of(at=self.cta, copies=self.copies, products=self.products)
        if self.bytes is not None and not 0 <= self.bytes.value.data <= MAX_BYTES:
            raise VerifyException(f"expected 0 to {MAX_BYTES} bytes, got {self.bytes.value.data}")


def _verify_one_of(**parts: object) -> None:
    """Checks that an operation has at most one of several parts."""
    present = [name for name, part in parts.items() if part is not None]
    if len(present) > 1:
        raise VerifyException(f"expected one of {', '.join(parts)}, got {' and '.join(present)}")


@irdl_op_definition
class AwaitOp(_Synchronises):
    """Waits until the phase with a parity, 0 or 1, has ended. For a new barrier, the phase with parity 1 has already
    ended::

        warp.await %full[%stage] parity %parity : !warp.barriers<8>

    Source: PTX ISA 9.7.13.15.16.
    """

    name = "warp.await"

    barriers = operand_def(BarriersType)
    number = operand_def(IndexType())
    parity = operand_def(IndexType())

    assembly_format = "$barriers `[` $number `]` `parity` $parity attr-dict `:` type($barriers)"


CP_ASYNC, BULK, WGMMA, LAUNCHES = "cp_async", "bulk", "wgmma", "launches"

GROUPS = {CP_ASYNC: None, BULK: None, WGMMA: 7, LAUNCHES: 0}
"""The kinds of groups: copies of each thread, tensor stores, products of warpgroups, launches ahead of this one; and of
how many `warp.wait` can leave unfinished. Of products `ptxas` takes more, and waits for 7 then."""


class _OfGroup(_Synchronises):
    """An operation on groups of a kind. One thread handles groups of tensor stores: the first unless `by` names
    another, of the CTA or of each warpgroup."""

    group = prop_def(StringAttr)
    by = opt_prop_def(IntegerAttr)
    each_warpgroup = opt_prop_def(UnitAttr)

    def verify_(self) -> None:
        group = self.group.data
        if group not in GROUPS:
            raise VerifyException(f"expected a group of {', '.join(GROUPS)}, got '{group}'")
        if group != BULK and (odd := [name for name in self.properties if name not in ("group", "pending")]):
            raise VerifyException(f"only groups of {BULK} take '{odd[0]}', got {group}")


@irdl_op_definition
class CommitOp(_OfGroup):
    """Commits the asynchronous operations of a kind since the last `warp.commit` of that kind as a group::

        warp.commit cp_async
        warp.commit bulk {each_warpgroup}
        warp.commit wgmma

    Groups consist of copies (`warp.copy` with `async`), of tensor stores, or of products of warpgroups. With `launches`
    the next launch may begin. Source: PTX ISA 9.7.9.25.3.2, 9.7.15.7.2 and 9.7.13.13.
    """

    name = "warp.commit"

    assembly_format = "custom<BareWord>($group) attr-dict"


@irdl_op_definition
class WaitOp(_OfGroup):
    """Waits until at most `pending` groups of a kind are unfinished::

        warp.wait cp_async 2
        warp.wait bulk 0 {read}
        warp.wait wgmma 1

    It covers the copies of the executing thread. A `gpu.barrier` makes the copies of other threads visible. With
    `read`, it waits only until tensor stores have read their tiles. A kernel that waits for `launches` may begin before
    they end.
    Source: PTX ISA 9.7.9.25.3.3, 9.7.15.7.3 and 9.7.13.13.
    """

    name = "warp.wait"

    group = prop_def(StringAttr)
    pending = prop_def(IntegerAttr[i64])
    read = opt_prop_def(UnitAttr)

    assembly_format = "custom<BareWord>($group) $pending attr-dict"

    def verify_(self) -> None:
        super().verify_()
        pending, largest = self.pending.value.data, GROUPS[self.group.data]
        if pending < 0 or (largest is not None and pending > largest):
            wanted = "a number of" if largest is None else f"0 to {largest}"
            raise VerifyException(f"expected {wanted} groups that may be in flight, got {pending}")


ASYNC_PROXY = "async_proxy"
BEFORE_SYNC, AFTER_SYNC, ARITHMETIC = "before_thread_sync", "after_thread_sync", "arithmetic"
FENCES = (WGMMA, ASYNC_PROXY, BEFORE_SYNC, AFTER_SYNC, ARITHMETIC)


@irdl_op_definition
class FenceOp(_Synchronises):
    """Orders accesses of the executing threads before what follows::

        warp.fence wgmma
        warp.fence async_proxy

    - `wgmma`: accesses to registers, before the products of warpgroups that follow. It is needed before the first
      product, and again after registers of products were read or written. Source: PTX ISA 9.7.15.7.1.
    - `before_thread_sync`: accesses to tensor memory, before a barrier behind which other threads access it.
    - `after_thread_sync`: a barrier, before accesses to tensor memory. Source: PTX ISA 9.7.16.11.
    - `async_proxy`: writes to shared memory, before products of warpgroups and tensor copies. Source: PTX ISA 9.7.13.4.
    - `arithmetic`: loads, before arithmetic on what they load. It says nothing of other threads, but ptxas 13.0 moves
      loads down to their uses otherwise, where each waits for those before it.
    """

    name = "warp.fence"

    before = prop_def(StringAttr)

    assembly_format = "custom<BareWord>($before) attr-dict"

    def verify_(self) -> None:
        if self.before.data not in FENCES:
            raise VerifyException(f"expected a fence of {', '.join(FENCES)}, got '{self.before.data}'")


# Barriers: of some warps of a CTA, of a cluster.
#
# Source: PTX ISA 9.7.13.1 and 9.7.13.3.

CLUSTER_SIZE = "gpu.known_cluster_size"
"""The attribute of a kernel that says how many CTAs along x, y and z a cluster has: `array<i32: 2, 1, 1>`."""

MIN_CTAS = "nvvm.minctasm"
"""The attribute of a kernel with the number of CTAs that an SM has registers for."""

CLUSTER_SM = 90
"""The first target with clusters. Source: PTX ISA 9.7.13.3."""


def has_clusters(op: Operation) -> bool:
    """Whether the target of an operation has clusters."""
    target = target_of(op)
    return target is not None and target.sm >= CLUSTER_SM


MAX_CTAS = 16
"""CTAs of a cluster; more than 8 need a launch that says so. Source: CUDA programming guide, Thread Block Clusters."""


MAX_BARRIERS = 16
"""Barriers of a CTA; the first is that of `gpu.barrier`. Source: PTX ISA 9.7.13.1."""

CTA, CLUSTER = "cta", "cluster"

SCOPES = {CTA: frozenset(("number", "threads", "arrive")), CLUSTER: frozenset(("arrive", "wait", "mbarriers"))}
"""What a barrier of each scope can have beside the scope."""


@irdl_op_definition
class ScopedBarrierOp(_Synchronises):
    """Makes the threads of a scope wait for each other, and see each other's earlier writes::

        warp.barrier cta[%number] {threads = 128 : i64}
        warp.barrier cluster

    - `cta`: some warps of a CTA, `threads` threads together, at one of the barriers 1 to 15; `gpu.barrier` is that of
      all threads. Source: PTX ISA 9.7.13.1, `bar.sync` and `bar.arrive`.
    - `cluster`: all threads of a cluster. With `mbarriers` they see only the mbarriers that the others initialised,
      which needs no fence of all memory. Source: PTX ISA 9.7.13.3 and 9.7.13.4.

    With `arrive`, threads do not wait: it is the first half of a barrier. With `wait`, it is the second half of that of
    a cluster.
    """

    name = "warp.barrier"

    scope = prop_def(StringAttr)
    number = opt_operand_def(IndexType())
    threads = opt_prop_def(IntegerAttr)
    arrive = opt_prop_def(UnitAttr)
    wait = opt_prop_def(UnitAttr)
    mbarriers = opt_prop_def(UnitAttr)

    assembly_format = "custom<BareWord>($scope) (`[` $number^ `]`)? attr-dict"

    def verify_(self) -> None:
        scope, every = self.scope.data, frozenset[str]().union(*SCOPES.values())
        if scope not in SCOPES:
            raise VerifyException(f"expected a scope of {', '.join(SCOPES)}, got '{scope}'")
        if odd := [name for name in sorted(every - SCOPES[scope]) if getattr(self, name) is not None]:
            raise VerifyException(f"a barrier of a {scope} has no '{odd[0]}'")
        _verify_one_of(arrive=self.arrive, wait=self.wait)
        _verify_one_of(wait=self.wait, mbarriers=self.mbarriers)
        if (self.number is None) != (self.threads is None):
            raise VerifyException("expected the number of a barrier and its threads, or neither")
        if scope == CTA and self.number is None:
            raise VerifyException("expected the number of a barrier; gpu.barrier is that of all threads")
        count = LANES if self.threads is None else self.threads.value.data
        if count < LANES or count % LANES or count > 1024:
            raise VerifyException(f"expected whole warps, {LANES} to 1024 threads, got {count}")


CONSUMERS_BARRIER = 7
"""The barrier of some warps of a CTA that execute a region without the others. The ones below
are of single warpgroups, those from 8 on of warpgroups in turns."""


@irdl_op_definition
class ArriveLastOp(WarpOp):
    """Counts the CTAs that execute it, and returns whether this CTA is the last of `of`. The last one sets the counter
    to zero again::

        %last = warp.arrive_last %counters[%tile] of %parts : memref<64xi32>

    Nobody waits for other CTAs. The last CTA sees the earlier writes of all these CTAs. All threads of a CTA, or of its
    consumer warps, execute the operation, which contains two barriers. The counter must be zero at first. Source: PTX
    ISA 9.7.13.5, `atom.inc`, a release and an acquire of the GPU, and 9.7.13.1, `bar.red.or`.
    """

    name = "warp.arrive_last"

    counters = operand_def(MemRefType)
    number = operand_def(IndexType())
    of = operand_def(IndexType())
    last = result_def(i1)

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = "$counters `[` $number `]` `of` $of attr-dict `:` type($counters)"

    def verify_(self) -> None:
        counters = memory_of(self.counters)
        shape = counters.get_shape()
        if is_shared(counters) or len(shape) != 1 or min(shape) < 1:
            raise VerifyException(f"expected counters in global memory, of 1 known dimension, got {counters}")
        if counters.element_type != i32:
            raise VerifyException(f"expected counters of i32, got {counters}")
