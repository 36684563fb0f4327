"""Wide accesses, cache policies, atomics in every order and width, reductions of narrow floats."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from interpreted import apply, outputs, per_thread, program

from warploom.runtime.interp import InterpreterError

GENERATOR = np.random.default_rng(61)
COPY = """ld.param.u64 %rd1, [source]; ld.param.u64 %rd2, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 32;
    add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3;"""
POINTERS = ".param .u64 source, .param .u64 out"


def listed(type: str, count: int) -> str:
    return "{" + ", ".join(f"%{type}_{i}" for i in range(count)) + "}"


# Loads and stores


@pytest.mark.parametrize("guard", ["", "@%p1 "])
@pytest.mark.parametrize(
    ("load", "store", "type", "count"),
    [
        ("ld.global.v8.b32", "st.global.v8.b32", "b32", 8),
        ("ld.relaxed.gpu.global.v8.f32", "st.v8.f32", "f32", 8),
        ("ld.global.nc.L2::evict_first.v4.b64", "st.global.L2::evict_last.v4.b64", "b64", 4),
        ("ld.v4.global.f64", "st.volatile.global.v4.f64", "f64", 4),
    ],
)
def test_accesses_of_256_bits(load: str, store: str, type: str, count: int, guard: str) -> None:
    data, out = GENERATOR.integers(0, 256, (33, 32), np.uint8), outputs(33 * 32, "u1").reshape(33, 32)
    poison, names = out[0].copy(), listed(type, count)
    body = f""".reg .{type} %{type}_<{count}>; {COPY} setp.ne.u32 %p1, %r1, 5;
        {guard}{load} {names}, [%rd1]; {guard}{store} [%rd2], {names};"""
    program(body, POINTERS).launch("k", (1, 1, 1), (32, 1, 1), [data, out])
    left_out = [5, 32] if guard else [32]
    assert (out[left_out] == poison).all()
    copied = [row for row in range(33) if row not in left_out]
    np.testing.assert_array_equal(out[copied], data[copied])


def test_elements_that_are_not_stored() -> None:
    """Memory keeps what it has where a store has `_`."""
    data, out = GENERATOR.integers(0, 256, (32, 32), np.uint8), outputs(1024, "u1").reshape(32, 32)
    expected = out.copy()
    expected[:, 4:8], expected[:, 24:] = data[:, 4:8], data[:, 24:]
    body = f""".reg .b64 %q<4>; .reg .b32 %w<8>; {COPY}
        ld.global.v8.b32 {{%w0, %w1, %w2, %w3, %w4, %w5, %w6, %w7}}, [%rd1]; ld.v4.b64 {{_, _, _, %q3}}, [%rd1];
        st.v8.b32 [%rd2], {{_, %w1, _, _, _, _, _, _}}; st.global.v4.b64 [%rd2], {{_, _, _, %q3}};"""
    program(body, POINTERS).launch("k", (1, 1, 1), (32, 1, 1), [data, out])
    np.testing.assert_array_equal(out, expected)


def test_accesses_of_128_bits_and_policies() -> None:
    """Words of 128 bits go through global, shared and local memory with every bit, those of NaNs too."""
    data, out = GENERATOR.integers(0, 256, (32, 32), np.uint8), outputs(1024, "u1").reshape(32, 32)
    data[3], data[4] = 0xFF, np.tile([0, 0, 0, 0, 0, 0, 0xF8, 0x7F], 4)
    body = f""".reg .b128 %q<4>; .shared .align 16 .b8 stage[512]; .local .align 16 .b8 own[16]; {COPY}
        createpolicy.fractional.L2::evict_last.b64 %rd4, 0.5;
        createpolicy.range.L2::evict_first.b64 %rd5, [%rd1], 16, 32;
        ld.global.L2::cache_hint.b128 %q0, [%rd1], %rd4; ld.b128.global.L1::no_allocate.L2::128B %q1, [%rd1+16];
        mov.u32 %r2, stage; shl.b32 %r3, %r1, 4; add.u32 %r2, %r2, %r3; st.shared.b128 [%r2], %q0;
        st.local.b128 [own], %q1; ld.shared.b128 %q2, [%r2]; ld.local.b128 %q3, [own]; mov.b128 {{%rd6, %rd7}}, %q2;
        st.global.L2::cache_hint.v2.b64 [%rd2], {{%rd6, %rd7}}, %rd5; st.release.gpu.global.b128 [%rd2+16], %q3;"""
    program(body, POINTERS).launch("k", (1, 1, 1), (32, 1, 1), [data, out])
    np.testing.assert_array_equal(out, data)


def test_other_ways_to_load() -> None:
    data = GENERATOR.integers(0, 1 << 32, 64, np.uint32)
    body = """ld.param.u64 %rd1, [data]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd1, %r1, 8, %rd1;
        prefetch.global.L2 [%rd1]; prefetch.L2::evict_last [%rd1]; applypriority.global.L2::evict_normal [%rd1], 128;
        prefetchu.L1 [%rd1];
        ldu.global.v2.b32 {%r2, %r3}, [%rd1]; ld.mmio.relaxed.sys.global.b32 %r4, [%rd1];
        ld.b32.relaxed.gpu %r5, [%rd1+4]; xor.b32 %r0, %r2, %r3; xor.b32 %r0, %r0, %r4; sub.u32 %r0, %r5, %r0;
        st.mmio.relaxed.sys.global.b32 [%rd1], %r0;"""
    got = per_thread(body, 32, parameters=".param .u64 data", args=[data])
    assert got.tolist() == [0] * 32
    assert data[::2].tolist() == [0] * 32


def test_a_narrow_result_in_a_wide_register_is_refused() -> None:
    with pytest.raises(InterpreterError, match="narrower than a register of 128 bits is not supported"):
        program(".reg .b128 %q; ld.global.b64 %q, [%rd1];")


# Atomics


@pytest.mark.parametrize(
    "opcode",
    [
        "atom.global.gpu.acq_rel.add.f32",
        "atom.acq_rel.gpu.global.add.f32",
        "atom.add.f32.sys.relaxed",
        "atom.cta.add.global.f32",
    ],
)
def test_atomics_in_the_order_of_compilers(opcode: str) -> None:
    data = np.array([0.5], np.float32)
    body = f"ld.param.u64 %rd1, [data]; mov.f32 %f1, 0f40000000; {opcode} %f2, [%rd1], %f1; mov.b32 %r0, %f2;"
    got = per_thread(body, 32, parameters=".param .u64 data", args=[data])
    assert sorted(got.view(np.float32).tolist()) == [0.5 + 2 * i for i in range(32)]
    assert data.tolist() == [64.5]


WIDE = """ld.param.u64 %rd1, [data]; ld.param.u64 %rd2, [given]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd3, %r1, 48, %rd2;
    .reg .b128 %old, %b, %c; ld.global.b128 %b, [%rd3+16]; ld.global.b128 %c, [%rd3+32];"""


def wide(instruction: str, space: str) -> tuple[list[int], list[int], int, list[list[int]]]:
    """What 8 threads get of one place, what they leave there, and what they give: rows of what was, b and c."""
    values = [0, 1 << 63, 1 << 127, (1 << 127) + (1 << 63), 0x7FF8 << 48, 7]
    chosen = GENERATOR.choice(np.array(values, object), (8, 3))
    stage = "" if space == "global" else ".shared .align 16 .b128 there;"
    data = np.zeros(2, np.uint64)
    words = np.array([[[v & (1 << 64) - 1, v >> 64] for v in row] for row in chosen.tolist()], np.uint64)
    begin = "" if space == "global" else "mov.u64 %rd4, 0; st.shared.v2.b64 [there], {%rd4, %rd4}; bar.sync 0;"
    at, end = (
        ("%rd1", "") if space == "global" else ("there", "ld.shared.b128 %old, [there]; st.global.b128 [%rd1], %old;")
    )
    body = f"{stage} {WIDE} {begin} {instruction.format(at)} st.global.b128 [%rd3], %old; bar.sync 0; {end}"
    program(body, ".param .u64 data, .param .u64 given").launch("k", (1, 1, 1), (8, 1, 1), [data, words])
    integers = [[int(low) | int(top) << 64 for low, top in row] for row in words.tolist()]
    return [row[0] for row in integers], [row[1] for row in integers], int(data[0]) | int(data[1]) << 64, integers


@pytest.mark.parametrize("space", ["global", "shared"])
def test_exchanges_of_128_bits(space: str) -> None:
    """Each value is got once: those before the last by another thread, the last by memory."""
    old, put, final, _ = wide(f"atom.{space}.exch.b128 %old, [{{}}], %b;", space)
    assert sorted([*old, final]) == sorted([0, *put])


@pytest.mark.parametrize("space", ["global", "shared"])
def test_comparisons_of_128_bits(space: str) -> None:
    """By all bits: zeros of either sign differ, a NaN is as good as another value. Threads take their turn."""
    old, _, final, rows = wide(f"atom.relaxed.gpu.{space}.cas.b128 %old, [{{}}], %b, %c;", space)
    word = 0
    for got, (_, b, c) in zip(old, rows, strict=True):
        assert got == word
        word = c if word == b else word
    assert final == word


NARROW = {
    "f16": [0x7E00, 0x7C01, 0xFE01, 0, 0x8000, 0x3C00, 0xBC00, 1, 0x8001, 0x7C00, 0xFC00, 0x7FFF],
    "bf16": [0x7FC0, 0x7F81, 0xFFC1, 0, 0x8000, 0x3F80, 0xBF80, 1, 0x8001, 0x7F80, 0xFF80, 0x7FFF],
}
ON_AN_H200 = {
    ("f16", "min"): "0607ba31f3efed8b",
    ("f16", "max"): "ea7425b999683bdd",
    ("f16", "add"): "2e1cdb5512a8b8ab",
    ("bf16", "min"): "dbce508d681ee648",
    ("bf16", "max"): "c884a9d96c61f4f8",
    ("bf16", "add"): "f171f56b26105dcb",
}
"""Digests of the words that one has left of all pairs of those above, with red and with cp.reduce.async.bulk."""


@pytest.mark.parametrize("lanes", ["v2.f16", "v8.f16", "v4.f16x2", "bulk.f16", "v4.bf16", "v2.bf16x2", "bulk.bf16"])
@pytest.mark.parametrize("operation", ["min", "max", "add"])
def test_narrow_floats_as_a_gpu_has_them(operation: str, lanes: str) -> None:
    form, _, type = lanes.partition(".")
    words = NARROW[type.removesuffix("x2")]
    old, new = (np.array(v, np.uint16) for v in zip(*((a, b) for a in words for b in words), strict=True))
    count = 1 if form == "bulk" else int(form[1:]) * (2 if type.endswith("x2") else 1)
    if form == "bulk":
        body = bulk(f"{operation}{'.noftz' if operation == 'add' else ''}.{type}")
    else:
        bits = 32 if type.endswith("x2") else 16
        names = listed(f"b{bits}", int(form[1:]))
        body = f""".reg .b{bits} %b{bits}_<8>; ld.param.u64 %rd1, [source]; ld.param.u64 %rd2, [out];
            mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, {2 * count}; add.u64 %rd1, %rd1, %rd3;
            add.u64 %rd2, %rd2, %rd3;
            {words_into(names, bits)} red.global.{operation}.noftz.{form}.{type} [%rd2], {names};"""
    program(body, POINTERS).launch("k", (1, 1, 1), (old.size // count, 1, 1), [new, old])
    assert sha256(old.tobytes()).hexdigest()[:16] == ON_AN_H200[type.removesuffix("x2"), operation]


def words_into(names: str, bits: int) -> str:
    """Loads of single words: a vector of 16-bit ones may have more than 4 in a reduction alone."""
    registers = names.strip("{}").split(", ")
    return " ".join(f"ld.global.b{bits} {r}, [%rd1+{i * bits // 8}];" for i, r in enumerate(registers))


def bulk(operation: str) -> str:
    return f""".shared .align 16 .b16 stage[144]; ld.param.u64 %rd1, [source]; ld.param.u64 %rd2, [out];
        mov.u32 %r1, %tid.x; mov.u32 %r2, stage; shl.b32 %r3, %r1, 1; add.u32 %r3, %r2, %r3; cvt.u64.u32 %rd3, %r1;
        shl.b64 %rd3, %rd3, 1; add.u64 %rd3, %rd1, %rd3; ld.global.b16 %h1, [%rd3]; st.shared.b16 [%r3], %h1;
        fence.proxy.async.shared::cta; bar.sync 0; setp.ne.u32 %p1, %r1, 0; @%p1 exit;
        cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation} [%rd2], [%r2], 288; cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;"""


# Barriers


@pytest.mark.parametrize("name", ["bar", "bar.cta", "barrier", "barrier.cta"])
def test_questions_to_all_threads(name: str) -> None:
    aligned = ".aligned" if name.startswith("barrier") else ""
    body = f"""mov.u32 %r1, %tid.x; rem.u32 %r2, %r1, 3; setp.eq.u32 %p1, %r2, 0;
        {name}.red.popc{aligned}.u32 %r3, 1, %p1;
        {name}.red.or.pred %p2, 2, 96, %p1; {name}.red.and{aligned}.pred %p3, 2, !%p1; selp.u32 %r4, 100, 0, %p2;
        selp.u32 %r5, 1000, 0, %p3; add.u32 %r0, %r3, %r4; add.u32 %r0, %r0, %r5; {name}.sync{aligned} 0;"""
    assert set(per_thread(body, 96).tolist()) == {32 + 100}


# Addresses


def test_spaces_of_parameters() -> None:
    """The generic address of a parameter leads to it, and the window of parameters is no other's."""
    body = """mov.b64 %rd1, n; cvta.param.u64 %rd2, %rd1; ld.u32 %r1, [%rd2]; isspacep.param %p1, %rd2;
        isspacep.global %p2, %rd2; isspacep.param::entry %p3, %rd2; cvta.to.param.u64 %rd3, %rd2;
        ld.param.u32 %r2, [%rd3];
        selp.u32 %r0, %r1, 0, %p1; selp.u32 %r0, 1, %r0, %p2; selp.u32 %r0, %r0, 2, %p3; sub.u32 %r1, %r1, %r2;
        add.u32 %r0, %r0, %r1;"""
    got = per_thread(body, 32, parameters=".param .u32 n", args=[77])
    assert set(got.tolist()) == {77}


