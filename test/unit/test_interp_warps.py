"""Warp-synchronous instructions under member masks that differ by lane, against a model that goes lane by lane.

Each warp is divided at random, anew in each round; lanes come to the instruction over different ways and after
different delays, and some exit on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from interpreted import POISON, per_thread, program
from numpy.typing import NDArray

from warploom.runtime.interp import InterpreterError

Array = NDArray[Any]
LANES, WARPS, CTAS, ROUNDS = 32, 3, 3, 4
THREADS = CTAS * WARPS * LANES
FULL = 0xFFFFFFFF

HEAD = """
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r0, %r2, %r3, %r1; mov.u32 %r4, 0;
ROUND:
mad.lo.u32 %r5, %r4, {threads}, %r0;
ld.param.u64 %rd1, [p_given]; mad.wide.u32 %rd1, %r5, 32, %rd1;
ld.global.v4.u32 {{%r6, %r7, %r8, %r9}}, [%rd1];
ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%rd1+16];
setp.ne.u32 %p3, %r12, 0; mov.b64 %rd5, {{%r7, %r7}};
setp.eq.u32 %p1, %r9, 2; @%p1 exit;
setp.eq.u32 %p1, %r9, 1; @%p1 bra FAR;
setp.eq.u32 %p1, %r10, 0; @%p1 bra HERE;
NEAR: sub.u32 %r10, %r10, 1; setp.ne.u32 %p1, %r10, 0; @%p1 bra NEAR;
HERE:
"""
TAIL = """
ld.param.u64 %rd2, [p_out]; mad.wide.u32 %rd2, %r5, 8, %rd2; st.global.v2.u32 [%rd2], {{%r20, %r21}};
add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, {rounds}; @%p1 bra ROUND;
exit;
FAR: setp.eq.u32 %p1, %r10, 0; @%p1 bra HERE; sub.u32 %r10, %r10, 1; bra FAR;
"""

Group = list[int]
Model = Callable[[int, Group, Array, Array], tuple[int, int | None] | None]
"""Of a lane, its group, their values and their predicates: the two results, None where anything will do."""


def shuffled(mode: str, clamp: int) -> Model:
    def model(lane: int, group: Group, values: Array, others: Array) -> tuple[int, int | None] | None:
        b, segment, bound = int(others[lane]) & 31, clamp >> 8 & 31, clamp & 31
        low, top = lane & segment, lane & segment | bound & ~segment
        source = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": low | b & ~segment}[mode]
        inside = source >= top if mode == "up" else source <= top
        source = source if inside else lane
        return (int(values[source]), int(inside)) if source in group else None

    return model


def reduced(function: Callable[[int, int], int], signed: bool = False) -> Model:
    def model(lane: int, group: Group, values: Array, others: Array) -> tuple[int, None]:
        words = [int(v) for v in values[group].astype(np.int32 if signed else np.uint32)]
        total = words[0]
        for word in words[1:]:
            total = function(total, word)
        return total & FULL, None

    return model


def voted(answer: Callable[[list[bool], Group], int]) -> Model:
    return lambda lane, group, values, others: (answer([bool(others[one]) for one in group], group), None)


def bits(lanes: Group) -> int:
    return sum(1 << one for one in lanes)


def matched(lane: int, group: Group, values: Array, others: Array) -> tuple[int, None]:
    return bits([one for one in group if values[one] == values[lane]]), None


def matched_all(lane: int, group: Group, values: Array, others: Array) -> tuple[int, int]:
    same = len({int(v) for v in values[group]}) == 1
    return (bits(group) if same else 0), int(same)


SHUFFLES = (("up", 0), ("up", 0x1800), ("down", 31), ("down", 0x101F), ("bfly", 31), ("idx", 31), ("idx", 0x181F))
PRED = "selp.b32 %r20, 1, 0, %p2;"
FLAG = "selp.b32 %r21, 1, 0, %p2;"
OPS: dict[str, tuple[str, Model]] = {
    "redux.add.u32": ("redux.sync.add.u32 %r20, %r7, %r6;", reduced(lambda a, b: a + b)),
    "redux.add.s32": ("redux.sync.add.s32 %r20, %r7, %r6;", reduced(lambda a, b: a + b, True)),
    "redux.min.s32": ("redux.sync.min.s32 %r20, %r7, %r6;", reduced(min, True)),
    "redux.max.u32": ("redux.sync.max.u32 %r20, %r7, %r6;", reduced(max)),
    "redux.and": ("redux.sync.and.b32 %r20, %r7, %r6;", reduced(lambda a, b: a & b)),
    "redux.or": ("redux.sync.or.b32 %r20, %r7, %r6;", reduced(lambda a, b: a | b)),
    "redux.xor": ("redux.sync.xor.b32 %r20, %r7, %r6;", reduced(lambda a, b: a ^ b)),
    **{
        f"shfl.{mode}.{clamp:#x}": (
            f"shfl.sync.{mode}.b32 %r20|%p2, %r7, %r8, {clamp}, %r6; {FLAG}", shuffled(mode, clamp)
        )
        for mode, clamp in SHUFFLES
    },
    "vote.ballot": (
        "vote.sync.ballot.b32 %r20, %p3, %r6;",
        voted(lambda yes, group: bits([one for one, y in zip(group, yes, strict=True) if y])),
    ),
    "vote.all": (f"vote.sync.all.pred %p2, %p3, %r6; {PRED}", voted(lambda yes, _: int(all(yes)))),
    "vote.any": (f"vote.sync.any.pred %p2, !%p3, %r6; {PRED}", voted(lambda yes, _: int(not all(yes)))),
    "vote.uni": (f"vote.sync.uni.pred %p2, %p3, %r6; {PRED}", voted(lambda yes, _: int(len(set(yes)) == 1))),
    "match.any.b32": ("match.any.sync.b32 %r20, %r7, %r6;", matched),
    "match.any.b64": ("match.any.sync.b64 %r20, %rd5, %r6;", matched),
    "match.all": (f"match.all.sync.b32 %r20|%p2, %r7, %r6; {FLAG}", matched_all),
    "elect": (
        f"elect.sync %r20|%p2, %r6; {FLAG}",
        lambda lane, group, values, others: (min(group), int(lane == min(group))),
    ),
}  # fmt: skip


def divided(random: np.random.Generator) -> Array:
    """The words of each thread in each round: mask, value, lane or predicate, way, delay, 0, 0, 0."""
    masks = np.zeros((ROUNDS, THREADS // LANES, LANES, 8), np.uint32)
    for warps in masks:
        for warp in warps:
            group = random.integers(0, random.integers(1, 6), LANES)
            warp[:, 0] = [bits(np.flatnonzero(group == g).tolist()) for g in group]
            few = random.random() < 0.5
            warp[:, 1] = random.integers(0, 3 if few else 1 << 32, LANES, dtype=np.uint64)
            warp[:, 2] = random.integers(0, 32, LANES)
            warp[:, 6] = random.random(LANES) < random.choice([0.1, 0.5, 0.9])
    masks[..., 3] = random.random(masks.shape[:-1]) < 0.3
    masks[..., 3][random.random(masks.shape[:-1]) < 0.05] = 2
    masks[..., 4] = random.integers(0, 5, masks.shape[:-1])
    masks[..., 4][random.random(masks.shape[:-1]) < 0.5] = 0
    return masks


def expected(masks: Array, model: Model, second: int) -> tuple[Array, Array]:
    """What the threads store in each round, and where it counts."""
    want = np.full((*masks.shape[:-1], 2), int.from_bytes(bytes([POISON] * 4)), np.uint32)
    counts = np.ones(want.shape, np.bool_)
    gone = np.zeros(masks.shape[1:3], np.bool_)
    for step, warps in enumerate(masks):
        gone |= warps[..., 3] == 2
        for w, warp in enumerate(warps):
            here = [lane for lane in range(LANES) if not gone[w, lane]]
            for lane in here:
                group = [one for one in here if warp[lane, 0] >> one & 1]
                result = model(lane, group, warp[:, 1], warp[:, second])
                if result is None:
                    counts[step, w, lane] = False
                else:
                    want[step, w, lane, 0] = result[0]
                    want[step, w, lane, 1] = 0 if result[1] is None else result[1]
    return want, counts


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", OPS)
def test_lanes_with_different_masks_are_different_groups(name: str) -> None:
    instruction, model = OPS[name]
    masks = divided(np.random.default_rng())
    out = np.full((ROUNDS, THREADS // LANES, LANES, 2), int.from_bytes(bytes([POISON] * 4)), np.uint32)
    head, tail = HEAD.format(threads=THREADS), TAIL.format(rounds=ROUNDS)
    built = program(f"{head} mov.u32 %r21, 0;\n{instruction}\n{tail}", ".param .u64 p_given, .param .u64 p_out")
    built.launch("k", (CTAS, 1, 1), (WARPS * LANES, 1, 1), [masks, out], max_steps=200_000)
    want, counts = expected(masks, model, 2 if name.startswith("shfl") else 6)
    np.testing.assert_array_equal(out[counts], want[counts])


def test_the_two_halves_of_a_warp_reduce_apart() -> None:
    half = "mov.u32 %r1, %laneid; add.u32 %r2, %r1, 1; setp.lt.u32 %p0, %r1, 16; selp.b32 %r3, 0xFFFF, 0xFFFF0000, %p0;"
    result = per_thread(f"{half} redux.sync.add.u32 %r0, %r2, %r3;")
    assert result.tolist() == [136] * 16 + [392] * 16


def test_the_active_mask_is_that_of_the_lanes_which_run_together() -> None:
    body = "mov.u32 %r1, %laneid; setp.lt.u32 %p0, %r1, 5; @%p0 activemask.b32 %r0; @!%p0 activemask.b32 %r0;"
    assert per_thread(body).tolist() == [0x1F] * 5 + [0xFFFFFFE0] * 27


# bar.warp.sync: what a lane stores before it is there for the lanes of its group after it, wherever they come to it

WARP_BARRIER = """
{head}
.shared .align 4 .b8 tile[{bytes}]; mov.u32 %r15, tile; shl.b32 %r16, %r1, 2; add.u32 %r16, %r15, %r16;
st.volatile.shared.u32 [%r16], %r7;
and.b32 %r17, %r8, 1; setp.eq.u32 %p1, %r17, 0; @%p1 bra SECOND;
bar.warp.sync %r6; bra READ;
SECOND: bar.warp.sync %r6;
READ: mov.u32 %r20, 0; mov.u32 %r18, 0; and.b32 %r19, %r1, 0xFFFFFFE0; shl.b32 %r19, %r19, 2; add.u32 %r19, %r19, %r15;
NEXT: shr.u32 %r22, %r6, %r18; and.b32 %r22, %r22, 1; setp.ne.u32 %p2, %r22, 0;
ld.volatile.shared.u32 %r23, [%r19]; @%p2 add.u32 %r20, %r20, %r23;
add.u32 %r19, %r19, 4; add.u32 %r18, %r18, 1; setp.lt.u32 %p2, %r18, 32; @%p2 bra NEXT;
bar.warp.sync %r6;
{tail}
"""


def test_lanes_wait_for_each_other_at_different_barriers_of_the_warp() -> None:
    masks = divided(np.random.default_rng())
    masks[..., 3][masks[..., 3] == 2] = 0  # What a lane stored in an earlier round would be read else.
    out = np.zeros((ROUNDS, THREADS // LANES, LANES, 2), np.uint32)
    texts = {"head": HEAD.format(threads=THREADS), "tail": TAIL.format(rounds=ROUNDS), "bytes": 4 * WARPS * LANES}
    built = program(WARP_BARRIER.format(**texts), ".param .u64 p_given, .param .u64 p_out")
    built.launch("k", (CTAS, 1, 1), (WARPS * LANES, 1, 1), [masks, out], max_steps=400_000)
    want, _ = expected(masks, reduced(lambda a, b: a + b), 2)
    np.testing.assert_array_equal(out[..., 0], want[..., 0])


@pytest.mark.parametrize(
    ("instruction", "opcode"),
    [
        ("bar.warp.sync -1;", "bar.warp.sync"),
        ("shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;", "shfl.sync.bfly.b32"),
        ("redux.sync.add.u32 %r2, %r1, -1;", "redux.sync.add.u32"),
    ],
)
def test_lanes_that_never_come_are_named(instruction: str, opcode: str) -> None:
    body = f"""mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 52; @%p1 bra OTHER;
{instruction} bra END;
OTHER: shfl.sync.idx.b32 %r2, %r1, 0, 31, 0xFFF00001; END:"""
    match = (
        rf"k.ptx:7:1: .*deadlock: .*warps 1 wait at line 7 \({opcode}\), of warp 1 for lanes 20-31, which the member"
    )
    with pytest.raises(InterpreterError, match=match):
        program(body).launch("k", (1, 1, 1), (64, 1, 1), [])


# Barriers of the CTA: lanes that have exited are not waited for, and a warp counts whole (as seen on an H200)


@pytest.mark.parametrize("gone", ["setp.ge.u32 %p1, %r1, 48;", "and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 0;"])
@pytest.mark.parametrize("leave", ["@%p1 exit;", "@%p1 bra END;", "@%p1 bra SLOW;"])
@pytest.mark.parametrize(
    ("barrier", "want"),
    [
        ("bar.sync 0; mov.u32 %r5, 7;", 7),
        ("bar.sync 1, 64; mov.u32 %r5, 7;", 7),
        ("barrier.sync 2; mov.u32 %r5, 7;", 7),
        ("barrier.sync.aligned 2, 64; mov.u32 %r5, 7;", 7),
        ("setp.lt.u32 %p2, %r1, 40; bar.red.popc.u32 %r5, 0, %p2;", None),
    ],
)
def test_warps_of_which_a_part_has_exited_come_to_a_barrier(
    gone: str, leave: str, barrier: str, want: int | None
) -> None:
    body = f"""mov.u32 %r1, %tid.x; {gone} mov.u32 %r3, 0; {leave}
{barrier} ld.param.u64 %rd1, [out]; mad.wide.u32 %rd1, %r1, 4, %rd1; st.global.u32 [%rd1], %r5; bra END;
SLOW: add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 50; @%p2 bra SLOW; END:"""
    out = np.full(64, 99, np.uint32)
    program(body, ".param .u64 out").launch("k", (1, 1, 1), (64, 1, 1), [out])
    threads = np.arange(64)
    stays = threads < 48 if "48" in gone else threads % 2 == 1
    answer = np.count_nonzero(stays & (threads < 40)) if want is None else want
    np.testing.assert_array_equal(out, np.where(stays, answer, 99))


def test_a_last_warp_with_few_threads_counts_whole() -> None:
    result = per_thread("mov.u32 %r0, 3; bar.sync 1, 64;", 40)
    assert result.tolist() == [3] * 40


@pytest.mark.parametrize(("one", "other"), [("", ", 64"), (", 64", ""), (", 64", ", 64")])
def test_ctas_wait_at_one_barrier_of_different_instructions(one: str, other: str) -> None:
    """Part of CTA 1 waits at the first while CTA 0 asks at the second: neither's answer or count is the other's."""
    body = f"""mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r5, 7; mov.u32 %r6, 7; mov.u32 %r3, 0;
