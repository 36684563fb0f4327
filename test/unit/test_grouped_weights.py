"""Weights of 8 and 4 bits whose groups along k have scales: within the product where they fit, against float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.passes.diagnostics import remarks
from warploom.passes.linalg.fuse_weights import FuseWeightsPass
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import CompileError, Kernel, compile
from warploom.runtime.cli.command import main

Array = NDArray[Any]

FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}
M, N, K = 18, 56, 192


def shape(*sizes: int) -> str:
    return "x".join(map(str, sizes))


def function(q: str, by: str, group: int, *, scale: str = "", dimensions: bool = False, body: str = "") -> str:
    """A product with weights of groups; `by` is the order of their dimensions. `scale` is how scales are indexed, and
    with `dimensions` groups are a dimension instead of a quotient."""
    along = ", ".join({"k": f"k floordiv {group}"}.get(axis, axis) for axis in by)
    loops, sizes = ", ".join(by), {"k": [K], "n": [N]}
    if dimensions:
        along, loops = (", ".join({"k": k}.get(axis, axis) for axis in by) for k in ("g", "g, k"))
        sizes["k"] = [K // group, group]
    q_shape = shape(*(size for axis in by for size in sizes[axis]))
    scales, scale_type = (
        shape(*({"k": K // group, "n": N}[axis] for axis in by)),
        shape(*({"k": K, "n": N}[a] for a in by)),
    )
    body = body or f"%0 = arith.sitofp %q : {q} to f16\n    %w = arith.mulf %0, %s : f16"
    kinds = ", ".join(['"parallel"'] * (2 + dimensions))
    groups = {"kn": "[[0, 1], [2]]", "nk": "[[0], [1, 2]]"}[by]
    view = f"memref.collapse_shape %M {groups} : memref<{q_shape}xf16> into memref<{scale_type}xf16>"
    name = "M" if dimensions else "W"
    return f"""#w = affine_map<({loops}) -> ({loops})>
