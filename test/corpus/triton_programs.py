"""Triton programs: the source of the second part of the corpus. Run by cuda_ptx.py where Triton is installed."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportIndexIssue=false
from __future__ import annotations

import triton
import triton.language as tl

PROGRAMS: dict[str, tuple[object, dict[str, object], dict[str, int]]] = {}
"""By name: the kernel; its arguments, pointers and numbers by type, constants by value; and options."""


ONLY: dict[str, str] = {}
"""The one target of programs that have one."""


def program(
    _warps: int = 4, _stages: int = 3, _jit=triton.jit, _only: str = "", _name: str = "", _ctas: int = 1,
    **arguments: object,
):  # fmt: skip
    def register(function):
        kernel, name = _jit(function), _name or function.__name__
        PROGRAMS[name] = (kernel, arguments, {"num_warps": _warps, "num_stages": _stages, "num_ctas": _ctas})
        if _only:
            ONLY[name] = _only
        return kernel

    return register


@program(x="*fp32", y="*fp32", out="*fp32", n="i32", BLOCK=256)
def t_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@program(x="*fp32", y="*fp32", out="*fp32", n="i32", BLOCK=256)
def t_mul_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + at, mask=at < n), tl.load(y + at, mask=at < n)
    tl.store(out + at, a * b + a, mask=at < n)


@program(x="*fp16", y="*bf16", out="*fp32", n="i32", BLOCK=512)
def t_mixed(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + at, mask=at < n, other=1.0), tl.load(y + at, mask=at < n, other=1.0)
    tl.store(out + at, tl.where(a > 0, a.to(tl.float32), b.to(tl.float32) * 2), mask=at < n)


@program(x="*fp32", out="*fp32", columns="i32", BLOCK=256)
def t_row_sum(x, out, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(
        out + tl.program_id(0), tl.sum(tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=0.0), 0)
    )


@program(x="*fp32", out="*fp32", index="*i32", columns="i32", BLOCK=256)
def t_row_max(x, out, index, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=-float("inf"))
    value, place = tl.max(row, 0, return_indices=True)
    tl.store(out + tl.program_id(0), value)
    tl.store(index + tl.program_id(0), place)


@program(x="*fp32", out="*fp32", columns="i32", BLOCK=256)
def t_softmax(x, out, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=-float("inf"))
    powers = tl.exp(row - tl.max(row, 0))
    tl.store(out + tl.program_id(0) * columns + at, powers / tl.sum(powers, 0), mask=at < columns)


@program(x="*fp16", w="*fp32", b="*fp32", out="*fp16", columns="i32", eps="fp32", BLOCK=256)
def t_layer_norm(x, w, b, out, columns, eps, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    keep = at < columns
    row = tl.load(x + tl.program_id(0) * columns + at, mask=keep, other=0.0).to(tl.float32)
    mean = tl.sum(row, 0) / columns
    d = tl.where(keep, row - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(d * d, 0) / columns + eps)
    y = d * scale * tl.load(w + at, mask=keep) + tl.load(b + at, mask=keep)
    tl.store(out + tl.program_id(0) * columns + at, y.to(tl.float16), mask=keep)


@program(x="*fp32", w="*fp32", out="*fp32", columns="i32", BLOCK=128)
def t_rms_norm(x, w, out, columns, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=0.0)
        total += v * v
    scale = tl.rsqrt(tl.sum(total, 0) / columns + 1e-5)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=0.0)
        tl.store(
            out + tl.program_id(0) * columns + at, v * scale * tl.load(w + at, mask=at < columns), mask=at < columns
        )


@program(x="*fp32", out="*fp32", n="i32", BLOCK=256)
def t_gelu(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    tl.store(out + at, 0.5 * v * (1 + tl.erf(v * 0.70710678)), mask=at < n)


@program(gate="*bf16", up="*bf16", out="*bf16", n="i32", BLOCK=256)
def t_swiglu(gate, up, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gate + at, mask=at < n).to(tl.float32)
    tl.store(out + at, (g * tl.sigmoid(g)).to(tl.bfloat16) * tl.load(up + at, mask=at < n), mask=at < n)


@program(x="*fp32", target="*i32", loss="*fp32", columns="i32", BLOCK=256)
def t_cross_entropy(x, target, loss, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=-float("inf"))
    top = tl.max(row, 0)
    total = top + tl.log(tl.sum(tl.exp(row - top), 0))
    tl.store(
        loss + tl.program_id(0), total - tl.load(x + tl.program_id(0) * columns + tl.load(target + tl.program_id(0)))
    )


@program(x="*fp32", out="*fp32", seed="i32", n="i32", BLOCK=256)
def t_dropout(x, out, seed, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.rand(seed, at) > 0.25
    tl.store(out + at, tl.where(keep, tl.load(x + at, mask=at < n), 0.0), mask=at < n)


@program(out="*u32", seed="i32", BLOCK=256)
def t_philox(out, seed, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.randint(seed, at).to(tl.uint32, bitcast=True))


@program(x="*i32", out="*i32", n="i32", BLOCK=256)
def t_cumsum(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.cumsum(tl.load(x + at, mask=at < n, other=0), 0), mask=at < n)


@triton.jit
def _restart(a, f, b, g):
    return tl.where(g != 0, b, a + b), f | g


@program(x="*fp32", flag="*i1", out="*fp32", BLOCK=256)
def t_segmented_scan(x, flag, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v, f = tl.load(x + at), tl.load(flag + at).to(tl.int32)
    sums, _ = tl.associative_scan((v, f), 0, _restart)
    tl.store(out + at, sums)


@program(x="*fp32", out="*fp32", BLOCK=128)
def t_sort(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.sort(tl.load(x + at)))


@program(x="*i32", out="*i32", n="i32", BLOCK=256)
def t_histogram(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    counts = tl.histogram(tl.load(x + at, mask=at < n, other=0), 32, mask=at < n)
    tl.store(out + tl.arange(0, 32), counts)


@program(x="*i32", out="*i32", n="i32", BLOCK=128)
def t_atomic_histogram(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + tl.load(x + at, mask=at < n, other=0), 1, mask=at < n)


@program(x="*fp32", total="*fp32", top="*i32", bits="*i32", n="i32", BLOCK=256)
def t_atomics(x, total, top, bits, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    i = v.to(tl.int32)
    tl.atomic_add(total, tl.sum(v, 0))
    tl.atomic_max(top + at % 4, i, mask=at < n)
    tl.atomic_xor(bits + at % 3, i, mask=at < n)
    tl.atomic_add(total + 1, 1.0, sem="relaxed")


@program(lock="*i32", out="*i32")
def t_lock(lock, out):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out, tl.load(out) * 3 + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@program(x="*fp32", out="*fp32", rows="i32", columns="i32", BLOCK=32)
def t_transpose(x, out, rows, columns, BLOCK: tl.constexpr):
    r, c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    keep = (r[:, None] < rows) & (c[None] < columns)
    tile = tl.load(x + r[:, None] * columns + c[None], mask=keep)
    tl.store(out + c[:, None] * rows + r[None], tl.trans(tile), mask=tl.trans(keep))


@program(a="*fp16", b="*fp16", c="*fp32", m="i32", n="i32", k="i32", BM=32, BN=32, BK=32)
def t_matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    r, q, i = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for at in range(0, k, BK):
        x = tl.load(a + r[:, None] * k + at + i[None], mask=(r[:, None] < m) & (at + i[None] < k), other=0.0)
        y = tl.load(b + (at + i[:, None]) * n + q[None], mask=(at + i[:, None] < k) & (q[None] < n), other=0.0)
        acc = tl.dot(x, y, acc)
    tl.store(c + r[:, None] * n + q[None], acc, mask=(r[:, None] < m) & (q[None] < n))


@program(a="*i8", b="*i8", c="*i32", k="i32", N=32)
def t_matmul_int8(a, b, c, k, N: tl.constexpr):
    r, i = tl.arange(0, N), tl.arange(0, 32)
    acc = tl.zeros((N, N), tl.int32)
    for at in range(0, k, 32):
        x = tl.load(a + r[:, None] * k + at + i[None])
        y = tl.load(b + r[None] * k + at + i[:, None])
        acc += tl.dot(x, y)
    tl.store(c + r[:, None] * N + r[None], acc)


@program(a="*fp32", b="*fp32", c="*fp32", N=16)
def t_matmul_ieee(a, b, c, N: tl.constexpr):
    r = tl.arange(0, N)
    x, y = tl.load(a + r[:, None] * N + r[None]), tl.load(b + r[:, None] * N + r[None])
    tl.store(c + r[:, None] * N + r[None], tl.dot(x, y, input_precision="ieee"))


@program(a="*fp32", b="*fp32", c="*fp32", N=32)
def t_matmul_tf32(a, b, c, N: tl.constexpr):
    r = tl.arange(0, N)
    x, y = tl.load(a + r[:, None] * N + r[None]), tl.load(b + r[:, None] * N + r[None])
    tl.store(c + r[:, None] * N + r[None], tl.dot(x, y, input_precision="tf32"))


@program(a="*bf16", b="*bf16", c="*bf16", m="i32", n="i32", k="i32", BM=64, BN=32, BK=32, G=2)
def t_matmul_grouped(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, G: tl.constexpr):
    rows, columns = tl.cdiv(m, BM), tl.cdiv(n, BN)
    p, q = tl.swizzle2d(tl.program_id(0) // columns, tl.program_id(0) % columns, rows, columns, G)
    r, s, i = p * BM + tl.arange(0, BM), q * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for at in tl.range(0, k, BK, num_stages=2):
        x = tl.load(a + (r % m)[:, None] * k + at + i[None])
        y = tl.load(b + (at + i[:, None]) * n + (s % n)[None])
        acc = tl.dot(x, y, acc)
    out = tl.maximum(acc, 0.0).to(tl.bfloat16)
    tl.store(c + r[:, None] * n + s[None], out, mask=(r[:, None] < m) & (s[None] < n))


@program(q="*fp16", k="*fp16", v="*fp16", out="*fp16", n="i32", scale="fp32", BM=32, BN=32, D=32)
def t_attention(q, k, v, out, n, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    r, d, j = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, BN)
    x = tl.load(q + r[:, None] * D + d[None])
    top = tl.full((BM,), -float("inf"), tl.float32)
    total, acc = tl.zeros((BM,), tl.float32), tl.zeros((BM, D), tl.float32)
    for at in range(0, n, BN):
        y = tl.load(k + (at + j[None]) * D + d[:, None])
        s = tl.where((r[:, None] >= at + j[None]), tl.dot(x, y) * scale, -float("inf"))
        now = tl.maximum(top, tl.max(s, 1))
        e = tl.exp2(s - now[:, None])
        keep = tl.exp2(top - now)
        total = total * keep + tl.sum(e, 1)
        acc = tl.dot(e.to(tl.float16), tl.load(v + (at + j[:, None]) * D + d[None]), acc * keep[:, None])
        top = now
    tl.store(out + r[:, None] * D + d[None], (acc / total[:, None]).to(tl.float16))


@program(table="*fp32", index="*i64", out="*fp32", width="i32", BLOCK=64)
def t_embedding(table, index, out, width, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(index + tl.program_id(0))
    tl.store(out + tl.program_id(0) * width + at, tl.load(table + row * width + at, mask=at < width), mask=at < width)


@program(x="*fp32", cos="*fp32", sin="*fp32", out="*fp32", HALF=32)
def t_rotary(x, cos, sin, out, HALF: tl.constexpr):
    at, base = tl.arange(0, HALF), tl.program_id(0) * 2 * HALF
    a, b = tl.load(x + base + at), tl.load(x + base + HALF + at)
    c, s = tl.load(cos + tl.program_id(0) * HALF + at), tl.load(sin + tl.program_id(0) * HALF + at)
    tl.store(out + base + at, a * c - b * s)
    tl.store(out + base + HALF + at, b * c + a * s)


@program(x="*fp32", w="*fp32", out="*fp32", n="i32", BLOCK=128)
def t_conv1d(x, w, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for j in tl.static_range(5):
        acc += tl.load(w + j) * tl.load(x + at + j - 2, mask=(at + j >= 2) & (at + j - 2 < n), other=0.0)
    tl.store(out + at, acc, mask=at < n)


@program(x="*fp32", out="*i8", scale="*fp32", columns="i32", BLOCK=256)
def t_quantize(x, out, scale, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=0.0)
    s = tl.max(tl.abs(row), 0) / 127
    q = row / s
    tl.store(out + tl.program_id(0) * columns + at, tl.where(q >= 0, q + 0.5, q - 0.5).to(tl.int8), mask=at < columns)
    tl.store(scale + tl.program_id(0), s)


@program(x="*fp32", out="*fp8e5", back="*fp32", n="i32", BLOCK=128)
def t_fp8(x, out, back, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0).to(tl.float8e5)
    tl.store(out + at, v, mask=at < n)
    tl.store(back + at, v.to(tl.float32), mask=at < n)


@program(x="*i32", y="*i32", out="*i32", n="i32", BLOCK=128)
def t_integers(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b = tl.load(x + at, mask=at < n, other=1), tl.load(y + at, mask=at < n, other=1)
    tl.store(out + at, (a // b) * 3 + a % b + (a >> 3) + (a ^ b) + tl.umulhi(a, b) + tl.minimum(a, b), mask=at < n)


@program(x="*i64", out="*i64", n="i32", BLOCK=128)
def t_integers64(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0)
    tl.store(out + at, v * 6364136223846793005 + (v >> 17) - v // 1000, mask=at < n)


@program(x="*fp32", out="*fp32", n="i32", BLOCK=128)
def t_functions(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=1.0)
    tl.store(
        out + at, tl.sin(v) + tl.cos(v) * 2 + tl.exp(v) + tl.log(v) + tl.sqrt(v) + tl.floor(v) + tl.log2(v), mask=at < n
    )


@program(x="*fp32", y="*fp32", out="*fp32", n="i32", BLOCK=128)
def t_division(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b = tl.load(x + at, mask=at < n, other=1.0), tl.load(y + at, mask=at < n, other=1.0)
    tl.store(out + at, tl.div_rn(a, b) + tl.sqrt_rn(tl.abs(a)) + tl.fma(a, b, a), mask=at < n)


@program(x="*fp32", out="*fp32", BLOCK=64)
def t_shapes(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.reshape(tl.load(x + at), (8, 8))
    w = tl.join(tl.reshape(tl.trans(v), (BLOCK,)), tl.flip(tl.reshape(v, (BLOCK,)), 0))
    a, b = tl.split(w)
    tl.store(out + at, a * 2 + b)
    tl.store(out + BLOCK + tl.arange(0, 2 * BLOCK), tl.interleave(a, b))


@program(x="*fp32", index="*i32", out="*fp32", ROWS=16, COLUMNS=32)
def t_gather(x, index, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None]
    tl.store(out + at, tl.gather(tl.load(x + at), tl.load(index + at), 1))


@program(x="*fp32", out="*fp32", BLOCK=512, _warps=8)
def t_welford(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * BLOCK + at)
    mean = tl.sum(v, 0) / BLOCK
    tl.store(out + tl.program_id(0) * 2, mean)
    tl.store(out + tl.program_id(0) * 2 + 1, tl.sum((v - mean) * (v - mean), 0) / BLOCK)


@program(a="*fp16", c="*fp32", k="i32", N=32)
def t_descriptor(a, c, k, N: tl.constexpr):
    d = tl.make_tensor_descriptor(a, (N, k), (k, 1), (N, 32))
    acc = tl.zeros((N, N), tl.float32)
    for at in range(0, k, 32):
        x = d.load((0, at))
        acc = tl.dot(x, tl.trans(x), acc)
    r = tl.arange(0, N)
    tl.store(c + r[:, None] * N + r[None], acc)


@program(x="*fp32", count="*i32", out="*fp32", n="i32", BLOCK=128)
def t_compact(x, count, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=-1.0)
    keep = (v > 0).to(tl.int32)
    place = tl.cumsum(keep, 0) - keep
    base = tl.atomic_add(count, tl.sum(keep, 0))
    tl.store(out + base + place, v, mask=keep == 1)


@program(x="*fp32", out="*fp32", n="i32", turns="i32", BLOCK=128)
def t_collatz_like(x, out, n, turns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=1.0)
    for i in range(turns):
        if i % 2 == 0:
            v = tl.where(v > 4, v * 0.5, v * 3 + 1)
        else:
            v += tl.max(v, 0) * 0.25
    tl.store(out + at, v, mask=at < n)


@program(x="*fp32", out="*fp32", columns="i32", BLOCK=256, _warps=1)
def t_one_warp_softmax(x, out, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=-float("inf"))
    row = row - tl.max(row, 0)
    tl.store(out + tl.program_id(0) * columns + at, row - tl.log(tl.sum(tl.exp(row), 0)), mask=at < columns)
