"""Products with epilogues, from linalg to PTX on the interpreter, against numpy in float64."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from problems import problem
from products import Product, Types

from warploom.runtime import Kernel, compile
from warploom.runtime.arguments.arrays import DTYPES

Array = NDArray[Any]

MAPS = """#mn = affine_map<(m, n) -> (m, n)>
#m = affine_map<(m, n) -> (m)>
#n = affine_map<(m, n) -> (n)>
#s = affine_map<(m, n) -> ()>
"""
PRODUCT = """
  %zero = arith.constant 0.0 : {acc}
  %T = memref.alloc() : memref<{m}x{n}x{acc}>
  linalg.fill ins(%zero : {acc}) outs(%T : memref<{m}x{n}x{acc}>)
  linalg.matmul ins(%A, %B : memref<{m}x{k}x{t}>, memref<{k}x{n}x{t}>) outs(%T : memref<{m}x{n}x{acc}>)
"""
SIZES = ((1, 1, 1), (37, 51, 29), (64, 64, 32), (130, 70, 48))


def generic(maps: str, operands: str, out: str, arguments: str, body: str) -> str:
    return f"""  linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel"]}}
      ins({operands}) outs({out}) {{
  ^bb0({arguments}):
{body}
  }}
"""


def function(
    size: tuple[int, int, int], t: str, out: str, epilogue_operands: dict[str, str], body: str, acc: str = "f32"
) -> str:
    """A product in `acc`, followed by operations in `body`; `$mn` stands for the shape of the output."""
    m, n, k = size
    parameters = "".join(f", %{name}: {kind}" for name, kind in epilogue_operands.items())
    text = f"""{MAPS}
