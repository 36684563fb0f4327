"""Compiles a Triton matrix product in this process, for `compile_time.py --triton`; prints seconds as JSON.

The kernel is that of Triton's own tutorial, tiles and stages as its autotuner chooses them at 4096 on an H200.
"""

from __future__ import annotations

import json
import sys
import time

start = time.perf_counter()

import triton  # noqa: E402  # pyright: ignore[reportMissingImports]
import triton.language as tl  # noqa: E402  # pyright: ignore[reportMissingImports]
from triton.backends.compiler import GPUTarget  # noqa: E402  # pyright: ignore[reportMissingImports]
from triton.compiler import ASTSource  # noqa: E402  # pyright: ignore[reportMissingImports]


@triton.jit
def matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    across = tl.cdiv(n, BN)
    group = pid // (GROUP * across)
    first = group * GROUP
    height = min(tl.cdiv(m, BM) - first, GROUP)
    row = ((first + pid % (GROUP * across) % height) * BM + tl.arange(0, BM)) % m
    column = (pid % (GROUP * across) // height * BN + tl.arange(0, BN)) % n
    inner = tl.arange(0, BK)
    x, y = a + row[:, None] * k + inner[None], b + inner[:, None] * n + column[None]
    acc = tl.zeros((BM, BN), tl.float32)
    for at in range(0, k, BK):
        left = tl.load(x, mask=inner[None] < k - at, other=0.0)
        right = tl.load(y, mask=inner[:, None] < k - at, other=0.0)
        acc = tl.dot(left, right, acc)
        x += BK
        y += BK * n
    tl.store(c + row[:, None] * n + column[None], acc, mask=(row[:, None] < m) & (column[None] < n))


def main() -> None:
    parts = {"import": time.perf_counter() - start}
    sizes = {"BM": 128, "BN": 256, "BK": 64, "GROUP": 8}
    kinds = {"a": "*bf16", "b": "*bf16", "c": "*fp32", **dict.fromkeys("mnk", "i32")}
    hints = {(i,): [["tt.divisibility", 16]] for i in range(6)}
    source = ASTSource(matmul, signature={**kinds, **dict.fromkeys(sizes, "constexpr")}, constexprs=sizes, attrs=hints)
    begin = time.perf_counter()
    compiled = triton.compile(
        source, target=GPUTarget("cuda", int(sys.argv[1]), 32), options={"num_warps": 8, "num_stages": 3}
    )
    parts["compile"] = time.perf_counter() - begin
    assert "cubin" in compiled.asm
    print(json.dumps(parts))


if __name__ == "__main__":
    main()
