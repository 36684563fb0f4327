"""Instructions that only older PTX has, or only newer: results against models of one lane, written from the text."""

from __future__ import annotations

import math

import numpy as np
import pytest
from binary_formats import F32, add, fma
from interpreted import Array, apply, outputs, per_thread, program

GENERATOR = np.random.default_rng(73)


def test_votes_and_shuffles_without_sync_are_of_the_lanes_that_run_them() -> None:
    got = per_thread(
        "mov.u32 %r1, %tid.x; mov.u32 %r0, 77; setp.lt.u32 %p1, %r1, 12; setp.lt.u32 %p2, %r1, 5;"
        "@!%p1 bra DONE; vote.ballot.b32 %r2, %p2; vote.any.pred %p3, %p2; vote.all.pred %p4, %p2;"
        "vote.uni.pred %p5, !%p1; selp.u32 %r3, 256, 0, %p3; selp.u32 %r4, 512, 0, %p4; selp.u32 %r5, 1024, 0, %p5;"
        "shfl.bfly.b32 %r6, %r1, 3, 31; shfl.up.b32 %r7|%p6, %r1, 1, 0; selp.u32 %r8, 2048, 0, %p6;"
        "shl.b32 %r6, %r6, 16; shl.b32 %r7, %r7, 24;"
        "add.u32 %r0, %r2, %r3; add.u32 %r0, %r0, %r4; add.u32 %r0, %r0, %r5;"
        "add.u32 %r0, %r0, %r6; add.u32 %r0, %r0, %r7; add.u32 %r0, %r0, %r8; DONE:"
    )
    ran = [31 + 256 + 1024 + ((t ^ 3) << 16) + (max(t - 1, 0) << 24) + 2048 * (t > 0) for t in range(12)]
    assert got.tolist() == ran + [77] * 20


def reduced(values: Array, name: str, magnitude: bool, nan: bool) -> float:
    """One lane after the other, from the text: of +0 and -0, -0 is the smaller."""
    result = math.nan
    for value in map(float, values):
        value = math.copysign(value, 1.0) if magnitude else value
        if math.isnan(value):
            if nan:
                return math.nan
            continue
        key, best = (value, math.copysign(1.0, value)), (result, math.copysign(1.0, result))
        if math.isnan(result) or (key < best if name == "min" else key > best):
            result = value
    return result


@pytest.mark.parametrize("nan", ["", ".NaN"])
@pytest.mark.parametrize("magnitude", ["", ".abs"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_reductions_of_f32(name: str, magnitude: str, nan: str) -> None:
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1e-45], np.float32)
    values = np.concatenate(
        [GENERATOR.standard_normal(64), GENERATOR.choice(special, 64), [np.nan] * 32, [0.0, -0.0] * 16]
    ).astype(np.float32)
    got = apply(f"redux.sync.{name}{magnitude}{nan}.f32 %d, %a, -1;", "u4", values).reshape(-1, 32)
    for group, words in zip(values.reshape(-1, 32), got, strict=True):
        expected = reduced(group, name, bool(magnitude), bool(nan))
        word = 0x7FFFFFFF if math.isnan(expected) else int(np.float32(expected).view(np.uint32))
        assert words.tolist() == [word] * 32


def widened(words: Array, type: str) -> Array:
    return words.view(np.float16).astype(np.float32).view(np.uint32) if type == "f16" else words.astype(np.uint32) << 16


