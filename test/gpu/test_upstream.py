"""Kernels in upstream's dialects leave the words on the GPU that they leave on the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from upstream_kernels import KERNELS, RNG, drawn, loaded, poisoned, to_ptx

from warploom.runtime import PtxModule, TensorMap, load_ptx
from warploom.runtime.cuda.driver import gpu

pytestmark = pytest.mark.gpu


def on_both(
    module: PtxModule, name: str, inputs: Sequence[object], result: np.ndarray, threads: int, shared: int
) -> None:
    """The interpreter computes as this GPU does, whatever target the kernel was made for."""
    here, there = result.copy(), result.copy()
    launch, block = partial(module.launch, name, grid=(1, 1, 1), shared=shared), (threads, 1, 1)
    launch(block=block, args=[*inputs, here], device="interp", arch=gpu().device.target)
    launch(block=block, args=[*inputs, there], device="cuda")
    assert here.tobytes() == there.tobytes()


def test_a_product_of_a_warp() -> None:
    a, b = drawn(16, 16), drawn(16, 8)
    on_both(loaded("mma", "sm_80"), "mma", [a, b], poisoned(16, 8), 32, 0)


def test_a_product_of_a_warpgroup_with_tensor_copies() -> None:
    a, b = drawn(128, 128), drawn(128, 128)
    maps = [TensorMap(a, box=(128, 64), swizzle=128), TensorMap(b, box=(64, 64), swizzle=128)]
    on_both(loaded("warpgroup", "sm_90a"), "gemm", maps, poisoned(128, 128), 128, 65536)


def test_the_body_of_a_launch() -> None:
    text = (KERNELS / "launch.mlir").read_text()
    x = RNG.standard_normal(64).astype(np.float32)
    module = load_ptx(to_ptx(text, "sm_80", "gpu-kernel-outlining,"))
    words = []
    for device in ("interp", "cuda"):
        y = poisoned(64)
        module.launch("f_kernel", grid=(2, 1, 1), block=(32, 1, 1), args=[x, y], device=device)
        words.append(y.tobytes())
    assert words[0] == words[1]