func.func @f(%A: memref<{m}x{k}x{t}>, %B: memref<{k}x{n}x{t}>{parameters}, %D: memref<{m}x{n}x{out}>) {{
{PRODUCT.format(m=m, n=n, k=k, t=t, acc=acc)}
{body}
  return
}}"""
    return text.replace("$mn", f"{m}x{n}").replace("$m", str(m)).replace("$n", str(n))


def run(
    text: str, a: Array, b: Array, *epilogue_operands: object, target: str = "sm_90a", out: str, **schedule: Any
) -> Array:
    kernel = compile(text, target=target, **schedule)
    assert len(kernel.launches) == 1, "everything is fused"
    assert kernel.scratch == ()
    kind = DTYPES[out]
    d = np.full((a.shape[0], b.shape[1]), np.nan if kind.kind != "i" else -99, kind)
    kernel(a, b, *epilogue_operands, d, device="interp")
    return d


def draw(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    return (np.random.default_rng([seed, *shape]).standard_normal(shape)).astype(dtype)


def operands(size: tuple[int, int, int], dtype: Any) -> tuple[Array, Array, Array]:
    m, n, k = size
    a, b = draw(m, k, dtype=dtype), draw(k, n, dtype=dtype, seed=1)
    return a, b, a.astype(np.float64) @ b.astype(np.float64)


BIAS_GELU = generic("#n, #mn", "%bias : memref<$nxf32>", "%T : memref<$mnxf32>", "%b: f32, %x: f32", """
    %0 = arith.addf %x, %b : f32
    linalg.yield %0 : f32""") + generic("#mn, #mn", "%T : memref<$mnxf32>", "%D : memref<$mnxbf16>",
                                        "%x: f32, %old: bf16", """
    %half = arith.constant 0.5 : f32
    %one = arith.constant 1.0 : f32
    %c0 = arith.constant 0.7978845608 : f32
    %c1 = arith.constant 0.044715 : f32
    %0 = arith.mulf %x, %x : f32
    %1 = arith.mulf %0, %x : f32
    %2 = arith.mulf %1, %c1 : f32
    %3 = arith.addf %x, %2 : f32
    %4 = arith.mulf %3, %c0 : f32
    %5 = math.tanh %4 : f32
    %6 = arith.addf %5, %one : f32
    %7 = arith.mulf %x, %half : f32
    %8 = arith.mulf %7, %6 : f32
    %9 = arith.truncf %8 : f32 to bf16
    linalg.yield %9 : bf16""")  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_bias_and_gelu(size: tuple[int, int, int]) -> None:
    a, b, product = operands(size, ml_dtypes.bfloat16)
    bias = draw(size[1], seed=2)
    got = run(function(size, "bf16", "bf16", {"bias": "memref<$nxf32>"}, BIAS_GELU), a, b, bias, out="bf16")
    x = product + bias
    expected = 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=2.0**-8, atol=1e-5)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90a", "sm_120a"])
@pytest.mark.parametrize("vector", ["f32", "f16"])
def test_vectors_along_both_axes_a_residual_and_a_number(target: str, vector: str) -> None:
    """D = alpha (A B + row + column) + residual, rounded once at the end."""
    size = (45, 39, 24)
    m, n, _ = size
    body = generic("#n, #m, #mn, #s, #mn", f"%row, %column, %R, %alpha : memref<$nx{vector}>, memref<$mx{vector}>,"
                   " memref<$mnxf16>, f32", "%T : memref<$mnxf32>",
                   f"%r: {vector}, %c: {vector}, %q: f16, %s: f32, %x: f32",
                   ("""
    %rf = arith.extf %r : f16 to f32
    %cf = arith.extf %c : f16 to f32""" if vector == "f16" else """
    %rf = arith.negf %r : f32
    %cf = arith.negf %c : f32""") + """
    %0 = arith.addf %x, %rf : f32
    %1 = arith.addf %0, %cf : f32
    %2 = arith.mulf %1, %s : f32
    %3 = arith.extf %q : f16 to f32
    %4 = arith.addf %2, %3 : f32
    linalg.yield %4 : f32""") + generic("#mn, #mn", "%T : memref<$mnxf32>", "%D : memref<$mnxf16>",
                                        "%x: f32, %old: f16", """
    %0 = arith.truncf %x : f32 to f16
    linalg.yield %0 : f16""")  # fmt: skip
    epilogue_operands = {
        "row": f"memref<$nx{vector}>",
        "column": f"memref<$mx{vector}>",
        "R": "memref<$mnxf16>",
        "alpha": "f32",
    }
    a, b, product = operands(size, np.float16)
    row, column = draw(n, dtype=DTYPES[vector], seed=2), draw(m, dtype=DTYPES[vector], seed=3)
    residual = draw(m, n, dtype=np.float16, seed=4)
    text = function(size, "f16", "f16", epilogue_operands, body)
    got = run(text, a, b, row, column, residual, 1.75, out="f16", target=target)
    sign = 1 if vector == "f16" else -1
    expected = 1.75 * (product + sign * (row.astype(float) + column.astype(float)[:, None])) + residual
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=2.0**-10, atol=1e-4)


def test_the_product_is_rounded_to_the_type_it_is_written_in() -> None:
    """A product in f16 whose result is read again is rounded to f16 in between, as if it had been stored."""
    size = (33, 20, 40)
    body = generic("#mn, #mn", "%T : memref<$mnxf16>", "%D : memref<$mnxf32>", "%x: f16, %old: f32", """
    %0 = arith.extf %x : f16 to f32
    linalg.yield %0 : f32""")  # fmt: skip
    a, b, product = operands(size, np.float16)
    got = run(function(size, "f16", "f32", {}, body, acc="f16"), a, b, out="f32")
    np.testing.assert_array_equal(got, got.astype(np.float16).astype(np.float32))
    np.testing.assert_allclose(got, product, rtol=2.0**-10, atol=1e-4)


def test_arithmetic_in_sixteen_bits_rounds_every_time() -> None:
    """(x + x / 3) * x in bf16 and f16 has numpy's bits, operation by operation."""
    size = (32, 16, 16)
    for kind in ("f16", "bf16"):
        body = generic("#mn, #mn", f"%T : memref<$mnx{kind}>", f"%D : memref<$mnx{kind}>",
                       f"%x: {kind}, %o: {kind}", f"""
    %three = arith.constant 3.1 : {kind}
    %0 = arith.divf %x, %three : {kind}
    %1 = arith.addf %x, %0 : {kind}
    %2 = arith.mulf %1, %x : {kind}
    %3 = arith.negf %2 : {kind}
    %4 = arith.maxnumf %3, %x : {kind}
    linalg.yield %4 : {kind}""")  # fmt: skip
        dtype = DTYPES[kind]
        a = np.eye(32, 16, dtype=np.float32).astype(dtype)
        b = draw(16, 16, dtype=dtype)
        x = np.concatenate([b, np.zeros_like(b)])
        three = dtype.type(3.1)
        expected = np.maximum(-((x + x / three) * x), x)
        got = run(function(size, kind, kind, {}, body, acc=kind), a, b, out=kind)
        np.testing.assert_array_equal(got.astype(np.float64) + 0.0, expected.astype(np.float64) + 0.0)


