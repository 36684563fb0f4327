"""Kernels of single matrix operations, lowered and run on the interpreter, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from single_warp import BARRIER, memref, run

from warploom.dialect.isa import sparse_mma
from warploom.dialect.isa.sparse_mma import TWO_OF_FOUR
from warploom.runtime.numerics.sparse import metadata_words, stored_of


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize(("load", "transposed"), [('matrices = "x4", swapped', True), ('matrices = "x2.trans"', False)])
def test_bytes(load: str, transposed: bool, rng: np.random.Generator) -> None:
    """B as it is used by columns, and, in 16x16 matrices, as it is."""
    a, b = (rng.integers(-128, 128, (n, 32), dtype=np.int8) for n in (16, 16 if transposed else 32))
    c = rng.integers(-99, 99, (16, 16), dtype=np.int32)
    expected = c + a.astype(np.int32) @ (b.T if transposed else b[:, :16]).astype(np.int32)
    tile_a, tile_b = (memref(m).replace(">", ", #warp.swizzle<32>, 3>") for m in (a, b))
    fragment_a = "!warp.fragment<a, 16x32xi8, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>"
    fragment_b = "!warp.fragment<b, 32x16xi8, [r2 r3 c0 c1 c2 | r0 r1 r4]>"
    acc = "!warp.fragment<acc, 16x16xi32, [c1 c2 r0 r1 r2 | c0 r3]>"
    body = f"""
    %s = memref.alloc() : {tile_a}
    %t = memref.alloc() : {tile_b}
    warp.copy %A[%z, %z] to %s[] : $A to {tile_a}
    warp.copy %B[%z, %z] to %t[] : $B to {tile_b}
    {BARRIER}
    %a = warp.load %s[%z, %z] {{matrices = "x4"}} : {tile_a} -> {fragment_a}
    %b = warp.load %t[%z, %z] {{{load}}} : {tile_b} -> {fragment_b}
    %c = warp.load %C[%z, %z] : $C -> {acc}
    %d = warp.mma m16n8k32 %a, %b, %c : {fragment_a}, {fragment_b}, {acc}
    warp.store %d, %C[%z, %z] : {acc}, $C"""
    run("sm_120a", body, A=a, B=b, C=c)
    assert np.array_equal(c, expected)


def test_double_precision(rng: np.random.Generator) -> None:
    """Rows outside the matrix read as zero and are not written."""
    a, b, c = rng.standard_normal((13, 16)), rng.standard_normal((16, 8)), np.zeros((13, 8))
    fragment_a = "!warp.fragment<a, 16x16xf64, [c0 c1 r0 r1 r2 | r3 c2 c3]>"
    fragment_b = "!warp.fragment<b, 16x8xf64, [r0 r1 c0 c1 c2 | r2 r3]>"
    acc = "!warp.fragment<acc, 16x8xf64, [c1 c2 r0 r1 r2 | c0 r3]>"
    body = f"""
    %a = warp.load %A[%z, %z] : $A -> {fragment_a}
    %b = warp.load %B[%z, %z] : $B -> {fragment_b}
    %c = warp.constant 2.5 : f64 : {acc}
    %d = warp.mma m16n8k16 %a, %b, %c : {fragment_a}, {fragment_b}, {acc}
    warp.store %d, %C[%z, %z] : {acc}, $C"""
    run("sm_90a", body, A=a, B=b, C=c)
    assert np.allclose(c, a @ b + 2.5, rtol=1e-14)


@pytest.mark.parametrize(
    ("store", "load"),
    [
        ('matrices = "x4"', 'matrices = "x4"'),
        ('matrices = "x2"', 'matrices = "x4"'),
        ('matrices = "x4.trans", swapped', 'matrices = "x4.trans", swapped'),
        ('matrices = "x4.trans", swapped', 'matrices = "x1.trans", swapped'),
    ],
)
def test_what_stmatrix_writes_ldmatrix_reads(store: str, load: str, rng: np.random.Generator) -> None:
    a = rng.standard_normal((16, 16)).astype(np.float16)
    b = np.zeros_like(a)
    tile = "memref<16x64xf16, #warp.swizzle<128>, 3>"
    fragment = "!warp.fragment<acc, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3]>"
    body = f"""
    %s = memref.alloc() : {tile}
    %a = warp.load %A[%z, %z] : $A -> {fragment}
    warp.store %a, %s[%z, %z] {{{store}}} : {fragment}, {tile}
    {BARRIER}
    %b = warp.load %s[%z, %z] {{{load}}} : {tile} -> {fragment}
    warp.store %b, %B[%z, %z] : {fragment}, $B"""
    run("sm_90a", body, A=a, B=b)
    assert np.array_equal(a, b)


def test_movmatrix_keeps_the_matrix(rng: np.random.Generator) -> None:
    a = rng.standard_normal((16, 16)).astype(np.float16)
    b = np.zeros_like(a)
    before = "!warp.fragment<acc, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3]>"
    after = "!warp.fragment<b, 16x16xf16, [r1 r2 c0 c1 c2 | r0 r3]>"
    body = f"""
    %a = warp.load %A[%z, %z] : $A -> {before}
    %b = warp.convert_layout %a : {before} to {after}
    warp.store %b, %B[%z, %z] : {after}, $B"""
    run("sm_75", body, A=a, B=b)
    assert np.array_equal(a, b)


def test_opaque(rng: np.random.Generator) -> None:
    """B and the result by columns, the others by rows, all of them parts of larger matrices."""
    a, b = (rng.standard_normal((n, 64)).astype(np.float16) for n in (32, 16))
    c = rng.standard_normal((16, 32)).astype(np.float32)
    expected = c[:, 16:] + a[16:, 16:32].astype(np.float32) @ b[:, 16:32].T.astype(np.float32)
    fragment_a, fragment_b = '!gpu.mma_matrix<16x16xf16, "AOp">', '!gpu.mma_matrix<16x16xf16, "BOp">'
    acc = '!gpu.mma_matrix<16x16xf32, "COp">'
    body = f"""
    %i = arith.constant 16 : index
    %a = gpu.subgroup_mma_load_matrix %A[%i, %i] {{leadDimension = 64 : index}} : $A -> {fragment_a}
    %b = gpu.subgroup_mma_load_matrix %B[%z, %i] {{leadDimension = 64 : index, transpose}} : $B -> {fragment_b}
    %c = gpu.subgroup_mma_load_matrix %C[%z, %i] {{leadDimension = 32 : index}} : $C -> {acc}
    %d = gpu.subgroup_mma_compute %a, %b, %c {{b_transpose}} : {fragment_a}, {fragment_b} -> {acc}
    gpu.subgroup_mma_store_matrix %d, %C[%z, %z] {{leadDimension = 32 : index, transpose}} : {acc}, $C"""
    run("sm_75", body, A=a, B=b, C=c)
    assert np.allclose(c[:, :16].T, expected, atol=1e-2)


@pytest.mark.parametrize("selector", [0, 1])
def test_sparse(selector: int, rng: np.random.Generator) -> None:
    row_ = next(row for row in sparse_mma.rows() if row.a.name == "f16" and row.shape.k == 32)
    dense = np.zeros((16, 8, 4), np.float16)
    for row, chunk in np.ndindex(16, 8):
        dense[row, chunk, rng.choice(4, 2, replace=False)] = rng.standard_normal(2)
    stored, codes = stored_of(dense.reshape(16, 32), TWO_OF_FOUR)
    group = np.zeros((16, 2, 8), np.uint8)
    group[:, selector] = codes
    words = metadata_words(group.reshape(16, 16), row_).view(np.int32).reshape(1, 32)
    b, c = rng.standard_normal((32, 8)).astype(np.float16), np.zeros((16, 8), np.float32)
    fragment_a = "!warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>"
    fragment_b = "!warp.fragment<b, 32x8xf16, [r1 r2 c0 c1 c2 | r0 r3 r4]>"
    acc = "!warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>"
    meta = "!warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>"
    body = f"""
    %a = warp.load %A[%z, %z] : $A -> {fragment_a}
    %b = warp.load %B[%z, %z] : $B -> {fragment_b}
    %e = warp.load %E[%z, %z] {{registers = "vectors"}} : $E -> {meta}
    %c = warp.constant 0.0 : f32 : {acc}
    %d = warp.mma m16n8k32 %a, %b, %c sparse %e {{ordered, selector = {selector} : i64}}
      : {fragment_a}, {fragment_b}, {acc} sparse {meta}
    warp.store %d, %C[%z, %z] : {acc}, $C"""
    run("sm_90a", body, A=np.ascontiguousarray(stored), B=b, E=words, C=c)
    assert np.allclose(c, dense.reshape(16, 32).astype(np.float32) @ b.astype(np.float32), atol=1e-2)
