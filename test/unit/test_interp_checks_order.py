"""Checks of what orders threads: barriers with and without counts, mbarriers, fences, warps; right and wrong uses."""

from __future__ import annotations

from typing import Any

import pytest
from interpreted import program
from seeded_bugs import check_found

from warploom.runtime.interp import InterpreterError
from warploom.runtime.interp.machine.memory import Finding

TILE = ".shared .align 16 .b8 tile[2048]; .shared .align 8 .b64 full; .shared .align 8 .b64 empty;"
THREAD = "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, tile; add.u32 %r3, %r3, %r2; shr.u32 %r4, %r1, 5;"
FIRST_LINE = 8
"""Where a body begins: after five lines of the module, TILE and THREAD."""


def run(body: str, threads: int = 64, checks: str = "all", **options: Any) -> tuple[Finding, ...]:
    """Runs one CTA; the lines of the body are counted from 1."""
    text = f"{TILE}\n{THREAD}\n{body}"
    try:
        program(text).launch("k", (1, 1, 1), (threads, 1, 1), [], checks=checks, **options)
    except InterpreterError as error:
        return error.findings
    return ()


def expect_finding(
    body: str, check: str, line: int, message: str, threads: int = 64, *, thread: bool = True
) -> Finding:
    findings = run(body, threads)
    return check_found(findings, check, FIRST_LINE + line - 1, message, thread=thread)


EXCHANGE = """st.shared.u32 [%r3], %r1;
{sync}
xor.b32 %r5, %r2, 128; mov.u32 %r6, tile; add.u32 %r6, %r6, %r5;
ld.shared.u32 %r7, [%r6];"""


@pytest.mark.parametrize("sync", ["bar.sync 0;", "barrier.sync 3;", "bar.sync 1, 64;", "barrier.sync.aligned 2, 64;"])
def test_a_barrier_orders_warps(sync: str) -> None:
    assert run(EXCHANGE.format(sync=sync)) == ()


def test_nothing_orders_warps() -> None:
    one = expect_finding(
        EXCHANGE.format(sync="bar.warp.sync -1;"), "races", 4, "reads what warp 1, lane 0 writes at line 8"
    )
    assert (one.warp, one.lane, one.address, one.count) == (0, 0, 128, 64)


def test_a_barrier_of_another_pair_does_not_order() -> None:
    """Warps 0 and 1 exchange, but meet 2 and 3."""
    sync = "and.b32 %r8, %r4, 1; add.u32 %r8, %r8, 1; bar.sync %r8, 64;"
    body = EXCHANGE.format(sync=sync)
    expect_finding(body, "races", 4, "reads what warp", 128)
    assert run(EXCHANGE.format(sync="shr.u32 %r8, %r4, 1; add.u32 %r8, %r8, 1; bar.sync %r8, 64;"), 128) == ()


def test_overwriting_what_others_read() -> None:
    body = EXCHANGE.format(sync="bar.sync 0;") + "{end}\nst.shared.u32 [%r3], %r2;"
    assert run(body.format(end="bar.sync 0;")) == ()
    expect_finding(body.format(end=""), "races", 5, "writes what warp 1, lane 0 reads at line 11")


@pytest.mark.parametrize("store", ["st.shared.u32 [tile], %r4;", "st.shared.v2.u32 [tile], {%r5, %r4};"])
def test_two_warps_write_one_word(store: str) -> None:
    expect_finding(
        f"mov.u32 %r5, 7;\n{store}", "races", 2, "writes what warp 1, lane 31 writes at line 9, and nothing orders them"
    )
    assert run(f"mov.u32 %r5, 7;\n{store}", 32) == ()
    later = f"mov.u32 %r5, 7; setp.lt.u32 %p1, %r1, 32; @%p1 bra LATER;\n{store}\nLATER: {store}"
    expect_finding(later, "races", 3, "writes what warp 1, lane 31 writes at line 9")


