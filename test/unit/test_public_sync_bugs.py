"""Bugs of synchronisation that public threads describe, rebuilt as small kernels: each is found at its line, and the
mended kernel is silent. Nothing is copied from the threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from seeded_bugs import check_found, line_of, run

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k({parameters})
{{
    .reg .pred %p, %q, %first, %lead; .reg .b32 %t, %w, %l, %i, %v, %x, %y, %par, %rank, %other; .reg .f32 %f<4>;
    .reg .b64 %state, %ptr, %at, %da, %db;
    .shared .align 1024 .b8 a[4096]; .shared .align 1024 .b8 b[4096]; .shared .align 8 .b64 bar[4];
    mov.u32 %t, %tid.x; shr.u32 %w, %t, 5; and.b32 %l, %t, 31; setp.eq.u32 %first, %t, 0; setp.eq.u32 %lead, %l, 0;
    mov.u32 %i, 0; shl.b32 %x, %t, 2; mov.u32 %y, a; add.u32 %x, %x, %y;
"""
"""%t, %w, %l are the thread, its warp and lane; %first thread 0, %lead lane 0; %x is the thread's word of `a`."""


def wait(at: int, parity: str = "0", label: str = "") -> str:
    """Waits for a phase of object number `at`, on one line."""
    label = label or f"WAIT{at}"
    return f"{label}: mbarrier.try_wait.parity.shared.b64 %p, [bar+{8 * at}], {parity}; @!%p bra {label};"


def arrive(at: int, guard: str = "") -> str:
    return f"{guard} mbarrier.arrive.shared.b64 %state, [bar+{8 * at}];"


def init(*counts: int) -> str:
    """Makes objects, which all threads may use then."""
    each = (f"@%first mbarrier.init.shared.b64 [bar+{8 * i}], {count};" for i, count in enumerate(counts))
    return " ".join([*each, "@%first fence.mbarrier_init.release.cluster; bar.sync 0;"])


def variant(body: str, which: int, parameters: str = "") -> str:
    """A kernel of a body in which `<broken||mended>` stands for one of the two."""
    pieces = body.split("<")
    text = pieces[0]
    for piece in pieces[1:]:
        choice, _, rest = piece.partition(">")
        text += choice.split("||")[which] + rest
    return f"{HEAD.format(parameters=parameters)}{text}\nEND:\n    ret;\n}}\n"


def check_bug(
    body: str, check: str, message: str, threads: int = 64, ctas: int = 1, parameters: str = "", args: Any = None,
    **options: Any,
) -> None:  # fmt: skip
    """The broken kernel is told of at the line with `// here`, and what its counterexamples show is seen when they are
    replayed; the mended one is not told of."""
    for which in (0, 1):
        ptx = variant(body, which, parameters)
        arrays = [np.array(a) for a in args or ()]
        findings = run(ptx, (ctas, 1, 1), (threads, 1, 1), arrays, checks="all-orders", max_steps=100_000, **options)
        if which:
            assert not findings, "\n".join(map(str, findings))
        else:
            check_found(findings, check, line_of(ptx, "// here"), message, thread=False)
            for order in (f.order for f in findings if f.order is not None):
                again, sizes = [np.array(a) for a in args or ()], ((ctas, 1, 1), (threads, 1, 1))
                assert run(ptx, *sizes, again, checks="races", max_steps=100_000, order=order, **options)


def in_ring(consumer: str, count: int, threads: int = 96, turns: int = 4) -> str:
    """Warp 0 fills one slot again and again; the other warps read it, and arrive as `consumer` says."""
    return f"""
    {init(32, count)}
    setp.ne.u32 %p, %w, 0; @%p bra CONSUME;
PRODUCE: and.b32 %par, %i, 1; xor.b32 %v, %par, 1;
    {wait(1, "%v")}
    st.shared.u32 [%x], %i;
    {arrive(0)}
    add.u32 %i, %i, 1; setp.lt.u32 %p, %i, {turns}; @%p bra PRODUCE;
    bra END;
CONSUME: and.b32 %par, %i, 1; mov.u32 %x, a; mad.lo.u32 %x, %l, 4, %x;
    {consumer}
    add.u32 %i, %i, 1; setp.lt.u32 %p, %i, {turns}; @%p bra CONSUME;"""


# Phases.


def test_a_leader_arrives_before_its_warps_have_tested() -> None:
    """https://github.com/triton-lang/triton/pull/10035: the phase is over before other warps of the partition look."""
    consumer = f"""{wait(0, "%par")} // here
    ld.shared.u32 %v, [%x];
    <||bar.sync 1, 64;>
    setp.eq.u32 %q, %t, 32;
    {arrive(1, "@%q")}"""
    message = "can miss the end of phase 0 of the mbarrier object at 0x2000: nothing keeps warp 0"
    check_bug(in_ring(consumer, 1), "all-orders", message, 96)