def test_hints_do_nothing() -> None:
    values = GENERATOR.integers(0, 1 << 32, 64, np.uint32)
    hints = "griddepcontrol.wait; griddepcontrol.launch_dependents; nanosleep.u32 %a; pmevent 3; pmevent.mask 5;"
    fences = """fence.acquire.gpu; fence.release.cluster; fence.proxy.alias; fence.mbarrier_init.release.cluster;
        fence.acquire.sync_restrict::shared::cluster.cluster; fence.proxy.tensormap::generic.release.gpu;
        membar.proxy.alias;"""
    got: Any = apply(f"{hints} {fences} not.b32 %d, %a;", "u4", values)
    assert got.tolist() == (~values).tolist()


def test_vector_variables() -> None:
    data, out = GENERATOR.integers(0, 1 << 32, (32, 4), np.uint32), outputs(32 * 8, "u4").reshape(32, 8)
    body = f""".reg .v4 .u32 w; .reg .v4 .b32 place; {COPY}
        shr.u64 %rd4, %rd3, 1; sub.u64 %rd1, %rd1, %rd4; ld.global.v4.u32 w, [%rd1]; mov.v4.u32 place, %tid;
        add.u32 w.y, w.x, place.r; st.global.v4.u32 [%rd2], w; st.global.v4.b32 [%rd2+16], place;"""
    program(body, POINTERS).launch("k", (1, 1, 1), (32, 1, 1), [data, out])
    lanes = np.arange(32, dtype=np.uint32)
    expected = np.concatenate((data, np.zeros_like(data)), axis=1)
    expected[:, 1], expected[:, 4] = data[:, 0] + lanes, lanes
    assert (out == expected).all()


