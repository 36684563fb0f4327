"""Gluon programs for sm_100a: tensor memory, pairs of CTAs, roles of warps, scales that are copied, written by hand."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportIndexIssue=false
from __future__ import annotations

from typing import Any

from corpus.triton_programs import program
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    allocate_tensor_memory,
    clc,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_copy,
    tcgen05_mma,
    tcgen05_mma_scaled,
    tma,
)

SM: dict[str, Any] = {"_only": "sm_100a", "_jit": gluon.jit}


def laid(rows: int, columns: int, type: str = "fp16", swizzle: int = 128, **layout: Any) -> str:
    """The type of a tensor map."""
    bits = 8 if type[-1] == "8" or type == "fp8e4nv" else 16
    shared = gl.NVMMASharedLayout(swizzle_byte_width=swizzle, element_bitwidth=bits, rank=2, **layout)
    return f"tensordesc<{type}[{rows}, {columns}],{shared!r}>"


TILES: dict[str, Any] = SM | {"a": laid(128, 64), "b": laid(64, 64), "c": laid(128, 64), "k": "i32"}
SIZES: dict[str, Any] = {"BM": 128, "BN": 64, "BK": 64}


@gluon.jit
def _finish(c, row, column, total):
    """Stores a tile of sums."""
    kept = gl.allocate_shared_memory(c.dtype, c.block_type.shape, c.layout)
    kept.store(total.load().to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [row, column], kept)
    tma.store_wait(pendings=0)


@program(**TILES, **SIZES)
def g_tensor_matmul(a, b, c, k, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    """One stage, and a wait behind each product."""
    row, column = gl.program_id(0) * BM, gl.program_id(1) * BN
    sa = gl.allocate_shared_memory(a.dtype, a.block_type.shape, a.layout)
    sb = gl.allocate_shared_memory(b.dtype, b.block_type.shape, b.layout)
    full = mbarrier.allocate_mbarrier()
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=1)
    total = allocate_tensor_memory(gl.float32, [BM, BN], TensorMemoryLayout([BM, BN], col_stride=1))
    phase = 0
    for start in range(0, k, BK):
        mbarrier.expect(full, a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_load(a, [row, start], full, sa)
        tma.async_load(b, [column, start], full, sb)
        mbarrier.wait(full, phase)
        tcgen05_mma(sa, sb.permute((1, 0)), total, use_acc=start > 0)
        tcgen05_commit(done)
        mbarrier.wait(done, phase)
        phase ^= 1
    mbarrier.invalidate(full)
    mbarrier.invalidate(done)
    _finish(c, row, column, total)


@program(a="*fp16", b="*fp16", c="*fp32", **SM, **SIZES)
def g_tensor_left(a, b, c, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    """The left operand lies in tensor memory."""
    blocked: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    rows, columns = gl.arange(0, BM, gl.SliceLayout(1, blocked)), gl.arange(0, BN, gl.SliceLayout(0, blocked))
    deep_a, deep_b = gl.arange(0, BK, gl.SliceLayout(0, blocked)), gl.arange(0, BK, gl.SliceLayout(1, blocked))
    left = gl.load(a + rows[:, None] * BK + deep_a[None])
    right = gl.load(b + deep_b[:, None] * BN + columns[None])
    sb = gl.allocate_shared_memory(
        gl.float16, [BK, BN], gl.NVMMASharedLayout.get_default_for([BK, BN], gl.float16), right
    )
    ta = allocate_tensor_memory(gl.float16, [BM, BK], TensorMemoryLayout([BM, BK], col_stride=1))
    ta.store(gl.convert_layout(left, ta.get_reg_layout()))
    total = allocate_tensor_memory(gl.float32, [BM, BN], TensorMemoryLayout([BM, BN], col_stride=1))
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    fence_async_shared()
    tcgen05_mma(ta, sb, total, use_acc=False, mbarriers=[done])
    mbarrier.wait(done, 0)
    mbarrier.invalidate(done)
    gl.store(c + rows[:, None] * BN + columns[None], gl.convert_layout(total.load(), blocked))


@gluon.jit
def _bring(a, b, row, column, k, sa, sb, full, empty, BK: gl.constexpr, STAGES: gl.constexpr, first):
    """Copies the tiles of one output; returns how many have been copied."""
    for start in range(0, k, BK):
        at, phase = first % STAGES, first // STAGES & 1
        mbarrier.wait(empty.index(at), phase ^ 1)
        mbarrier.expect(full.index(at), a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_load(a, [row, start], full.index(at), sa.index(at))
        tma.async_load(b, [column, start], full.index(at), sb.index(at))
        first += 1
    return first


@gluon.jit
def _copies(a, b, c, tiles, across, k, sa, sb, full, empty, sums, ready, free, BM: gl.constexpr, BN: gl.constexpr,
            BK: gl.constexpr, STAGES: gl.constexpr):  # fmt: skip
    count = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, column = tile // across * BM, tile % across * BN
        count = _bring(a, b, row, column, k, sa, sb, full, empty, BK, STAGES, count)


@gluon.jit
def _products(a, b, c, tiles, across, k, sa, sb, full, empty, sums, ready, free, BM: gl.constexpr, BN: gl.constexpr,
              BK: gl.constexpr, STAGES: gl.constexpr):  # fmt: skip
    count, turn = 0, 0
    for _ in range(gl.program_id(0), tiles, gl.num_programs(0)):
        mbarrier.wait(free.index(turn % 2), turn // 2 & 1 ^ 1)
        for start in range(0, k, BK):
            at = count % STAGES
            mbarrier.wait(full.index(at), count // STAGES & 1)
            tcgen05_mma(sa.index(at), sb.index(at).permute((1, 0)), sums.index(turn % 2), use_acc=start > 0,
                        mbarriers=[empty.index(at)])  # fmt: skip
            count += 1
        tcgen05_commit(ready.index(turn % 2))
        turn = turn + 1


@gluon.jit
def _epilogue(a, b, c, tiles, across, k, sa, sb, full, empty, sums, ready, free, BM: gl.constexpr, BN: gl.constexpr,
              BK: gl.constexpr, STAGES: gl.constexpr):  # fmt: skip
    turn = 0
    kept = gl.allocate_shared_memory(c.dtype, c.block_type.shape, c.layout)
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        mbarrier.wait(ready.index(turn % 2), turn // 2 & 1)
        total = sums.index(turn % 2).load()
        mbarrier.arrive(free.index(turn % 2), count=1)
        tma.store_wait(pendings=0)
        kept.store(total.to(c.dtype))
        fence_async_shared()
        tma.async_store(c, [tile // across * BM, tile % across * BN], kept)
        turn = turn + 1
    tma.store_wait(pendings=0)


@program(m="i32", n="i32", **TILES, **SIZES, STAGES=3)
def g_tensor_roles(a, b, c, m, n, k, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr):
    """Persistent: a warp copies, a warp issues products into two sums in turn, four warps store."""
    sa = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_type.shape, a.layout)  # noqa: RUF005
    sb = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_type.shape, b.layout)  # noqa: RUF005
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    empty = mbarrier.allocate_mbarrier(batch=STAGES)
    ready = mbarrier.allocate_mbarrier(batch=2)
    free = mbarrier.allocate_mbarrier(batch=2)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    for i in gl.static_range(2):
        mbarrier.init(ready.index(i), count=1)
        mbarrier.init(free.index(i), count=1)
    sums = allocate_tensor_memory(gl.float32, [2, BM, BN], TensorMemoryLayout([BM, BN], col_stride=1))
    across = (n + BN - 1) // BN
    tiles = (m + BM - 1) // BM * across
    args = (a, b, c, tiles, across, k, sa, sb, full, empty, sums, ready, free, BM, BN, BK, STAGES)
    gl.warp_specialize([(_epilogue, args), (_copies, args), (_products, args)], [1, 1], [24, 24])


@program(**TILES | {"a": laid(128, 64), "b": laid(64, 64)}, **SIZES, STAGES=3)
def g_tensor_ring(a, b, c, k, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr):
    """Copies run ahead of products by two stages; nobody has a role."""
    row, column = gl.program_id(0) * BM, gl.program_id(1) * BN
    sa = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_type.shape, a.layout)  # noqa: RUF005
    sb = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_type.shape, b.layout)  # noqa: RUF005
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    empty = mbarrier.allocate_mbarrier(batch=STAGES)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    total = allocate_tensor_memory(gl.float32, [BM, BN], TensorMemoryLayout([BM, BN], col_stride=1))
    steps = (k + BK - 1) // BK
    for i in range(steps + STAGES - 1):
        at, inside = i % STAGES, i < steps
        mbarrier.wait(empty.index(at), i // STAGES & 1 ^ 1, pred=inside)
        mbarrier.expect(full.index(at), a.nbytes_per_cta + b.nbytes_per_cta, pred=inside)
        tma.async_load(a, [row, i * BK], full.index(at), sa.index(at), pred=inside)
        tma.async_load(b, [column, i * BK], full.index(at), sb.index(at), pred=inside)
        step = i - (STAGES - 1)
        at, inside = step % STAGES, step >= 0
        mbarrier.wait(full.index(at), step // STAGES & 1, pred=inside)
        tcgen05_mma(sa.index(at), sb.index(at).permute((1, 0)), total, use_acc=step > 0, pred=inside,
                    mbarriers=[empty.index(at)], mbarrier_preds=[inside])  # fmt: skip
    mbarrier.wait(empty.index((steps - 1) % STAGES), (steps - 1) // STAGES & 1)
    _finish(c, row, column, total)


PAIR: dict[str, Any] = {"a": laid(256, 64, cga_layout=[[1, 0]]), "b": laid(128, 64, cga_layout=[[1, 0]]),
                        "c": laid(256, 128, cga_layout=[[1, 0]])}  # fmt: skip


@program(_ctas=2, **SM, **PAIR, k="i32", BM=256, BN=128, BK=64)
def g_tensor_pair(a, b, c, k, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    """Two CTAs multiply together: each has half of the rows, and half of the columns of B."""
    row, column = gl.program_id(0) * BM, gl.program_id(1) * BN
    sa = gl.allocate_shared_memory(a.dtype, a.block_type.shape, a.layout)
    sb = gl.allocate_shared_memory(b.dtype, b.block_type.shape, b.layout)
    full = mbarrier.allocate_mbarrier(two_ctas=True)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=1)
    layout: gl.constexpr = TensorMemoryLayout([BM // 2, BN], col_stride=1, cga_layout=[[1, 0]], two_ctas=True)
    total = allocate_tensor_memory(gl.float32, [BM, BN], layout)
    phase = 0
    for start in range(0, k, BK):
        mbarrier.expect(full, a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_load(a, [row, start], full, sa)
        tma.async_load(b, [column, start], full, sb)
        mbarrier.wait(full, phase)
        tcgen05_mma(sa, sb.permute((1, 0)), total, use_acc=start > 0, mbarriers=[done])
        mbarrier.wait(done, phase)
        phase ^= 1
    _finish(c, row, column, total)


@program(**SM, a=laid(128, 128, "fp8e4nv"), b=laid(64, 128, "fp8e4nv"), sa="*u8", sb="*u8", c="*fp32", k="i32", BM=128,
         BN=64, BK=128)  # fmt: skip
def g_tensor_scaled(a, b, sa, sb, c, k, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    """mxfp8: scales go from registers to tensor memory."""
    ta = gl.allocate_shared_memory(a.dtype, a.block_type.shape, a.layout)
    tb = gl.allocate_shared_memory(b.dtype, b.block_type.shape, b.layout)
    full = mbarrier.allocate_mbarrier()
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=1)
    total = allocate_tensor_memory(gl.float32, [BM, BN], TensorMemoryLayout([BM, BN], col_stride=1))
    scales_a = allocate_tensor_memory(gl.uint8, [BM, BK // 32], TensorMemoryScalesLayout())
    scales_b = allocate_tensor_memory(gl.uint8, [BN, BK // 32], TensorMemoryScalesLayout())
    of_a: gl.constexpr = scales_a.get_reg_layout()
    of_b: gl.constexpr = scales_b.get_reg_layout()
    rows, deep_a = gl.arange(0, BM, gl.SliceLayout(1, of_a)), gl.arange(0, BK // 32, gl.SliceLayout(0, of_a))
    columns, deep_b = gl.arange(0, BN, gl.SliceLayout(1, of_b)), gl.arange(0, BK // 32, gl.SliceLayout(0, of_b))
    phase = 0
    for start in range(0, k, BK):
        mbarrier.expect(full, a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_load(a, [0, start], full, ta)
        tma.async_load(b, [0, start], full, tb)
        mbarrier.wait(full, phase)
        scales_a.store(gl.load(sa + rows[:, None] * (k // 32) + (start // 32 + deep_a)[None]))
        scales_b.store(gl.load(sb + columns[:, None] * (k // 32) + (start // 32 + deep_b)[None]))
        tcgen05_mma_scaled(ta, tb.permute((1, 0)), total, scales_a, scales_b, "e4m3", "e4m3", use_acc=start > 0,
                           mbarriers=[done])  # fmt: skip
        mbarrier.wait(done, phase)
        phase ^= 1
    layout: gl.constexpr = total.get_reg_layout()
    at = gl.arange(0, BM, gl.SliceLayout(1, layout))[:, None] * BN + gl.arange(0, BN, gl.SliceLayout(0, layout))[None]
    gl.store(c + at, total.load())


@program(**SM, a="*fp32", c="*fp32", BM=128, BN=64)
def g_tensor_copy(a, c, BM: gl.constexpr, BN: gl.constexpr):
    """A copy from shared to tensor memory."""
    blocked: gl.constexpr = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
    at = gl.arange(0, BM, gl.SliceLayout(1, blocked))[:, None] * BN + gl.arange(0, BN, gl.SliceLayout(0, blocked))[None]
    shared: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=32, rank=2)
    kept = gl.allocate_shared_memory(gl.float32, [BM, BN], shared, gl.load(a + at))
    total = allocate_tensor_memory(gl.float32, [BM, BN], TensorMemoryLayout([BM, BN], col_stride=1))
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    fence_async_shared()
    tcgen05_copy(kept, total)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    gl.store(c + at, gl.convert_layout(total.load(), blocked))


@program(**TILES, **SIZES)
def g_tensor_cancels(a, b, c, k, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    """A CTA takes over the tiles of others that have not begun."""
    answer = gl.allocate_shared_memory(gl.int64, [2], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    asked = mbarrier.allocate_mbarrier()
    mbarrier.init(asked, count=1)
    sa = gl.allocate_shared_memory(a.dtype, a.block_type.shape, a.layout)
    sb = gl.allocate_shared_memory(b.dtype, b.block_type.shape, b.layout)
    full = mbarrier.allocate_mbarrier()
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=1)
    total = allocate_tensor_memory(gl.float32, [BM, BN], TensorMemoryLayout([BM, BN], col_stride=1))
    phase, turn, going = 0, 0, True
    row, column = gl.program_id(0) * BM, gl.program_id(1) * BN
    while going:
        clc.try_cancel(answer, asked)
        mbarrier.expect(asked, 16)
        for start in range(0, k, BK):
            mbarrier.expect(full, a.nbytes_per_cta + b.nbytes_per_cta)
            tma.async_load(a, [row, start], full, sa)
            tma.async_load(b, [column, start], full, sb)
            mbarrier.wait(full, phase)
            tcgen05_mma(sa, sb.permute((1, 0)), total, use_acc=start > 0, mbarriers=[done])
            mbarrier.wait(done, phase)
            phase ^= 1
        _finish(c, row, column, total)
        mbarrier.wait(asked, turn & 1)
        turn = turn + 1
        said = clc.load_result(answer)
        going = said.is_canceled()
        if going:
            row, column = said.program_id(0) * BM, said.program_id(1) * BN
