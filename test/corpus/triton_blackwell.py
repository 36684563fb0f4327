"""Triton programs for sm_100a alone: products in tensor memory, block scales, roles of warps, attention."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportIndexIssue=false
from __future__ import annotations

from typing import Any

import triton.language as tl
from corpus.triton_programs import program

SM: dict[str, Any] = {"_only": "sm_100a"}
PRODUCT: dict[str, Any] = SM | {"m": "i32", "n": "i32", "k": "i32"}


def product(name: str, a: str, b: str, c: str, tile: tuple[int, int, int], **options: Any) -> None:
    """A product of two types and a tile."""
    bm, bn, bk = tile
    program(_name=name, a=a, b=b, c=c, BM=bm, BN=bn, BK=bk, **options, **PRODUCT)(_product)


def _product(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        depth = start + tl.arange(0, BK)
        inside_a, inside_b = (rows < m)[:, None] & (depth < k)[None], (depth < k)[:, None] & (columns < n)[None]
        x = tl.load(a + rows[:, None] * k + depth[None], mask=inside_a, other=0.0)
        y = tl.load(b + depth[:, None] * n + columns[None], mask=inside_b, other=0.0)
        total = tl.dot(x, y, total)
    tl.store(c + rows[:, None] * n + columns[None], total, mask=(rows < m)[:, None] & (columns < n)[None])


product("b_matmul", "*fp16", "*fp16", "*fp32", (128, 64, 64))
product("b_matmul_64", "*fp16", "*fp16", "*fp32", (64, 64, 32), _stages=2)
product("b_matmul_wide", "*fp16", "*fp16", "*fp32", (128, 256, 64), _stages=2, _warps=8)
product("b_matmul_bf16", "*bf16", "*bf16", "*fp32", (128, 128, 64))
product("b_matmul_tf32", "*fp32", "*fp32", "*fp32", (128, 64, 32))
product("b_matmul_fp8", "*fp8e4nv", "*fp8e5", "*fp32", (128, 64, 128))


@program(a="*fp16", b="*fp16", c="*fp16", **PRODUCT, BM=128, BN=64, BK=64, GROUP=2)
def b_grouped(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    """Tiles in groups of rows, and a leaky ReLU."""
    tile = tl.program_id(0)
    down, across = tl.cdiv(m, BM), tl.cdiv(n, BN)
    first = tile // (GROUP * across) * GROUP
    high = min(down - first, GROUP)
    row = first + tile % (GROUP * across) % high
    column = tile % (GROUP * across) // high
    rows = (row * BM + tl.arange(0, BM)) % m
    columns = (column * BN + tl.arange(0, BN)) % n
    depth = tl.arange(0, BK)
    x, y = a + rows[:, None] * k + depth[None], b + depth[:, None] * n + columns[None]
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(k, BK)):
        left = tl.load(x, mask=depth[None] < k - step * BK, other=0.0)
        right = tl.load(y, mask=depth[:, None] < k - step * BK, other=0.0)
        total = tl.dot(left, right, total)
        x += BK
        y += BK * n
    total = tl.where(total >= 0, total, 0.01 * total)
    rows, columns = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN)
    tl.store(
        c + rows[:, None] * n + columns[None], total.to(tl.float16), mask=(rows < m)[:, None] & (columns < n)[None]
    )


@program(a="*fp16", b="*fp16", c="*fp32", **PRODUCT, BM=128, BN=64, BK=64, PARTS=2)
def b_split(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr):
    """Parts of K, added by atomics."""
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(tl.program_id(2) * BK, k, BK * PARTS):
        depth = start + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * k + depth[None], mask=(rows < m)[:, None] & (depth < k)[None], other=0.0)
        y = tl.load(b + depth[:, None] * n + columns[None], mask=(depth < k)[:, None] & (columns < n)[None], other=0.0)
        total = tl.dot(x, y, total)
    tl.atomic_add(c + rows[:, None] * n + columns[None], total, mask=(rows < m)[:, None] & (columns < n)[None])


@program(a="*fp16", b="*fp16", c="*fp16", d="*fp32", **SM, BM=128, BN=64, BK=64)
def b_chain(a, b, c, d, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A product whose left operand is the sum of another."""
    rows, depth, columns = tl.arange(0, BM), tl.arange(0, BK), tl.arange(0, BN)
    first = tl.dot(tl.load(a + rows[:, None] * BK + depth[None]), tl.load(b + depth[:, None] * BK + depth[None]))
    second = tl.dot(first.to(tl.float16), tl.load(c + depth[:, None] * BN + columns[None]))
    tl.store(d + rows[:, None] * BN + columns[None], second)


