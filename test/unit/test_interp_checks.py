"""Checks of a running kernel: bugs planted in our own matmul are found and named at their line; right ones are not."""

from __future__ import annotations

import numpy as np
import pytest
from planted import check_found, edited, line_of, pipelined, run_pipelined

REFILL = "cp.async.cg.shared.global [%r79]"
A_FIRST = "ldmatrix.sync.aligned.m8n8.x4.shared"


def test_the_right_kernel_is_silent() -> None:
    assert run_pipelined(pipelined()) == ()


@pytest.mark.parametrize(
    ("old", "new", "which", "at", "nth", "message"),
    [
        # A barrier left out: before the loop, other warps' copies are read; in the loop, reads are overwritten too.
        ("bar.sync 0;", "", 0, A_FIRST, 0, "race in shared memory: reads what warp"),
        ("bar.sync 0;", "", 1, A_FIRST, 2, "race in shared memory: reads what warp"),
        ("bar.sync 0;", "", 1, REFILL, 0, "copies over what warp"),
        # One group too many is left in flight.
        ("cp.async.wait_group 1;", "cp.async.wait_group 2;", 0, A_FIRST, 0, "which has not been waited for"),
        ("cp.async.wait_group 1;", "cp.async.wait_group 2;", 1, A_FIRST, 2, "which has not been waited for"),
        ("cp.async.commit_group;", "", 0, A_FIRST, 0, "which has not been waited for"),
        ("cp.async.wait_group 1;", "", 0, A_FIRST, 0, "which has not been waited for"),
        # The wrong stage: the one that is being read, or one too few.
        ("shl.b32 %r78, %r65, 11;", "shl.b32 %r78, %r64, 11;", 0, REFILL, 0, "reads at line"),
        ("setp.eq.s32 %p1, %r82, 3;", "setp.eq.s32 %p1, %r82, 2;", 0, A_FIRST, 2, "which has not been waited for"),
    ],
)  # fmt: skip
def test_races_of_a_pipeline(old: str, new: str, which: int, at: str, nth: int, message: str) -> None:
    text = edited(pipelined(), old, new, which)
    found = run_pipelined(text)
    check_found(found, "races", line_of(text, at, nth), message, address=True)


def test_unwaited_data_is_uninitialised_too() -> None:
    text = edited(pipelined(), "cp.async.wait_group 1;", "")
    found = run_pipelined(text, checks="uninitialised")
    check_found(found, "uninitialised", line_of(text, A_FIRST), "which has not been waited for", address=True)
    assert {f.check for f in found} == {"uninitialised"}


def test_an_uninitialised_accumulator() -> None:
    text = edited(pipelined(), "ld.global.v2.f32 {%f2, %f3}", "ld.global.v2.f32 {%f0, %f1}")
    (first, second) = found = run_pipelined(text)
    line = line_of(text, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0")
    assert (first.line, second.line) == (line, line)
    check_found(found, "uninitialised", line, "%f2 is read before it is written")
    check_found(found, "uninitialised", line, "%f3 is read before it is written")
    assert first.count == 512


def test_an_uninitialised_register_is_named_where_its_value_is_used() -> None:
    text = edited(pipelined(), "mov.b32 %r63, 0;", "")
    found = run_pipelined(text)
    read = line_of(text, "setp.lt.s32 %p0, %r63, 64;")
    check_found(found, "uninitialised", line_of(text, REFILL), f"read at line {read} before")


def test_shared_memory_that_nobody_wrote() -> None:
    text = edited(pipelined(), "cp.async.cg.shared.global [%r34], [%rd24], 16;", "")
    found = run_pipelined(text)
    line = line_of(text, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r59")
    first = check_found(found, "uninitialised", line, "read before anything is written", address=True)
    assert first.cta == (0, 0, 0)
    assert first.address == 6144


@pytest.mark.parametrize(
    ("old", "new", "at", "message", "address"),
    [
        ("[%r51];", "[%r51+8];", "[%r51+8];", "misaligned shared access", True),
        ("[%r79]", "[%r79+4]", "[%r79+4]", "misaligned shared access", True),
        ("st.global.v2.f32 [%rd13+32]", "st.global.v2.f32 [%rd13+36]", "[%rd13+36]", "misaligned global access", True),
        ("st.global.v2.f32 [%rd13+2080]", "st.global.v2.f32 [%rd13+9000]", "[%rd13+9000]", "out of bounds", True),
        ("shl.b32 %r84, %r83, 11;", "shl.b32 %r84, %r83, 13;", "[%r86];", "shared access out of bounds", True),
        ("bar.sync 0;", "bar.sync 0, 256;", "bar.sync 0, 256;", "deadlock", False),
    ],
)  # fmt: skip
def test_faults_end_the_launch_and_are_findings(old: str, new: str, at: str, message: str, address: bool) -> None:
    text = edited(pipelined(), old, new)
    found = run_pipelined(text)
    last = check_found(found[-1:], "fault", line_of(text, at), message, address=address, thread=address)
    assert last.cta is not None


def test_names_of_checks() -> None:
    from warploom.runtime import ArgumentError
    from warploom.runtime.interp.checks import CHECKS, chosen

    assert chosen("all") == tuple(CHECKS)
    assert chosen("races,uninit") == ("races", "uninitialised")
    assert chosen(["uninitialised", "races", "r"]) == ("uninitialised", "races")
    for bad in ("", "speed", "races,", ["all", "x"]):
        with pytest.raises(ArgumentError, match="expected checks among"):
            chosen(bad)
    with pytest.raises(ArgumentError, match="expected checks among"):
        run_pipelined(pipelined(), checks="nothing")


def test_results_are_written_although_something_was_found() -> None:
    from warploom.runtime import load_ptx
    from warploom.runtime.interp.checks import CheckError

    text = edited(pipelined(), "bar.sync 0;", "", 1)
    a, b = (np.random.default_rng().standard_normal(s).astype(np.float16) for s in ((64, 128), (128, 64)))
    c = np.zeros((64, 64), np.float32)
    with pytest.raises(CheckError, match="race in shared memory"):
        load_ptx(text).launch("matmul", 4, 128, [a, b, c], shared=12288, checks=["races"])
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-3, atol=1e-3)
