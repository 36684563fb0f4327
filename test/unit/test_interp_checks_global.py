"""Checks of global memory: threads that store different values to one address are found, those that may are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from interpreted import program
from seeded_bugs import check_found
from seeded_bugs import run as launch_text

from warploom.runtime.interp import InterpreterError
from warploom.runtime.interp.machine.memory import Finding

HEAD = """mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r0, %r2, %r3, %r1;
ld.param.u64 %rd1, [p]; mad.wide.u32 %rd2, %r0, 4, %rd1; mov.u64 %rd3, count; mov.u32 %r9, 5; shr.u32 %r4, %r1, 5;"""
FIRST = 8


def run(body: str, grid: int = 3, block: int = 64, **options: Any) -> tuple[Finding, ...]:
    """What is found, notes among it; lines of the body are counted from 8. %r0 is the thread's number in the grid."""
    module, p = ".global .align 4 .u32 count;", np.zeros(1024, np.uint32)
    built = program(f"{HEAD}\n{body}", ".param .u64 p", module=module)
    try:
        return built.launch("k", (grid, 1, 1), (block, 1, 1), [p], checks="races", **options).notes
    except InterpreterError as error:
        return error.findings


@pytest.mark.parametrize(
    "body",
    [
        "st.global.u32 [%rd2], %r0; st.global.u32 [%rd2], %r9;",
        "st.global.u32 [%rd2], %r0;\nbar.sync 0; xor.b32 %r5, %r0, 32; mad.wide.u32 %rd4, %r5, 4, %rd1; "
        "st.u32 [%rd4], %r9;",
        "st.global.u32 [%rd2], %r0; bar.warp.sync -1; xor.b32 %r5, %r0, 1; mad.wide.u32 %rd4, %r5, 4, %rd1; "
        "st.u32 [%rd4], %r9;",
        "atom.global.add.u32 %r5, [%rd1], %r0; red.global.max.u32 [%rd1+4], %r0;",
        "st.volatile.global.u32 [%rd1], %r0; st.release.gpu.global.u32 [%rd1+4], %r0;",
        "mad.wide.u32 %rd4, %r2, 4, %rd1; red.relaxed.cta.global.add.u32 [%rd4], 1; ld.relaxed.cta.u32 %r6, [%rd4];",
        "red.global.add.u32 [%rd2], 1; ld.global.u32 %r6, [%rd2]; st.global.u32 [%rd2], %r6;",
        "ld.global.u32 %r6, [%rd1]; atom.global.cas.b32 %r5, [%rd1], %r6, %r0; ld.global.u32 %r6, [%rd1];",
        "setp.eq.u32 %p1, %r0, 7; @%p1 st.global.u32 [%rd1], %r0;",
        "mad.wide.u32 %rd4, %r0, 1, %rd1; st.global.u8 [%rd4], %r0;",
    ],
)
def test_ordered_and_own_stores_are_silent(body: str) -> None:
    assert run(body) == ()


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        ("st.global.u32 [%rd1], %r0;", 0, "another value than CTA (2, 0, 0), warp 1, lane 31 writes at line 8"),
        ("st.global.u32 [%rd1], %r2;", 0, "another value than CTA (2, 0, 0), warp 1"),
        ("st.global.u32 [%rd1], %r1;", 0, "another value than CTA"),
        ("mad.wide.u32 %rd4, %r1, 4, %rd1;\nst.global.u32 [%rd4], %r2;", 1, "another value than CTA (2, 0, 0), warp 0"),
        ("mul.wide.u32 %rd4, %r0, 2; and.b64 %rd4, %rd4, -4;\nadd.u64 %rd4, %rd1, %rd4; st.global.u32 [%rd4], %r0;",
            1, "; byte 0 of argument"),
        (
            "st.global.u32 [%rd2], %r0;\nxor.b32 %r5, %r0, 32; mad.wide.u32 %rd4, %r5, 4, %rd1;\n"
            "st.global.u32 [%rd4], %r9;",
            2, "another value than CTA (0, 0, 0), warp 1, lane 0 writes at line 8",
        ),
        (
            "st.global.u32 [%rd2], %r0;\nxor.b32 %r5, %r0, 1; mad.wide.u32 %rd4, %r5, 4, %rd1;\n"
            "st.global.u32 [%rd4], %r9;",
            2, "another value than CTA (0, 0, 0), warp 0, lane 1 writes at line 8",
        ),
        # A barrier of the CTA orders nothing between CTAs.
        (
            "st.global.u32 [%rd2], %r0; bar.sync 0; xor.b32 %r5, %r0, 64; mad.wide.u32 %rd4, %r5, 4, %rd1;\n"
            "st.global.u32 [%rd4], %r9;",
            1, "another value than CTA (1, 0, 0)",
        ),
        ("st.global.v4.u32 [%rd1], {%r9, %r9, %r9, %r0};", 0, "; byte 0 of argument 0"),
        # Weak against strong.
        ("setp.eq.u32 %p1, %r2, 0; @%p1 st.global.u32 [%rd1], %r0;\n@!%p1 st.volatile.global.u32 [%rd1], %r9;",
            0, "value"),
        ("setp.eq.u32 %p1, %r0, 7; @%p1 st.global.u32 [%rd1], %r0;\n@!%p1 red.global.add.u32 [%rd1], 1;",
            1, "updates what CTA (0, 0, 0), warp 0, lane 7 writes"),
        ("red.global.add.u32 [%rd1], 1;\nld.global.u32 %r6, [%rd1];", 1, "reads what CTA (2, 0, 0), warp 1, lane 31"),
        ("ld.global.u32 %r6, [%rd1];\nred.global.add.u32 [%rd1], 1;", 1, "writes over what CTA"),
        # Strong for one CTA alone.
        ("red.relaxed.cta.global.add.u32 [%rd1], 1;", 0, ", and their scopes are not for both: .cta leaves"),
        ("setp.eq.u32 %p1, %r2, 0; @%p1 st.relaxed.cta.global.u32 [%rd1], %r0;\n@!%p1 ld.relaxed.cta.u32 %r6, [%rd1];",
            1, "reads what CTA (0, 0, 0), warp 1"),
    ],
)  # fmt: skip
def test_different_values_at_one_address_are_found(body: str, line: int, message: str) -> None:
    findings = run(body)
    assert {f.severity for f in findings if f.line == FIRST + line} >= {"error"}
    check_found(findings, "races", FIRST + line, message)