setp.lt.u32 %p3, %r1, 40; setp.eq.u32 %p1, %r2, 0; @%p1 bra SECOND; setp.ge.u32 %p2, %r1, 32; @%p2 bra SLOW;
FIRST: bar.red.popc.u32 %r5, 1{one}, %p3;
SECOND: bar.red.popc.u32 %r6, 1{other}, !%p3;
mad.lo.u32 %r0, %r5, 100, %r6; bra END;
SLOW: add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 50; @%p2 bra SLOW; bra FIRST; END:"""
    assert per_thread(body, 128, grid=(2, 1, 1), block=(64, 1, 1)).tolist() == [724] * 64 + [4024] * 64


@pytest.mark.parametrize("barrier", ["bar.sync 0;", "barrier.sync.aligned 1, 64;"])
def test_lanes_join_at_a_barrier_behind_which_the_other_way_stands(barrier: str) -> None:
    body = f"""mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 0; mov.u32 %r3, 5; @%p1 bra OTHER;
JOIN: {barrier} add.u32 %r0, %r1, %r3; bra END;
OTHER: mov.u32 %r3, 6; bra JOIN; END:"""
    assert per_thread(body, 64).tolist() == [t + 6 - t % 2 for t in range(64)]


# Loops that lanes leave one after the other

LEAVING = """
mov.u32 %r1, %tid.x; mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mad.lo.u32 %r1, %r3, %r4, %r1;
ld.param.u64 %rd1, [turns]; mad.wide.u32 %rd1, %r1, 4, %rd1; ld.global.u32 %r2, [%rd1];
mov.b32 %r3, -1; mov.b32 %r0, 0; bra TEST;
BODY: popc.b32 %r4, %r3; add.s32 %r0, %r0, %r4; sub.s32 %r2, %r2, 1;
TEST: setp.gt.s32 %p1, %r2, 0; vote.sync.ballot.b32 %r3, %p1, %r3; @!%p1 bra END; bra BODY;
END: {end}
"""


@pytest.mark.parametrize("end", ["bar.warp.sync -1;", "bar.sync 0;", ""])
def test_lanes_leave_a_loop_whose_members_become_fewer(end: str) -> None:
    turns = np.random.default_rng().integers(0, 12, (4, LANES)).astype(np.uint32)
    result = per_thread(
        LEAVING.format(end=end), 128, grid=(2, 1, 1), block=(64, 1, 1), parameters=".param .u64 turns", args=[turns],
        max_steps=20_000,
    )  # fmt: skip
    seen = [[sum(int((warp > turn).sum()) for turn in range(own)) for own in warp] for warp in turns]
    np.testing.assert_array_equal(result.reshape(4, LANES), np.array(seen))


def test_the_ctas_of_a_grid_meet_where_the_driver_says() -> None:
    """As cooperative groups do it: `%envreg1` and `%envreg2` are the address of a word that counts arrivals."""
    body = """mov.u32 %r1, %envreg1; mov.u32 %r2, %envreg2; mov.b64 %rd1, {%r2, %r1}; mov.u32 %r3, %ctaid.x;
        mov.u32 %r4, %tid.x; setp.ne.u32 %p1, %r4, 0; @%p1 bra MET;
        atom.add.release.gpu.u32 %r5, [%rd1+4], 1;
        AGAIN: ld.acquire.gpu.u32 %r5, [%rd1+4]; setp.lt.u32 %p2, %r5, 3; @%p2 bra AGAIN;
        MET: bar.sync 0; ld.acquire.gpu.u32 %r0, [%rd1+4]; mov.u32 %r6, %nctaid.x; sub.u32 %r0, %r0, %r6;"""
    assert not per_thread(body, 96, grid=(3, 1, 1), block=(32, 1, 1)).any()


def test_shared_memory_that_is_reserved_lies_behind_the_own() -> None:
    body = """.shared .align 4 .b32 own[40]; mov.u32 %r1, %reserved_smem_offset_begin;
        mov.u32 %r2, %reserved_smem_offset_1;
        mov.u32 %r3, %reserved_smem_offset_end; ld.shared.u32 %r4, [%r2]; sub.u32 %r5, %r3, %r1; add.u32 %r0, %r5, %r4;
        mov.u32 %r6, %total_smem_size; setp.lt.u32 %p1, %r1, %r6; @%p1 mov.u32 %r0, 0;"""
    assert per_thread(body).tolist() == [1024] * 32
