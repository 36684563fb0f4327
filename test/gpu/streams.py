"""Elementwise operations without a product, and between products, to run on the interpreter and on a GPU."""

from __future__ import annotations


def elementwise(shape: str, types: str, maps: str, body: str) -> str:
    """Y = f(X, v): X and v of the first two types, indexed by the first two maps of loops m and n."""
    sizes = dict(zip("mn", shape.split("x"), strict=True))
    kinds = [
        f"memref<{''.join(f'{sizes[loop]}x' for loop in loops)}{kind}>"
        for loops, kind in zip((*maps.split(), "mn"), types.split(), strict=True)
    ]
    spelled = ", ".join(f"affine_map<(m, n) -> ({', '.join(loops)})>" for loops in (*maps.split(), "mn"))
    x, v, y = types.split()
    return f"""func.func @f(%X: {kinds[0]}, %v: {kinds[1]}, %Y: {kinds[2]}) {{
      linalg.generic {{indexing_maps = [{spelled}], iterator_types = ["parallel", "parallel"]}}
        ins(%X, %v : {kinds[0]}, {kinds[1]}) outs(%Y : {kinds[2]}) {{
      ^bb0(%x: {x}, %v0: {v}, %old: {y}): {body}
      }}
      return
    }}"""


NARROWED = """%0 = arith.addf %x, %v0 : f32
  %1 = math.tanh %0 : f32
  %2 = arith.truncf %1 : f32 to bf16
  linalg.yield %2 : bf16"""
STREAMS = (
    ("rows", elementwise("130x256", "f32 f32 bf16", "mn n", NARROWED)),
    ("odd rows", elementwise("131x77", "f32 f32 bf16", "mn m", NARROWED)),
    ("transposed", elementwise("131x136", "f32 f32 bf16", "nm mn", NARROWED)),
    ("integers", elementwise("70x90", "i8 i8 i32", "nm m", """%0 = arith.extsi %x : i8 to i32
      %1 = arith.extui %v0 : i8 to i32 %2 = arith.muli %0, %1 : i32 linalg.yield %2 : i32""")),
)  # fmt: skip
"""Elementwise operations without a product."""

CHAIN = """#mn = affine_map<(m, n) -> (m, n)>
#nm = affine_map<(m, n) -> (n, m)>
func.func @f(%A: memref<100x75xf32>, %B: memref<75x140xbf16>, %T: memref<100x140xf32>, %D: memref<100x33xbf16>,
             %C: memref<140x33xf32>) {
  %z = arith.constant 0.0 : f32
  %narrow = memref.alloc() : memref<100x75xbf16>
  linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%A : memref<100x75xf32>) outs(%narrow : memref<100x75xbf16>) {
  ^bb0(%x: f32, %old: bf16):
    %0 = arith.maximumf %x, %z : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  }
  linalg.fill ins(%z : f32) outs(%T : memref<100x140xf32>)
  linalg.matmul ins(%narrow, %B : memref<100x75xbf16>, memref<75x140xbf16>) outs(%T : memref<100x140xf32>)
  %turned = memref.alloc() : memref<140x100xbf16>
  linalg.generic {indexing_maps = [#nm, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%T : memref<100x140xf32>) outs(%turned : memref<140x100xbf16>) {
  ^bb0(%x: f32, %old: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  }
  linalg.fill ins(%z : f32) outs(%C : memref<140x33xf32>)
  linalg.matmul ins(%turned, %D : memref<140x100xbf16>, memref<100x33xbf16>) outs(%C : memref<140x33xf32>)
  return
}"""
"""A product between elementwise operations that are no part of it, and another product."""

VIEWS = """func.func @f(%A: memref<100x128xf16>, %B: memref<3x128x96xf16>, %R: memref<96x37xf32>, %b: memref<f32>,
             %C: memref<37x96xf32>, %x: memref<96xf16>, %y: memref<37xf32>) {
  %a = memref.subview %A[8, 16] [37, 64] [1, 1] : memref<100x128xf16>
    to memref<37x64xf16, strided<[128, 1], offset: 1040>>
  %w = memref.subview %B[1, 32, 0] [1, 64, 96] [1, 1, 1] : memref<3x128x96xf16>
    to memref<64x96xf16, strided<[96, 1], offset: 15360>>
  linalg.matmul ins(%a, %w : memref<37x64xf16, strided<[128, 1], offset: 1040>>,
                             memref<64x96xf16, strided<[96, 1], offset: 15360>>) outs(%C : memref<37x96xf32>)
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (n, m)>, affine_map<(m, n) -> ()>,
                                   affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
    ins(%R, %b : memref<96x37xf32>, memref<f32>) outs(%C : memref<37x96xf32>) {
  ^bb0(%r: f32, %s: f32, %p: f32):
    %0 = math.fma %r, %s, %p : f32
    linalg.yield %0 : f32
  }
  %narrow = memref.alloc() : memref<37x96xf16>
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>],
                  iterator_types = ["parallel", "parallel"]}
    ins(%C : memref<37x96xf32>) outs(%narrow : memref<37x96xf16>) {
  ^bb0(%p: f32, %old: f16):
    %0 = arith.truncf %p : f32 to f16
    linalg.yield %0 : f16
  }
  linalg.matvec ins(%narrow, %x : memref<37x96xf16>, memref<96xf16>) outs(%y : memref<37xf32>)
  return
}"""
"""Parts of matrices, a transposed residual times a number in memory, and the product of the result with a vector."""
