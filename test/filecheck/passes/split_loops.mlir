// RUN: warploom-opt %s -p warp-raise-matmul | filecheck %s

// i = 4 a + b and j = 2 c + d: the copy goes along a, b, c and d.
// CHECK-LABEL: func.func @patches
// CHECK:         %[[B:\w+]] = memref.expand_shape %B {{.*}} into memref<3x4x3x2xf16>
// CHECK:         %[[A:\w+]] = warp.window %A affine_map<(d0, d1, d2, d3) -> ((d0 + d2), (d1 + d3))> : memref<5x5xf16> -> memref<3x4x3x2xf16, strided<[5, 1, 5, 1]>>
// CHECK:         linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>], {{.*}} ins(%[[A]] : {{.*}}) outs(%[[B]] :
func.func @patches(%A: memref<5x5xf16>, %B: memref<12x6xf16>) {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i floordiv 4 + j floordiv 2, i mod 4 + j mod 2)>,
                                   affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%A : memref<5x5xf16>) outs(%B : memref<12x6xf16>) {
  ^bb0(%x: f16, %o: f16):
    linalg.yield %x : f16
  }
  return
}
