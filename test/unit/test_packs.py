"""`linalg.pack` and `linalg.unpack`: matrices in tiles around a product of tiles."""

from __future__ import annotations

import numpy as np
import pytest

from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import compile
from warploom.runtime.base.errors import CompileError

M, N, K = 37, 51, 45


def tiles(rows: int, columns: int, tile: tuple[int, int], *, turned: bool = False) -> str:
    counts = [-(-rows // tile[0]), -(-columns // tile[1])]
    return "x".join(map(str, [*(counts[::-1] if turned else counts), *tile]))


def packed_product(m: int, n: int, k: int, tile: tuple[int, int, int], *, padded: bool = True) -> str:
    """D = A B by `linalg.mmt4d`, with tiles of m x n x k elements; those of B run along n first."""
    rows, columns, depth = tile
    a, b, d = (tiles(x, y, t) for x, y, t in ((m, k, (rows, depth)), (n, k, (columns, depth)), (m, n, (rows, columns))))
    padding = "padding_value(%zero : f16) " if padded else ""
    return f"""func.func @f(%A: tensor<{m}x{k}xf16>, %B: tensor<{k}x{n}xf16>) -> tensor<{m}x{n}xf32> {{
      %zero = arith.constant 0.0 : f16
      %none = arith.constant 0.0 : f32
      %0 = tensor.empty() : tensor<{a}xf16>
      %1 = tensor.empty() : tensor<{b}xf16>
      %2 = tensor.empty() : tensor<{d}xf32>
      %3 = tensor.empty() : tensor<{m}x{n}xf32>
      %a = linalg.pack %A {padding}inner_dims_pos = [0, 1] inner_tiles = [{rows}, {depth}] into %0
        : tensor<{m}x{k}xf16> -> tensor<{a}xf16>
      %b = linalg.pack %B {padding}outer_dims_perm = [1, 0] inner_dims_pos = [1, 0] inner_tiles = [{columns}, {depth}]
        into %1 : tensor<{k}x{n}xf16> -> tensor<{b}xf16>
      %c = linalg.fill ins(%none : f32) outs(%2 : tensor<{d}xf32>) -> tensor<{d}xf32>
      %p = linalg.mmt4d ins(%a, %b : tensor<{a}xf16>, tensor<{b}xf16>) outs(%c : tensor<{d}xf32>) -> tensor<{d}xf32>
      %r = linalg.unpack %p inner_dims_pos = [0, 1] inner_tiles = [{rows}, {columns}] into %3
        : tensor<{d}xf32> -> tensor<{m}x{n}xf32>
      return %r : tensor<{m}x{n}xf32>
    }}"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("size", "tile", "padded"),
    [((M, N, K), (8, 8, 16), True), ((M, N, K), (5, 7, 3), True), ((32, 48, 64), (16, 8, 16), False)],
)
def test_a_product_of_tiles_is_the_product(
    size: tuple[int, int, int], tile: tuple[int, int, int], padded: bool
) -> None:
    m, n, k = size
    rng = np.random.default_rng(m)
    a, b = rng.standard_normal((m, k)).astype("f2"), rng.standard_normal((k, n)).astype("f2")
    result = compile(packed_product(m, n, k, tile, padded=padded), target="sm_80")(a, b, device="interp")
    x, y = a.astype(np.float64), b.astype(np.float64)
    assert (np.abs(result - x @ y) <= (k + 3) * 2.0**-23 * (np.abs(x) @ np.abs(y))).all()


def test_tiles_lie_as_the_operation_says() -> None:
    """One dimension is cut, the outer ones are exchanged; the padding shows in the last tile."""
    text = """func.func @f(%x: tensor<3x5x7xf32>) -> tensor<7x3x3x2xf32> {
      %p = arith.constant -1.0 : f32
      %e = tensor.empty() : tensor<7x3x3x2xf32>
      %r = linalg.pack %x padding_value(%p : f32) outer_dims_perm = [2, 0, 1] inner_dims_pos = [1] inner_tiles = [2]
        into %e : tensor<3x5x7xf32> -> tensor<7x3x3x2xf32>
      return %r : tensor<7x3x3x2xf32>
    }"""
    x = np.random.default_rng(1).standard_normal((3, 5, 7)).astype("f4")
    tiles = np.full((3, 6, 7), -1, "f4")
    tiles[:, :5] = x
    result = compile(text, target="sm_80")(x, device="interp")
    assert np.array_equal(result, tiles.reshape(3, 3, 2, 7).transpose(3, 0, 1, 2))


def test_text_is_read_as_it_is_printed() -> None:
    module = parse_mlir(make_context(), packed_product(M, N, K, (8, 8, 16)))
    printed = str(module)
    assert str(parse_mlir(make_context(), printed)) == printed
    assert "outer_dims_perm = [1, 0] inner_dims_pos = [1, 0] inner_tiles = [8, 16] into" in printed


@pytest.mark.parametrize(
    ("schedule", "instead", "message"),
    [
        ("padding_value(%zero : f16) inner", "inner", "expected a padding_value, as tiles do not divide dimension 0"),
        ("padding_value(%zero : f16) inner", "padding_value(%none : f32) inner", "expected a padding_value of f16"),
        ("inner_dims_pos = [0, 1] inner_tiles = [8, 16]", "inner_dims_pos = [0, 0] inner_tiles = [8, 16]",
         r"expected inner_dims_pos to name dimensions 0 to 1 once, got \[0, 0\]"),
        ("outer_dims_perm = [1, 0]", "outer_dims_perm = [1, 1]", "expected outer_dims_perm to permute 2 dimensions"),
        ("inner_tiles = [8, 16] into %0", "inner_tiles = [4, 16] into %0", "expected tiles of 10x3x4x16 elements, got"),
        ("inner_tiles = [8, 16] into %0", "inner_tiles = [8] into %0", "expected a tile size for each of 2 dimensions"),
        ("inner_tiles = [8, 16] into %0", "inner_tiles = [8, 0] into %0", "expected tiles of one element or more"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(schedule: str, instead: str, message: str) -> None:
    text = " ".join(packed_product(M, N, K, (8, 8, 16)).split())
    assert schedule in text
    with pytest.raises(CompileError, match=message):
        compile(text.replace(schedule, instead, 1), target="sm_80")


def test_dynamic_sizes_are_refused() -> None:
    text = """func.func @f(%x: tensor<?x16xf32>, %e: tensor<?x2x4x8xf32>) -> tensor<?x2x4x8xf32> {
      %r = linalg.pack %x inner_dims_pos = [0, 1] inner_tiles = [4, 8] into %e
        : tensor<?x16xf32> -> tensor<?x2x4x8xf32>
      return %r : tensor<?x2x4x8xf32>
    }"""
    with pytest.raises(CompileError, match=r"linalg.pack of dynamic sizes is not lowered; known sizes are"):
        compile(text, target="sm_80")
