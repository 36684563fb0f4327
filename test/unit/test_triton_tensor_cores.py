"""Products that Triton compiles for sm_100a without a GPU: right on the interpreter, under all checks."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensor_cores import close, halved, value

from warploom.runtime import check_ptx, load_ptx

triton = pytest.importorskip("triton", "3.9", reason="triton is not installed: pip install triton")

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

@triton.jit
def scaled(a_ptr, sa_ptr, b_ptr, sb_ptr, c_ptr, N, K, kind_a: tl.constexpr, kind_b: tl.constexpr, pack_a: tl.constexpr,
           pack_b: tl.constexpr, vector: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.arange(0, BM), tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        deep_a = start // pack_a + tl.arange(0, BK // pack_a)
        deep_b = start // pack_b + tl.arange(0, BK // pack_b)
        blocks = start // vector + tl.arange(0, BK // vector)
        a = tl.load(a_ptr + rows[:, None] * (K // pack_a) + deep_a[None])
        b = tl.load(b_ptr + columns[:, None] * (K // pack_b) + deep_b[None])
        sa = tl.load(sa_ptr + rows[:, None] * (K // vector) + blocks[None])
        sb = tl.load(sb_ptr + columns[:, None] * (K // vector) + blocks[None])
        total = tl.dot_scaled(a, sa, kind_a, b.T, sb, kind_b, total)
    tl.store(c_ptr + rows[:, None] * N + columns[None], total)

@triton.jit
def attention(q_ptr, k_ptr, v_ptr, o_ptr, N, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    rows, deep = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + deep[None])
    top, size = tl.full((BM,), float("-inf"), tl.float32), tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for start in range(0, N, BN):
        columns = start + tl.arange(0, BN)
        k = tl.load(k_ptr + columns[:, None] * D + deep[None])
        scores = tl.dot(q, k.T) * scale
        above = tl.maximum(top, tl.max(scores, 1))
        p, change = tl.exp2(scores - above[:, None]), tl.exp2(top - above)
        size = size * change + tl.sum(p, 1)
        v = tl.load(v_ptr + columns[:, None] * D + deep[None])
        total = tl.dot(p.to(tl.float16), v, total * change[:, None])
        top = above
    tl.store(o_ptr + rows[:, None] * D + deep[None], total / size[:, None])

@triton.jit
def persistent(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, CTAS: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BN, BK])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN])
    across = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * across, CTAS, flatten=True, warp_specialize=True):
        row, column = tile // across * BM, tile % across * BN
        total = tl.zeros((BM, BN), tl.float32)
        for start in range(0, K, BK):
            total = tl.dot(a.load([row, start]), b.load([column, start]).T, total)
        c.store([row, column], total.to(tl.float16))
"""


def compiled(
    folder: Path, function: str, types: dict[str, str], constants: Mapping[str, object], warps: int, stages: int
) -> tuple[str, int, int]:
    """PTX of a function of the source for sm_100a, its dynamic shared memory, and its warps."""
    target: Any = importlib.import_module("triton.backends.compiler")
    compiler: Any = importlib.import_module("triton.compiler")

    (folder / "triton_kernels.py").write_text(SOURCE)
    sys.path.insert(0, str(folder))
    try:
        kernel = getattr(importlib.import_module("triton_kernels"), function)
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("triton_kernels", None)
    aligned = {(number,): [["tt.divisibility", 16]] for number, kind in enumerate(types.values()) if kind != "fp32"}
    source = compiler.ASTSource(kernel, {**types, **dict.fromkeys(constants, "constexpr")}, constants, aligned)
    options = {"num_warps": warps, "num_stages": stages}
    made = compiler.compile(source, target=target.GPUTarget("cuda", 100, 32), options=options)
    text = made.asm["ptx"]
    assert "tcgen05.mma" in text
    assert check_ptx(text) == []
    return text, made.metadata.shared, int(re.search(r"\.reqntid (\d+)", text)[1])  # pyright: ignore


def run(made: tuple[str, int, int], grid: tuple[int, int, int], *args: object) -> None:
    """A launch under all checks."""
    text, shared, threads = made
    name, scratch = re.search(r"\.entry (\w+)", text)[1], np.zeros(4096, np.uint8)  # pyright: ignore
    load_ptx(text).launch(name, grid=grid, block=threads, args=[*args, scratch, scratch], shared=shared,
                          device="interp", checks="all")  # fmt: skip


