"""What a report counts: wavefronts and sectors of single accesses, instructions and products of whole kernels."""

from __future__ import annotations

import json
import os
import re
from itertools import product
from typing import Any

import numpy as np
import pytest
from interpreted import program
from numpy.typing import NDArray

from warploom.runtime import ArgumentError, compile, load_ptx
from warploom.runtime.base.launch import CORES, Problem
from warploom.runtime.interp import parallel
from warploom.runtime.interp.watch import report as counting
from warploom.runtime.interp.watch.report import (
    BANK_BYTES,
    BANKS,
    SECTOR_BYTES,
    GlobalAccess,
    LaunchReport,
    Reporter,
    SharedAccess,
    sectors,
    wavefronts,
)

Array = NDArray[Any]

TILE = ".shared .align 128 .b8 tile[16384]; mov.u32 %r1, %tid.x; mov.u32 %r2, tile;"


def reported(body: str, parameters: str = "", args: tuple[Array, ...] = (), threads: int = 32) -> LaunchReport:
    """The report of one CTA of a kernel."""
    reporter = Reporter()
    program(body, parameters).launch("k", (1, 1, 1), (threads, 1, 1), list(args), observer=reporter)
    return reporter.report()


def shared(access: str, address: str, threads: int = 32) -> SharedAccess:
    """The cost of one access at [%r3], computed from the thread number in %r1."""
    (counted,) = reported(f"{TILE}\n{address} add.u32 %r3, %r3, %r2;\n{access}", threads=threads).shared
    return counted


def stride(bytes_: int) -> str:
    return f"mul.lo.u32 %r3, %r1, {bytes_};"


V2 = "ld.shared.v2.u32 {%r4, %r5}, [%r3];"
V4 = "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r3];"
LDMATRIX = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5, %r6, %r7}, [%r3];"
STMATRIX = "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r3], {%r1, %r1, %r1, %r1};"
# Rows of 128 bytes: lane 8 q + r gives chunk q of row r, and swizzled chunk q xor r.
ROWS = "and.b32 %r4, %r1, 7; shr.u32 %r5, %r1, 3; shl.b32 %r3, %r4, 7; shl.b32 %r5, %r5, 4; add.u32 %r3, %r3, %r5;"
SWIZZLED = f"{ROWS} shl.b32 %r4, %r4, 4; xor.b32 %r3, %r3, %r4;"


@pytest.mark.parametrize(
    ("access", "address", "count", "ideal"),
    [
        ("ld.shared.u32 %r4, [%r3];", stride(4), 1, 1),
        ("ld.shared.u32 %r4, [%r3];", stride(8), 2, 1),
        ("ld.shared.u32 %r4, [%r3];", stride(12), 1, 1),
        ("ld.shared.u32 %r4, [%r3];", stride(64), 16, 1),
        ("ld.shared.u32 %r4, [%r3];", stride(128), 32, 1),
        ("ld.shared.u32 %r4, [%r3];", stride(132), 1, 1),
        ("ld.shared.u32 %r4, [%r3];", stride(0), 1, 1),
        ("ld.shared.u8 %r4, [%r3];", stride(1), 1, 1),
        ("ld.shared.u16 %r4, [%r3];", stride(2), 1, 1),
        ("ld.shared.u16 %r4, [%r3];", stride(130), 2, 1),
        ("ld.shared.u8 %r4, [%r3];", stride(128), 32, 1),
        ("st.shared.u32 [%r3], %r1;", stride(8), 2, 1),
        ("st.shared.u32 [%r3], %r1;", stride(0), 1, 1),
        ("st.shared.v4.u32 [%r3], {%r1, %r1, %r1, %r1};", stride(16), 4, 4),
        ("st.shared.u64 [%r3], %rd1;", stride(128), 32, 2),
        ("ld.shared.u64 %rd1, [%r3];", stride(8), 2, 2),
        ("ld.shared.u64 %rd1, [%r3];", stride(16), 4, 2),
        ("ld.shared.u64 %rd1, [%r3];", stride(0), 2, 2),
        (V2, stride(8), 2, 2),
        (V2, stride(256), 32, 2),
        (V4, stride(16), 4, 4),
        (V4, stride(32), 8, 4),
        (V4, stride(128), 32, 4),
        (V4, stride(144), 4, 4),
        (V4, stride(0), 4, 4),
        (LDMATRIX, stride(16), 4, 4),
        (LDMATRIX, ROWS, 32, 4),
        (LDMATRIX, SWIZZLED, 4, 4),
        (STMATRIX, ROWS, 32, 4),
        (STMATRIX, SWIZZLED, 4, 4),
        ("atom.shared.add.u32 %r4, [%r3], 1;", stride(4), 1, 1),
        ("atom.shared.add.u32 %r4, [%r3], 1;", stride(128), 32, 1),
        ("red.shared.add.u32 [%r3], 1;", stride(0), 32, 1),
    ],
)
def test_wavefronts_of_one_warp(access: str, address: str, count: int, ideal: int) -> None:
    cost = shared(access, address)
    assert (cost.requests, cost.wavefronts, cost.ideal, cost.worst) == (1, count, ideal, count)
    assert cost.extra == count - ideal
    assert (cost.line, cost.opcode) == (8, access.split()[0])


