"""Uses of wmma fragments that count on where their elements lie, and uses that do not."""

from __future__ import annotations

import numpy as np
import pytest
from interpreted import program
from seeded_bugs import KERNELS, check_found, edited, line_of
from seeded_bugs import run as launch

from warploom.runtime.interp import InterpreterError
from warploom.runtime.interp.machine.memory import Finding


def registers(name: str, count: int = 8) -> str:
    return "{" + ", ".join(f"%{name}{i}" for i in range(count)) + "}"


A, B, C, D = (registers(name) for name in "abcd")
DECLARED = ".reg .b32 %a<8>; .reg .b32 %b<8>; .reg .b32 %c<8>; .reg .b32 %d<8>;"
LOAD = f"""wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {A}, [%rd1];
wmma.load.b.sync.aligned.col.m16n16k16.global.f16 {B}, [%rd1];
wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {C}, [%rd2];"""
MULTIPLY = f"wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {D}, {A}, {B}, {C};"
STORE = f"wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd2], {D};"
PLACE = "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mul.wide.u32 %rd4, %r2, 1; add.u64 %rd4, %rd3, %rd4;"
FIRST_LINE = 8


def run(body: str, checks: str = "all") -> tuple[Finding, ...]:
    """Runs the three loads, and then a body, whose lines count from 11 in the text."""
    start = f"{DECLARED}\nld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q]; ld.param.u64 %rd3, [r]; {PLACE}"
    built = program(f"{start}\n{LOAD}\n{body}", ".param .u64 p, .param .u64 q, .param .u64 r")
    arrays = [np.zeros(1024, np.float16), np.zeros(1024, np.float32), np.zeros(4096, np.float32)]
    try:
        built.launch("k", (2, 1, 1), (32, 1, 1), arrays, checks=checks)
    except InterpreterError as error:
        return error.findings
    return ()


def expect_finding(body: str, line: int, message: str) -> None:
    check_found(run(body), "wmma", FIRST_LINE + 3 + line - 1, message)


