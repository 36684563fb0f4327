"""Consumers with tiles of their own: one multiplies while the other stores; right in every form, silent under check."""

from __future__ import annotations

from typing import Any

import pytest
from problems import problem
from products import Product, Types

from warploom.runtime import CompileError

BF16, MIXED, S8 = Types("bf16", "bf16", "bf16"), Types("f16", "f16", "f32"), Types("i8", "i8", "i32")
E4M3 = Types("f8E4M3FN", "f8E4M3FN", "bf16")


def tile(n: int, ctas: int, step: int = 16, **options: Any) -> dict[str, Any]:
    """Tiles of one warpgroup, with K tiles of four steps."""
    own = {"cta": (64, n, 4 * step), "mma": f"m64n{n}k{step}", "ctas": ctas, "consumers": "pingpong"}
    return {**own, **options}


CASES = [
    Product(BF16, "added", "A B", (200, 136, 136), tile(64, 2, stages=3)),  # 12 tiles, 3 K tiles in 3 stages
    Product(MIXED, "cleared", "At B", (120, 200, 456), tile(64, 3, stages=3)),  # 8 tiles, 8 K tiles in 3 stages
    Product(BF16, "gelu by tanh", "A Bt", (250, 248, 72), tile(128, 5, stages=4)),  # 8 tiles, two or one of a CTA
    Product(MIXED, "residual", "At Bt", (72, 72, 24), tile(64, 1, staging=0)),  # a K tile each
    Product(S8, "added", "A Bt", (144, 112, 400), tile(64, 2, 32)),
    Product(E4M3, "cleared", "A Bt", (144, 112, 272), tile(64, 2, 32, promote="f32")),
    Product(MIXED, "sparse", "A B", (200, 120, 320), {**tile(64, 2), "mma": "m64n64k32"}),
    Product(BF16, "cleared", "A B", (139, 75, 133), tile(64, 2, cluster="1x2")),  # rows that are packed first
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("product", CASES, ids=str)
def test_products_are_right_and_silent(product: Product) -> None:
    kernel, instance = product.compile("sm_90a"), problem(product, 8)
    assert kernel.launches[-1].block == (384, 1, 1)
    kernel(*instance.arguments, device="interp", checks="all")
    assert instance.wrong() == ""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "options",
    [{"ctas": 0}, {"cta": (128, 64, 64)}, {"split_k": 2}],
    ids=["a CTA for each tile", "tiles of two warpgroups", "parts of K"],
)
def test_what_consumers_have_no_tiles_of_their_own(options: dict[str, Any]) -> None:
    product = Product(BF16, "cleared", "A B", (256, 64, 256), {**tile(64, 2), **options})
    with pytest.raises(CompileError, match="consumers = pingpong takes tiles of one warpgroup, CTAs that go from tile"):
        product.compile("sm_90a")