def test_only_the_lanes_that_take_part_count() -> None:
    body = f"{TILE} setp.lt.u32 %p1, %r1, 8; {stride(128)} add.u32 %r3, %r3, %r2; @%p1 {V4}"
    (cost,) = reported(body).shared
    assert (cost.requests, cost.wavefronts, cost.ideal) == (1, 8, 1)


def test_each_warp_makes_a_request_of_its_own() -> None:
    # Warp 1 reads where warp 0 reads: across warps nothing is shared, and nothing in the way.
    cost = shared("ld.shared.u32 %r4, [%r3];", "and.b32 %r3, %r1, 31; shl.b32 %r3, %r3, 2;", threads=96)
    assert (cost.requests, cost.wavefronts, cost.ideal, cost.worst) == (3, 3, 3, 1)
    # Lane r of warp w reads row r of 4 (w + 1) bytes: strides 4, 8 and 12.
    mixed = (
        "shr.u32 %r4, %r1, 5; add.u32 %r4, %r4, 1; and.b32 %r3, %r1, 31; mul.lo.u32 %r3, %r3, %r4; shl.b32 %r3, %r3, 2;"
    )
    cost = shared("ld.shared.u32 %r5, [%r3];", mixed, threads=96)
    assert (cost.requests, cost.wavefronts, cost.worst) == (3, 1 + 2 + 1, 2)


def test_copies_count_at_their_destination_and_their_source() -> None:
    body = f"""{TILE} ld.param.u64 %rd1, [p]; mul.wide.u32 %rd2, %r1, 48; add.u64 %rd1, %rd1, %rd2;
{stride(32)} add.u32 %r3, %r3, %r2;
cp.async.cg.shared.global [%r3], [%rd1], 16; cp.async.wait_all;"""
    accesses = reported(body, ".param .u64 p", (np.zeros(2048, np.uint8),))
    (into,), (out_of,) = accesses.shared, accesses.global_
    assert (into.kind, into.requests, into.wavefronts, into.ideal) == ("copy", 1, 8, 4)
    # 16 bytes every 48: each in a sector of its own.
    assert (out_of.kind, out_of.requests, out_of.sectors, out_of.ideal) == ("load", 1, 32, 16)


