"""Races in global memory between tensor copies and what other CTAs do there, planted at a line; the right kernels are
silent."""

from __future__ import annotations

import numpy as np
import pytest
from seeded_bugs import check_found

from warploom.runtime import TensorMap, load_ptx
from warploom.runtime.interp import InterpreterError
from warploom.runtime.interp.machine.memory import Finding

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 p, .param .u64 flags) {
.shared .align 1024 .b8 tile[1024]; .shared .align 8 .b64 done; .reg .pred %first, %zero, %one, %p, %lead;
.reg .b32 %t, %cta, %x, %y; .reg .b64 %map, %data, %flags, %at;
mov.u32 %t, %tid.x; mov.u32 %cta, %ctaid.x; setp.eq.u32 %zero, %cta, 0; setp.ne.u32 %one, %cta, 0;
mov.b64 %map, map; cvta.param.u64 %map, %map; ld.param.u64 %data, [p]; ld.param.u64 %flags, [flags];
setp.eq.u32 %first, %t, 0; mul.wide.u32 %at, %t, 4; add.s64 %at, %at, %data; mov.u32 %y, 0;
@%first mbarrier.init.shared::cta.b64 [done], 1; fence.proxy.async; bar.sync 0;
"""
FIRST = HEAD.count("\n") + 1

LOAD = """@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [done], 1024;
@%first cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%map, {0, 0}], [done];
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p, [done], 0; @!%p bra WAIT;"""
STORE = """@%first st.shared.b32 [tile], %cta; fence.proxy.async; bar.sync 0;
@%first cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {0, 0}], [tile];
@%first cp.async.bulk.commit_group; @%first cp.async.bulk.wait_group 0;"""
REDUCE = STORE.replace(
    "cp.async.bulk.tensor.2d.global.shared::cta", "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add"
)
TELL = "fence.proxy.async; membar.gl; bar.sync 0; @%first st.release.gpu.global.b32 [%flags], 1;"
HEAR = """HEAR: @%first ld.acquire.gpu.global.b32 %y, [%flags]; setp.eq.and.u32 %lead, %y, 0, %first; @%lead bra HEAR;
bar.sync 0; fence.proxy.async;"""
OTHER = "st.global.b32 [%at], %t;"


def run(zero: str, other: str, before: str = "") -> tuple[Finding, ...]:
    """What is found where CTA 0 does one thing and CTA 1 the other, from line `FIRST` on; both do what is `before`."""
    body = f"{before}\n@%one bra OTHER;\n{zero}\nbra END;\nOTHER:\n{other}\nEND: ret; }}\n"
    data, flags = np.zeros((16, 16), np.int32), np.zeros(4, np.int32)
    args = [TensorMap(data, (16, 16)), data, flags]
    try:
        module = load_ptx(HEAD + body, "k.ptx")
        return module.launch("k", 2, 64, args, device="interp", checks="races", max_steps=50_000).notes
    except InterpreterError as error:
        return error.findings


ZERO = FIRST + 2


def other_after(zero: str) -> int:
    """The line at which CTA 1 begins."""
    return ZERO + zero.count("\n") + 3


RACE = "race in global memory: "
ISSUER = "CTA (0, 0, 0), warp 0, lane 0"


@pytest.mark.parametrize(
    ("copy", "message"),
    [
        (LOAD, f"{RACE}writes over what {ISSUER} reads at line {ZERO + 1}"),
        (STORE, f"{RACE}writes another value than {ISSUER} writes at line {ZERO + 1}"),
        (REDUCE, f"{RACE}writes another value than {ISSUER} writes at line {ZERO + 1}"),
    ],
)
def test_stores_where_another_cta_copies(copy: str, message: str) -> None:
    check_found(run(copy, OTHER), "races", other_after(copy), message)


@pytest.mark.parametrize(
    ("first", "copy", "message"),
    [
        (OTHER, LOAD, f"{RACE}reads what {ISSUER} writes at line {ZERO}"),
        (OTHER, STORE, f"{RACE}writes another value than {ISSUER} writes at line {ZERO}"),
        (OTHER, REDUCE, f"{RACE}writes what {ISSUER} writes at line {ZERO}"),
        ("ld.global.b32 %x, [%at];", STORE, f"{RACE}writes over what {ISSUER} reads at line {ZERO}"),
        ("ld.global.b32 %x, [%at];", REDUCE, f"{RACE}writes over what {ISSUER} reads at line {ZERO}"),
    ],
)
def test_copies_where_another_cta_reads_or_stores(first: str, copy: str, message: str) -> None:
    check_found(run(first, copy), "races", other_after(first) + 1, message)


@pytest.mark.parametrize("copy", [LOAD, STORE, REDUCE])
def test_copies_behind_a_flag_are_silent(copy: str) -> None:
    assert run(f"{OTHER}\n{TELL}", f"{HEAR}\n{copy}") == ()
    assert run(f"{copy}\n{TELL}", f"{HEAR}\nld.global.b32 %x, [%at];") == ()


def test_copies_of_two_ctas() -> None:
    """Loads never race, reductions update, stores of one box do; where they store the same it is a note."""
    assert run("", "", LOAD) == ()
    assert run("", "", REDUCE) == ()
    check_found(run("", "", STORE), "races", FIRST + 1, f"{RACE}writes another value than {ISSUER}")
    (note,) = run("", "", STORE.replace("[tile], %cta", "[tile], 7"))
    assert (note.severity, note.count, note.line) == ("note", 64, FIRST + 1)


OWN = "@%zero st.global.b32 [%at], %t; {fence} bar.sync 0;"


@pytest.mark.parametrize("fence", ["", "membar.gl;", "fence.proxy.async.shared::cta;"])
def test_a_load_of_what_its_own_cta_stored(fence: str) -> None:
    """A barrier orders the threads; the copy reads by another way all the same."""
    findings = run(LOAD, "", OWN.format(fence=fence))
    check_found(
        findings, "races", ZERO + 1, f"reads through the asynchronous proxy what {ISSUER} writes at line {FIRST}"
    )


@pytest.mark.parametrize("fence", ["fence.proxy.async;", "fence.proxy.async.global;"])
def test_a_load_behind_a_fence_of_the_proxy(fence: str) -> None:
    assert run(LOAD, "", OWN.format(fence=fence)) == ()


def test_stores_of_the_same_value_are_one_note() -> None:
    lines = "\n".join(f"st.global.b32 [%data+{4 * i}], 7;" for i in range(12))
    (note,) = run("", "", lines)
    assert (note.severity, note.line, note.places) == ("note", FIRST, 12)
    assert note.count == 12 * 127
    assert str(note).endswith(f"; {12 * 127} times at 12 places)")
