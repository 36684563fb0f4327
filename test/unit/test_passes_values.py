"""What lowering must not do to values: overwrite one that is still needed, lose a carry, or fail in Python's words."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.utils.exceptions import DiagnosticException

from warploom.dialect.ptx.ops import print_ptx
from warploom.dialect.ptx.printer import ptx_module
from warploom.passes.pipeline import lower
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import CompileError, compile, load_ptx

A = "!warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>"
B = "!warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>"
C = "!warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>"
GA, GB, GC, INSIDE = "memref<16x16xf16>", "memref<16x8xf16>", "memref<16x8xf32>", "{in_bounds = [true, true]} "
PREAMBLE = f"""%a = warp.load %A[%c0, %c0] {INSIDE}: {GA} -> {A}
%b = warp.load %B[%c0, %c0] {INSIDE}: {GB} -> {B}
%z = warp.constant 0.0 : f32 : {C}
%c1 = arith.constant 1 : index
%c2 = arith.constant 2 : index
"""


def to_ptx(body: str, parameters: str = f"%A: {GA}, %B: {GB}, %C: {GC}") -> str:
    """The PTX of a kernel of one warp with this body."""
    types = ", ".join(p.split(": ")[1] for p in parameters.split(", %"))
    text = f"""builtin.module attributes {{warp.target = #warp.target<sm_90a>}} {{
"gpu.module"() <{{sym_name = "kernels"}}> ({{
"gpu.func"() <{{function_type = ({types}) -> (), kernel}}> ({{
^bb0({parameters}):
%c0 = arith.constant 0 : index
{PREAMBLE}{body}
"gpu.return"() : () -> ()
}}) {{sym_name = "k", gpu.known_block_size = array<i32: 32, 1, 1>}} : () -> ()
}}) : () -> ()
}}"""
    ctx = make_context()
    module = parse_mlir(ctx, text)
    lower(module, ctx, "convert-warp-to-ptx")
    return print_ptx(ptx_module(module))


IN_PLACE = {
    "mma in a loop, C from outside": f"""scf.for %i = %c0 to %c2 step %c1 {{
  %d = warp.mma m16n8k16 %a, %b, %z : {A}, {B}, {C}
  warp.store %d, %C[%c0, %c0] {INSIDE}: {C}, {GC}
}}""",
    "inner loop starts from a value outside the outer loop": f"""scf.for %i = %c0 to %c2 step %c1 {{
  %r = scf.for %j = %c0 to %c1 step %c1 iter_args(%acc = %z) -> ({C}) {{
    %d = warp.mma m16n8k16 %a, %b, %acc : {A}, {B}, {C}
    scf.yield %d : {C}
  }}
  warp.store %r, %C[%c0, %c0] {INSIDE}: {C}, {GC}
}}""",
    "convert f32 to f32": f"""%x = warp.load %C[%c0, %c0] {INSIDE}: {GC} -> {C}