def test_four_words_are_one_of_128_bits() -> None:
    """Packed and unpacked again; of vectors added in memory, the old ones may be discarded."""
    words, out = GENERATOR.integers(0, 1 << 32, (32, 8), np.uint32), outputs(32 * 8, "f4").reshape(32, 8)
    body = f""".reg .b128 q; {COPY}
        ld.global.v4.b32 {{%r0, %r1, %r2, %r3}}, [%rd1]; mov.b128 q, {{%r0, %r1, %r2, %r3}}; mov.b64 %rd4, {{%r0, %r1}};
        mov.b128 {{%r4, _, %r6, %r7}}, q; mov.b128 {{%rd5, %rd6}}, q; mov.b64 {{_, %r5}}, %rd5;
        st.global.v4.b32 [%rd2], {{%r7, %r6, %r5, %r4}}; st.global.v2.f32 [%rd2+16], {{0f3F800000, 0f40000000}};
        atom.global.add.v2.f32 _, [%rd2+16], {{0f3F800000, 0f40400000}};"""
    program(body, POINTERS).launch("k", (1, 1, 1), (32, 1, 1), [words, out])
    assert (out.view(np.uint32)[:, :4] == words[:, 3::-1]).all()
    assert (out[:, 4:6] == [2, 5]).all()


