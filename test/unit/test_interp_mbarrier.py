"""Barriers in shared memory: phases, transactions, waiting, copies that arrive, and what is said when it goes wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from interpreted import outputs, per_thread, program
from numpy.typing import NDArray

from warploom.runtime.interp import InterpreterError
from warploom.runtime.interp.machine.kernel import Observer
from warploom.runtime.interp.machine.memory import Buffer

ONE = (1, 1, 1)
BARS = ".shared .align 8 .b64 bar[8]; .shared .align 16 .b8 data[4096];"
FIRST = "mov.u32 %r1, %tid.x; setp.eq.u32 %p0, %r1, 0;"


def init(*counts: int) -> str:
    """Thread 0 makes one object for each count; all threads wait for that."""
    made = " ".join(f"@%p0 mbarrier.init.shared.b64 [bar+{8 * i}], {n};" for i, n in enumerate(counts))
    return f"{BARS} {FIRST} {made} bar.sync 0;"


def wait(bar: str, parity: str, label: str, instruction: str = "try_wait") -> str:
    return f"{label}: mbarrier.{instruction}.parity.shared::cta.b64 %p1, [{bar}], {parity}; @!%p1 bra {label};"


def alone(body: str, count: int = 8) -> list[int]:
    """The words that one thread leaves in `out`, an array of u32 at %rd1."""
    out = outputs(count, "u4")
    program(f"ld.param.u64 %rd1, [out]; {body}", ".param .u64 out").launch("k", ONE, ONE, [out])
    return out.tolist()


# Phases


def test_a_phase_ends_with_its_last_arrival() -> None:
    body = f"""{BARS} mbarrier.init.shared.b64 [bar], 3;
        mbarrier.arrive.shared.b64 %rd2, [bar]; mbarrier.pending_count.b64 %r1, %rd2; st.global.u32 [%rd1], %r1;
        mbarrier.arrive.shared::cta.b64 %rd3, [bar]; mbarrier.pending_count.b64 %r1, %rd3; st.global.u32 [%rd1+4], %r1;
        mbarrier.test_wait.shared.b64 %p1, [bar], %rd2; selp.u32 %r1, 1, 0, %p1; st.global.u32 [%rd1+8], %r1;
        mbarrier.arrive.b64 %rd4, [%rd5];
        mbarrier.test_wait.shared.b64 %p1, [bar], %rd3; selp.u32 %r1, 1, 0, %p1; st.global.u32 [%rd1+12], %r1;
        mbarrier.arrive.shared.b64 %rd6, [bar]; mbarrier.pending_count.b64 %r1, %rd6; st.global.u32 [%rd1+16], %r1;
        mbarrier.test_wait.shared.b64 %p1, [bar], %rd6; selp.u32 %r1, 1, 0, %p1; st.global.u32 [%rd1+20], %r1;
        mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0; selp.u32 %r1, 1, 0, %p1; st.global.u32 [%rd1+24], %r1;
        mbarrier.test_wait.parity.shared.b64 %p1, [bar], 1; selp.u32 %r1, 1, 0, %p1; st.global.u32 [%rd1+28], %r1;"""
    generic = "mov.u64 %rd5, bar; cvta.shared.u64 %rd5, %rd5;"
    assert alone(body.replace("mbarrier.init", f"{generic} mbarrier.init", 1)) == [3, 2, 0, 1, 3, 0, 1, 0]


def test_threads_of_one_step_arrive_one_after_the_other() -> None:
    """Each finds one arrival less, and the state it gets is of the phase it arrived in."""
    body = f"""{init(32)} mbarrier.arrive.shared.b64 %rd2, [bar]; mbarrier.pending_count.b64 %r0, %rd2;
        mbarrier.test_wait.shared.b64 %p1, [bar], %rd2; selp.u32 %r2, 100, 0, %p1; add.u32 %r0, %r0, %r2;"""
    assert per_thread(body).tolist() == [132 - t for t in range(32)]


def test_arrivals_of_one_step_complete_several_phases() -> None:
    body = f"""{init(8)} mbarrier.arrive.shared.b64 %rd2, [bar]; mbarrier.pending_count.b64 %r0, %rd2;"""
    assert per_thread(body).tolist() == [8 - t % 8 for t in range(32)]


def test_counts_drops_and_transactions() -> None:
    body = f"""{BARS} mbarrier.init.shared.b64 [bar], 10;
        mbarrier.arrive.shared.b64 %rd2, [bar], 4; mbarrier.arrive_drop.shared.b64 %rd2, [bar], 3;
        mbarrier.arrive.noComplete.shared.b64 %rd2, [bar], 2; mbarrier.pending_count.b64 %r1, %rd2;
        st.global.u32 [%rd1], %r1; mbarrier.arrive.expect_tx.shared.b64 %rd3, [bar], 96;
        mbarrier.pending_count.b64 %r1, %rd3; st.global.u32 [%rd1+4], %r1;
        mbarrier.complete_tx.shared::cta.b64 [bar], 64; mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 8;
        mbarrier.test_wait.shared.b64 %p1, [bar], %rd3; selp.u32 %r1, 1, 0, %p1; st.global.u32 [%rd1+8], %r1;
        mbarrier.complete_tx.shared::cta.b64 [bar], 40;
        mbarrier.test_wait.shared.b64 %p1, [bar], %rd3; selp.u32 %r1, 1, 0, %p1; st.global.u32 [%rd1+12], %r1;
        mbarrier.arrive.shared.b64 %rd4, [bar]; mbarrier.pending_count.b64 %r1, %rd4; st.global.u32 [%rd1+16], %r1;
        mbarrier.complete_tx.shared::cta.b64 [bar], 5; mbarrier.arrive.shared.b64 _, [bar], 6;
        mbarrier.test_wait.shared.b64 %p1, [bar], %rd4; selp.u32 %r1, 1, 0, %p1; st.global.u32 [%rd1+20], %r1;
        mbarrier.expect_tx.shared::cta.b64 [bar], 5;
        mbarrier.test_wait.shared.b64 %p1, [bar], %rd4; selp.u32 %r1, 1, 0, %p1; st.global.u32 [%rd1+24], %r1;
        mbarrier.inval.shared.b64 [bar]; mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.shared.b64 %rd4, [bar];
        mbarrier.pending_count.b64 %r1, %rd4; st.global.u32 [%rd1+28], %r1;"""
    assert alone(body) == [3, 1, 0, 1, 7, 0, 1, 1]


# Waiting


@pytest.mark.sampled(4)
@pytest.mark.parametrize("instruction", ["try_wait", "test_wait"])
@pytest.mark.parametrize("ctas", [1, 5])
def test_a_ring_of_stages_between_a_producer_and_consumers(instruction: str, ctas: int) -> None:
    """Warp 0 fills three stages again and again, warps 1 to 3 add up what is in them."""
    body = f"""{init(32, 32, 32, 96, 96, 96)} mov.u32 %r0, 0; mov.u32 %r2, 0; mov.u32 %r3, 0; mov.u32 %r4, bar;
        mov.u32 %r12, %ctaid.x; and.b32 %r5, %r1, 31; shl.b32 %r5, %r5, 2; mov.u32 %r6, data; add.u32 %r6, %r6, %r5;
        mov.u32 %r10, 0; setp.ge.u32 %p2, %r1, 32; @%p2 bra CONSUME;
    PRODUCE: xor.b32 %r7, %r3, 1; mad.lo.u32 %r8, %r2, 8, %r4;
        {wait("%r8+24", "%r7", "EMPTY", instruction)}
        mad.lo.u32 %r9, %r2, 128, %r6; mad.lo.u32 %r11, %r10, 7, %r1; add.u32 %r11, %r11, %r12;
        st.shared.u32 [%r9], %r11; mbarrier.arrive.shared.b64 _, [%r8]; bra NEXT;
    CONSUME: mad.lo.u32 %r8, %r2, 8, %r4;
        {wait("%r8", "%r3", "FULL", instruction)}
        mad.lo.u32 %r9, %r2, 128, %r6; ld.shared.u32 %r11, [%r9]; mad.lo.u32 %r0, %r0, 3, %r11;
        mbarrier.arrive.shared.b64 _, [%r8+24];
    NEXT: add.u32 %r10, %r10, 1; add.u32 %r2, %r2, 1; setp.eq.u32 %p3, %r2, 3; @%p3 mov.u32 %r2, 0;
        @%p3 xor.b32 %r3, %r3, 1; setp.eq.u32 %p4, %r10, 20; @%p4 bra END; @%p2 bra CONSUME; bra PRODUCE; END:"""
    expected = np.zeros((ctas, 32), np.uint32)
    for i in range(20):
        expected = (
            expected * np.uint32(3)
            + np.uint32(7 * i)
            + np.arange(32, dtype="u4")
            + np.arange(ctas, dtype="u4")[:, None]
        )
    got = per_thread(body, 128 * ctas, grid=(ctas, 1, 1), block=(128, 1, 1), checks="all").reshape(ctas, 4, 32)
    assert np.array_equal(got[:, 1:], np.repeat(expected[:, None], 3, axis=1))


def test_waiting_costs_few_steps() -> None:
    """While one warp works, those that wait do not run."""
    body = f"""{init(1)} setp.lt.u32 %p2, %r1, 224; @%p2 bra WAIT; mov.u32 %r2, 0;
        WORK: add.u32 %r2, %r2, 1; setp.lt.u32 %p3, %r2, 12000; @%p3 bra WORK;
        setp.eq.u32 %p4, %r1, 224; @%p4 mbarrier.arrive.shared.b64 _, [bar];
        {wait("bar", "0", "WAIT")} mov.u32 %r0, 1;"""
    out = outputs(1, "u4")
    stats = program(body, ".param .u64 out").launch("k", ONE, (256, 1, 1), [out])
    assert stats.steps < 36200


def test_a_thread_that_polls_may_do_what_others_wait_for() -> None:
    """Warp 0 finds its phase incomplete, and only then arrives at the barrier that warp 1 waits for first."""
    body = f"""{init(32, 32)} setp.ge.u32 %p2, %r1, 32; @%p2 bra OTHER;
        mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0; selp.u32 %r0, 7, 1, %p1;
        mbarrier.arrive.shared.b64 _, [bar+8]; {wait("bar", "0", "A")} add.u32 %r0, %r0, 10; bra END;
        OTHER: {wait("bar+8", "0", "B")} mov.u32 %r0, 5; mbarrier.arrive.shared.b64 _, [bar]; END:"""
    assert per_thread(body, 64).tolist() == [11] * 32 + [5] * 32


def test_two_barriers_polled_in_turns() -> None:
    body = f"""{init(1, 1)} setp.ge.u32 %p2, %r1, 32; @%p2 bra OTHER; mov.u32 %r0, 0;
        A: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @%p1 bra END;
        mbarrier.try_wait.parity.shared.b64 %p3, [bar+8], 0; @!%p3 bra A; mov.u32 %r0, 2; bra END;
        OTHER: setp.eq.u32 %p4, %r1, 40; @%p4 mbarrier.arrive.shared.b64 _, [bar+8]; mov.u32 %r0, 9; END:"""
    assert per_thread(body, 64).tolist() == [2] * 32 + [9] * 32


# Copies that arrive


@pytest.mark.parametrize("form", ["noinc.shared", "noinc.shared::cta", "shared"])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_copies_arrive_at_a_barrier(form: str, target: str) -> None:
    """All threads copy two words, and read their neighbour's when the barrier's phase is complete."""
    threads = 96
    count = threads if "noinc" in form else 1
    extra = "" if "noinc" in form else "bar.sync 0; @%p0 mbarrier.arrive.shared.b64 _, [bar];"
    body = f"""{init(count)} ld.param.u64 %rd1, [in]; mad.wide.u32 %rd1, %r1, 8, %rd1; mov.u32 %r2, data;
        mad.lo.u32 %r3, %r1, 8, %r2; cp.async.ca.shared.global [%r3], [%rd1], 4;
        cp.async.commit_group; cp.async.ca.shared.global [%r3+4], [%rd1+4], 4;
        cp.async.mbarrier.arrive.{form}.b64 [bar]; {extra}
        TEST: mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra TEST;
        add.u32 %r4, %r1, 33; rem.u32 %r4, %r4, {threads}; mad.lo.u32 %r3, %r4, 8, %r2;
        ld.shared.v2.u32 {{%r5, %r6}}, [%r3]; mad.lo.u32 %r0, %r5, 3, %r6;
        ld.param.u64 %rd2, [out]; mad.wide.u32 %rd2, %r1, 4, %rd2; st.global.u32 [%rd2], %r0;"""
    data = np.random.default_rng(3).integers(0, 1 << 20, (threads, 2), dtype=np.uint32)
    out = outputs(threads, "u4")
    built = program(body, ".param .u64 in, .param .u64 out", target=target)
    built.launch("k", ONE, (threads, 1, 1), [data, out], checks="all")
    assert out.tolist() == np.roll(data[:, 0] * 3 + data[:, 1], -33).tolist()


def test_a_copy_is_not_seen_before_the_barrier_is_looked_at() -> None:
    """Nor is one that begins after the arrival, until it is waited for."""
    body = f"""{init(32)} mov.u32 %r2, data; mad.lo.u32 %r3, %r1, 8, %r2; mov.u32 %r4, 5; st.shared.u32 [%r3], %r4;
        st.shared.u32 [%r3+4], %r4; ld.param.u64 %rd1, [in]; mad.wide.u32 %rd1, %r1, 4, %rd1;
        cp.async.ca.shared.global [%r3], [%rd1], 4; cp.async.mbarrier.arrive.noinc.shared.b64 [bar];
        cp.async.ca.shared.global [%r3+4], [%rd1], 4; ld.shared.u32 %r5, [%r3];
        {wait("bar", "0", "A")} ld.shared.v2.u32 {{%r6, %r7}}, [%r3]; cp.async.wait_all; ld.shared.u32 %r8, [%r3+4];
        mad.lo.u32 %r0, %r5, 100, %r6; mad.lo.u32 %r0, %r0, 100, %r7; mad.lo.u32 %r0, %r0, 100, %r8;"""
    data = np.arange(32, dtype=np.uint32) + 10
    got = per_thread(body, parameters=".param .u64 in", args=[data])
    assert got.tolist() == [5000000 + 10000 * n + 500 + n for n in data.tolist()]


def test_sleepers_wake_when_the_copies_of_others_arrive() -> None:
    body = f"""{init(32)} mov.u32 %r2, data; ld.param.u64 %rd1, [in]; setp.ge.u32 %p2, %r1, 32; @%p2 bra COPY;
        {wait("bar", "0", "A")} mad.lo.u32 %r3, %r1, 4, %r2; ld.shared.u32 %r0, [%r3]; bra END;
        COPY: mad.lo.u32 %r3, %r1, 4, %r2; mad.wide.u32 %rd1, %r1, 4, %rd1;
        cp.async.ca.shared.global [%r3+-128], [%rd1+-128], 4; cp.async.mbarrier.arrive.noinc.shared.b64 [bar];
        mov.u32 %r0, 3; END:"""
    data = np.arange(32, dtype=np.uint32) * 7
    got = per_thread(body, 64, parameters=".param .u64 in", args=[data], checks="all")
    assert got.tolist() == [*data.tolist(), *[3] * 32]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("space", ["shared::cluster", "shared::cta"])
def test_bulk_copies_complete_transactions(space: str) -> None:
    """Thread 0 copies two pieces to shared memory, all read them, and thread 0 copies one back."""
    body = f"""{init(1)} ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [back]; mov.u32 %r2, data; @!%p0 bra A;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256; mov.u32 %r3, 192;
        cp.async.bulk.{space}.global.mbarrier::complete_tx::bytes [%r2], [%rd1], %r3, [bar];
        cp.async.bulk.{space}.global.mbarrier::complete_tx::bytes [%r2+192], [%rd1+192], 64, [bar];
        {wait("bar", "0", "A")} sub.u32 %r4, 63, %r1; mad.lo.u32 %r4, %r4, 4, %r2; ld.shared.u32 %r0, [%r4];
        @%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r2+16], 32; @%p0 cp.async.bulk.commit_group;
        @%p0 cp.async.bulk.wait_group 0;"""
    data, back = np.random.default_rng(6).integers(0, 1 << 32, 64, np.uint32), outputs(12, "u4")
    parameters = ".param .u64 in, .param .u64 back"
    got = per_thread(body, 64, parameters=parameters, args=[data, back], checks="all")
    assert got.tolist() == data[::-1].tolist()
    assert back[:8].tolist() == data[4:12].tolist()
    assert back[8:].tolist() == [0xA5A5A5A5] * 4
    for wrong, message in (
        (body.replace("192;", "191;"), "a size that is a multiple of 16, got 191"),
        (body.replace("[%r2+192]", "[%r2+196]"), "misaligned shared access"),
        (body.replace("[%rd1+192]", "[%rd1+208]"), "out of bounds"),
        (body.replace("_, [bar], 256", "_, [bar], 272"), "deadlock"),
    ):
        with pytest.raises(InterpreterError, match=message):
            per_thread(wrong, 64, parameters=parameters, args=[data, back])


# Who looks on


class Log(Observer):
    """What happens to threads 0 and 10: lane 0 of warp 0, lane 5 of warp 0, of two warps."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int, int]] = []

    def note(self, what: str, start: NDArray[Any], threads: NDArray[Any]) -> None:
        for at, thread in zip(start.tolist(), threads.tolist(), strict=True):
            if thread in (0, 10):
                self.events.append((what, at, thread))

    def arrive(self, start: NDArray[Any], threads: NDArray[Any], copy: int | None = None) -> None:
        self.note("arrive", start, threads)

    def passed(self, start: NDArray[Any], threads: NDArray[Any]) -> None:
        self.note("passed", start, threads)

    def land(self, buffer: Buffer, start: NDArray[Any], width: int, threads: NDArray[Any]) -> None:
        self.note("land", start, threads)


