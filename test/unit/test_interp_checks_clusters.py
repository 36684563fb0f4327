"""Checks across the CTAs of a cluster, and of copies that arrive at an mbarrier."""

from __future__ import annotations

import numpy as np
import pytest
from interpreted import program
from seeded_bugs import check_found

from warploom.runtime.interp import InterpreterError
from warploom.runtime.interp.machine.memory import Finding

SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
START = """.shared .align 16 .b32 word[64]; .shared .align 8 .b64 bar; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2;
mov.u32 %r3, word; add.u32 %r3, %r3, %r2; mov.u32 %r4, %cluster_ctarank; xor.b32 %r5, %r4, 1;"""
FIRST_LINE = 8


def run(body: str, ctas: int, threads: int, cluster: int = 1) -> tuple[Finding, ...]:
    built = program(f"{START}\n{body}", ".param .u64 p")
    data = np.zeros(256, np.uint32)
    try:
        built.launch("k", (ctas, 1, 1), (threads, 1, 1), [data], cluster=(cluster, 1, 1), checks="all")
    except InterpreterError as error:
        return error.findings
    return ()


REMOTE = """mapa.shared::cluster.u32 %r6, %r3, %r5; st.shared::cluster.u32 [%r6], %r4;
{sync}
ld.shared.u32 %r7, [%r3];"""


def test_the_barrier_of_a_cluster_orders_its_ctas() -> None:
    assert run(REMOTE.format(sync=SYNC), 4, 64, 2) == ()


def test_the_barrier_of_a_cta_does_not() -> None:
    one = check_found(
        run(REMOTE.format(sync="bar.sync 0;"), 4, 64, 2), "races", FIRST_LINE + 2, "reads what CTA (1, 0, 0), warp 0"
    )
    assert (one.cta, one.address) == ((0, 0, 0), 0)


def test_arriving_at_the_cluster_is_not_waiting() -> None:
    """What is written between the arrival and the wait of one CTA is not ordered before the wait of the other."""
    late = f"""barrier.cluster.arrive.aligned;
mapa.shared::cluster.u32 %r6, %r3, %r5; st.shared::cluster.u32 [%r6], %r4; barrier.cluster.wait.aligned;
ld.shared.u32 %r7, [%r3]; {SYNC}"""
    check_found(run(late, 2, 32, 2), "races", FIRST_LINE + 2, "reads what CTA (1, 0, 0), warp 0")


@pytest.mark.parametrize(
    ("rank", "update", "message"),
    [
        ("%r5", "cluster.shared::cluster.add.u64", ""),
        ("%r4", "cluster.shared::cluster.max.u64", ""),
        ("%r5", "cluster.shared::cluster.min.s64", "by a load and a store"),
        ("0", "cluster.shared::cluster.xor.b64", "by a load and a store"),
        ("%r4", "cluster.shared::cluster.add.noftz.f16x2", ""),
        ("%r5", "cluster.shared::cluster.add.noftz.bf16x2", "a GPU leaves -0 and an infinity there"),
        ("%r5", "cta.shared::cluster.add.u32", ""),
        ("0", "cluster.shared::cluster.add.u32", ""),
        ("0", "cta.shared::cluster.add.u32", "updates what CTA (1, 0, 0), warp 1, lane 31 writes"),
    ],
)
@pytest.mark.parametrize("threads", [32, 64])
def test_updates_of_another_ctas_memory(rank: str, update: str, message: str, threads: int) -> None:
    """GPUs have only sums of 64 bits there, so lanes of a warp lose others. A scope of one CTA leaves out the other."""
    value = "%rd2" if "64" in update else "%r1"
    findings = run(f"""st.shared.u32 [%r3], %r1; {SYNC}
mov.u32 %r10, word; mapa.shared::cluster.u32 %r6, %r10, {rank}; cvt.u64.u32 %rd2, %r1;
red.relaxed.{update} [%r6], {value};
{SYNC}""", 2, threads, 2)  # fmt: skip
    if message:
        check_found(findings, "races", FIRST_LINE + 2, message.replace("warp 1", f"warp {threads // 32 - 1}"))
    else:
        assert findings == ()


