"""Bodies that add more than a product: fused, subtracted, weighted, of integers added to floats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from warploom.passes.diagnostics import remarks
from warploom.runtime import compile
from warploom.runtime.cli.command import main

HEAD = """func.func @f(%A: memref<21x7xf16>, %B: memref<7x13xf16>, %C: memref<21x13x{c}>, %alpha: f32) {{
  linalg.generic {{indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>,
      affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%A, %B : memref<21x7xf16>, memref<7x13xf16>) outs(%C : memref<21x13x{c}>) {{
  ^bb0(%a: f16, %b: f16, %c: {c}):
{body}
    linalg.yield %s : {c}
  }}
  return
}}
"""
CASTS = "%x = arith.extf %a : f16 to f32\n%y = arith.extf %b : f16 to f32\n"
BODIES = {
    "fma": ("%s = math.fma %x, %y, %c : f32", lambda alpha: 1.0),
    "fma, weighted": (
        "%w = arith.mulf %x, %alpha : f32\n%n = arith.negf %w : f32\n%s = math.fma %n, %y, %c : f32",
        lambda alpha: -alpha,
    ),
    "subtracted": ("%p = arith.mulf %x, %y : f32\n%s = arith.subf %c, %p : f32", lambda alpha: -1.0),
    "weighted": (
        "%h = arith.constant 0.3 : f32\n%p = arith.mulf %x, %y : f32\n%q = arith.mulf %h, %p : f32\n"
        "%r = arith.mulf %q, %alpha : f32\n%s = arith.addf %r, %c : f32",
        lambda alpha: np.float32(0.3) * alpha,
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", BODIES)
def test_bodies(name: str) -> None:
    body, weight = BODIES[name]
    rng = np.random.default_rng()
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((21, 7), (7, 13)))
    c, alpha = rng.standard_normal((21, 13)).astype(np.float32), np.float32(rng.standard_normal())
    by = float(weight(float(alpha)))
    wanted = c + by * (a.astype(np.float64) @ b.astype(np.float64))
    size = np.abs(c) + abs(by) * (np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64))
    compile(HEAD.format(c="f32", body=CASTS + body), cache=False)(a, b, c, alpha, device="interp")
    assert (np.abs(c - wanted) <= 12 * 2.0**-23 * size).all()


def test_narrow_results_are_rounded_once() -> None:
    body = (
        "%h = arith.constant 0.5 : f16\n%p = arith.mulf %a, %b : f16\n%q = arith.mulf %p, %h : f16\n"
        "%s = arith.subf %c, %q : f16"
    )
    rng = np.random.default_rng()
    a, b, c = (rng.standard_normal(shape).astype(np.float16) for shape in ((21, 7), (7, 13), (21, 13)))
    wanted = c - 0.5 * (a.astype(np.float64) @ b.astype(np.float64))
    compile(HEAD.format(c="f16", body=body), cache=False)(a, b, c, np.float32(0), device="interp")
    assert (np.abs(c - wanted) <= 2.0**-11 * np.abs(wanted) + 1e-5).all()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("cast", ["", "{cast = #linalg.type_fn<cast_unsigned>} "])
def test_integers_added_to_floats(cast: str) -> None:
    text = f"""func.func @f(%A: memref<21x7xi8>, %B: memref<7x13xi8>, %C: memref<21x13xf32>) {{
      linalg.matmul {cast}ins(%A, %B : memref<21x7xi8>, memref<7x13xi8>) outs(%C : memref<21x13xf32>) return }}"""
    rng = np.random.default_rng()
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((21, 7), (7, 13)))
    c = rng.standard_normal((21, 13)).astype(np.float32)
    x, y = ((m.view(np.uint8) if cast else m).astype(np.float64) for m in (a, b))
    wanted = c + x @ y
    compile(text, cache=False)(a, b, c, device="interp")
    assert (np.abs(c - wanted) <= 2 * 2.0**-24 * (np.abs(wanted) + np.abs(x @ y))).all()


def test_sums_of_integers_that_may_not_fit_are_added_up_by_threads() -> None:
    text = """func.func @f(%A: memref<2x140000xi8>, %B: memref<140000x3xi8>, %C: memref<2x3xf32>) {
      linalg.matmul ins(%A, %B : memref<2x140000xi8>, memref<140000x3xi8>) outs(%C : memref<2x3xf32>) return }"""
    with remarks() as said:
        compile(text, cache=False)
    assert "sums of 140000 products of integers may pass 32 bits" in said[0]


def test_a_weight_that_is_computed_needs_no_tensor_cores() -> None:
    """It is computed as the body says, by a thread for each element."""
    text = HEAD.format(c="f32", body=CASTS + BODIES["weighted"][0]).replace("%alpha: f32", "%alpha: f64")
    text = text.replace("arith.mulf %q, %alpha : f32", "arith.mulf %q, %beta : f32")
    body = "%wide = arith.extf %q : f32 to f64\n%r64 = arith.mulf %wide, %alpha : f64\n%beta = arith.truncf %r64 : f64 to f32\n%r"  # noqa: E501
    rng = np.random.default_rng()
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((21, 7), (7, 13)))
    c, alpha = rng.standard_normal((21, 13)).astype(np.float32), float(rng.standard_normal())
    terms = alpha * (np.float64(np.float32(0.3)) * a[:, :, None].astype(np.float64) * b) ** 2
    wanted, size = c + terms.sum(1), np.abs(c) + np.abs(terms).sum(1)
    compile(text.replace("%r", body, 1), cache=False)(a, b, c, alpha, device="interp")
    assert (np.abs(c - wanted) <= 12 * 2.0**-23 * size).all()


def test_the_check_knows_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "weighted.mlir"
    path.write_text(HEAD.format(c="f32", body=CASTS + BODIES["weighted"][0]))
    assert main(["run", str(path), "--device", "interp", "--check"]) == 0
    assert "within the bound" in capsys.readouterr().out