def test_a_copy_that_fills_up_with_zeros_is_one_request() -> None:
    body = f"""{TILE} ld.param.u64 %rd1, [p]; {stride(16)} cvt.u64.u32 %rd2, %r3; add.u64 %rd1, %rd1, %rd2;
add.u32 %r3, %r3, %r2; and.b32 %r4, %r1, 15;
cp.async.cg.shared.global [%r3], [%rd1], 16, %r4; cp.async.wait_all;"""
    accesses = reported(body, ".param .u64 p", (np.zeros(512, np.uint8),))
    (out_of,) = accesses.global_
    wanted = 2 * sum(range(16))
    # Lanes 0 and 16 read nothing; their neighbours in the same sectors do.
    assert (out_of.requests, out_of.sectors, out_of.ideal) == (1, 16, -(-wanted // 32))


@pytest.mark.parametrize(
    ("access", "step", "count", "ideal"),
    [
        ("ld.global.u32 %r4, [%rd1];", 4, 4, 4),
        ("ld.global.u32 %r4, [%rd1];", 8, 8, 4),
        ("ld.global.u32 %r4, [%rd1];", 64, 32, 4),
        ("ld.global.u32 %r4, [%rd1];", 0, 1, 1),
        ("ld.global.u8 %r4, [%rd1];", 1, 1, 1),
        ("ld.global.nc.v4.u32 {%r4, %r5, %r6, %r7}, [%rd1];", 16, 16, 16),
        ("st.global.u32 [%rd1], %r1;", 32, 32, 4),
        ("red.global.add.u32 [%rd1], %r1;", 4, 4, 4),
        ("ld.global.u32 %r4, [%rd1+16];", 4, 5, 4),
    ],
)
def test_sectors_of_one_warp(access: str, step: int, count: int, ideal: int) -> None:
    body = f"mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [p]; mul.wide.u32 %rd2, %r1, {step}; add.u64 %rd1, %rd1, %rd2;"
    (cost,) = reported(f"{body}\n{access}", ".param .u64 p", (np.zeros(4096, np.uint8),)).global_
    assert isinstance(cost, GlobalAccess)
    assert (cost.requests, cost.sectors, cost.ideal, cost.extra) == (1, count, ideal, count - ideal)
    assert cost.line == 7


def test_lanes_may_be_in_different_arrays_and_spaces() -> None:
    body = """.shared .align 128 .b8 tile[256]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4;
ld.param.u64 %rd1, [p]; ld.param.u64 %rd3, [q]; setp.lt.u32 %p1, %r1, 16; selp.b64 %rd4, %rd1, %rd3, %p1;
mov.u32 %r2, tile; cvt.u64.u32 %rd5, %r2; cvta.shared.u64 %rd5, %rd5;
setp.lt.u32 %p2, %r1, 24; selp.b64 %rd4, %rd4, %rd5, %p2; add.u64 %rd4, %rd4, %rd2; ld.u32 %r3, [%rd4];"""
    arrays = (np.zeros(32, np.uint32), np.zeros(32, np.uint32))
    accesses = reported(body, ".param .u64 p, .param .u64 q", arrays)
    (inside,), (outside,) = accesses.shared, accesses.global_
    assert (inside.requests, inside.wavefronts) == (1, 1)
    assert (outside.requests, outside.sectors, outside.ideal) == (1, 2 + 1, 3)


def by_hand(start: Array, width: int, warps: Array, lanes: Array, alone: bool) -> list[int]:
    """Wavefronts of each warp, bank by bank."""
    counts: list[int] = []
    together = min(32, 128 // width)
    for warp in sorted(set(warps.tolist())):
        total = 0
        for phase in range(32 // together):
            here = [s for s, w, n in zip(start, warps, lanes, strict=True) if w == warp and n // together == phase]
            words = [int(s) // BANK_BYTES + i for s in here for i in range(max(1, width // BANK_BYTES))]
            wanted = words if alone else set(words)
            total += max([sum(word % BANKS == bank for word in wanted) for bank in range(BANKS)], default=0)
        counts.append(total)
    return counts


@pytest.mark.parametrize(("width", "alone"), list(product((1, 2, 4, 8, 16), (False, True))))
def test_random_accesses_against_a_count_of_each_bank(width: int, alone: bool) -> None:
    random = np.random.default_rng(width)
    for span in (64, 1 << 9, 1 << 14):
        threads = np.flatnonzero(random.random(5 * 32) < 0.7)
        lanes, warps = threads // 5, threads % 5
        start = random.integers(0, span // width, threads.size) * width
        counted, ideal = wavefronts(start, width, warps, lanes, alone)
        assert counted.tolist() == by_hand(start, width, warps, lanes, alone)
        assert (ideal <= counted).all()
        assert (ideal >= 1).all()


RANDOM = {
    "ld.shared.u16 %r4, [%r3];": 2,
    "ld.shared.v2.f32 {%f1, %f2}, [%r3];": 8,
    "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r3];": 16,
    "st.shared.v2.u64 [%r3], {%rd1, %rd1};": 16,
    "st.shared.u64 [%r3], %rd1;": 8,
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3];": 16,
    "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r4, %r5}, [%r3];": 16,
    "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r3], {%r4, %r5};": 16,
    "cp.async.ca.shared.global [%r3], [%rd1], 8;": 8,
    "cp.async.cg.shared.global [%r3], [%rd1], 16;": 16,
    "atom.shared.max.u64 %rd3, [%r3], %rd1;": 8,
    "red.shared.add.f32 [%r3], 0f3F800000;": 4,
}


@pytest.mark.parametrize("access", RANDOM)
def test_random_addresses_of_every_kind_of_access(access: str) -> None:
    width, threads = RANDOM[access], 3 * 32
    places = np.random.default_rng(len(access)).integers(0, 2048 // width, threads).astype(np.uint32) * width
    body = f"""{TILE} ld.param.u64 %rd1, [p]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd2, %rd1, %rd2;
ld.global.u32 %r3, [%rd2]; add.u32 %r3, %r3, %r2; mov.u32 %r4, 0; mov.u32 %r5, 0;
{access}"""
    (cost,) = reported(body, ".param .u64 p", (places,), threads=threads).shared
    # Of ldmatrix and stmatrix, 8 lanes for each matrix give an address.
    givers = {"x1": 8, "x2": 16}.get(access.split(".")[4], 32) if "matrix" in access else 32
    lane = np.arange(threads) % 32
    chosen = lane < givers
    alone = access.startswith(("atom", "red"))
    expected = by_hand(places[chosen], width, np.arange(threads)[chosen] // 32, lane[chosen], alone)
    assert (cost.line, cost.requests, cost.wavefronts, cost.worst) == (8, 3, sum(expected), max(expected))


def test_random_accesses_against_a_count_of_each_sector() -> None:
    random = np.random.default_rng(3)
    for span, width in product((64, 1 << 9, 1 << 14), (1, 4, 16, 32)):
        threads = np.flatnonzero(random.random(3 * 32) < 0.7)
        start, warps = random.integers(0, span // width, threads.size) * width, threads % 3
        counted, ideal = sectors(start, np.full(threads.size, width), warps)
        bytes_ = [{int(s) + i for s in start[warps == w] for i in range(width)} for w in range(3)]
        assert counted.tolist() == [len({b // SECTOR_BYTES for b in mine}) for mine in bytes_]
        assert ideal.tolist() == [-(-len(mine) // SECTOR_BYTES) for mine in bytes_]


@pytest.mark.parametrize("width", [1, 4, 8, 16])
def test_several_accesses_of_a_lane_in_one_request(width: int) -> None:
    """As asynchronous products read: those of the lanes that are served together count together."""
    random = np.random.default_rng(width)
    threads = np.sort(random.integers(0, 3 * 32, 200))
    lanes, warps = np.divmod(threads, 3)
    start = random.integers(0, (1 << 12) // width, threads.size) * width
    for alone in (False, True):
        counted, ideal = wavefronts(start, width, warps, lanes, alone=alone)
        assert counted.tolist() == by_hand(start, width, warps, lanes, alone)
        assert (ideal <= counted).all()
    counted, _ = sectors(start, np.full(threads.size, width), warps)
    assert counted.tolist() == [len(set((start[warps == w] // SECTOR_BYTES).tolist())) for w in range(3)]


LOOP = """.shared .align 16 .b8 tile[32768]; mov.u32 %r1, %tid.x; mov.u32 %r2, tile; shl.b32 %r3, %r1, 3;
    add.u32 %r2, %r2, %r3; ld.param.u64 %rd1, [p]; mul.wide.u32 %rd2, %r1, 12; add.u64 %rd1, %rd1, %rd2;
    mov.u32 %r4, 0; mov.u32 %r5, %ctaid.x; mul.wide.u32 %rd2, %r5, 1536; add.u64 %rd1, %rd1, %rd2;
    L: st.shared.u32 [%r2], %r4; ld.global.u32 %r6, [%rd1]; add.u32 %r2, %r2, 128; add.u64 %rd1, %rd1, 32;
    add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 100; @%p1 bra L; red.shared.add.u32 [tile], %r6;"""


def test_the_cost_of_a_pattern_of_addresses_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a loop whose addresses go on by whole lines and sectors, what two functions count is counted 3 times."""
    calls: list[str] = []
    for name, function in (("wavefronts", wavefronts), ("sectors", sectors)):

        def counted(*args: Any, name: str = name, function: Any = function, **options: Any) -> Any:
            calls.append(name)
            return function(*args, **options)

        monkeypatch.setattr(counting, name, counted)
    accesses = reported(LOOP, ".param .u64 p", (np.zeros(10000, np.uint32),), threads=128)
    store, atomic = accesses.shared
    (load,) = accesses.global_
    assert (store.requests, store.wavefronts, store.worst) == (400, 800, 2)
    assert (atomic.requests, atomic.worst) == (4, 32)
    assert (load.requests, load.sectors) == (400, 400 * 12)
    assert sorted(calls) == ["sectors", "wavefronts", "wavefronts"]


def test_counts_are_those_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """CTAs that run side by side are counted where they run."""
    body = f"{LOOP} setp.gt.u32 %p1, %r5, 37; @%p1 add.u32 %r6, %r6, 1;"
    built, started, reports = program(body, ".param .u64 p"), list[str](), list[LaunchReport]()
    run_batches = parallel.run_batches

    def noted(*args: Any) -> bool:
        started.append(os.environ[CORES])
        return run_batches(*args)

    monkeypatch.setattr(parallel, "run_batches", noted)
    for cores in ("1", "3"):
        monkeypatch.setenv(CORES, cores)
        counts = Reporter()
        built.launch("k", (600, 1, 1), (128, 1, 1), [np.zeros(250000, np.uint32)], observer=counts)
        reports.append(counts.report())
    assert started == ["3"]
    assert reports[0] == reports[1]
    assert reports[0].grid == (600, 1, 1)
    assert sum(i.warps for i in reports[0].instructions if i.opcode == "ld.global.u32") == 600 * 4 * 100
    with pytest.raises(TypeError, match="expected counts of another reporter, got 5"):
        Reporter().add(built.program.kernel("k"), 5)


def test_instructions_count_warps_and_the_lanes_whose_guard_holds() -> None:
    body = """mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 40;
@%p1 add.u32 %r1, %r1, 1;
@!%p1 bra done;
shfl.sync.bfly.b32 %r2, %r1, 1, 31, 255;
done:"""
    counts = {(i.line, i.opcode): (i.warps, i.lanes) for i in reported(body, threads=96).instructions}
    assert counts[6, "mov.u32"] == (3, 96)
    assert counts[7, "add.u32"] == (3, 40)
    assert counts[8, "bra"] == (3, 56)
    # All of warp 0, and 8 lanes of warp 1.
    assert counts[9, "shfl.sync.bfly.b32"] == (2, 40)
    assert "ret" not in {opcode for _, opcode in counts}


def test_lanes_that_wait_for_each_other_count_once() -> None:
    body = """mov.u32 %r1, %laneid; setp.lt.u32 %p1, %r1, 7;
@%p1 bra both;
add.u32 %r1, %r1, 1;
both: bar.warp.sync -1;"""
    (barrier,) = [i for i in reported(body, threads=64).instructions if i.opcode == "bar.warp.sync"]
    assert (barrier.warps, barrier.lanes) == (2, 64)


def test_a_function_counts_where_it_is_written() -> None:
    text = """.version 8.6
.target sm_90a
.address_size 64
.func (.param .b32 r) twice(.param .b32 a) { .reg .b32 %r<2>;
ld.param.u32 %r1, [a];
add.u32 %r1, %r1, %r1;
st.param.b32 [r], %r1; ret; }
.visible .entry k(.param .u64 out) { .reg .b32 %r<3>; .reg .b64 %rd<2>; .param .b32 a; .param .b32 r;
mov.u32 %r1, %tid.x; st.param.b32 [a], %r1; call (r), twice, (a); call (r), twice, (a);
ld.param.u32 %r2, [r]; ld.param.u64 %rd1, [out]; st.global.u32 [%rd1], %r2; }"""
    out = np.zeros(1, np.uint32)
    (report,) = load_ptx(text).launch("k", 1, 64, [out], report=True).reports
    counts = {(i.line, i.opcode): (i.warps, i.lanes) for i in report.instructions}
    assert counts[6, "add.u32"] == (4, 128)
    assert report.mix["call"] == 4
    assert report.mix["ret"] == 4
    assert not any(opcode.startswith("call.") for opcode in report.mix)
    (store,) = report.global_
    assert (store.line, store.requests, store.sectors) == (10, 2, 2)
    assert report.shared == ()


MATMUL = """
func.func @matmul(%A: memref<{m}x{k}xf16>, %B: memref<{k}x{n}xf16>, %C: memref<{m}x{n}xf32>) {{
  linalg.matmul ins(%A, %B : memref<{m}x{k}xf16>, memref<{k}x{n}xf16>) outs(%C : memref<{m}x{n}xf32>)
  return
}}
"""


def product_report(m: int, n: int, k: int, **schedule: Any) -> LaunchReport:
    kernel = compile(MATMUL.format(m=m, n=n, k=k), **schedule)
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    (report,) = kernel(a, b, np.zeros((m, n), np.float32), report=True).reports
    return report


def test_our_kernel_has_no_bank_conflicts_and_executes_no_product_in_vain() -> None:
    report = product_report(128, 128, 64, cta=(64, 64, 32), warp=(32, 32), stages=2)
    assert report.problem == Problem(128, 128, 64)
    (products,) = report.products
    assert products.warps == products.needed(Problem(128, 128, 64)) == 8 * 16 * 4
    assert report.useful == 1.0
    assert report.mix["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"] == products.warps
    assert sum(s.extra for s in report.shared) == 0
    assert {s.kind for s in report.shared} == {"load", "copy"}
    # Per K tile 4 warps load fragments of A and B, 32 x 32 each: 4 wavefronts a matrix of 16 x 16. One tile more is
    # begun ahead of the loop, of which 16 of the 32 are loaded.
    loads = sum(s.wavefronts for s in report.shared if s.kind == "load")
    assert loads == 4 * 4 * (2 * 2 + 1) * 2 * 2 * 4
    assert sum(g.sectors for g in report.global_ if g.kind == "store") == 128 * 128 * 4 // 32


def test_a_kernel_whose_swizzle_is_taken_out_has_conflicts() -> None:
    kernel = compile(MATMUL.format(m=64, n=64, k=64), cta=(64, 64, 64), warp=(64, 64), stages=2)
    text = re.sub(r"xor\.b32 (%r\d+), (%r\d+), %r\d+;", r"mov.b32 \1, \2;", kernel.ptx)
    assert text != kernel.ptx
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((64, 64)).astype(np.float16) for _ in range(2))
    c = np.zeros((64, 64), np.float32)
    (launch,) = kernel.launches
    place = load_ptx(text).launch(launch.kernel, launch.grid, launch.block, [a, b, c], launch.shared, report=True)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-4, atol=1e-4)
    counts = {(s.opcode.partition(".")[0], s.wavefronts // s.ideal) for s in place.reports[0].shared}
    # Rows of 128 bytes: the eight rows of a matrix meet in the same banks; copies write whole rows.
    assert counts == {("ldmatrix", 8), ("cp", 1)}


def test_padding_shows_as_products_that_nobody_needs() -> None:
    report = product_report(40, 24, 20)
    (products,) = report.products
    problem = Problem(40, 24, 20)
    assert report.problem == problem
    assert products.needed(problem) == 3 * 3 * 2
    assert products.warps >= products.needed(problem)
    assert report.useful == 40 * 24 * 20 / (products.warps * 16 * 8 * 16)


def test_a_module_reports_and_is_held_against_a_problem() -> None:
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k() { .reg .b32 %r<8>; .reg .b64 %d<2>;
mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16 {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%r6, %r7}, {%r0, %r1, %r2, %r3};
ret; }"""
    (report,) = load_ptx(text).launch("k", 2, 64, [], report=True).reports
    (products,) = report.products
    assert (report.kernel, report.grid, report.block) == ("k", (2, 1, 1), (64, 1, 1))
    assert (products.warps, products.side_by_side, products.multiply_adds) == (4, 4, 4 * 4 * 256)
    assert report.useful is None
    assert report.against(Problem(16, 16, 4)).useful == 0.25
    assert products.needed(Problem(16, 16, 4)) == 1
    assert products.needed(Problem(16, 16, 4, batch=3)) == 3


def test_wmma_accesses_are_named_as_not_counted() -> None:
    body = """.shared .align 128 .b8 tile[1024]; mov.u32 %r1, tile;
wmma.load.c.sync.aligned.row.m16n16k16.shared.f16 {%r2, %r3, %r4, %r5}, [%r1];"""
    report = reported(body)
    assert report.shared == ()
    assert report.uncounted == (
        "line 7: wmma.load.c.sync.aligned.row.m16n16k16.shared.f16: the ISA leaves open which lane accesses what",
    )


def test_json_has_everything() -> None:
    report = product_report(64, 64, 32, cta=(64, 64, 32), warp=(32, 32), stages=2)
    data = json.loads(json.dumps(report.as_json()))
    assert data["problem"] == "64x64x32"
    assert data["products"][0]["needed"] == data["products"][0]["warps"]
    assert data["wavefronts"] == sum(s["wavefronts"] for s in data["shared"])
    assert data["sectors"] == sum(g["sectors"] for g in data["global"])
    assert len(data["instructions"]) == len(report.instructions)


def test_reports_are_of_the_interpreter() -> None:
    module = load_ptx(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }")
    with pytest.raises(ArgumentError, match="a report is made by the interpreter; pass device='interp'"):
        module.launch("k", 1, 32, [], device="cuda", report=True)
    assert module.launch("k", 1, 32, [], device="interp").reports == ()


@pytest.mark.parametrize("text", ["", "12", "1x2", "0x1x1", "1x2x3x4x5", "axbxc", "1x-2x3", "1xx2"])
def test_problems_that_are_none(text: str) -> None:
    with pytest.raises(ArgumentError, match="expected the sizes of a product as MxNxK"):
        Problem.parse(text)


def test_problems() -> None:
    assert Problem.parse("512x256x128") == Problem(512, 256, 128)
    assert Problem.parse("8x512x256x128") == Problem(512, 256, 128, 8)
    assert str(Problem.parse("8x5x6x7")) == "8x5x6x7"
    with pytest.raises(ValueError, match="no launch was observed"):
        Reporter().report()