HALVES: dict[str, Any] = {"a": "tensordesc<fp16[128,64]>", "b": "tensordesc<fp16[64,64]>"}
TILED: dict[str, Any] = SM | HALVES | {"BM": 128, "BN": 64, "BK": 64}


@program(c="tensordesc<fp16[128,64]>", k="i32", **TILED)
def b_descriptor(a, b, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        total = tl.dot(a.load([m, start]), b.load([n, start]).T, total)
    c.store([m, n], total.to(tl.float16))


@program(c="tensordesc<fp16[128,64]>", **PRODUCT | TILED, CTAS=3)
def b_persistent_tma(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, CTAS: tl.constexpr):
    across = tl.cdiv(n, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, BM) * across, CTAS, flatten=True):
        row, column = tile // across * BM, tile % across * BN
        total = tl.zeros((BM, BN), tl.float32)
        for start in range(0, k, BK):
            total = tl.dot(a.load([row, start]), b.load([column, start]).T, total)
        c.store([row, column], total.to(tl.float16))


@program(c="tensordesc<fp16[128,64]>", **PRODUCT | TILED, CTAS=3)
def b_specialised(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, CTAS: tl.constexpr):
    across = tl.cdiv(n, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, BM) * across, CTAS, flatten=True, warp_specialize=True):
        row, column = tile // across * BM, tile % across * BN
        total = tl.zeros((BM, BN), tl.float32)
        for start in range(0, k, BK):
            total = tl.dot(a.load([row, start]), b.load([column, start]).T, total)
        c.store([row, column], total.to(tl.float16))