@pytest.mark.sampled(4)
@pytest.mark.parametrize("saturate", ["", ".sat"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("type", ["f16", "bf16"])
def test_f32_with_operands_of_16_bits(type: str, mode: str, saturate: str) -> None:
    a, b = GENERATOR.integers(0, 1 << 16, (2, 300), np.uint16)
    c = F32.words()[:300]
    wide, factor = widened(a, type), widened(b, type)
    c[:60] = (wide[:60] ^ 1 << 31) + GENERATOR.integers(0, 3, 60).astype(np.uint32)
    for name, operands, exact in (
        ("add", (a, c), [add(F32, int(x), int(z), mode) for x, z in zip(wide, c, strict=True)]),
        ("sub", (a, c), [add(F32, int(x), int(z) ^ 1 << 31, mode) for x, z in zip(wide, c, strict=True)]),
        ("fma", (a, b, c), [fma(F32, int(x), int(y), int(z), mode) for x, y, z in zip(wide, factor, c, strict=True)]),
    ):
        expected = np.array(exact, np.uint32)
        expected = np.where(np.isnan(expected.view(np.float32)), np.uint32(0x7FFFFFFF), expected)
        if saturate:
            values = expected.view(np.float32)
            expected = np.where(values > 0, np.minimum(values, np.float32(1)), np.float32(0)).view(np.uint32)
        names = ", ".join(f"%{x}" for x in "abc"[: len(operands)])
        got = apply(f"{name}.{mode}{saturate}.f32.{type} %d, {names};", "u4", *operands)
        assert got.tolist() == expected.tolist()


def place(mask: int, base: int, n: int) -> int:
    """The loop of the text."""
    if n == 0:
        return base if base < 32 and mask >> base & 1 else 0xFFFFFFFF
    left, at = abs(n), base
    while 0 <= at < 32:
        left -= mask >> at & 1
        if left == 0:
            return at
        at += 1 if n > 0 else -1
    return 0xFFFFFFFF


def test_find_nth_set() -> None:
    mask, base = GENERATOR.integers(0, 1 << 32, 500, np.uint32), GENERATOR.integers(0, 34, 500, np.uint32)
    n = GENERATOR.integers(-20, 20, 500).astype(np.int32)
    got = apply("fns.b32 %d, %a, %b, %c;", "u4", mask, base, n)
    assert got.tolist() == [place(*map(int, each)) for each in zip(mask, base, n, strict=True)]


def test_registers_of_128_bits() -> None:
    words = GENERATOR.integers(0, 1 << 64, 70, np.uint64)
    keep = ".reg .b128 %w, %v, %c; .reg .b64 %l, %h, %m;"
    move = "mov.b128 %w, {%a, %b}; mov.b128 %v, %w; mov.b128 {%l, %h}, %v; mov.b128 %c, 41; mov.b128 {%m, _}, %c;"
    got = apply(f"{move} sub.u64 %d, %h, %l; add.u64 %d, %d, %m;", "u8", words, words[::-1].copy(), keep=keep)
    assert np.array_equal(got, words[::-1] - words + np.uint64(41))


EIGHT = {x: "{" + ", ".join(f"%{x}{i}" for i in range(8)) + "}" for x in "abc"}


@pytest.mark.parametrize("aligned", ["", ".aligned"])
@pytest.mark.parametrize("type", ["f16", "f32"])
def test_wmma_of_older_versions(type: str, aligned: str) -> None:
    """`.satfinite`: no infinities and no NaN."""
    a = np.zeros((16, 16), np.float16)
    a[:, 0], a[3, 0], a[5, 0] = 2.0, np.nan, np.inf
    b = np.full((16, 16), 1.5, np.float16)
    b[0, 1::2], b[0, 7] = -60000.0, 0.0
    b[0, 3] = np.inf
    count, sums = (4, ".b32") if type == "f16" else (8, ".f32")
    c = "{" + ", ".join(f"%c{i}" for i in range(count)) + "}"
    zeros = " ".join(f"mov.b32 %c{i}, 0;" for i in range(count))
    out = outputs(256, "f2" if type == "f16" else "f4")
    body = f"""{{ .reg .b32 %a<8>, %b<8>; .reg {sums} %c<8>; {zeros}
        ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [d];
        wmma.load.a.sync{aligned}.row.m16n16k16.global.f16 {EIGHT["a"]}, [%rd1];
        wmma.load.b.sync{aligned}.row.m16n16k16.global.f16 {EIGHT["b"]}, [%rd2];
        wmma.mma.sync{aligned}.row.row.m16n16k16.{type}.{type}.satfinite {c}, {EIGHT["a"]}, {EIGHT["b"]}, {c};
        wmma.store.d.sync{aligned}.row.m16n16k16.global.{type} [%rd3], {c}; }}"""
    program(body, ".param .u64 a, .param .u64 b, .param .u64 d").launch("k", (1, 1, 1), (32, 1, 1), [a, b, out])
    with np.errstate(invalid="ignore", over="ignore"):
        exact = a.astype(np.float64) @ b.astype(np.float64)
        largest = float(np.finfo(out.dtype).max)
        expected = np.where(np.isnan(exact), 0.0, np.clip(exact, -largest, largest))
    assert np.array_equal(out.reshape(16, 16).astype(np.float64), expected)
    assert not np.signbit(out.reshape(16, 16)[3]).any()
