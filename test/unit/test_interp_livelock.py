"""Launches in which threads poll memory that nobody will write end with who waits for what; others run to their end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from interpreted import program
from seeded_bugs import check_found

from warploom.runtime.interp import InterpreterError
from warploom.runtime.interp.machine.memory import Finding

HEAD = """mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; ld.param.u64 %rd1, [p]; setp.eq.u32 %p0, %r1, 0; mov.u32 %r9, 7;
.shared .align 4 .u32 flag; .shared .align 8 .b64 object;"""
FIRST = 8


def run(body: str, grid: int = 1, block: int = 64, words: int = 4, **options: Any) -> tuple[Finding, ...]:
    """What ends a launch; lines of the body are counted from 8."""
    built = program(f"{HEAD}\n{body}", ".param .u64 p", module=".global .align 4 .u32 lock;")
    try:
        built.launch("k", (grid, 1, 1), (block, 1, 1), [np.zeros(words, np.uint32)], **options)
    except InterpreterError as error:
        return error.findings
    return ()


START = "livelock: every thread left waits for what none of them will do; "
POLL = "\nW: ld.acquire.gpu.global.u32 %r5, [%rd1+8]; setp.eq.u32 %p1, %r5, 0; @%p1 bra W;"
LOCK = "\nW: atom.global.cas.b32 %r5, [lock], 0, 1; setp.ne.u32 %p1, %r5, 0; @%p1 bra W;"
SHARED = """@%p0 st.shared.u32 [flag], %r9; bar.sync 0;
W: ld.volatile.shared.u32 %r5, [flag]; setp.eq.u32 %p1, %r5, %r9; @%p1 bra W;"""
WAYS = """and.b32 %r7, %r1, 1; setp.eq.u32 %p2, %r7, 0;
W: @%p2 bra ODD; ld.volatile.global.u32 %r5, [%rd1]; bra BOTH;
ODD: ld.volatile.global.u32 %r5, [%rd1+4];
BOTH: setp.eq.u32 %p1, %r5, 0; @%p1 bra W;"""


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("body", "grid", "message"),
    [
        (POLL, 3,
            "warps 0-1 read byte 8 of argument 0 (p, 4 uint32), where 0 is, at line 9 (ld.acquire.gpu.global.u32) "
            "again and again; 2 other CTAs do not go on either"),
        (f"@!%p0 bra IN;{LOCK}\nIN: bar.sync 0;", 2,
            "warps 0 read byte 0 of variable lock, where 1 is, at line 9 (atom.global.cas.b32) again and again; "
            "warps 0-1 wait at line 10 (bar.sync)"),
        (SHARED, 1, "warps 0-1 read shared memory at 0x0, where 7 is, at line 9 (ld.volatile.shared.u32) again"),
        (f"setp.ge.u32 %p2, %r1, 32; @%p2 bra IN;{POLL}\nIN: bar.sync 0;", 1,
            "again and again; warps 1 wait at line 10 (bar.sync)"),
        (f"@%p0 mbarrier.init.shared.b64 [object], 1; bar.sync 0; setp.ge.u32 %p2, %r1, 32; @%p2 bra IN;{POLL}\n"
            "IN: mbarrier.try_wait.parity.shared.b64 %p3, [object], 0; @!%p3 bra IN;", 1, "where 0 is, at line 9"),
        # A loop that polls nothing, and one that waits longer from round to round, up to a limit.
        ("\nW: bra W;", 1, "warps 0-1 go round in a loop at line 9"),
        ("mov.u32 %r6, 1;\nW: ld.relaxed.gpu.global.u32 %r5, [%rd1]; nanosleep.u32 %r6; shl.b32 %r6, %r6, 1; "
            "min.u32 %r6, %r6, 64; setp.eq.u32 %p1, %r5, 0; @%p1 bra W;", 1, "where 0 is, at line 9"),
        # Different ways through the loop.
        (WAYS, 1, "where 0 is, at line 10 (ld.volatile.global.u32) again and again"),
    ],
)  # fmt: skip
def test_what_nobody_will_write_is_not_polled_for_ever(body: str, grid: int, message: str) -> None:
    (one,) = run(body, grid)
    assert one.message.startswith(START)
    assert message in one.message
    assert (one.check, one.cta is not None) == ("fault", True)


def test_findings_come_with_a_livelock() -> None:
    body = SHARED.replace("bar.sync 0;", "")
    findings = run(body, checks="races")
    check_found(findings, "races", FIRST + 1, "reads what warp 0, lane 0 writes")
    check_found(findings, "fault", FIRST + 1, START, thread=False)


COUNT = "@%p0 red.release.gpu.global.add.u32 [%rd1+8], 1; mov.u32 %r6, %nctaid.x;\n{late}"
COUNT += "W: ld.acquire.gpu.global.u32 %r5, [%rd1+8]; setp.lt.u32 %p1, %r5, %r6; @%p1 bra W;"


def test_a_grid_of_which_not_all_ctas_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the first CTAs wait for those that begin when they end."""
    monkeypatch.setattr("warploom.runtime.interp.program.IN_FLIGHT_WARPS", 8)
    assert run(COUNT.format(late=""), 4) == ()
    (one,) = run(COUNT.format(late=""), 9)
    assert "where 4 is, at line 9" in one.message
    assert "3 other CTAs do not go on either; 5 of the grid's CTAs begin when these have ended" in one.message


LATE = "mov.u32 %r7, 0; L: add.u32 %r7, %r7, 1; setp.lt.u32 %p2, %r7, {}; @%p2 bra L;"


OTHERS = f"setp.lt.u32 %p2, %r1, 32; @%p2 bra GO;{POLL} bra END;\nGO: {LATE.format(30_000)} "
GIVE_UP = "setp.eq.u32 %p3, %r6, 9000; @%p3 bra END; setp"
IN_MEMORY = """setp.ne.u32 %p2, %r1, 0; @%p2 bra END;
W: atom.global.add.u32 %r5, [%rd1], 1; setp.lt.u32 %p1, %r5, 9000; mov.u32 %r5, 0; @%p1 bra W;
END:"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "body",
    [
        f"{OTHERS} st.release.gpu.u32 [%rd1+8], 1;\nEND:",
        f"mov.u32 %r6, 0;{POLL.replace('setp', f'add.u32 %r6, %r6, 1; {GIVE_UP}')}\nEND:",
        f"{POLL.replace('setp', f'mov.u32 %r6, %clock; {GIVE_UP}').replace('eq.u32 %p3', 'gt.u32 %p3')}\nEND:",
        IN_MEMORY,
    ],
    ids=["others", "rounds", "time", "memory"],
)
def test_loops_that_end(body: str) -> None:
    """Polls for what others do after all, that give up after some rounds or time, or that count in memory."""
    assert run(body) == ()
