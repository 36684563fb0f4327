"""Results with rows of an odd number of elements: every one arrives, in half as many stores."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from problems import problem
from products import Product, Types

from warploom.runtime import Kernel, compile
from warploom.runtime.cuda import ptxas

DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
"""Types of results; operands are of the same, or bf16 for f32."""


def operand(out: str) -> str:
    return "bf16" if out == "f32" else out


def product(m: int, n: int, k: int, out: str, **schedule: Any) -> Kernel:
    kind = operand(out)
    a, b, c = f"memref<{m}x{k}x{kind}>", f"memref<{k}x{n}x{kind}>", f"memref<{m}x{n}x{out}>"
    return compile(
        f"func.func @f(%A: {a}, %B: {b}, %C: {c}) {{ %z = arith.constant 0.0 : {out} "
        f"linalg.fill ins(%z : {out}) outs(%C : {c}) linalg.matmul ins(%A, %B : {a}, {b}) outs(%C : {c}) return }}",
        **schedule,
    )


@pytest.mark.sampled(8)
@pytest.mark.parametrize("out", DTYPES)
@pytest.mark.parametrize(
    ("size", "options"),
    [
        ((33, 65, 35), {"cta": (32, 32, 32), "warp": (16, 16), "stages": 2}),
        ((100, 73, 64), {"cta": (64, 64, 64), "warp": (32, 32), "stages": 3}),
        ((67, 139, 40), {"cta": (32, 128, 32), "warp": (32, 64), "stages": 2, "pack": "ab"}),
        (
            (97, 131, 70),
            {"cta": (64, 64, 32), "warp": (64, 32), "stages": 3, "pack": "ab", "sync": "mbarrier", "ctas": 2},
        ),
        ((16, 9, 16), {}),
        ((5, 7, 3), {}),
        ((40, 71, 64), {"cta": (32, 64, 64), "warp": (32, 32), "stages": 2, "sliced_k": 2}),
    ],
)
def test_every_element_arrives(size: tuple[int, int, int], options: dict[str, Any], out: str) -> None:
    m, n, k = size
    rng, kind = np.random.default_rng(size), DTYPES[operand(out)]
    a, b = rng.standard_normal((m, k)).astype(kind), rng.standard_normal((k, n)).astype(kind)
    # A row more, to see what is written behind the last one.
    c = np.full((m + 1, n), np.nan, DTYPES[out])
    product(m, n, k, out, **options)(a, b, c[:m], device="interp")
    expected = a.astype(np.float64) @ b.astype(np.float64)
    bound = {"f32": 1e-5, "f16": 2e-3, "bf16": 1e-2}[out] * np.abs(expected).max()
    assert np.abs(c[:m].astype(np.float64) - expected).max() < bound
    assert np.isnan(c[m].astype(np.float64)).all()


def test_lanes_store_behind_what_their_neighbours_read() -> None:
    """The sums that C brings are read as the accumulators lie, and stored a column further, by other lanes."""
    product = Product(Types("f16", "f16", "f32"), "added", "A Bt", (200, 15, 64))
    numbers = problem(product, 0)
    product.compile("sm_89")(*numbers.arguments, device="interp", checks="races")
    assert numbers.wrong() == ""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("out", "wide"), [("f32", "st.global.v2.f32"), ("f16", "st.global.b32")])
def test_pairs_are_stored_together(out: str, wide: str) -> None:
    """64 pairs in rows of tiles all inside, less than a quarter as many single ones, beside the way for the edge."""
    text = product(64, 65, 32, out, cta=(32, 64, 32), warp=(32, 64), stages=2).ptx
    stores = re.findall(r"st\.global\S*", text)
    assert stores.count(wide) == 32
    assert "shfl.sync.idx.b32" in text


def test_nothing_spills() -> None:
    if ptxas.find() is None:
        pytest.skip("ptxas is not installed (extra: test)")
    for out, others in (("f32", {"f_pack", "f_1"}), ("bf16", {"f_pack"})):  # warps store rows of 16 bits themselves
        used = ptxas.assemble(product(4095, 4095, 4095, out, target="sm_90a").ptx, "sm_90a")
        assert set(used) == {"f", *others}
        assert all(u.spills == u.stack == 0 for u in used.values())