@pytest.mark.parametrize("store", ["st.shared.u32 [tile], %r5;", "st.shared.v2.u32 [tile], {%r5, 9};"])
def test_two_warps_write_one_value(store: str) -> None:
    text = "{}\n{}\nmov.u32 %r5, 7; setp.lt.u32 %p1, %r1, 32;\n{}"
    for body, places in (
        (store, [(9, "warp 1, lane 31 writes at line 9")]),
        (f"@%p1 bra LATER; {store} bra END;\nLATER: {store} END:", [(10, "warp 1, lane 31 writes at line 9")]),
    ):
        done = program(text.format(TILE, THREAD, body)).launch("k", (1, 1, 1), (64, 1, 1), [], checks="all")
        assert [(note.severity, note.check) for note in done.notes] == [("note", "races")]
        (line, message) = places[0]
        assert f"k.ptx:{line}:" in str(done.notes[0])
        assert ": note: st.shared." in str(done.notes[0])
        assert f"{message}, and nothing orders them; the value is the same" in done.notes[0].message


# Lanes of a warp


LANES = """st.shared.u32 [%r3], %r1;
{sync}
xor.b32 %r5, %r2, 4; mov.u32 %r6, tile; add.u32 %r6, %r6, %r5;
ld.shared.u32 %r7, [%r6];"""


@pytest.mark.parametrize("sync", ["bar.warp.sync -1;", "bar.sync 0;", "bar.sync 5, 32;"])
def test_lanes_are_ordered(sync: str) -> None:
    assert run(LANES.format(sync=sync), 32) == ()


def test_lanes_are_not_ordered_by_themselves() -> None:
    one = expect_finding(LANES.format(sync=""), "races", 4, "reads what warp 0, lane 1 writes at line 8", 32)
    assert (one.warp, one.lane, one.address) == (0, 0, 4)


def test_part_of_a_warp_is_ordered() -> None:
    """The lower half synchronises; lanes 0 and 1 exchange, lanes 16 and 17 do, too, without."""
    sync = "setp.lt.u32 %p1, %r1, 16; @%p1 bar.warp.sync 0xFFFF;"
    one = expect_finding(LANES.format(sync=sync), "races", 4, "reads what warp 0, lane 17 writes", 32)
    assert (one.lane, one.count) == (16, 16)


def test_overwriting_what_another_lane_read() -> None:
    body = LANES.format(sync="bar.warp.sync -1;") + "{end}\nst.shared.u32 [%r3], %r2;"
    assert run(body.format(end="bar.warp.sync -1;"), 32) == ()
    expect_finding(body.format(end=""), "races", 5, "writes what warp 0, lane 1 reads", 32)
    start = "st.shared.u32 [%r3], %r1; bar.warp.sync -1;"
    broadcast = f"{start} ld.shared.u32 %r7, [tile];{{sync}}\nst.shared.u32 [%r3], %r2;"
    assert run(broadcast.format(sync="bar.warp.sync -1;"), 32) == ()
    expect_finding(broadcast.format(sync=""), "races", 2, "writes what several lanes of warp 0 read at line 8", 32)


def test_a_race_names_two_threads() -> None:
    """Where two warps write in one step what both have read, each races with the other."""
    start = "st.shared.u32 [%r3], %r1; bar.sync 0; and.b32 %r5, %r1, 31; setp.eq.u32 %p1, %r5, 0;"
    one = expect_finding(
        f"{start} @%p1 ld.shared.u32 %r7, [tile];\n@%p1 st.shared.u32 [tile], %r1;", "races", 2, "reads at line"
    )
    assert (one.warp, one.lane) == (0, 0)
    assert "writes what warp 1, lane 0 reads at line 8" in one.message


EXCHANGES = {
    "shfl": "{guard}shfl.sync.bfly.b32 %r8, {value}, 1, 31, {mask};",
    "redux": "{guard}redux.sync.add.u32 %r8, {value}, {mask};",
    "vote": "setp.eq.u32 %p2, {value}, 3; {guard}vote.sync.ballot.b32 %r8, %p2, {mask};",
}
OVER = """st.shared.u32 [%r3], %r1; bar.sync 0; mov.u32 %r9, 1; mov.u32 %r8, 7;
xor.b32 %r5, %r2, 4; mov.u32 %r6, tile; add.u32 %r6, %r6, %r5; ld.shared.u32 %r7, [%r3];
{exchange}
{store}"""


