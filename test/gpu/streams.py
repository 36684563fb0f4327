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
