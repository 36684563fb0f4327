"""Weights of 8 and 4 bits that a product converts on the way in, from linalg to the interpreter, against float64."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.dialect.warp.matmul import MatmulOp
from warploom.passes.diagnostics import remarks
from warploom.passes.linalg.fuse_weights import FuseWeightsPass
from warploom.passes.linalg.product import read
from warploom.passes.linalg.raise_matmul import raise_products
from warploom.passes.schedule.candidates import key_of
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import CompileError, Kernel, compile, load_kernels

Array = NDArray[Any]

FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
LIMITS = {"s8": (-128, 128), "u8": (0, 256), "s4": (-8, 8), "u4": (0, 16)}


def in_memory(weights: Array, bits: int) -> Array:
    """Integers as they lie in memory: bytes, or two of 4 bits in each."""
    if bits == 8:
        return np.ascontiguousarray(weights.astype(np.uint8).view(np.int8))
    weights = np.ascontiguousarray(weights)
    return ((weights[:, ::2] & 15) | ((weights[:, 1::2] & 15) << 4)).astype(np.uint8)


def draw(stored: str, *shape: int) -> Array:
    return np.random.default_rng().integers(*LIMITS[stored], shape)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("by_columns", [True, False], ids=["nk", "kn"])
@pytest.mark.parametrize(
    ("float_", "stored"), [("bf16", "s8"), ("f16", "u8"), ("f16", "s4"), ("f16", "u4"), ("bf16", "u4")]
)
def test_integers_are_multiplied_exactly(float_: str, stored: str, by_columns: bool) -> None:
    m, n, k = (37, 96, 160) if by_columns else (18, 64, 96)
    bits, zero = int(stored[1]), int(draw(stored, 1)[0])
    b = f"memref<{n}x{k}xi{bits}>" if by_columns else f"memref<{k}x{n}xi{bits}>"
    axes = "(n, k)" if by_columns else "(k, n)"
    text = f"""func.func @f(%A: memref<{m}x{k}x{float_}>, %B: {b}, %D: memref<{m}x{n}xf32>) {{
  %W = warp.stored %B as {stored} minus {zero} : {b}
  warp.matmul {float_} x {float_} %A, %W init 0.0 : f32 into %D
      maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> {axes}>, affine_map<(m, n, k) -> (m, n)>]
      : memref<{m}x{k}x{float_}>, !warp.operand<{b}>, memref<{m}x{n}xf32>
  return
}}"""
    a = np.random.default_rng().standard_normal((m, k)).astype(FLOATS[float_])
    weights, d = draw(stored, k, n), np.full((m, n), np.nan, np.float32)
    compile(text, cache=False)(a, in_memory(weights.T if by_columns else weights, bits), d, device="interp")
    expected = a.astype(np.float64) @ (weights - zero)
    np.testing.assert_allclose(d, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("half_apart", [True, False])
@pytest.mark.parametrize(
    ("float_", "stored"), [("bf16", "s8"), ("bf16", "u8"), ("f16", "s4"), ("f16", "u4"), ("bf16", "s4")]
)
def test_a_fragment_is_converted_in_either_order(float_: str, stored: str, half_apart: bool) -> None:
    """Neighbours of a register, or elements half a register apart, become a register of floats."""
    bits = int(stored[1])
    lane, order, k = ("r3 r4 c0 c1 c2", ["r0", "r1", "r2"], 32) if bits == 4 else ("r2 r3 c0 c1 c2", ["r0", "r1"], 16)
    wanted = [order[-1], *order[:-1]] if half_apart else order
    memory_type = f"memref<16x{k}xi{bits}, #warp.swizzle<16>, 3 : i64>"
    source, result = (
        f"!warp.fragment<b, {k}x16x{kind}, [{lane} | {' '.join(bits_)}]>"
        for kind, bits_ in ((f"i{bits}", order), (float_, wanted))
    )
    text = f"""module attributes {{warp.target = #warp.target<sm_90a>}} {{ gpu.module @kernels {{
  gpu.func @f(%Q: memref<16x{k}xi{bits}>, %D: memref<{k}x16x{float_}>) kernel
      attributes {{gpu.known_block_size = array<i32: 32, 1, 1>}} {{
    %0 = arith.constant 0 : index
    %s = memref.alloc() : {memory_type}
    warp.copy %Q[%0, %0] to %s[] {{in_bounds = [true, true]}} : memref<16x{k}xi{bits}> to {memory_type}
    gpu.barrier
    %q = warp.load %s[%0, %0] {{matrices = "x2", swapped}} : {memory_type} -> {source}
    %d = warp.convert %q {{stored = "{stored}", zero = 3 : i64}} : {source} to {result}
    warp.store %d, %D[%0, %0] : {result}, memref<{k}x16x{float_}>
    gpu.return
  }}
}} }}"""
    weights, d = draw(stored, 16, k), np.full((k, 16), np.nan, FLOATS[float_])
    load_kernels(text).launch("f", 1, 32, [in_memory(weights, bits), d], device="interp")
    np.testing.assert_array_equal(d.astype(np.int64), weights.T - 3)


@pytest.mark.parametrize("float_", FLOATS)
def test_the_fraction_has_room_for_both_integers_of_a_byte(float_: str) -> None:
    """So the upper one is converted where it is, and a word of eight needs one shift for three."""
    text = f"""func.func @f(%A: memref<16x64x{float_}>, %B: memref<64x64xi4>, %C: memref<16x64xf32>) {{
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
                                 affine_map<(m, n, k) -> (m, n)>]
      ins(%A, %B : memref<16x64x{float_}>, memref<64x64xi4>) outs(%C : memref<16x64xf32>)
  return
}}"""
    schedule: dict[str, Any] = {"cta": (16, 64, 64), "warp": (16, 64), "stages": 2}
    converted = compile(text, cache=False, **schedule).ptx.split("// warp.convert")[1].split("// warp.mma")[0]
    assert {int(by) for by in re.findall(r"shr\.b32 %r\d+, %r\d+, (\d+);", converted)} == {8}


def function(convert: str, *, c: str = "f32", scale: str = "(n)", start: str = "fill", q: str = "i8") -> str:
    """A product with weights that `convert` makes of `%q`, with a scale `%s`."""
    shape = {"(n)": "48", "(k)": "64", "()": ""}[scale]
    memory_type = f"memref<{shape}xf16>" if shape else "f16"
    fill = f"linalg.fill ins(%zero : {c}) outs(%C : memref<21x48x{c}>)" if start == "fill" else ""
    return f"""#kn = affine_map<(k, n) -> (k, n)>