@program(c="tensordesc<fp16[128,64]>", **PRODUCT | TILED | {"b": "tensordesc<fp16[128,64]>", "BN": 128}, CTAS=2)
def b_subtiled(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, CTAS: tl.constexpr):
    """The epilogue stores halves of a tile, one after the other."""
    across = tl.cdiv(n, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, BM) * across, CTAS, warp_specialize=True):
        row, column = tile // across * BM, tile % across * BN
        total = tl.zeros((BM, BN), tl.float32)
        for start in range(0, k, BK):
            total = tl.dot(a.load([row, start]), b.load([column, start]).T, total)
        low, high = tl.split(tl.permute(tl.reshape(total, (BM, 2, BN // 2)), (0, 2, 1)))
        c.store([row, column], low.to(tl.float16))
        c.store([row, column + BN // 2], high.to(tl.float16))


@program(a="*fp16", b="*fp16", c="*fp16", **PRODUCT, BM=128, BN=64, BK=64, CTAS=2)
def b_made_descriptors(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, CTAS: tl.constexpr):
    """Tensor maps that the kernel makes itself, and warps with roles."""
    x = tl.make_tensor_descriptor(a, [m, k], [k, 1], [BM, BK])
    y = tl.make_tensor_descriptor(b, [n, k], [k, 1], [BN, BK])
    z = tl.make_tensor_descriptor(c, [m, n], [n, 1], [BM, BN])
    across = tl.cdiv(n, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, BM) * across, CTAS, flatten=True, warp_specialize=True):
        row, column = tile // across * BM, tile % across * BN
        total = tl.zeros((BM, BN), tl.float32)
        for start in range(0, k, BK):
            total = tl.dot(x.load([row, start]), y.load([column, start]).T, total)
        z.store([row, column], total.to(tl.float16))


@program(rows="*i32", a="tensordesc<fp16[1,64]>", b="tensordesc<fp16[64,64]>", c="*fp32", n="i32", k="i32", **SM,
         BM=128, BN=64, BK=64)  # fmt: skip
def b_gathered(rows, a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Rows of A that a list names, as experts have them."""
    place, column = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN
    chosen = tl.load(rows + place)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        total = tl.dot(a.gather(chosen, start), b.load([column, start]).T, total)
    tl.store(c + place[:, None] * n + column + tl.arange(0, BN)[None], total)


@program(a_of="*i64", b_of="*i64", c_of="*i64", sizes="*i32", groups="i32", **SM, BM=128, BN=64, BK=64, CTAS=2)
def b_groups(a_of, b_of, c_of, sizes, groups, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
             CTAS: tl.constexpr):  # fmt: skip
    """Products of different sizes, whose addresses lie in memory."""
    tile, last = tl.program_id(0), 0
    for group in range(groups):
        m, n = tl.load(sizes + 3 * group), tl.load(sizes + 3 * group + 1)
        k = tl.load(sizes + 3 * group + 2)
        across = tl.cdiv(n, BN)
        tiles = tl.cdiv(m, BM) * across
        while tile >= last and tile < last + tiles:
            x = tl.load(a_of + group).to(tl.pointer_type(tl.float16))
            y = tl.load(b_of + group).to(tl.pointer_type(tl.float16))
            z = tl.load(c_of + group).to(tl.pointer_type(tl.float16))
            rows = (tile - last) // across * BM + tl.arange(0, BM)
            columns = (tile - last) % across * BN + tl.arange(0, BN)
            total = tl.zeros((BM, BN), tl.float32)
            for start in range(0, k, BK):
                depth = start + tl.arange(0, BK)
                left = tl.load(x + rows[:, None] * k + depth[None], (rows < m)[:, None] & (depth < k)[None], 0.0)
                right = tl.load(y + columns[None] * k + depth[:, None], (columns < n)[None] & (depth < k)[:, None], 0.0)
                total = tl.dot(left, right, total)
            inside = (rows < m)[:, None] & (columns < n)[None]
            tl.store(z + rows[:, None] * n + columns[None], total.to(tl.float16), inside)
            tile += CTAS
        last += tiles


def scaled(name: str, kind_a: str, kind_b: str, vector: int, scale: str) -> None:
    """A product with scales of blocks, of two types."""
    of = {"e2m1": "*u8", "e4m3": "*fp8e4nv", "e5m2": "*fp8e5"}
    program(_name=name, a=of[kind_a], sa=scale, b=of[kind_b], sb=scale, c="*fp32", n="i32", k="i32", **SM, _stages=2,
            KA=tl.constexpr(kind_a), KB=tl.constexpr(kind_b), PA=1 + (kind_a == "e2m1"), PB=1 + (kind_b == "e2m1"),
            V=vector, BM=128, BN=64, BK=128)(_scaled)  # fmt: skip


def _scaled(a, sa, b, sb, c, n, k, KA: tl.constexpr, KB: tl.constexpr, PA: tl.constexpr, PB: tl.constexpr,
            V: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        deep_a, deep_b = start // PA + tl.arange(0, BK // PA), start // PB + tl.arange(0, BK // PB)
        blocks = start // V + tl.arange(0, BK // V)
        x = tl.load(a + rows[:, None] * (k // PA) + deep_a[None])
        y = tl.load(b + columns[:, None] * (k // PB) + deep_b[None])
        sx = tl.load(sa + rows[:, None] * (k // V) + blocks[None])
        sy = tl.load(sb + columns[:, None] * (k // V) + blocks[None])
        total = tl.dot_scaled(x, sx, KA, y.T, sy, KB, total)
    tl.store(c + rows[:, None] * n + columns[None], total)


scaled("b_mxfp8", "e4m3", "e5m2", 32, "*u8")
scaled("b_mxfp4", "e2m1", "e2m1", 32, "*u8")
scaled("b_nvfp4", "e2m1", "e2m1", 16, "*fp8e4nv")
scaled("b_mixed", "e4m3", "e2m1", 32, "*u8")


@program(a="tensordesc<u8[128,128]>", sa="tensordesc<u8[1,1,2,2,256]>", b="tensordesc<u8[128,128]>",
         sb="tensordesc<u8[1,1,2,2,256]>", c="tensordesc<fp16[128,128]>", k="i32", **SM, _stages=2)  # fmt: skip
def b_packed_scales(a, sa, b, sb, c, k):
    """Scales of mxfp4 in the order of tensor memory, which tensor copies bring."""
    m, n = tl.program_id(0), tl.program_id(1)
    total = tl.zeros((128, 128), tl.float32)
    for step in range(k // 256):
        x, y = a.load([m * 128, step * 128]), b.load([n * 128, step * 128])
        sx = sa.load([0, m, step * 2, 0, 0]).reshape(1, 2, 32, 4, 4).trans(0, 3, 2, 1, 4).reshape(128, 8)
        sy = sb.load([0, n, step * 2, 0, 0]).reshape(1, 2, 32, 4, 4).trans(0, 3, 2, 1, 4).reshape(128, 8)
        total = tl.dot_scaled(x, sx, "e2m1", y.T, sy, "e2m1", total)
    c.store([m * 128, n * 128], total.to(tl.float16))


@program(a="*fp8e4nv", b="*fp8e4nv", c="*fp32", sa="*fp32", sb="*fp32", **PRODUCT, BM=128, BN=128, BK=128)
def b_blockwise(a, b, c, sa, sb, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """fp8 with scales in f32: of A one for 128 of K, of B one for 128 x 128; sums are promoted."""
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(k // BK):
        depth = step * BK + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * k + depth[None], (rows < m)[:, None], 0.0)
        y = tl.load(b + columns[None] * k + depth[:, None], (columns < n)[None], 0.0)
        scale = tl.load(sa + rows * (k // BK) + step, rows < m, 0.0)
        total += tl.dot(x, y) * (scale * tl.load(sb + tl.program_id(1) * (k // BK) + step))[:, None]
    tl.store(c + rows[:, None] * n + columns[None], total, (rows < m)[:, None] & (columns < n)[None])


ATTENTION: dict[str, Any] = SM | {"n": "i32", "scale": "fp32", "BM": 128, "BN": 64, "D": 64}


@program(q="*fp16", k="*fp16", v="*fp16", o="*fp32", **ATTENTION)
def b_attention(q, k, v, o, n, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    rows, deep = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    x = tl.load(q + rows[:, None] * D + deep[None])
    top, size = tl.full((BM,), float("-inf"), tl.float32), tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for start in range(0, n, BN):
        columns = start + tl.arange(0, BN)
        scores = tl.dot(x, tl.load(k + columns[:, None] * D + deep[None]).T) * scale
        above = tl.maximum(top, tl.max(scores, 1))
        p, change = tl.exp2(scores - above[:, None]), tl.exp2(top - above)
        size = size * change + tl.sum(p, 1)
        total = tl.dot(p.to(tl.float16), tl.load(v + columns[:, None] * D + deep[None]), total * change[:, None])
        top = above
    tl.store(o + rows[:, None] * D + deep[None], total / size[:, None])


DESCRIBED: dict[str, Any] = {"q": "tensordesc<fp16[128,64]>"} | dict.fromkeys(("k", "v"), "tensordesc<fp16[64,64]>")


def _flash(q, k, v, o, n, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, ROLES: tl.constexpr,
           CAUSAL: tl.constexpr):  # fmt: skip
    row = tl.program_id(0) * BM
    rows = row + tl.arange(0, BM)
    x = q.load([row, 0])
    top, size = tl.full((BM,), float("-inf"), tl.float32), tl.full((BM,), 1.0, tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    last = row + BM if CAUSAL else n
    for start in tl.range(0, last, BN, warp_specialize=ROLES):
        scores = tl.dot(x, k.load([start, 0]).T) * scale
        if CAUSAL:
            scores = tl.where(rows[:, None] >= (start + tl.arange(0, BN))[None], scores, -1.0e6)
        above = tl.maximum(top, tl.max(scores, 1))
        p, change = tl.exp2(scores - above[:, None]), tl.exp2(top - above)
        total = tl.dot(p.to(tl.float16), v.load([start, 0]), total * change[:, None])
        size = size * change + tl.sum(p, 1)
        top = above
    o.store([row, 0], (total / size[:, None]).to(tl.float16))


for _name, _roles, _causal in (("b_flash", 0, 0), ("b_flash_causal", 0, 1), ("b_flash_roles", 1, 0),
                               ("b_flash_causal_roles", 1, 1)):  # fmt: skip
    program(_name=_name, **DESCRIBED, o="tensordesc<fp16[128,64]>", **ATTENTION, ROLES=_roles, CAUSAL=_causal)(_flash)


@program(q="*fp16", k="*fp16", v="*fp16", do="*fp16", high="*fp32", delta="*fp32", dk="*fp32", dv="*fp32", n="i32",
         scale="fp32", **SM, BM=64, BN=128, D=64, _stages=2)  # fmt: skip
def b_attention_keys(q, k, v, do, high, delta, dk, dv, n, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Gradients of keys and values: `high` is the logarithm of the sums, `delta` the sum of dO times O."""
    columns, deep = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, D)
    key, value = tl.load(k + columns[:, None] * D + deep[None]), tl.load(v + columns[:, None] * D + deep[None])
    total_k, total_v = tl.zeros((BN, D), tl.float32), tl.zeros((BN, D), tl.float32)
    for start in range(0, n, BM):
        rows = start + tl.arange(0, BM)
        query = tl.load(q + rows[:, None] * D + deep[None])
        upper = tl.load(do + rows[:, None] * D + deep[None])
        p = tl.exp2(tl.dot(key, query.T) * scale - tl.load(high + rows)[None])
        total_v = tl.dot(p.to(tl.float16), upper, total_v)
        ds = p * (tl.dot(value, upper.T) - tl.load(delta + rows)[None])
        total_k = tl.dot(ds.to(tl.float16), query, total_k)
    tl.store(dk + columns[:, None] * D + deep[None], total_k)
    tl.store(dv + columns[:, None] * D + deep[None], total_v)
