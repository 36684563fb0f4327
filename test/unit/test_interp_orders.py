"""All orders of what synchronises: planted bugs in rings, barriers and clusters are named at their line, right kernels
are silent, and so are our own pipelines."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hopper_kernel import STAGE, text
from hopper_kernel import run as run_hopper
from interpreted import per_thread
from orders import drawn_order
from problems import problem
from products import Product, Types, shared_by_ctas
from seeded_bugs import check_found, edited, line_of
from seeded_bugs import run as run_launch

from warploom.runtime import load_ptx
from warploom.runtime.interp import InterpreterError
from warploom.runtime.interp.machine.memory import Finding

ORDERS = "all-orders"
UNSEEN = "nobody waits for it before its CTA ends"
"""Of copies, where a test is about something else."""

RING = (Path(__file__).parents[2] / "examples" / "ring.ptx").read_text(encoding="utf-8")
"""A warp fills two slots in turn, two warps read each of them."""


def run(ptx: str, threads: int = 96, ctas: int = 1, cluster: int = 1, checks: str = ORDERS) -> tuple[Finding, ...]:
    """What is found, notes too."""
    options: dict[str, Any] = {"cluster": (cluster, 1, 1)} if cluster > 1 else {}
    try:
        module = load_ptx(ptx, "k.ptx")
        done = module.launch(
            next(iter(module.kernels)),
            (ctas, 1, 1),
            (threads, 1, 1),
            [],
            device="interp",
            checks=checks,
            max_steps=100_000,
            **options,
        )
    except InterpreterError as error:
        return error.findings
    return done.notes


def test_a_right_ring_is_silent() -> None:
    assert run(RING) == ()


FREE = "mbarrier.try_wait.parity.shared.b64 %p, [%empty], %old;"
FOR_BOTH = "setp.eq.u32 %p, %w, 1; @%p mbarrier.arrive.shared.b64 %state, [%empty], 2;"
DATA = "mbarrier.try_wait.parity.shared.b64 %p, [%full], %par;"
DONE = "mbarrier.arrive.shared.b64 %state, [%empty];"
READ = "ld.shared.u32 %at, [%at];"
WRITE = "st.shared.u32 [%at], %i;"
FILLED = "mbarrier.arrive.shared.b64 %state, [%full];"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("old", "new", "check", "at", "message"),
    [
        # Parities.
        ("xor.b32 %old, %par, 1;", "mov.b32 %old, %par;", ORDERS, "%p, [%empty]",
            "warp 0 waits for phase 0 of the mbarrier object at 0x10; it is the first phase, to which nobody has come"),
        (DATA, DATA.replace("%par", "0"), ORDERS, "%p, [%full]",
            "can miss the end of phase 0 of the mbarrier object at 0x0"),
        (DATA, DATA.replace("%par", "1"), ORDERS, "%p, [%full]",
            "warps 1-2 wait for phase 1 of the mbarrier object at 0x0; warp 0 (line 26) came to the phase before, and "
            "now waits at line 22"),
        # Waits that are left out.
        (FREE, "mov.pred %p, 1;", ORDERS, "%p, [%full]", "can pass when phase 1 of the mbarrier object at 0x0 has not"),
        (DATA, "mov.pred %p, 1;", "races", READ, "reads what warp 0, lane 0 writes at line 25"),
        (DATA, "mov.pred %p, 1;", ORDERS, "%p, [%empty]", "can come when phase 0 of the mbarrier object at 0x10 has"),
        # Arrivals that are left out, or counted wrong.
        (DONE, f"setp.eq.u32 %p, %w, 1; @%p {DONE}", ORDERS, "%p, [%empty]",
            "it is the first phase; only warp 1 (line 38) came"),
        (FILLED, "", ORDERS, "%p, [%full]", "deadlock: warps 1-2 wait for phase 0"),
        ("[empty], 64", "[empty], 96", ORDERS, "%p, [%empty]", "only warp 1 (line 38), warp 2 (line 38) came"),
        ("[empty], 64", "[empty], 32", ORDERS, DONE, "can come while phase 0 of the mbarrier object at 0x10 has not"),
        ("[empty], 64", "[empty], 32", ORDERS, "%p, [%empty]", "can miss the end of phase 0 of the mbarrier object at"),
        (DONE, FOR_BOTH, ORDERS, "%p, [%full]",
            "nothing keeps warp 0 (line 26) from ending phase 1 before this has tested, which then waits for phase 2"),
        # Slots.
        (f"{READ}\n    {DONE}", f"{DONE}\n    {READ}", "races", "st.shared",
            "writes what warp 1, lane 0 reads at line 38"),
        (f"{WRITE}\n    {FILLED}", f"{FILLED}\n    {WRITE}", "races", READ,
            "reads what warp 0, lane 0 writes at line 26"),
        # Objects.
        ("    bar.sync 0;", "", ORDERS, "%p, [%full]",
            "can come before warp 0 (line 12) initialises the mbarrier object"),
    ],
)  # fmt: skip
def test_planted_bugs_in_a_ring(old: str, new: str, check: str, at: str, message: str) -> None:
    ptx = edited(RING, old, new)
    check_found(run(ptx), check, line_of(ptx, at), message)


def test_a_counterexample_is_an_order_of_warps() -> None:
    """That begins the other way round: warp 1 waits while warp 0 goes through the ring once more."""
    ptx = edited(RING, DONE, FOR_BOTH)
    (finding,) = (f for f in run(ptx) if f.check == ORDERS)
    assert finding.warp == 2
    assert finding.schedule == (
        "warp 0: line 12 mbarrier.init (2 times), line 13 mbarrier.init (2 times), line 14 bar.sync",
        "warps 1-2: line 14 bar.sync",
        "warp 0: line 22 mbarrier.try_wait (2 times), line 26 mbarrier.arrive (2 times)",
        "warp 1: line 34 mbarrier.try_wait, line 38 mbarrier.arrive",
        "warp 0: line 22 mbarrier.try_wait, line 26 mbarrier.arrive",
    )
    assert str(finding).splitlines()[1:] == [f"    {step}" for step in finding.schedule]


LOAD = "cp.async.bulk.tensor.2d.shared::cluster"
EXPECT = "mbarrier.arrive.expect_tx.shared::cta.b64"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("old", "new", "at", "nth", "message"),
    [
        ("[%full], %parity;", "[%full], 1;", "%p, [%empty]", 0,
            "can pass when phase 0 of the mbarrier object at 0xc010"),
        ("xor.b32 %y, %parity, 1;", "mov.b32 %y, %parity;", "%p, [%empty]", 0, "deadlock: warp 4 waits for phase 0"),
        ("@%first mbarrier.arrive.shared::cta.b64 _, [%empty];", "", "%p, [%full]", 0,
            "warps 0-3 wait for phase 1 of the mbarrier object at 0xc000; warp 4 (line 106) came to the phase before, "
            "and now waits at line 102"),
        (f"[%full], {2 * STAGE};", f"[%full], {STAGE};", LOAD, 1,
            "can come while phase 0 of the mbarrier object at 0xc000 has not ended"),
        ("wgmma.wait_group.sync.aligned 0;", "", "%p, [%full]", 0, "can miss the end of phase 0"),
    ],
)  # fmt: skip
def test_planted_bugs_in_a_matrix_kernel(old: str, new: str, at: str, nth: int, message: str) -> None:
    """Of which one thread arrives for a warpgroup: its product is what the four warps have in common."""
    ptx = edited(text(), old, new)
    check_found(run_hopper(ptx, checks=ORDERS), ORDERS, line_of(ptx, at, nth), message)


def test_a_right_matrix_kernel_is_silent() -> None:
    assert run_hopper(text(), checks=ORDERS) == ()


EXPECTS = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 data)
{
    .reg .pred %p, %lead; .reg .b32 %t, %w, %l, %v; .reg .b64 %state, %data;
    .shared .align 16 .b8 tile[256]; .shared .align 8 .b64 full;
    mov.u32 %t, %tid.x; shr.u32 %w, %t, 5; and.b32 %l, %t, 31; setp.eq.u32 %lead, %l, 0; ld.param.u64 %data, [data];
    setp.eq.u32 %p, %t, 0; @%p mbarrier.init.shared.b64 [full], 1; @%p fence.mbarrier_init.release.cluster;
    bar.sync 0;
    setp.eq.u32 %p, %w, 0;
    @%p bra FIRST;
    {body}
    bra END;
FIRST:
    bar.sync 3, 32; bar.sync 3, 32; bar.sync 3, 32; bar.sync 3, 32; bar.sync 3, 32;
    {meet}
    @%lead mbarrier.arrive.shared.b64 %state, [full];
END:
    ret;
}
"""
"""Warp 0 arrives, warp 1 does something that changes what the phase expects; they may meet before."""
COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%data], 16, [full];"
BULK = f"@%lead mbarrier.expect_tx.relaxed.cta.shared.b64 [full], 16;\n    @%lead {COPY}"
SMALL = """mov.u32 %v, tile; cp.async.ca.shared.global [%v], [%data], 4;
    @%lead cp.async.mbarrier.arrive.shared.b64 [full];
    cp.async.wait_all;"""


