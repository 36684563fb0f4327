"""Matrix instructions in whole kernels: fragments by the formulas of the ISA's text, copies, and a small product."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import captured
import ml_dtypes
import numpy as np
import pytest
from interpreted import Loaded, outputs, program
from numpy.typing import NDArray

from warploom.dialect.isa.mma import LDMATRIX, ROWS, LoadMatrix, Mma
from warploom.dialect.isa.row import TARGETS
from warploom.dialect.ptx.parser import parse_ptx
from warploom.runtime.interp import InterpreterError
from warploom.runtime.numerics.product import MatrixProduct

Array = NDArray[Any]
ONE = (1, 1, 1)


# Fragments, as 9.7.14.5.7 and .8 give them: groupID = lane / 4, threadID_in_group = lane % 4


def a_place(lane: int, i: int) -> tuple[int, int]:
    group, inner = divmod(lane, 4)
    return group + (8 if i in (2, 3, 6, 7) else 0), inner * 2 + (i & 1) + (8 if i >= 4 else 0)


def b_place(lane: int, i: int) -> tuple[int, int]:
    group, inner = divmod(lane, 4)
    return inner * 2 + (i & 1) + (8 if i >= 2 else 0), group


def c_place(lane: int, i: int) -> tuple[int, int]:
    group, inner = divmod(lane, 4)
    return group + (8 if i >= 2 else 0), inner * 2 + (i & 1)


def spread(matrix: Array, place: Any, elements: int) -> Array:
    """A matrix as registers: an array (32 lanes, 32-bit words)."""
    fragment = np.array([[matrix[place(lane, i)] for i in range(elements)] for lane in range(32)])
    return np.ascontiguousarray(fragment).view(np.uint32)


def registers(prefix: str, start: int, count: int) -> str:
    return "{" + ", ".join(f"%{prefix}{start + i}" for i in range(count)) + "}"


def transfer(moved: str, name: str, start: int, count: int) -> str:
    """Moves `count` words of each thread between registers %r<start> and on and the array `name`."""
    text = f"ld.param.u64 %rd1, [{name}]; mad.wide.u32 %rd1, %r0, {4 * count}, %rd1;"
    for i in range(count):
        place, register = f"[%rd1+{4 * i}]", f"%r{start + i}"
        text += f"ld.global.b32 {register}, {place};" if moved == "ld" else f"st.global.b32 {place}, {register};"
    return text


LINEAR = "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r0, %r1, %r2, %r3;"


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.spelling)
def test_mma_by_the_formulas_of_the_text(row: Mma, target: str) -> None:
    """Random bits in five warps of three CTAs; half of the second CTA's warps do something else."""
    m, n, k = row.shape
    random = np.random.default_rng(5)
    warps = 15
    a, b = (random.integers(0, 1 << 16, (warps, *s)).astype(np.uint16) for s in ((m, k), (k, n)))
    a, b = a & 0xBFFF | 0x2000, b & 0xBFFF | 0x2000
    c = random.standard_normal((warps, m, n)).astype(np.float32).view(np.uint32)
    if row.c.bits == 16:
        c = random.standard_normal((warps, m, n)).astype(np.float16).view(np.uint16)
    counts = {"a": m * k // 64, "b": k * n // 64, "c": m * n * row.c.bits // 1024}
    files = [
        np.stack([spread(x[w], place, x[w].size // 32) for w in range(warps)]).reshape(warps * 32, -1)
        for x, place in ((a, a_place), (b, b_place), (c, c_place))
    ]
    out = outputs(files[2].size, "u4")
    body = f"""{LINEAR} {transfer("ld", "a", 4, counts["a"])} {transfer("ld", "b", 8, counts["b"])}
        {transfer("ld", "c", 10, counts["c"])} shr.u32 %r20, %r0, 5; rem.u32 %r21, %r20, 3; setp.ne.u32 %p1, %r21, 1;
        @%p1 {row.spelling} {registers("r", 14, counts["c"])}, {registers("r", 4, counts["a"])},
        {registers("r", 8, counts["b"])}, {registers("r", 10, counts["c"])};
        {transfer("st", "d", 14, counts["c"])}"""
    parameters = ", ".join(f".param .u64 {x}" for x in "abcd")
    program(body, parameters, target).launch("k", (3, 1, 1), (160, 1, 1), [*files, out])
    model = MatrixProduct.on(target, row)
    d = model(a.transpose(2, 1, 0), b.transpose(1, 2, 0), c.transpose(1, 2, 0))
    got = out.reshape(warps, 32, -1)
    for w in range(warps):
        expected = spread(d[..., w], c_place, m * n // 32)
        assert np.array_equal(got[w], expected if w % 3 != 1 else np.zeros_like(expected)), w


WORDS = Path(__file__).parents[1] / "data" / "words" / "sm_90a.npz"


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.spelling)
def test_mma_as_an_h200_answers(row: Mma) -> None:
    """Recorded words of every character that `captured.KINDS` lists."""
    case = captured.Case(row)
    with np.load(WORDS) as recorded:
        answers = recorded[case.name]
    words = np.ascontiguousarray(captured.inputs(case, len(answers)))
    out = outputs(answers.size, "u4").reshape(answers.shape)
    text = captured.module([captured.kernel(case, "k")], TARGETS["sm_90a"])
    Loaded(parse_ptx(text)).launch("k", (len(answers), 1, 1), (32, 1, 1), [words, out])
    assert np.count_nonzero(out != answers) == 0


def test_the_architecture_can_be_chosen_and_must_have_the_instruction() -> None:
    """1 + 16 times 2^-25: sm_90 keeps them all, sm_80 none; sm_75 has no k16."""
    row = next(r for r in ROWS if r.spelling.endswith("m16n8k16.row.col.f32.f16.f16.f32"))
    body = f"""{LINEAR} mov.b32 %r4, 0x10001000; mov.b32 %r5, 0x04000400; mov.f32 %f1, 0f3F800000;
        {row.spelling} {{%f2, %f3, %f4, %f5}}, {{%r4, %r4, %r4, %r4}}, {{%r5, %r5}}, {{%f1, %f1, %f1, %f1}};
        mov.b32 %r6, %f2; {transfer("st", "d", 6, 1)}"""
    results = {}
    for arch in ("sm_80", "sm_90"):
        out = outputs(32, "u4")
        program(body, ".param .u64 d", arch=arch).launch("k", ONE, (32, 1, 1), [out])
        results[arch] = set(out.tolist())
    assert results == {"sm_80": {0x3F800000}, "sm_90": {0x3F800004}}
    with pytest.raises(InterpreterError, match="is not in sm_75, it needs sm_80"):
        program(body, ".param .u64 d", target="sm_75")


@pytest.mark.parametrize("row", LDMATRIX, ids=lambda r: r.spelling)
def test_ldmatrix_by_the_formula_of_the_text(row: LoadMatrix) -> None:
    """Rows at scattered 16-byte places; thread i gets elements 2 * (i % 4) and the next of row i / 4."""
    random = np.random.default_rng(2)
    data = random.integers(0, 1 << 16, (2, 64, 8)).astype(np.uint16)
    where = np.stack([random.permutation(64)[:32] for _ in range(2)])
    body = f"""{LINEAR} .shared .align 128 .b8 tile[1024]; mov.u32 %r20, tile;
        ld.param.u64 %rd1, [data]; mad.wide.u32 %rd1, %r1, 1024, %rd1; mad.wide.u32 %rd1, %r3, 32, %rd1;
        mad.lo.u32 %r21, %r3, 32, %r20; ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%rd1];
        st.shared.v4.b32 [%r21], {{%r4, %r5, %r6, %r7}}; ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%rd1+16];
        st.shared.v4.b32 [%r21+16], {{%r4, %r5, %r6, %r7}}; bar.sync 0;
        {transfer("ld", "where", 22, 1)} shl.b32 %r22, %r22, 4; add.u32 %r22, %r22, %r20;
        {row.spelling} {registers("r", 8, row.count)}, [%r22]; {transfer("st", "out", 8, row.count)}"""
    out = outputs(64 * row.count, "u4")
    parameters = ".param .u64 data, .param .u64 where, .param .u64 out"
    program(body, parameters).launch("k", (2, 1, 1), (32, 1, 1), [data, where.astype(np.uint32), out])
    got = out.reshape(2, 32, row.count)
    for cta in range(2):
        for j in range(row.count):
            matrix = data[cta][where[cta, 8 * j : 8 * j + 8]]
            matrix = matrix.T if row.transpose else matrix
            for lane in range(32):
                low, upper = matrix[lane // 4, 2 * (lane % 4) : 2 * (lane % 4) + 2]
                assert int(got[cta, lane, j]) == int(low) | int(upper) << 16


def test_ldmatrix_rows_must_be_aligned_and_inside() -> None:
    row = next(r for r in LDMATRIX if r.count == 2 and not r.transpose)
    head = ".shared .align 16 .b8 tile[256]; .shared .align 16 .b8 more[16]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 4;"
    with pytest.raises(InterpreterError, match=r"misaligned shared access: address 0x8 .* lane 0\)"):
        program(f"{head} {row.spelling} {{%r3, %r4}}, [%r2+8];").launch("k", ONE, (32, 1, 1), [])
    with pytest.raises(InterpreterError, match=r"out of bounds: 16 bytes at address 0x110, .* lane 15\)"):
        program(f"{head} {row.spelling} {{%r3, %r4}}, [%r2+32];").launch("k", ONE, (32, 1, 1), [])
    program(f"{head} {row.spelling} {{%r3, %r4}}, [%r2];").launch("k", ONE, (32, 1, 1), [])


def test_half_a_warp_cannot_multiply() -> None:
    row = ROWS[0]
    operands = ", ".join(registers("r", 4, row.registers(role)) for role in "dabc")
    body = f"mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 20;\n@%p1 {row.spelling} {operands};"
    with pytest.raises(InterpreterError, match=r"k.ptx:7:1: .* all lanes of a warp together; lane 20 takes no part"):
        program(body).launch("k", ONE, (32, 1, 1), [])


# Asynchronous copies

COPY = f"""{LINEAR} .shared .align 16 .b8 tile[2048]; mov.u32 %r4, tile; mad.lo.u32 %r4, %r3, 16, %r4;
    ld.param.u64 %rd2, [data]; mad.wide.u32 %rd2, %r0, 16, %rd2;
    mov.u32 %r5, 0x77777777; st.shared.v4.b32 [%r4], {{%r5, %r5, %r5, %r5}};"""


def copied(body: str, words: int = 1, threads: int = 64) -> Array:
    data = np.arange(4 * threads, dtype=np.uint32) + 100
    out = outputs(threads * words, "u4")
    text = f"{COPY}{body}{transfer('st', 'out', 20, words)}"
    program(text, ".param .u64 data, .param .u64 out").launch("k", ONE, (threads, 1, 1), [data, out])
    return out.reshape(threads, words)


def test_copies_appear_when_their_group_is_waited_for() -> None:
    body = """cp.async.ca.shared.global [%r4], [%rd2], 4; cp.async.commit_group;
        cp.async.ca.shared.global [%r4+4], [%rd2+4], 4; cp.async.commit_group;
        cp.async.ca.shared.global [%r4+8], [%rd2+8], 8;
        ld.shared.b32 %r20, [%r4]; cp.async.wait_group 1; ld.shared.b32 %r21, [%r4]; ld.shared.b32 %r22, [%r4+4];
        cp.async.wait_group 0; ld.shared.b32 %r23, [%r4+4]; ld.shared.b32 %r24, [%r4+8];
        cp.async.wait_all; ld.shared.b32 %r25, [%r4+12];"""
    old = 0x77777777
    expected = [[old, 100 + 4 * t, old, 101 + 4 * t, old, 103 + 4 * t] for t in range(64)]
    assert copied(body, 6).tolist() == expected


def test_copies_of_warps_that_go_different_ways() -> None:
    """The second warp has one more group in flight, so that it keeps the copy the first one gets."""
    body = """setp.ge.u32 %p1, %r3, 32; cp.async.cg.shared.global [%r4], [%rd2], 16; cp.async.commit_group;
        @!%p1 bra MEET; cp.async.ca.shared.global [%r4+4], [%rd2], 4; cp.async.commit_group;
        MEET: cp.async.wait_group 1; ld.shared.b32 %r20, [%r4]; ld.shared.b32 %r21, [%r4+4];
        @!%p1 cp.async.wait_group 0; ld.shared.b32 %r22, [%r4]; cp.async.wait_all; ld.shared.b32 %r23, [%r4+4];"""
    old = 0x77777777
    first = [[old, old, 100 + 4 * t, 101 + 4 * t] for t in range(32)]
    second = [[100 + 4 * t, 101 + 4 * t, 100 + 4 * t, 100 + 4 * t] for t in range(32, 64)]
    assert copied(body, 4).tolist() == first + second


def test_copies_fill_with_zeros_what_they_do_not_read() -> None:
    body = """and.b32 %r6, %r3, 31; min.u32 %r6, %r6, 16; setp.eq.u32 %p1, %r6, 0; @%p1 add.u64 %rd2, %rd2, 0x400000;
        cp.async.cg.shared.global.L2::128B [%r4], [%rd2], 16, %r6; cp.async.wait_all;
        ld.shared.v4.b32 {%r20, %r21, %r22, %r23}, [%r4];"""
    data = (np.arange(256, dtype=np.uint32) + 100).view(np.uint8).reshape(64, 16).copy()
    for t in range(64):
        data[t, min(t % 32, 16) :] = 0
    assert copied(body, 4).tolist() == data.view(np.uint32).tolist()


def test_a_predicate_ignores_the_source() -> None:
    body = """and.b32 %r6, %r3, 1; setp.eq.u32 %p1, %r6, 1; @%p1 add.u64 %rd2, %rd2, 0x400000;
        cp.async.ca.shared.global [%r4], [%rd2], 8, %p1; cp.async.wait_all; ld.shared.v2.b32 {%r20, %r21}, [%r4];"""
    assert copied(body, 2).tolist() == [[0, 0] if t % 2 else [100 + 4 * t, 101 + 4 * t] for t in range(64)]


def test_copies_are_checked() -> None:
    data = np.zeros(256, np.uint32)
    parameters = ".param .u64 data"
    for body, message in (
        ("cp.async.cg.shared.global [%r4], [%rd2+16], 16;", r"out of bounds: .* of argument 0 .* lane 31\)"),
        ("cp.async.cg.shared.global [%r4+8], [%rd2], 16;", "misaligned shared"),
        ("cp.async.ca.shared.global [%r4+2000], [%rd2], 8;", r"shared access out of bounds"),
        ("mov.u32 %r5, 9; cp.async.ca.shared.global [%r4], [%rd2], 8, %r5;", "reads 9 bytes, more than the 8"),
    ):
        with pytest.raises(InterpreterError, match=message):
            program(COPY + body, parameters).launch("k", ONE, (64, 1, 1), [data])


# A product


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_kernel_that_multiplies(dtype: Any) -> None:
    """C = A * B^T, 16 x 8 per warp, K in steps of 16 through a loop, fragments straight from global memory."""
    m, n, k = 64, 40, 80
    random = np.random.default_rng(9)
    a, b = (random.standard_normal(s).astype(dtype) for s in ((m, k), (n, k)))
    c = outputs(m * n, "f4").reshape(m, n)
    name = "f16" if dtype is np.float16 else "bf16"
    body = f"""mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y;
        shr.u32 %r3, %r0, 2; and.b32 %r4, %r0, 3;
        ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c];
        mad.lo.u32 %r5, %r1, 16, %r3; mad.lo.u32 %r6, %r2, 8, %r3; shl.b32 %r7, %r4, 2;
        mad.lo.u32 %r8, %r5, {2 * k}, %r7; mad.lo.u32 %r9, %r6, {2 * k}, %r7;
        cvt.u64.u32 %rd4, %r8; cvt.u64.u32 %rd5, %r9; add.u64 %rd1, %rd1, %rd4; add.u64 %rd2, %rd2, %rd5;
        mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0; mov.u32 %r10, 0;
        LOOP: ld.global.b32 %r11, [%rd1]; ld.global.b32 %r12, [%rd1+{16 * k}]; ld.global.b32 %r13, [%rd1+16];
        ld.global.b32 %r14, [%rd1+{16 * k + 16}]; ld.global.b32 %r15, [%rd2]; ld.global.b32 %r16, [%rd2+16];
        mma.sync.aligned.m16n8k16.row.col.f32.{name}.{name}.f32 {{%f0, %f1, %f2, %f3}},
            {{%r11, %r12, %r13, %r14}}, {{%r15, %r16}}, {{%f0, %f1, %f2, %f3}};
        add.u64 %rd1, %rd1, 32; add.u64 %rd2, %rd2, 32; add.u32 %r10, %r10, 16; setp.lt.u32 %p0, %r10, {k};
        @%p0 bra LOOP;
        mad.lo.u32 %r17, %r2, 8, 0; shl.b32 %r18, %r4, 1; add.u32 %r17, %r17, %r18; mad.lo.u32 %r17, %r5, {n}, %r17;
        mad.wide.u32 %rd3, %r17, 4, %rd3; st.global.v2.f32 [%rd3], {{%f0, %f1}};
        st.global.v2.f32 [%rd3+{32 * n}], {{%f2, %f3}};"""
    parameters = ", ".join(f".param .u64 {x}" for x in "abc")
    program(body, parameters).launch("k", (m // 16, n // 8, 1), (32, 1, 1), [a, b, c])
    x, y = a.astype(np.float64), b.astype(np.float64)
    bound = (k // 16 + 1) * 2.0**-22 * (np.abs(x) @ np.abs(y).T)
    assert np.all(np.abs(c - x @ y.T) <= bound)
