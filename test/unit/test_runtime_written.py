"""Arrays that must not be written: which a kernel may write, and what is said before it could."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from warploom.runtime import load_ptx
from warploom.runtime.interp import InterpreterError
from warploom.runtime.kernel.module import may_write

KERNELS = Path(__file__).parents[1] / "data/kernels"
HEAD = """.version 8.0
.target sm_90a
.address_size 64
.func f(.param .b64 p) { ret; }
"""


def written(body: str) -> set[str]:
    text = (
        f"{HEAD}.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c) {{ .reg .b64 %rd<9>; .reg .b32 %r<9>; "
        f".reg .pred %p; .reg .f32 %f<9>; .local .b64 depot[4]; ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; "
        f"ld.param.u64 %rd3, [c]; {body} ret; }}"
    )
    return set(may_write(load_ptx(text).kernel("k")))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("ld.global.f32 %f1, [%rd1]; st.global.f32 [%rd2+4], %f1;", "b"),
        ("ld.global.u32 %r1, [%rd1]; mad.wide.u32 %rd4, %r1, 4, %rd3; st.global.v2.u32 [%rd4], {%r1, %r1};", "c"),
        ("cvta.to.global.u64 %rd4, %rd1; add.u64 %rd4, %rd4, 8; red.global.add.u32 [%rd4], 1;", "a"),
        ("atom.global.add.u32 %r1, [%rd2], 1;", "b"),
        ("tensormap.replace.tile.rank.global.b1024.b32 [%rd3], 2;", "c"),
        (
            "wmma.load.c.sync.aligned.row.m16n16k16.f32 {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, [%rd1]; "
            "wmma.store.d.sync.aligned.row.m16n16k16.f32 [%rd2], {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8};",
            "b",
        ),
        ("st.local.u64 [depot], %rd1; ld.local.u64 %rd4, [depot]; st.u32 [%rd4], 0;", "a"),
        ("setp.eq.u64 %p, %rd1, %rd2; selp.b64 %rd4, %rd1, %rd3, %p; st.global.u32 [%rd4], 0;", "ac"),
        ("{ .param .b64 x; st.param.b64 [x], %rd3; call f, (x); }", "c"),
        ("mov.b64 %rd4, b; ld.param.u64 %rd5, [%rd4]; st.global.u64 [%rd5], %rd1;", "b"),
        ("L: add.u64 %rd4, %rd5, 8; st.global.u64 [%rd4], %rd4; mov.u64 %rd5, %rd2; bra L;", "b"),
        ("ld.global.v2.u64 {%rd4, %rd5}, [%rd1]; st.global.u64 [%rd4], 0; prefetch.global.L2 [%rd2];", ""),
    ],
)
def test_what_a_kernel_may_write(body: str, expected: str) -> None:
    assert written(body) == set(expected)


@pytest.mark.parametrize(
    ("file", "expected"),
    [("softmax", {1}), ("transpose", {1}), ("structs", {1}), ("reduce", {1, 2}), ("collatz", {1, 2})],
)
def test_what_kernels_of_compilers_may_write(file: str, expected: set[int]) -> None:
    module = load_ptx((KERNELS / f"{file}.ptx").read_text())
    function = next(iter(module.kernels.values()))
    names = may_write(function)
    pointers = {i for i, p in enumerate(function.parameters) if p.type in ("u64", "b8")}
    assert {i for i, p in enumerate(function.parameters) if p.name in names} & pointers == expected


def test_the_interpreter_refuses_the_store() -> None:
    module = load_ptx((KERNELS / "structs.ptx").read_text())
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    x.flags.writeable = out.flags.writeable = False
    fields = (np.int32(8), (x, np.int32(1)), np.float64(2), np.zeros(1, "f4,f4,f4")[0])
    with pytest.raises(InterpreterError, match=r"store to argument 1 .affine_param_1, 8 float32., which is read-only"):
        module.launch("affine", 1, 8, [fields, out], device="interp")
    assert not out.any()
    fresh = np.zeros(8, np.float32)
    module.launch("affine", 1, 8, [fields, (fresh,)], device="interp")
    assert fresh.tolist() == [2.0] * 8