def test_the_parity_of_a_ring_for_one_object() -> None:
    """https://github.com/tile-ai/tilelang/pull/3087: one object flips each turn, and is waited for by (k / 3) % 2."""
    consumer = f"""<div.u32 %par, %i, 3; and.b32 %par, %par, 1;||and.b32 %par, %i, 1;>
    {wait(0, "%par")} // here
    ld.shared.u32 %v, [%x];
    {arrive(1)}"""
    check_bug(in_ring(consumer, 32), "all-orders", "can miss the end of phase 0 of the mbarrier object at 0x2000", 64)


def test_bytes_are_expected_and_nobody_arrives() -> None:
    """https://github.com/tile-ai/tilelang/issues/2566: `expect_tx` alone leaves the phase one arrival short."""
    body = f"""
    {init(1)}
    @%first fence.proxy.async.shared::cta;
    @%first mbarrier.<expect_tx.relaxed.cta.shared.b64 [bar], 16;||arrive.expect_tx.shared.b64 %state, [bar], 16;>
    @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [a], [%ptr], 16, [bar];
    {wait(0)} // here
    ld.shared.u32 %v, [a];"""
    load = "ld.param.u64 %ptr, [data];"
    check_bug(load + body, "all-orders", "warps 0-1 wait for phase 0", parameters=".param .u64 data", args=DATA)


DATA = [np.arange(64, dtype=np.uint32)]


def test_more_bytes_are_expected_than_come() -> None:
    """https://github.com/tile-ai/tilelang/issues/2644: the bytes of all CTAs are expected where those of two arrive."""
    body = f"""ld.param.u64 %ptr, [data];
    {init(1)}
    @%first mbarrier.arrive.expect_tx.shared.b64 %state, [bar], <64||32>;
    @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [a], [%ptr], 16, [bar];
    @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [a+16], [%ptr], 16, [bar];
    {wait(0)} // here
    ld.shared.u32 %v, [a+16];"""
    check_bug(body, "fault", "32 bytes are missing", parameters=".param .u64 data", args=DATA)


def test_fewer_bytes_are_expected_than_come() -> None:
    """https://github.com/NVIDIA/Fuser/pull/4524: waits and expectations of a copy under different predicates."""
    body = f"""ld.param.u64 %ptr, [data];
    {init(1)}
    @%first mbarrier.arrive.expect_tx.shared.b64 %state, [bar], <16||32>;
    @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [a], [%ptr], 16, [bar];
    @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [a+16], [%ptr], 16, [bar]; // here
    {wait(0)}
    ld.shared.u32 %v, [a+16];"""
    message = "can come while phase 0 of the mbarrier object at 0x2000 has not ended"
    check_bug(body, "all-orders", message, parameters=".param .u64 data", args=DATA)


def test_an_object_is_initialised_twice() -> None:
    """https://github.com/facebookexperimental/triton/pull/462: two objects share a place, without `mbarrier.inval`."""
    body = f"""{init(32)}
    setp.eq.u32 %q, %w, 0;
    {arrive(0, "@%q")}
    {wait(0)}
    bar.sync 0;
    <||@%first mbarrier.inval.shared.b64 [bar]; bar.sync 0;>
    @%first mbarrier.init.shared.b64 [bar], 64; // here
    bar.sync 0;
    {arrive(0)}
    {wait(0, label="AGAIN")}"""
    check_bug(body, "all-orders", "initialises the mbarrier object at 0x2000, which is one already")


# Slots that are written too early.


def test_a_warpgroup_arrives_before_its_products_end() -> None:
    """https://github.com/NVIDIA/Fuser/issues/3561: `wgmma.wait_group` is missing before a slot is given back."""
    from hopper_kernel import run as run_hopper
    from hopper_kernel import text

    ptx = text().replace("    wgmma.wait_group.sync.aligned 0;\n", "\n")
    copy = line_of(ptx, "complete_tx::bytes [%sa]")
    check_found(run_hopper(ptx, checks="all-orders"), "races", copy, "overwrites what the wgmma.mma_async")
    assert run_hopper(text(), checks="all-orders") == ()


