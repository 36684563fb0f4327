"""Kernels in upstream's dialects (`nvgpu`, `gpu`, `memref`, `vector`, `arith`) on the interpreter, under all checks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from upstream_kernels import KERNELS, RNG, drawn, loaded, poisoned, to_ptx
from xdsl.utils.exceptions import DiagnosticException

from warploom.runtime import PtxModule, TensorMap, load_ptx
from warploom.runtime.interp import InterpreterError


def run(module: PtxModule, name: str, arguments: Sequence[object], *, threads: int = 32, shared: int = 0) -> None:
    module.launch(
        name, grid=(1, 1, 1), block=(threads, 1, 1), args=arguments, shared=shared, device="interp", checks="all"
    )


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) @ b.astype(np.float64)


def bound(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What sums in f32 of exact products, each rounded toward zero at worst, may differ by."""
    return a.shape[1] * 2.0**-22 * (abs(a).astype(np.float64) @ abs(b).astype(np.float64))


def test_a_product_of_a_warp_with_copies_and_ldmatrix() -> None:
    a, b, d = drawn(16, 16), drawn(16, 8), poisoned(16, 8)
    loaded("mma", "sm_80").launch(
        "mma", grid=(1, 1, 1), block=(32, 1, 1), args=[a, b, d], device="interp", checks="all"
    )
    assert (abs(d - product(a, b)) <= bound(a, b)).all()


def test_opaque_matrices_exchanges_and_reductions() -> None:
    a, b, d = drawn(16, 16), drawn(16, 16), poisoned(16, 16)
    x, y, z = RNG.standard_normal(32).astype(np.float32), poisoned(32), np.full(32, -7, np.int32)
    run(loaded("subgroup", "sm_80"), "wmma", [a, b, d, x, y, z])
    exact, error = product(a, b.T), bound(a, b.T)
    assert (abs(d - exact**2) <= error * (2 * abs(exact) + error) + 2.0**-23 * exact**2).all()
    lanes = np.arange(32)
    moved = np.where(lanes % 16 >= 3, x[lanes - 3], 0).reshape(4, 8).astype(np.float64)
    sums = moved.sum(1).repeat(8) + 1.5
    slack = (abs(moved).sum(1).repeat(8) + 1.5) * 2.0**-20 * 1.5**lanes
    assert (abs(y - sums * 1.5**lanes) <= slack).all()
    assert (z == 31).all()


def test_a_product_of_a_warpgroup_with_tensor_copies() -> None:
    a, b, d = drawn(128, 128), drawn(128, 128), poisoned(128, 128)
    maps = [TensorMap(a, box=(128, 64), swizzle=128), TensorMap(b, box=(64, 64), swizzle=128)]
    run(loaded("warpgroup", "sm_90a"), "gemm", [*maps, d], threads=128, shared=65536)
    assert (abs(d - product(a, b)) <= bound(a, b)).all()


def test_the_body_of_a_launch_becomes_a_kernel() -> None:
    x, y = RNG.standard_normal(64).astype(np.float32), poisoned(64)
    text = (KERNELS / "launch.mlir").read_text()
    module = load_ptx(to_ptx(text, "sm_80", "gpu-kernel-outlining,"))
    module.launch("f_kernel", grid=(2, 1, 1), block=(32, 1, 1), args=[x, y], device="interp", checks="all")
    doubled = x.reshape(2, 32)[:, ::-1].reshape(-1) * np.float32(2.5)
    assert (y == np.where(doubled > 2.5, np.sqrt(np.maximum(doubled, 0)), doubled)).all()


def test_a_missing_wait_for_copies_is_found() -> None:
    text = (KERNELS / "mma.mlir").read_text().replace("nvgpu.device_async_wait %g\n", "\n")
    a, b, d = drawn(16, 16), drawn(16, 8), poisoned(16, 8)
    with pytest.raises(InterpreterError, match=r"cp\.async"):
        run(load_ptx(to_ptx(text, "sm_80")), "mma", [a, b, d])


def test_sums_that_are_read_before_their_products_end_are_found() -> None:
    """Upstream waits for all groups of products but one, unless `waitGroup` says otherwise."""
    text = (KERNELS / "warpgroup.mlir").read_text().replace(", waitGroup = 0 : i64", "")
    a, b, d = drawn(128, 128), drawn(128, 128), poisoned(128, 128)
    maps = [TensorMap(a, box=(128, 64), swizzle=128), TensorMap(b, box=(64, 64), swizzle=128)]
    with pytest.raises(InterpreterError, match="wgmma"):
        run(load_ptx(to_ptx(text, "sm_90a")), "gemm", [*maps, d], threads=128, shared=65536)


def kernel(body: str, arguments: str) -> str:
    return f"""gpu.module @m {{
  gpu.func @k({arguments}) kernel attributes {{known_block_size = array<i32: 32, 1, 1>}} {{
    {body}
    gpu.return
  }}
}}"""


MMA = """%a = arith.constant dense<1.0> : vector<4x2xf16>
    %b = arith.constant dense<1.0> : vector<2x2xf16>
    %c = arith.constant dense<0.0> : vector<2x2xf32>
    %d = nvgpu.mma.sync(%a, %b, %c) {{mmaShape = [{}]}} : (vector<4x2xf16>, vector<2x2xf16>, vector<2x2xf32>)
      -> vector<2x2xf32>"""


@pytest.mark.parametrize(
    ("body", "arch", "message"),
    [
        (MMA.format("16, 8, 16"), "sm_75", "nvgpu.mma.sync takes .*m16n8k16"),
        (MMA.format("16, 8, 12"), "sm_80", "nvgpu.mma.sync of .*m16n8k12"),
        ("%x = arith.constant dense<1.0> : vector<3xf16>", "sm_80", "vectors of whole registers, got vector<3xf16>"),
        ('gpu.printf "x"', "sm_80", "gpu.printf is not lowered to PTX inside a kernel"),
        (
            "%s = memref.get_global @g : memref<4xf32>",
            "sm_80",
            "expected memory of the CTA, in space 3, got memref",
        ),
        (
            "%t = gpu.thread_id x\n    %v = vector.load %m[%t] : memref<32xf16>, vector<4xf16>",
            "sm_80",
            "takes an address that is a multiple of 4 bytes, this one is of 2",
        ),
    ],
)
def test_what_cannot_be_lowered_is_located(body: str, arch: str, message: str) -> None:
    with pytest.raises(DiagnosticException, match=message) as caught:
        to_ptx(kernel(body, "%m: memref<32xf16>"), arch)
    assert "kernels.mlir" in str(caught.value)
