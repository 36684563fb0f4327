"""Products of warpgroups with a sparse A: chosen where they pay, with epilogues, with metadata that stays as it is
while products run. `test_warpgroup_products.py` has every type and form."""

from __future__ import annotations

import numpy as np
import pytest
from products import Product, Types

from warploom.runtime import CompileError, compile, compress, prune
from warploom.runtime.cuda import ptxas

BF16, S8 = Types("bf16", "bf16", "f32"), Types("i8", "i8", "i32")

FUSED = """
#mn = affine_map<(m, n) -> (m, n)>
#n = affine_map<(m, n) -> (n)>
func.func @f(%A: memref<{m}x{h}xf16>, %E: memref<{r}x{w}xi32>, %B: memref<{k}x{n}xf16>, %bias: memref<{n}xf32>,
             %D: memref<{m}x{n}xf16>) {{
  %T = memref.alloc() : memref<{m}x{n}xf32>
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%T : memref<{m}x{n}xf32>)
  linalg.matmul {{warp.metadata = 1}} ins(%A, %B : memref<{m}x{h}xf16>, memref<{k}x{n}xf16>)
    outs(%T : memref<{m}x{n}xf32>)
  linalg.generic {{indexing_maps = [#mn, #n, #mn], iterator_types = ["parallel", "parallel"]}}
      ins(%T, %bias : memref<{m}x{n}xf32>, memref<{n}xf32>) outs(%D : memref<{m}x{n}xf16>) {{
  ^bb0(%x: f32, %b: f32, %old: f16):
    %floor = arith.constant 0.0 : f32
    %0 = arith.addf %x, %b : f32
    %1 = arith.maxnumf %0, %floor : f32
    %y = arith.truncf %1 : f32 to f16
    linalg.yield %y : f16
  }}
  return
}}"""


def sparse(types: Types, size: tuple[int, int, int], lies: str = "A B", **schedule: object) -> Product:
    return Product(types, "sparse", lies, size, schedule)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("product", "instruction"),
    [
        (sparse(BF16, (4096, 4096, 4096)), "m64n256k32"),
        (sparse(S8, (4096, 4096, 4096), "A Bt"), "m64n256k64"),
        (sparse(Types("f32", "f32", "f32"), (2048, 2048, 2048), "A Bt"), "m64n256k16"),
        (sparse(BF16, (16, 4096, 4096)), "m16n8k32"),  # fewer rows than pay
        (sparse(Types("f8E4M3FN", "f8E4M3FN", "f32"), (192, 4096, 4096)), "m64n96k64"),  # though B is transposed first
        (sparse(S8, (4096, 4096, 4096)), "m64n256k64"),  # B of bytes, which is transposed first
        (sparse(S8, (1024, 1024, 1024)), "m16n8k64"),  # for which that is too little to multiply
        (sparse(Types("i4", "i4", "i32"), (4096, 4096, 4096), "A Bt"), "m16n8k128"),  # no such instruction
    ],
)
def test_warpgroups_multiply_a_sparse_a_where_they_can_and_it_pays(product: Product, instruction: str) -> None:
    schedule = next(option for option in product.compile("sm_90a").schedule if option is not None)
    assert str(schedule.mma) == instruction


def test_an_epilogue_follows() -> None:
    m, n, k = 136, 200, 160
    random = np.random.default_rng(7)
    a = prune(random.standard_normal((m, k)).astype(np.float16))
    b, bias = random.standard_normal((k, n)).astype(np.float16), random.standard_normal(n).astype(np.float32)
    values, metadata = compress(a)
    rows, words = metadata.shape
    text = FUSED.format(m=m, n=n, k=k, h=k // 2, r=rows, w=words)
    kernel = compile(text, "sm_90a", cta=(128, 128, 64), mma="m64n128k32", ctas=2)
    d = np.full((m, n), np.nan, np.float16)
    kernel(values, metadata, b, bias, d, device="interp", checks="all")
    wide, magnitude = a.astype(np.float64) @ b.astype(np.float64), np.abs(a.astype(np.float64)) @ np.abs(b)
    expected = np.maximum(wide + bias, 0)
    assert np.all(np.abs(d - expected) <= (k + 2) * 2.0**-23 * magnitude + 2.0**-11 * np.abs(expected) + 2.0**-24)


@pytest.mark.skipif(ptxas.find() is None, reason="ptxas is not installed (extra: test)")
def test_the_assembler_repairs_nothing() -> None:
    kernel = sparse(BF16, (4096, 4096, 4096)).compile("sm_90a")
    (used,) = ptxas.assemble(kernel.ptx, "sm_90a").values()
    assert (used.spills, used.stack, used.registers) == (0, 0, 168)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(CompileError, match=r"has no wgmma m64n128k16 .* nearest are m64n120k32"):
        sparse(BF16, (256, 256, 256), mma="m64n128k16").compile("sm_90a")