%y = warp.convert %x : {C} to {C}
%d = warp.mma m16n8k16 %a, %b, %y : {A}, {B}, {C}
%e = warp.elementwise sub %d, %x : {C}, {C} -> {C}
warp.store %e, %C[%c0, %c0] {INSIDE}: {C}, {GC}""",
    "loop result in arithmetic": f"""%r = scf.for %i = %c0 to %c2 step %c1 iter_args(%k = %c0) -> (index) {{
  %n = arith.addi %k, %c0 : index
  scf.yield %n : index
}}
%q = arith.muli %r, %c2 : index
%d = warp.mma m16n8k16 %a, %b, %z : {A}, {B}, {C}
warp.store %d, %C[%q, %c0] : {C}, {GC}""",
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_a_product_leaves_its_c_as_it_was(name: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((16, 16), (16, 8)))
    c = np.ones((16, 8), np.float32)
    load_ptx(to_ptx(IN_PLACE[name])).launch(
        "k", grid=(1, 1, 1), block=(32, 1, 1), args=[a, b, c], shared=0, device="interp"
    )
    assert np.abs(c - a.astype(np.float64) @ b.astype(np.float64)).max() < 1e-4


REFUSED = {
    "a division by zero": ("%y = arith.divui %c1, %c0 : index", "arith.divui divides by zero"),
    "ldmatrix from between two chunks": (
        "%s = memref.alloc() : memref<16x32xf16, #warp.swizzle<64>, 3>\n"
        f'%x = warp.load %s[%c0, %c1] {{matrices = "x4"}} : memref<16x32xf16, #warp.swizzle<64>, 3> -> {A}',
        "multiples of 16 bytes, got column 1",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    body, message = REFUSED[name]
    with pytest.raises(DiagnosticException, match=message):
        to_ptx(body)


@pytest.mark.parametrize("kind", ["memref<16x8xf32, 3>", "memref<16x8xf32, affine_map<(i, j) -> (j, i)>>"])
def test_arguments_are_strided_and_global(kind: str) -> None:
    with pytest.raises(DiagnosticException, match="expected kernel arguments in global memory, strided"):
        to_ptx("", f"%A: {GA}, %B: {GB}, %C: {kind}")


@pytest.mark.sampled(8)
@pytest.mark.parametrize("swizzle", [16, 32, 64, 128])
@pytest.mark.parametrize("tile", [((32, 48, 16), (32, 16)), ((16, 24, 16), (16, 24)), ((48, 40, 16), (16, 40))])
def test_every_swizzle_multiplies_right(swizzle: int, tile: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    text = """func.func @f(%A: memref<64x48xf16>, %B: memref<48x48xf16>, %C: memref<64x48xf32>) {
      linalg.matmul ins(%A, %B : memref<64x48xf16>, memref<48x48xf16>) outs(%C : memref<64x48xf32>) return }"""
    kernel = compile(text, swizzle=swizzle, cta=tile[0], warp=tile[1], stages=2)
    rng = np.random.default_rng(swizzle)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((64, 48), (48, 48)))
    c = np.zeros((64, 48), np.float32)
    kernel(a, b, c, device="interp")
    assert np.abs(c - a.astype(np.float64) @ b.astype(np.float64)).max() < 1e-4


def product(m: int, n: int, k: int, name: str = "f") -> str:
    """A product that starts from 1e10."""
    a, b, c = f"memref<{m}x{k}xf16>", f"memref<{k}x{n}xf16>", f"memref<{m}x{n}xf32>"
    return (
        f"func.func @{name}(%A: {a}, %B: {b}, %C: {c}) {{ %z = arith.constant 1.0e10 : f32 "
        f"linalg.fill ins(%z : f32) outs(%C : {c}) linalg.matmul ins(%A, %B : {a}, {b}) outs(%C : {c}) return }}"
    )


@pytest.mark.parametrize(
    ("size", "options", "message"),
    [
        ((16, 8, 16), {"accumulate": "f16"}, r"C starts from 1e\+10, accumulators in f16 hold up to 65504"),
        ((16, 8, 16), {"stages": "99999999999999999999"}, "stages must be 1 to 1024"),
        ((16, 8, 16), {"mma": "m0n8k16"}, "mma must be numbers of at least 1, got m0n8k16"),
        ((16, 8, 1), {"pack": "a"}, "pack = a: rows of A have 2 bytes, packing takes rows of at least 4"),
        ((16, 8, 16), {"accumulate": "f64"}, "it is accumulated in f16 or f32"),
    ],
)
def test_what_compile_refuses(size: tuple[int, int, int], options: dict[str, str], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        compile(product(*size), **options)  # pyright: ignore[reportArgumentType]


def test_sums_that_start_from_the_least_integer() -> None:
    a, b, c = "memref<5x32xi8>", "memref<32x9xi8>", "memref<5x9xi32>"
    kernel = compile(
        f"func.func @f(%A: {a}, %B: {b}, %C: {c}) {{ %z = arith.constant -2147483648 : i32 "
        f"linalg.fill ins(%z : i32) outs(%C : {c}) linalg.matmul ins(%A, %B : {a}, {b}) outs(%C : {c}) return }}",
        cache=False,
    )
    rng, result = np.random.default_rng(), np.zeros((5, 9), np.int32)
    x, y = (rng.integers(-128, 128, size).astype(np.int8) for size in ((5, 32), (32, 9)))
    kernel(x, y, result, device="interp")
    np.testing.assert_array_equal(result, (x.astype(np.int64) @ y - 2**31).astype(np.int32))


@pytest.mark.parametrize("size", [(0, 8, 16), (16, 0, 16)])
def test_an_empty_result_is_nothing_to_compute(size: tuple[int, int, int]) -> None:
    m, n, k = size
    kernel = compile(product(*size), target="sm_90a", cache=False)
    kernel(np.zeros((m, k), np.float16), np.zeros((k, n), np.float16), np.zeros((m, n), np.float32), device="interp")
    assert kernel.launches == ()
    assert ".target sm_90a" in kernel.ptx


@pytest.mark.parametrize("name", ["kernels", "shared_tiles", '"my-kernel.1"', '"1st"'])
def test_any_name_that_mlir_allows(name: str) -> None:
    kernel = compile(product(16, 8, 16, name))
    a, b, c = np.ones((16, 16), np.float16), np.ones((16, 8), np.float16), np.zeros((16, 8), np.float32)
    kernel(a, b, c, device="interp")
    assert (c == np.float32(1e10)).all()


def test_an_empty_sum_leaves_what_c_starts_from() -> None:
    kernel = compile(product(16, 8, 0))
    c = np.full((16, 8), np.nan, np.float32)
    kernel(np.ones((16, 0), np.float16), np.ones((0, 8), np.float16), c, device="interp")
    assert (c == np.float32(1e10)).all()
