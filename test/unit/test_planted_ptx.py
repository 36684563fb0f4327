"""Asynchronous PTX written by hand: a right kernel gives its words and is silent, each planted fault is found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from seeded_bugs import check_found, edited, line_of, run

Array = NDArray[Any]

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out) {
.reg .b32 %r<32>; .reg .b64 %d<8>; .reg .pred %p<4>; .shared .align 128 .b8 sm[4096];
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, sm; shr.u32 %r3, %r0, 5; shl.b32 %r4, %r0, 2;
add.u32 %r5, %r2, %r4; xor.b32 %r6, %r4, 252; add.u32 %r6, %r2, %r6; mad.lo.u32 %r7, %r1, 256, %r4;
cvt.u64.u32 %d7, %r7; setp.eq.u32 %p0, %r0, 0;
ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out]; cvta.to.global.u64 %d0, %d0; cvta.to.global.u64 %d1, %d1;
add.u64 %d2, %d0, %d7; add.u64 %d3, %d1, %d7; xor.b32 %r8, %r1, 1; ld.global.u32 %r9, [%d2];
"""
"""Thread %r0 of 64, CTA %r1 of two; the word %r9 comes from %d2; %r5 is its place, %r6 that of the mirrored thread."""
WAIT = "W: mbarrier.try_wait.parity.{sem}shared::cta.b64 %p1, [sm+2048], 0;\n@!%p1 bra W;\n"
OUT = "ld.shared.u32 %r10, [%r6];\nst.global.u32 [%d3], %r10;\nret;\n}\n"
CLUSTER = "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"
INIT = "@%p0 mbarrier.init.shared::cta.b64 [sm+2048], {count};\n@%p0 fence.mbarrier_init.release.cluster;\n"
STORED = "st.shared.u32 [%r5], %r9;\n"
ARRIVE = "mbarrier.arrive.release.cta.shared::cta.b64 _, [sm+2048];"
RELAXED = ARRIVE.replace("release", "relaxed")
REMOTE = "mapa.shared::cluster.u32 %r11, %r5, %r8; add.u32 %r12, %r2, 2048; mapa.shared::cluster.u32 %r13, %r12, %r8;\n"
BULK = "@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [sm], [%d0], 256, [sm+2048];\n"
EXPECT = "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [sm+2048], 256;\n"
ASYNC = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r11], %r9, [%r13];"
SAVE = "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%d1], [sm], 256;\n@%p0 cp.async.bulk.commit_group;\n"
SAVED = "@%p0 cp.async.bulk.wait_group 0;\nbar.sync 1;\nld.global.u32 %r14, [%d3];\nst.global.u32 [%d3], %r14;\n"


@dataclass(frozen=True)
class Right:
    """A right kernel of one CTA, or of a cluster of two, each of which leaves the words of the other."""

    body: str
    cluster: int = 1
    mirrored: bool = True
    ends: str = field(default=OUT)

    @property
    def text(self) -> str:
        return HEAD + self.body + self.ends

    def run(self, text: str) -> tuple[Any, Array, Array]:
        """What the checks find, the words that are left and those that should be."""
        words = np.random.default_rng().integers(1, 1 << 32, (self.cluster, 64), np.uint32)
        left = np.zeros_like(words)
        found = run(text, (self.cluster, 1, 1), (64, 1, 1), [words, left], cluster=(self.cluster, 1, 1))
        return found, left, words[::-1, :: -1 if self.mirrored else 1]


KERNELS = {
    "arrivals": Right(
        INIT.format(count=64) + "bar.sync 0;\n" + STORED + ARRIVE + "\n" + WAIT.format(sem="acquire.cta.")
    ),
    "cp.async": Right(
        INIT.format(count=64) + "bar.sync 0;\ncp.async.ca.shared.global [%r5], [%d2], 4;\n"
        "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [sm+2048];\n" + WAIT.format(sem="")
    ),
    "bulk load": Right(INIT.format(count=1) + "bar.sync 0;\n" + EXPECT + BULK + WAIT.format(sem="")),
    "bulk store": Right(
        STORED + "fence.proxy.async.shared::cta;\nbar.sync 0;\n" + SAVE + SAVED, mirrored=False, ends="ret;\n}\n"
    ),
    "dsmem": Right(
        STORED + "barrier.cluster.arrive;\nbarrier.cluster.wait;\nmapa.shared::cluster.u32 %r11, %r6, %r8;\n"
        "ld.shared::cluster.u32 %r10, [%r11];\nst.global.u32 [%d3], %r10;\n" + CLUSTER, 2, ends="ret;\n}\n"
    ),
    "remote arrivals": Right(
        INIT.format(count=64) + CLUSTER + REMOTE + "st.shared::cluster.u32 [%r11], %r9;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r13];\n" + WAIT.format(sem="acquire.cluster."), 2
    ),
    "st.async": Right(
        INIT.format(count=1) + EXPECT + CLUSTER + REMOTE + ASYNC + "\n" + WAIT.format(sem="acquire.cluster."), 2
    ),
    "named barriers": Right(
        STORED + "setp.eq.u32 %p2, %r3, 0;\n@%p2 bar.sync 1, 64;\n@!%p2 bar.sync 1, 64;\n"
    ),
}  # fmt: skip
FENCE = "fence.acq_rel.cluster;"
NO_ORDER = "and nothing orders them"

