"""Kernels of `warp.wgmma` and `warp.tensor_load`, lowered to PTX and run on the interpreter under all checks."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from lowered import lowered_text

from warploom.runtime import TensorMap, check_ptx, load_ptx

N = 48
KERNEL = """
!acc = !warp.fragment<acc, 64x{n}x{d}, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
!a = memref<{a_rows}x{a_columns}x{t}, #warp.swizzle<{width}>, 3>
!b = memref<{b_rows}x{b_columns}x{t}, #warp.swizzle<{width}>, 3>
!map_a = !warp.tensor_map<{a_rows}x{panel}x{t}{swizzle}>
!map_b = !warp.tensor_map<{b_rows}x{panel}x{t}{swizzle}>
builtin.module attributes {{warp.target = #warp.target<sm_90a>}} {{
"gpu.module"() <{{sym_name = "kernels"}}> ({{
"gpu.func"() <{{function_type = (!map_a, !map_b, memref<64x{n}x{d}>) -> (), kernel}}> ({{
^bb0(%A: !map_a, %B: !map_b, %C: memref<64x{n}x{d}>):
  {constants}
  %As = memref.alloc() : !a
  %Bs = memref.alloc() : !b
  %full = warp.make_barriers {{arrivals = 1 : i64}} : !warp.barriers<1>
  warp.fence async_proxy
  "gpu.barrier"() : () -> ()
  warp.arrive %full[%c0] {{bytes = {bytes} : i64, by = 32 : i64}} : !warp.barriers<1>
  {loads}
  warp.await %full[%c0] parity %c0 : !warp.barriers<1>
  %d0 = warp.constant {zero} : {d} : !acc
  warp.fence wgmma
  {products}
  warp.commit wgmma
  warp.wait wgmma 0
  warp.store %d{steps}, %C[%c0, %c0] {{in_bounds = [true, true]}} : !acc, memref<64x{n}x{d}>
  "gpu.return"() : () -> ()
}}) {{sym_name = "k", gpu.known_block_size = array<i32: 128, 1, 1>}} : () -> ()
}}) : () -> ()
}}
"""


def kernel(element: str, size: int, result: str, width: int, majors: str) -> str:
    """D = A B of 64 x 64 by 64 x N elements of some bytes, in tiles with panels of some bytes; `majors` has "a" and "b"
    of the operands that lie along M and N."""
    step, depth, panel = 32 // size, 64, width // size
    shape_a = (depth, 64) if "a" in majors else (64, depth)
    shape_b = (depth, 64) if "b" in majors else (N, depth)
    words = "".join(f"mn_major_{role}, " for role in majors)
    loads = [
        f"warp.tensor_load %{x}[%c0, %c{c}] to %{x}s[%c0, %c{c}], %full[%c0] {{by = 32 : i64}} : "
        f"!map_{x.lower()} to !{x.lower()}, !warp.barriers<1>"
        for x, (_, columns) in (("A", shape_a), ("B", shape_b))
        for c in range(0, columns, panel)
    ]
    products = []
    for i, k in enumerate(range(0, depth, step)):
        at = {x: f"%c{k}, %c0" if x in majors else f"%c0, %c{k}" for x in "ab"}
        more = f"{{{(words + ('overwrite' if i == 0 else '')).strip(', ')}}} " if words or i == 0 else ""
        products.append(f"%d{i + 1} = warp.wgmma %As[{at['a']}], %Bs[{at['b']}], %d{i} {more}: !a, !b, !acc")
    numbers = sorted({0, *range(0, 64, panel), *range(0, depth, step)})
    return KERNEL.format(
        n=N, d=result, t=element, width=width, panel=panel, steps=len(products),
        swizzle=f", swizzle {width}" if width > 16 else "", zero="0" if result == "i32" else "1.0",
        a_rows=shape_a[0], a_columns=shape_a[1], b_rows=shape_b[0], b_columns=shape_b[1],
        bytes=(shape_a[0] * shape_a[1] + shape_b[0] * shape_b[1]) * size,
        constants="\n  ".join(f"%c{i} = arith.constant {i} : index" for i in numbers),
        loads="\n  ".join(loads), products="\n  ".join(products),
    )  # fmt: skip


CASES = [
    *(
        (element, width, majors)
        for element in ("f16",)
        for width in (16, 32, 64, 128)
        for majors in ("", "a", "b", "ab")
    ),
    ("bf16", 128, "b"),
    *((element, width, "") for element in ("f8E4M3FN", "i8", "f32") for width in (16, 32, 64)),
    ("f32", 128, ""),
]
DTYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "i8": np.int8, "f32": np.float32,
}  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("element", "width", "majors"), CASES)
def test_products_of_every_layout(element: str, width: int, majors: str) -> None:
    dtype = np.dtype(DTYPES[element])
    result = "i32" if element == "i8" else "f32"
    ptx = lowered_text(kernel(element, dtype.itemsize, result, width, majors))
    assert check_ptx(ptx) == []
    random = np.random.default_rng(7)
    a, b = (random.integers(-4, 5, shape).astype(dtype) for shape in ((64, 64), (64, 64 if "b" in majors else N)))
    stored_a = np.ascontiguousarray(a.T if "a" in majors else a)
    stored_b = np.ascontiguousarray(b if "b" in majors else b.T)
    swizzle = width if width > 16 else 0
    maps = [TensorMap(m, (len(m), width // dtype.itemsize), swizzle=swizzle) for m in (stored_a, stored_b)]
    c = np.zeros((64, N), np.int32 if result == "i32" else np.float32)
    load_ptx(ptx, "k.ptx").launch("k", 1, 128, [*maps, c], shared=40000, device="interp", checks="all")
    assert np.array_equal(c, a.astype(np.float64) @ b.astype(np.float64)[:, :N])
