"""Products of 8-bit floats whose blocks have scales: each sum of a block along k is scaled, and added in f32."""

from __future__ import annotations

import re
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.passes.diagnostics import remarks
from warploom.runtime import compile

Array = NDArray[Any]

BLOCK, INSTRUCTION, KEPT = 128, 32, 13

HIGH = {"cta": "256x128x128", "warp": "128x128", "mma": "m64n128k32"}
LOW = {"cta": "128x128x256", "warp": "64x128"}

SCALED = """#same = affine_map<(i, k) -> (i, k)>
#sa = affine_map<(i, k) -> {sa}>
#sb = affine_map<(i, k) -> {sb}>
#a = affine_map<(m, n, k) -> ({along_a})>
#b = affine_map<(m, n, k) -> (n, k)>
#d = affine_map<(m, n, k) -> (m, n)>
func.func @scaled(%A: memref<{of_a}xf8E4M3FN>, %SA: memref<{shape_a}xf32>, %B: memref<{n}x{k}xf8E5M2>,
                  %SB: memref<{shape_b}xf32>, %D: memref<{m}x{n}xf32>) {{
  %zero = arith.constant 0.0 : f32
  %a = memref.alloc() : memref<{of_a}xbf16>
  %b = memref.alloc() : memref<{n}x{k}xbf16>
  linalg.generic {{indexing_maps = [#same, #sa, #same], iterator_types = ["parallel", "parallel"]}}
      ins(%A, %SA : memref<{of_a}xf8E4M3FN>, memref<{shape_a}xf32>) outs(%a : memref<{of_a}xbf16>) {{
  ^bb0(%q: f8E4M3FN, %s: f32, %old: bf16):
    %wide = arith.extf %q : f8E4M3FN to f32
    %product = arith.mulf %wide, %s : f32
    %rounded = arith.truncf %product : f32 to bf16
    linalg.yield %rounded : bf16
  }}
  linalg.generic {{indexing_maps = [#same, #sb, #same], iterator_types = ["parallel", "parallel"]}}
      ins(%B, %SB : memref<{n}x{k}xf8E5M2>, memref<{shape_b}xf32>) outs(%b : memref<{n}x{k}xbf16>) {{
  ^bb0(%q: f8E5M2, %s: f32, %old: bf16):
    %wide = arith.extf %q : f8E5M2 to f32
    %product = arith.mulf %s, %wide : f32
    %rounded = arith.truncf %product : f32 to bf16
    linalg.yield %rounded : bf16
  }}
  linalg.fill ins(%zero : f32) outs(%D : memref<{m}x{n}xf32>)
  linalg.matmul indexing_maps = [#a, #b, #d] ins(%a, %b : memref<{of_a}xbf16>, memref<{n}x{k}xbf16>)
    outs(%D : memref<{m}x{n}xf32>)
  return
}}
"""


def text(m: int, n: int, k: int, columns: int, *, across: bool, rows: int = 1, along_m: bool = False) -> str:
    """Scales of so many rows of A by 128, with k first if they lie `across`, and of so many columns of B by 128; A has
    k first if it lies `along_m`."""
    groups, (row, along_k) = k // BLOCK, ("k", "i") if along_m else ("i", "k")
    of_a = row if rows == 1 else f"{row} floordiv {rows}"
    shape_a, sa = f"{m // rows}x{groups}", f"({of_a}, {along_k} floordiv {BLOCK})"
    if across:
        shape_a, sa = f"{groups}x{m // rows}", f"({along_k} floordiv {BLOCK}, {of_a})"
    of_b = "i" if columns == 1 else f"i floordiv {columns}"
    return SCALED.format(m=m, n=n, k=k, sa=sa, sb=f"({of_b}, k floordiv {BLOCK})", shape_a=shape_a,
                         of_a=f"{k}x{m}" if along_m else f"{m}x{k}", along_a="k, m" if along_m else "m, k",
                         shape_b=f"{n // columns}x{groups}")  # fmt: skip


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("size", "columns", "across", "schedule"),
    [
        ((100, 256, 384), 128, True, {}),
        ((66, 256, 1024), 128, True, {**HIGH, **LOW, "staging": 0}),
        ((70, 256, 384), 128, False, {"ctas": 2}),
        ((300, 256, 256), 128, True, {**HIGH, "cluster": "2x1", "consumers": "pingpong"}),
        ((130, 136, 256), 1, True, {"staging": 0}),
        ((300, 384, 256), 128, True, {**HIGH, "cluster": "1x2", "ctas": 6, "split_k": 2, "consumers": "pingpong"}),
        ((139, 128, 512), 128, False, {**HIGH, **LOW, "consumers": "pingpong", "ctas": 1}),
        ((70, 128, 256), 128, True, {}),
    ],
)
def test_blocks_of_both_operands(
    size: tuple[int, int, int], columns: int, across: bool, schedule: dict[str, Any]
) -> None:
    check(size, columns, schedule, across=across)


def test_each_warp_of_a_cluster_says_that_it_has_read_scales() -> None:
    """Products of a warpgroup are done for all of its warps at once; what the lanes of a warp read is not."""
    tile = {"cta": "128x128x128", "warp": "64x128", "mma": "m64n128k32"}
    check((300, 256, 512), BLOCK, {**tile, "stages": 3, "cluster": "1x2", "ctas": 2}, across=True)