def test_several_operations_fuse_one_after_another() -> None:
    """Named operations, an addition in place, relu by comparison, and an output that is read before."""
    size = (50, 34, 20)
    body = ("""  linalg.add ins(%T, %R : memref<$mnxf32>, memref<$mnxf32>) outs(%T : memref<$mnxf32>)
  linalg.mul ins(%T, %T : memref<$mnxf32>, memref<$mnxf32>) outs(%T : memref<$mnxf32>)
"""
    + generic("#mn, #mn", "%T : memref<$mnxf32>", "%D : memref<$mnxf32>", "%x: f32, %old: f32", """
    %c = arith.constant 2.0 : f32
    %0 = arith.subf %x, %c : f32
    %zero_ = arith.constant 0.0 : f32
    %p = arith.cmpf ogt, %0, %zero_ : f32
    %1 = arith.select %p, %0, %zero_ : f32
    %2 = arith.addf %1, %old : f32
    linalg.yield %2 : f32"""))  # fmt: skip
    a, b, product = operands(size, np.float16)
    residual = draw(size[0], size[1], seed=2)
    text = function(size, "f16", "f32", {"R": "memref<$mnxf32>"}, body)
    kernel = compile(text)
    d = draw(size[0], size[1], seed=3)
    expected = np.maximum((product + residual) ** 2 - 2, 0) + d
    kernel(a, b, residual, d, device="interp")
    assert len(kernel.launches) == 1
    np.testing.assert_allclose(d, expected, rtol=1e-5, atol=1e-4)


def test_c_is_added_before_the_epilogue() -> None:
    """beta = 1, in place."""
    m, n, k = 40, 24, 33
    mn = f"memref<{m}x{n}xf32>"
    text = f"""{MAPS}func.func @f(%A: memref<{m}x{k}xf16>, %B: memref<{k}x{n}xf16>, %C: {mn}) {{
  linalg.matmul ins(%A, %B : memref<{m}x{k}xf16>, memref<{k}x{n}xf16>) outs(%C : {mn})
  linalg.exp ins(%C : {mn}) outs(%C : {mn})
  return
}}"""
    a, b, product = operands((m, n, k), np.float16)
    c = draw(m, n, seed=2)
    expected = np.exp(product * 0.25 + c)
    kernel: Kernel = compile(text)
    kernel(a, (b.astype(np.float32) * 0.25).astype(np.float16), c, device="interp")
    assert len(kernel.launches) == 1
    np.testing.assert_allclose(c, expected, rtol=2e-5)


