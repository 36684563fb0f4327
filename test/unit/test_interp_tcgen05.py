"""Tensor memory and the products of the fifth generation's tensor cores, against float64 and integers."""

from __future__ import annotations

import numpy as np
from tensor_cores import Kernel, put

from warploom.dialect.isa.tensor_product import SharedDescriptor
from warploom.runtime import check_ptx


def describe(name: str, how: SharedDescriptor) -> str:
    """Statements that make a descriptor of a matrix that begins in the image."""
    return f"shr.u32 %r14, %r4, 4; cvt.u64.u32 %q8, %r14; add.s64 {name}, %q8, {how.encode()};"


def test_a_product_of_halves_is_right() -> None:
    random = np.random.default_rng(11)
    a, b = (random.standard_normal((size, 16)).astype(np.float16) for size in (128, 64))
    left, right = SharedDescriptor(0, 128, 256), SharedDescriptor(4096, 128, 256)
    image = random.integers(0, 256, 6144).astype(np.uint8)
    put(image, a, left.encode())
    put(image, b, right.encode())
    issue = [describe("%q9", left), describe("%q10", right),
             "tcgen05.mma.cta_group::1.kind::f16 [%r1], %q9, %q10, 0x08100010, 0;"]  # fmt: skip
    kernel = Kernel(image, issue)
    assert check_ptx(kernel.text()) == []
    found = kernel.run().view(np.float32)
    exact = a.astype(np.float64) @ b.T.astype(np.float64)
    bound = 16 * 2.0**-24 * (np.abs(a).astype(np.float64) @ np.abs(b.T).astype(np.float64))
    assert (np.abs(found - exact) <= bound).all()
