"""What the choice of a schedule reckons with is what a kernel is given of shared memory; tiles may share it."""

from __future__ import annotations

import numpy as np
import pins
import pytest
from products import Product
from single_warp import BARRIER, launch, parsed

from warploom.dialect.warp.matmul import MatmulOp
from warploom.passes.linalg.product import read
from warploom.passes.pipeline import lower
from warploom.passes.schedule.defaults import laid_out
from warploom.passes.schedule.needs import shared_bytes
from warploom.passes.universe import make_context, parse_mlir

SCHEDULED = [k for k in pins.pinned() if isinstance(k.source, Product) and (k.text_name or k.source.schedule)]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("kernel", SCHEDULED[::2], ids=str)
def test_as_many_bytes_as_the_schedule_was_checked_for(kernel: pins.Pinned) -> None:
    assert isinstance(kernel.source, Product)
    module = parse_mlir(make_context(), kernel.source.mlir)
    lower(
        module, make_context(), "warp-bufferize,warp-raise-matmul{tf32=true},warp-fold-fill,warp-fuse-epilogue"
    )  # fmt: skip
    product = read(next(op for op in module.walk() if isinstance(op, MatmulOp)))
    compiled = kernel.source.compile(kernel.target)
    allocated = max(launched.shared for launched in compiled.launches)
    (schedule,) = (each for each in compiled.schedule if each is not None)
    assert allocated == shared_bytes(laid_out(product, schedule.transpose, schedule.padded), schedule)


def test_tiles_that_are_not_used_at_the_same_time_share_memory() -> None:
    """Two copies one after the other through the same bytes."""
    rng = np.random.default_rng()
    a, b = (rng.standard_normal((16, 16)).astype(np.float16) for _ in "ab")
    c, d = np.zeros((16, 16), np.float16), np.zeros((16, 16), np.float16)
    tile, fragment = (
        "memref<16x16xf16, #warp.swizzle<32>, 3>",
        "!warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>",
    )
    body = ""
    for source, target in ("AC", "BD"):
        body += f"""
    %{source}s = memref.alloc() {{warp.offset = 2048 : i64}} : {tile}
    {BARRIER}
    warp.copy %{source}[%z, %z] to %{source}s[] : ${source} to {tile}
    {BARRIER}
    %{source}f = warp.load %{source}s[%z, %z] {{matrices = "x4"}} : {tile} -> {fragment}
    warp.store %{source}f, %{target}[%z, %z] : {fragment}, ${target}"""
    module = parsed("sm_90a", body, dict.fromkeys("ABCD", "memref<16x16xf16>"))
    launch(module, [a, b, c, d], checks="all")
    np.testing.assert_array_equal(c, a)
    np.testing.assert_array_equal(d, b)
