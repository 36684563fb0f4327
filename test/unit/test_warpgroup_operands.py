"""`warp.wgmma` with A in registers and with a sparse A: lowered, checked, run against sums that are exact."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from lowered import lowered_text

from warploom.dialect.isa.wgmma import Wgmma, rows
from warploom.dialect.warp.mma import metadata_type
from warploom.runtime import TensorMap, check_ptx, compress, load_ptx, prune

N = 24
KERNEL = """
!acc = !warp.fragment<acc, 64x24x{d}, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
!a = !warp.fragment<a, 64x{step}x{value}, [{layout}]>
!meta = {meta}
!As = memref<64x{stored}x{t}, #warp.swizzle<{width_a}>, 3>
!Bs = memref<24x{depth}x{t}, #warp.swizzle<{width}>, 3>
!map_a = !warp.tensor_map<64x{stored}x{t}, swizzle {width_a}>
!map_b = !warp.tensor_map<24x{depth}x{t}, swizzle {width}>
builtin.module attributes {{warp.target = #warp.target<sm_90a>}} {{
"gpu.module"() <{{sym_name = "kernels"}}> ({{
"gpu.func"() <{{kernel, function_type =
    (memref<64x{stored}x{value}>, !map_a, !map_b, memref<4x32xi32>, memref<64x24x{d}>) -> ()}}> ({{
^bb0(%A: memref<64x{stored}x{value}>, %mA: !map_a, %mB: !map_b, %E: memref<4x32xi32>, %C: memref<64x24x{d}>):
  {constants}
  %As = memref.alloc() : !As
  %Bs = memref.alloc() : !Bs
  %full = warp.make_barriers {{arrivals = 1 : i64}} : !warp.barriers<1>
  warp.fence async_proxy
  "gpu.barrier"() : () -> ()
  warp.arrive %full[%c0] {{bytes = {bytes} : i64}} : !warp.barriers<1>
  warp.tensor_load %mA[%c0, %c0] to %As[%c0, %c0], %full[%c0] : !map_a to !As, !warp.barriers<1>
  warp.tensor_load %mB[%c0, %c0] to %Bs[%c0, %c0], %full[%c0] : !map_b to !Bs, !warp.barriers<1>
  warp.await %full[%c0] parity %c0 : !warp.barriers<1>
  %d0 = warp.constant {zero} : {d} : !acc
  {loads}
  warp.fence wgmma
  {products}
  warp.commit wgmma
  warp.wait wgmma 0
  warp.store %d{steps}, %C[%c0, %c0] {{in_bounds = [true, true]}} : !acc, memref<64x24x{d}>
  "gpu.return"() : () -> ()
}}) {{sym_name = "k", gpu.known_block_size = array<i32: 128, 1, 1>}} : () -> ()
}}) : () -> ()
}}
"""
DTYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f8E5M2": ml_dtypes.float8_e5m2, "i8": np.int8, "f32": np.float32,
}  # fmt: skip
NAMES = {"f8E5M2": "e5m2", "i8": "s8", "f32": "tf32"}


def row_of(element: str, *, sparse: bool) -> Wgmma:
    name, result = NAMES.get(element, element), "s32" if element == "i8" else "f32"
    return next(
        r for r in rows()
        if (r.a.name, r.b.name, r.d.name, r.shape.n, r.granularity is not None) == (name, name, result, N, sparse)
    )  # fmt: skip


def kernel(element: str, *, sparse: bool, registers: bool) -> str:
    """D = -A B + 1 of 64 x K by K x 24, K being 128 bytes of elements, or 64 of elements of a byte."""
    row, size = row_of(element, sparse=sparse), np.dtype(DTYPES[element]).itemsize
    depth = 64 if size < 4 else 32
    name = "tf32" if element == "f32" else element
    stored, step = depth // 2 if sparse else depth, row.stored_k
    loads, products = [], []
    if sparse:
        loads += ["%tid = gpu.thread_id x", "%warp = arith.divui %tid, %c32 : index"]
        loads.append('%e = warp.load %E[%warp, %c0] {registers = "vectors"} : memref<4x32xi32> -> !meta')
    negated = "" if element == "i8" else "negate_a"
    for i, k in enumerate(range(0, stored, step)):
        operand, kind = (f"%a{i}", "!a") if registers else (f"%As[%c0, %c{k}]", "!As")
        if registers:
            loads.append(
                f"%a{i} = warp.load %A[%c0, %c{k}] {{in_bounds = [true, true]}} : memref<64x{stored}x{name}> -> !a"
            )
        words = [negated] if negated else []
        extra, end = "", ""
        if sparse:
            words.append(f"selector = {i % len(row.selectors)} : i64")
            extra, end = " sparse %e", ", !meta"
        attributes = f" {{{', '.join(words)}}}" if words else ""
        at = f"%c0, %c{k * row.shape.k // step}"
        products.append(
            f"%d{i + 1} = warp.wgmma {operand}, %Bs[{at}], %d{i}{extra}{attributes} : {kind}, !Bs, !acc{end}"
        )
    result = "i32" if element == "i8" else "f32"
    return KERNEL.format(
        t=element, value=name, d=result, step=step, layout=row.layout("a"), depth=depth, stored=stored,
        width=depth * size, width_a=stored * size, steps=len(products), zero="1" if result == "i32" else "1.0",
        meta=metadata_type(row.metadata) if row.metadata else "i32", bytes=(64 * stored + N * depth) * size,
        constants="\n  ".join(f"%c{i} = arith.constant {i} : index" for i in sorted({*range(0, depth, 8), 32})),
        loads="\n  ".join(loads), products="\n  ".join(products),
    )  # fmt: skip


CASES = [
    *((element, False, True) for element in DTYPES),
    *((element, True, registers) for element in DTYPES for registers in (False, True)),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("element", "sparse", "registers"), CASES)
def test_products(element: str, sparse: bool, registers: bool) -> None:
    """Small whole numbers, whose sums are exact in every order."""
    dtype = np.dtype(DTYPES[element])
    ptx = lowered_text(kernel(element, sparse=sparse, registers=registers))
    assert check_ptx(ptx) == []
    random = np.random.default_rng(5)
    depth = 64 if dtype.itemsize < 4 else 32
    a, b = (random.integers(-4, 5, (extent, depth)).astype(dtype) for extent in (64, N))
    arguments, metadata = a, np.zeros((4, 32), np.int32)
    if sparse:
        a = prune(a)
        arguments, words = compress(a, "wgmma.mma_async.sp")
        metadata = words.reshape(4, 32)
    maps = [TensorMap(m, m.shape, swizzle=m.shape[1] * dtype.itemsize) for m in (arguments, b)]
    d = np.full((64, N), -77, np.int32 if element == "i8" else np.float32)
    load_ptx(ptx, "k.ptx").launch(
        "k", 1, 128, [arguments, *maps, metadata, d], shared=40000, device="interp", checks="all"
    )
    sign = 1 if element == "i8" else -1
    assert np.array_equal(d, sign * (a.astype(np.float64) @ b.astype(np.float64).T) + 1)


MOVES = """
!acc = !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
!half = !warp.fragment<acc, 64x64xf16, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
!a = !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>
!tile = memref<64x64xf16, #warp.swizzle<128>, 3>
!map = !warp.tensor_map<64x64xf16, swizzle 128>
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{kernel, function_type = (!map, !map, memref<64xf32>, memref<64xf32>, !map) -> ()}> ({
^bb0(%A: !map, %B: !map, %down: memref<64xf32>, %along: memref<64xf32>, %D: !map):
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %As = memref.alloc() : !tile
  %Bs = memref.alloc() : !tile
  %full = warp.make_barriers {arrivals = 1 : i64} : !warp.barriers<1>
  warp.fence async_proxy
  "gpu.barrier"() : () -> ()
  warp.arrive %full[%c0] {bytes = 16384 : i64} : !warp.barriers<1>
  warp.tensor_load %A[%c0, %c0] to %As[%c0, %c0], %full[%c0] : !map to !tile, !warp.barriers<1>
  warp.tensor_load %B[%c0, %c0] to %Bs[%c0, %c0], %full[%c0] : !map to !tile, !warp.barriers<1>
  warp.await %full[%c0] parity %c0 : !warp.barriers<1>
  %a = warp.load %As[%c0, %c16] {matrices = "x4"} : !tile -> !a
  %start = warp.load %down[%c0] {in_bounds = [true, true], along = "rows"} : memref<64xf32> -> !acc
  warp.fence wgmma
  %sum = warp.wgmma %a, %Bs[%c0, %c16], %start : !a, !tile, !acc
  warp.commit wgmma
  warp.wait wgmma 0
  %bias = warp.load %along[%c0] {in_bounds = [true, true], along = "columns"} : memref<64xf32> -> !acc
  %total = warp.elementwise add %sum, %bias : !acc, !acc -> !acc
  %d = warp.convert %total : !acc to !half
  "gpu.barrier"() : () -> ()
  warp.store %d, %As[%c0, %c0] {matrices = "x4"} : !half, !tile
  warp.fence async_proxy
  "gpu.barrier"() : () -> ()
  warp.tensor_store %As[%c0, %c0] to %D[%c0, %c0] : !tile to !map
  warp.commit bulk
  warp.wait bulk 0
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 128, 1, 1>} : () -> ()
}) : () -> ()
}
"""


def test_matrices_and_vectors_of_a_warpgroup() -> None:
    """`ldmatrix` of A, vectors along rows and columns, `stmatrix` of D: each warp has 16 of 64 rows."""
    ptx = lowered_text(MOVES)
    assert check_ptx(ptx) == []
    random = np.random.default_rng(3)
    a, b = (random.integers(-3, 4, (64, 64)).astype(np.float16) for _ in range(2))
    down, along = (random.integers(-9, 10, 64).astype(np.float32) for _ in range(2))
    d = np.full((64, 64), np.nan, np.float16)
    maps = [TensorMap(m, (64, 64), swizzle=128) for m in (a, b, d)]
    arguments = [*maps[:2], down, along, maps[2]]
    load_ptx(ptx, "k.ptx").launch("k", 1, 128, arguments, shared=40000, device="interp", checks="all")
    part = a[:, 16:32].astype(np.float64) @ b[:, 16:32].astype(np.float64).T
    assert np.array_equal(d, part + down[:, None] + along)