PRODUCT = """mov.u32 %v, a; shr.u32 %v, %v, 4; cvt.u64.u32 %da, %v; or.b64 %da, %da, 0x1000080000;
    mov.u32 %v, b; shr.u32 %v, %v, 4; cvt.u64.u32 %db, %v; or.b64 %db, %db, 0x1000080000;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %da, %db, 0, 1, 1, 0, 0; // product
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"""
"""A product of what lies in `a` and `b`."""
FILL = """mov.u32 %y, 0; mul.lo.u32 %x, %t, 4; mov.u32 %v, a; add.u32 %x, %x, %v;
FILL{n}: st.shared.u32 [%x], %y;{mark}
    add.u32 %x, %x, {step}; add.u32 %y, %y, {step}; setp.lt.u32 %p, %y, 8192; @%p bra FILL{n};
    fence.proxy.async.shared::cta;"""
"""All threads fill `a` and `b`."""


def test_two_warpgroups_read_what_the_next_turn_overwrites() -> None:
    """https://github.com/tile-ai/tilelang/issues/2613: no barrier behind the products of both warpgroups."""
    body = f"""{FILL.format(n=0, step=1024, mark="")}
    bar.sync 0;
    {PRODUCT}
    <||bar.sync 0;>
    {FILL.format(n=1, step=1024, mark=" // here")}
    bar.sync 0;
    {PRODUCT}"""
    check_bug(body, "races", "overwrites what the wgmma.mma_async", 256)


def test_products_read_what_another_proxy_wrote() -> None:
    """https://github.com/tile-ai/tilelang/issues/2634: no `fence.proxy.async` between stores and a product."""
    fill = FILL.format(n=0, step=512, mark="").replace("fence.proxy", "<||fence.proxy").replace("cta;", "cta;>")
    body = f"{fill}\n    bar.sync 0;\n    {PRODUCT.replace('// product', '// here')}"
    check_bug(body, "races", "no fence.proxy.async is between them", 128)


def test_a_store_reads_what_another_proxy_wrote() -> None:
    """https://github.com/MoonshotAI/FlashKDA/issues/24: a barrier does not bridge proxies."""
    body = """ld.param.u64 %ptr, [data];
    st.shared.u32 [%x], %t;
    <||fence.proxy.async.shared::cta;>
    bar.sync 0;
    @%first cp.async.bulk.global.shared::cta.bulk_group [%ptr], [a], 256; // here
    @%first cp.async.bulk.commit_group; @%first cp.async.bulk.wait_group 0;"""
    check_bug(body, "races", "no fence.proxy.async is between them", parameters=".param .u64 data", args=DATA)


def test_a_stage_of_stores_is_used_again_too_early() -> None:
    """https://github.com/NVIDIA/cutlass/pull/3636: every tile begins at stage 0, and the last store still reads it."""
    body = """ld.param.u64 %ptr, [data];
    st.shared.u32 [%x], %t; fence.proxy.async.shared::cta; bar.sync 0;
    @%first cp.async.bulk.global.shared::cta.bulk_group [%ptr], [a], 256;
    @%first cp.async.bulk.commit_group; @%first cp.async.bulk.wait_group.read <1||0>;
    bar.sync 0;
    st.shared.u32 [%x], %w; fence.proxy.async.shared::cta; bar.sync 0; // here
    @%first cp.async.bulk.global.shared::cta.bulk_group [%ptr], [a], 256;
    @%first cp.async.bulk.commit_group; @%first cp.async.bulk.wait_group 0;"""
    check_bug(body, "races", "overwrites what the cp.async.bulk", parameters=".param .u64 data", args=DATA)


def test_copies_land_in_what_the_epilogue_uses() -> None:
    """https://github.com/NVIDIA/cutlass/issues/1326: the last `cp.async` of the loop are not waited for."""
    body = """ld.param.u64 %ptr, [data]; mul.wide.u32 %at, %t, 4; add.s64 %at, %ptr, %at;
    cp.async.ca.shared.global [%x], [%at], 4; cp.async.commit_group;
    <||cp.async.wait_group 0; bar.sync 0;>
    xor.b32 %y, %x, 128;
    st.shared.u32 [%y], %t; // here"""
    check_bug(body, "races", "which has not been waited for", parameters=".param .u64 data", args=DATA)


def test_a_group_is_committed_behind_the_wait() -> None:
    """https://github.com/csarofeen/pytorch/pull/2457: the wait counts groups, of which the last copy is in none yet."""
    body = """ld.param.u64 %ptr, [data]; mul.wide.u32 %at, %t, 4; add.s64 %at, %ptr, %at;
    cp.async.ca.shared.global [%x], [%at], 4; cp.async.commit_group;
LOOP: bar.sync 0;
    cp.async.ca.shared.global [%x+1024], [%at], 4;
    <cp.async.wait_group 0; cp.async.commit_group;||cp.async.commit_group; cp.async.wait_group 0;>
    bar.sync 0;
    ld.shared.u32 %v, [%x+1024]; // here
    bar.sync 0; cp.async.wait_group 0;
    add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 3; @%p bra LOOP;"""
    check_bug(body, "races", "which has not been waited for", parameters=".param .u64 data", args=DATA)


