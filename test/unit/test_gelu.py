"""Gelus as one operation: recognised however they are written, within their bounds, no neighbour touched by NaN."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from problems import problem
from products import Product, Types
from single_warp import run

from warploom.passes.tile.gelu import RaiseGeluPass
from warploom.passes.universe import make_context, parse_mlir

Floats = NDArray[np.float64]

TILE = "!warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>"
ROWS, COLUMNS = 16, 16
BODY = f"""
    %c16 = arith.constant 16 : index
    %block = "gpu.block_id"() <{{dimension = #gpu<dim x>}}> : () -> index
    %m = arith.muli %block, %c16 : index
    %x = warp.load %X[%m, %z] {{in_bounds = [true, true]}} : $X -> {TILE}
    %y = warp.map %x : {TILE} -> {TILE} (%e: f32) {{
      %f = warp.gelu "NAME" %eWORDS : f32
      warp.yield %f : f32
    }}
    warp.store %y, %Y[%m, %z] {{in_bounds = [true, true]}} : {TILE}, $Y"""
"""Elements stay f32, so that errors are those of the function."""


def apply(name: str, x: NDArray[np.float32], words: str = "") -> Floats:
    y = np.full_like(x, np.nan)
    run("sm_90a", BODY.replace("NAME", name).replace("WORDS", words), ctas=x.shape[0] // ROWS, X=x, Y=y)
    return y.astype(np.float64)


def by_tanh(x: Floats) -> Floats:
    # x (1 + tanh(u)) / 2 without the difference of near numbers.
    return x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def by_erf(x: Floats) -> Floats:
    result: Floats = np.vectorize(lambda one: one / 2 * math.erfc(-one / math.sqrt(2)), otypes=[np.float64])(x)
    return result


def silu(x: Floats) -> Floats:
    with np.errstate(over="ignore"):
        result: Floats = x / (1 + np.exp(-x))
    return result


def erf_gradient(x: Floats) -> Floats:
    below = np.vectorize(lambda one: math.erfc(-one / math.sqrt(2)) / 2, otypes=[np.float64])(x)
    bounded = np.clip(x, -40, 40)
    result: Floats = below + bounded * np.exp(-(bounded**2) / 2) / math.sqrt(2 * math.pi)
    return result


OPERATIONS = f"""
    %y = warp.map %x : {TILE} -> {TILE} (%e: f32) {{
      %one = arith.constant 1.0 : f32
      %t = math.NAME %e : f32
      %s = arith.addf %one, %t : f32
      %f = arith.mulf %e, %s : f32
      warp.yield %f : f32
    }}"""
"""What a gelu is written as, but for factors."""


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_operation_by_operation_minus_infinity_is_multiplied_by_zero(name: str) -> None:
    x = np.full((ROWS, COLUMNS), 1.5, np.float32)
    x[:, ::5] = np.array([np.nan, np.inf, -np.inf, -3e38], np.float32)
    y = np.full_like(x, -1)
    before, mapped, after = BODY.partition(BODY[BODY.index("    %y") : BODY.index("    warp.store")])
    assert mapped
    run("sm_90a", before + OPERATIONS.replace("NAME", name) + "\n" + after, X=x, Y=y)
    np.testing.assert_array_equal(y[:, ::5], [[np.nan, np.inf, np.nan, 0]] * ROWS)


BOUNDS = {"tanh": (by_tanh, 5e-10), "erf": (by_erf, 5e-7), "silu": (silu, 5e-10)}
"""What each gelu is, and the bound on its absolute error, of |x|, beside a relative error of 2e-6."""


def arguments() -> NDArray[np.float32]:
    """Every exponent and both signs, more of those where a gelu does something; neighbours are far from each other."""
    rng = np.random.default_rng(0)
    exponents = np.concatenate([np.repeat(np.arange(-149, 128), 30), np.repeat(np.arange(-6, 4), 2500)])
    values = rng.uniform(1, 2, exponents.size) * np.exp2(exponents) * rng.choice([-1, 1], exponents.size)
    rng.shuffle(values)
    return values[: values.size - values.size % (ROWS * COLUMNS)].astype(np.float32).reshape(-1, COLUMNS)


@pytest.mark.parametrize("name", BOUNDS)
def test_gelus_keep_their_bounds(name: str) -> None:
    exact, absolute = BOUNDS[name]
    x = arguments()
    with np.errstate(over="ignore"):
        expected = exact(x.astype(np.float64))
    error = np.abs(apply(name, x) - expected)
    small = 2.0**-126
    assert (error <= absolute * np.abs(x) + 2e-6 * np.abs(expected) + small).all(), (error / np.abs(x)).max()


def test_the_gradient_of_a_gelu_keeps_its_bound() -> None:
    x = arguments()
    x[0, :4] = np.array([np.inf, -np.inf, 0.0, -5.75], np.float32)
    expected = erf_gradient(x.astype(np.float64))
    error = np.abs(apply("erf_gradient", x) - expected)
    assert (error <= 5e-7).all(), error.max()
    x[0, 0] = np.nan
    result = apply("erf_gradient", x)
    assert np.isnan(result[0, 0])
    assert np.isfinite(result.flatten()[1:]).all()


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_approximate_gelus(name: str) -> None:
    x = np.random.default_rng(1).uniform(-20, 20, (512, COLUMNS)).astype(np.float32)
    error = np.abs(apply(name, x, " {approximate}") - BOUNDS[name][0](x.astype(np.float64)))
    assert (error <= 1e-3 * np.abs(x)).all()
    assert (error > 1e-6 * np.abs(x)).any()


@pytest.mark.parametrize("name", BOUNDS)
def test_neighbours_of_special_numbers_are_as_they_would_be(name: str) -> None:
    x = np.full((ROWS, COLUMNS), 1.5, np.float32)
    x[:, ::5] = np.array([np.nan, np.inf, -np.inf, 3e38], np.float32)
    y = apply(name, x)
    special = np.zeros_like(x, bool)
    special[:, ::5] = True
    np.testing.assert_allclose(y[~special], BOUNDS[name][0](np.array([1.5]))[0], rtol=2e-6, atol=1e-6)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(x))
    np.testing.assert_array_equal(y[:, 5], np.inf)
    np.testing.assert_allclose(y[:, 15], 3e38, rtol=1e-6)


HEAD = "%half = arith.constant 0.5 : f32 %one = arith.constant 1.0 : f32 %two = arith.constant 2.0 : f32"
CUBIC = f"{HEAD} %c0 = arith.constant 0.7978845608 : f32 %c1 = arith.constant 0.044715 : f32"
SQUARE = "%s = arith.mulf %x, %x : f32"
GRADIENT = f"""{HEAD} {SQUARE} %c = arith.constant 0.70710678 : f32 %u = arith.mulf %x, %c : f32
      %t = math.erf %u : f32 %o = arith.addf %t, %one : f32 %p = arith.mulf %o, %half : f32
      %minus = arith.constant -0.5 : f32 %v = arith.mulf %s, %minus : f32 %e = math.exp %v fastmath<afn> : f32
      %d = arith.constant 0.3989422804 : f32 %f = arith.mulf %e, %d : f32 %q = arith.mulf %x, %f : f32
      %y = arith.addf %p, %q : f32"""
WRITTEN = {
    "as PyTorch does": ("tanh", f"""{CUBIC} {SQUARE} %q = arith.mulf %s, %x : f32 %c = arith.mulf %q, %c1 : f32
      %i = arith.addf %x, %c : f32 %u = arith.mulf %i, %c0 : f32 %t = math.tanh %u : f32
      %h = arith.mulf %x, %half : f32 %o = arith.addf %t, %one : f32 %y = arith.mulf %h, %o : f32"""),
    "with a fused sum": ("tanh", f"""{CUBIC} {SQUARE} %c = arith.mulf %c1, %s : f32
      %i = math.fma %x, %c, %x : f32 %u = arith.mulf %c0, %i : f32 %t = math.tanh %u : f32
      %o = arith.addf %one, %t : f32 %h = arith.mulf %o, %half : f32 %y = arith.mulf %x, %h : f32"""),
    "by erf": ("erf", f"""{HEAD} %c = arith.constant 0.70710678 : f32 %u = arith.mulf %c, %x : f32
      %t = math.erf %u : f32 %o = arith.addf %t, %one : f32 %h = arith.mulf %half, %x : f32
      %y = arith.mulf %o, %h : f32"""),
    "the gradient": ("erf_gradient", GRADIENT),
    "the gradient, turned": ("erf_gradient", GRADIENT.replace("%p, %q", "%q, %p")),
    "another gradient": ("", GRADIENT.replace("-0.5", "-0.4")),
    "another constant": ("", f"""{HEAD} %c = arith.constant 0.7071 : f32 %u = arith.mulf %c, %x : f32
      %t = math.erf %u : f32 %o = arith.addf %t, %one : f32 %h = arith.mulf %half, %x : f32
      %y = arith.mulf %o, %h : f32"""),
    "approximate": ("erf", f"""{HEAD} %c = arith.constant 0.70710678 : f32 %u = arith.mulf %c, %x : f32
      %t = math.erf %u fastmath<afn> : f32 %o = arith.addf %t, %one : f32 %h = arith.mulf %half, %x : f32
      %y = arith.mulf %o, %h : f32"""),
    "twice the half": ("", f"""{HEAD} %c = arith.constant 0.70710678 : f32 %u = arith.mulf %c, %x : f32
      %t = math.erf %u : f32 %o = arith.addf %t, %one : f32 %h = arith.mulf %two, %x : f32
      %y = arith.mulf %o, %h : f32"""),
    "of something else": ("", f"""{HEAD} {SQUARE} %c = arith.constant 0.70710678 : f32 %u = arith.mulf %c, %s : f32
      %t = math.erf %u : f32 %o = arith.addf %t, %one : f32 %h = arith.mulf %half, %x : f32
      %y = arith.mulf %o, %h : f32"""),
    "a square of the sum": ("", f"""{HEAD} %c = arith.constant 0.70710678 : f32 %u = arith.mulf %c, %x : f32
      %t = math.erf %u : f32 %o = arith.addf %t, %one : f32 %h = arith.mulf %half, %o : f32
      %y = arith.mulf %o, %h : f32"""),
}  # fmt: skip
MAPPED = """builtin.module attributes {{warp.target = #warp.target<{target}>}} {{
func.func @f(%a: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {{
  %m = warp.map %a : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    -> !warp.fragment<acc, 16x8x{out}, [c1 c2 r0 r1 r2 | c0 r3]> (%x: f32) {{
    {body}
    {end}
  }}
  return }} }}"""


def raised(body: str, target: str = "sm_90a", out: str = "bf16") -> str:
    end = "warp.yield %y : f32"
    if out != "f32":
        end = f"%z = arith.truncf %y : f32 to {out} warp.yield %z : {out}"
    module = parse_mlir(make_context(), MAPPED.format(target=target, out=out, body=body, end=end), "f.mlir")
    RaiseGeluPass().apply(make_context(), module)
    module.verify()
    return str(module)


@pytest.mark.parametrize("written", WRITTEN)
def test_gelus_are_recognised_as_they_are_written(written: str) -> None:
    name, body = WRITTEN[written]
    names = raised(body)
    approximate = " {approximate}" if written == "approximate" else ""
    assert (f'warp.gelu "{name}" %x{approximate} : f32' in names) == bool(name)
    assert ("math." in names) == (not name)


def test_gelus_stay_where_bits_are_unknown_or_wanted() -> None:
    _, body = WRITTEN["by erf"]
    assert "warp.gelu" not in raised(body, "sm_80")
    assert "warp.gelu" not in raised(body, "sm_120a")
    assert "warp.gelu" not in raised(body, out="f32")
    assert "warp.gelu" in raised(body, out="f16")


def test_elements_that_two_ctas_compute_have_the_same_words() -> None:
    """A last tile moved back by 24 columns would pair other neighbours, whose reciprocal is shared: before tiles of a
    gelu stayed where they are, three words of these differed by which CTA stored last."""
    tile = {"cta": (128, 128, 64), "mma": "m64n128k16"}
    words: list[NDArray[np.uint16]] = []
    for edges in ("inside", "predicated"):
        product = Product(Types("f16", "f16", "f16"), "gelu by tanh", "A B", (264, 1048, 24), tile | {"edges": edges})
        instance = problem(product, 7)
        product.compile("sm_90a")(*instance.arguments, device="interp")
        assert not instance.wrong()
        words.append(instance.arguments[-1].view(np.uint16).copy())
    assert np.array_equal(words[0], words[1])
