"""Products that Triton compiles for sm_100a without a GPU: right on the interpreter, under all checks."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from warploom.runtime import check_ptx, load_ptx

triton = pytest.importorskip("triton", reason="triton is not installed: pip install triton")

SOURCE = """
import triton
import triton.language as tl

@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        depth = start + tl.arange(0, BK)
        inside_a, inside_b = (rows < M)[:, None] & (depth < K)[None], (depth < K)[:, None] & (columns < N)[None]
        a = tl.load(a_ptr + rows[:, None] * K + depth[None], mask=inside_a, other=0.0)
        b = tl.load(b_ptr + depth[:, None] * N + columns[None], mask=inside_b, other=0.0)
        total = tl.dot(a, b, total)
    place = c_ptr + rows[:, None] * N + columns[None]
    tl.store(place, total, mask=(rows < M)[:, None] & (columns < N)[None])
"""


def compiled(folder: Path, tile: tuple[int, int, int], warps: int, stages: int) -> tuple[str, int]:
    """PTX of the product of f16, and its dynamic shared memory."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    (folder / "triton_product.py").write_text(SOURCE)
    sys.path.insert(0, str(folder))
    try:
        from triton_product import product  # pyright: ignore
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("triton_product", None)
    constants = dict(zip(("BM", "BN", "BK"), tile, strict=True))
    signature = {"a_ptr": "*fp16", "b_ptr": "*fp16", "c_ptr": "*fp32", **dict.fromkeys("MNK", "i32")}
    aligned = {(number,): [["tt.divisibility", 16]] for number in range(6)}
    source = ASTSource(product, {**signature, **dict.fromkeys(constants, "constexpr")}, constants, aligned)
    options = {"num_warps": warps, "num_stages": stages}
    made = triton.compile(source, target=GPUTarget("cuda", 100, 32), options=options)
    return made.asm["ptx"], made.metadata.shared


@pytest.mark.parametrize(
    ("tile", "warps", "stages", "size"),
    [((128, 64, 64), 4, 3, (144, 80, 208)), ((64, 64, 32), 4, 2, (80, 48, 112)),
     ((128, 256, 64), 8, 2, (112, 272, 80))],
)  # fmt: skip
def test_products_of_triton(
    tmp_path: Path, tile: tuple[int, int, int], warps: int, stages: int, size: tuple[int, int, int]
) -> None:
    text, shared = compiled(tmp_path, tile, warps, stages)
    assert "tcgen05.mma" in text
    assert check_ptx(text) == []
    m, n, k = size
    random = np.random.default_rng(tile[1])
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    c, scratch = np.full((m, n), np.nan, np.float32), np.zeros(16, np.uint8)
    name = re.search(r"\.entry (\w+)", text)[1]  # pyright: ignore[reportOptionalSubscript]
    grid = (-(-m // tile[0]), -(-n // tile[1]), 1)
    load_ptx(text).launch(name, grid=grid, block=32 * warps, args=[a, b, c, m, n, k, scratch, scratch], shared=shared,
                          device="interp", checks="all")  # fmt: skip
    exact = a.astype(np.float64) @ b.astype(np.float64)
    bound = 2.0**-21 * (np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64))
    assert (np.abs(c - exact) <= bound).all()