@pytest.mark.parametrize("name", EXCHANGES)
def test_what_is_made_of_others_values_may_go_over_them(name: str) -> None:
    """A lane that has a value through an exchange stores where another lane read what it is made of."""
    exchange = EXCHANGES[name].format(value="%r7", mask=-1, guard="")
    for store in (
        "add.u32 %r8, %r8, 1; st.shared.u32 [%r6], %r8;",
        "and.b32 %r8, %r8, 0; add.u32 %r6, %r6, %r8; st.shared.u32 [%r6], %r1;",
        "setp.ne.u32 %p1, %r8, 12345; @%p1 st.shared.u32 [%r6], %r1;",
    ):
        assert run(OVER.format(exchange=exchange, store=store), 32) == ()
    message = "writes what warp 0, lane 1 reads at line 9"
    expect_finding(OVER.format(exchange=exchange, store="st.shared.u32 [%r6], %r1;"), "races", 4, message, 32)
    unread = EXCHANGES[name].format(value="%r9", mask=-1, guard="")
    expect_finding(OVER.format(exchange=unread, store="st.shared.u32 [%r6], %r8;"), "races", 4, message, 32)
    half = EXCHANGES[name].format(value="%r7", mask="0x55555555", guard="@%p3 ")
    half = f"and.b32 %r10, %r1, 1; setp.eq.u32 %p3, %r10, 0; {half}"
    expect_finding(OVER.format(exchange=half, store="st.shared.u32 [%r6], %r8;"), "races", 4, message, 32)


def test_a_product_of_matrices_exchanges_too() -> None:
    """Its result goes where the lanes read its operands."""
    body = """st.shared.u32 [%r3], 0; bar.sync 0; mov.f32 %f1, 0f00000000;
ld.shared.u32 %r7, [%r3]; xor.b32 %r5, %r2, 4; mov.u32 %r6, tile; add.u32 %r6, %r6, %r5;
mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {{%f2, %f3, %f4, %f5}}, {{{a}, {a}}}, {{{a}}}, {{%f1, %f1, %f1, %f1}};
st.shared.f32 [%r6], %f2;"""
    assert run(body.format(a="%r7"), 32) == ()
    expect_finding(body.format(a="%r1"), "races", 4, "writes what warp 0, lane 1 reads at line 9", 32)


# Atomics, fences


def test_atomics_do_not_race_with_atomics() -> None:
    start = "setp.eq.u32 %p1, %r1, 0; mov.u32 %r5, 0; @%p1 st.shared.u32 [tile], %r5; bar.sync 0;"
    body = f"{start} red.shared.add.u32 [tile], 1;{{sync}}\nld.shared.u32 %r6, [tile];"
    assert run(body.format(sync="bar.sync 0;")) == ()
    expect_finding(body.format(sync=""), "races", 2, "reads what warp")
    expect_finding(
        f"{start.replace('bar.sync 0;', '')}\nred.shared.add.u32 [tile], 1;", "races", 2, "updates what warp 0"
    )


FLAG = """mov.u32 %r5, 0; setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [tile+1024], %r5; bar.sync 0;
setp.ge.u32 %p2, %r1, 32; @%p2 bra WRITE;
SPIN: ld.{load}.shared.u32 %r6, [tile+1024]; setp.eq.u32 %p3, %r6, 0; @%p3 bra SPIN; {fence}
ld.shared.u32 %r7, [%r3+128]; bra END;
WRITE: st.shared.u32 [%r3], %r1; {release} bar.warp.sync -1; mov.u32 %r8, 1; setp.eq.u32 %p4, %r1, 32;
@%p4 st.{store}.shared.u32 [tile+1024], %r8; END:"""