COPY = """setp.eq.u32 %p1, %r1, 0; mov.u32 %r8, 64; @%p1 mbarrier.init.shared.b64 [bar], %r8; bar.sync 0;
ld.param.u64 %rd1, [p]; mad.wide.u32 %rd1, %r1, 4, %rd1; cp.async.ca.shared.global [%r3], [%rd1], 4;
{arrive}
{wait} xor.b32 %r9, %r2, 128; mov.u32 %r10, word; add.u32 %r10, %r10, %r9;
ld.shared.u32 %r7, [%r10];"""
ARRIVE = "cp.async.mbarrier.arrive.noinc.shared.b64 [bar];"
WAIT = "TEST: mbarrier.test_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra TEST;"


def test_copies_that_arrive_at_an_mbarrier() -> None:
    assert run(COPY.format(arrive=ARRIVE, wait=WAIT), 2, 64) == ()


@pytest.mark.parametrize(
    ("arrive", "wait", "message"),
    [
        (ARRIVE, "", "which has not been waited for"),
        ("mbarrier.arrive.shared.b64 _, [bar];", WAIT, "which has not been waited for"),
        ("cp.async.wait_all;", "", "reads what warp 1, lane 0 writes"),
    ],
)
def test_copies_that_do_not_arrive(arrive: str, wait: str, message: str) -> None:
    check_found(run(COPY.format(arrive=arrive, wait=wait), 2, 64), "races", FIRST_LINE + 4, message)


def test_a_cta_that_ends_while_another_reaches_for_its_memory() -> None:
    """The CTA of rank 0 reads the word of rank 1, which does not wait for that."""
    body = f"""st.shared.u32 [%r3], %r4; {SYNC}
setp.eq.u32 %p1, %r4, 1; @%p1 exit;
mapa.shared::cluster.u32 %r6, %r3, %r5;
ld.shared::cluster.u32 %r7, [%r6];"""
    message = "accesses the shared memory of CTA (1, 0, 0), which may be gone"
    check_found(run(body, 2, 64, 2), "races", FIRST_LINE + 3, message)
    meets = body.replace("@%p1 exit;", "@%p1 bra LAST;") + f"\nLAST: {SYNC}"
    assert run(meets, 2, 64, 2) == ()


def test_a_cta_that_ends_before_the_other_arrives_at_its_barrier() -> None:
    """Nothing orders the arrival before the end, whichever of the two the interpreter runs first."""
    body = f"""mov.u32 %r8, 1; setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [bar], %r8;
{SYNC}
mov.u32 %r9, bar; setp.eq.u32 %p2, %r4, 0; and.pred %p2, %p1, %p2; mapa.shared::cluster.u32 %r6, %r9, %r5;
@%p2 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r6];"""
    check_found(run(body, 2, 32, 2), "races", FIRST_LINE + 3, "accesses the shared memory of CTA (1, 0, 0)")
    assert run(f"{body}\n{SYNC}", 2, 32, 2) == ()


@pytest.mark.parametrize(
    ("fence", "barrier", "right"),
    [
        ("fence.mbarrier_init.release.cluster;", "barrier.cluster.arrive.relaxed.aligned;", True),
        ("fence.acq_rel.cluster;", "barrier.cluster.arrive.relaxed.aligned;", True),
        ("bar.sync 0; fence.acq_rel.gpu;", "barrier.cluster.arrive.relaxed.aligned;", True),
        ("", "barrier.cluster.arrive.aligned;", True),
        ("", "barrier.cluster.arrive.release.aligned;", True),
        ("", "barrier.cluster.arrive.relaxed.aligned;", False),
        ("fence.acq_rel.cta;", "barrier.cluster.arrive.relaxed.aligned;", False),
        ("fence.proxy.async;", "barrier.cluster.arrive.relaxed.aligned;", False),
    ],
)
def test_objects_that_another_cta_arrives_at(fence: str, barrier: str, right: bool) -> None:
    body = f"""mov.u32 %r8, 2; setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [bar], %r8; {fence}
{barrier} barrier.cluster.wait.aligned; mov.u32 %r9, bar; mapa.shared::cluster.u32 %r6, %r9, %r5;
@%p1 mbarrier.arrive.shared.b64 _, [bar];
@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r6];
{SYNC}"""
    findings = run(body, 2, 64, 2)
    if right:
        assert findings == ()
    else:
        message = "from another CTA the mbarrier object that CTA (1, 0, 0), warp 0, lane 0 initialises at line 8"
        check_found(findings, "races", FIRST_LINE + 3, message)


