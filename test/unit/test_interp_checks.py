"""Checks of a running kernel: bugs planted in our own matmul are found and named at their line; right ones are not."""

from __future__ import annotations

import numpy as np
import pytest
from interpreted import program
from seeded_bugs import check_found, edited, line_of, pipelined, run, run_pipelined

from warploom.runtime.interp import InterpreterError
from warploom.runtime.interp.machine.memory import Finding

REFILL = "cp.async.cg.shared.global [%r79]"
A_FIRST = "ldmatrix.sync.aligned.m8n8.x4.shared"


def test_the_right_kernel_is_silent() -> None:
    assert run_pipelined(pipelined()) == ()


@pytest.mark.sampled(6)
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
    findings = run_pipelined(text)
    check_found(findings, "races", line_of(text, at, nth), message, address=True)


def test_unwaited_data_is_uninitialised_too() -> None:
    text = edited(pipelined(), "cp.async.wait_group 1;", "")
    findings = run_pipelined(text, checks="uninitialised")
    check_found(findings, "uninitialised", line_of(text, A_FIRST), "which has not been waited for", address=True)
    assert {f.check for f in findings} == {"uninitialised"}


def test_an_uninitialised_accumulator() -> None:
    text = edited(pipelined(), "ld.global.v2.f32 {%f2, %f3}", "ld.global.v2.f32 {%f0, %f1}")
    (first, second) = findings = run_pipelined(text)
    line = line_of(text, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0")
    assert (first.line, second.line) == (line, line)
    check_found(findings, "uninitialised", line, "%f2 is read before it is written")
    check_found(findings, "uninitialised", line, "%f3 is read before it is written")
    assert first.count == 512


def test_an_uninitialised_register_is_named_where_its_value_is_used() -> None:
    text = edited(pipelined(), "mov.b32 %r63, 0;", "")
    findings = run_pipelined(text)
    read = line_of(text, "setp.lt.s32 %p0, %r63, 64;")
    check_found(findings, "uninitialised", line_of(text, REFILL), f"read at line {read} before")


def test_shared_memory_that_nobody_wrote() -> None:
    text = edited(pipelined(), "cp.async.cg.shared.global [%r34], [%rd24], 16;", "")
    findings = run_pipelined(text)
    line = line_of(text, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r59")
    message = f"%r59 comes from shared memory at 0x1800, which is read at line {line} before it is written"
    at = next(f.line for f in findings if message in f.message)
    assert "mma.sync" in text.splitlines()[at - 1]
    first = check_found(findings, "uninitialised", at, message)
    assert first.cta == (0, 0, 0)


SHARED = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p) {{ .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<16>; .reg .b64 %rd<4>;
.shared .align 16 .b8 tile[1024]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 4; mov.u32 %r3, tile; add.u32 %r3, %r3, %r2;
ld.param.u64 %rd1, [p]; mad.wide.u32 %rd1, %r1, 4, %rd1; setp.lt.u32 %p1, %r1, 8; mov.u32 %r12, 0;
@%p1 st.shared.v4.b32 [%r3], {{%r1, %r1, %r1, %r1}}; bar.sync 0; setp.ge.u32 %p2, %r1, 8;
{load}
{use}
ret; }}
"""


def unwritten(load: str, use: str) -> tuple[Finding, ...]:
    """What is found where lanes 0 to 7 of a warp have written 16 bytes each; the use is at line 9."""
    return run(SHARED.format(load=load, use=use), (1,), (32,), [np.zeros(32, np.uint32)])


PREFETCH = "ld.shared.v2.b32 {%r4, %r5}, [%r3];"
MATRICES = "ldmatrix.sync.aligned.m8n8.x2{trans}.shared.b16 {{%r4, %r5}}, [%r3];"
STORE = "st.global.b32 [%rd1], {};"


@pytest.mark.parametrize(
    "use",
    [
        "", "add.u32 %r6, %r4, %r5;", "@%p1 " + STORE.format("%r5"), "mov.u32 %r4, %r1; " + STORE.format("%r4"),
        "selp.b32 %r6, %r4, %r1, %p1; " + STORE.format("%r6"),
    ],
)  # fmt: skip
def test_what_a_prefetch_reads_may_be_unwritten_if_nobody_uses_it(use: str) -> None:
    assert unwritten(PREFETCH, use) == ()
    assert unwritten(MATRICES.format(trans=""), use.replace("%r5", "%r4") if "@%p1" in use else use) == ()


@pytest.mark.parametrize(
    ("use", "register"),
    [
        (STORE.format("%r5"), "%r5"),
        (f"add.u32 %r6, %r4, 1; {STORE.format('%r6')}", "%r6"),
        ("and.b32 %r6, %r4, 4; add.u32 %r6, %r6, %r3; ld.shared.b32 %r7, [%r6];", "%r6"),
        ("setp.eq.u32 %p3, %r4, 77; @%p3 bra END; END:", "%p3"),
        ("@%p2 st.shared.b32 [%r3], %r5;", "%r5"),
    ],
)
def test_what_is_read_unwritten_is_found_where_it_is_used(use: str, register: str) -> None:
    message = f"{register} comes from shared memory at 0x80, which is read at line 8 before it is written"
    one = check_found(unwritten(PREFETCH, use), "uninitialised", 9, message)
    assert (one.lane, one.count) == (8, 24)


def test_matrices_of_which_some_rows_are_unwritten() -> None:
    """The second matrix, whose rows lanes 8 to 15 name; of its transposed one, where lanes 8 to 11 have written."""
    message = "{} comes from shared memory at {}, which is read at line 8 before it is written"
    findings = unwritten(MATRICES.format(trans=""), f"{STORE.format('%r4')} {STORE.format('%r5')}")
    one = check_found(findings, "uninitialised", 9, message.format("%r5", "0x80"))
    assert (one.count, len(findings)) == (32, 1)
    more = "setp.lt.u32 %p3, %r1, 12; @%p3 st.shared.v4.b32 [%r3], {%r1, %r1, %r1, %r1}; bar.sync 0; "
    findings = unwritten(more + MATRICES.format(trans=""), STORE.format("%r5"))
    one = check_found(findings, "uninitialised", 9, message.format("%r5", "0xc0"))
    assert (one.lane, one.count) == (16, 16)
    findings = unwritten(more + MATRICES.format(trans=".trans"), STORE.format("%r5"))
    one = check_found(findings, "uninitialised", 9, message.format("%r5", "0xc0"))
    assert (one.lane, one.count) == (2, 16)


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
    findings = run_pipelined(text)
    last = check_found(findings[-1:], "fault", line_of(text, at), message, address=address, thread=address)
    assert last.cta is not None


def test_names_of_checks() -> None:
    from warploom.runtime import ArgumentError
    from warploom.runtime.interp.watch.checks import CHECKS, chosen

    assert chosen("all") == tuple(CHECKS)
    assert chosen("races,uninit") == ("races", "uninitialised")
    assert chosen("races,strict") == ("races", "strict")
    assert chosen("strict") == chosen("strict,all") == (*CHECKS, "strict")
    assert chosen(["uninitialised", "races", "r"]) == ("uninitialised", "races")
    for bad in ("", "speed", "races,", ["all", "x"]):
        with pytest.raises(ArgumentError, match="expected checks among"):
            chosen(bad)
    with pytest.raises(ArgumentError, match="expected checks among"):
        run_pipelined(pipelined(), checks="nothing")


def test_results_are_written_although_something_was_found() -> None:
    from warploom.runtime import load_ptx
    from warploom.runtime.interp.watch.findings import CheckError

    text = edited(pipelined(), "bar.sync 0;", "", 1)
    a, b = (np.random.default_rng().standard_normal(s).astype(np.float16) for s in ((64, 128), (128, 64)))
    c = np.zeros((64, 64), np.float32)
    with pytest.raises(CheckError, match="race in shared memory"):
        load_ptx(text).launch("matmul", 4, 128, [a, b, c], shared=12288, checks=["races"])
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-3, atol=1e-3)


# Faults in every state space, with all fields


@pytest.mark.parametrize(
    ("statement", "message", "address"),
    [
        ("ld.shared.u32 %r3, [tile+64];", "shared access out of bounds: 4 bytes at address 0x40, of 64 bytes", 0x40),
        ("ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [tile+8];", "misaligned shared access: address 0x8", 8),
        ("st.shared.v2.u32 [tile+4], {%r1, %r1};", "misaligned shared access: address 0x4", 4),
        ("atom.shared.add.u64 %rd3, [tile+4], 1;", "misaligned shared access: address 0x4", 4),
        ("red.shared.add.u32 [tile+62], 1;", "shared access out of bounds", 62),
        ("ld.local.u32 %r3, [own+16];", "local access out of bounds: 4 bytes at address 0x10, of 16 bytes", 16),
        ("st.local.u32 [own+2], %r1;", "misaligned local access: address 0x2", 2),
        ("ld.param.u32 %r3, [p+8];", "param access out of bounds", 8),
        ("ld.global.u32 %r3, [%rd1+1024];", "at byte 1024 of argument 0 (p, 256 float32)", (1 << 36) + 1024),
        ("ld.u32 %r3, [%rd1+2];", "misaligned global access", (1 << 36) + 2),
        ("atom.global.add.f32 %f1, [%rd1+-4], 0f3F800000;", "4 bytes before argument 0", (1 << 36) - 4),
        ("ld.const.u32 %r3, [table+16];", "at byte 16 of variable table", None),
        ("cp.async.ca.shared.global [tile+2], [%rd1], 4;", "misaligned shared access: address 0x2", 2),
        ("cp.async.ca.shared.global [tile], [%rd1+2], 4;", "misaligned global access", (1 << 36) + 2),
        ("cp.async.cg.shared.global [tile+56], [%rd1], 16;", "shared access out of bounds", 56),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [tile+8];", "misaligned shared access", 8),
        ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [tile+64], {%r1};", "shared access out of bounds", 64),
        ("ld.shared.u32 %r3, [tile+-4];", "shared access out of bounds", None),
    ],
)
def test_faults_in_every_space(statement: str, message: str, address: int | None) -> None:
    body = f""".shared .align 16 .b8 tile[64]; .local .align 4 .b8 own[16];
mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [p];
{statement}"""
    built = program(body, ".param .u64 p", module=".const .align 4 .b8 table[16];")
    with pytest.raises(InterpreterError) as caught:
        built.launch("k", (1, 1, 1), (32, 1, 1), [np.zeros(256, np.float32)])
    (one,) = caught.value.findings
    assert message in one.message
    assert (one.check, one.file, one.line, one.kernel) == ("fault", "k.ptx", 8, "k")
    assert (one.cta, one.warp, one.lane) == ((0, 0, 0), 0, 0)
    assert one.address is not None
    assert address is None or one.address in (address, address + (1 << 36))
    assert str(caught.value) == str(one)


@pytest.mark.parametrize(("packed", "data"), [("b4x16_p64", 8), ("b6x16_p32", 12)])
@pytest.mark.parametrize("missing", [0, 4])
def test_padding_of_packed_rows_may_be_anything(packed: str, data: int, missing: int) -> None:
    """Eight lanes write the data of a row each; where a word of it lacks, it is found."""
    stores = " ".join(f"@%p0 st.shared.b32 [%r1+{at}], %r0;" for at in range(0, data - missing, 4))
    text = f""".version 8.7
.target sm_120a
.address_size 64
.visible .entry k() {{ .reg .pred %p0; .reg .b32 %r<4>; .shared .align 16 .b8 rows[128], to[128];
mov.u32 %r0, %tid.x; mov.u32 %r1, rows; mad.lo.u32 %r1, %r0, 16, %r1; setp.lt.u32 %p0, %r0, 8;
{stores}
bar.sync 0;
ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.{packed} {{%r2}}, [%r1];
st.shared.b32 [to], %r2;
}}
"""
    findings = run(text, (1,), (32,), [])
    assert len(findings) == bool(missing)
    if missing:
        message = f"which is read at line {line_of(text, 'ldmatrix')} before it is written"
        check_found(findings, "uninitialised", line_of(text, "[to], %r2"), message)