@pytest.mark.parametrize(
    ("load", "fence", "release", "store"),
    [
        ("volatile", "membar.cta;", "membar.cta;", "volatile"),
        ("relaxed.cta", "fence.acq_rel.cta;", "fence.acq_rel.cta;", "relaxed.cta"),
        ("acquire.cta", "", "", "release.cta"),
    ],
)
def test_a_flag_orders_with_fences(load: str, fence: str, release: str, store: str) -> None:
    options = {"load": load, "fence": fence, "release": release, "store": store}
    assert run(FLAG.format(**options)) == ()
    for name, weaker in (("load", "relaxed.cta"), ("fence", ""), ("release", ""), ("store", "relaxed.cta")):
        if options[name] not in (weaker, "volatile", "relaxed.cta"):
            expect_finding(FLAG.format(**{**options, name: weaker}), "races", 4, "reads what warp 1")


COUNTER = """mov.u32 %r5, 0; setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [tile+1024], %r5; bar.sync 0;
and.b32 %r9, %r1, 31; {late} st.shared.u32 [%r3], %r1; bar.warp.sync -1; setp.ne.u32 %p2, %r9, 0; @%p2 bra END;
{release} {atom} %r6, [tile+1024], 1; setp.ne.u32 %p3, %r6, {last}; @%p3 bra END; {acquire}
ld.shared.u32 %r7, [tile+4]; ld.shared.u32 %r7, [tile+132]; ld.shared.u32 %r7, [tile+260];
END:"""
FENCES = {"release": "membar.cta;", "atom": "atom.shared.add.u32", "acquire": "fence.acq_rel.cta;", "last": "2"}
ONE_BY_ONE = "D: setp.lt.u32 %p4, %r4, 1; @%p4 bra E; sub.u32 %r4, %r4, 1; bra D; E:"


@pytest.mark.parametrize("late", ["", ONE_BY_ONE])
def test_the_last_warp_at_a_counter_knows_what_all_did(late: str) -> None:
    """Each update goes on with what the one before told, also when warps come to it in one step."""
    assert run(COUNTER.format(**FENCES, late=late), 96) == ()
    ordered = {**FENCES, "atom": "atom.acq_rel.cta.shared.add.u32", "release": "", "acquire": ""}
    assert run(COUNTER.format(**ordered, late=late), 96) == ()
    half = {**FENCES, "atom": "atom.acquire.cta.shared.add.u32", "acquire": ""}
    assert run(COUNTER.format(**half, late=late), 96) == ()


@pytest.mark.parametrize("late", ["", ONE_BY_ONE])
@pytest.mark.parametrize(
    "wrong",
    [{"release": ""}, {"acquire": ""}, {"atom": "atom.relaxed.cta.shared.add.u32", "acquire": ""}, {"last": "1"}],
)
def test_a_counter_without_fences_or_not_the_last(wrong: dict[str, str], late: str) -> None:
    expect_finding(COUNTER.format(**{**FENCES, **wrong}, late=late), "races", 4, "reads what warp", 96)


ENDING = """setp.eq.u32 %p1, %r1, 0; mov.u32 %r5, 64; @%p1 mbarrier.init.shared.b64 [full], %r5; mov.u32 %r6, 0;
@%p1 st.shared.u32 [tile+1024], %r6; bar.sync 0; mbarrier.arrive.shared.b64 _, [full]; {elect}
and.b32 %r9, %r1, 31; setp.ne.u32 %p2, %r9, 0; @%p2 bra END;
{fence} atom.add.acquire.cta.shared.u32 %r6, [tile+1024], 1; setp.ne.u32 %p3, %r6, 1; @%p3 bra END;
mbarrier.inval.shared.b64 [full]; END:"""
ELECT = "match.any.sync.b64 %r8, %rd1, -1;"