TAKEN = f"""setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r4, 0; and.pred %p3, %p1, %p2; mov.u32 %r8, bar;
@%p1 mbarrier.init.shared::cta.b64 [bar], 1; @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;
st.shared.u32 [%r3], %r1; fence.proxy.async; {SYNC}
mov.u32 %r9, word; add.u32 %r10, %r9, 128; mapa.shared::cluster.u32 %r10, %r10, 1;
mapa.shared::cluster.u32 %r11, %r8, 1;
@%p3 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r10], [%r9], 64, [%r11];
@%p2 bra SOURCE;
WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [bar], 0; @!%p4 bra WAIT;
SOURCE: {{told}}
setp.eq.u32 %p4, %r1, {{writer}}; and.pred %p4, %p4, %p2; @%p4 st.shared.u32 [word+16], %r1;
{SYNC}"""
"""CTA 0 copies 64 bytes to CTA 1, which waits for them, and one thread of CTA 0 writes over what is copied."""


@pytest.mark.parametrize("writer", [0, 1, 40])
def test_the_source_of_a_copy_to_another_cta_is_read_until_it_has_arrived(writer: int) -> None:
    assert run(TAKEN.format(told=SYNC, writer=writer), 2, 64, 2) == ()
    for told in ("", "bar.sync 0;"):
        findings = run(TAKEN.format(told=told, writer=writer), 2, 64, 2)
        check_found(findings, "races", FIRST_LINE + 9, "overwrites what the cp.async.bulk.shared::cluster")


REUSED = """setp.eq.u32 %p1, %r1, 0; ld.param.u64 %rd1, [p];
@%p1 mbarrier.init.shared::cta.b64 [bar], 1; @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;
@%p1 fence.mbarrier_init.release.cluster; {before}
{fence} bar.sync 0;
@%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [word], [%rd1], 64, [bar];
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p4, [bar], 0; @!%p4 bra WAIT;
ld.shared.u32 %r7, [word];"""
FENCE, COPIED = "fence.proxy.async.shared::cta;", "cp.async.ca.shared.global [%r3], [%rd1], 4;"


@pytest.mark.parametrize(
    ("before", "fence", "right"),
    [
        ("st.shared.u32 [%r3], %r1;", FENCE, True),
        ("st.shared.u32 [%r3], %r1;", "fence.proxy.async;", True),
        ("st.shared.u32 [%r3], %r1;", "", False),
        ("st.shared.u32 [%r3], %r1;", f"@%p1 {FENCE}", False),
        ("st.shared.u32 [%r3], %r1;", "fence.proxy.async.global;", False),
        ("atom.shared.add.u32 %r9, [%r3], %r1;", "", False),
        ("@!%p1 st.shared.u32 [%r3+64], %r1;", "", True),
        (f"{COPIED} cp.async.wait_all;", FENCE, True),
        (f"{COPIED} {FENCE}", "cp.async.wait_all;", False),
    ],
)
def test_a_copy_goes_over_what_the_generic_proxy_wrote(before: str, fence: str, right: bool) -> None:
    findings = run(REUSED.format(before=before, fence=fence), 1, 32)
    if right:
        assert findings == ()
    else:
        check_found(findings, "races", FIRST_LINE + 4, "writes through the asynchronous proxy over what warp 0, lane")
