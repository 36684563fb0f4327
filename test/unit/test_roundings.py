"""Roundings are kept where the IR has them: in rows, elementwise kernels, epilogues and products, against numpy and
ml_dtypes, which round there too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attentions import Attention
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from warploom.dialect.isa.form import ELEMENT_TYPES
from warploom.passes.diagnostics import remarks
from warploom.passes.linalg.bufferize import BufferizePass
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import CompileError, compile
from warploom.runtime.arguments.arrays import DTYPES
from warploom.runtime.cli.command import main
from warploom.runtime.plan import host
from warploom.runtime.reference.functions import compare, evaluate
from warploom.runtime.reference.product import Reference

Array = NDArray[Any]

POISON = 99
NARROW = ("f16", "bf16", "f8E4M3FN", "f8E5M2")

pytestmark = pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")


def on_memory(text: str) -> ModuleOp:
    module = parse_mlir(make_context(), text)
    BufferizePass().apply(make_context(), module)
    return module


def check(text: str, *sizes: tuple[int, ...]) -> list[Array]:
    """The arguments of a function of f32 or of its own types after a run, the last of which is in its bound."""
    kernel, random = compile(text), np.random.default_rng()
    kinds = [DTYPES[parameter.element] for parameter in kernel.function.parameters]
    arrays = [random.standard_normal(shape).astype(kind) for shape, kind in zip(sizes, kinds, strict=True)]
    arrays[-1][...] = POISON
    exact = reference(text, *arrays)[-1]
    kernel(*arrays, device="interp", checks="all")
    comparison = compare(exact, arrays[-1])
    assert comparison.ok, comparison
    return arrays


def reference(text: str, *arrays: Array) -> list[Reference]:
    return evaluate(host.choose(on_memory(text), None), [np.array(array) for array in arrays])


def edges(shape: tuple[int, ...]) -> Array:
    """Numbers, and at the front those at which types end: overflows, ties, subnormal numbers, no numbers."""
    x = np.random.default_rng().standard_normal(shape).astype(np.float32) * 4
    special = [1.0004, 1e6, -1e6, 464, -464.01, 65504, 65519.9, 65520, -57344, -61440, 61439, np.nan, np.inf, -np.inf]
    special += [0.0, -0.0, 2.0**-9, 2.0**-10, 3 * 2.0**-10, 2.0**-17, 2.0**-24, 2.0**-25, 3e-5, 3.4e38, 1 + 2.0**-8]
    x.reshape(-1)[: len(special)] = special
    return x


# Elementwise kernels and epilogues

ELEMENTWISE = """#mn = affine_map<(m, n) -> (m, n)>
func.func @f(%x: memref<9x11xf32>, %y: memref<9x11x{stored}>) {{
  linalg.generic {{indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]}}
      ins(%x : memref<9x11xf32>) outs(%y : memref<9x11x{stored}>) {{
  ^bb0(%a: f32, %old: {stored}):
    {body}
    linalg.yield %r : {stored}
  }}
  return
}}"""

EPILOGUE = """#mn = affine_map<(m, n) -> (m, n)>
func.func @f(%x: memref<9x11xf32>, %A: memref<9x16xf16>, %B: memref<16x11xf16>, %y: memref<9x11x{stored}>) {{
  %zero = arith.constant 0.0 : f32
  %t = memref.alloc() : memref<9x11xf32>
  linalg.fill ins(%zero : f32) outs(%t : memref<9x11xf32>)
  linalg.matmul ins(%A, %B : memref<9x16xf16>, memref<16x11xf16>) outs(%t : memref<9x11xf32>)
  linalg.generic {{indexing_maps = [#mn, #mn, #mn], iterator_types = ["parallel", "parallel"]}}
      ins(%t, %x : memref<9x11xf32>, memref<9x11xf32>) outs(%y : memref<9x11x{stored}>) {{
  ^bb0(%p: f32, %b: f32, %old: {stored}):
    %a = arith.addf %p, %b : f32
    {body}
    linalg.yield %r : {stored}
  }}
  return
}}"""

ROUNDED = "%0 = arith.truncf %a : f32 to {kind}\n %r = arith.extf %0 : {kind} to f32"
STORED = "%r = arith.truncf %a : f32 to {kind}"


@pytest.mark.sampled(12)
@pytest.mark.parametrize("kind", NARROW)
@pytest.mark.parametrize("stored", [False, True], ids=["extended", "stored"])
def test_elements_and_epilogues_round_alike(kind: str, stored: bool) -> None:
    """The product of an epilogue is 0, so that both have the same elements; -0 becomes +0."""
    element = kind if stored else "f32"
    body = (STORED if stored else ROUNDED).format(kind=kind)
    for text in (ELEMENTWISE, EPILOGUE):
        x, y = edges((9, 11)) + np.float32(0), np.full((9, 11), POISON).astype(DTYPES[element])
        factors = [np.zeros(shape, np.float16) for shape in ((9, 16), (16, 11))] if text is EPILOGUE else []
        text = text.format(stored=element, body=body)
        kernel = compile(text)
        assert len(kernel.launches) == 1
        exact = reference(text, x, *factors, y)[-1]
        kernel(x, *factors, y, device="interp", checks="all")
        wanted = x.astype(DTYPES[kind]).astype(DTYPES[element])
        np.testing.assert_array_equal(y.astype(np.float32), wanted.astype(np.float32))
        assert compare(exact, y).ok
        if not stored:
            assert not compare(exact, x).ok


def test_what_is_clamped_before_eight_bits_needs_no_comparison() -> None:
    """Nothing is beyond 448 then but NaN."""
    body = """%low = arith.constant -448.0 : f32
    %high = arith.constant 448.0 : f32
    %0 = arith.maximumf %a, %low : f32
    %1 = arith.minimumf %0, %high : f32
    %r = arith.truncf %1 : f32 to f8E4M3FN"""
    x, y = edges((9, 11)), np.zeros((9, 11), DTYPES["f8E4M3FN"])
    kernel = compile(ELEMENTWISE.format(stored="f8E4M3FN", body=body))
    kernel(x, y, device="interp", checks="all")
    wanted = np.clip(x, -448, 448).astype(y.dtype)
    np.testing.assert_array_equal(y.view(np.uint8)[~np.isnan(x)], wanted.view(np.uint8)[~np.isnan(x)])
    assert np.isnan(y.astype(np.float32)[np.isnan(x)]).all()
    assert "setp.gt.f32" not in kernel.ptx
    assert "setp.gt.f32" in compile(ELEMENTWISE.format(stored="f8E4M3FN", body=STORED.format(kind="f8E4M3FN"))).ptx


# fastmath


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("first", "second", "dropped"),
    [
        ("fastmath<contract>", "fastmath<contract>", True),
        ("fastmath<fast>", "fastmath<nnan,contract>", True),
        ("fastmath<contract>", "", False),
        ("", "fastmath<contract>", False),
        ("fastmath<reassoc>", "fastmath<reassoc>", False),
        ("to_nearest_even", "", False),
    ],
)
def test_a_pair_that_may_contract_is_left_out(first: str, second: str, dropped: bool) -> None:
    """In each kind of kernel; the reference allows both."""
    flagged = ROUNDED.format(kind="bf16").replace("%a", f"%a {first}").replace("%0 :", f"%0 {second} :")
    x = np.random.default_rng().standard_normal((9, 11)).astype(np.float32)
    rounded = x.astype(DTYPES["bf16"]).astype(np.float32)
    for text in (ELEMENTWISE, EPILOGUE):
        y = np.full((9, 11), POISON, np.float32)
        factors = [np.zeros(shape, np.float16) for shape in ((9, 16), (16, 11))] if text is EPILOGUE else []
        text = text.format(stored="f32", body=flagged)
        compile(text)(x, *factors, y, device="interp")
        np.testing.assert_array_equal(y, x if dropped else rounded)
        exact = reference(text, x, *factors, y)[-1]
        assert compare(exact, rounded).ok
        assert compare(exact, x).ok == dropped
    text = ROUNDED_SUM.format(m=9, n=11, kind="bf16").replace("truncf %a", f"truncf %a {first}")
    text, y = text.replace("extf %0", f"extf %0 {second}"), np.zeros(9, np.float32)
    compile(text)(x, y, device="interp")
    np.testing.assert_allclose(y, (x if dropped else rounded).sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ("arith.truncf %a toward_zero : f32 to f16", "expected arith.truncf to round to_nearest_even, got toward_zero"),
        ("arith.truncf %a {roundingmode = 7 : i32} : f32 to f16", "expected roundingmode as a word before fastmath"),
        ("arith.truncf %a : f32 to f64", "expected a type narrower than f32, got f64"),
        ("arith.extf %a : f32 to f16", "expected a type wider than f32, got f16"),
    ],
)
def test_other_conversions_are_refused(operation: str, message: str) -> None:
    with pytest.raises(CompileError, match=rf"<mlir>:6:5: error: .*{message}"):
        compile(ELEMENTWISE.format(stored=operation.rpartition(" ")[2], body=f"%r = {operation}"))


# Sums of products

PRODUCT = """#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>
func.func @f(%A: memref<5x40x{kind}>, %B: memref<40x7x{kind}>, %C: memref<5x7xf32>) {{
  linalg.generic {{indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%A, %B : memref<5x40x{kind}>, memref<40x7x{kind}>) outs(%C : memref<5x7xf32>) {{
  ^bb0(%a: {kind}, %b: {kind}, %c: f32):
    %0 = arith.mulf %a, %b : {kind}
    %1 = arith.extf %0 : {kind} to f32
    %r = arith.{by} %c, %1 : f32
    linalg.yield %r : f32
  }}
  return
}}"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("by", ["addf", "subf"])
def test_products_that_are_rounded_before_they_are_summed(kind: str, by: str) -> None:
    """300 * 300 is beyond f16."""
    random, text = np.random.default_rng(), PRODUCT.format(kind=kind, by=by)
    a, b = (random.standard_normal(shape).astype(DTYPES[kind]) for shape in ((5, 40), (40, 7)))
    a[2, 3], b[3], c = 300, 300, random.standard_normal((5, 7)).astype(np.float32)
    exact, before = reference(text, a, b, c)[-1], c.astype(np.float64)
    compile(text)(a, b, c, device="interp", checks="all")
    terms = (a[:, :, None] * b[None]).astype(np.float64).sum(1)
    wanted = before + (terms if by == "addf" else -terms)
    assert np.isinf(wanted[2]).all() == (kind == "f16")
    np.testing.assert_allclose(c, wanted.astype(np.float32), rtol=1e-5, atol=2e-4)
    assert compare(exact, c).ok
    unrounded = before + (a.astype(np.float64) @ b.astype(np.float64)) * (1 if by == "addf" else -1)
    assert not compare(exact, unrounded.astype(np.float32)).ok
    with remarks() as said:
        compile(text)
    reason = f"each product is rounded to {kind} before it is added; extend the factors, not their product"
    assert f"<mlir>:5:3: remark: warp-fuse-rows: a product of matrices uses no tensor core: {reason}" in said


def test_other_sums_of_products_say_why_they_use_no_tensor_core() -> None:
    text = PRODUCT.format(kind="f16", by="addf").replace(
        "%1 = arith.extf %0", "%2 = math.exp %0 : f16 %1 = arith.extf %2"
    )
    wide = PRODUCT.format(kind="f32", by="addf").replace(
        "%1 = arith.extf %0 : f32 to f32", "%1 = arith.mulf %0, %a : f32"
    )
    for other, wanted in ((text, []), (wide, ["its factors are computed, or more than two"])):
        with remarks() as said:
            compile(other)
        reasons = [one.partition("no tensor core: ")[2] for one in said if "no tensor core" in one]
        assert reasons == wanted


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
def test_a_product_in_16_bits_is_rounded_once_and_a_remark_says_so(kind: str) -> None:
    """300 * 300 - 300 * 300 is not a number where each product is rounded to f16."""
    types = ", ".join(
        f"%{name}: memref<{shape}x{kind}>" for name, shape in zip("abc", ("4x8", "8x4", "4x4"), strict=True)
    )
    text = f"""func.func @f({types}) {{
  linalg.matmul ins(%a, %b : memref<4x8x{kind}>, memref<8x4x{kind}>) outs(%c : memref<4x4x{kind}>)
  return
}}"""
    a, b, c = (np.zeros(shape, DTYPES[kind]) for shape in ((4, 8), (8, 4), (4, 4)))
    a[:, 0], a[:, 1], b[:2] = 300, -300, 300
    with remarks() as said:
        kernel = compile(text, tf32=True)
    exact = reference(text, a, b, c)[-1]
    kernel(a, b, c, device="interp")
    assert not c.any()
    assert compare(exact, c).ok
    if kind == "f16":  # each instruction adds exact products, and rounds its sum
        compile(text, accumulate="f16")(a, b, c, device="interp")
        assert not c.any()
    message = f"its body rounds each product and each sum to {kind}; the kernel adds exact products, and rounds once"
    end = " (accumulate = f16: after each instruction)" if kind == "f16" else ""
    rounding = [one for one in said if "rounds each product" in one]
    assert rounding == ([] if kind == "f32" else [f"<mlir>:2:3: remark: warp-raise-matmul: {message}{end}"])


# Attention


def test_scores_that_are_rounded_stay_rounded_in_an_attention() -> None:
    """Scores of 320 in bf16 are even, so their exponentials are off by a sixth."""
    asked = Attention((9, 33, 32, 16), "bf16", batch=())
    exact = "= arith.mulf %x0, %scale : f32"
    assert exact in asked.mlir
    narrow = "%n = arith.truncf %x0 : f32 to bf16 %w = arith.extf %n : bf16 to f32"
    scaled = next(line.strip() for line in asked.mlir.splitlines() if exact in line)
    text = asked.mlir.replace(scaled, f"{narrow} {scaled.replace('%x0', '%w')}")
    kernel, random = compile(text, "sm_90a"), np.random.default_rng()
    assert len(kernel.launches) == 1
    q, k, v = (random.integers(-1, 2, shape).astype(DTYPES["bf16"]) for shape in ((9, 32), (33, 32), (33, 16)))
    q[:, 0], k[:, 0], o = 16, 20, np.zeros((9, 16), DTYPES["bf16"])
    kernel(q, k, v, o, device="interp")
    scores = q.astype(np.float32) @ k.astype(np.float32).T

    def attention(scores: Array) -> Array:
        e = np.exp((scores - scores.max(1, keepdims=True)).astype(np.float64) * asked.scale)
        return (e / e.sum(1, keepdims=True)) @ v.astype(np.float64)

    wanted, unrounded = attention(scores.astype(DTYPES["bf16"]).astype(np.float32)), attention(scores)
    off = np.abs(o.astype(np.float64) - wanted).max()
    assert off < 2.0**-6
    assert np.abs(unrounded - wanted).max() > 2 * off


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("exact", "rounded", "reason"),
    [
        ("%r = math.exp %0 : f32", "%1 = math.exp %0 : f32", "its exponentials are"),
        ("%0 = arith.subf %x0, %x1 : f32", "%1 = arith.subf %x0, %x1 : f32", "the exponent is"),
    ],
)
def test_a_softmax_that_is_rounded_within_is_no_attention(exact: str, rounded: str, reason: str) -> None:
    asked = Attention((9, 33, 32, 16), "bf16", batch=())
    name = exact.partition(" ")[0]
    text = asked.mlir.replace(exact, f"{rounded} %n = arith.truncf %1 : f32 to f16 {name} = arith.extf %n : f16 to f32")
    with remarks() as said:
        kernel = compile(text, "sm_90a")
    assert len(kernel.launches) > 1
    wanted = f"it is not fused into an attention: {reason} rounded to f16, and would be computed in f32"
    assert any(one.endswith(wanted) for one in said)


# What cannot be checked


def test_an_infinite_bound_is_no_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A divisor that may be 0: a sum whose terms cancel."""
    text = """func.func @f(%x: memref<4x8xf32>, %y: memref<4xf32>) {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  linalg.fill ins(%zero : f32) outs(%y : memref<4xf32>)
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>],
                  iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<4x8xf32>) outs(%y : memref<4xf32>) {
  ^bb0(%a: f32, %old: f32):
    %0 = arith.subf %a, %a : f32
    %1 = math.exp %a : f32
    %2 = arith.subf %1, %1 : f32
    %r = arith.addf %old, %2 : f32
    linalg.yield %r : f32
  }
  linalg.generic {indexing_maps = [affine_map<(m) -> (m)>], iterator_types = ["parallel"]}
      outs(%y : memref<4xf32>) {
  ^bb0(%old: f32):
    %r = arith.divf %one, %old : f32
    linalg.yield %r : f32
  }
  return
}"""
    (path := tmp_path / "quotient.mlir").write_text(text)
    assert main(["run", str(path), "--device", "interp", "--check", "--no-cache"]) == 1
    printed = capsys.readouterr().out
    assert "%y cannot be checked: the bound of 4 elements is infinite" in printed
    assert "within" not in printed.partition("any result")[0].partition("check ")[2]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_a_softmax_of_16_bits_is_rounded_once(kind: str) -> None:
    memory = f"memref<6x65x{kind}>"
    text = f"""func.func @f(%x: {memory}, %y: {memory}) {{
  linalg.softmax dimension(1) ins(%x : {memory}) outs(%y : {memory})
  return
}}"""
    x, y = check(text, (6, 65), (6, 65))
    e = np.exp(x.astype(np.float64) - x.astype(np.float64).max(1, keepdims=True))
    wanted = e / e.sum(1, keepdims=True)
    unit = {"f16": 2.0**-11, "bf16": 2.0**-8}[kind]
    assert (np.abs(y.astype(np.float64) - wanted) <= wanted * unit * 1.01 + 2.0**-25).all()


@pytest.mark.parametrize("name", ["f16", "bf16", "f32"])
def test_constants_are_rounded_as_numpy_rounds_them(name: str) -> None:
    element, values = ELEMENT_TYPES[name], edges((9, 11))
    wanted = values.astype(DTYPES[name]).astype(np.float64)
    np.testing.assert_array_equal([element.nearest(float(value)) for value in values.flat], wanted.ravel())


# Rows

ROUNDED_SUM = """func.func @f(%x: memref<{m}x{n}xf32>, %y: memref<{m}xf32>) {{
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%y : memref<{m}xf32>)
  linalg.generic {{indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>],
                   iterator_types = ["parallel", "reduction"]}}
      ins(%x : memref<{m}x{n}xf32>) outs(%y : memref<{m}xf32>) {{
  ^bb0(%a: f32, %old: f32):
    %0 = arith.truncf %a : f32 to {kind}
    %1 = arith.extf %0 : {kind} to f32
    %r = arith.addf %old, %1 : f32
    linalg.yield %r : f32
  }}
  return
}}"""


@pytest.mark.parametrize("kind", ["f16", "bf16", "f8E4M3FN", "f8E5M2"])
@pytest.mark.filterwarnings("ignore:overflow")
def test_what_is_rounded_before_a_sum_stays_rounded(kind: str) -> None:
    """1.0004 is 1 in each; 1e6 is infinity or, where there is none, NaN; the middle between the largest number and the
    next goes where `ml_dtypes` has it."""
    x = np.random.default_rng().standard_normal((9, 32)).astype(np.float32)
    x[0], x[1, 3], x[2, 4], x[3, 5], x[4, 6] = 1.0004, 1e6, 464, -464.01, 65520
    x[5, 7], x[6, 8], x[7, 9], x[8, 10] = -61440, 61439, np.nan, -np.inf
    y, before = np.full(9, POISON, np.float32), x.copy()
    compile(text := ROUNDED_SUM.format(m=9, n=32, kind=kind))(x, y, device="interp", checks="all")
    wanted = x.astype(DTYPES[kind]).astype(np.float64).sum(1)
    np.testing.assert_allclose(y, wanted.astype(np.float32), rtol=1e-6, atol=1e-5)
    assert y[0] == 32
    reference = evaluate(host.choose(on_memory(text), None), [before, np.zeros_like(y)])[-1]
    assert compare(reference, y).ok
    assert not compare(reference, x.sum(1)).ok


def test_rows_quantised_to_8_bits() -> None:
    """x / s, rounded to f8E4M3FN, times s, where s is 1/448 of the largest of each row."""
    text = """