#s = affine_map<({loops}) -> ({scale or along})>
func.func @f(%A: memref<{M}x{K}xf16>, %Q: memref<{q_shape}x{q}>, %S: memref<{scales}xf16>, %C: memref<{M}x{N}xf32>) {{
  %zero = arith.constant 0.0 : f32
  %{name} = memref.alloc() : memref<{q_shape}xf16>
  linalg.generic {{indexing_maps = [#w, #s, #w], iterator_types = [{kinds}]}}
      ins(%Q, %S : memref<{q_shape}x{q}>, memref<{scales}xf16>) outs(%{name} : memref<{q_shape}xf16>) {{
  ^bb0(%q: {q}, %s: f16, %old: f16):
    {body}
    linalg.yield %w : f16
  }}
  {f"%W = {view}" if dimensions else ""}
  linalg.fill ins(%zero : f32) outs(%C : memref<{M}x{N}xf32>)
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> ({", ".join(by)})>,
                                 affine_map<(m, n, k) -> (m, n)>]
      ins(%A, %W : memref<{M}x{K}xf16>, memref<{scale_type}xf16>) outs(%C : memref<{M}x{N}xf32>)
  memref.dealloc %{name} : memref<{q_shape}xf16>
  return
}}"""


def in_memory(weights: Array, bits: int) -> Array:
    """Integers as they lie in memory: bytes, or two of 4 bits in each."""
    weights = np.ascontiguousarray(weights)
    return weights.astype(np.int8) if bits == 8 else ((weights[:, ::2] & 15) | (weights[:, 1::2] << 4)).astype(np.uint8)


def run(text: str, bits: int, by: str, group: int, *, dimensions: bool = False) -> tuple[Kernel, Array, Array]:
    """The kernel, what it computes, and that in float64."""
    kernel, rng = compile(text, cache=False), np.random.default_rng()
    a, q = rng.standard_normal((M, K)).astype(np.float16), rng.integers(-(1 << bits - 1), 1 << bits - 1, (K, N))
    s = (rng.random((K // group, N)) / 16 + 0.01).astype(np.float16)
    packed = in_memory(q if by == "kn" else q.T, bits)
    if dimensions:
        packed = packed.reshape((K // group, group, -1) if by == "kn" else (N, K // group, -1))
    c = np.full((M, N), np.nan, np.float32)
    kernel(a, packed, np.ascontiguousarray(s if by == "kn" else s.T), c, device="interp")
    scaled = q * np.repeat(s.astype(np.float64), group, 0)
    if "fastmath" not in text:
        scaled = scaled.astype(np.float16).astype(np.float64)
    return kernel, c, a.astype(np.float64) @ scaled


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("q", "by", "group", "dimensions", "flags"),
    [("i4", "kn", 64, False, ""), ("i4", "nk", 32, True, ""), ("i8", "kn", 32, True, ""), ("i8", "nk", 64, False, ""),
     ("i4", "nk", 32, True, " fastmath<contract>"), ("i8", "kn", 64, False, " fastmath<reassoc>")],
)  # fmt: skip
def test_groups_are_scaled_within_the_product(q: str, by: str, group: int, dimensions: bool, flags: str) -> None:
    """And each weight rounded, where no flag allows to scale the sums of groups instead."""
    text = function(q, by, group, dimensions=dimensions).replace("mulf %0, %s", f"mulf %0, %s{flags}")
    kernel, result, exact = run(text, int(q[1]), by, group, dimensions=dimensions)
    assert (len(kernel.launches), kernel.scratch) == (1, ()), "the converted weights are nowhere"
    np.testing.assert_allclose(result, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("q", "by", "group"), [("i4", "kn", 64), ("i8", "nk", 64)])
def test_a_scale_that_is_not_finite_stays_in_its_column(q: str, by: str, group: int) -> None:
    """It multiplies the sum of its group, of which no other warps have a part: infinity with the sum's sign, NaN where
    the sum is 0."""
    rng = np.random.default_rng(0)
    a, weights = rng.standard_normal((M, K)).astype(np.float16), rng.integers(-8, 8, (K, N))
    a[0, :group] = 0
    s = (rng.random((K // group, N)) / 16 + 0.01).astype(np.float16)
    exact = a.astype(np.float64) @ (weights * np.repeat(s.astype(np.float64), group, 0))
    first = a[:, :group].astype(np.float64) @ weights[:group]
    s[0, 3], s[0, 7] = np.inf, np.nan
    c = np.full((M, N), np.nan, np.float32)
    packed = in_memory(weights if by == "kn" else weights.T, int(q[1]))
    text = function(q, by, group).replace("mulf %0, %s", "mulf %0, %s fastmath<contract>")
    compile(text, cache=False, sliced_k=1)(a, packed, s if by == "kn" else s.T.copy(), c, device="interp")
    others = [column for column in range(N) if column not in (3, 7)]
    np.testing.assert_allclose(c[:, others], exact[:, others], rtol=1e-5, atol=1e-5 * np.abs(exact).max())
    np.testing.assert_array_equal(c[1:, 3], np.sign(first[1:, 3]) * np.inf)
    assert np.isnan([*c[:1, 3], *c[:, 7]]).all()


def test_a_product_may_be_summed_over_groups_and_what_is_in_them() -> None:
    """As one of a loop over groups beside k."""
    text = """#map = affine_map<(g, k, n) -> (g, k, n)>
#scale = affine_map<(g, k, n) -> (g, n)>
func.func @f(%A: memref<18x2x64xf16>, %Q: memref<2x64x40xi4>, %S: memref<2x40xf16>, %C: memref<18x40xf32>) {
  %W = memref.alloc() : memref<2x64x40xf16>
  linalg.generic {indexing_maps = [#map, #scale, #map], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%Q, %S : memref<2x64x40xi4>, memref<2x40xf16>) outs(%W : memref<2x64x40xf16>) {
  ^bb0(%q: i4, %s: f16, %old: f16):
    %0 = arith.uitofp %q : i4 to f16
    %1 = arith.mulf %0, %s : f16
    linalg.yield %1 : f16
  }
  linalg.contract indexing_maps = [
      affine_map<(m, n, g, k) -> (m, g, k)>, affine_map<(m, n, g, k) -> (g, k, n)>, affine_map<(m, n, g, k) -> (m, n)>]
      ins(%A, %W : memref<18x2x64xf16>, memref<2x64x40xf16>) outs(%C : memref<18x40xf32>)
  return
}"""
    rng = np.random.default_rng()
    a, q = rng.standard_normal((18, 2, 64)).astype(np.float16), rng.integers(0, 16, (128, 40))
    s, c = (rng.random((2, 40)) + 0.1).astype(np.float16), rng.standard_normal((18, 40)).astype(np.float32)
    scaled = (q * np.repeat(s.astype(np.float64), 64, 0)).astype(np.float16).astype(np.float64)
    exact = c + a.reshape(18, 128).astype(np.float64) @ scaled
    compile(text, cache=False)(a, in_memory(q, 4).reshape(2, 64, 20), s, c, device="interp")
    np.testing.assert_allclose(c, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())


def test_groups_and_columns_have_scales_and_what_is_there_is_kept() -> None:
    """A scale of all weights goes to the epilogue, where C is added."""
    body = """%0 = arith.sitofp %q : i8 to f16
    %1 = arith.mulf %0, %s fastmath<contract> : f16
    %half = arith.constant 0.5 : f16
    %w = arith.mulf %1, %half fastmath<contract> : f16"""
    _, result, exact = run(function("i8", "kn", 64, body=body), 8, "kn", 64)
    np.testing.assert_allclose(result, exact / 2, rtol=1e-5, atol=1e-5 * np.abs(exact).max())


def test_bytes_of_groups_that_do_not_fit_are_converted_before() -> None:
    text = function("i8", "kn", 48)
    with remarks() as said:
        FuseWeightsPass().apply(make_context(), parse_mlir(make_context(), text, "f.mlir"))
    assert len(said) == 1
    assert "its groups have 48 elements along k; expected 32, or twice as many and so on" in said[0]
    kernel, result, exact = run(text, 8, "kn", 48)
    assert len(kernel.launches) == 2
    np.testing.assert_allclose(result, exact, rtol=2e-3, atol=2e-3 * np.abs(exact).max())


TWICE = "%0 = arith.sitofp %q : i4 to f16\n    %1 = arith.mulf %0, %s : f16\n    %w = arith.mulf %1, %s : f16"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (function("i4", "kn", 48), "its groups have 48 elements along k; expected 32, or twice as many"),
        (function("i4", "kn", 64, body=TWICE), "its groups have more than one scale"),
        (
            function("i4", "kn", 64, scale="n, k floordiv 64").replace("3x56xf16", "56x3xf16"),
            "the scales of its groups lie the other way than the integers: one as groups x n, one as n x groups",
        ),
        (
            function("i4", "kn", 64, scale="k floordiv 64").replace("3x56xf16", "3xf16"),
            "the scales of its groups are not those of each column",
        ),
        (function("i4", "kn", 1, scale="k, n"), "its scale changes along k"),
        (
            function("i4", "kn", 64, dimensions=True)
            .replace("x56x", "x?x")
            .replace("%M = memref.alloc()", "%c = arith.constant 56 : index\n  %M = memref.alloc(%c)"),
            "it reads them in another shape, and their sizes are not known",
        ),
    ],
)
def test_groups_that_no_product_scales_are_converted_before(text: str, reason: str) -> None:
    module = parse_mlir(make_context(), text, "f.mlir")
    with remarks() as said:
        FuseWeightsPass().apply(make_context(), module)
    assert len(said) == 1
    assert f"the product that reads it does not convert its integers: {reason}" in said[0]
    assert "memref.alloc" in str(module)


def zero_points(by: str, q: str = "i4", z: str = "f16", columns: int = N) -> str:
    """A product with weights of groups, 64 along k, that have a scale and a zero point each, both in memory."""
    loops, groups = ("g, k, n", "g, n") if by == "kn" else ("n, g, k", "n, g")
    q_shape = f"3x64x{columns}" if by == "kn" else f"{columns}x3x64"
    few, scale_type = (f"3x{columns}", f"192x{columns}") if by == "kn" else (f"{columns}x3", f"{columns}x192")
    view = "[[0, 1], [2]]" if by == "kn" else "[[0], [1, 2]]"
    wide = f"%zf = arith.uitofp %z : {z} to f16" if z[0] == "i" else ""
    zero = "%zf" if wide else "%z"
    return f"""#w = affine_map<({loops}) -> ({loops})>
#s = affine_map<({loops}) -> ({groups})>
func.func @f(%A: memref<{M}x192xf16>, %Q: memref<{q_shape}x{q}>, %S: memref<{few}xf16>, %Z: memref<{few}x{z}>,
             %C: memref<{M}x{columns}xf32>) {{
  %zero = arith.constant 0.0 : f32
  %M = memref.alloc() : memref<{q_shape}xf16>
  linalg.generic {{indexing_maps = [#w, #s, #s, #w], iterator_types = ["parallel", "parallel", "parallel"]}}
      ins(%Q, %S, %Z : memref<{q_shape}x{q}>, memref<{few}xf16>, memref<{few}x{z}>) outs(%M : memref<{q_shape}xf16>) {{
  ^bb0(%q: {q}, %s: f16, %z: {z}, %old: f16):
    %0 = arith.uitofp %q : {q} to f16
    {wide}
    %1 = arith.subf %0, {zero} : f16
    %w = arith.mulf %1, %s : f16
    linalg.yield %w : f16
  }}
  %W = memref.collapse_shape %M {view} : memref<{q_shape}xf16> into memref<{scale_type}xf16>
  linalg.fill ins(%zero : f32) outs(%C : memref<{M}x{columns}xf32>)
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> ({", ".join(by)})>,
                                 affine_map<(m, n, k) -> (m, n)>]
      ins(%A, %W : memref<{M}x192xf16>, memref<{scale_type}xf16>) outs(%C : memref<{M}x{columns}xf32>)
  memref.dealloc %M : memref<{q_shape}xf16>
  return
}}"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("by", "z", "columns"), [("kn", "f16", 56), ("kn", "i4", 50), ("nk", "f16", 50), ("nk", "i8", 56)]
)
def test_four_bits_with_zero_points_in_memory_are_converted_before(by: str, z: str, columns: int) -> None:
    rng, each = np.random.default_rng(), (lambda few: np.repeat(few.astype(np.float64), 64, 0))
    a, q = rng.standard_normal((M, 192)).astype(np.float16), rng.integers(0, 16, (192, columns))
    s, points = (rng.random((3, columns)) / 16 + 0.01).astype(np.float16), rng.integers(0, 16, (3, columns))
    exact = a.astype(np.float64) @ ((q - each(points)) * each(s))
    packed = in_memory(q if by == "kn" else q.T, 4).reshape((3, 64, -1) if by == "kn" else (columns, 3, -1))
    points, s = (np.ascontiguousarray(few if by == "kn" else few.T) for few in (points, s))
    points = points.astype(np.float16) if z == "f16" else in_memory(points, int(z[1]))
    c = np.full((M, columns), np.nan, np.float32)
    kernel = compile(zero_points(by, z=z, columns=columns), cache=False)
    assert len(kernel.scratch) == 1, "the converted weights are in memory"
    kernel(a, packed, s, points, c, device="interp", checks="all")
    np.testing.assert_allclose(c, exact, rtol=2e-3, atol=2e-3 * np.abs(exact).max())


def test_four_bits_that_lie_otherwise_than_the_weights_are_refused() -> None:
    """Zero points that are the same along a row: a lane would need one of the two in a byte."""
    reason = "linalg.generic on elements of i4 needs whole bytes of elements that are neighbours in its output too"
    with pytest.raises(CompileError, match=f"f.mlir:7:3: error: {reason}, got memref<56x3xi4"):
        compile(zero_points("nk", z="i4"), file="f.mlir", cache=False)


def product(float_: str, stored: str, by: str, group: int, scale: str, k: int = K) -> str:
    """The same as `warp.matmul` says it, with a zero point."""
    q_shape, scales = (shape(*({"k": size, "n": N}[axis] for axis in by)) for size in (k, k // group))
    types = f"memref<{M}x{k}x{float_}>, memref<{q_shape}xi{stored[1]}>, memref<{scales}x{scale}>, memref<{M}x{N}xf32>"
    a, b, s, d = types.split(", ")
    return f"""func.func @f(%A: {a}, %B: {b}, %S: {s}, %D: {d}) {{
  %W = warp.stored %B as {stored} minus 3 times %S : {b}, {s}
  warp.matmul {float_} x {float_} %A, %W init 0.0 : f32 into %D
      maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> ({", ".join(by)})>,
            affine_map<(m, n, k) -> (m, n)>]
      : {a}, !warp.operand<{b}>, {d}
  return
}}"""


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("float_", "stored", "by", "scale", "k", "schedule"),
    [
        ("f16", "u4", "kn", "f16", 128, {"cta": (16, 64, 128), "warp": (16, 32), "stages": 2, "split_k": 2}),
        ("bf16", "u4", "nk", "f32", 192, {"cta": (16, 64, 128), "warp": (16, 64), "sliced_k": 2, "stages": 2}),
        ("f16", "s4", "kn", "bf16", 192, {"cta": (16, 64, 64), "warp": (16, 32), "stages": 3, "unroll": 3}),
        ("f16", "u4", "kn", "f16", 192, {"cta": (16, 64, 32), "warp": (16, 32), "stages": 2, "split_k": 3}),
        ("bf16", "s8", "nk", "bf16", 192, {"cta": (32, 32, 32), "warp": (16, 16), "stages": 3, "sync": "mbarrier"}),
        ("bf16", "s8", "nk", "bf16", 1024, {"cta": (16, 32, 128), "warp": (16, 32), "stages": 3, "sync": "mbarrier"}),
        ("f16", "u4", "nk", "f32", 512, {"cta": (16, 32, 256), "warp": (16, 32), "sliced_k": 2, "stages": 2}),
        ("f16", "s8", "kn", "f16", 192, {"cta": (16, 32, 64), "warp": (16, 16), "stages": 2, "ctas": 2}),
    ],
)
def test_schedules_with_groups(float_: str, stored: str, by: str, scale: str, k: int, schedule: dict[str, Any]) -> None:
    """K tiles of several groups and of parts of one, some with the last beyond the end of K or of a part; scales in
    shared memory and, where rows of them are no whole chunks or a CTA has several tiles, in global memory."""
    kernel, rng, group = (
        compile(product(float_, stored, by, 64, scale, k), cache=False, **schedule),
        np.random.default_rng(),
        64,
    )
    bits, low = int(stored[1]), 0 if stored[0] == "u" else -(1 << int(stored[1]) - 1)
    q, a = rng.integers(low, low + (1 << bits), (k, N)), rng.standard_normal((M, k)).astype(FLOATS[float_])
    s, d = (rng.random((k // group, N)) + 0.1).astype(FLOATS[scale]), np.full((M, N), np.nan, np.float32)
    turned = by == "nk"
    arguments = a, in_memory(q.T if turned else q, bits), np.ascontiguousarray(s.T if turned else s)
    kernel(*arguments, d, device="interp", checks="all")
    exact = a.astype(np.float64) @ ((q - 3) * np.repeat(s.astype(np.float64), group, 0))
    np.testing.assert_allclose(d, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())


FEW = {"warp": (32, 64), "mma": "m64n32k16", "in_registers": "b"}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("float_", "stored", "group", "k", "schedule"),
    [
        ("bf16", "s4", 128, 1664, {"cta": (32, 64, 256), "sliced_k": 2, **FEW}),  # no whole chunks of scales
        ("bf16", "u4", 128, 2048, {"cta": (32, 64, 512), "sliced_k": 4, **FEW}),
        ("f16", "u4", 32, 800, {"cta": (32, 64, 256), "sliced_k": 2, **FEW}),
        ("f16", "s4", 64, 512, {"cta": (32, 64, 64), "sliced_k": 1, **FEW}),
        ("bf16", "s4", 64, 1024, {"cta": (32, 64, 256), "sliced_k": 2, "split_k": 2, **FEW}),
        ("bf16", "u4", 128, 256, {"cta": (32, 64, 256), "sliced_k": 1, **FEW}),  # without a loop
        ("bf16", "s4", 256, 1280, {"cta": (32, 64, 128), "sliced_k": 1, "ctas": 1, **FEW}),
    ],
)
def test_warpgroups_round_weights_as_they_lie(
    float_: str, stored: str, group: int, k: int, schedule: dict[str, Any]
) -> None:
    """A lane multiplies a byte of each word that it loads, and four load the same ones. Scales of up to 2, and larger
    ones, go different ways if the least integer is a power of two."""
    zero, largest = (8 if stored == "u4" else 0, 3), (1, 4)
    zero, largest = int(np.random.default_rng().choice(zero)), int(np.random.default_rng().choice(largest))
    text = product(float_, stored, "nk", group, float_, k).replace("minus 3", f"minus {zero} rounded")
    kernel, rng, low = compile(text, "sm_90a", cache=False, **schedule), np.random.default_rng(), -8 * (stored == "s4")
    q, a = rng.integers(low, low + 16, (N, k)), rng.standard_normal((M, k)).astype(FLOATS[float_])
    s = (largest * rng.random((N, k // group)) + 0.1).astype(FLOATS[float_])
    d = np.full((M, N), np.nan, np.float32)
    kernel(a, in_memory(q, 4), s, d, device="interp", checks="all")
    weights = ((q - zero) * np.repeat(s.astype(np.float32), group, 1)).astype(FLOATS[float_]).astype(np.float64)
    bound = (k + 2) * 2.0**-23 * (np.abs(a.astype(np.float64)) @ np.abs(weights).T)
    assert (np.abs(d - a.astype(np.float64) @ weights.T) <= bound).all()


def test_parts_of_k_hold_whole_groups() -> None:
    text = product("f16", "s8", "nk", 48, "f16")
    with pytest.raises(CompileError, match="a warp multiplies whole groups, or parts of one: 64 elements along k"):
        compile(text, cache=False, cta=(16, 16, 64), warp=(16, 16), sliced_k=1)
    with pytest.raises(CompileError, match="parts of K = 192 would end within groups of 64"):
        compile(product("f16", "s8", "nk", 64, "f16"), cache=False, split_k=2)


def test_the_reference_knows_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, text in enumerate((product("f16", "u8", "nk", 32, "f16"), function("i4", "kn", 64))):
        path = tmp_path / f"{number}.mlir"
        path.write_text(text)
        assert main(["run", str(path), "--device", "interp", "--check"]) == 0
        assert "within the bound" in capsys.readouterr().out


def test_one_column_of_several_groups() -> None:
    """Its scales are those of other groups in each turn of the loop."""
    text = function("i8", "kn", 32).replace("x56x", "x1x")
    rng = np.random.default_rng()
    a, q = rng.standard_normal((M, K)).astype(np.float16), rng.integers(-128, 128, (K, 1)).astype(np.int8)
    s, c = (rng.random((K // 32, 1)) + 0.1).astype(np.float16), np.full((M, 1), np.nan, np.float32)
    compile(text, cache=False, cta=(16, 16, 32), warp=(16, 16))(a, q, s, c, device="interp")
    weights = (q * np.repeat(s.astype(np.float64), 32, 0)).astype(np.float16).astype(np.float64)
    np.testing.assert_allclose(c, a.astype(np.float64) @ weights, rtol=1e-5, atol=1e-3)