@pytest.mark.parametrize(("body", "at"), [(BULK, "mbarrier.expect_tx"), (SMALL, "cp.async.mbarrier.arrive")])
def test_a_phase_may_end_before_more_is_expected(body: str, at: str) -> None:
    """What an operation expects for itself does not keep the phase open until it has begun."""
    args = [np.arange(4, dtype=np.uint32)]
    for meet in ("", "bar.sync 1, 64;"):
        ptx = EXPECTS.replace("{body}", f"{body}\n    {meet}").replace("{meet}", meet)
        findings = run_launch(ptx, (1, 1, 1), (64, 1, 1), args, checks=ORDERS)
        if meet:
            assert [f for f in findings if UNSEEN not in f.message] == []
        else:
            check_found(findings, ORDERS, line_of(ptx, at), "comes too late in another order: phase 0")


PING = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k()
{
    .reg .pred %p; .reg .b32 %t, %w, %i, %v;
    .shared .align 4 .b8 turn[128];
    mov.u32 %t, %tid.x; shr.u32 %w, %t, 5; and.b32 %t, %t, 31; mov.u32 %i, 0;
    mov.u32 %v, turn; mad.lo.u32 %v, %t, 4, %v;
    setp.ne.u32 %p, %w, 0;
    @%p bra PONG;
    bar.arrive 2, 64;
PING:
    bar.sync 1, 64;
    st.shared.u32 [%v], %i;
    bar.arrive 2, 64;
    add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 3;
    @%p bra PING;
    bra END;
PONG:
    bar.sync 2, 64;
    ld.shared.u32 %t, [%v];
    bar.arrive 1, 64;
    add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 3;
    @%p bra PONG;
    bar.sync 2, 64;
END:
    ret;
}
"""
"""Two warps take turns at two barriers, of which each arrives at one and waits at the other."""


def test_warps_that_take_turns_are_silent() -> None:
    assert run(PING, 64) == ()


def test_a_barrier_that_is_arrived_at_twice() -> None:
    """Without the wait between, the second arrival comes to the phase of the first."""
    ptx = edited(PING, "    bar.sync 1, 64;\n", "\n")
    message = "comes to barrier 2 again before it is complete; it came there at line 12"
    check_found(run(ptx, 64), "barriers", line_of(ptx, "bar.arrive 2", 1), message)


def test_warps_that_wait_for_each_other() -> None:
    ptx = edited(PING, "    bar.arrive 2, 64;\nPING", "\nPING")
    message = "deadlock: warp 0 waits for barrier 1; it is the first phase; only warp 0 (line 14) came"
    check_found(run(ptx, 64), ORDERS, line_of(ptx, "bar.sync 1"), message)


LATE = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k()
{
    .reg .pred %p, %first; .reg .b32 %t, %w, %v; .reg .b64 %state;
    .shared .align 16 .b8 src[16]; .shared .align 16 .b8 dst[16]; .shared .align 8 .b64 full;
    .shared .align 8 .b64 told; .shared .b32 word;
    mov.u32 %t, %tid.x; shr.u32 %w, %t, 5; setp.eq.u32 %first, %t, 0;
    @%first mbarrier.init.shared.b64 [full], 1; @%first mbarrier.init.shared.b64 [told], 32;
    @%first st.shared.v4.b32 [src], {%t, %t, %t, %t}; @%first fence.proxy.async.shared::cta;
    bar.sync 0;
    setp.eq.u32 %p, %w, 1;
    @%p bra WRITER;
    setp.eq.u32 %p, %w, 2;
    @%p bra READER;
    @!%first bra END;
    mbarrier.arrive.expect_tx.shared.b64 %state, [full], 16;
    cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [dst], [src], 16, [full];
TOLD: mbarrier.try_wait.parity.shared.b64 %p, [told], 0;
    @!%p bra TOLD;
    bra END;
WRITER:
    st.shared.b32 [word], %w;
    mbarrier.arrive.shared.b64 %state, [told];
    bra END;
READER:
    bar.sync 2, 32; bar.sync 2, 32; bar.sync 2, 32;
FULL: mbarrier.try_wait.parity.shared.b64 %p, [full], 0;
    @!%p bra FULL;
    ld.shared.b32 %v, [word];
END:
    ret;
}
"""
"""A copy that lands after its thread has heard of the writer."""


