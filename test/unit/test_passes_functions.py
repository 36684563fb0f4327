"""The functions of epilogues, run on the interpreter over all of f32, against float64."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from single_warp import run

from warploom.runtime import compile

Floats = NDArray[np.float64]

TILE = "!warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>"
ROWS, COLUMNS = 16, 8
BODY = """
    %c16 = arith.constant 16 : index
    %block = "gpu.block_id"() <{{dimension = #gpu<dim x>}}> : () -> index
    %m = arith.muli %block, %c16 : index
    %x = warp.load %X[%m, %z] {{in_bounds = [true, true]}} : $X -> {tile}
    %y = warp.map %x : {tile} -> {tile} (%e: f32) {{
      %f = {operation} : f32
      warp.yield %f : f32
    }}
    warp.store %y, %Y[%m, %z] {{in_bounds = [true, true]}} : {tile}, $Y"""
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0**-149, -(2.0**-149), 2.0**-126, 3.4e38, -3.4e38, 88.72284,
           88.7229, -87.33655, -103.9, -104.5, 128.0, -150.0, 8.5, -8.6, 3.8, -3.9]  # fmt: skip


def arguments() -> NDArray[np.float32]:
    """Every exponent and both signs, more of those between 2^-12 and 2^8, where functions do something."""
    rng = np.random.default_rng(0)
    exponents = np.concatenate([np.repeat(np.arange(-149, 128), 60), np.repeat(np.arange(-12, 8), 2500)])
    values = rng.uniform(1, 2, exponents.size) * np.exp2(exponents) * rng.choice([-1, 1], exponents.size)
    arguments = np.concatenate([SPECIAL, values])
    return arguments[: arguments.size - arguments.size % (ROWS * COLUMNS)].astype(np.float32).reshape(-1, COLUMNS)


def apply(operation: str, x: NDArray[np.float32], target: str = "sm_90a") -> Floats:
    y = np.full_like(x, np.nan)
    run(target, BODY.format(tile=TILE, operation=operation), ctas=x.shape[0] // ROWS, X=x, Y=y)
    return y.astype(np.float64)


EXACT: dict[str, tuple[Callable[[Floats], Floats], float]] = {
    "exp": (np.exp, 1e-7),
    "exp2": (np.exp2, 1e-7),
    "log": (np.log, 1e-7),
    "tanh": (np.tanh, 3e-7),
    "erf": (np.vectorize(math.erf, otypes=[np.float64]), 5e-7),
    "sqrt": (np.sqrt, 2.0**-24),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1e-7),
}
"""What each function is, and the bound that `functions.py` states."""


@pytest.mark.sampled(12)
@pytest.mark.parametrize("flags", ["", " fastmath<afn>"])
@pytest.mark.parametrize("type", ["f16", "bf16", "f32", "f64"])
def test_no_product_and_sum_are_left_to_the_assembler_to_contract(type: str, flags: str) -> None:
    """Each has its rounding, so that every word is defined; what a GPU computes is what the interpreter does."""
    names = ("sqrt",) if type == "f64" else EXACT
    calls = [f"%f{i} = math.{name} %f{i - 1}{flags} : {type}" for i, name in enumerate(names, 1)]
    text = f"""func.func @f(%X: memref<64x64x{type}>, %Y: memref<64x64x{type}>) {{
      linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}}
          ins(%X : memref<64x64x{type}>) outs(%Y : memref<64x64x{type}>) {{
      ^bb0(%x: {type}, %y: {type}):
        %p = arith.mulf %x, %y : {type}
        %s = arith.subf %p, %x : {type}
        %f0 = arith.addf %s, %y : {type}
        {" ".join(calls)}
        linalg.yield %f{len(calls)} : {type}
      }} return }}"""
    ptx = compile(text).ptx
    assert len(re.findall(r"\b(mul|add|sub|fma)\.rn", ptx)) >= 3
    assert not re.findall(r"\b(?:mul|add|sub)(?:\.ftz|\.sat)*\.b?f\d\S*", ptx)


@pytest.mark.parametrize("name", EXACT)
def test_accurate_functions_keep_their_bounds(name: str) -> None:
    exact, bound = EXACT[name]
    x = arguments()
    y = apply(f"math.{name} %e", x)
    with np.errstate(all="ignore"):
        expected = exact(x.astype(np.float64))
        limit = expected.astype(np.float32).astype(np.float64)
        error = np.abs(y - expected)
    normal = np.isfinite(limit) & (np.abs(expected) >= 2.0**-126)
    assert (error[normal] <= bound * np.abs(expected[normal])).all(), (error[normal] / np.abs(expected[normal])).max()
    small = np.isfinite(limit) & ~normal
    assert (error[small] <= 2.0**-149 + bound * np.abs(expected[small])).all()
    np.testing.assert_array_equal(np.isnan(y), np.isnan(limit))
    infinite = np.isinf(limit)
    assert (np.abs(y[infinite]) >= 3.4028e38).all()
    np.testing.assert_array_equal(np.sign(y[infinite]), np.sign(limit[infinite]))
    if name in ("tanh", "erf"):
        assert np.nanmax(np.abs(y)) <= 1 + 2.0**-22
        far = np.abs(x) >= 9
        np.testing.assert_array_equal(y[far], np.sign(x[far]))


def test_older_targets_have_the_same_bits() -> None:
    """Clamping without min.NaN, on sm_75, and without its .xorsign.abs, on sm_80."""
    x = arguments()[:4096]
    for name in ("exp", "tanh", "erf"):
        for target in ("sm_75", "sm_80"):
            np.testing.assert_array_equal(apply(f"math.{name} %e", x, target), apply(f"math.{name} %e", x))


APPROXIMATE: dict[str, tuple[Callable[[Floats], Floats], float, float]] = {
    "exp": (np.exp, 1e-5, 0.0),
    "exp2": (np.exp2, 2.0**-21, 0.0),
    "log": (np.log, 2.0**-20, 2.0**-20),
    "tanh": (np.tanh, 2.0**-10, 0.0),
    "erf": (np.vectorize(math.erf, otypes=[np.float64]), 0.0, 1e-3),
    "sqrt": (np.sqrt, 2.0**-21, 0.0),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 2.0**-21, 0.0),
}
"""Functions with fastmath<afn>: relative and absolute bounds."""


@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximate_functions(name: str) -> None:
    exact, relative, absolute = APPROXIMATE[name]
    x = np.random.default_rng(1).uniform(0.001, 80, (1024, COLUMNS)).astype(np.float32)
    y = apply(f"math.{name} %e fastmath<afn>", x)
    expected = exact(x.astype(np.float64))
    assert (np.abs(y - expected) <= relative * np.abs(expected) + absolute).all()
    assert name == "sqrt" or (y != apply(f"math.{name} %e", x)).any()