#mn = affine_map<(m, n) -> (m, n)>
#m = affine_map<(m, n) -> (m)>
func.func @f(%x: memref<7x37xf32>, %y: memref<7x37xf32>) {
  %zero = arith.constant 0.0 : f32
  %most = arith.constant 448.0 : f32
  %s = memref.alloc() : memref<7xf32>
  linalg.fill ins(%zero : f32) outs(%s : memref<7xf32>)
  linalg.generic {indexing_maps = [#mn, #m], iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<7x37xf32>) outs(%s : memref<7xf32>) {
  ^bb0(%a: f32, %old: f32):
    %0 = math.absf %a : f32
    %r = arith.maximumf %old, %0 : f32
    linalg.yield %r : f32
  }
  linalg.generic {indexing_maps = [#mn, #m, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : memref<7x37xf32>, memref<7xf32>) outs(%y : memref<7x37xf32>) {
  ^bb0(%a: f32, %largest: f32, %old: f32):
    %scale = arith.divf %largest, %most : f32
    %0 = arith.divf %a, %scale : f32
    %1 = arith.truncf %0 : f32 to f8E4M3FN
    %2 = arith.extf %1 : f8E4M3FN to f32
    %r = arith.mulf %2, %scale : f32
    linalg.yield %r : f32
  }
  return
}"""
    x, y = check(text, (7, 37), (7, 37))
    scale = np.abs(x).max(1, keepdims=True) / np.float32(448)
    np.testing.assert_array_equal(y, (x / scale).astype(DTYPES["f8E4M3FN"]).astype(np.float32) * scale)
    with pytest.raises(CompileError, match=r"needs sm_89 or later; the target is sm_80"):
        compile(text, "sm_80")


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_rows_in_16_bits_are_rounded_after_each_operation(kind: str) -> None:
    """A sum of 16-bit elements is made in f32 and rounded once; what follows it is rounded in each operation."""
    text = f"""
#mn = affine_map<(m, n) -> (m, n)>
#m = affine_map<(m, n) -> (m)>
func.func @f(%x: memref<6x50x{kind}>, %y: memref<6x50x{kind}>) {{
  %zero = arith.constant 0.0 : {kind}
  %tenth = arith.constant 0.1 : {kind}
  %s = memref.alloc() : memref<6x{kind}>
  linalg.fill ins(%zero : {kind}) outs(%s : memref<6x{kind}>)
  linalg.generic {{indexing_maps = [#mn, #m], iterator_types = ["parallel", "reduction"]}}
      ins(%x : memref<6x50x{kind}>) outs(%s : memref<6x{kind}>) {{
  ^bb0(%a: {kind}, %old: {kind}):
    %0 = arith.mulf %a, %a : {kind}
    %r = arith.addf %old, %0 : {kind}
    linalg.yield %r : {kind}
  }}
  linalg.generic {{indexing_maps = [#mn, #m, #mn], iterator_types = ["parallel", "parallel"]}}
      ins(%x, %s : memref<6x50x{kind}>, memref<6x{kind}>) outs(%y : memref<6x50x{kind}>) {{
  ^bb0(%a: {kind}, %sum: {kind}, %old: {kind}):
    %0 = arith.mulf %a, %sum : {kind}
    %1 = arith.addf %0, %tenth : {kind}
    %r = arith.subf %1, %a : {kind}
    linalg.yield %r : {kind}
  }}
  return
}}"""
    x = np.random.default_rng().integers(-6, 7, (6, 50)).astype(DTYPES[kind])
    y = np.full_like(x, POISON)
    compile(text)(x, y, device="interp", checks="all")
    total = (x * x).astype(np.float32).sum(1, keepdims=True).astype(x.dtype)
    np.testing.assert_array_equal(y, x * total + DTYPES[kind].type(0.1) - x)


def test_a_softmax_that_is_rounded_before_it_is_summed() -> None:
    """P is truncated to bf16 and extended: each row of it is summed, and the sums stored in f32."""
    text = """
#mn = affine_map<(m, n) -> (m, n)>
#m = affine_map<(m, n) -> (m)>
func.func @f(%x: memref<5x64xf32>, %y: memref<5xf32>) {
  %zero = arith.constant 0.0 : f32
  %p = memref.alloc() : memref<5x64xf32>
  linalg.softmax dimension(1) ins(%x : memref<5x64xf32>) outs(%p : memref<5x64xf32>)
  linalg.fill ins(%zero : f32) outs(%y : memref<5xf32>)
  linalg.generic {indexing_maps = [#mn, #m], iterator_types = ["parallel", "reduction"]}
      ins(%p : memref<5x64xf32>) outs(%y : memref<5xf32>) {
  ^bb0(%a: f32, %old: f32):
    %0 = arith.truncf %a : f32 to bf16
    %1 = arith.extf %0 : bf16 to f32
    %r = arith.addf %old, %1 : f32
    linalg.yield %r : f32
  }
  return
}"""
    x, y = check(text, (5, 64), (5,))
    exact = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    p = (exact / exact.sum(1, keepdims=True)).astype(np.float32).astype(DTYPES["bf16"])
    wanted = p.astype(np.float64).sum(1)
    assert np.abs(wanted - 1).max() > 1e-4
    # a few elements may lie so near a tie that f32 rounds them the other way
    assert (np.abs(y - wanted) < 1e-6).sum() >= 3


def test_an_fma_of_16_bits_is_no_part_of_rows_and_f64_is() -> None:
    text = ROUNDED_SUM.format(m=4, n=8, kind="f16")
    twice = text.replace("%1 = arith.extf %0 :", "%2 = math.fma %0, %0, %0 : f16\n %1 = arith.extf %2 :")
    with pytest.raises(CompileError, match=r"math\.fma on elements of f16 is not lowered; on f32 and f64 it is"):
        compile(twice)
    wide = text.replace("truncf", "extf").replace("extf %0", "truncf %0").replace("f16", "f64")
    x, y = np.random.default_rng().standard_normal((4, 8)).astype(np.float32), np.full(4, np.nan, np.float32)
    compile(wide)(x, y, device="interp")
    np.testing.assert_allclose(y, x.sum(axis=1, dtype=np.float64), rtol=0, atol=8 * 2.0**-24 * np.abs(x).sum())


ZEROS = """func.func @f(%x0: memref<2x33xf32>, %t4: memref<2x33xf32>) {
  %t1 = memref.alloc() : memref<2xf32>
  %v1 = arith.constant 0.0 : f32
  linalg.fill ins(%v1 : f32)
    outs(%t1 : memref<2xf32>)
  linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>],
    iterator_types = ["parallel", "reduction"]}
    ins(%x0 : memref<2x33xf32>)
    outs(%t1 : memref<2xf32>) {
  ^bb0(%a0: f32, %old: f32):
    %s0 = math.absf %a0 : f32
    %r = arith.maxnumf %old, %s0 : f32
    linalg.yield %r : f32
  }
  %c0 = arith.constant -0.0 : f32
  linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>,
    affine_map<(d0, d1) -> (d0, d1)>],
    iterator_types = ["parallel", "parallel"]}
    ins(%x0, %t1 : memref<2x33xf32>, memref<2xf32>)
    outs(%t4 : memref<2x33xf32>) {
  ^bb0(%a0: f32, %a1: f32, %old: f32):
    %s0 = arith.addf %a0, %a1 : f32
    %s1 = arith.divf %s0, %c0 : f32
    linalg.yield %s1 : f32
  }
  return
}
"""


def test_zeros_of_either_sign_are_two_numbers() -> None:
    x = (np.random.default_rng(5).random((2, 33)) + 1).astype(np.float32)
    y = np.full_like(x, np.nan)
    compile(ZEROS, cache=False)(x, y, device="interp")
    assert (y == -np.inf).all()


# Weights of integers that are scaled before a product


def test_weights_are_rounded_after_they_are_scaled_unless_flags_say_otherwise() -> None:
    """The reference tells a product of rounded weights from one whose sums are scaled."""
    text = """#kn = affine_map<(k, n) -> (k, n)>
func.func @f(%A: memref<21x16xf16>, %Q: memref<16x48xi8>, %S: memref<48xf16>, %C: memref<21x48xf32>) {
  %zero = arith.constant 0.0 : f32
  %W = memref.alloc() : memref<16x48xf16>
  linalg.generic {indexing_maps = [#kn, affine_map<(k, n) -> (n)>, #kn], iterator_types = ["parallel", "parallel"]}
      ins(%Q, %S : memref<16x48xi8>, memref<48xf16>) outs(%W : memref<16x48xf16>) {
  ^bb0(%q: i8, %s: f16, %old: f16):
    %0 = arith.sitofp %q : i8 to f16
    %w = arith.mulf %0, %s : f16
    linalg.yield %w : f16
  }
  linalg.fill ins(%zero : f32) outs(%C : memref<21x48xf32>)
  linalg.matmul ins(%A, %W : memref<21x16xf16>, memref<16x48xf16>) outs(%C : memref<21x48xf32>)
  return
}"""
    rng = np.random.default_rng()
    a, s = rng.standard_normal((21, 16)).astype(np.float16), (rng.random(48) + 0.1).astype(np.float16)
    q = rng.integers(-128, 128, (16, 48)).astype(np.int8)
    for flag in ("", "contract", "reassoc"):
        own = text.replace("%s : f16\n", f"%s fastmath<{flag}> : f16\n") if flag else text
        c = np.full((21, 48), POISON, np.float32)
        kernel = compile(own, cache=False)
        assert len(kernel.launches) == 1
        kernel(a, q, s, c, device="interp")
        assert compare(reference(own, a, q, s, c)[-1], c).ok
        assert compare(reference(text, a, q, s, c)[-1], c).ok == (not flag)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("body", [
    "%0 = arith.sitofp %q : i8 to f32\n %1 = arith.truncf %0 : f32 to f8E5M2\n %w = arith.extf %1 : f8E5M2 to f16",
    "%0 = arith.sitofp %q : i8 to f16\n %c = arith.constant 0.1 : f16\n %1 = arith.mulf %0, %c : f16\n"
    "%w = arith.mulf %1, %s : f16",
])  # fmt: skip
def test_other_roundings_of_weights_are_those_of_a_kernel_of_its_own(body: str) -> None:
    text = f"""#kn = affine_map<(k, n) -> (k, n)>
func.func @f(%Q: memref<16x48xi8>, %S: memref<48xf16>, %A: memref<21x16xf16>, %C: memref<21x48xf32>) {{
  %W = memref.alloc() : memref<16x48xf16>
  linalg.generic {{indexing_maps = [#kn, affine_map<(k, n) -> (n)>, #kn], iterator_types = ["parallel", "parallel"]}}
      ins(%Q, %S : memref<16x48xi8>, memref<48xf16>) outs(%W : memref<16x48xf16>) {{
  ^bb0(%q: i8, %s: f16, %old: f16):
    {body}
    linalg.yield %w : f16
  }}
  linalg.matmul ins(%A, %W : memref<21x16xf16>, memref<16x48xf16>) outs(%C : memref<21x48xf32>)
  return
}}"""
    rng = np.random.default_rng()
    a, s = rng.standard_normal((21, 16)).astype(np.float16), (rng.random(48) + 0.1).astype(np.float16)
    q, c = rng.integers(-128, 128, (16, 48)).astype(np.int8), np.zeros((21, 48), np.float32)
    exact, kernel = reference(text, q, s, a, c)[-1], compile(text, "sm_90a", cache=False)
    kernel(q, s, a, c, device="interp")
    assert compare(exact, c).ok
    assert len(kernel.launches) == 2
