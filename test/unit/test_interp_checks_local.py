"""Checks of variables in shared and local memory: overruns from one into the next, local memory that nobody wrote."""

from __future__ import annotations

import pytest
from interpreted import program
from seeded_bugs import check_found

from warploom.runtime.interp import InterpreterError
from warploom.runtime.interp.machine.memory import Finding

HEAD = """.shared .align 16 .b8 first[128]; .shared .align 16 .b8 second[128]; {own}
mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, first; add.u32 %r4, %r3, %r2; mov.u32 %r5, second;"""
HEAD = HEAD.format(own=".local .align 16 .b8 own[32]; .local .align 16 .b8 more[32];")
FIRST = 8
MODULE = (
    ".func (.reg .b32 %out) sum(.param .align 4 .b8 pair[8]) { .reg .b32 %x<2>; "
    "ld.param.u32 %x0, [pair]; ld.param.u32 %x1, [pair+4]; add.u32 %out, %x0, %x1; }"
)


def run(body: str, checks: str = "all", threads: int = 32) -> tuple[Finding, ...]:
    """Lines of the body are counted from 8."""
    try:
        program(f"{HEAD}\n{body}", module=MODULE).launch("k", (2, 1, 1), (threads, 1, 1), [], checks=checks)
    except InterpreterError as error:
        return error.findings
    return ()


# Bounds


@pytest.mark.parametrize(
    "body",
    [
        "st.shared.u32 [%r4], %r1; st.shared.u32 [second+124], %r1;",
        "add.u32 %r6, %r5, %r2;\nst.shared.u32 [%r6], %r1; sub.u32 %r6, %r6, %r2; st.shared.u32 [%r6+124], %r1;",
        # Either of two variables: an access to one of them is right.
        "setp.lt.u32 %p1, %r1, 16; selp.b32 %r6, %r3, %r5, %p1; add.u32 %r6, %r6, %r2; st.shared.u32 [%r6], %r1;",
        # What comes from memory leads anywhere.
        "add.u32 %r6, %r5, %r2; st.shared.u32 [%r4], %r6; bar.warp.sync -1;\nld.shared.u32 %r7, [%r4]; "
        "st.shared.u32 [%r7], %r1; add.u32 %r8, %r7, 0; st.shared.u32 [%r8], %r1;",
        # An index that was loaded is no address.
        "st.shared.u32 [%r4], %r2; ld.shared.u32 %r7, [%r4]; add.u32 %r7, %r5, %r7; st.shared.u32 [%r7], %r1;",
        "mov.u64 %rd1, second; cvta.shared.u64 %rd1, %rd1; mad.wide.u32 %rd1, %r1, 4, %rd1; st.u32 [%rd1], %r1;",
        "mov.u64 %rd1, own; st.local.v4.u32 [%rd1+16], {%r1, %r1, %r1, %r1}; st.local.u32 [more+28], %r1;",
        # Of a register that has a number elsewhere nothing is known, whatever the other addresses of the instruction.
        "mov.u32 %r6, 3; mov.u32 %r6, %r3; add.u32 %r7, %r5, %r2; st.shared.u32 [%r7], %r1; bar.sync 0;\n"
        "fence.proxy.async; setp.eq.u32 %p1, %r1, 0;"
        "@%p1 mbarrier.init.shared.b64 [second], 1; @%p1 mbarrier.arrive.expect_tx.shared.b64 %rd2, [second], 32;\n"
        "@%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r6], [second+32], 32, [second];",
        # Threads of a loop over an array.
        "mov.u32 %r6, %r5; mov.u32 %r7, 0;\nLOOP: st.shared.u8 [%r6], %r1; add.u32 %r6, %r6, 1; add.u32 %r7, %r7, 1;\n"
        "setp.lt.u32 %p1, %r7, 128; @%p1 bra LOOP;",
    ],
)
def test_accesses_inside_of_their_variable_are_silent(body: str) -> None:
    assert run(body, "bounds,uninit") == ()


