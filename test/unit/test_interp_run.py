"""Launches: arguments, memory, divergence, barriers, exchange between lanes, and what is said when it goes wrong."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from interpreted import apply, collatz_steps, outputs, per_thread, program
from numpy.typing import NDArray

from warploom.runtime.base.errors import ArgumentError, WarploomError
from warploom.runtime.interp import InterpreterError

Array = NDArray[Any]
ONE = (1, 1, 1)
WARP = (32, 1, 1)


# Special registers and arguments


def test_every_thread_of_a_grid_knows_its_place() -> None:
    body = """mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ctaid.x;
        mov.u32 %r5, %ctaid.y; mov.u32 %r6, %ctaid.z; mov.u32 %r7, %ntid.x; mov.u32 %r8, %ntid.y;
        mov.u32 %r9, %nctaid.x; mov.u32 %r10, %nctaid.y; mov.u32 %r18, %ntid.z;
        mad.lo.u32 %r11, %r6, %r10, %r5; mad.lo.u32 %r11, %r11, %r9, %r4;
        mad.lo.u32 %r12, %r3, %r8, %r2; mad.lo.u32 %r12, %r12, %r7, %r1;
        mul.lo.u32 %r13, %r7, %r8; mul.lo.u32 %r13, %r13, %r18; mad.lo.u32 %r14, %r11, %r13, %r12;
        ld.param.u64 %rd1, [out]; mad.wide.u32 %rd1, %r14, 4, %rd1;
        mov.u32 %r15, %laneid; mov.u32 %r16, %warpid; mad.lo.u32 %r17, %r16, 32, %r15;
        mad.lo.u32 %r17, %r11, 1000, %r17; st.global.u32 [%rd1], %r17;"""
    out = outputs(7 * 3 * 2 * 50, "u4")
    program(body, ".param .u64 out").launch("k", (7, 3, 2), (5, 5, 2), [out])
    cta, thread = np.divmod(np.arange(out.size), 50)
    assert out.tolist() == (cta * 1000 + thread).tolist()


def test_scalar_arguments_of_every_width_and_kind() -> None:
    parameters = ".param .u64 out, .param .u8 a, .param .s16 b, .param .f32 c, .param .b64 d, .param .f64 e"
    body = """ld.param.u64 %rd1, [out]; ld.param.u8 %r1, [a]; ld.param.s16 %r2, [b]; ld.param.f32 %f1, [c];
        ld.param.b64 %rd2, [d]; ld.param.f64 %fd1, [e]; st.global.u32 [%rd1], %r1; st.global.s32 [%rd1+4], %r2;
        st.global.f32 [%rd1+8], %f1; st.global.b64 [%rd1+16], %rd2; st.global.f64 [%rd1+24], %fd1;"""
    out = outputs(32, "u1")
    program(body, parameters).launch("k", ONE, ONE, [out, 200, -3, 1.5, np.uint64(2**63 + 1), -0.1])
    assert out[:8].view("i4").tolist() == [200, -3]
    assert out[8:12].view("f4")[0] == np.float32(1.5)
    assert out[16:24].view("u8")[0] == 2**63 + 1
    assert out[24:].view("f8")[0] == -0.1


def test_structs_by_value_and_a_pointer_into_them() -> None:
    body = """ld.param.u64 %rd1, [out]; mov.b64 %rd2, in; ld.param.u32 %r1, [%rd2+4]; ld.param.u32 %r2, [in+8];
        st.global.v2.u32 [%rd1], {%r1, %r2};"""
    out = outputs(2, "u4")
    struct = np.array([1, 2, 3], np.uint32).tobytes()
    program(body, ".param .u64 out, .param .align 8 .b8 in[12]").launch("k", ONE, ONE, [out, struct])
    assert out.tolist() == [2, 3]


def test_the_same_array_twice_is_one_place() -> None:
    body = """ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.global.u32 %r1, [%rd1]; add.u32 %r1, %r1, 5;
        st.global.u32 [%rd2], %r1; ld.global.u32 %r2, [%rd1]; st.global.u32 [%rd1+4], %r2;"""
    data = np.array([10, 0], np.uint32)
    program(body, ".param .u64 a, .param .u64 b").launch("k", ONE, ONE, [data, data])
    assert data.tolist() == [15, 15]


def test_arrays_of_ml_dtypes_and_unaligned_ones_are_bytes() -> None:
    body = (
        """ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.global.b16 %h1, [%rd1+2]; st.global.b16 [%rd2+4], %h1;"""
    )
    source = np.array([1, -2.5, 3], ml_dtypes.bfloat16)
    raw = outputs(7, "u1")[1:]
    program(body, ".param .u64 a, .param .u64 b").launch("k", ONE, ONE, [source, raw])
    assert raw[4:6].view(ml_dtypes.bfloat16)[0] == -2.5
    assert raw[:4].tolist() == [0xA5] * 4


def test_module_variables_keep_their_values() -> None:
    module = """.global .align 4 .u32 counter = 40; .const .align 4 .f32 table[4] = {1.0, 0f40000000, -3.5, 1e1};
        .global .align 8 .b8 zeros[16];"""
    body = """ld.param.u64 %rd1, [out]; ld.global.u32 %r1, [counter]; add.u32 %r1, %r1, 1; st.global.u32 [counter], %r1;
        mov.u64 %rd2, table; cvta.const.u64 %rd3, %rd2; ld.f32 %f1, [%rd3+8]; ld.const.f32 %f2, [table+12];
        ld.global.u32 %r2, [zeros+12]; st.global.u32 [%rd1], %r1; st.global.f32 [%rd1+4], %f1;
        st.global.f32 [%rd1+8], %f2; st.global.u32 [%rd1+12], %r2;"""
    built = program(body, ".param .u64 out", module=module)
    for launch in (41, 42):
        out = outputs(4, "u4")
        built.launch("k", ONE, ONE, [out])
        assert out[0] == launch
        assert out[1:3].view("f4").tolist() == [-3.5, 10.0]
        assert out[3] == 0


# Memory


@pytest.mark.parametrize(("vector", "type"), [(1, "b8"), (2, "b16"), (4, "b32"), (2, "b64"), (4, "b16"), (2, "f32")])
def test_vectors_move_through_shared_memory(vector: int, type: str) -> None:
    size = int(type[1:]) // 8
    names = {1: "%h", 2: "%h", 4: "%f" if type == "f32" else "%r", 8: "%rd"}[size]
    start = 4 if names == "%rd" else 1
    items = ", ".join(f"{names}{start + i}" for i in range(vector))
    list_ = f"{{{items}}}" if vector > 1 else items
    mode = f".v{vector}" if vector > 1 else ""
    step = size * vector
    body = f""".shared .align 16 .b8 tile[1024];
        mov.u32 %r0, %tid.x; ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
        mad.wide.u32 %rd1, %r0, {step}, %rd1; mad.wide.u32 %rd2, %r0, {step}, %rd2;
        mov.u32 %r20, tile; mad.lo.u32 %r20, %r0, {step}, %r20; xor.b32 %r21, %r20, {step};
        ld.global{mode}.{type} {list_}, [%rd1]; st.shared{mode}.{type} [%r20], {list_};
        bar.sync 0; ld.shared{mode}.{type} {list_}, [%r21]; st.global{mode}.{type} [%rd2], {list_};"""
    data = np.random.default_rng(0).integers(0, 256, 64 * step).astype(np.uint8)
    out = outputs(data.size, "u1")
    program(body, ".param .u64 in, .param .u64 out").launch("k", ONE, (64, 1, 1), [data, out])
    expected = data.reshape(-1, 2, step)[:, ::-1].reshape(-1)
    assert out.tolist() == expected.tolist()


def test_generic_addresses_reach_global_shared_and_local_memory_in_one_instruction() -> None:
    body = """.shared .align 4 .b32 tile[32]; .local .align 8 .b8 own[16];
        mov.u32 %r0, %tid.x; ld.param.u64 %rd1, [in]; mad.wide.u32 %rd1, %r0, 4, %rd1;
        mov.u64 %rd2, tile; cvta.shared.u64 %rd2, %rd2; mad.wide.u32 %rd2, %r0, 4, %rd2;
        mov.u64 %rd3, own; cvta.local.u64 %rd3, %rd3; add.u64 %rd3, %rd3, 8;
        add.u32 %r1, %r0, 1000; add.u32 %r2, %r0, 2000; st.u32 [%rd2], %r1; st.local.u32 [own+8], %r2;
        rem.u32 %r3, %r0, 3; setp.eq.u32 %p1, %r3, 0; setp.eq.u32 %p2, %r3, 1;
        selp.b64 %rd4, %rd2, %rd3, %p1; selp.b64 %rd4, %rd1, %rd4, %p2; ld.u32 %r0, [%rd4];
        cvta.to.shared.u64 %rd5, %rd2; @%p1 ld.shared.u32 %r4, [%rd5]; @%p1 add.u32 %r0, %r4, 1;"""
    data = np.arange(32, dtype=np.uint32) + 500
    got = per_thread(body, parameters=".param .u64 in", args=[data])
    expected = [(1001 + t, 500 + t, 2000 + t)[t % 3] for t in range(32)]
    assert got.tolist() == expected


def test_static_and_dynamic_shared_memory_of_many_ctas_lie_apart() -> None:
    body = """.shared .align 8 .b32 first[5]; .shared .align 16 .b32 second[32];
        mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 100, %r1;
        shl.b32 %r4, %r1, 2; mov.u32 %r5, second; add.u32 %r5, %r5, %r4; mov.u32 %r6, dynamic; add.u32 %r6, %r6, %r4;
        st.shared.u32 [%r5], %r3; add.u32 %r7, %r3, 7; st.shared.u32 [%r6], %r7; st.shared.u32 [first+16], %r2;
        bar.sync 0; sub.u32 %r8, 31, %r1; shl.b32 %r8, %r8, 2; mov.u32 %r9, second; add.u32 %r9, %r9, %r8;
        mov.u32 %r10, dynamic; add.u32 %r10, %r10, %r8; ld.shared.u32 %r11, [%r9]; ld.shared.u32 %r12, [%r10];
        ld.shared.u32 %r13, [first+16]; add.u32 %r0, %r11, %r12; add.u32 %r0, %r0, %r13;"""
    built = program(
        body + "ld.param.u64 %rd1, [out]; mad.wide.u32 %rd1, %r2, 128, %rd1; mad.wide.u32 %rd1, %r1, 4, %rd1;"
        "st.global.u32 [%rd1], %r0;",
        ".param .u64 out",
        module=".extern .shared .align 16 .b8 dynamic[];",
    )
    out = outputs(40 * 32, "u4")
    built.launch("k", (40, 1, 1), WARP, [out], shared=128)
    cta, thread = np.divmod(np.arange(out.size), 32)
    assert out.tolist() == (2 * (cta * 100 + 31 - thread) + 7 + cta).tolist()


def test_registers_of_128_bits() -> None:
    body = """.reg .b128 %q<2>; mov.u32 %r1, %tid.x; cvt.u64.u32 %rd1, %r1; mov.u64 %rd2, 0xFFF7000000000001;
        mov.b128 %q1, {%rd1, %rd2}; setp.lt.u32 %p1, %r1, 5; @%p1 mov.b128 %q1, {%rd2, %rd1};
        mov.b128 {%rd3, %rd4}, %q1; sub.u64 %rd0, %rd4, %rd3;"""
    odd = 0xFFF7000000000001
    expected = [(t - odd if t < 5 else odd - t) % 2**64 for t in range(32)]
    assert per_thread(body, dtype="u8").tolist() == expected


# Divergence and barriers


def test_lanes_that_part_meet_again() -> None:
    body = """mov.u32 %r1, %tid.x; mov.u32 %r0, 0; and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 1; @%p1 bra ODD;
        mov.u32 %r0, 100; setp.lt.u32 %p2, %r1, 10; @!%p2 bra JOIN; add.u32 %r0, %r0, 1000; bra.uni JOIN;
        ODD: mov.u32 %r0, 200;
        JOIN: activemask.b32 %r3; setp.eq.u32 %p3, %r3, -1; @%p3 add.u32 %r0, %r0, 1;"""
    expected = [201 if t % 2 else 1101 if t < 10 else 101 for t in range(32)]
    assert per_thread(body).tolist() == expected


def test_loops_of_different_lengths_and_early_exits() -> None:
    """Collatz steps: each lane and warp runs as long as it needs, some threads leave at once."""
    body = """mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r1, %r2, 96, %r1; add.u32 %r3, %r1, 1;
        mov.u32 %r0, 0; and.b32 %r4, %r1, 15; setp.eq.u32 %p4, %r4, 7; @%p4 exit;
        LOOP: setp.eq.u32 %p1, %r3, 1; @%p1 bra DONE; add.u32 %r0, %r0, 1; and.b32 %r5, %r3, 1;
        setp.eq.u32 %p2, %r5, 0; @%p2 shr.u32 %r3, %r3, 1; @!%p2 mad.lo.u32 %r3, %r3, 3, 1; bra LOOP; DONE:"""
    got = per_thread(body, 96 * 5, grid=(5, 1, 1), block=(96, 1, 1))
    assert got.tolist() == [0xA5A5A5A5 if t % 16 == 7 else collatz_steps(t + 1) for t in range(480)]


def test_a_block_that_is_no_multiple_of_a_warp() -> None:
    got = per_thread("mov.u32 %r1, %tid.x; mul.lo.u32 %r0, %r1, %r1; bar.sync 0;", 45)
    assert got.tolist() == [t * t for t in range(45)]


def test_a_barrier_keeps_warps_in_step() -> None:
    """Each round a warp reads what the next one wrote in the round before."""
    body = """.shared .align 4 .b32 slot[128]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, slot;
        add.u32 %r4, %r3, %r2; add.u32 %r5, %r1, 32; and.b32 %r5, %r5, 127; shl.b32 %r5, %r5, 2; add.u32 %r5, %r3, %r5;
        mov.u32 %r0, %r1; mov.u32 %r6, 0; shr.u32 %r8, %r1, 5;
        ROUND: st.shared.u32 [%r4], %r0; setp.eq.u32 %p2, %r8, 2; @%p2 bra SLOW; bra WAIT;
        SLOW: add.u32 %r9, %r9, 1;
        WAIT: bar.sync 0; ld.shared.u32 %r7, [%r5]; bar.sync 0; mad.lo.u32 %r0, %r0, 3, %r7;
        add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, 5; @%p1 bra ROUND;"""
    expected = np.arange(128, dtype=np.uint32)
    for _ in range(5):
        expected = expected * np.uint32(3) + np.roll(expected, -32)
    assert per_thread(body, 128).tolist() == expected.tolist()


def test_named_barriers_with_counts_join_half_of_a_cta() -> None:
    body = """.shared .align 4 .b32 slot[2]; mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 6; shl.b32 %r3, %r2, 2;
        mov.u32 %r4, slot; add.u32 %r4, %r4, %r3; add.u32 %r5, %r2, 1; and.b32 %r6, %r1, 63; setp.eq.u32 %p1, %r6, 40;
        add.u32 %r7, %r2, 70; @%p1 st.shared.u32 [%r4], %r7; bar.sync %r5, 64; ld.shared.u32 %r0, [%r4];"""
    assert per_thread(body, 128).tolist() == [70] * 64 + [71] * 64


def test_producers_arrive_and_consumers_wait() -> None:
    body = """.shared .align 4 .b32 slot; mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 32; @%p1 bra CONSUME;
        mov.u32 %r2, 77; st.shared.u32 [slot], %r2; bar.arrive 3, 64; mov.u32 %r0, 1; bra END;
        CONSUME: bar.sync 3, 64; ld.shared.u32 %r0, [slot]; END:"""
    assert per_thread(body, 64).tolist() == [1] * 32 + [77] * 32


def test_a_spinning_warp_lets_the_one_it_waits_for_run() -> None:
    body = """.shared .align 4 .b32 flag; mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra NEXT;
        mov.u32 %r2, 0; st.shared.u32 [flag], %r2;
        NEXT: bar.sync 0; setp.ge.u32 %p2, %r1, 32; @%p2 bra SET;
        SPIN: ld.volatile.shared.u32 %r3, [flag]; setp.eq.u32 %p3, %r3, 0; @%p3 bra SPIN; mov.u32 %r0, %r3; bra END;
        SET: mov.u32 %r4, 9; st.shared.u32 [flag], %r4; mov.u32 %r0, 1; END:"""
    assert per_thread(body, 64).tolist() == [9] * 32 + [1] * 32


@pytest.mark.parametrize("spin", ["ld.volatile.shared.u32 %r3, [flag];", "atom.shared.or.b32 %r3, [flag], 0;"])
def test_spinning_costs_few_steps(spin: str) -> None:
    """The warp that is waited for runs 3000 rounds at once, and not one for each that others spin."""
    body = f""".shared .align 4 .b32 flag; mov.u32 %r1, %tid.x; mov.u32 %r2, 0; st.shared.u32 [flag], %r2; bar.sync 0;
        setp.ge.u32 %p2, %r1, 96; @%p2 bra WORK; SPIN: {spin} setp.eq.u32 %p3, %r3, 0; @%p3 bra SPIN; bra END;
        WORK: add.u32 %r2, %r2, 1; setp.lt.u32 %p4, %r2, 3000; @%p4 bra WORK; st.shared.u32 [flag], %r2; END:"""
    stats = program(body).launch("k", ONE, (128, 1, 1), [])
    assert stats.steps < 9300


def test_barriers_whose_numbers_and_counts_are_in_registers() -> None:
    """Pairs of warps meet at barriers of their own; the second warp of each pair comes later."""
    body = """.shared .align 4 .b32 slot[4]; mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 6; shl.b32 %r3, %r2, 2;
        mov.u32 %r4, slot; add.u32 %r4, %r4, %r3; and.b32 %r5, %r1, 63; setp.eq.u32 %p1, %r5, 33; mov.u32 %r6, 64;
        add.u32 %r7, %r2, 5; mad.lo.u32 %r8, %r2, 10, 3; setp.ge.u32 %p2, %r5, 32; @!%p2 bra WAIT;
        add.u32 %r8, %r8, 1; @%p1 st.shared.u32 [%r4], %r8;
        WAIT: barrier.sync.aligned %r7, %r6; ld.shared.u32 %r0, [%r4];"""
    assert per_thread(body, 256).tolist() == [4 + 10 * (t // 64) for t in range(256)]


@pytest.mark.parametrize(("mode", "type"), [("popc", "u32"), ("and", "pred"), ("or", "pred")])
@pytest.mark.parametrize("limit", [0, 37, 96])
def test_barriers_that_answer(mode: str, type: str, limit: int) -> None:
    dest, after = ("%r0", "") if type == "u32" else ("%p2", "selp.u32 %r0, 1, 0, %p2;")
    body = f"""mov.u32 %r1, %tid.x; mov.u32 %r5, %ctaid.x; add.u32 %r6, %r1, %r5; setp.lt.u32 %p1, %r6, {limit};
        setp.ge.u32 %p3, %r1, 64; @%p3 bra LATE; bar.red.{mode}.{type} {dest}, 2, %p1; bra END;
        LATE: bar.red.{mode}.{type} {dest}, 2, %p1; END: {after}
        bar.red.{mode}.{type} {dest}, 1, 96, !%p1; {after.replace("1, 0", "100, 0").replace("%r0", "%r2")}
        {"mov.u32 %r2, 0;" if type == "u32" else ""} add.u32 %r0, %r0, %r2;"""
    got = per_thread(body, 192, grid=(2, 1, 1), block=(96, 1, 1)).reshape(2, 96)
    for cta in range(2):
        count = max(0, min(96, limit - cta))
        holds = {"popc": count, "and": int(count == 96), "or": int(count > 0)}[mode]
        opposite = {"popc": 96 - count, "and": int(count == 0), "or": int(count < 96)}[mode]
        assert got[cta].tolist() == [opposite if mode == "popc" else holds + 100 * opposite] * 96


# Exchange between lanes


def test_shuffles_reduce_and_select() -> None:
    body = """mov.u32 %r1, %tid.x; mul.lo.u32 %r2, %r1, 10;
        shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1; shfl.sync.idx.b32 %r4, %r2, 5, 31, -1;
        shfl.sync.up.b32 %r5|%p1, %r2, 2, 0, -1; shfl.sync.down.b32 %r6|%p2, %r2, 3, 0x1807, -1;
        selp.u32 %r7, 1, 0, %p1; selp.u32 %r8, 1, 0, %p2;
        add.u32 %r0, %r3, %r4; mad.lo.u32 %r0, %r5, 1000, %r0; mad.lo.u32 %r0, %r6, 1000000, %r0;
        mad.lo.u32 %r0, %r7, 7, %r0; mad.lo.u32 %r0, %r8, 5, %r0;"""

    def expected(t: int) -> int:
        lane, base = t % 32, t - t % 32
        up = (lane - 2, 1) if lane >= 2 else (lane, 0)
        down = (lane + 3, 1) if (lane & 7) + 3 <= 7 else (lane, 0)
        total = 10 * (base + (lane ^ 1)) + 10 * (base + 5)
        total += 1000 * 10 * (base + up[0]) + 10**6 * 10 * (base + down[0]) + 7 * up[1] + 5 * down[1]
        return total & 0xFFFFFFFF

    assert per_thread(body, 64).tolist() == [expected(t) for t in range(64)]


def test_votes_and_reductions() -> None:
    body = """mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 3; setp.eq.u32 %p1, %r2, 1; setp.lt.u32 %p2, %r1, 40;
        vote.sync.ballot.b32 %r3, %p1, -1; vote.sync.all.pred %p3, %p2, -1; vote.sync.any.pred %p4, !%p2, -1;
        redux.sync.add.u32 %r4, %r1, -1; redux.sync.max.s32 %r5, %r1, -1; redux.sync.xor.b32 %r6, %r1, -1;
        selp.u32 %r7, 1, 0, %p3; selp.u32 %r8, 2, 0, %p4; add.u32 %r0, %r7, %r8; add.u32 %r0, %r0, %r3;
        add.u32 %r0, %r0, %r4; add.u32 %r0, %r0, %r5; add.u32 %r0, %r0, %r6;"""

    def expected(warp: int) -> int:
        lanes = range(32 * warp, 32 * warp + 32)
        total = 0x22222222 + sum(lanes) + max(lanes) + int(np.bitwise_xor.reduce(list(lanes)))
        return total + (1 if warp == 0 else 2)

    assert per_thread(body, 64).tolist() == [expected(0)] * 32 + [expected(1)] * 32


@pytest.mark.parametrize("bits", [32, 64])
def test_lanes_with_equal_values_find_each_other(bits: int) -> None:
    """Lane 9 of the first warp takes no part; in the second warp all lanes hold one value."""
    name = "%r2" if bits == 32 else "%rd1"
    widen = "" if bits == 32 else "mov.b64 %rd1, {%r2, %r9};"
    body = f"""mov.u32 %r1, %tid.x; mov.u32 %r0, 0; mul.lo.u32 %r2, %r1, 7; and.b32 %r2, %r2, 3; mov.u32 %r9, 5;
        setp.ge.u32 %p1, %r1, 32; @%p1 mov.u32 %r2, 77; {widen} mov.u32 %r8, 0xFFFFFDFF;
        @%p1 mov.u32 %r8, -1; setp.eq.u32 %p2, %r1, 9; @%p2 bra END; match.any.sync.b{bits} %r3, {name}, %r8;
        match.all.sync.b{bits} %r4|%p3, {name}, %r8; selp.u32 %r5, 5, 1, %p3; add.u32 %r0, %r3, %r4;
        mad.lo.u32 %r0, %r0, 8, %r5; END:"""

    def expected(t: int) -> int:
        if t >= 32:
            return (0xFFFFFFFF + 0xFFFFFFFF) * 8 + 5 & 0xFFFFFFFF
        mask = sum(1 << other for other in range(32) if other != 9 and other * 7 & 3 == t * 7 & 3)
        return 0 if t == 9 else mask * 8 + 1 & 0xFFFFFFFF

    assert per_thread(body, 64).tolist() == [expected(t) for t in range(64)]


def test_one_lane_is_elected() -> None:
    body = """mov.u32 %r1, %laneid; mov.u32 %r2, 0xFFFFFF00; elect.sync %r3|%p1, -1; setp.lt.u32 %p2, %r1, 8;
        selp.u32 %r0, 1, 0, %p1; mad.lo.u32 %r0, %r3, 10, %r0; @%p2 bra END; elect.sync %r3|%p1, %r2;
        selp.u32 %r4, 1000, 0, %p1; add.u32 %r0, %r0, %r4; mad.lo.u32 %r0, %r3, 10000, %r0; END:"""
    expected = [int(t == 0) + (80000 + 1000 * (t == 8) if t >= 8 else 0) for t in range(32)]
    assert per_thread(body, 64).tolist() == expected * 2


def test_lanes_wait_for_the_members_of_a_shuffle() -> None:
    """The odd lanes come later; the shuffle takes their new values."""
    body = """mov.u32 %r1, %tid.x; mov.u32 %r2, 5; and.b32 %r3, %r1, 1; setp.eq.u32 %p1, %r3, 0; @%p1 bra MEET;
        add.u32 %r2, %r1, 50; MEET: shfl.sync.bfly.b32 %r0, %r2, 1, 31, -1;"""
    assert per_thread(body).tolist() == [5 if t % 2 else t + 51 for t in range(32)]


def test_some_lanes_vote_alone() -> None:
    body = """mov.u32 %r1, %tid.x; mov.u32 %r0, 3; setp.ge.u32 %p1, %r1, 8; @%p1 bra END;
        setp.gt.u32 %p2, %r1, 5; vote.sync.ballot.b32 %r0, %p2, 0xFF; END:"""
    assert per_thread(body).tolist() == [0b11000000] * 8 + [3] * 24


def test_atomics_take_turns() -> None:
    body = """ld.param.u64 %rd1, [data]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 3; mad.wide.u32 %rd2, %r2, 4, %rd1;
        atom.global.add.u32 %r0, [%rd2], %r1; red.global.max.s32 [%rd1+16], %r1; atom.global.inc.u32 %r4, [%rd1+20], 9;
        mov.f32 %f1, 0f3F000000; red.global.add.f32 [%rd1+24], %f1; atom.cas.b32 %r5, [%rd1+28], 11, 12;
        atom.exch.b32 %r6, [%rd1+32], %r1;"""
    data = np.array([5, 6, 7, 8, 0, 3, 0, 11, 100], np.uint32)
    got = per_thread(body, 32, parameters=".param .u64 data", args=[data])
    for place in range(4):
        seen = 5 + place + np.concatenate([[0], np.cumsum(np.arange(place, 32, 4))])
        assert got[place::4].tolist() == seen[:-1].tolist()
        assert data[place] == seen[-1]
    assert data[4:6].tolist() == [31, (3 + 32) % 10]
    assert data[6:7].view(np.float32)[0] == 16.0
    assert data[7:].tolist() == [12, 31]


def test_atomic_sums_of_vectors() -> None:
    """Each part takes its turn; what was there comes back."""
    body = """ld.param.u64 %rd1, [data]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1; mad.wide.u32 %rd2, %r2, 8, %rd1;
        cvt.rn.f32.u32 %f1, %r1; mov.f32 %f2, 0f3F800000; atom.global.add.v2.f32 {%f3, %f4}, [%rd2], {%f1, %f2};
        mov.b32 %r3, 0x3C004000; red.global.add.noftz.v2.f16x2 [%rd1+16], {%r3, %r3}; cvt.rzi.u32.f32 %r4, %f3;
        cvt.rzi.u32.f32 %r5, %f4; mad.lo.u32 %r0, %r4, 100, %r5;"""
    data = np.zeros(6, np.float32)
    got = per_thread(body, 32, parameters=".param .u64 data", args=[data])
    assert data[:4].tolist() == [240.0, 16.0, 256.0, 16.0]
    assert data[4:].view(np.float16).tolist() == [64.0, 32.0] * 2
    for place in range(2):
        before = np.concatenate([[0], np.cumsum(np.arange(place, 32, 2))[:-1]])
        assert got[place::2].tolist() == (before * 100 + np.arange(16)).tolist()


def test_atomic_sums_of_halves_and_shared_memory() -> None:
    body = """.shared .align 4 .b32 total; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; mov.u32 %r2, 0;
        @%p1 st.shared.u32 [total], %r2; bar.sync 0; mov.b32 %r3, 0x3C004000; red.shared.add.noftz.f16x2 [total], %r3;
        bar.sync 0; ld.shared.u32 %r0, [total];"""
    assert per_thread(body, 64).view(np.float16).tolist() == [128.0, 64.0] * 64


# What goes wrong


def fails(body: str, match: str, *args: object, parameters: str = "", threads: int = 32, **options: Any) -> None:
    with pytest.raises(InterpreterError, match=match):
        program(body, parameters).launch("k", ONE, (threads, 1, 1), list(args), **options)


ADDRESS = "ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd1, %r1, 4, %rd1;"


def test_out_of_bounds_names_the_argument_and_the_thread() -> None:
    data = np.zeros((3, 5), np.float32)
    where = r"k.ptx:7:1: error: ld.global.u32: global access out of bounds: 4 bytes at address 0x\w+, "
    thread = r"\(kernel k, CTA \(0, 0, 0\), warp 0, lane 15\)"
    text = rf"{where}at byte 60 of argument 0 \(p, 3x5 float32\) \(60 bytes\) {thread}"
    fails(f"{ADDRESS}\nld.global.u32 %r2, [%rd1];", text, data, parameters=".param .u64 p")
    fails(f"{ADDRESS}\nld.global.u32 %r2, [%rd1+-8];", "8 bytes before argument 0", data, parameters=".param .u64 p")
    fails(
        "mov.u64 %rd1, 64;\nst.global.u32 [%rd1], 1;",
        "which is in no allocation",
        np.zeros(1),
        parameters=".param .u64 p",
    )


def test_misaligned_accesses() -> None:
    data = np.zeros(64, np.float32)
    where = r"misaligned global access: address 0x\w+ is not a multiple of 16 \(kernel k, .* lane 1\)"
    fails(f"{ADDRESS}\nld.global.v4.u32 {{%r2, %r3, %r4, %r5}}, [%rd1];", where, data, parameters=".param .u64 p")
    shared = ".shared .align 4 .b8 tile[64]; mov.u32 %r1, %tid.x; mov.u32 %r2, tile; add.u32 %r2, %r2, %r1;"
    fails(f"{shared}\nst.shared.u16 [%r2], %h1;", "misaligned shared access: address 0x1 .* lane 1", threads=8)


def test_out_of_bounds_shared_local_and_parameter_memory() -> None:
    shared = ".shared .align 4 .b8 tile[64]; mov.u32 %r1, %tid.x; shl.b32 %r1, %r1, 2;"
    fails(f"{shared}\nst.shared.u32 [%r1], %r1;", "shared access out of bounds: 4 bytes at address 0x40, of 64 bytes")
    fails("mov.u32 %r1, 0;\nst.shared.u32 [%r1], 1;", "of 0 bytes")
    fails(".local .align 4 .b8 own[8];\nst.local.u32 [own+8], %r1;", "local access out of bounds")
    fails("ld.param.u32 %r1, [p+4];", "param access out of bounds", 3, parameters=".param .u32 p")
    where = ".shared .align 8 .b64 t[2]; mov.u64 %rd1, t; cvta.shared.u64 %rd1, %rd1;\nld.u64 %rd2, [%rd1+16];"
    fails(where, "shared access out of bounds: 8 bytes at address 0x10, of 16 bytes")


def test_read_only_arrays() -> None:
    data = np.zeros(32, np.float32)
    data.flags.writeable = False
    fails(f"{ADDRESS}\nst.global.u32 [%rd1], 1;", "argument 0 .* is read-only", data, parameters=".param .u64 p")


def test_deadlock_says_where_each_warp_waits() -> None:
    body = """mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 64; @%p1 bra OTHER;
