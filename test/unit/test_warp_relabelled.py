"""Products whose operands number rows, columns and k otherwise than the instruction: kernels of one warp, run."""

from __future__ import annotations

import numpy as np
import pytest
from single_warp import BARRIER, Matrix, memref, run


def tile(array: Matrix, layout: str = "", element: str = "") -> str:
    """The type of a tile in shared memory that holds a matrix."""
    kind = memref(array)
    if element:
        kind = kind[: kind.rindex("x") + 1] + element + ">"
    return kind.replace(">", f", {layout}, 3>" if layout else ", 3>")


def kernel(a: Matrix, b: Matrix, load_a: str, load_b: str, product: str, acc: str, tiles: tuple[str, str]) -> str:
    """Copies A and B to shared memory, loads, multiplies, stores what is called %d."""
    return f"""
    %s = memref.alloc() : {tiles[0]}
    %t = memref.alloc() : {tiles[1]}
    warp.copy %A[%z, %z] to %s[] : $A to {tiles[0]}
    warp.copy %B[%z, %z] to %t[] : $B to {tiles[1]}
    {BARRIER}
    {load_a}
    {load_b}
    %c = warp.load %C[%z, %z] {{in_bounds = [true, true]}} : $C -> {acc}
    {product}
    warp.store %d, %C[%z, %z] {{in_bounds = [true, true]}} : {acc}, $C
    """


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


A8 = "!warp.fragment<a, 16x32xi8, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>"


def test_bytes_transposed_on_the_way(rng: np.random.Generator) -> None:
    """B lies row by row: pairs of neighbours move together, and are taken apart in registers."""
    a, b = (rng.integers(-128, 128, shape, dtype=np.int8) for shape in ((16, 32), (32, 16)))
    c = rng.integers(-99, 99, (16, 16), dtype=np.int32)
    expected = c + a.astype(np.int32) @ b.astype(np.int32)
    tiles = tile(a, "#warp.swizzle<32>"), tile(b, "#warp.swizzle<16, skip 1>")
    raw = "!warp.fragment<b, 32x16xi8, [r2 r3 c1 c2 c3 | c0 r1 r0 r4]>"
    fragment = "!warp.fragment<b, 32x16xi8, [r2 r3 c1 c2 c3 | r0 r1 r4 c0]>"
    plain = "!warp.fragment<acc, 16x16xi32, [c2 c3 r0 r1 r2 | c0 c1 r3]>"
    acc = "!warp.fragment<acc, 16x16xi32, [c2 c3 r0 r1 r2 | c1 r3 c0]>"
    run(
        "sm_80",
        kernel(
            a,
            b,
            f'%a = warp.load %s[%z, %z] {{matrices = "x4"}} : {tiles[0]} -> {A8}',
            f'%r = warp.load %t[%z, %z] {{matrices = "x4.trans.b16"}} : {tiles[1]} -> {raw}\n'
            f"%b = warp.convert_layout %r : {raw} to {fragment}",
            f"%e = warp.convert_layout %c : {plain} to {acc}\n"
            f"%f = warp.mma m16n8k32 %a, %b, %e : {A8}, {fragment}, {acc}\n"
            f"%d = warp.convert_layout %f : {acc} to {plain}",
            plain,
            tiles,
        ),
        A=a,
        B=b,
        C=c,
    )
    np.testing.assert_array_equal(c, expected)