@pytest.mark.parametrize(
    ("body", "line", "message", "count"),
    [
        ("\nst.shared.u32 [first+128], %r1;", 1, "4 bytes at byte 128 of first, beyond the variable", 64),
        ("add.u32 %r6, %r4, 4;\nst.shared.u32 [%r6], %r1;", 1, "computed from, first (128 bytes)", 2),
        ("add.u32 %r6, %r5, %r2;\nld.shared.u32 %r7, [%r6+-4];", 1, "4 bytes 4 bytes before it", 2),
        (
            "mov.u64 %rd1, first; cvta.shared.u64 %rd1, %rd1; mad.wide.u32 %rd1, %r1, 8, %rd1;\nst.u32 [%rd1], %r1;",
            1, "at byte 128 of first", 32,
        ),
        (
            "mov.u32 %r6, %r3; mov.u32 %r7, 0;\nLOOP: st.shared.u8 [%r6], %r1; add.u32 %r6, %r6, 1;\n"
            "add.u32 %r7, %r7, 1; setp.le.u32 %p1, %r7, 128; @%p1 bra LOOP;",
            1, "1 bytes at byte 128 of first", 64,
        ),
        ("mov.u64 %rd1, own;\nst.local.u32 [%rd1+32], %r1;", 1, "at byte 32 of own, beyond the variable", 64),
        ("\nst.local.v2.u32 [own+40], {%r1, %r1};", 1, "8 bytes at byte 40 of own", 64),
        ("\natom.shared.add.u32 %r7, [%r3+132], 1;", 1, "at byte 132 of first", 64),
    ],
)  # fmt: skip
def test_overruns_into_the_next_variable_are_found(body: str, line: int, message: str, count: int) -> None:
    finding = check_found(run(body, "bounds"), "bounds", FIRST + line, message, address=True)
    assert finding.count == count


# Local memory that nobody wrote


@pytest.mark.parametrize(
    "body",
    [
        "st.local.u32 [own+4], %r1; ld.local.u32 %r6, [own+4]; st.shared.u32 [%r4], %r6;",
        # Half of what is loaded is written, and used.
        "st.local.v2.u32 [own], {%r1, %r1}; ld.local.v4.u32 {%r6, %r7, %r8, %r9}, [own]; add.u32 %r8, %r8, %r9;\n"
        "st.shared.u32 [%r4], %r7;",
        "mov.u64 %rd1, own; cvta.local.u64 %rd1, %rd1; st.u32 [%rd1+8], %r1; ld.u32 %r6, [%rd1+8];\n"
        "st.shared.u32 [%r4], %r6;",
        ".param .align 4 .b8 pair[8]; st.param.u32 [pair], %r1; st.param.u32 [pair+4], %r2; call (%r6), sum, (pair);\n"
        "st.shared.u32 [%r4], %r6;",
        "setp.lt.u32 %p1, %r1, 9; @%p1 st.local.u32 [own], %r1; @%p1 ld.local.u32 %r6, [own];\n"
        "@%p1 st.shared.u32 [%r4], %r6;",
    ],
)
def test_local_memory_that_was_written_is_silent(body: str) -> None:
    assert run(body) == ()


@pytest.mark.parametrize(
    ("body", "line", "register", "count"),
    [
        ("ld.local.u32 %r6, [own+4];\nst.shared.u32 [%r4], %r6;", 1, "%r6", 64),
        (
            "st.local.u16 [own], %r1;\nld.local.u32 %r6, [own];\nadd.u32 %r7, %r6, 1;\nst.shared.u32 [%r4], %r7;",
            3, "%r7", 64,
        ),
        (
            "st.local.u32 [own], %r1;\nld.local.v2.u32 {%r6, %r7}, [own];\nst.shared.v2.u32 [first], {%r6, %r7};",
            2, "%r7", 64,
        ),
        (
            "setp.lt.u32 %p1, %r1, 9; @%p1 st.local.u32 [own], %r1;\n"
            "ld.local.u32 %r6, [own];\nst.shared.u32 [%r4], %r6;",
            2, "%r6", 46,
        ),
        ("ld.local.u32 %r6, [own];\nsetp.eq.u32 %p1, %r6, 0;\n@%p1 st.shared.u32 [%r4], %r1;", 2, "%p1", 64),
    ],
)  # fmt: skip
def test_local_memory_that_nobody_wrote(body: str, line: int, register: str, count: int) -> None:
    read = FIRST + body.split("\n").index(next(text for text in body.split("\n") if "ld.local" in text))
    message = f"{register} comes from local memory, which is read at line {read} before it is written"
    finding = check_found(run(body, "uninitialised"), "uninitialised", FIRST + line, message)
    assert finding.count == count