def test_a_wait_leaves_the_group_that_is_read() -> None:
    """https://github.com/tile-ai/tilelang/pull/2505: a stage in two groups is waited for as if it were one."""
    body = """ld.param.u64 %ptr, [data]; mul.wide.u32 %at, %t, 4; add.s64 %at, %ptr, %at;
    cp.async.ca.shared.global [%x], [%at], 4; cp.async.commit_group;
    cp.async.ca.shared.global [%x+1024], [%at], 4; cp.async.commit_group;
    cp.async.wait_group <1||0>; bar.sync 0;
    ld.shared.u32 %v, [%x];
    ld.shared.u32 %v, [%x+1024]; // here"""
    check_bug(body, "races", "which has not been waited for", parameters=".param .u64 data", args=DATA)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "thread",
    [
        "https://github.com/NVIDIA/cutlass/issues/3597",
        "https://github.com/flashinfer-ai/flashinfer/pull/3624",
        "https://github.com/triton-lang/triton/pull/933",
    ],
)
def test_scratch_of_a_reduction_is_used_again(thread: str) -> None:
    """Three threads (see the parameter): the scratch of a reduction in a loop, without a barrier behind the reads."""
    body = """shl.b32 %y, %w, 2; mov.u32 %v, a; add.u32 %y, %y, %v;
LOOP: @%lead st.shared.u32 [%y], %i; // here
    bar.sync 0;
    ld.shared.v2.u32 {%v, %par}, [a];
    <||bar.sync 0;>
    add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 3; @%p bra LOOP;"""
    check_bug(body, "races", "race in shared memory: writes what")


def test_a_histogram_is_cleared_while_others_read_it() -> None:
    """https://github.com/flashinfer-ai/flashinfer/pull/3529: a round clears what the round before still reads."""
    body = """LOOP: st.shared.u32 [%x], 0; // here
    bar.sync 0;
    red.shared.add.u32 [%x], %t;
    bar.sync 0;
    ld.shared.u32 %v, [a+4];
    <||bar.sync 0;>
    add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 2; @%p bra LOOP;"""
    check_bug(body, "races", "race in shared memory: writes what")


def test_shared_memory_is_cleared_before_the_last_read() -> None:
    """https://github.com/tile-ai/tilelang/issues/2699: a write that the insertion of barriers does not know of."""
    body = """st.shared.u32 [%x], %t; bar.sync 0;
    xor.b32 %y, %x, 128; ld.shared.u32 %v, [%y];
    <||bar.sync 0;>
    mov.u32 %v, 0; @%first st.shared.v4.u32 [a+128], {%v, %v, %v, %v}; // here"""
    check_bug(body, "races", "race in shared memory: writes what")


# Barriers with numbers, and of clusters.


def test_two_pairs_of_warps_share_a_barrier() -> None:
    """https://github.com/tile-ai/tilelang/pull/605: two roles got one number, and meet whom they find."""
    body = """setp.lt.u32 %p, %w, 2; @%p bra PAIR;
    bar.sync <1||2>, 64;
    bra END;
PAIR: bar.sync 1, 64; // here"""
    check_bug(body, "all-orders", "can come while phase 0 of barrier 1 has not ended", 128)


def test_lanes_of_a_warp_come_to_copies_of_a_barrier() -> None:
    """https://github.com/facebookexperimental/triton/pull/1040: the compiler made two of one `bar.sync`."""
    body = """<setp.lt.u32 %p, %l, 16; @%p bra HALF;||>
    bar.sync 14, 64; // here
    bra END;
HALF: bar.sync 14, 64;"""
    check_bug(body, "fault", "must be executed by all lanes of a warp together")


def test_a_cluster_barrier_in_one_partition() -> None:
    """https://github.com/triton-lang/triton/pull/9456: `barrier.cluster` waits for all threads, partitions or not."""
    body = """<setp.ne.u32 %p, %w, 0; @%p bra OTHER;||>
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; // here
    bra END;
OTHER: bar.sync 1, 64;"""
    check_bug(
        body,
        "all-orders",
        "warp 0 of CTA (0, 0, 0) and warp 0 of CTA (1, 0, 0) wait for the cluster's barrier",
        64,
        2,
        cluster=(2, 1, 1),
    )


