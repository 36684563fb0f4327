"""Packed weights of 4 and 8 bits, converted and scaled in registers of warpgroups, against float64."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.passes.diagnostics import remarks
from warploom.runtime import CompileError, compile, load_ptx, pack_weights, unpack_weights
from warploom.runtime.cli.command import main

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.append(str(BENCH))
Packed: Any = import_module("packed").Packed

Array = NDArray[Any]

FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def drawn(product: Any) -> tuple[list[Array], Array]:
    """Random arguments in the shapes of the function, D poisoned, and the weights as its operations round them."""
    rng, dtype, (m, n, k, bits, group, *_) = np.random.default_rng(), FLOATS[product.kind], product
    low = 0 if product.points else -(1 << bits - 1)
    q = rng.integers(low, low + (1 << bits), (n, k))
    s = (rng.random((k // group, n)) / 16 + 0.01) * rng.choice([1, 64])  # those of up to 2, and larger ones
    s = s.astype(dtype)
    z = (rng.random((k // group, n)) * (1 << bits)).astype(dtype)
    values = q.astype(dtype)
    if product.floats:
        q = rng.integers(0, 16, (n, k))
        values = q.astype(np.uint8).view(ml_dtypes.float4_e2m1fn).astype(dtype)
        above = rng.integers(0, 2, (k // group, 1)) * 3  # scales of up to 1, and larger ones, go different ways
        s = rng.integers(118, 128 + above, s.shape).astype(np.uint8).view(ml_dtypes.float8_e8m0fnu)
    scale, point = (np.repeat(x.astype(np.float32), group, 0).T for x in (s, z))
    less = (values.astype(np.float32) - point).astype(dtype) if product.points else values
    weights = less.astype(np.float32) * scale
    if not product.unrounded:
        weights = weights.astype(dtype)
    a, d = rng.standard_normal((m, k)).astype(dtype), np.full((m, n), np.nan, FLOATS.get(product.out, np.float32))
    packed = pack_weights(q.astype(np.uint8 if product.points else np.int8), bits)
    arguments = [a, packed, s, *([z] if product.points else []), d]
    return [x.reshape(shape) for x, shape in zip(arguments, product.shapes, strict=True)], weights.astype(np.float64)


FEW: dict[str, Any] = {"warp": "16x64", "mma": "m64n16k16", "in_registers": "b"}


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("product", "schedule"),
    [
        (Packed(5, 192, 128, 4, 64, out="f32"), {}),
        (Packed(70, 64, 192, 4, 32, kind="f16", out="f32"), {}),
        (Packed(19, 64, 160, 8, 32, False, out="f32"), {}),
        (Packed(23, 64, 192, 4, 32, False, out="f32", floats=True), {}),
        (Packed(9, 64, 512, 4, 32, False, floats=True), {}),
        (Packed(67, 192, 2880, 4, 32, False, out="f32", floats=True), {}),
        (Packed(70, 192, 320, 4, 32, False, floats=True), {"cta": "192x192x64", "mma": "m64n192k16", "warp": "192x64"}),
        (Packed(12, 64, 256, 4, 128), {"cta": "16x64x128", "sliced_k": 2, "split_k": 2, **FEW}),
        (Packed(9, 64, 256, 8, 64, out="f32"), {"cta": "16x64x128", "sliced_k": 4, **FEW}),
        (Packed(13, 64, 512, 4, 64, out="f32", unrounded=True), {"cta": "16x64x256", "sliced_k": 2, **FEW}),
        (Packed(13, 64, 1024, 4, 64, unrounded=True), {"cta": "16x64x256", "sliced_k": 2, "split_k": 2, **FEW}),
        (Packed(11, 128, 1280, 4, 128, unrounded=True), {"cta": "16x64x512", "sliced_k": 4, **FEW}),
        (Packed(9, 64, 256, 8, 64, False, out="f32", unrounded=True), {"cta": "16x64x128", "sliced_k": 4, **FEW}),
        (Packed(7, 64, 256, 4, 128, False, "f16", unrounded=True), {"cta": "16x64x128", "sliced_k": 2, **FEW}),
        (Packed(13, 192, 576, 4, 32, False, floats=True), {"cta": "16x128x256", "sliced_k": 2, **FEW}),
    ],
)
def test_packed_weights_are_multiplied_as_operations_round_them(product: Any, schedule: dict[str, Any]) -> None:
    """Any order of f32 sums of exact products is within (k + 2) 2^-23 of their magnitudes. Of `unrounded` weights the
    sums of groups are scaled, one rounding each."""
    kernel = compile(product.text(), target="sm_90a", cache=False, **schedule)
    assert len(kernel.launches) == 1, "the converted weights are nowhere"
    arguments, weights = drawn(product)
    kernel(*arguments, device="interp", checks="all")
    a = arguments[0].astype(np.float64)
    exact, result = a @ weights.T, arguments[-1].astype(np.float64)
    bound = (product.k + 2) * 2.0**-23 * (np.abs(a) @ np.abs(weights).T) + 2.0**-8 * np.abs(exact) * (
        product.out == "bf16"
    )
    assert (np.abs(result - exact) <= bound).all()


def test_only_operands_along_k_have_k_tiles_of_more_columns_than_a_box_has_rows() -> None:
    """A box of A that lies along m has a row for each column of K."""
    product = Packed(16, 8192, 8192, 4, 128)
    of_rows, of_columns = "(m, n, k) -> (m, k)", "(m, n, k) -> (k, m)"
    text = product.text().replace(of_rows, of_columns)
    text = text.replace("%A: memref<16x8192xbf16>", "%A: memref<8192x16xbf16>")
    text = text.replace("%A, %B : memref<16x8192xbf16>", "%A, %B : memref<8192x16xbf16>")
    kernels = (compile(each, target="sm_90a") for each in (product.text(), text))
    tiles = [schedule.cta for kernel in kernels for schedule in kernel.schedule if schedule is not None]
    assert tiles == [(16, 64, 512), (16, 64, 256)]
    with pytest.raises(CompileError, match="at most 256 rows"):
        compile(text, target="sm_90a", cta="16x64x512", sliced_k=4, **FEW)


def test_tiles_are_128_columns_wide_where_they_take_fewer_turns() -> None:
    """One of 112 SMs for two of 224, of which some have none in the second."""
    kernels = (compile(Packed(16, n, 4096, 4, 128).text(), target="sm_90a") for n in (8192, 14336))
    tiles = [schedule.cta for kernel in kernels for schedule in kernel.schedule if schedule is not None]
    assert tiles == [(16, 64, 256), (16, 128, 256)]


def test_no_more_ctas_take_turns_than_as_many_turns_take() -> None:
    """1024 tiles take 8 turns of 132 CTAs, and of 128."""
    kernel = compile(Packed(4096, 8192, 1024, 4, 128).text(), target="sm_90a")
    assert kernel.launches[-1].grid == (128, 1, 1)


def test_scales_of_all_groups_of_a_k_tile_are_copied_as_one_box() -> None:
    schedule = {"cta": "16x64x512", "sliced_k": 4, **FEW}
    text = compile(Packed(16, 64, 1024, 4, 128).text(), target="sm_90a", cache=False, **schedule).ptx
    boxes = re.findall(r"tensor_load: !warp.tensor_map<(\S+)xbf16>", text)
    assert boxes == ["4x64"] * 2, "scales, and zero points"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("least", [0, 64, 128, 192])
def test_every_float_of_4_bits_times_every_power_of_two_is_exact(least: int) -> None:
    """A picks one weight of each row. Where one of a row is infinite or NaN, its zeros times that are NaN."""
    product = Packed(16, 64, 64, 4, 32, False, out="f32", floats=True)
    kernel = compile(product.text(), target="sm_90a", cache=False)
    (a, packed, s, d), _ = drawn(product)
    a[...] = np.eye(16, 64)
    q = np.broadcast_to(np.arange(64) % 16, (64, 64)).astype(np.uint8)
    packed[...] = pack_weights(q.view(np.int8), 4).reshape(packed.shape)
    exponents = np.arange(least, least + 64, dtype=np.uint8).view(s.dtype)
    s[...] = np.tile(exponents, 2).reshape(s.shape)
    kernel(a, packed, s, d, device="interp")
    values = q.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        weights = (values * exponents.astype(np.float32)[:, None]).astype(ml_dtypes.bfloat16).astype(np.float32)
        expected = a.astype(np.float32) @ weights.T
    np.testing.assert_array_equal(d, expected)


@pytest.mark.parametrize(("bits", "points"), [(4, True), (8, True), (4, False)])
def test_weights_of_every_scale_are_rounded_as_operations_do(bits: int, points: bool) -> None:
    """A picks one weight of each row. Below 2^-120 a weight is right to 2^-127."""
    product, random = Packed(16, 64, 256, bits, 64, points, out="f32"), np.random.default_rng()
    kernel = compile(product.text(), target="sm_90a", cache=False, cta="16x64x256", sliced_k=2, **FEW)
    (a, packed, s, *z, d), _ = drawn(product)
    a[...], q = np.eye(16, 256), random.integers(0, 1 << bits, (64, 256)) - (0 if points else 1 << bits - 1)
    packed[...] = pack_weights(q.astype(np.uint8 if points else np.int8), bits).reshape(packed.shape)
    s[...] = ((1 + random.random(s.shape)) * 2.0 ** random.integers(-126, 119, s.shape)).astype(s.dtype)
    kernel(a, packed, s, *z, d, device="interp")
    scale, point = (np.repeat(x.reshape(4, 64).astype(np.float32), 64, 0).T for x in (s, z[0] if z else 0 * s))
    less = (q.astype(np.float32) - point).astype(s.dtype).astype(np.float32)
    weights = (less * scale).astype(s.dtype).astype(np.float64)[:, :16].T
    assert (np.abs(d - weights) <= np.where(np.abs(weights) < 2.0**-120, 2.0**-127, 0.0)).all()


SLICED = "cta=16,64,128 sliced_k=2 warp=16,64 mma=m64n16k16 in_registers=b"


@pytest.mark.parametrize(("rounded", "schedule"), [("", ""), ("", SLICED), ("rounded", SLICED)])
def test_the_reference_knows_packed_weights(tmp_path: Path, rounded: str, schedule: str) -> None:
    (path := tmp_path / "f.mlir").write_text(
        """
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#d = affine_map<(m, n, k) -> (m, n)>
func.func @f(%A: memref<8x128xbf16>, %B: memref<32x256xi4>, %S: memref<2x64xbf16>, %Z: memref<2x64xbf16>,
             %D: memref<8x64xf32>) {
  %W = warp.stored %B as u4 ROUNDED times %S less %Z {packed, group = 64}
    : memref<32x256xi4>, memref<2x64xbf16>, memref<2x64xbf16>
  warp.matmul bf16 x bf16 %A, %W init 0.0 : f32 into %D maps [#a, #b, #d]
    : memref<8x128xbf16>, !warp.operand<memref<32x256xi4>>, memref<8x64xf32>
  return
}""".replace("ROUNDED", rounded)
    )
    assert main(["run", str(path), "--target", "sm_90a", "--check", "--schedule", f"stages=4 {schedule}"]) == 0


@pytest.mark.parametrize("bits", [4, 8])
def test_unpacking_inverts_packing(bits: int) -> None:
    q = np.random.default_rng().integers(-(1 << bits - 1), 1 << bits - 1, (128, 192)).astype(np.int8)
    np.testing.assert_array_equal(unpack_weights(pack_weights(q, bits), bits, signed=True), q)


def test_packed_weights_are_converted_before_where_no_warpgroups_multiply() -> None:
    with remarks() as said:
        kernel = compile(Packed(16, 64, 256, 8, 128).text(), target="sm_80", cache=False)
    assert len(kernel.launches) > 1
    assert any("packed weights are multiplied by warpgroups, which the target does not have" in one for one in said)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("written", ["S", "Z"])
def test_packed_weights_are_converted_before_where_scales_or_points_change_then(written: str) -> None:
    """The product would read what an operation between them stores."""
    product = Packed(16, 64, 256, 8, 128, out="f32")
    kind = f"memref<{'x'.join(map(str, product.sizes(product.orders[1])))}xbf16>"
    start = "  linalg.fill ins(%zero"
    later = f"  %two = arith.constant 2.0 : bf16\n  linalg.fill ins(%two : bf16) outs(%{written} : {kind})\n{start}"
    with remarks() as said:
        kernel = compile(product.text().replace(start, later), target="sm_90a", cache=False)
    assert any("an operation between them writes the integers, the scales or the zero points" in one for one in said)
    arguments, weights = drawn(product)
    a = arguments[0].astype(np.float64)
    kernel(*arguments, device="interp", checks="all")
    bound = (product.k + 2) * 2.0**-23 * (np.abs(a) @ np.abs(weights).T)
    assert (np.abs(arguments[-1] - a @ weights.T) <= bound).all()
    assert (arguments["ASZ".index(written) + 1].astype(np.float64) == 2.0).all()


@pytest.mark.parametrize(
    ("columns", "schedule", "count"),
    [(64, {"cta": "16x64x256", "sliced_k": 2, "split_k": 2}, 4), (128, {"cta": "16x128x256", "sliced_k": 2}, 2)],
)
def test_the_first_weights_of_a_cta_are_in_l2_before_it_waits(columns: int, schedule: Any, count: int) -> None:
    """The kernel up to its wait, with the places of its prefetches stored: lines of 128 bytes of the packed weights."""
    n, k, parts = 384, 4096, schedule.get("split_k", 1)
    compiled = compile(Packed(16, n, k, 4, 128).text(), target="sm_90a", cache=False, **schedule, **FEW)
    text, grid = compiled.ptx, compiled.plan.launches[0].grid
    ahead = text[text.index("mov.u32 %r0, %tid.x;") : text.index("griddepcontrol.wait;")]
    prefetch = re.compile(r"cp\.async\.bulk\.prefetch\.tensor\.2d\.L2\.global\.tile \[%rd\d+, {0, (%r\d+)}\];")
    registers = "\n".join(re.findall(r"    \.reg .*;", text))
    places = prefetch.findall(ahead)
    for number, place in enumerate(places):
        ahead = prefetch.sub(f"st.global.b32 [%rd901+{4 * number}], {place};", ahead, count=1)
    ahead = re.sub(r".*\bf_\w+.*\n.*cvta.*\n", "", ahead)
    kernel = f"""
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 shared_tiles[];
.visible .entry f(.param .u64 out) {{
{registers}
    .reg .b64 %rd900, %rd901;
    .reg .b32 %r900, %r901, %r902;
    ld.param.u64 %rd900, [out];
    mov.u32 %r900, %ctaid.x;
    mov.u32 %r901, %ctaid.z;
    mov.u32 %r902, %nctaid.x;
    mad.lo.u32 %r900, %r901, %r902, %r900;
    mad.wide.u32 %rd901, %r900, {4 * len(places)}, %rd900;
    {ahead}
    ret;
}}"""
    out = np.full((prod(grid), len(places)), -1, np.int32)
    load_ptx(kernel).launch("f", grid=grid, block=(32, 1, 1), args=[out], shared=232448, device="interp")
    starts = [(column, part) for column in range(0, n, columns) for part in range(0, k, k // parts)]
    lines = [
        sorted(
            (at * k + 64 * (part + 256 * turn)) // 2 // 128
            for at in range(column, column + columns, 64)
            for turn in range(count)
        )
        for column, part in starts
    ]
    assert sorted(map(sorted, out.tolist())) == sorted(lines)