#s = affine_map<(k, n) -> {scale}>
func.func @f(%A: memref<21x64xf16>, %Q: memref<64x48x{q}>, %S: {memory_type}, %C: memref<21x48x{c}>) {{
  %zero = arith.constant 0.0 : {c}
  %W = memref.alloc() : memref<64x48xf16>
  linalg.generic {{indexing_maps = [#kn, #s, #kn], iterator_types = ["parallel", "parallel"]}}
      ins(%Q, %S : memref<64x48x{q}>, {memory_type}) outs(%W : memref<64x48xf16>) {{
  ^bb0(%q: {q}, %s: f16, %old: f16):
{convert}
    linalg.yield %w : f16
  }}
  {fill}
  linalg.matmul ins(%A, %W : memref<21x64xf16>, memref<64x48xf16>) outs(%C : memref<21x48x{c}>)
  memref.dealloc %W : memref<64x48xf16>
  return
}}"""


SCALED = "    %0 = arith.sitofp %q : i8 to f16\n    %w = arith.mulf %s, %0 : f16"
POINT = """    %wide = arith.extui %q : i8 to i32
    %point = arith.constant 128 : i32
    %0 = arith.subi %wide, %point : i32
    %1 = arith.sitofp %0 : i32 to f32
    %2 = arith.extf %s : f16 to f32
    %half = arith.constant 0.5 : f32
    %3 = arith.mulf %2, %half : f32
    %4 = arith.mulf %1, %half : f32
    %5 = arith.mulf %4, %2 : f32
    %w = arith.truncf %5 : f32 to f16"""
PLAIN = (
    "    %0 = arith.sitofp %q : i8 to f16\n    %four = arith.constant 4.0 : f16\n    %w = arith.subf %0, %four : f16"
)


ALLOWED = SCALED.replace("%0 : f16", "%0 fastmath<contract> : f16")


def run(text: str, kernels: int = 1, c: Any = np.float32) -> tuple[Array, Array, Array, Array, Kernel]:
    rng = np.random.default_rng()
    a = rng.standard_normal((21, 64)).astype(np.float16)
    q = rng.integers(-128, 128, (64, 48)).astype(np.int8)
    s = rng.random(48).astype(np.float16) / 16 + np.float16(0.01)
    d = rng.standard_normal((21, 48)).astype(c)
    before, kernel = d.copy(), compile(text, cache=False)
    assert len(kernel.launches) == kernels
    kernel(a, q, s, d, device="interp")
    a, q, s, d, before = (array.astype(np.float64) for array in (a, q, s, d, before))
    return a, q, s, d - (before if "fill" not in text else 0), kernel


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("text", "dtype"), [(function(SCALED), np.float32), (function(SCALED, c="f16", start="none"), np.float16)]
)
def test_a_scale_of_columns_is_part_of_the_product(text: str, dtype: Any) -> None:
    a, q, s, d, kernel = run(text, c=dtype)
    assert kernel.scratch == (), "the converted weights are nowhere"
    np.testing.assert_allclose(d, a @ q * s, rtol=2e-3, atol=2e-3 * np.abs(a @ q * s).max())


WIDE = """    %0 = arith.sitofp %q : i8 to f32
    %1 = arith.extf %s : f16 to f32
    %2 = arith.mulf %1, %0 : f32
    %w = arith.truncf %2 : f32 to f16"""


@pytest.mark.sampled(16)
@pytest.mark.parametrize("schedule", [{}, {"cta": (32, 48, 64), "sliced_k": 2}, {"mma": "m64n24k16"}], ids=str)
@pytest.mark.parametrize("by_columns", [True, False])
@pytest.mark.parametrize("float_", ["f16", "bf16"])
def test_each_weight_is_rounded_after_it_is_scaled(float_: str, by_columns: bool, schedule: dict[str, Any]) -> None:
    """In registers, before `mma` and before `wgmma`: the sums of rounded weights to the accuracy of f32, by small and
    large scales."""
    text = function(SCALED if by_columns else WIDE).replace("f16", float_)
    if by_columns:
        text = text.replace("#kn = affine_map<(k, n)", "#kn = affine_map<(n, k)").replace("64x48", "48x64")
        text = text.replace("-> (k, n)>", "-> (n, k)>", 1).replace("#s = affine_map<(k, n)", "#s = affine_map<(n, k)")
        maps = ", ".join(f"affine_map<(m, n, k) -> ({axes})>" for axes in ("m, k", "n, k", "m, n"))
        text = text.replace("linalg.matmul ins", f"linalg.matmul indexing_maps = [{maps}] ins")
    kernel, rng = compile(text, "sm_90a", cache=False, **schedule), np.random.default_rng()
    assert (len(kernel.launches), kernel.scratch) == (1, ())
    assert ("wgmma" in kernel.ptx) == ("mma" in schedule)
    a, s = rng.standard_normal((21, 64)).astype(FLOATS[float_]), rng.random(48) * 2.0 ** rng.integers(-9, 9, 48)
    s = s.astype(FLOATS[float_])
    q, d = rng.integers(-128, 128, (64, 48)).astype(np.int8), np.full((21, 48), np.nan, np.float32)
    kernel(a, np.ascontiguousarray(q.T if by_columns else q), s, d, device="interp", checks="all")
    weights = (q * s.astype(np.float64)).astype(FLOATS[float_]).astype(np.float64)
    exact = a.astype(np.float64) @ weights
    one, other = d / s.astype(np.float64), exact / s.astype(np.float64)
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6 * np.abs(other).max())


def test_scales_are_asked_for_before_the_loop() -> None:
    """The few columns that slices leave to a warp: behind the loop nothing hides how long memory takes."""
    schedule: dict[str, Any] = {"cta": (16, 32, 32), "warp": (16, 32), "sliced_k": 2, "stages": 2}
    kernel = compile(function(SCALED), cache=False, **schedule)
    assert "ld.global" not in kernel.ptx.partition("K loop")[2]
    a, q, s, d = (
        np.random.default_rng().integers(-3, 4, n).astype(t)
        for n, t in (((21, 64), np.float16), ((64, 48), np.int8), (48, np.float16), ((21, 48), np.float32))
    )
    kernel(a, q, s, d, device="interp")
    np.testing.assert_array_equal(d, a.astype(np.float64) @ q * s)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("start", ["fill", "none"])
@pytest.mark.parametrize(
    ("cta", "warp", "sliced_k"),
    [((16, 32, 64), (16, 16), 4), ((32, 32, 32), (16, 16), 2), ((16, 48, 64), (16, 48), 4)],
)
def test_slices_beyond_the_base_tiles_store_nothing(
    cta: tuple[int, ...], warp: tuple[int, ...], sliced_k: int, start: str
) -> None:
    """Nor do they load anything out of bounds; the others add up the sums of all."""
    schedule: dict[str, Any] = {"cta": cta, "warp": warp, "sliced_k": sliced_k, "stages": 2}
    kernel = compile(function(SCALED, start=start), cache=False, **schedule)
    rng = np.random.default_rng()
    a, q = rng.integers(-3, 4, (21, 64)).astype(np.float16), rng.integers(-128, 128, (64, 48)).astype(np.int8)
    s, d = rng.integers(1, 4, 48).astype(np.float16), rng.integers(-9, 9, (21, 48)).astype(np.float32)
    before = 0 if start == "fill" else d.astype(np.float64)
    if start == "fill":
        d[:] = np.nan
    kernel(a, q, s, d, device="interp", checks="all")
    np.testing.assert_array_equal(d, a.astype(np.float64) @ q * s + before)


def test_parts_of_k_take_no_slices_beyond_the_base_tiles() -> None:
    schedule: dict[str, Any] = {"cta": (16, 16, 32), "warp": (16, 16), "sliced_k": 2, "split_k": 2, "stages": 2}
    with pytest.raises(CompileError, match="sliced_k = 2, split_k = 2: the 1 x 1 base tiles"):
        compile(function(SCALED), cache=False, **schedule)


def test_turns_of_all_stages_where_they_make_up_k() -> None:
    """Addresses are known then; more stages than four would delay the first tile."""
    text = """func.func @f(%A: memref<16x4096xf16>, %B: memref<8192x4096xi8>, %C: memref<16x8192xf32>) {
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
                                 affine_map<(m, n, k) -> (m, n)>]
      ins(%A, %B : memref<16x4096xf16>, memref<8192x4096xi8>) outs(%C : memref<16x8192xf32>)
  return
}"""
    (schedule,) = compile(text, target="sm_90a", cache=False).schedule
    assert schedule is not None
    assert (schedule.stages, schedule.unroll) == (4, 4)
    (schedule,) = compile(text.replace("4096", "4224"), target="sm_90a", cache=False).schedule
    assert schedule is not None
    assert schedule.unroll == 0


@pytest.mark.parametrize(("n", "columns"), [(5120, 48), (8192, 64), (10240, 80), (11008, 96), (14336, 128)])
def test_tiles_of_few_rows_are_one_wave(n: int, columns: int) -> None:
    text = f"""func.func @f(%A: memref<16x4096xbf16>, %B: memref<{n}x4096xi4>, %C: memref<16x{n}xf32>) {{
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
                                 affine_map<(m, n, k) -> (m, n)>]
      ins(%A, %B : memref<16x4096xbf16>, memref<{n}x4096xi4>) outs(%C : memref<16x{n}xf32>)
  return
}}"""
    (schedule,) = compile(text, target="sm_90a", cache=False).schedule
    assert schedule is not None
    assert schedule.cta[:2] == (16, columns)


def test_zero_points_and_numbers() -> None:
    a, q, s, d, _ = run(function(re.sub(r"(mulf .*|truncf %\d+) :", r"\1 fastmath<reassoc> :", POINT)))
    exact = a @ (q % 256 - 128) * s / 2
    np.testing.assert_allclose(d, exact, rtol=1e-4, atol=1e-5 * np.abs(exact).max())
    a, q, s, d, _ = run(function(PLAIN))
    np.testing.assert_allclose(d, a @ (q - 4), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (function(SCALED, scale="(k)"), "its scale changes along k"),
        (function(SCALED.replace("%s, %0", "%0, %s").replace("sitofp", "uitofp")), ""),
        (
            function("    %0 = arith.subi %q, %q : i8\n    %w = arith.sitofp %0 : i8 to f16"),
            "its zero point is subtracted in",
        ),
        (
            function("    %0 = arith.extsi %q : i8 to i32\n    %w = arith.uitofp %0 : i32 to f16"),
            "it converts what arith.extsi gives as unsigned",
        ),
    ],
)
def test_what_stays_an_operation_of_its_own(text: str, reason: str) -> None:
    module = parse_mlir(make_context(), text, "f.mlir")
    with remarks() as log:
        FuseWeightsPass().apply(make_context(), module)
    assert ("memref.alloc" in str(module)) == bool(reason)
    said = "f.mlir:6:3: remark: warp-fuse-weights: the product that reads it does not convert its integers: "
    declined = [line for line in log if "does not convert" in line]
    assert [line.startswith(said + reason) for line in declined] == ([True] if reason else [])


def test_scaled_weights_are_not_rounded_and_a_remark_says_so() -> None:
    for text, count in (
        (function(ALLOWED), 1),
        (function(SCALED), 0),
        (function("    %w = arith.sitofp %q : i8 to f16"), 0),
    ):
        with remarks() as said:
            FuseWeightsPass().apply(make_context(), parse_mlir(make_context(), text, "f.mlir"))
        assert said == count * [
            "f.mlir:6:3: remark: warp-fuse-weights: scaled weights are not rounded to f16: sums are scaled instead"
        ]


@pytest.mark.parametrize(
    ("target", "q", "schedule", "message"),
    [
        ("sm_75", "i8", {}, "sm_75 has .* for f16 x f16 from s8 accumulated in f32; sm_80 and later have one"),
        (
            "sm_90a",
            "i4",
            {"mma": "m64n64k16"},
            "warpgroups cannot .*: integers of 4 bits in rows along n are not converted for warpgroups",
        ),
    ],
)
def test_what_does_not_convert_is_refused(target: str, q: str, schedule: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=f"f.mlir:14:3: error: schedule: {message}"):
        compile(function(SCALED.replace("i8", q), q=q), target, file="f.mlir", cache=False, **schedule)


def test_four_bits_that_no_product_converts_have_a_kernel_of_their_own() -> None:
    """Two neighbours of a row are in each byte."""
    convert = "    %0 = arith.sitofp %q : i4 to f16\n    %w = arith.mulf %s, %0 : f16"
    kernel, rng = compile(function(convert, scale="(k)", q="i4"), cache=False), np.random.default_rng()
    a, q = rng.integers(-3, 4, (21, 64)).astype(np.float16), rng.integers(-8, 8, (64, 48))
    s, d = rng.integers(1, 4, 64).astype(np.float16), np.full((21, 48), np.nan, np.float32)
    kernel(a, in_memory(q, 4), s, d, device="interp", checks="all")
    assert len(kernel.scratch) == 1, "the converted weights are in memory"
    np.testing.assert_array_equal(d, (a.astype(np.float64) * s) @ q)


@pytest.mark.parametrize("step", ["", "%q : i8 to f16\n    %0 = arith.extf %n : f16 to f32"], ids=["at once", "by f16"])
def test_integers_that_are_a_where_the_result_lies_column_by_column(step: str) -> None:
    """A product that linalg writes, weighted and subtracted, whose transpose is what is computed."""
    text = """func.func @f(%A: memref<48x64xi8>, %B: memref<64x21xf16>, %C: memref<48x21xf32, strided<[1, 48]>>) {
  linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>,
                                   affine_map<(m, n, k) -> (m, n)>],
                  iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%A, %B : memref<48x64xi8>, memref<64x21xf16>) outs(%C : memref<48x21xf32, strided<[1, 48]>>) {
  ^bb0(%q: i8, %b: f16, %c: f32):
    %0 = arith.sitofp %q : i8 to f32
    %1 = arith.extf %b : f16 to f32
    %2 = arith.mulf %0, %1 : f32
    %half = arith.constant 0.5 : f32
    %3 = arith.mulf %2, %half : f32
    %4 = arith.subf %c, %3 : f32
    linalg.yield %4 : f32
  }
  return
}"""
    rng = np.random.default_rng()
    a, b = rng.integers(-128, 128, (48, 64)).astype(np.int8), rng.standard_normal((64, 21)).astype(np.float16)
    c = rng.standard_normal((21, 48)).astype(np.float32)
    expected = c.T - a.astype(np.float64) @ b.astype(np.float64) / 2
    kernel = compile(text.replace("%0 = arith.sitofp %q : i8 to f32", f"%n = arith.sitofp {step}") if step else text)
    kernel(a, b, c.T, device="interp")
    assert "mma" in kernel.ptx
    np.testing.assert_allclose(c.T, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_integers_that_are_a_have_an_operation_of_their_own() -> None:
    """As weights times columns of activations, which would be converted as B of the transposes: a remark says so."""
    text = """func.func @f(%Q: memref<48x64xi8>, %B: memref<64x21xf16>, %C: memref<48x21xf32>) {
  %W = memref.alloc() : memref<48x64xf16>
  linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m, k)>],
                  iterator_types = ["parallel", "parallel"]}
      ins(%Q : memref<48x64xi8>) outs(%W : memref<48x64xf16>) {
  ^bb0(%q: i8, %old: f16):
    %w = arith.sitofp %q : i8 to f16
    linalg.yield %w : f16
  }
  linalg.matmul ins(%W, %B : memref<48x64xf16>, memref<64x21xf16>) outs(%C : memref<48x21xf32>)
  return
}"""
    module = parse_mlir(make_context(), text, "f.mlir")
    with remarks() as log:
        FuseWeightsPass().apply(make_context(), module)
    (said,) = log
    assert said.startswith("f.mlir:3:3: remark: warp-fuse-weights: the product that reads it does not convert")
    assert "they are A, and those of B are converted; write the product of the transposes" in said


def test_tuned_schedules_are_not_those_of_floats() -> None:
    product = "linalg.matmul ins(%A, %B : memref<16x64xf16>, memref<64x32xi8>) outs(%C : memref<16x32xf32>)"
    text = f"func.func @f(%A: memref<16x64xf16>, %B: memref<64x32xi8>, %C: memref<16x32xf32>) {{ {product} return }}"
    module = parse_mlir(make_context(), text, "f.mlir")
    raise_products(module)
    assert [key_of(read(op)) for op in module.walk() if isinstance(op, MatmulOp)] == [
        "16x32x64 f16 x f16 from s8 -> f32, added to C"
    ]


BYTES = """#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#d = affine_map<(m, n, k) -> (m, n)>
#nk = affine_map<(n, k) -> (n, k)>
#mn = affine_map<(m, n) -> (m, n)>
#n = affine_map<(m, n) -> (n)>
func.func @w4a8(%A: memref<20x160x{kind}>, %Q: memref<72x160xi4>, %S: memref<72xf32>, %D: memref<20x72xf32>) {{
  %zero = arith.constant {zero} : {sum}
  %b = memref.alloc() : memref<72x160x{kind}>
  %sums = memref.alloc() : memref<20x72x{sum}>
  linalg.generic {{indexing_maps = [#nk, #nk], iterator_types = ["parallel", "parallel"]}}
      ins(%Q : memref<72x160xi4>) outs(%b : memref<72x160x{kind}>) {{
  ^bb0(%q: i4, %old: {kind}):
    {body}
    linalg.yield %w : {kind}
  }}
  linalg.fill ins(%zero : {sum}) outs(%sums : memref<20x72x{sum}>)
  linalg.matmul indexing_maps = [#a, #b, #d] ins(%A, %b : memref<20x160x{kind}>, memref<72x160x{kind}>)
    outs(%sums : memref<20x72x{sum}>)
  linalg.generic {{indexing_maps = [#mn, #n, #mn], iterator_types = ["parallel", "parallel"]}}
      ins(%sums, %S : memref<20x72x{sum}>, memref<72xf32>) outs(%D : memref<20x72xf32>) {{
  ^bb0(%x: {sum}, %s: f32, %old: f32):
    {wide}
    %y = arith.mulf {element}, %s : f32
    linalg.yield %y : f32
  }}
  return
}}
"""

OF_INTEGERS = {"kind": "i8", "sum": "i32", "zero": "0", "wide": "%f = arith.sitofp %x : i32 to f32", "element": "%f"}
OF_FLOATS = {"kind": "f8E4M3FN", "sum": "f32", "zero": "0.0", "wide": "", "element": "%x"}
EXTENDED = "%w = arith.extsi %q : i4 to i8"
WITHOUT_8 = """%e = arith.constant 8 : i8
    %u = arith.extui %q : i4 to i8
    %w = arith.subi %u, %e : i8"""
CONVERTED = "%w = arith.sitofp %q : i4 to f8E4M3FN"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("types", "body", "signed"),
    [(OF_INTEGERS, EXTENDED, True), (OF_INTEGERS, WITHOUT_8, False), (OF_FLOATS, CONVERTED, True)],
)
def test_weights_of_4_bits_by_activations_of_8(types: dict[str, str], body: str, signed: bool) -> None:
    """Warpgroups widen them in registers; other targets in a kernel of its own."""
    source, rng = BYTES.format(body=body, **types), np.random.default_rng()
    kernel, of_floats = compile(source, "sm_90a", cache=False), types is OF_FLOATS
    assert len(kernel.launches) == 1
    a = (
        rng.standard_normal((20, 160)).astype(ml_dtypes.float8_e4m3fn)
        if of_floats
        else rng.integers(-128, 128, (20, 160))
    )
    a = a if of_floats else a.astype(np.int8)
    w, s = rng.integers(-8, 8, (72, 160)), rng.uniform(0.5, 1.5, 72).astype(np.float32)
    d, q = np.full((20, 72), np.nan, np.float32), w if signed else w + 8
    kernel(a, q.astype(ml_dtypes.int4 if signed else ml_dtypes.uint4), s, d, device="interp", checks="all")
    x, y = a.astype(np.float64), w.astype(np.float64).T
    # Of 8-bit floats each instruction may cut its 32 terms, and the sum before, 13 bits below the largest.
    cut = 5 * 33 * 2.0**-13 * (np.abs(x) @ np.abs(y)) * s if of_floats else 0
    assert np.all(np.abs(d - x @ y * s) <= cut + 4 * 2.0**-24 * np.abs(x @ y * s))


def test_weights_of_4_bits_by_activations_of_8_have_no_tiles_of_fragments() -> None:
    with pytest.raises(CompileError, match=r"mma\.sync multiplies .*s8.* in no tile"):
        compile(BYTES.format(body=EXTENDED, **OF_INTEGERS), "sm_90a", cache=False, mma="m16n8k32")
    with pytest.raises(CompileError, match=r"cta"):
        compile(BYTES.format(body=EXTENDED, **OF_INTEGERS), "sm_90a", cache=False, cta="128x128x512")


def test_other_targets_widen_weights_of_4_bits_before() -> None:
    with remarks() as made:
        kernel = compile(BYTES.format(body=EXTENDED, **OF_INTEGERS), "sm_89", cache=False)
    assert len(kernel.launches) == 2
    assert any("warpgroups multiply them as s8, which the target does not have" in str(one) for one in made)