def test_an_observer_is_told_who_arrives_and_who_passes() -> None:
    """Lane 0 sleeps until lane 5 arrives by a copy."""
    body = f"""{init(1, 1)} ld.param.u64 %rd1, [in]; setp.ne.u32 %p1, %r1, 0; setp.ne.u32 %p2, %r1, 5; @%p1 bra SECOND;
        {wait("bar+8", "0", "A")} SECOND: @%p2 bra END; cp.async.ca.shared.global [data+64], [%rd1], 4;
        cp.async.mbarrier.arrive.noinc.shared.b64 [bar+8]; {wait("bar+8", "0", "B")} END:"""
    log = Log()
    built = program(body, ".param .u64 in")
    built.launch("k", ONE, (64, 1, 1), [np.arange(4, dtype=np.uint32)], observer=log)
    assert log.events == [("land", 64 + 64, 10), ("arrive", 8, 10), ("passed", 8, 0), ("passed", 8, 10)]


def test_data_that_nobody_waited_for_is_a_race() -> None:
    """The barrier orders what one warp writes before what another reads, but only if that waits."""
    text = f"""{init(32)} mov.u32 %r2, data; setp.ge.u32 %p2, %r1, 32; @%p2 bra READ; mad.lo.u32 %r3, %r1, 4, %r2;
        st.shared.u32 [%r3], %r1; mbarrier.arrive.shared.b64 _, [bar]; bra END; READ: {wait("bar", "0", "A")}
        mad.lo.u32 %r3, %r1, 4, %r2; ld.shared.u32 %r0, [%r3+-128]; END:"""
    program(text).launch("k", ONE, (64, 1, 1), [], checks="all")
    with pytest.raises(InterpreterError, match="race in shared memory"):
        program(text.replace(wait("bar", "0", "A"), "")).launch("k", ONE, (64, 1, 1), [], checks="races")


