"""Proofs of kernels that other compilers made, nvcc and Triton, against `linalg` and each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.runtime import KernelLaunch, load_ptx, prove

KERNELS = Path(__file__).parent.parent / "data" / "kernels"


def launch(name: str, grid: tuple[int, ...], block: int, args: list[object], shared: int = 0) -> KernelLaunch:
    module = load_ptx((KERNELS / f"{name}.ptx").read_text(), f"{name}.ptx")
    return KernelLaunch(module, next(iter(module.kernels)), grid, block, args, shared)


def product(m: int, n: int, k: int, t: str = "f32") -> str:
    return f"""func.func @f(%A: memref<{m}x{k}xf16>, %B: memref<{k}x{n}xf16>, %C: memref<{m}x{n}x{t}>) {{
  %zero = arith.constant 0.0 : {t}
  linalg.fill ins(%zero : {t}) outs(%C : memref<{m}x{n}x{t}>)
  linalg.matmul ins(%A, %B : memref<{m}x{k}xf16>, memref<{k}x{n}xf16>) outs(%C : memref<{m}x{n}x{t}>)
  return
}}"""


def softmax(m: int, n: int) -> str:
    return f"""func.func @f(%X: memref<{m}x{n}xf32>, %Y: memref<{m}x{n}xf32>) {{
  linalg.softmax dimension(1) ins(%X : memref<{m}x{n}xf32>) outs(%Y : memref<{m}x{n}xf32>)
  return
}}"""


SHARED = 48 << 10


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "grid", "block", "size", "more", "shared"),
    [
        ("wmma_gemm", (3, 2), 64, (64, 48, 80), [], 0),
        ("mma_pipeline", (1, 2), 128, (128, 64, 96), [], 0),
        ("triton_matmul_sm80", (2, 2), 128, (70, 100, 72), [0, 0], SHARED),
        ("triton_matmul_sm90", (2, 2), 128, (70, 100, 72), [0, 0], SHARED),
    ],
)
def test_products(
    name: str, grid: tuple[int, ...], block: int, size: tuple[int, int, int], more: list[object], shared: int
) -> None:
    text = product(*size, "f16" if "triton" in name else "f32")
    proof = prove(launch(name, grid, block, ["A", "B", "C", *size, *more], shared), text)
    assert proof, proof


def test_too_few_blocks_leave_outputs_unwritten() -> None:
    proof = prove(launch("mma_pipeline", (1, 1), 128, ["A", "B", "C", 128, 64, 96]), product(128, 64, 96))
    assert proof.outcome == "refuted"
    expected = "C[64, 0] does not depend on A, B, and should; depends on C, and should not"
    assert str(proof.differences[0]) == f"{expected} (and 4095 more elements differ)"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "more", "shared"), [("softmax", [5, 200], 0), ("triton_softmax_sm80", [200, 0, 0], 1024)]
)
def test_softmaxes(name: str, more: list[object], shared: int) -> None:
    proof = prove(launch(name, (5,), 128, ["X", "Y", *more], shared), softmax(5, 200))
    assert proof, proof


def test_two_kernels_of_triton_are_one_function() -> None:
    arrays: dict[str, NDArray[Any]] = {n: np.random.default_rng(1).standard_normal((5, 200)).astype("f4") for n in "XY"}
    one, other = (launch(f"triton_softmax_sm{sm}", (5,), 128, ["X", "Y", 200, 0, 0], 1024) for sm in (80, 90))
    assert prove(one, other, arrays)
    fewer = launch("triton_softmax_sm80", (5,), 128, ["X", "Y", 199, 0, 0], 1024)
    assert prove(one, fewer, arrays, explain=False).outcome == "refuted"


COPIED = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y) {
.shared .align 16 .b8 tile[512]; .reg .pred %p; .reg .b32 %t, %s; .reg .b64 %x, %y, %at; .reg .f32 %v;
mov.u32 %t, %tid.x; mul.wide.u32 %at, %t, 4; ld.param.u64 %x, [x]; ld.param.u64 %y, [y];
add.u64 %x, %x, %at; add.u64 %y, %y, %at; mov.u32 %s, tile; mad.lo.u32 %s, %t, 4, %s; setp.lt.u32 %p, %t, LAST;
cp.async.ca.shared.global [%s], [%x], 4, !%p; cp.async.wait_all;
ld.shared.f32 %v, [%s]; st.global.f32 [%y], %v; ret; }"""


@pytest.mark.parametrize(("last", "outcome"), [("37", "proven"), ("36", "refuted")])
def test_copies_under_a_negated_predicate(last: str, outcome: str) -> None:
    copied = KernelLaunch(load_ptx(COPIED.replace("LAST", last)), "k", (1,), 37, ["X", "Y"])
    text = """func.func @f(%X: memref<37xf32>, %Y: memref<37xf32>) {
      memref.copy %X, %Y : memref<37xf32> to memref<37xf32>
      return
    }"""
    assert prove(copied, text).outcome == outcome
