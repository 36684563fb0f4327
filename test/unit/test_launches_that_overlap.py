"""Kernels of products begin before the launches ahead have ended: they wait before they access what those write."""

from __future__ import annotations

import re

import pytest
from products import Product, Types

BF16, MIXED = Types("bf16", "bf16", "bf16"), Types("f16", "f16", "f32")
ACCESS = re.compile(r"\b(?:ld|st|red|atom|prefetch|cp|multimem)\.(?!param|shared)")
WAIT = "griddepcontrol.wait;"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("product", "target"),
    [
        (Product(BF16, "cleared", "A Bt", (264, 328, 520), {"cta": (128, 64, 64)}), "sm_90a"),
        (Product(BF16, "residual", "A B", (136, 72, 136), {"cta": (64, 64, 64), "cluster": "2x1"}), "sm_90a"),
        (Product(BF16, "cleared", "A Bt", (72, 136, 520), {"cta": (64, 64, 64), "split_k": 2}), "sm_90a"),
        (Product(MIXED, "added", "A B", (104, 72, 24), {"cta": (64, 64, 32)}), "sm_90"),
        (Product(MIXED, "cleared", "A B", (67, 35, 91), {"cta": (32, 32, 32)}), "sm_90"),
    ],
    ids=str,
)
def test_products_wait_before_they_access_memory(product: Product, target: str) -> None:
    """All threads do, without a condition; nothing jumps over it."""
    bodies = re.findall(r"^\{$(.*?)^\}$", product.compile(target).ptx, flags=re.MULTILINE | re.DOTALL)
    waiting = [body for body in bodies if WAIT in body]
    assert waiting
    for body in waiting:
        ahead, _, behind = body.partition(f"    {WAIT}\n")
        assert not ACCESS.search(ahead)
        assert ACCESS.search(behind)
        assert WAIT not in behind
        assert all(f"{label}:" in ahead for label in re.findall(r"bra (\w+);", ahead))


@pytest.mark.parametrize("target", ["sm_80", "sm_89"])
def test_other_targets_have_no_such_wait(target: str) -> None:
    assert WAIT not in Product(MIXED, "cleared", "A B", (64, 64, 64)).compile(target).ptx
