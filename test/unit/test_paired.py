"""Two products of one A that one operation reads: one kernel, right at odd sizes, silent under all checks."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from products import GATE

from warploom.passes.diagnostics import remarks
from warploom.runtime import CompileError, Kernel, compile

BF16 = ml_dtypes.bfloat16

HEAD = """
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
#e = affine_map<(m, n) -> (m, n)>
"""

MATMUL = "linalg.matmul indexing_maps = [#a, #b, #c]"
PARALLEL = 'iterator_types = ["parallel", "parallel"]'


def gate(x: str, y: str, kinds: str, out: str) -> str:
    """silu(x) * y."""
    return f"""
  linalg.generic {{indexing_maps = [#e, #e, #e], {PARALLEL}}} ins({x}, {y} : {kinds}) outs(%D : {out}) {{
  ^bb0(%x: f32, %y: f32, %o: bf16):
{GATE}
    %u = arith.truncf %r : f32 to bf16
    linalg.yield %u : bf16
  }}
  return
}}"""


def two_products(m: int, f: int, k: int) -> str:
    a, b, d, g = f"memref<{m}x{k}xbf16>", f"memref<{f}x{k}xbf16>", f"memref<{m}x{f}xbf16>", f"memref<{m}x{f}xf32>"
    products = "".join(
        f"""
  %{t} = memref.alloc() : {g}
  linalg.fill ins(%zero : f32) outs(%{t} : {g})
  {MATMUL} ins(%A, %{w} : {a}, {b}) outs(%{t} : {g})"""
        for t, w in (("T", "B1"), ("U", "B2"))
    )
    return f"""{HEAD}func.func @f(%A: {a}, %B1: {b}, %B2: {b}, %D: {d}) {{
  %zero = arith.constant 0.0 : f32{products}{gate("%T", "%U", f"{g}, {g}", d)}"""


def weights_in_one(m: int, f: int, k: int, *, across: bool = False) -> str:
    """Both weights in one matrix; with `across` it lies as (k, n)."""
    a, w, d, g = (
        f"memref<{m}x{k}xbf16>",
        f"memref<{k}x{2 * f}xbf16>" if across else f"memref<{2 * f}x{k}xbf16>",
        f"memref<{m}x{f}xbf16>",
        f"memref<{m}x{2 * f}xf32>",
    )
    halves = [f"memref<{m}x{f}xf32, strided<[{2 * f}, 1], offset: {start}>>" for start in (0, f)]
    views = "".join(
        f"\n  %h{i} = memref.subview %T[0, {i * f}] [{m}, {f}] [1, 1] : {g} to {half}" for i, half in enumerate(halves)
    )
    head = HEAD.replace("(n, k)", "(k, n)") if across else HEAD
    return f"""{head}func.func @f(%A: {a}, %W: {w}, %D: {d}) {{
  %zero = arith.constant 0.0 : f32
  %T = memref.alloc() : {g}
  linalg.fill ins(%zero : f32) outs(%T : {g})
  {MATMUL} ins(%A, %W : {a}, {w}) outs(%T : {g}){views}{gate("%h0", "%h1", ", ".join(halves), d)}"""


def operands(m: int, f: int, k: int) -> tuple[NDArray[Any], NDArray[Any]]:
    draw = np.random.default_rng(3)
    return draw.standard_normal((m, k)).astype(BF16), (draw.standard_normal((2 * f, k)) / 8).astype(BF16)


def check(kernel: Kernel, a: NDArray[Any], w: NDArray[Any], weights: list[NDArray[Any]]) -> None:
    """Compares with float64: sums of k products in f32, a silu within 2e-6, and one rounding to bf16."""
    (m, k), f = a.shape, w.shape[0] // 2
    out = np.full((m, f), np.nan, BF16)
    kernel(a, *weights, out, device="interp", checks="all")
    a, w = a.astype(np.float64), w.astype(np.float64)
    (x, y), (dx, dy) = ([p[:, :f], p[:, f:]] for p in (a @ w.T, np.abs(a) @ np.abs(w).T * k * 2.0**-24))
    sigmoid = 1 / (1 + np.exp(-x))
    expected = x * sigmoid * y
    bound = 1.1 * dx * np.abs(y) + np.abs(x * sigmoid) * dy + np.abs(expected) * (2.0**-8 + 2e-6)
    assert (np.abs(out.astype(np.float64) - expected) <= bound).all()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("target", "schedule"),
    [
        ("sm_90a", {}),
        ("sm_90a", {"mma": "m64n96k16", "cta": (128, 96, 64)}),
        ("sm_80", {}),
        ("sm_80", {"cta": (64, 64, 32), "warp": (32, 64)}),
    ],
    ids=str,
)
def test_two_products_of_one_a_are_one_kernel(target: str, schedule: dict[str, Any]) -> None:
    a, w = operands(70, 56, 72)
    kernel = compile(two_products(70, 56, 72), target=target, **schedule)
    assert len(kernel.plan.launches) == 1
    if target == "sm_90a":
        assert kernel.ptx.count("ex2.approx") > 0  # the silu is one operation, whose elements share reciprocals
    check(kernel, a, w, [w[:56].copy(), w[56:].copy()])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("m", "f", "k"), [(16, 72, 136), (9, 40, 264), (1, 200, 72)])
def test_few_rows_are_multiplied_by_warps_of_all_columns(m: int, f: int, k: int) -> None:
    """A tile of 64 rows would leave SMs without one of the few tiles of columns."""
    a, w = operands(m, f, k)
    for text, weights in (
        (two_products(m, f, k), [w[:f].copy(), w[f:].copy()]),
        (weights_in_one(m, f, k), [w]),
        (weights_in_one(m, f, k, across=True), [w.T.copy()]),
    ):
        kernel = compile(text, target="sm_90a")
        ((_, schedule),) = kernel.schedules.items()
        assert schedule is not None
        assert schedule.cta[:2] == schedule.warp
        assert schedule.cta[0] == 16
        check(kernel, a, w, weights)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_up_to_32_rows_by_many_weights_are_one_launch_of_warps(target: str) -> None:
    ((_, schedule),) = compile(two_products(24, 4352, 2048), target=target).schedules.items()
    assert schedule is not None
    assert (schedule.cta[0], schedule.warp[1], schedule.together) == (32, schedule.cta[1], 1)
    a, w = operands(27, 72, 136)
    check(compile(two_products(27, 72, 136), target=target), a, w, [w[:72].copy(), w[72:].copy()])


def test_what_follows_is_in_the_same_epilogue() -> None:
    """A residual behind the gate: the function takes both products, then the operand."""
    text = (
        two_products(24, 16, 64)
        .replace("outs(%D", "outs(%G")
        .replace(
            "%D: memref<24x16xbf16>)",
            """%R: memref<24x16xbf16>,
    %D: memref<24x16xbf16>)""",
        )
        .replace("%zero =", "%G = memref.alloc() : memref<24x16xbf16>\n  %zero =", 1)
    )
    added = f"""
  linalg.generic {{indexing_maps = [#e, #e, #e], {PARALLEL}}}
      ins(%G, %R : memref<24x16xbf16>, memref<24x16xbf16>) outs(%D : memref<24x16xbf16>) {{
  ^bb0(%x: bf16, %y: bf16, %o: bf16):
    %s = arith.addf %x, %y : bf16
    linalg.yield %s : bf16
  }}
  return
}}"""
    text = text.rpartition("\n  return")[0] + added
    (a, w), residual = operands(24, 16, 64), np.full((24, 16), 2.0, BF16)
    plain, full = np.zeros((24, 16), BF16), np.zeros((24, 16), BF16)
    compile(two_products(24, 16, 64), target="sm_90a")(a, w[:16].copy(), w[16:].copy(), plain, device="interp")
    kernel = compile(text, target="sm_90a")
    kernel(a, w[:16].copy(), w[16:].copy(), residual, full, device="interp")
    assert len(kernel.plan.launches) == 1
    np.testing.assert_array_equal(full, np.add(plain, residual))


def test_where_it_is_not_one_a_remark_says_why() -> None:
    with remarks() as said:
        kernel = compile(two_products(70, 72, 60), target="sm_90a", cache=False)
    assert len(kernel.plan.launches) == 2
    reason = "are no multiples of 16 bytes"
    assert any("two products of one A that it reads are not one" in one and reason in one for one in said)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        ({"cta": (64, 64, 64), "warp": (32, 32)}, "warp tiles of all columns"),
        ({"cta": (16, 32, 64), "warp": (16, 32), "sliced_k": 2}, "warp tiles of all columns"),
        ({"split_k": 3}, "product by two matrices is not split"),
        ({"pack": "b"}, "B is two matrices"),
    ],
    ids=str,
)
def test_schedules_that_part_the_two_products_are_refused(schedule: dict[str, Any], reason: str) -> None:
    with pytest.raises(CompileError, match=reason):
        compile(two_products(70, 56, 72), target="sm_80", **schedule)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("target", "across", "schedule"),
    [
        ("sm_90a", False, {}),
        ("sm_90a", True, {"mma": "m64n192k16", "cta": (128, 192, 64)}),
        ("sm_80", True, {}),
    ],
    ids=str,
)
def test_so_is_one_product_whose_halves_are_read(target: str, across: bool, schedule: dict[str, Any]) -> None:
    """Of weights along k, and of (k, n), whose halves are parts of the columns of a tile; 96 of them take narrower
    panels."""
    a, w = operands(70, 72, 64)
    kernel = compile(weights_in_one(70, 72, 64, across=across), target=target, **schedule)
    assert len(kernel.plan.launches) == 1
    check(kernel, a, w, [w.T.copy() if across else w])


def test_halves_that_begin_within_16_bytes_are_of_one_product() -> None:
    """Tensor copies read no second half from column 60 on."""
    a, w = operands(24, 60, 64)
    kernel = compile(weights_in_one(24, 60, 64, across=True), target="sm_90a")
    assert len(kernel.plan.launches) == 2
    check(kernel, a, w, [w.T.copy()])