def test_a_number_of_32_bits_is_a_global_address() -> None:
    body = "mov.u32 %r1, 16; isspacep.shared::cta %p1, %r1; isspacep.global %p2, %r1; selp.u32 %r0, 1, 0, %p2;"
    assert set(per_thread(f"{body} selp.u32 %r0, 2, %r0, %p1;", 32).tolist()) == {1}


def test_offsets_of_64_bits_wrap() -> None:
    data, out = GENERATOR.integers(0, 1 << 32, (32, 8), np.uint32), outputs(32 * 8, "u4").reshape(32, 8)
    body = f"""{COPY} add.u64 %rd1, %rd1, 8; ld.global.u32 %r0, [%rd1+0xFFFFFFFFFFFFFFFC];
        st.global.u32 [%rd2], %r0;"""
    program(body, POINTERS).launch("k", (1, 1, 1), (32, 1, 1), [data, out])
    assert (out[:, 0] == data[:, 1]).all()


@pytest.mark.parametrize("literal", ["1.5", "-2.5e-3", "0d3FF8000000000000"])
def test_floats_as_64_bits(literal: str) -> None:
    value = np.array([int(literal[2:], 16)], "u8").view("f8")[0] if literal[:2] == "0d" else float(literal)
    assert per_thread(f"mov.b64 %rd0, {literal};", dtype="u8").view("f8").tolist() == [value] * 32


def test_vectors_are_reduced_in_global_memory_alone() -> None:
    """By a generic address of shared memory, the GPU gives other words without a word."""
    body = """.shared .align 16 .b8 tile[16]; mov.u64 %rd1, tile; cvta.shared.u64 %rd1, %rd1;
        red.add.v2.f32 [%rd1], {0f3F800000, 0f40400000};"""
    with pytest.raises(InterpreterError, match="vectors are reduced in global memory alone"):
        program(body, "").launch("k", (1, 1, 1), (32, 1, 1), [])