@pytest.mark.parametrize("in_flight", [None, 1])
def test_batches_of_ctas_are_followed(in_flight: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_flight:
        monkeypatch.setattr("warploom.runtime.interp.program.IN_FLIGHT_WARPS", 2 * in_flight)
    findings = run("mad.wide.u32 %rd4, %r1, 4, %rd1;\nst.global.u32 [%rd4], %r2;", grid=5)
    check_found(findings, "races", FIRST + 1, "another value than CTA")
    (note,) = run("mad.wide.u32 %rd4, %r1, 4, %rd1;\nst.global.u32 [%rd4], %r1;", grid=5)
    assert (note.severity, note.line, note.count) == ("note", FIRST + 1, 4 * 64)
    assert "the value is the same" in note.message


TURNS = """setp.ne.u32 %p2, %r1, 0; @%p2 bra IN;
WAIT: ld.acquire.gpu.global.u32 %r5, [%rd3]; setp.ne.u32 %p1, %r5, %r2; @%p1 bra WAIT;
IN: bar.sync 0; mad.wide.u32 %rd4, %r1, 4, %rd1; ld.global.u32 %r6, [%rd4]; add.u32 %r6, %r6, %r0;
st.global.u32 [%rd4], %r6;
bar.sync 0; @%p2 bra END; add.u32 %r5, %r2, 1; {give}.release.gpu.global.u32 [%rd3], %r5; END:"""


def test_ctas_that_take_turns_are_ordered() -> None:
    assert run(TURNS.format(give="st"), max_steps=50_000) == ()
    lawless = TURNS.format(give="st").replace("@%p1 bra WAIT;", "")
    check_found(run(lawless.replace("ld.acquire.gpu", "ld")), "races", FIRST + 3, "another value than CTA")


REDUCE = """.shared .align 16 .b8 tile[256]; shl.b32 %r5, %r1, 2; mov.u32 %r6, tile; add.u32 %r6, %r6, %r5;
st.shared.u32 [%r6], %r0; fence.proxy.async; bar.sync 0; setp.ne.u32 %p1, %r1, 0; @%p1 bra END;
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [tile], 256; cp.async.bulk.commit_group;
{wait} {store} END:"""


def test_bulk_reductions_of_ctas_are_updates() -> None:
    wait = "cp.async.bulk.wait_group 0;"
    assert run(REDUCE.format(wait=wait, store="")) == ()
    findings = run(REDUCE.format(wait=wait, store="\nst.global.u32 [%rd1+4], %r0;"))
    check_found(findings, "races", FIRST + 4, "another value than CTA")


TICKET = """and.b32 %r5, %r1, 31; setp.ne.u32 %p2, %r5, 0; @%p2 bra END; atom.global.add.u32 %r5, [%rd3], 1;
WAIT: atom.global.add.u32 %r6, [%rd1+64], 0; setp.ne.u32 %p1, %r6, %r5; @%p1 bra WAIT; membar.gl;
{before}st.global.u32 [%rd1], %r0; membar.gl;
{after}END:"""
GIVE = "atom.global.add.u32 %r6, [%rd1+64], 1; "


@pytest.mark.parametrize(("grid", "block"), [(1, 64), (1, 128), (3, 96)])
def test_warps_that_take_tickets_are_ordered(grid: int, block: int) -> None:
    """Those that wait update the word between the release and the acquire, warps of the same CTA among them."""
    assert run(TICKET.format(before="", after=GIVE), grid, block, max_steps=50_000) == ()
    lawless = TICKET.format(before="", after=GIVE).replace("@%p1 bra WAIT;", "")
    check_found(run(lawless, grid, block), "races", FIRST + 2, "another value than CTA")


def test_a_lock_that_is_given_away_too_early() -> None:
    findings = run(TICKET.format(before=GIVE, after=""), 1, 64, max_steps=50_000)
    check_found(findings, "races", FIRST + 2, "another value than CTA (0, 0, 0), warp 0, lane 0")


def test_the_last_cta_may_write_what_others_wrote() -> None:
    body = """mad.wide.u32 %rd4, %r1, 4, %rd1; setp.eq.u32 %p1, %r2, 0; @%p1 st.global.u32 [%rd4], %r1;
membar.gl; bar.sync 0; setp.eq.u32 %p2, %r1, 0; .shared .align 4 .u32 last; @%p2 atom.global.add.u32 %r5, [%rd3], 1;
@%p2 st.shared.u32 [last], %r5; bar.sync 0; ld.shared.u32 %r5, [last]; setp.eq.u32 %p3, %r5, 2;
@%p3 st.global.u32 [%rd4], %r9;"""
    assert run(body) == ()
    findings = run(body.replace("setp.eq.u32 %p3, %r5, 2;", "setp.lt.u32 %p3, %r5, 9;"))
    check_found(findings, "races", FIRST + 3, "value")


def test_threads_of_a_planted_kernel_that_forget_their_number() -> None:
    """A row too few in the index of the result: CTAs write each other's rows."""
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 x, .param .u64 y) {
.reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .f32 %f<4>;
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 32, %r1;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
mad.wide.u32 %rd3, %r3, 4, %rd1; ld.global.f32 %f1, [%rd3]; add.f32 %f1, %f1, %f1;
mad.wide.u32 %rd4, %r3, 4, %rd2;
st.global.f32 [%rd4], %f1;
ret; }"""
    x = np.random.default_rng().standard_normal(128).astype(np.float32)
    assert launch_text(text, (4,), (32,), [x, np.zeros_like(x)]) == ()
    wrong = text.replace("mad.wide.u32 %rd4, %r3,", "mad.wide.u32 %rd4, %r1,")
    check_found(launch_text(wrong, (4,), (32,), [x, np.zeros_like(x)]), "races", 10, "race in global memory")


@pytest.mark.parametrize(
    ("meet", "other"),
    [("", "64"), ("bar.sync 0;", "64"), ("", "32"), ("", "1"), ("membar.gl;", "64")],
)
def test_reads_of_what_nothing_orders_are_found(meet: str, other: str) -> None:
    """Of another CTA, warp or lane."""
    body = f"st.global.u32 [%rd2], %r0; {meet}\nxor.b32 %r5, %r0, {other}; mad.wide.u32 %rd4, %r5, 4, %rd1;\n"
    findings = run(f"{body}ld.global.u32 %r6, [%rd4];", grid=4)
    check_found(findings, "races", FIRST + 2, "race in global memory: reads what CTA")


@pytest.mark.parametrize(
    "body",
    [
        "st.global.u32 [%rd2], %r0; ld.global.u32 %r6, [%rd2];",
        "ld.global.u32 %r6, [%rd1]; ld.global.u32 %r7, [%rd2]; st.global.u32 [%rd2+2048], %r7;",
        "st.global.u32 [%rd2], %r0; bar.sync 0; xor.b32 %r5, %r0, 32; mad.wide.u32 %rd4, %r5, 4, %rd1; "
        "ld.global.u32 %r6, [%rd4];",
        "st.global.u32 [%rd2], %r0; bar.warp.sync -1; xor.b32 %r5, %r0, 1; mad.wide.u32 %rd4, %r5, 4, %rd1; "
        "ld.global.u32 %r6, [%rd4];",
    ],
)
def test_ordered_and_own_reads_are_silent(body: str) -> None:
    assert run(body) == ()


READ = "xor.b32 %r5, %r0, {other}; mad.wide.u32 %rd4, %r5, 4, %rd1; ld.global.u32 %r6, [%rd4];"


@pytest.mark.parametrize(("meet", "other"), [("", 64), ("bar.sync 0;", 64), ("", 32), ("", 1), ("membar.gl;", 64)])
@pytest.mark.parametrize("own", ["", "ld.global.u32 %r7, [%rd2];"])
def test_stores_over_what_others_read_are_found(meet: str, other: int, own: str) -> None:
    """Of another CTA, warp or lane; that the thread itself reads the place too hides nothing."""
    findings = run(f"{READ.format(other=other)} {own}\n{meet}\nst.global.u32 [%rd2], %r9;", grid=4)
    check_found(findings, "races", FIRST + 2, "race in global memory: writes over what CTA")
    assert all("reads at line 8" in f.message for f in findings)


@pytest.mark.parametrize(
    "body",
    [
        f"{READ.format(other=32)} bar.sync 0; st.global.u32 [%rd2], %r9;",
        f"{READ.format(other=1)} bar.warp.sync -1; st.global.u32 [%rd2], %r9;",
        "ld.global.u32 %r6, [%rd2]; st.global.u32 [%rd2], %r9;",
        # What a store brings in order, earlier reads do not take out of it again.
        f"{READ.format(other=32)} bar.sync 0; st.global.u32 [%rd2], %r9; bar.sync 0; {READ.format(other=32)}",
        # The last CTA to come writes over what the others read before they came.
        "ld.global.u32 %r6, [%rd1]; membar.gl; bar.sync 0; setp.eq.u32 %p2, %r1, 0; .shared .align 4 .u32 last;"
        "@%p2 atom.global.add.u32 %r5, [%rd3], 1; @%p2 st.shared.u32 [last], %r5; bar.sync 0;"
        "ld.shared.u32 %r5, [last]; setp.eq.and.u32 %p3, %r5, 2, %p2; @%p3 st.global.u32 [%rd1], %r9;",
        "ld.volatile.global.u32 %r6, [%rd1]; st.volatile.global.u32 [%rd1], %r0;",
    ],
)
def test_stores_over_reads_in_order_are_silent(body: str) -> None:
    assert run(body) == ()


def test_a_store_of_what_was_there_is_a_note() -> None:
    body = "ld.global.u32 %r6, [%rd1]; mov.u32 %r7, 0; setp.eq.u32 %p1, %r0, 64;\n@%p1 st.global.u32 [%rd1], %r7;"
    (note,) = run(body, grid=2)
    assert (note.severity, note.line) == ("note", FIRST + 1)
    assert "writes over what CTA" in note.message
    assert "the value is the same" in note.message


# Words that tell of data between CTAs: what is written is to be covered by a fence or a release.

LAST = """.shared .align 4 .u32 last; setp.eq.u32 %p2, %r1, 0; st.global.u32 [%rd2], %r0;
{publish} @%p2 st.shared.u32 [last], %r5; bar.sync 0; ld.shared.u32 %r5, [last]; setp.eq.u32 %p3, %r5, 2;
add.u32 %r5, %r0, 64; rem.u32 %r5, %r5, 192; mad.wide.u32 %rd4, %r5, 4, %rd1; @!%p3 bra END;
ld.global.u32 %r6, [%rd4];
END:"""
TAKE = "@%p2 atom.global.add.u32 %r5, [%rd3], 1;"


@pytest.mark.parametrize("at_once", [3, 1])
@pytest.mark.parametrize(
    "publish",
    [
        f"membar.gl; bar.sync 0; {TAKE}",
        f"bar.sync 0; @%p2 membar.gl; {TAKE}",
        f"bar.sync 0; fence.acq_rel.gpu; {TAKE}",
        f"bar.sync 0; {TAKE.replace('global', 'acq_rel.gpu.global')}",
        f"bar.sync 0; {TAKE.replace('global', 'release.sys.global')}",
    ],
)
def test_the_last_cta_may_read_what_others_wrote(publish: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the samples' reduction, with the fence of each thread or of the one that counts."""
    monkeypatch.setattr("warploom.runtime.interp.program.IN_FLIGHT_WARPS", 2 * at_once)
    assert run(LAST.format(publish=publish)) == ()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("at_once", [3, 1])