def test_four_bits_transposed_on_the_way(rng: np.random.Generator) -> None:
    a, b = (rng.integers(-8, 8, shape, dtype=np.int8) for shape in ((16, 64), (64, 32)))
    c = np.zeros((16, 32), np.int32)
    raw = "!warp.fragment<b, 64x32xi4, [r3 r4 c2 c3 c4 | c0 c1 r2 r0 r1 r5]>"
    fragment = "!warp.fragment<b, 64x32xi4, [r3 r4 c2 c3 c4 | r0 r1 r2 r5 c0 c1]>"
    of_a = "!warp.fragment<a, 16x64xi4, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>"
    acc = "!warp.fragment<acc, 16x32xi32, [c3 c4 r0 r1 r2 | c2 r3 c0 c1]>"
    plain = "!warp.fragment<acc, 16x32xi32, [c3 c4 r0 r1 r2 | c0 c1 c2 r3]>"
    packed_a, packed_b = ((m[:, ::2] & 15 | m[:, 1::2] << 4).astype(np.int8) for m in (a, b))
    tiles = "memref<16x64xi4, #warp.swizzle<32>, 3>", "memref<64x32xi4, #warp.swizzle<16, skip 2>, 3>"
    body = kernel(
        a,
        b,
        f'%a = warp.load %s[%z, %z] {{matrices = "x4"}} : {tiles[0]} -> {of_a}',
        f'%r = warp.load %t[%z, %z] {{matrices = "x4.trans.b16"}} : {tiles[1]} -> {raw}\n'
        f"%b = warp.convert_layout %r : {raw} to {fragment}",
        f"%e = warp.convert_layout %c : {plain} to {acc}\n"
        f"%f = warp.mma m16n8k64 %a, %b, %e : {of_a}, {fragment}, {acc}\n"
        f"%d = warp.convert_layout %f : {acc} to {plain}",
        plain,
        tiles,
    )
    run("sm_80", body, A=packed_a, B=packed_b, C=c, types={"A": "memref<16x64xi4>", "B": "memref<64x32xi4>"})
    np.testing.assert_array_equal(c, a.astype(np.int32) @ b.astype(np.int32))


def test_words_by_vectors(rng: np.random.Generator) -> None:
    """tf32, B row by row: a lane reads four columns at once, one for each of four tiles."""
    a, b = (rng.integers(-99, 99, shape).astype(np.float32) for shape in ((16, 8), (8, 32)))
    c = np.zeros((16, 32), np.float32)
    tiles = tile(a, "#warp.swizzle<32>", "tf32"), tile(b, "#warp.swizzle<128>", "tf32")
    of_a = "!warp.fragment<a, 16x8xtf32, [c0 c1 r0 r1 r2 | r3 c2]>"
    of_b = "!warp.fragment<b, 8x32xtf32, [r0 r1 c4 c2 c3 | r2 c0 c1]>"
    plain = "!warp.fragment<acc, 16x32xf32, [c2 c3 r0 r1 r2 | c0 c1 c4 r3]>"
    acc = "!warp.fragment<acc, 16x32xf32, [c2 c3 r0 r1 r2 | c4 r3 c0 c1]>"
    body = kernel(
        a,
        b,
        f'%a = warp.load %s[%z, %z] {{matrices = "x4"}} : {tiles[0]} -> {of_a}',
        f"%b = warp.load %t[%z, %z] : {tiles[1]} -> {of_b}",
        f"%e = warp.convert_layout %c : {plain} to {acc}\n"
        f"%f = warp.mma m16n8k8 %a, %b, %e : {of_a}, {of_b}, {acc}\n"
        f"%d = warp.convert_layout %f : {acc} to {plain}",
        plain,
        tiles,
    )
    run("sm_80", body, A=a, B=b, C=c)
    np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize("shape", ["m8n8k4", "m16n8k4", "m16n8k8"])
def test_doubles_by_vectors(shape: str, rng: np.random.Generator) -> None:
    """f64, A and B by pairs along k: lane t holds k = 2t and 2t + 1, whatever the instruction's k."""
    a, b = (rng.integers(-99, 99, shape).astype(np.float64) for shape in ((16, 8), (8, 8)))
    b = np.ascontiguousarray(b.T)
    c = rng.integers(-99, 99, (16, 8)).astype(np.float64)
    expected = c + a @ b.T
    tiles = tile(a, "#warp.swizzle<64>"), tile(b, "#warp.swizzle<64>")
    down = {"m8n8k4": "c0", "m16n8k4": "r3 c0", "m16n8k8": "r3 c0"}[shape]
    of_a = f"!warp.fragment<a, 16x8xf64, [c1 c2 r2 r0 r1 | {down}]>"
    of_b = "!warp.fragment<b, 8x8xf64, [r1 r2 c2 c0 c1 | r0]>"
    acc = f"!warp.fragment<acc, 16x8xf64, [c0 c1 r2 r0 r1 | c2{' r3' * (shape != 'm8n8k4')}]>"
    body = kernel(
        a,
        b,
        f"%a = warp.load %s[%z, %z] : {tiles[0]} -> {of_a}",
        f"%b = warp.load %t[%z, %z] {{swapped}} : {tiles[1]} -> {of_b}",
        f"%d = warp.mma {shape} %a, %b, %c : {of_a}, {of_b}, {acc}",
        acc,
        tiles,
    )
    run("sm_90", body, A=a, B=b, C=c)
    np.testing.assert_array_equal(c, expected)