@pytest.mark.parametrize(
    ("tile", "warps", "stages", "size"),
    [((128, 64, 64), 4, 3, (144, 80, 208)), ((64, 64, 32), 4, 2, (80, 48, 112)),
     ((128, 256, 64), 8, 2, (112, 272, 80))],
)  # fmt: skip
def test_products_of_triton(
    tmp_path: Path, tile: tuple[int, int, int], warps: int, stages: int, size: tuple[int, int, int]
) -> None:
    constants: dict[str, int] = dict(zip(("BM", "BN", "BK"), tile, strict=True))
    types = {"a_ptr": "*fp16", "b_ptr": "*fp16", "c_ptr": "*fp32", **dict.fromkeys("MNK", "i32")}
    made = compiled(tmp_path, "product", types, constants, warps, stages)
    m, n, k = size
    random = np.random.default_rng(tile[1])
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    c = np.full((m, n), np.nan, np.float32)
    run(made, (-(-m // tile[0]), -(-n // tile[1]), 1), a, b, c, m, n, k)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    bound = 2.0**-21 * (np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64))
    assert (np.abs(c - exact) <= bound).all()


@pytest.mark.parametrize(
    ("kind_a", "kind_b", "vector", "scale"),
    [("e4m3", "e5m2", 32, "ue8m0"), ("e2m1", "e2m1", 32, "ue8m0"), ("e2m1", "e2m1", 16, "ue4m3"),
     ("e4m3", "e2m1", 32, "ue8m0")],
)  # fmt: skip
def test_scaled_products_of_triton(tmp_path: Path, kind_a: str, kind_b: str, vector: int, scale: str) -> None:
    m, n, k = 128, 64, 256
    of = {"e2m1": "*u8", "e4m3": "*fp8e4nv", "e5m2": "*fp8e5"}
    scales = "*u8" if scale == "ue8m0" else "*fp8e4nv"
    types = {"a_ptr": of[kind_a], "sa_ptr": scales, "b_ptr": of[kind_b], "sb_ptr": scales, "c_ptr": "*fp32",
             "N": "i32", "K": "i32"}  # fmt: skip
    constants = {"kind_a": kind_a, "kind_b": kind_b, "pack_a": 1 + (kind_a == "e2m1"), "pack_b": 1 + (kind_b == "e2m1"),
                 "vector": vector, "BM": m, "BN": n, "BK": 128}  # fmt: skip
    made = compiled(tmp_path, "scaled", types, constants, 4, 2)
    random, operands, args = np.random.default_rng(vector), [], []
    for kind, rows in ((kind_a, m), (kind_b, n)):
        table = np.array([value(kind, code) for code in range(16 if kind == "e2m1" else 256)])
        codes = random.choice(np.flatnonzero(np.isfinite(table)), (rows, k)).astype(np.uint8)
        low, top = (118, 133) if scale == "ue8m0" else (1, 0x7F)
        factors = random.integers(low, top, (rows, k // vector)).astype(np.uint8)
        numbers = np.vectorize(lambda code: value(scale, int(code)))(factors)
        operands.append(table[codes] * np.repeat(numbers, vector, axis=1))
        args += [halved(codes) if kind == "e2m1" else codes, factors]
    c = np.full((m, n), np.nan, np.float32)
    run(made, (1, 1, 1), *args, c, n, k)
    left, right = operands
    close(c, left, right, 2.0**-19)


def test_attention_of_triton(tmp_path: Path) -> None:
    n, d, scale = 256, 64, np.float32(0.18)
    types = {"q_ptr": "*fp16", "k_ptr": "*fp16", "v_ptr": "*fp16", "o_ptr": "*fp32", "N": "i32", "scale": "fp32"}
    made = compiled(tmp_path, "attention", types, {"BM": 128, "BN": 64, "D": d}, 4, 3)
    random = np.random.default_rng(8)
    q, k, v = (random.standard_normal((n, d)).astype(np.float16) for _ in range(3))
    o = np.full((n, d), np.nan, np.float32)
    run(made, (2, 1, 1), q, k, v, o, n, scale)
    scores = q.astype(np.float64) @ k.T.astype(np.float64) * float(scale)
    p = 2.0 ** (scores - scores.max(axis=1, keepdims=True))
    exact = p @ v.astype(np.float64) / p.sum(axis=1, keepdims=True)
    assert np.abs(o - exact).max() <= 2.0**-11 * np.abs(v).max()


def test_persistent_products_of_triton(tmp_path: Path) -> None:
    """Warps with roles, tensor copies, and an epilogue from tensor memory."""
    m, n, k = 256, 192, 128
    types = {"a_ptr": "*fp16", "b_ptr": "*fp16", "c_ptr": "*fp16", **dict.fromkeys("MNK", "i32")}
    made = compiled(tmp_path, "persistent", types, {"BM": 128, "BN": 64, "BK": 64, "CTAS": 2}, 4, 3)
    random = np.random.default_rng(4)
    a, b = (random.standard_normal((rows, k)).astype(np.float16) for rows in (m, n))
    c = np.full((m, n), np.nan, np.float16)
    run(made, (2, 1, 1), a, b, c, m, n, k)
    close(c, a.astype(np.float64), b.astype(np.float64), 2.0**-10)