def test_the_end_of_an_object_behind_a_counter() -> None:
    """As the destructor of libcu++'s pipeline has it: lanes meet at `match`, the last of their leaders ends it."""
    start = "mov.u64 %rd1, 5; "
    assert run(start + ENDING.format(elect=ELECT, fence="fence.sc.cta;")) == ()
    expect_finding(
        start + ENDING.format(elect="", fence="fence.sc.cta;"), "races", 5, "writes what several lanes of warp 1 read"
    )
    late = ENDING.format(elect=ELECT, fence="").replace("setp.ne.u32 %p3, %r6, 1;", "setp.ne.u32 %p3, %r6, 0;")
    expect_finding(start + late, "races", 5, "writes what several lanes of warp 1 read at line 9")


# mbarrier: two warps, the second makes 4 tiles of one buffer, the first uses them

PIPELINE = """setp.eq.u32 %p1, %r1, 0; mov.u32 %r5, 32; @%p1 mbarrier.init.shared.b64 [full], %r5;
@%p1 mbarrier.init.shared.b64 [empty], %r5; bar.sync 0; mov.u32 %r6, 0; setp.ge.u32 %p2, %r1, 32; @%p2 bra MAKE;
USE: and.b32 %r7, %r6, 1; {full}
ld.shared.u32 %r8, [%r3+128]; st.shared.u32 [%r3+256], %r8;
mbarrier.arrive.shared.b64 _, [empty];
add.u32 %r6, %r6, 1; setp.lt.u32 %p4, %r6, 4; @%p4 bra USE; bra END;
MAKE: and.b32 %r7, %r6, 1; xor.b32 %r7, %r7, 1; {empty}
st.shared.u32 [%r3], %r6;
mbarrier.arrive.shared.b64 _, [full];
add.u32 %r6, %r6, 1; setp.lt.u32 %p4, %r6, 4; @%p4 bra MAKE; END:"""
FULL = "F: mbarrier.try_wait.parity.shared.b64 %p3, [full], %r7; @!%p3 bra F;"
EMPTY = "E: mbarrier.try_wait.parity.shared.b64 %p3, [empty], %r7; @!%p3 bra E;"


def test_a_pipeline_of_mbarriers_is_silent() -> None:
    assert run(PIPELINE.format(full=FULL, empty=EMPTY)) == ()


def test_a_pipeline_that_does_not_wait() -> None:
    expect_finding(
        PIPELINE.format(full="", empty=EMPTY),
        "uninitialised",
        4,
        "%r8 comes from shared memory at 0x80, which is read at line 11",
    )
    expect_finding(PIPELINE.format(full=FULL, empty=""), "races", 4, "reads what warp 1, lane 0 writes at line 15")


def test_a_pipeline_that_waits_for_the_wrong_phase() -> None:
    wrong = PIPELINE.replace("and.b32 %r7, %r6, 1; {full}", "and.b32 %r7, %r6, 1; xor.b32 %r7, %r7, 1; {full}")
    expect_finding(wrong.format(full=FULL, empty=EMPTY), "uninitialised", 4, "%r8 comes from shared memory at 0x80")
    wrong = PIPELINE.replace("xor.b32 %r7, %r7, 1; {empty}", "mov.u32 %r7, 1; {empty}")
    assert any(f.check == "races" for f in run(wrong.format(full=FULL, empty=EMPTY), max_steps=20000))


def test_objects_are_made_before_others_use_them() -> None:
    body = PIPELINE.format(full=FULL, empty=EMPTY).replace("bar.sync 0;", "")
    expect_finding(body, "races", 3, "updates what warp 0, lane 0 writes")


# Barriers that threads do not agree on


@pytest.mark.parametrize("order", ["cta", "cluster"])
def test_lanes_go_over_what_others_read_before_an_mbarrier(order: str) -> None:
    """A read of the own word does not carry on the reads of other lanes that the barrier orders."""
    body = """setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [full], 64; st.shared.u32 [%r3], %r1; bar.sync 0;
        xor.b32 %r5, %r2, 4; mov.u32 %r6, tile; add.u32 %r6, %r6, %r5; ld.shared.u32 %r7, [%r6];
        {meet} ld.shared.u32 %r8, [%r3]; st.shared.u32 [%r3], %r8;"""
    meet = f"""mbarrier.arrive.release.{order}.shared::cta.b64 %rd1, [full];
        F: mbarrier.try_wait.parity.acquire.{order}.shared::cta.b64 %p3, [full], 0; @!%p3 bra F;"""
    assert run(body.format(meet=meet)) == ()
    expect_finding(body.format(meet=""), "races", 3, "writes what several lanes of warp 0 read at line 10")


