"""`wmma`: matrices in every space, strides, and what is refused. The arithmetic of all forms is replayed elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from interpreted import outputs, program
from numpy.typing import NDArray

from warploom.dialect.isa import wmma
from warploom.dialect.isa.row import TARGETS
from warploom.dialect.isa.wmma import WmmaMma
from warploom.runtime.interp import InterpreterError

Array = NDArray[Any]
ONE = (1, 1, 1)
F16 = "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"
EIGHT = {x: "{" + ", ".join(f"%{x}{i}" for i in range(8)) + "}" for x in "abcd"}
DECLARED = ".reg .b32 %a<8>, %b<8>; .reg .f32 %c<8>, %d<8>; .reg .b64 %at;"
ZEROS = " ".join(f"mov.f32 %c{i}, 0f00000000;" for i in range(8))


def test_strides_and_several_warps() -> None:
    """Two warps take the two tiles of A side by side; B and D lie by columns, and gaps stay as they are."""
    random = np.random.default_rng(0)
    a, b = random.integers(-8, 8, (16, 40)).astype(np.float16), random.integers(-8, 8, (16, 24)).astype(np.float16)
    d = np.full((2, 16, 20), 7, np.float32)
    body = f"""{DECLARED} {ZEROS} mov.u32 %r1, %tid.x; shr.u32 %r1, %r1, 5;
        ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [d];
        mad.wide.u32 %rd1, %r1, 32, %rd1; mad.wide.u32 %rd3, %r1, 1280, %rd3; mov.u32 %r2, 40;
        wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {EIGHT["a"]}, [%rd1], %r2;
        wmma.load.b.sync.aligned.col.m16n16k16.f16 {EIGHT["b"]}, [%rd2], 24;
        {F16} {EIGHT["d"]}, {EIGHT["a"]}, {EIGHT["b"]}, {EIGHT["c"]};
        wmma.store.d.sync.aligned.col.m16n16k16.global.f32 [%rd3], {EIGHT["d"]}, 20;"""
    program(body, ".param .u64 a, .param .u64 b, .param .u64 d").launch("k", ONE, (64, 1, 1), [a, b, d])
    for w in range(2):
        expected = a[:, 16 * w : 16 * w + 16].astype(np.float32) @ b[:, :16].T.astype(np.float32)
        assert np.array_equal(d[w, :, :16].T, expected)
    assert np.all(d[..., 16:] == 7)


@pytest.mark.parametrize("space", ["shared", "shared::cta", ""])
def test_shared_and_generic_memory(space: str) -> None:
    """C goes to shared memory with one layout and comes back with the other."""
    words, out = np.arange(256, dtype=np.float32), outputs(256, "f4")
    where, dot = ("[%at]", "") if not space else ("[%r3]", f".{space}")
    body = f"""{DECLARED} .shared .align 32 .b8 tile[1024]; mov.u32 %r3, tile; cvt.u64.u32 %at, %r3;
        cvta.shared.u64 %at, %at; ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
        wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {EIGHT["c"]}, [%rd1];
        wmma.store.d.sync.aligned.row.m16n16k16{dot}.f32 {where}, {EIGHT["c"]}, 16; bar.sync 0;
        wmma.load.c.sync.aligned.col.m16n16k16{dot}.f32 {EIGHT["d"]}, {where};
        wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd2], {EIGHT["d"]};"""
    program(body, ".param .u64 x, .param .u64 y").launch("k", ONE, (32, 1, 1), [words, out])
    assert np.array_equal(out.reshape(16, 16), words.reshape(16, 16).T)


def test_only_some_warps() -> None:
    words, out = np.arange(256, dtype=np.float32), np.zeros((3, 256), np.float32)
    body = f"""{DECLARED} mov.u32 %r1, %tid.x; shr.u32 %r1, %r1, 5; setp.ne.u32 %p1, %r1, 1;
        ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; mad.wide.u32 %rd2, %r1, 1024, %rd2;
        @%p1 wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {EIGHT["c"]}, [%rd1];
        @%p1 wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd2], {EIGHT["c"]};"""
    program(body, ".param .u64 x, .param .u64 y").launch("k", ONE, (96, 1, 1), [words, out])
    assert np.array_equal(out, np.stack([words, np.zeros(256), words]))


HALVES = [f"{{%{name}0, %{name}1, %{name}2, %{name}3}}" for name in "ab"]
BF16 = f"{F16.replace('f32.f32', 'f32.bf16.bf16.f32')} {EIGHT['d']}, {', '.join(HALVES)}, {EIGHT['c']};"
LOAD = f"wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {EIGHT['c']}"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f"add.u64 %rd1, %rd1, 16; {LOAD}, [%rd1];", "is not a multiple of 32 bytes"),
        (f"add.u64 %rd1, %rd1, 32; {LOAD}, [%rd1];", "out of bounds: 4 bytes at address"),
        (f"{LOAD}, [%rd1], 17;", "out of bounds"),
        (f"mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 3; @%p1 {LOAD}, [%rd1];", "must be executed by all lanes"),
        (f"{LOAD.replace('load.c', 'store.d').split(' ')[0]} [%rd1], {EIGHT['c']};", "read-only"),
    ],
)
def test_faults(body: str, message: str) -> None:
    words = np.zeros(256, np.float32)
    words.flags.writeable = "store" not in body
    built = program(f"{DECLARED} ld.param.u64 %rd1, [x];\n{body}", ".param .u64 x")
    with pytest.raises(InterpreterError, match=message) as caught:
        built.launch("k", ONE, (32, 1, 1), [words])
    assert str(caught.value).startswith("k.ptx:7:")


@pytest.mark.parametrize(
    ("statement", "target", "message"),
    [
        (f"{F16} {EIGHT['d']}, {EIGHT['a']}, {EIGHT['b']};", "sm_80", r"expected 4 operands \(d, a, b, c\), got 3"),
        (f"{F16.replace('m16n16', 'm16n8')} %r1, %r1, %r1, %r1;", "sm_80", "; the nearest are wmma.mma"),
        (BF16, "sm_75", "needs sm_80 or later"),
        (f"{LOAD.replace('%c7', '%rd7')}, [%rd1];", "sm_80", "element 7: expected a register that holds .f32"),
    ],
)
def test_what_cannot_run_is_refused_at_load_time(statement: str, target: str, message: str) -> None:
    with pytest.raises(InterpreterError, match=message) as caught:
        program(f"{DECLARED}\n  {statement}", target=target)
    assert str(caught.value).startswith("k.ptx:7:3: error: ")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", ["sm_70", "sm_75", "sm_120"])
def test_every_product_decodes_where_the_target_has_it(target: str) -> None:
    rows = [r for r in wmma.mma_rows() if r.runs_on(TARGETS[target])]
    assert rows
    for row in rows:
        declared = " ".join(f".reg .{_kind(o.type)} %{o.name}<{o.count}>;" for o in row.operands)
        vectors = ", ".join("{" + ", ".join(f"%{o.name}{i}" for i in range(o.count)) + "}" for o in row.operands)
        program(f"{declared} {row.spelling} {vectors};", target=target).launch("k", ONE, (32, 1, 1), [])


def _kind(type: str) -> str:
    return type if type in ("f32", "f64") else "b32"


def test_sums_of_each_architecture() -> None:
    """1 and sixteen times 2^-24: four-term sums of sm_70 lose them all, those of sm_90 keep them."""
    row = next(r for r in wmma.mma_rows() if r.spelling == F16)
    assert isinstance(row, WmmaMma)
    kept: dict[str, set[float]] = {}
    for target in ("sm_70", "sm_80", "sm_90"):
        fill = " ".join(f"mov.b32 %a{i}, 0x0C000C00; mov.b32 %b{i}, 0x0C000C00;" for i in range(8))
        ones = ZEROS.replace("0f00000000", "0f3F800000")
        d = outputs(256, "f4")
        body = f"""{DECLARED} {ones} {fill} ld.param.u64 %rd1, [d];
            {F16} {EIGHT["d"]}, {EIGHT["a"]}, {EIGHT["b"]}, {EIGHT["c"]};
            wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd1], {EIGHT["d"]};"""
        program(body, ".param .u64 d", target=target).launch("k", ONE, (32, 1, 1), [d])
        kept[target] = {float(x) for x in (d.astype(np.float64) - 1) * 2**24}
    assert kept == {"sm_70": {0.0}, "sm_80": {16.0}, "sm_90": {16.0}}
