"""`warp.pack`: every element arrives, the rest is zero, and nothing outside the source is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.utils.exceptions import DiagnosticException

from warploom.dialect.ptx.ops import print_ptx
from warploom.dialect.ptx.printer import ptx_module
from warploom.passes.pipeline import lower
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import compile, load_ptx
from warploom.runtime.arguments.arrays import DTYPES

THREADS = 32


def packing(source: tuple[int, int], to: tuple[int, int], element: str, shares: int) -> str:
    """The PTX of a kernel that packs a matrix."""
    types = [f"memref<{rows}x{columns}x{element}>" for rows, columns in (source, to)]
    text = f"""builtin.module attributes {{warp.target = #warp.target<sm_80>}} {{
"gpu.module"() <{{sym_name = "kernels"}}> ({{
"gpu.func"() <{{function_type = ({", ".join(types)}) -> (), kernel}}> ({{
^bb0(%A: {types[0]}, %W: {types[1]}):
%cta = "gpu.block_id"() <{{dimension = #gpu<dim x>}}> : () -> index
warp.pack %A to %W share %cta {{shares = {shares} : i64}} : {types[0]} to {types[1]}
"gpu.return"() : () -> ()
}}) {{sym_name = "k", gpu.known_block_size = array<i32: {THREADS}, 1, 1>}} : () -> ()
}}) : () -> ()
}}"""
    ctx = make_context()
    module = parse_mlir(ctx, text)
    lower(module, ctx, "warp-expand,convert-warp-to-ptx")
    return print_ptx(ptx_module(module))


def check(source: tuple[int, int], to: tuple[int, int], element: str, shares: int) -> None:
    """Packs random bytes and compares them with numpy's padding."""
    dtype = DTYPES[element]
    a = np.random.default_rng(source).integers(1, 256, (source[0], source[1] * dtype.itemsize), np.uint8)
    w: np.ndarray[Any, Any] = np.full((to[0], to[1] * dtype.itemsize), 0xAA, np.uint8)
    load_ptx(packing(source, to, element, shares)).launch(
        "k", grid=shares, block=THREADS, args=[a.view(dtype), w.view(dtype)], device="interp"
    )
    expected = np.pad(a, [(0, big - size) for big, size in zip(w.shape, a.shape, strict=True)])
    np.testing.assert_array_equal(w, expected)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 9),
    st.integers(4, 70),
    st.sampled_from(["i8", "f8E5M2", "f16", "bf16", "f32", "f64"]),
    st.integers(0, 3),
    st.integers(0, 2),
    st.integers(1, 5),
)
def test_any_matrix(rows: int, columns: int, element: str, more_rows: int, more_chunks: int, shares: int) -> None:
    per_chunk = 16 // DTYPES[element].itemsize
    to = (rows + more_rows, (-(-columns // per_chunk) + more_chunks) * per_chunk)
    check((rows, columns), to, element, shares)


@pytest.mark.parametrize("columns", [2, 7, 8, 9, 17])
def test_one_odd_row(columns: int) -> None:
    check((1, columns), (1, -(-columns // 8) * 8), "f16", 1)


def test_the_end_of_a_matrix_of_bytes_lies_in_two_chunks() -> None:
    check((5, 17), (5, 32), "i8", 1)


@pytest.mark.parametrize(
    ("source", "to", "message"),
    [
        ((4, 1), (4, 8), "takes rows of at least 4 bytes, got memref<4x1xf16>"),
        ((4, 5), (4, 6), "makes rows of whole 16-byte chunks, got memref<4x6xf16>"),
    ],
)
def test_what_is_refused(source: tuple[int, int], to: tuple[int, int], message: str) -> None:
    with pytest.raises(DiagnosticException, match=message):
        packing(source, to, "f16", 1)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("pack", ["a", "b", "ab"])
@pytest.mark.parametrize("size", [(65, 77, 53), (33, 40, 35), (31, 9, 130)])
def test_products_of_packed_operands(size: tuple[int, int, int], pack: str) -> None:
    m, n, k = size
    a, b, c = f"memref<{m}x{k}xf16>", f"memref<{k}x{n}xf16>", f"memref<{m}x{n}xf32>"
    text = f"""func.func @f(%A: {a}, %B: {b}, %C: {c}) {{
      %z = arith.constant 0.0 : f32
      linalg.fill ins(%z : f32) outs(%C : {c})
      linalg.matmul ins(%A, %B : {a}, {b}) outs(%C : {c}) return }}"""
    kernel = compile(text, pack=pack, cta=(32, 32, 32), stages=3)
    assert len(kernel.scratch) == len(pack)
    rng = np.random.default_rng(size)
    x, y = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    out = np.full((m, n), np.nan, np.float32)
    kernel(x, y, out, device="interp")
    assert np.abs(out - x.astype(np.float64) @ y.astype(np.float64)).max() < 1e-4