# What goes wrong


def fails(body: str, match: str, threads: int = 32, **options: Any) -> None:
    with pytest.raises(InterpreterError, match=match):
        program(body).launch("k", ONE, (threads, 1, 1), [], **options)


def test_a_deadlock_says_where_each_warp_waits() -> None:
    body = f"""{init(64, 32)} setp.ge.u32 %p2, %r1, 64; @%p2 bra OTHER;
A: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra A; bra END;
OTHER: setp.ge.u32 %p3, %r1, 96; @%p3 bra THIRD;
B: mbarrier.test_wait.parity.shared.b64 %p1, [bar+8], 0; @!%p1 bra B; bra END;
THIRD: bar.sync 1;
END:"""
    places = (
        r"warps 3 wait at line 10 \(bar.sync\)",
        r"warps 0-1 wait at line 7 \(mbarrier.try_wait.parity.shared.b64\)",
        r"warps 2 wait at line 9 \(mbarrier.test_wait.parity.shared.b64\)",
    )
    for place in places:
        fails(body, f"deadlock: every thread left waits for others; .*{place}", 128, max_steps=200_000)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("mbarrier.arrive.shared.b64 _, [bar];", "finds no mbarrier object there"),
        ("mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0;", "finds no mbarrier object there"),
        ("mov.b32 %r4, 0; mbarrier.init.shared.b64 [bar], %r4;", "expected a count from 1 to 1048575, got 0"),
        (
            "mov.b32 %r4, 1048576; mbarrier.init.shared.b64 [bar], %r4;",
            "expected a count from 1 to 1048575, got 1048576",
        ),
        ("mbarrier.init.shared.b64 [bar+4], 1;", "misaligned shared access"),
        ("mbarrier.init.b64 [%rd1], 1;", "an mbarrier object lies in shared memory|out of bounds"),
        ("mbarrier.init.shared.b64 [bar], 2;\nmbarrier.arrive.shared.b64 _, [bar], 3;", "takes 3 off .* lacks only 2"),
        (
            "mbarrier.init.shared.b64 [bar], 2; mbarrier.arrive.noComplete.shared.b64 %rd1, [bar], 2;",
            "with .noComplete completes the phase",
        ),
        ("mbarrier.init.shared.b64 [bar], 2; mbarrier.complete_tx.shared::cta.b64 [bar], 1048576;", "to -1048576"),
        (
            "mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.shared.b64 %rd1, [bar]; mbarrier.arrive.shared.b64 _, "
            "[bar]; mbarrier.test_wait.shared.b64 %p1, [bar], %rd1;",
            "waits for a state that is neither of this phase nor of the one before",
        ),
        ("mbarrier.init.shared.b64 [bar], 1; st.shared.u64 [bar], %rd1; mbarrier.inval.shared.b64 [bar];", "finds no"),
    ],
)
def test_misused_objects(body: str, message: str) -> None:
    fails(f"{BARS} {body}", f"{message}.*CTA \\(0, 0, 0\\), warp 0, lane 0", 1)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("mbarrier.arrive.global.b64 _, [%rd1];", "is not a PTX instruction"),
        ("mbarrier.arrive.noComplete.shared.b64 %rd2, [%r1];", "expected 3 operands"),
        ("mbarrier.test_wait.noComplete.shared.b64 %p1, [%r1], %rd1;", "is not a PTX instruction"),
        ("mbarrier.test_wait.shared.b64 %p1, [%r1], %r1;", "expected a register that holds .b64, got .b32"),
        ("mbarrier.init.shared.b32 [%r1], 1;", "is not a PTX instruction"),
        ("mbarrier.depart.shared.b64 [%r1];", "is not a PTX instruction"),
        ("cp.async.mbarrier.shared.b64 [%r1];", "is not a PTX instruction"),
    ],
)
def test_what_is_refused_at_load_time(statement: str, message: str) -> None:
    with pytest.raises(InterpreterError, match=rf"k.ptx:6:1: error: .*{message}"):
        program(statement)


@pytest.mark.parametrize("parity", [0, 1, 2, 0x7FFFFFFF, 0xFFFFFFFF])
def test_of_a_parity_the_lowest_bit_counts(parity: int) -> None:
    """So the assembler has it, and Triton passes -1 for 1."""
    body = f"""{init(1)} mov.u32 %r9, {parity}; mbarrier.test_wait.parity.shared.b64 %p1, [bar], %r9;
        selp.u32 %r0, 1, 0, %p1;"""
    assert set(per_thread(body).tolist()) == {parity & 1}