REMOTE = """mov.u32 %rank, %cluster_ctarank; xor.b32 %other, %rank, 1; mov.u32 %y, a;
    mapa.shared::cluster.u32 %y, %y, %other;"""
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def test_a_cta_ends_while_another_writes_its_memory() -> None:
    """https://github.com/facebookexperimental/triton/pull/1105: no cluster barrier before the end."""
    body = f"{REMOTE}\n    {MEET}\n    st.shared::cluster.u32 [%y], %t; // here\n    <||{MEET}>"
    body = body.replace("st.shared", "@%first st.shared")
    check_bug(body, "races", "which may be gone: nothing orders its end behind this", 64, 2, cluster=(2, 1, 1))


def test_a_cta_writes_what_another_still_initialises() -> None:
    """https://github.com/facebookexperimental/triton/pull/2292: no cluster barrier before the first remote store."""
    body = f"""{REMOTE}
    mov.u32 %v, 7; @%first st.shared.u32 [a], %v;
    <||{MEET}>
    @%first st.shared::cluster.u32 [%y], %t; // here
    {MEET}
    ld.shared.u32 %v, [a];
    {MEET}"""
    check_bug(body, "races", "race in shared memory: writes what CTA", 64, 2, cluster=(2, 1, 1))


def test_one_cta_expects_what_all_receive() -> None:
    """https://github.com/facebookexperimental/triton/pull/908: a multicast tells the objects of all CTAs."""
    body = f"""ld.param.u64 %ptr, [data]; mov.u32 %rank, %cluster_ctarank; setp.eq.u32 %q, %rank, 0; mov.b16 %mask, 3;
    {init(1)} {MEET}
    and.pred %q, %q, %first;
    @<%q||%first> mbarrier.arrive.expect_tx.shared.b64 %state, [bar], 16;
    {MEET}
    @%q cp.async.bulk.shared::cluster.global.{BYTES}.multicast::cluster [a], [%ptr], 16, [bar], %mask;
    {wait(0)} // here
    {MEET}"""
    check_bug(
        ".reg .b16 %mask; " + body, "all-orders", "wait for phase 0 of the mbarrier object at 0x2000", 64, 2,
        ".param .u64 data", DATA, cluster=(2, 1, 1),
    )  # fmt: skip


# Words in global memory.


SERIAL = """ld.param.u64 %ptr, [data]; ld.param.u64 %at, [lock]; mov.u32 %rank, %ctaid.x; mul.wide.u32 %da, %t, 4;
    add.s64 %ptr, %ptr, %da; setp.ne.u32 %p, %rank, 0; @%p bra SECOND;
    st.global.u32 [%ptr], %t;
    {release}
    bra END;
SECOND: @!%first bra MEET;
SPIN: {load} %v, [%at]; setp.eq.u32 %p, %v, 0; @%p bra SPIN;
    {acquire}
MEET: bar.sync 0;
    ld.global.u32 %y, [%ptr]; // here
    add.u32 %y, %y, 1; st.global.u32 [%ptr], %y;"""
BYTES = "mbarrier::complete_tx::bytes"
LOCK = ".param .u64 data, .param .u64 lock"


@pytest.mark.parametrize(
    "thread", ["https://github.com/NVIDIA/Fuser/pull/2391", "https://github.com/NVIDIA/cutlass/issues/2775"]
)
def test_a_lock_is_given_back_without_a_fence(thread: str) -> None:
    """Two threads (see the parameter): serial split-K adds up in turns, by a semaphore."""
    release = "bar.sync 0; <||@%first fence.acq_rel.gpu;> @%first st.relaxed.gpu.global.u32 [%at], 1;"
    body = SERIAL.format(release=release, load="ld.relaxed.gpu.global.u32", acquire="fence.acq_rel.gpu;")
    args = [DATA[0], np.zeros(1, np.uint32)]
    check_bug(body, "races", "no membar.gl, fence or .release covers it", 64, 2, LOCK, args)


@pytest.mark.parametrize(
    "thread", ["https://github.com/NVIDIA/cutlass/issues/3117", "https://github.com/ROCm/tritonBLAS/issues/61"]
)
def test_a_lock_is_taken_without_an_acquire(thread: str) -> None:
    """Two threads (see the parameter): a loop that polls a word, and then reads what it stands for."""
    release = "bar.sync 0; @%first st.release.gpu.global.u32 [%at], 1;"
    body = SERIAL.format(release=release, load="ld.<relaxed||acquire>.gpu.global.u32", acquire="")
    args = [DATA[0], np.zeros(1, np.uint32)]
    check_bug(body, "all-orders", "can read the value at the beginning, and not what CTA (0, 0, 0)", 64, 2, LOCK, args)