def test_more_threads_than_a_barrier_expects() -> None:
    one = expect_finding("bar.sync 1, 64;", "barriers", 1, "96 threads come to barrier 1, which expects 64", 96)
    assert one.cta == (0, 0, 0)


def test_different_counts() -> None:
    body = "setp.ge.u32 %p1, %r1, 32; @%p1 bra OTHER;\nbar.sync 1, 64; bra END;\nOTHER: bar.sync 1, 96;\nEND:"
    one = expect_finding(body, "barriers", 3, "barrier 1 expects 96 threads here and 64 threads at line 9", 96)
    assert one.warp == 1
    body = body.replace("bar.sync 1, 96", "bar.sync 1")
    expect_finding(body, "barriers", 3, "barrier 1 expects all threads here and 64 threads at line 9", 96)
    assert run(body) == ()  # of 64 threads


def test_more_than_the_cta_has() -> None:
    expect_finding("bar.sync 0, 128;", "barriers", 1, "barrier 0 expects 128 threads, the CTA has 64")


def notes(body: str, threads: int = 64) -> tuple[Finding, ...]:
    """What is found in a kernel that is right; lines of the body are counted from 8."""
    text = f"{TILE}\n{THREAD}\n{body}"
    return program(text).launch("k", (1, 1, 1), (threads, 1, 1), [], checks="all").notes


@pytest.mark.parametrize(
    ("start", "missing", "first"),
    [
        ("setp.ge.u32 %p1, %r1, 32; @%p1 exit;\n", 32, "warp 1, lane 0"),
        ("setp.ge.u32 %p1, %r1, 50; @%p1 exit;\n", 14, "warp 1, lane 18"),
        ("and.b32 %r5, %r1, 1; setp.eq.u32 %p1, %r5, 1; @%p1 bra END;\n", 32, "warp 0, lane 1"),
    ],
)
def test_threads_that_have_exited(start: str, missing: int, first: str) -> None:
    (note,) = notes(start + "bar.sync 0; END:")
    assert (note.severity, note.check, note.line) == ("note", "barriers", FIRST_LINE + 1)
    message = (
        f"for all threads of the CTA, of which {missing} have exited, the first of them {first}; they are not waited"
    )
    assert message in note.message
    assert notes("setp.ge.u32 %p1, %r1, 32; @%p1 exit; bar.sync 1, 32;") == ()


MASKED = {
    "shfl": "shfl.sync.idx.b32 %r5, %r1, 1, 31, {};",
    "vote": "vote.sync.ballot.b32 %r5, %p2, {};",
    "match": "match.any.sync.b32 %r5, %r1, {};",
    "redux": "redux.sync.add.u32 %r5, %r1, {};",
    "elect": "elect.sync %r5|%p3, {};",
    "bar.warp": "bar.warp.sync {};",
}


@pytest.mark.parametrize("name", MASKED)
def test_member_masks(name: str) -> None:
    start = "setp.lt.u32 %p2, %r1, 40; setp.lt.u32 %p1, %r1, 16;\n"
    line, instruction = FIRST_LINE + 1, MASKED[name]
    assert notes(start + instruction.format(-1)) == ()
    assert notes(f"{start}@%p1 {instruction.format('0xFFFF')}") == ()
    one = expect_finding(
        start + instruction.format("0xFFFF"), "barriers", 2, "lane 16, which its member mask 0xffff lacks"
    )
    assert (one.warp, one.lane, one.count) == (0, 16, 32)
    (note,) = notes(f"setp.lt.u32 %p2, %r1, 40; setp.lt.u32 %p1, %r1, 48; @!%p1 exit;\n{instruction.format(-1)}")
    assert (note.severity, note.check, note.line) == ("note", "barriers", line)
    assert "the member mask 0xffffffff names lane 16, which has exited or never was, and is not waited" in note.message


