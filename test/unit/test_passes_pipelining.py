"""`warp-pipeline` follows def-use: what stands between copies and products changes nothing, and what declines says so.

Kernels are written by hand, pipelined, lowered and run on the interpreter with its checks, against numpy.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from single_warp import BARRIER, launch, parsed
from xdsl.dialects.builtin import ModuleOp

from warploom.dialect.warp.memory import CopyOp
from warploom.passes.diagnostics import remarks
from warploom.passes.pipelining.pipeline import PipelinePass
from warploom.passes.universe import make_context

A, B = (
    "!warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>",
    "!warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>",
)
C = "!warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>"
TILE_A, TILE_B = "memref<16x16xf16, #warp.swizzle<32>, 3>", "memref<16x8xf16, #warp.swizzle<16>, 3>"
LOOPS = {
    "barriers": "stages = 3",
    "mbarriers": "stages = 4, sync = mbarrier, prefetch = 2",
    "known stages": "stages = 3, unroll = 3",
    "more stages than tiles": "stages = 8",
}
TILES = 6

COPY_A = f"warp.copy %A[%z, %k] to %s[] : $A to {TILE_A}"
COPY_B = f"warp.copy %B[%k, %z] to %t[] : $B to {TILE_B}"
LOAD_A = f'%a = warp.load %s[%z, %z] {{matrices = "x4"}} : {TILE_A} -> {A}'
LOAD_B = f'%b = warp.load %t[%z, %z] {{matrices = "x2.trans"}} : {TILE_B} -> {B}'
MMA = f"%d = warp.mma m16n8k16 %a, %b, %c : {A}, {B}, {C}"
LINES = (COPY_A, COPY_B, BARRIER, LOAD_A, LOAD_B, MMA, BARRIER, f"scf.yield %d : {C}")


def loop(lines: tuple[str, ...] = LINES, before: str = "", after: str = "") -> str:
    """A kernel that adds A * B to C, its loop of the lines given."""
    inside = "\n      ".join(lines)
    return f"""
    %end = arith.constant {TILES * 16} : index
    %step = arith.constant 16 : index
    %s = memref.alloc() : {TILE_A}
    %t = memref.alloc() : {TILE_B}
    {before}
    %c0 = warp.load %C[%z, %z] : $C -> {C}
    %r = scf.for %k = %z to %end step %step iter_args(%c = %c0) -> ({C}) {{
      {inside}
    }}
    {after}
    warp.store %r, %C[%z, %z] : {C}, $C"""


def pipelined(
    body: str, schedule: str = "stages = 3", types: dict[str, str] | None = None
) -> tuple[ModuleOp, list[str]]:
    """The kernel after the pass, and what the pass said."""
    size = TILES * 16
    types = types or {"A": f"memref<16x{size}xf16>", "B": f"memref<{size}x8xf16>", "C": "memref<16x8xf32>"}
    options = "cta = 16x8x16, warp = 16x8, mma = m16n8k16, swizzle = 128, group = 8, accumulate = f32"
    attribute = f", warp.schedule = #warp.schedule<{options}, {schedule}>" if schedule else ""
    module = parsed("sm_90a", body, types, attribute)
    with remarks() as said:
        PipelinePass().apply(make_context(), module)
    module.verify()
    return module, said


def is_asynchronous(module: ModuleOp) -> bool:
    """Whether all copies run ahead."""
    return all(op.is_async is not None for op in module.walk() if isinstance(op, CopyOp))


def check(body: str, schedule: str = "stages = 3") -> None:
    """Pipelines a kernel that adds A * B to C, and runs it with all checks."""
    module, said = pipelined(body, schedule)
    assert said == []
    assert is_asynchronous(module)
    rng = np.random.default_rng()
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((16, TILES * 16), (TILES * 16, 8)))
    c = rng.standard_normal((16, 8)).astype(np.float32)
    expected = c + a.astype(np.float64) @ b.astype(np.float64)
    launch(module, [a, b, c], checks="all")
    np.testing.assert_allclose(c, expected, rtol=0, atol=1e-4)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("schedule", LOOPS.values(), ids=LOOPS)
def test_a_plain_loop(schedule: str) -> None:
    check(loop(), schedule)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("place", range(len(LINES)))
def test_a_constant_anywhere_changes_nothing(place: int) -> None:
    unrelated = "%unrelated = arith.constant 5 : index"
    check(loop((*LINES[:place], unrelated, *LINES[place:])))


def test_indices_made_in_the_loop() -> None:
    """A constant of the loop's own, and places that follow from the counter by more than a factor."""
    zero = "%y = arith.constant 0 : index"
    moved = "%k1 = arith.addi %k, %y : index"
    lines = (zero, moved, COPY_A.replace("%z, %k", "%y, %k1"), *LINES[1:3], LOAD_A.replace("[%z, %z]", "[%y, %y]"))
    check(loop((*lines, *LINES[4:])))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("schedule", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("together", [True, False])
def test_two_products_in_a_loop(together: bool, schedule: str) -> None:
    """Two products of one A, with sums of their own; their loads together, or one behind the other's product."""
    other = TILE_B.replace("8x", "8x")
    copy = f"warp.copy %D[%k, %z] to %u[] : $D to {other}"
    load = LOAD_B.replace("%b", "%e").replace("%t", "%u")
    second = f"%f = warp.mma m16n8k16 %a, %e, %g : {A}, {B}, {C}"
    steps = (LOAD_A, LOAD_B, load, MMA, second) if together else (LOAD_A, LOAD_B, MMA, load, second)
    lines = (COPY_A, COPY_B, copy, BARRIER, *steps, BARRIER, f"scf.yield %d, %f : {C}, {C}")
    body = loop(lines, before=f"%u = memref.alloc() : {other}", after=f"warp.store %r2, %E[%z, %z] : {C}, $E")
    body = body.replace("%r = scf", "%r, %r2 = scf").replace("(%c = %c0) -> (", f"(%c = %c0, %g = %c0) -> ({C}, ")
    k = TILES * 16
    types = {"A": f"memref<16x{k}xf16>", "B": f"memref<{k}x8xf16>", "C": "memref<16x8xf32>", "D": f"memref<{k}x8xf16>"}
    module, said = pipelined(body, schedule, types | {"E": "memref<16x8xf32>"})
    assert said == []
    assert is_asynchronous(module)
    rng = np.random.default_rng()
    a, b, d = (rng.standard_normal(shape).astype(np.float16) for shape in ((16, k), (k, 8), (k, 8)))
    c, e = rng.standard_normal((16, 8)).astype(np.float32), np.full((16, 8), np.nan, np.float32)
    first, second_sum = (c + a.astype(np.float64) @ x.astype(np.float64) for x in (b, d))
    launch(module, [a, b, c, d, e], checks="all")
    np.testing.assert_allclose(c, first, rtol=0, atol=1e-4)
    np.testing.assert_allclose(e, second_sum, rtol=0, atol=1e-4)


def test_what_is_computed_may_depend_on_the_counter() -> None:
    """A second value from turn to turn: the sum of the counters, 0 + 16 + ... + 80, at which C is stored."""
    lines = (*LINES[:-1], "%n = arith.addi %m, %k : index", f"scf.yield %d, %n : {C}, index")
    body = loop(lines).replace("%r = scf", "%r, %at = scf")
    body = body.replace("(%c = %c0) -> (" + C, f"(%c = %c0, %m = %z) -> ({C}, index")
    body = body.replace("warp.store %r, %C[%z, %z]", "warp.store %r, %C[%at, %z]")
    k = TILES * 16
    for schedule in LOOPS.values():
        types = {"A": f"memref<16x{k}xf16>", "B": f"memref<{k}x8xf16>", "C": "memref<256x8xf32>"}
        module, said = pipelined(body, schedule, types)
        assert (said, is_asynchronous(module)) == ([], True)
        rng = np.random.default_rng()
        a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((16, k), (k, 8)))
        c = np.zeros((256, 8), np.float32)
        launch(module, [a, b, c], checks="all")
        np.testing.assert_allclose(c[240:], a.astype(np.float64) @ b.astype(np.float64), rtol=0, atol=1e-4)
        assert not c[:240].any()