bar.sync 1; bra END;
OTHER: bar.sync 2;
END:"""
    fails(body, r"deadlock: .*warps 0-1 wait at line 7 \(bar.sync\); warps 2-3 wait at line 8", threads=128)


def test_a_divergent_aligned_instruction_is_reported() -> None:
    body = """mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 9; @%p1 bra OTHER;
bar.sync 0; bra END;
OTHER: bar.sync 0; END:"""
    place = r"lane 9 takes no part and waits at line 8 \(bar.sync\)"
    fails(body, f"k.ptx:7:1: .*bar.sync must be executed by all lanes of a warp together; {place}")
    matrix = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%fd0, %fd1}, {%fd2}, {%fd3}, {%fd0, %fd1};"
    fails(body.replace("bar.sync 0; bra", f"{matrix} bra"), f"together; {place}")


def test_a_runaway_kernel_ends() -> None:
    fails("LOOP:\nadd.u32 %r1, %r1, 1; bra LOOP;", "took more than 5000 steps", max_steps=5000)


def test_trap() -> None:
    fails("mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 6;\n@%p1 trap;", "the kernel executed a trap, thread .* lane 6")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("txq.width.b32 %r1, [%rd1];", "txq.width.b32: not supported: textures and surfaces are objects of a driver"),
        ("add.u32 %r1, %r2;", "add.u32: expected 3 operands (d, a, b), got 2"),
        ("add.u32 %r1, %r2, %rd3;", "operand b: expected a register that holds .u32, got .b64"),
        ("add.u32 %r1, %r2, %undeclared;", "register %undeclared is not declared"),
        ("add.u32 %r1, %r2, 0x1FFFFFFFF;", "0x1FFFFFFFF does not fit .u32"),
        ("add.u32 %r1, %r2, 1.5;", "expected an integer literal for .u32"),
        ("bra NOWHERE;", "no label NOWHERE"),
        ("ld.global.u32 %r1, %rd1;", "expected an address in brackets, got"),
        ("ld.global.u32 %r1, [missing];", "'missing' is not declared"),
        ("mov.v4.u32 %r1, %r2;", "operand d: expected a vector of 4 x .u32, got a .b32 register"),
        ("@%r1 add.u32 %r1, %r2, %r3;", "the guard %r1 is not a predicate"),
        ("setp.lt.b32 %p1, %r1, %r2;", "the nearest are setp.lt.s32, setp.ne.b32"),
        ("cvt.u32.f32 %r1, %f1;", "; the nearest are cvt."),
        ("cvt.rni.f64.f32 %fd1, %f1;", "; the nearest are cvt."),
        ("cp.reduce.async.bulk.global;", "is not a PTX instruction"),
        ("cp.async.bulk.tensor.2d.shared::cluster.global;", "is not a PTX instruction"),
        ("cp.async.cg.shared.global [%r1], [%rd1], 8;", "operand n: expected 16, got 8"),
        ("st.param.u32 [p], %r1;", "kernel parameters cannot be written"),
        ("multimem.red.add.u32 [%rd1], %r1;", "memory of several GPUs is not simulated"),
        ("bar.sync 0, 0;", "a positive multiple of 32, got 0"),
        ("bar.sync 0, 33;", "expected a multiple of 32 of at least 0, got 33"),
        ("shfl.b32 %r1, %r2, 1, 31;", "the nearest are shfl.up.b32, shfl.idx.b32"),
        ("add.cc.u16 %h1, %h1, %h1;", "the nearest are add.cc.u64, add.u16, add.cc.u32"),
        ("max.abs.f32 %f1, %f2, %f3;", "expected 4 operands (d, a, b, c), got 3"),
        ("setp.eq.f16x2 %p1, %r1, %r2;", "expected a destination and a predicate, written d|p"),
        ("set.eq.u16.f16x2 %h1, %r1, %r2;", "'set.eq.u16.f16x2' is not a PTX instruction"),
        ("lop3.or.b32 %r1, %r2, %r3, %r4, 3, %p1;", "expected a destination and a predicate, written d|p"),
        ("cvt.rn.e4m3x2.f32 %h1, %f1, %f2;", "; the nearest are cvt."),
        ("cvt.rm.tf32.f32 %r1, %f1;", "; the nearest are cvt."),
        ("cvt.rn.satfinite.f32.f64 %f1, %fd1;", "; the nearest are cvt."),
        ("elect.sync %r1, -1;", "expected a destination and a predicate, written d|p"),
        ("match.any.sync.b32 %r1|%p1, %r2, -1;", "operand d: expected one register, got a pair"),
        ("ld.shared.u32 %r1, [p];", "'p' is in .param memory, the instruction is for .shared"),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f32 {%fd1}, {%fd1}, {%fd1}, {%fd1};", "is not a PTX"),
    ],
)
def test_what_cannot_run_is_refused_at_load_time(statement: str, message: str) -> None:
    with pytest.raises(InterpreterError) as caught:
        program(f"mov.u32 %r1, 0;\n  {statement}", ".param .u32 p")
    assert str(caught.value).startswith("k.ptx:7:3: error: ")
    assert message in str(caught.value)
    assert str(caught.value).endswith("(kernel k)")


@pytest.mark.parametrize(
    ("grid", "block", "args", "shared", "message"),
    [
        (ONE, (1025, 1, 1), [1], 0, "expected block from"),
        (ONE, (64, 32, 1), [1], 0, "a block has at most 1024 threads, got 2048"),
        ((0, 1, 1), ONE, [1], 0, "expected grid from"),
        (ONE, ONE, [], 0, r"expected 1 arguments \(\.u32 p\), got 0"),
        (ONE, ONE, [np.zeros(3)], 0, "expected a scalar, got the array 3xf64"),
        (ONE, ONE, [2**40], 0, "argument 0"),
        (ONE, ONE, ["text"], 0, "expected an integer of 32 bits, got 'text'"),
        (ONE, ONE, [1], 300_000, "300000 bytes of shared memory are asked for; a CTA on sm_90a has at most 232448"),
    ],
)
def test_launches_that_cannot_be(grid: Any, block: Any, args: list[object], shared: int, message: str) -> None:
    with pytest.raises(WarploomError, match=message):
        program("ret;", ".param .u32 p").launch("k", grid, block, args, shared)


def test_an_unknown_kernel_and_a_gapped_array() -> None:
    built = program("ret;", ".param .u64 p")
    with pytest.raises(InterpreterError, match=r"no kernel 'other' in k.ptx; it has k"):
        built.launch("other", ONE, ONE, [])
    with pytest.raises(ArgumentError, match="4x2xf64 has gaps"):
        built.launch("k", ONE, ONE, [np.zeros((4, 4))[:, :2]])


def test_progress_and_stats() -> None:
    seen: list[tuple[int, int]] = []
    stats = program("ret;").launch("k", (5000, 1, 1), WARP, [], progress=lambda *now: seen.append(now))
    assert seen[-1] == (5000, 5000)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert stats.threads == 5000 * 32


def test_launch_bounds_of_the_kernel() -> None:
    built = program("ret;", module="")
    built.launch("k", ONE, (1024, 1, 1), [])
    assert apply("add.u32 %d, %a, 1;", "u4", np.arange(70, dtype=np.uint32)).tolist() == list(range(1, 71))
