"""Triton and Gluon programs for Hopper alone: descriptors of tensors, `wgmma`, warps that specialise."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportIndexIssue=false
from __future__ import annotations

from typing import Any

import triton.language as tl
from corpus.triton_programs import program
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

HALVES, WIDE = "tensordesc<fp16[64,64]>", "tensordesc<fp16[128,64]>"
LAID = f"tensordesc<fp16[64, 64],{gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)!r}>"
TILE: dict[str, Any] = {"BM": 64, "BN": 64, "BK": 64}
WIDE_TILE: dict[str, Any] = TILE | {"BN": 128}


@program(_only="sm_90a", a=HALVES, b=HALVES, c=HALVES, depth="i32", **TILE)
def t_descriptor_matmul(a, b, c, depth, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, depth, BK):
        acc = tl.dot(a.load([m, k]), b.load([n, k]).T, acc)
    c.store([m, n], acc.to(tl.float16))


@program(
    _only="sm_90a",
    a=HALVES,
    b="tensordesc<fp16[128,64]>",
    c="tensordesc<fp16[64,128]>",
    depth="i32",
    **WIDE_TILE,
)
def t_specialised_matmul(a, b, c, depth, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, depth, BK, warp_specialize=True):
        acc = tl.dot(a.load([m, k]), b.load([n, k]).T, acc)
    c.store([m, n], acc.to(tl.float16))


@program(_only="sm_90a", _jit=gluon.jit, a=LAID, b=LAID, c=LAID, depth="i32", **TILE)
def g_matmul(a, b, c, depth, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    m, n = gl.program_id(0) * BM, gl.program_id(1) * BN
    sa = gl.allocate_shared_memory(a.dtype, a.block_type.shape, a.layout)
    sb = gl.allocate_shared_memory(b.dtype, b.block_type.shape, b.layout)
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 16])
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    acc = gl.zeros((BM, BN), gl.float32, layout)
    phase = 0
    for k in range(0, depth, BK):
        mbarrier.expect(bar, a.block_type.nbytes + b.block_type.nbytes)
        tma.async_load(a, [m, k], bar, sa)
        tma.async_load(b, [n, k], bar, sb)
        mbarrier.wait(bar, phase)
        phase ^= 1
        acc = warpgroup_mma(sa, sb.permute((1, 0)), acc, is_async=True)
        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
    mbarrier.invalidate(bar)
    sc = gl.allocate_shared_memory(c.dtype, c.block_type.shape, c.layout)
    sc.store(acc.to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [m, n], sc)
    tma.store_wait(pendings=0)


@gluon.jit
def _produce(a, b, m, n, depth, sa, sb, full, empty, BK: gl.constexpr, STAGES: gl.constexpr):
    for i in range((depth + BK - 1) // BK):
        at, phase = i % STAGES, i // STAGES & 1
        mbarrier.wait(empty.index(at), phase ^ 1)
        mbarrier.expect(full.index(at), a.block_type.nbytes + b.block_type.nbytes)
        tma.async_load(a, [m, i * BK], full.index(at), sa.index(at))
        tma.async_load(b, [n, i * BK], full.index(at), sb.index(at))


@gluon.jit
def _consume(c, m, n, depth, sa, sb, full, empty, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
             STAGES: gl.constexpr):  # fmt: skip
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 16])
    acc = gl.zeros((BM, BN), gl.float32, layout)
    for i in range((depth + BK - 1) // BK):
        at, phase = i % STAGES, i // STAGES & 1
        mbarrier.wait(full.index(at), phase)
        acc = warpgroup_mma(sa.index(at), sb.index(at).permute((1, 0)), acc, is_async=True)
        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
        mbarrier.arrive(empty.index(at), count=1)
    sc = gl.allocate_shared_memory(c.dtype, c.block_type.shape, c.layout)
    sc.store(acc.to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [m, n], sc)
    tma.store_wait(pendings=0)


@program(_only="sm_90a", _jit=gluon.jit, a=LAID, b=LAID, c=LAID, depth="i32", **TILE, STAGES=2)
def g_specialised(a, b, c, depth, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr):
    m, n = gl.program_id(0) * BM, gl.program_id(1) * BN
    sa = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_type.shape, a.layout)  # noqa: RUF005
    sb = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_type.shape, b.layout)  # noqa: RUF005
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    gl.warp_specialize(
        [
            (_consume, (c, m, n, depth, sa, sb, full, empty, BM, BN, BK, STAGES)),
            (_produce, (a, b, m, n, depth, sa, sb, full, empty, BK, STAGES)),
        ],
        [1],
        [24],
    )