def carried(copy: str, step: str) -> str:
    """A loop with an index that goes from turn to turn, a copy and what makes the index of the next turn."""
    body = loop((copy, *LINES[1:-1], step, f"scf.yield %d, %n : {C}, index"))
    return body.replace("%r = scf", "%r, %at = scf").replace(
        "(%c = %c0) -> (" + C, f"(%c = %c0, %m = %z) -> ({C}, index"
    )


def around(values: str, end: str = "scf.yield", row: str = "%y = arith.addi %i0, %z : index", more: str = "") -> str:
    """The loop within one over two tiles of A, whose row is `%y`."""
    body = loop((COPY_A.replace("%z, %k", "%y, %k"), *LINES[1:]), before="BEFORE", after="AFTER")
    first, rest = body.split("BEFORE")
    inner, last = rest.split("AFTER")
    header = f"%w = arith.addi %end, %z : index\n%x = scf.for %i0 = %z to %step step %step {values} {{\n{row}\n{more}"
    header = header if "->" in values else header.replace("%x = ", "")
    return f"{first}{header}{inner}{last}\n{end}\n}}"


STORE = f"warp.store %d, %C[%z, %z] : {C}, $C"
DECLINED = {
    "stages = 1, so that no copy can run ahead": (loop(), "stages = 1"),
    "the kernel has no warp.schedule": (loop(), ""),
    "warp.store in the loop may write memory": (loop((*LINES[:6], STORE, *LINES[6:])), "stages = 3"),
    "it is behind a barrier": (loop((COPY_A, BARRIER, COPY_B, *LINES[2:])), "stages = 3"),
    "no barrier is between it and the copies": (loop((*LINES[:2], LOAD_A, BARRIER, *LINES[4:])), "stages = 3"),
    "no barrier keeps the next copies": (loop((*LINES[:6], LINES[7])), "stages = 3"),
    "nothing that the loop computes reads": (loop((*LINES[:6], BARRIER, f"scf.yield %c : {C}")), "stages = 3"),
    "it uses a tile of a loop that it stands outside of": (
        loop(after=f'%x = warp.load %s[%z, %z] {{matrices = "x4"}} : {TILE_A} -> {A}'),
        "stages = 3",
    ),
    "it reads another place of its tile in each turn": (
        loop((*LINES[:3], LOAD_A.replace("[%z, %z]", "[%z, %k]"), *LINES[4:])),
        "stages = 3",
    ),
    "its tile is not allocated in this kernel": (
        loop((COPY_A, COPY_B, "warp.copy %A[%z, %k] to %S[] : $A to $S", *LINES[2:])),
        "stages = 3",
    ),
    "its step must be a constant": (
        loop(before="%w = arith.addi %step, %z : index").replace("step %step", "step %w"),
        "stages = 3",
    ),
    "it is at a place that the turn before has computed": (
        carried(COPY_A.replace("%z, %k", "%z, %m"), "%n = arith.addi %m, %step : index"),
        "stages = 3",
    ),
    "it is at a place that memref.load reads": (
        loop(("%y = memref.load %P[] : $P", *LINES)).replace(LOAD_A, LOAD_A.replace("%s[%z", "%s[%y")),
        "stages = 3",
    ),
    "memref.dealloc cannot read one of several stages": (
        loop(("memref.dealloc %s : " + TILE_A, *LINES)),
        "stages = 3",
    ),
    "the loop around hands on values": (around("iter_args(%o = %z) -> (index)", "scf.yield %o : index"), "stages = 3"),
    "the loop around has another loop": (
        around("", more=f"scf.for %i = %z to %end step %step {{ {BARRIER} }}"),
        "stages = 3",
    ),
    "copies of the next tile start before memref.load of its turn": (
        around("", row="%y = memref.load %P[] : $P"),
        "stages = 3",
    ),
    "in a loop over tiles it must have turns": (
        around("").replace("to %end step %step iter_args(%c", "to %w step %step iter_args(%c"),
        "stages = 3",
    ),
    "unroll = 4 takes a known multiple of as many turns": (loop(), "stages = 4, unroll = 4"),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("reason", DECLINED)
def test_what_declines_says_where_and_why(reason: str) -> None:
    body, schedule = DECLINED[reason]
    size = TILES * 16
    types = {"A": f"memref<16x{size}xf16>", "B": f"memref<{size}x8xf16>", "C": "memref<16x8xf32>"}
    module, said = pipelined(body, schedule, types | {"S": TILE_A, "P": "memref<index>"})
    assert not is_asynchronous(module)
    (line,) = said
    assert "remark: warp-pipeline: copies do not run ahead: " in line
    assert reason in line
    assert re.match(r"<string>:\d+:\d+: ", line)


def test_a_loop_that_is_pipelined_already_is_left_without_a_word() -> None:
    module, _ = pipelined(loop())
    before = str(module)
    with remarks() as said:
        PipelinePass().apply(make_context(), module)
    assert (str(module), said) == (before, [])