def test_square_blocks_of_both_operands() -> None:
    """Each warpgroup of a tile of several blocks reads the scales of its own."""
    check((384, 256, 256), BLOCK, HIGH, across=False, rows=BLOCK)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("across", [False, True])
def test_an_operand_that_does_not_lie_along_k_is_transposed_before(across: bool) -> None:
    check((102, 256, 384), BLOCK, {}, across=across, along_m=True)


def check(
    size: tuple[int, int, int],
    columns: int,
    schedule: dict[str, Any],
    *,
    across: bool,
    rows: int = 1,
    along_m: bool = False,
) -> None:
    """Compares a product on the interpreter with float64, under all checks."""
    (m, n, k), rng = size, np.random.default_rng()
    function = text(m, n, k, columns, across=across, rows=rows, along_m=along_m)
    kernel = compile(function, target="sm_90a", cache=False, **schedule)
    assert kernel.ptx.count(".entry") == 1 + along_m
    a = rng.standard_normal((m, k)).astype(ml_dtypes.float8_e4m3fn)
    b = rng.standard_normal((n, k)).astype(ml_dtypes.float8_e5m2)
    sa, sb = (
        np.exp2(rng.uniform(-3, 3, (lines, k // BLOCK))).astype(np.float32) for lines in (m // rows, n // columns)
    )
    d = np.full((m, n), np.nan, np.float32)
    of_a = np.ascontiguousarray(a.T) if along_m else a
    kernel(of_a, np.ascontiguousarray(sa.T) if across else sa, b, sb, d, device="interp", checks="all")
    x, y = a.astype(np.float64), b.astype(np.float64)
    of_x, of_y = np.repeat(sa.astype(np.float64), rows, 0), np.repeat(sb.astype(np.float64), columns, 0)
    wanted, bound = np.zeros((m, n)), np.zeros((m, n))
    for block in range(k // BLOCK):
        part, scale = slice(block * BLOCK, (block + 1) * BLOCK), np.outer(of_x[:, block], of_y[:, block])
        wanted += x[:, part] @ y[:, part].T * scale
        # Each instruction may cut every term, those before it too, 13 bits below the largest.
        cut = (BLOCK // INSTRUCTION) * (INSTRUCTION + 1) * 2.0**-KEPT
        bound += np.abs(x[:, part]) @ np.abs(y[:, part]).T * scale * (cut + (k // BLOCK + 4) * 2.0**-23)
    assert np.all(np.abs(d - wanted) <= bound)


def test_turns_have_one_group_of_products_each() -> None:
    """Each group of products waits for a turn and passes it on, before its sums are scaled."""
    source, in_turns = (
        text(600, 384, 384, BLOCK, across=True),
        cast("dict[str, Any]", {**HIGH, "consumers": "pingpong"}),
    )
    ptx = compile(source, target="sm_90a", **in_turns).ptx
    loop = ptx[ptx.rindex("// K loop") :]
    loop = loop[: loop.index("_end:")]
    steps = re.findall(r"bar\.sync|bar\.arrive|wgmma\.(?:fence|commit_group|wait_group)", loop)
    turn = ["bar.sync", "wgmma.fence", "wgmma.commit_group", "bar.arrive", "wgmma.wait_group"]
    assert steps == 2 * turn


def test_other_targets_scale_matrices_of_their_own() -> None:
    with remarks() as made:
        kernel = compile(text(64, 256, 256, 128, across=False), target="sm_89", cache=False)
    assert kernel.ptx.count(".entry") == 3
    assert any("warpgroups multiply them so, which the target does not have" in str(one) for one in made)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("target", "schedule"), [("sm_90a", {"mma": "m64n128k32"}), ("sm_89", {})])
def test_scales_of_rows_multiply_sums(target: str, schedule: dict[str, Any]) -> None:
    """One scale for each row of both matrices: the product is one kernel, whose sums are scaled, not the operands."""
    (m, n, k), rng = (70, 144, 160), np.random.default_rng()
    sizes = {"m": m, "n": n, "k": k, "of_a": f"{m}x{k}", "along_a": "m, k", "shape_a": m, "shape_b": n}
    source = SCALED.format(**sizes, sa="(i)", sb="(i)")
    kernel = compile(source, target=target, cache=False, **schedule)
    assert kernel.ptx.count(".entry") == 1
    a = rng.standard_normal((m, k)).astype(ml_dtypes.float8_e4m3fn)
    b = rng.standard_normal((n, k)).astype(ml_dtypes.float8_e5m2)
    sa, sb = (np.exp2(rng.uniform(-3, 3, size)).astype(np.float32) for size in (m, n))
    d = np.full((m, n), np.nan, np.float32)
    kernel(a, sa, b, sb, d, device="interp", checks="all")
    x, y, scale = a.astype(np.float64), b.astype(np.float64), np.outer(sa, sb).astype(np.float64)
    bound = np.abs(x) @ np.abs(y).T * scale * ((k // INSTRUCTION) * (INSTRUCTION + 1) * 2.0**-KEPT + 8 * 2.0**-23)
    assert np.all(np.abs(d - x @ y.T * scale) <= bound)


def test_as_few_ctas_as_take_as_many_turns() -> None:
    """448 pairs of tiles are 7 turns of 64 pairs of CTAs, as of the 66 that there are SMs for."""
    kernel = compile(text(4096, 7168, 4096, 128, across=False), target="sm_90a")
    assert [schedule and schedule.ctas for schedule in kernel.schedule] == [128]