@pytest.mark.parametrize(
    ("publish", "writer"),
    [
        (f"bar.sync 0; {TAKE}", 0),
        (f"membar.cta; bar.sync 0; {TAKE}", 0),
        (f"fence.proxy.async; bar.sync 0; {TAKE}", 0),
        (f"bar.sync 0; {TAKE.replace('global', 'acq_rel.cta.global')}", 0),
        (f"bar.sync 0; {TAKE.replace('global', 'acquire.gpu.global')}", 0),
        # The fence of one thread does not cover what others do until they meet; and they have to meet.
        (f"@%p2 membar.gl; bar.sync 0; {TAKE}", 1),
        (f"membar.gl; {TAKE}", 1),
    ],
)
def test_counters_that_do_not_tell_all(
    publish: str, writer: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warploom.runtime.interp.program.IN_FLIGHT_WARPS", 2 * at_once)
    findings = run(LAST.format(publish=publish))
    one = check_found(findings, "races", FIRST + 3, f"reads what CTA (0, 0, 0), warp {writer}")
    assert "no membar.gl, fence or .release covers it before the word is written that tells of it" in one.message


FLAG = """setp.ne.u32 %p2, %r4, 0; @%p2 bra WAIT; st.global.u32 [%rd2], %r0; {give}
st{release}.gpu.global.u32 [%rd3], 1; bra END;
WAIT: ld{acquire}.gpu.global.u32 %r5, [%rd3]; setp.eq.u32 %p1, %r5, 0; @%p1 bra WAIT; {take}
xor.b32 %r5, %r0, 32; mad.wide.u32 %rd4, %r5, 4, %rd1; ld.global.u32 %r6, [%rd4]; END:"""


@pytest.mark.parametrize(
    ("give", "release", "acquire", "take", "ordered"),
    [
        ("membar.cta;", ".relaxed", ".relaxed", "membar.cta;", True),
        ("", ".release", ".acquire", "", True),
        ("", ".relaxed", ".relaxed", "membar.gl;", False),
        ("membar.cta;", ".relaxed", ".relaxed", "", False),
        ("", ".relaxed", ".acquire", "", False),
    ],
)
def test_words_within_a_cta_tell_what_fences_cover(
    give: str, release: str, acquire: str, take: str, ordered: bool
) -> None:
    body = FLAG.format(give=give, release=release, acquire=acquire, take=take)
    findings = run(body, grid=1, max_steps=100_000)
    if ordered:
        assert findings == ()
    else:
        check_found(findings, "races", FIRST + 3, "reads what CTA (0, 0, 0), warp 0, lane 0 writes at line 8")


LOCK = """setp.ne.u32 %p2, %r1, 0; @%p2 bra IN;
WAIT: atom.global.cas.b32 %r5, [%rd3], 0, 1; setp.ne.u32 %p1, %r5, 0; @%p1 bra WAIT; membar.gl;
IN: bar.sync 0; mad.wide.u32 %rd4, %r1, 4, %rd1; ld.global.u32 %r6, [%rd4]; add.u32 %r6, %r6, %r0;
st.global.u32 [%rd4], %r6;
{fence} {meet} @%p2 bra END; {own} atom.global.exch.b32 %r5, [%rd3], 0; END:"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("fence", "own"), [("membar.gl;", ""), ("", "membar.gl;"), ("fence.sc.gpu;", "membar.gl;")])
def test_a_lock_around_what_all_threads_do(fence: str, own: str) -> None:
    assert run(LOCK.format(fence=fence, meet="bar.sync 0;", own=own), max_steps=100_000) == ()
    for meet, fences in (("", (fence, own)), ("bar.sync 0;", ("", ""))):
        body = LOCK.format(fence=fences[0], meet=meet, own=fences[1])
        check_found(run(body, max_steps=100_000), "races", FIRST + 2, "reads what CTA (0, 0, 0)")


GRID = """st.global.u32 [%rd2], %r0; setp.ne.u32 %p2, %r1, 0; bar.sync 0; @%p2 bra MET; {before}
{come}.global.add.u32 [%rd3], 1;
SPIN: {look}.global.u32 %r5, [%rd3]; setp.lt.u32 %p1, %r5, 3; @%p1 bra SPIN; {behind}
MET: bar.sync 0; add.u32 %r5, %r0, 64; rem.u32 %r5, %r5, 192; mad.wide.u32 %rd4, %r5, 4, %rd1;
ld.global.u32 %r6, [%rd4];"""


@pytest.mark.parametrize(
    ("before", "come", "look", "behind"),
    [
        ("membar.gl;", "red", "ld.volatile", "membar.gl;"),
        ("fence.acq_rel.gpu;", "red.relaxed.gpu", "ld.relaxed.gpu", "fence.acq_rel.gpu;"),
        ("", "red.release.gpu", "ld.acquire.gpu", ""),
    ],
)
def test_a_barrier_of_the_grid(before: str, come: str, look: str, behind: str) -> None:
    body = GRID.format(before=before, come=come, look=look, behind=behind)
    assert run(body, max_steps=100_000) == ()
    weak = GRID.format(before="", come="red", look=look, behind=behind)
    check_found(run(weak, max_steps=100_000), "races", FIRST + 4, "reads what CTA (1, 0, 0), warp 0, lane 0 writes")


def test_what_one_cta_tells_another_goes_on_to_a_third() -> None:
    body = """setp.ne.u32 %p2, %r1, 0; @%p2 bra END; setp.eq.u32 %p1, %r2, 0;
@%p1 st.global.u32 [%rd1], 7; @%p1 bra GIVE;
WAIT: ld.acquire.gpu.global.u32 %r5, [%rd3]; setp.lt.u32 %p1, %r5, %r2; @%p1 bra WAIT;
setp.ne.u32 %p1, %r2, 2; @%p1 bra GIVE; ld.global.u32 %r6, [%rd1];
GIVE: add.u32 %r5, %r2, 1; st{release}.global.u32 [%rd3], %r5; END:"""
    assert run(body.format(release=".release.gpu"), max_steps=100_000) == ()
    findings = run(body.format(release=".relaxed.gpu"), max_steps=100_000)
    check_found(
        findings, "races", FIRST + 3, "reads what CTA (0, 0, 0), warp 0, lane 0 writes at line 9, and no membar.gl"
    )