def test_a_copy_tells_what_was_known_when_it_began() -> None:
    check_found(run(LATE), "races", line_of(LATE, "ld.shared.b32"), "reads what warp 1, lane 31 writes at line 24")
    findings = run(LATE.replace("[full], 0;", "[told], 0;"))
    assert [f for f in findings if UNSEEN not in f.message] == []


# Against all interleavings of small programs, tried one after the other.

Program = Sequence[Sequence[tuple[str, int, int]]]
"""Of each warp, what it does: ("arrive", object, 0), or ("wait", object, parity)."""


def kernel_of(warps: Program, counts: Sequence[int]) -> str:
    """A program as PTX. Objects take so many arrivals; the first lane arrives for its warp."""
    lines = [
        ".version 8.6", ".target sm_90a", ".address_size 64", ".visible .entry k() {",
        ".reg .pred %p, %first; .reg .b32 %t, %w; .reg .b64 %state; .shared .align 8 .b64 x[3];",
        "mov.u32 %t, %tid.x; shr.u32 %w, %t, 5; and.b32 %t, %t, 31; setp.eq.u32 %first, %t, 0;",
        "setp.eq.u32 %p, %w, 0; and.pred %p, %p, %first;",
    ]  # fmt: skip
    lines += [f"@%p mbarrier.init.shared.b64 [x+{8 * i}], {count};" for i, count in enumerate(counts)]
    lines.append("bar.sync 0;")
    lines += [f"setp.eq.u32 %p, %w, {w}; @%p bra W{w};" for w in range(len(warps))]
    for w, deeds in enumerate(warps):
        lines.append(f"W{w}:")
        for n, (deed, at, parity) in enumerate(deeds):
            test = f"L{w}_{n}: mbarrier.try_wait.parity.shared.b64 %p, [x+{8 * at}], {parity}; @!%p bra L{w}_{n};"
            lines.append(f"@%first mbarrier.arrive.shared.b64 %state, [x+{8 * at}];" if deed == "arrive" else test)
        lines.append("bra END;")
    return "\n".join([*lines, "END: ret; }"])


