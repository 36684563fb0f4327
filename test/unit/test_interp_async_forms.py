"""Stores, reductions and copies that arrive at an mbarrier, in a cluster of CTAs; zeros and bytes of some places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from interpreted import outputs, program

from warploom.runtime.interp import InterpreterError

GENERATOR = np.random.default_rng(62)
CTAS = 4
BEGIN = """.shared .align 8 .b64 bar; .shared .align 16 .b8 stage[512]; .shared .align 16 .b8 there[512];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %cluster_ctarank; mov.u32 %r3, %cluster_nctarank; mov.u32 %r4, %ctaid.x;
    setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared::cta.b64 [bar], 1; ld.param.u64 %rd1, [source];
    mov.u32 %r5, %ntid.x; mad.lo.u32 %r6, %r4, %r5, %r1; mad.wide.u32 %rd1, %r6, 16, %rd1; shl.b32 %r7, %r1, 4;
    mov.u32 %r8, stage; add.u32 %r8, %r8, %r7; mov.u32 %r9, there; add.u32 %r10, %r9, %r7;
    ld.global.v4.u32 {%r11, %r12, %r13, %r14}, [%rd1]; st.shared.v4.u32 [%r8], {%r11, %r12, %r13, %r14};
    mov.u32 %r15, 0xFFFFFFF0; st.shared.v4.u32 [%r10], {%r15, %r15, %r15, %r15};
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], EXPECTED; fence.proxy.async;
    barrier.cluster.arrive; barrier.cluster.wait; add.u32 %r16, %r2, 1; rem.u32 %r16, %r16, %r3;
    mapa.shared::cluster.u32 %r17, %r10, %r16; mov.u32 %r18, bar; mapa.shared::cluster.u32 %r19, %r18, %r16;
    mapa.shared::cluster.u32 %r20, %r9, %r16; mov.u32 %r21, stage;"""
END = """WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0; @!%p2 bra WAIT; ld.param.u64 %rd2, [out];
    mad.wide.u32 %rd2, %r6, 16, %rd2; ld.shared.v4.u32 {%r11, %r12, %r13, %r14}, [%r10];
    st.global.v4.u32 [%rd2], {%r11, %r12, %r13, %r14}; barrier.cluster.arrive; barrier.cluster.wait;"""
PARAMETERS = ".param .u64 source, .param .u64 out"
UNTOUCHED = 0xFFFFFFF0


def exchanged(body: str, expected: int, threads: int = 8, **options: Any) -> tuple[np.ndarray[Any, Any], ...]:
    """What lies in `stage` and then in `there` of each CTA: CTAs x threads x 4 words. Each waits for `expected` bytes.

    The body finds its own words in %r11 and on, where they lie in %r8, where they go in the next CTA in %r17, the
    object there in %r19, the beginning of `there` there in %r20, and of the own `stage` in %r21.
    """
    source = GENERATOR.integers(0, 1 << 32, (CTAS, threads, 4), np.uint32)
    out = outputs(source.size, "u4").reshape(source.shape)
    built = program(f"{BEGIN.replace('EXPECTED', str(expected))} {body} {END}", PARAMETERS)
    built.launch("k", (CTAS, 1, 1), (threads, 1, 1), [source, out], cluster=(CTAS, 1, 1), **options)
    return source, out


@pytest.mark.parametrize(
    ("instruction", "words"),
    [
        ("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r17], {%r11, %r12, %r13, %r14}, [%r19];", 4),
        ("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r17], %r11, [%r19];", 1),
        (
            "mov.b64 %rd3, {%r11, %r12}; "
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%r17], %rd3, [%r19];",
            2,
        ),
    ],
)
def test_stores_into_the_next_cta(instruction: str, words: int) -> None:
    source, out = exchanged(instruction, 8 * 4 * words)
    np.testing.assert_array_equal(out[..., :words], np.roll(source, 1, axis=0)[..., :words])
    assert (out[..., words:] == UNTOUCHED).all()


def test_generic_addresses_of_the_next_cta() -> None:
    """Addresses without a state space."""
    body = """cvt.u64.u32 %rd3, %r10; cvta.shared.u64 %rd3, %rd3; mapa.u64 %rd3, %rd3, %r16; mov.u64 %rd4, bar;
        cvta.shared.u64 %rd4, %rd4; mapa.u64 %rd4, %rd4, %r16;
        st.async.mbarrier::complete_tx::bytes.u32 [%rd3], %r11, [%rd4];"""
    source, out = exchanged(body, 8 * 4)
    np.testing.assert_array_equal(out[..., 0], np.roll(source, 1, axis=0)[..., 0])


REDUCTIONS = {
    "add.u32": lambda old, new: (old + new) % (1 << 32),
    "and.b32": lambda old, new: old & new,
    "xor.b32": lambda old, new: old ^ new,
    "min.u32": min,
    "max.s32": lambda old, new: max(old, new, key=lambda v: v - (1 << 32) * (v >> 31)),
    "inc.u32": lambda old, new: 0 if old >= new else old + 1,
    "dec.u32": lambda old, new: new if old == 0 or old > new else old - 1,
}


@pytest.mark.parametrize("operation", REDUCTIONS)
def test_reductions_into_the_next_cta(operation: str) -> None:
    """One after the other: of all threads into one word, and of each into its own."""
    red = f"red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{operation}"
    source, out = exchanged(f"{red} [%r20], %r11, [%r19]; {red} [%r17+4], %r12, [%r19];", 8 * 8)
    judge = REDUCTIONS[operation]
    for cta, value in enumerate(np.roll(source, 1, axis=0).tolist()):
        total = UNTOUCHED
        for row in value:
            total = judge(total, row[0])
        assert out[cta, 0, 0] == total
        assert out[cta, :, 1].tolist() == [judge(UNTOUCHED, row[1]) for row in value]


@pytest.mark.parametrize("operation", REDUCTIONS)
def test_bulk_reductions_into_the_next_cta(operation: str) -> None:
    red = f"cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{operation}"
    source, out = exchanged(f"@%p1 {red} [%r20+16], [%r21], 96, [%r19];", 96)
    judge = REDUCTIONS[operation]
    for got, value in zip(out, np.roll(source, 1, axis=0).tolist(), strict=True):
        assert got[1:7].tolist() == [[judge(UNTOUCHED, word) for word in row] for row in value[:6]]
        assert (got[[0, 7]] == UNTOUCHED).all()


def test_one_copy_for_several_ctas() -> None:
    """CTA 1 copies to the CTAs of a mask, at the same place in each, and completes the object of each."""
    body = """ld.param.u64 %rd3, [source]; setp.eq.and.u32 %p3, %r2, 1, %p1; mov.b16 %h1, 0xD; mov.u64 %rd4, 0;
        @%p3 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint
            [%r9], [%rd3], 64, [bar], %h1, %rd4;
        setp.eq.and.u32 %p4, %r2, 1, %p1; @%p4 mbarrier.complete_tx.shared::cta.b64 [bar], 64;"""
    source, out = exchanged(body, 64)
    for cta in range(CTAS):
        np.testing.assert_array_equal(out[cta, 4:], np.full((4, 4), UNTOUCHED))
        expected = source[0, :4] if cta in (0, 2, 3) else np.full((4, 4), UNTOUCHED)
        np.testing.assert_array_equal(out[cta, :4], expected)


def test_some_bytes_of_each_sixteen() -> None:
    source, out = GENERATOR.integers(0, 256, 128, np.uint8), outputs(128, "u1")
    poison = out.copy()
    body = """.shared .align 16 .b8 stage[128]; mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [source];
        ld.param.u64 %rd2, [out];
        mov.u32 %r2, stage; mad.lo.u32 %r3, %r1, 4, %r2; mad.wide.u32 %rd1, %r1, 4, %rd1; ld.global.u32 %r4, [%rd1];
        st.shared.u32 [%r3], %r4; fence.proxy.async; bar.sync 0; setp.ne.u32 %p1, %r1, 0; @%p1 exit;
        mov.b16 %h1, 0x8421;
        mov.u64 %rd3, 0;
        cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.cp_mask [%rd2], [%r2], 96, %rd3, %h1;
        cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;"""
    program(body, PARAMETERS).launch("k", (1, 1, 1), (32, 1, 1), [source, out])
    taken = np.array([byte < 96 and byte % 16 in (0, 5, 10, 15) for byte in range(128)])
    np.testing.assert_array_equal(out, np.where(taken, source, poison))


def test_zeros() -> None:
    out = outputs(64, "u4")
    body = """.shared .align 16 .b8 stage[256]; mov.u32 %r1, %tid.x; mov.u32 %r2, stage; mad.lo.u32 %r3, %r1, 8, %r2;
        mov.u32 %r4, 7; st.shared.v2.u32 [%r3], {%r4, %r4}; bar.sync 0; mov.u64 %rd1, 120; setp.eq.u32 %p1, %r1, 9;
        @%p1 st.bulk.weak.shared::cta [%r2+16], %rd1, 0; mov.u64 %rd3, 0; @%p1 st.bulk.shared::cta [%r2], %rd3, 0;
        bar.sync 0;
        ld.shared.v2.u32 {%r5, %r6}, [%r3]; ld.param.u64 %rd2, [out]; mad.wide.u32 %rd2, %r1, 8, %rd2;
        st.global.v2.u32 [%rd2], {%r5, %r6};"""
    program(body, ".param .u64 out").launch("k", (1, 1, 1), (32, 1, 1), [out])
    assert out.tolist() == [7] * 4 + [0] * 30 + [7] * 30


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "mov.u64 %rd3, 12; @%p1 st.bulk.shared::cta [%r9], %rd3, 0;",
            "expected a size that is a multiple of 8, got 12",
        ),
        ("@%p1 st.bulk.shared::cta [%r9], 1024, 0;", "shared access out of bounds"),
        (
            "mov.u64 %rd3, 8; @%p1 st.bulk [%rd1], %rd3, 0;",
            "st.bulk writes in shared memory; the address leads elsewhere",
        ),
        (
            "@%p1 st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r17], %r11, [bar];",
            "the mbarrier object is not in the CTA that the bytes go to",
        ),
        (
            "@%p1 st.async.mbarrier::complete_tx::bytes.u32 [%rd1], %r11, [%rd1];",
            "st.async.mbarrier::complete_tx::bytes.u32 writes in shared memory; the address leads elsewhere",
        ),
        (
            "mov.b16 %h1, 0x12; "
            "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
            "[%r9], [%rd1], 16, [bar], %h1;",
            "expected a mask of the 4 CTAs of the cluster, got 0x12",
        ),
    ],
)
def test_what_goes_wrong(body: str, message: str) -> None:
    with pytest.raises(InterpreterError, match=message):
        exchanged(body, 16)