def test_a_value_of_a_lane_that_takes_no_part() -> None:
    """It may be computed with; it is told where something is done with it."""
    body = "setp.lt.u32 %p1, %r1, 16; @!%p1 exit;\nshfl.sync.down.b32 %r5, %r1, 8, 31, {};\nadd.u32 %r5, %r5, %r1;{}"
    store = "\n{}st.shared.u32 [%r3], %r5;"
    assert run(body.format("0xFFFF", ""), 32, "uninitialised") == ()
    assert run(body.format("0xFFFF", store.format("setp.lt.u32 %p2, %r1, 8; @%p2 ")), 32, "uninitialised") == ()
    text = body.format("0xFFFF", store.format(""))
    one = expect_finding(
        text, "uninitialised", 4, "%r5 comes from the shfl at line 9, of a lane that takes no part in it", 32
    )
    assert (one.lane, one.count) == (8, 8)


def test_arriving_twice() -> None:
    body = """setp.ge.u32 %p1, %r1, 32; @%p1 bra WAIT; bar.arrive 1, 96;
bar.arrive 1, 96; bra END;
WAIT: setp.lt.u32 %p1, %r1, 64; @%p1 bra END; bar.sync 1, 96; END:"""
    expect_finding(body, "barriers", 2, "comes to barrier 1 again before it is complete; it came there at line 8", 96)


def test_producers_and_consumers_on_named_barriers() -> None:
    body = """mov.u32 %r6, 0; setp.ge.u32 %p2, %r1, 32; @%p2 bra MAKE;
USE: {full} setp.lt.u32 %p5, %r6, 3;
ld.shared.u32 %r8, [%r3+128]; @%p5 bar.arrive 2, 64;
add.u32 %r6, %r6, 1; setp.lt.u32 %p4, %r6, 4; @%p4 bra USE; bra END;
MAKE: {empty}
st.shared.u32 [%r3], %r6; bar.arrive 1, 64;
add.u32 %r6, %r6, 1; setp.lt.u32 %p4, %r6, 4; @%p4 bra MAKE; END:"""
    start = "setp.lt.u32 %p5, %r1, 32; @%p5 bar.arrive 2, 64; "
    assert run(start + body.format(full="bar.sync 1, 64;", empty="bar.sync 2, 64;")) == ()
    expect_finding(body.format(full="bar.sync 1, 64;", empty=""), "races", 6, "writes what warp 0, lane 0 reads")
    expect_finding(
        start + body.format(full="", empty="bar.sync 2, 64;"), "races", 6, "writes what warp 0, lane 0 reads"
    )


def test_a_warp_divided_at_a_barrier_is_a_fault() -> None:
    body = "setp.lt.u32 %p1, %r1, 40; @%p1 bar.sync 0; @!%p1 bar.sync 0;"
    expect_finding(body, "fault", 1, "bar.sync must be executed by all lanes of a warp together; lane 8 takes no part")


# Functions, and registers that pass through them


def test_registers_pass_through_functions() -> None:
    function = ".func (.reg .b32 %out) twice(.reg .b32 %in) { add.u32 %out, %in, %in; }\n"
    body = "call (%r5), twice, ({});\nst.shared.u32 [%r3], %r5;"

    def findings(value: str) -> tuple[Finding, ...]:
        text = f"{TILE}\n{THREAD}\n{body.format(value)}"
        try:
            program(text, module=function).launch("k", (1, 1, 1), (32, 1, 1), [], checks="all")
        except InterpreterError as error:
            return error.findings
        return ()

    assert findings("%r1") == ()
    check_found(findings("%r9"), "uninitialised", 9, "call: %r9 is read before it is written")