def test_what_is_not_fused_has_a_kernel_of_its_own() -> None:
    """The caller sees the product as well, so that the temporary is stored."""
    mn = "memref<16x8xf32>"
    text = f"""func.func @f(%A: memref<16x16xf16>, %B: memref<16x8xf16>, %C: {mn}, %D: {mn}) {{
  linalg.matmul ins(%A, %B : memref<16x16xf16>, memref<16x8xf16>) outs(%C : {mn})
  linalg.add ins(%C, %D : {mn}, {mn}) outs(%D : {mn})
  return
}}"""
    a, b, product = operands((16, 8, 16), np.float16)
    c, d = draw(16, 8, seed=2), draw(16, 8, seed=3)
    expected = product + c + d
    kernel: Kernel = compile(text)
    kernel(a, b, c, d, device="interp")
    assert [launch.kernel for launch in kernel.launches] == ["f", "f_1"]
    np.testing.assert_allclose(d, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "schedule",
    [
        {"cta": (64, 64, 32), "warp": (32, 32)},
        {"cta": (128, 64, 16), "warp": (64, 32)},
        {"cta": (64, 64, 32), "warp": (32, 32), "ctas": 2},
        {"cta": (64, 64, 32), "warp": (32, 32), "sliced_k": 2},
        {"cta": (64, 64, 32), "warp": (32, 32), "staging": 32},
    ],
    ids=str,
)
def test_parts_of_warp_tiles(schedule: dict[str, Any]) -> None:
    """Warp tiles of several base tiles down, odd edges, a residual of two bytes an element in odd rows."""
    size = (131, 77, 40)
    body = generic("#mn, #m, #mn", "%R, %bias : memref<$mnxbf16>, memref<$mxf32>", "%T : memref<$mnxf32>",
                   "%r: bf16, %b: f32, %x: f32", """
    %0 = arith.extf %r : bf16 to f32
    %1 = math.fma %0, %b, %x : f32
    linalg.yield %1 : f32""")  # fmt: skip
    body += "  linalg.sub ins(%T, %S : memref<$mnxf32>, memref<$mnxf32>) outs(%D : memref<$mnxf32>)\n"
    a, b, product = operands(size, np.float16)
    residual, bias, other = draw(131, 77, dtype=ml_dtypes.bfloat16, seed=2), draw(131, seed=3), draw(131, 77, seed=4)
    epilogue_operands = {"R": "memref<$mnxbf16>", "bias": "memref<$mxf32>", "S": "memref<$mnxf32>"}
    got = run(function(size, "f16", "f32", epilogue_operands, body), a, b, residual, bias, other, out="f32", **schedule)
    np.testing.assert_allclose(got, product + residual.astype(float) * bias[:, None] - other, rtol=1e-5, atol=1e-4)


def test_parts_of_k_are_added_up_before_the_epilogue() -> None:
    a, b, product = operands((48, 40, 64), ml_dtypes.bfloat16)
    bias = draw(40, seed=2)
    text = function((48, 40, 64), "bf16", "bf16", {"bias": "memref<$nxf32>"}, BIAS_GELU)
    kernel = compile(text, split_k=2, cta=(16, 16, 16), warp=(16, 16))
    assert len(kernel.launches) == 1
    d = np.full((48, 40), np.nan, ml_dtypes.bfloat16)
    kernel(a, b, bias, d, device="interp")
    x = product + bias
    expected = 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(d.astype(np.float64), expected, rtol=2.0**-8, atol=1e-5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("types", "form"), [("f16 f16 f16 f16", "gelu by tanh"), ("bf16 bf16 f32", "gelu by erf")])
def test_strips_with_functions_are_apart(types: str, form: str) -> None:
    """Each but the first of a warp's four strips of 16 rows is in a branch: ptxas would compute them all at once. The
    second warps have one strip, and a part of another, that D has."""
    tile = {"cta": (128, 64, 32), "warp": (64, 32), "stages": 2}
    product = Product(Types(*types.split()), form, "A B", (85, 72, 40), tile)
    kernel, instance = product.compile("sm_80"), problem(product, 5)
    stores = re.split(r"// warp\.store", kernel.ptx)[:-1]
    assert ["bra skipped" in before for before in stores[1:]] == [True] * 3
    kernel(*instance.arguments, device="interp", checks="all")
    assert instance.wrong() == ""