def always_alike(warps: Program, counts: Sequence[int]) -> bool:
    """Whether every interleaving ends, and each step of a warp finds its object in the same phase in all of them."""
    phases: dict[tuple[int, int], set[int]] = {}
    left = [((0,) * len(warps), tuple((0, count) for count in counts))]
    seen = set(left)
    while left:
        at, objects = left.pop()
        stuck = True
        for w, deeds in enumerate(warps):
            if at[w] == len(deeds):
                continue
            deed, which, parity = deeds[at[w]]
            phase, lacks = objects[which]
            if deed == "wait" and phase % 2 == parity:
                continue
            stuck = False
            phases.setdefault((w, at[w]), set()).add(phase)
            after = list(objects)
            if deed == "arrive":
                after[which] = (phase + 1, counts[which]) if lacks == 1 else (phase, lacks - 1)
            state = tuple(n + (i == w) for i, n in enumerate(at)), tuple(after)
            if state not in seen:
                seen.add(state)
                left.append(state)
        if stuck and any(n < len(deeds) for n, deeds in zip(at, warps, strict=True)):
            return False
    return all(len(one) == 1 for one in phases.values())


def drawn(source: random.Random) -> tuple[Program, Sequence[int]]:
    """A program of two or three warps, whose parities mostly take turns."""
    counts = [source.choice((1, 1, 2)) for _ in range(source.randint(1, 3))]
    warps: list[list[tuple[str, int, int]]] = []
    for _ in range(source.randint(2, 3)):
        parities, deeds = [0] * len(counts), list[tuple[str, int, int]]()
        for _ in range(source.randint(1, 5)):
            at = source.randrange(len(counts))
            if source.random() < 0.5:
                deeds.append(("arrive", at, 0))
            else:
                deeds.append(("wait", at, parities[at] ^ (source.random() < 0.2)))
                parities[at] ^= 1
        warps.append(deeds)
    return warps, counts


