// RUN: warploom-opt %s -p warp-raise-matmul | filecheck %s

// Loops that are summed over beside k come before m.
// CHECK-LABEL: func.func @batch_reduce
// CHECK-NEXT:    warp.matmul f16 x f16 %a, %b plus %c into %c maps [affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>, affine_map<(d0, d1, d2, d3) -> (d1, d2)>] : memref<2x4x5xf16>
func.func @batch_reduce(%a: memref<2x4x5xf16>, %b: memref<2x5x6xf16>, %c: memref<4x6xf32>) {
  linalg.batch_reduce_matmul ins(%a, %b : memref<2x4x5xf16>, memref<2x5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// CHECK-LABEL: func.func @tiles
// CHECK-NEXT:    warp.matmul f16 x f16 %a, %b plus %c into %c maps [affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d2, d3, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d1, d2, d4, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d3, d4)>] :
func.func @tiles(%a: memref<4x8x16x8xf16>, %b: memref<6x8x16x8xf16>, %c: memref<4x6x16x16xf32>) {
  linalg.mmt4d ins(%a, %b : memref<4x8x16x8xf16>, memref<6x8x16x8xf16>) outs(%c : memref<4x6x16x16xf32>)
  return
}

// CHECK-LABEL: func.func @batch_of_tiles
// CHECK-NEXT:    warp.matmul s8 x s8 %a, %b plus %c into %c maps [affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d1, d3, d4, d6)>, affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d2, d3, d5, d6)>, affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d1, d2, d4, d5)>] :
func.func @batch_of_tiles(%a: memref<3x4x8x16x8xi8>, %b: memref<3x6x8x16x8xi8>, %c: memref<3x4x6x16x16xi32>) {
  linalg.batch_mmt4d ins(%a, %b : memref<3x4x8x16x8xi8>, memref<3x6x8x16x8xi8>) outs(%c : memref<3x4x6x16x16xi32>)
  return
}

// Two such loops that are one in memory are one.
// CHECK-LABEL: func.func @one
// CHECK-NEXT:    %0 = memref.collapse_shape %a {{\[\[}}0 : i64], [1 : i64, 2 : i64]] : memref<4x5x3xf16> into memref<4x15xf16>
// CHECK-NEXT:    %1 = memref.collapse_shape %b
// CHECK-NEXT:    warp.matmul f16 x f16 %0, %1 plus %c into %c : memref<4x15xf16>, memref<15x6xf16>, memref<4x6xf32> plus memref<4x6xf32>
func.func @one(%a: memref<4x5x3xf16>, %b: memref<5x3x6xf16>, %c: memref<4x6xf32>) {
  linalg.contract indexing_maps = [affine_map<(m, n, k, l) -> (m, k, l)>, affine_map<(m, n, k, l) -> (k, l, n)>, affine_map<(m, n, k, l) -> (m, n)>]
      ins(%a, %b : memref<4x5x3xf16>, memref<5x3x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// An operand is repeated along a loop that it lacks.
// CHECK-LABEL: func.func @repeated
// CHECK-NEXT:    %0 = warp.window %a affine_map<(d0, d1) -> (d1)> : memref<5xf16> -> memref<4x5xf16, strided<[0, 1]>>
// CHECK-NEXT:    warp.matmul f16 x f16 %0, %b plus %c into %c :
func.func @repeated(%a: memref<5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : memref<5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// A convolution is a product along a window of its input.
// CHECK-LABEL: func.func @convolution
// CHECK-NEXT:    %0 = warp.window %a affine_map<(d0, d1, d2) -> (((d0 * 2) + d1), d2)> : memref<9x4xf16> -> memref<4x3x4xf16, strided<[8, 4, 1]>>
// CHECK-NEXT:    warp.matmul f16 x f16 %0, %b plus %c into %c maps [affine_map<(d0, d1, d2, d3) -> (d1, d0, d3)>, affine_map<(d0, d1, d2, d3) -> (d2, d0, d3)>, affine_map<(d0, d1, d2, d3) -> (d1, d2)>] :
func.func @convolution(%a: memref<9x4xf16>, %b: memref<6x3x4xf16, strided<[24, 8, 1]>>, %c: memref<4x6xf16>) {
  linalg.generic {indexing_maps = [affine_map<(m, n, i, k) -> (m * 2 + i, k)>, affine_map<(m, n, i, k) -> (n, i, k)>, affine_map<(m, n, i, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b : memref<9x4xf16>, memref<6x3x4xf16, strided<[24, 8, 1]>>) outs(%c : memref<4x6xf16>) {
  ^bb0(%x: f16, %y: f16, %z: f16):
    %0 = arith.mulf %x, %y : f16
    %1 = arith.addf %0, %z : f16
    linalg.yield %1 : f16
  }
  return
}