RIGHT = {
    "as it is": f"{MULTIPLY}\n{STORE}",
    "a chain": f"{MULTIPLY}\n{MULTIPLY.replace(C, D)}\n{STORE}",
    "the same for all elements": f"{MULTIPLY}\n"
    + "".join(f"mul.f32 %d{i}, %d{i}, 0f3F000000; fma.rn.f32 %d{i}, %c{i}, 0f40000000, %d{i}; " for i in range(8))
    + f"\n{STORE}",
    "relu": f"{MULTIPLY}\n"
    + "".join(f"setp.lt.f32 %p1, %d{i}, 0f00000000; @%p1 mov.f32 %d{i}, 0f00000000; " for i in range(8))
    + f"\n{STORE}",
    "zeros": "".join(f"mov.f32 %c{i}, 0f00000000; " for i in range(8)) + f"\n{MULTIPLY}\n{STORE}",
    "kept thread by thread": f"{MULTIPLY}\n"
    + "".join(f"st.global.f32 [%rd4+{128 * i}], %d{i}; " for i in range(8))
    + "".join(f"ld.global.f32 %c{i}, [%rd4+{128 * i}]; " for i in range(8))
    + f"\n{MULTIPLY}\n{STORE}",
    "the sum of all": f"{MULTIPLY}\nadd.f32 %f1, %d0, %d1; add.f32 %f1, %f1, %d2;\n"
    "shfl.sync.bfly.b32 %f2, %f1, 1, 31, -1; st.global.f32 [%rd4], %f2;",
    "a factor of the warp": f"{MULTIPLY}\nshr.u32 %r3, %r1, 5; cvt.rn.f32.u32 %f1, %r3;\n"
    + "".join(f"mul.f32 %d{i}, %d{i}, %f1; " for i in range(8))
    + f"\n{STORE}",
    "halves": f"{MULTIPLY.replace('.f32.f32', '.f16.f32').replace(D, registers('a', 4))}\nadd.f16x2 %a0, %a0, %a0;\n"
    f"{STORE.replace('global.f32', 'global.f16').replace(D, registers('a', 4))}",
}


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT.keys())
def test_right_uses_are_silent(body: str) -> None:
    assert run(body, "wmma,uninitialised") == ()


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        (MULTIPLY.replace("row.col", "row.row"), 1, "as register 0 of a row m16n16k16 f16 fragment of B"),
        (MULTIPLY.replace("row.col", "col.col"), 1, "takes %a0, register 0 of a row m16n16k16 f16 fragment of A, as"),
        (MULTIPLY.replace(A, B), 1, "takes %b0, register 0 of a col m16n16k16 f16 fragment of B, as"),
        (MULTIPLY.replace("%c0, %c1", "%c1, %c0"), 1, "takes %c1, register 1 of a m16n16k16 f32 fragment"),
        (MULTIPLY.replace("m16n16k16", "m32n8k16"), 1, "as register 0 of a row m32n8k16 f16 fragment of A"),
        (f"{MULTIPLY}\n{STORE.replace('m16n16k16', 'm8n32k16')}", 2, "as register 0 of a m8n32k16 f32 fragment"),
        (
            f"{MULTIPLY}\n{STORE.replace('global.f32', 'global.s32').replace('%d0', '%c0')}",
            2,
            "takes %c0, register 0 of a m16n16k16 f32 fragment of C or D, as register 0 of a m16n16k16 s32 fragment",
        ),
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%a0,%a1,%a2,%a3}, {%b0,%b1},\n"
            "{%c0,%c1,%c2,%c3};",
            1,
            "takes %a0, register 0 of a row m16n16k16 f16 fragment of A, whose elements lie in lanes as the GPU likes",
        ),
        (f"{MULTIPLY}\nshfl.sync.bfly.b32 %f0, %d0, 4, 31, -1;", 2, "shfl.sync.bfly.b32: takes %d0"),
        (
            f"{MULTIPLY}\ncvt.rn.f32.u32 %f1, %r1;\nadd.f32 %d3, %d3, %f1;",
            3,
            "combines %d3, register 3 of a m16n16k16 f32 fragment of C or D, with %f1, which differs between lanes",
        ),
        (
            f"{MULTIPLY}\nsetp.gt.u32 %p1, %r1, 9;\n@%p1 mov.f32 %d3, 0fFF800000;",
            3,
            "changes %d3, register 3 of a m16n16k16 f32 fragment of C or D, in some lanes, which %p1 chooses",
        ),
        (
            f"{MULTIPLY}\nand.b32 %r3, %r1, 3; shr.u32 %r4, %r1, 2; mad.lo.u32 %r3, %r4, 16, %r3;\n"
            "shl.b32 %r3, %r3, 2; cvt.u64.u32 %rd5, %r3; add.u64 %rd5, %rd3, %rd5;\nst.global.f32 [%rd5], %d0;",
            4,
            "stores %d0, register 0 of a m16n16k16 f32 fragment of C or D, where lanes are not evenly spaced",
        ),
    ],
)  # fmt: skip
def test_wrong_uses_are_found(body: str, line: int, message: str) -> None:
    expect_finding(body, line, message)


def test_the_result_of_ldmatrix_is_no_fragment() -> None:
    body = """.shared .align 16 .b8 tile[512]; mov.u32 %r5, 0; shl.b32 %r6, %r1, 4; mov.u32 %r7, tile;
add.u32 %r7, %r7, %r6; st.shared.v4.u32 [%r7], {%r5, %r5, %r5, %r5}; bar.warp.sync -1;
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%a0, %a1, %a2, %a3}, [%r7];"""
    expect_finding(f"{body}\n{MULTIPLY}", 4, "takes %a0, a result of ldmatrix, as register 0 of a row m16n16k16")


def run_gemm(text: str) -> tuple[Finding, ...]:
    a, b = (np.random.default_rng().standard_normal((32, 32)).astype(np.float16) for _ in "ab")
    return launch(text, (2, 1), (64,), [a, b, np.zeros((32, 32), np.float32), 32, 32, 32])


def test_bugs_in_the_kernel_of_nvcc() -> None:
    text = (KERNELS / "wmma_gemm.ptx").read_text()
    assert run_gemm(text) == ()
    layout = edited(text, "wmma.mma.sync.aligned.row.row", "wmma.mma.sync.aligned.row.col", 4)
    line = line_of(text, "wmma.mma.sync.aligned", 4)
    check_found(run_gemm(layout), "wmma", line, "fragment of B, as register 0 of a col m16n16k16 f16 fragment of B")
    order = edited(text, "{%f145, %f144,", "{%f144, %f145,", text.count("{%f145, %f144,") - 1)
    store = line_of(text, "wmma.store.d")
    check_found(run_gemm(order), "wmma", store, "takes %f144, register 1 of a m16n16k16 f32 fragment of C or D, as")