@pytest.mark.sampled(2)
@pytest.mark.parametrize("right", [True, False])
def test_one_run_says_what_all_interleavings_say(right: bool) -> None:
    source, tried = random.Random(), 0
    while tried < 12:
        warps, counts = drawn(source)
        if always_alike(warps, counts) == right:
            assert (run(kernel_of(warps, counts), 32 * len(warps)) == ()) == right, (warps, counts)
            tried += 1


# Our own pipelines.


@pytest.mark.sampled(8)
@pytest.mark.parametrize("product", shared_by_ctas()[:9], ids=str)
def test_own_pipelines_are_silent(product: Product) -> None:
    kernel, instance = product.compile("sm_90a"), problem(product, 5)
    done = kernel(*instance.arguments, device="interp", checks=ORDERS)
    assert not [note for note in done.notes if note.check == ORDERS and "are looked at" not in note.message]
    assert instance.wrong() == ""


def test_products_in_tensor_memory_are_silent() -> None:
    """Products arrive by `tcgen05.commit`; the epilogue of a tile runs beside the next one."""
    schedule = {"cta": (128, 64, 64), "mma": "m128n64k16", "ctas": 1}
    product = Product(Types("bf16", "bf16", "f32"), "cleared", "A B", (136, 72, 72), schedule)
    kernel, instance = product.compile("sm_100a"), problem(product, 5)
    assert not kernel(*instance.arguments, device="interp", checks=ORDERS).notes
    assert instance.wrong() == ""


def test_what_is_followed_is_bounded_and_said() -> None:
    (note,) = run(RING, ctas=30)
    assert (note.severity, note.check) == ("note", ORDERS)
    assert "all orders of the first 21 of 30 CTAs are looked at; the others are taken to be alike" in note.message


def test_what_arrives_when_nobody_looks_is_counted_at_the_end() -> None:
    """Two arrivals of `cp.async` at an object that takes one, and that no thread tests."""
    body = """mov.u32 %v, tile; @%lead cp.async.ca.shared.global [%v], [%data], 4;
    @%lead cp.async.mbarrier.arrive.noinc.shared.b64 [full];"""
    ptx = EXPECTS.replace("{body}", body).replace("{meet}", "")
    findings = run_launch(ptx, (1, 1, 1), (64, 1, 1), [np.arange(4, dtype=np.uint32)], checks=ORDERS)
    check_found(
        findings, ORDERS, line_of(ptx, "cp.async.mbarrier"), "can come while phase 0 of the mbarrier object at 0x100"
    )


# Drawn orders


MEET = """.shared .b32 words[96]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, words; add.u32 %r3, %r3, %r2;
mad.lo.u32 %r4, %r1, 7, 3; st.shared.u32 [%r3], %r4; {}
sub.u32 %r5, 95, %r1; shl.b32 %r5, %r5, 2; mov.u32 %r3, words; add.u32 %r3, %r3, %r5; ld.shared.u32 %r0, [%r3];"""


def words(body: str, seeds: Sequence[int]) -> set[bytes]:
    """What threads leave in %r0, by an order of each seed."""
    left: set[bytes] = set()
    for seed in seeds:
        with drawn_order(seed):
            left.add(per_thread(body, 96).tobytes())
    return left


def test_words_that_depend_on_the_order_of_warps() -> None:
    first = random.randrange(1 << 30)
    seeds = range(first, first + 8)
    assert words(MEET.format("bar.sync 0;"), seeds) == {(np.arange(96, dtype=np.uint32)[::-1] * 7 + 3).tobytes()}
    assert len(words(MEET.format(""), seeds)) > 1
    assert words(MEET.format(""), seeds[:1]) == words(MEET.format(""), seeds[:1])


def test_drawn_orders_of_a_ring_of_tensor_copies() -> None:
    """Without the wait for a free stage, a copy may land in one that is still read."""
    unasked, first, wrong = edited(text(), "@!%p bra FREE;", ""), random.randrange(1 << 30), 0
    for seed in range(first, first + 8):
        with drawn_order(seed):
            assert run_hopper(text(), checks=()) == ()
            try:
                wrong += run_hopper(unasked, checks=()) != ()
            except AssertionError:
                wrong += 1
    assert wrong