FAULTS = [
    # Arrivals and waits that publish nothing.
    ("arrivals", "arrive.release.cta", "arrive.relaxed.cta", "races", "ld.shared.u32", NO_ORDER),
    ("arrivals", "acquire.cta", "relaxed.cta", "races", "ld.shared.u32", NO_ORDER),
    ("arrivals", "@!%p1 bra W;", "", "races", "ld.shared.u32", NO_ORDER),
    ("bulk load", "@!%p1 bra W;", "", "races", "ld.shared.u32", NO_ORDER),
    ("bulk load", "@!%p1 bra W;", "setp.lt.u32 %p2, %r0, 99; @%p2 bra L; L:", "races", "ld.shared.u32", NO_ORDER),
    ("arrivals", "bar.sync 0;", "", "races", "W: mbar", "updates what warp 0, lane 0 writes"),
    ("remote arrivals", "arrive.release.cluster.s", "arrive.relaxed.cluster.s", "races", "ld.shared.u32", NO_ORDER),
    ("remote arrivals", "acquire.cluster.shared", "relaxed.cluster.shared", "races", "ld.shared.u32", NO_ORDER),
    ("st.async", "acquire.cluster.shared", "relaxed.cluster.shared", "races", "ld.shared.u32", NO_ORDER),
    ("dsmem", "cluster.arrive;", "cluster.arrive.relaxed;", "races", "ld.shared::cluster", NO_ORDER),
    ("dsmem", "cluster.arrive;", f"cluster.arrive.relaxed; {FENCE}", "races", "ld.shared::cluster", NO_ORDER),
    # A phase that is complete before all have arrived.
    ("arrivals", "[sm+2048], 64;", "[sm+2048], 63;", "barriers", ARRIVE, "arrive in two phases, each of 63 arrivals"),
    # Objects that are not there yet.
    ("cp.async", "bar.sync 0;", "", "races", "cp.async.mbarrier", "updates what warp 0, lane 0 writes"),
    ("bulk load", "bar.sync 0;", "", "races", "W: mbar", "updates what warp 0, lane 0 writes"),
    ("st.async", "barrier.cluster.wait.acquire.aligned;", "", "races", "st.as", "updates what CTA (1, 0, 0), warp 0"),
    # A copy's stores that are not waited for.
    ("bulk store", "wait_group 0", "wait_group.read 0", "races", "ld.global.u32 %r14", ".read waits for its source"),
    ("bulk store", "wait_group 0", "wait_group 1", "races", "ld.global.u32 %r14", "no cp.async.bulk.wait_group has"),
    ("bulk store", "ld.global.u32 %r14", "ld.global.nc.u32 %r14", "races", "ld.global.nc", "a load with .nc"),
    # Words through which threads tell of others: a fence of a proxy orders no accesses.
    ("arrivals", ARRIVE, f"fence.proxy.async; {RELAXED}", "races", "ld.shared.u32", NO_ORDER),
]  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_right_kernels(name: str) -> None:
    found, left, words = KERNELS[name].run(KERNELS[name].text)
    assert found == ()
    assert np.array_equal(left, words)


@pytest.mark.parametrize(("name", "old", "new", "check", "at", "message"), FAULTS)
def test_planted_faults(name: str, old: str, new: str, check: str, at: str, message: str) -> None:
    text = edited(KERNELS[name].text, old, new)
    check_found(KERNELS[name].run(text)[0], check, line_of(text, at), message)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        (
            "arrivals",
            ARRIVE,
            f"fence.acq_rel.cta; {RELAXED}",
        ),
        ("dsmem", "barrier.cluster.arrive;", f"{FENCE} barrier.cluster.arrive.relaxed;"),
        ("remote arrivals", "cluster.arrive.release", "cluster.arrive.relaxed"),
        ("named barriers", "@%p2 bar.sync 1, 64", "@%p2 bar.sync 1"),
    ],
)
def test_a_fence_does_what_the_barrier_does_not(name: str, old: str, new: str) -> None:
    """And a count that is that of the CTA is the same as none."""
    found, left, words = KERNELS[name].run(edited(KERNELS[name].text, old, new))
    assert found == ()
    assert np.array_equal(left, words)
