// RUN: warploom-opt %s -p warp-raise-matmul --split-input-file --verify-diagnostics 2>&1 | filecheck %s

// CHECK: raise_errors.mlir:7:3: error: expected the zero point of B to be the constant 0; others are not lowered
func.func @zero_point(%a: memref<4x5xi8>, %b: memref<5x6xi8>, %c: memref<4x6xi32>) {
  %z = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  linalg.quantized_matmul ins(%a, %b, %z, %one : memref<4x5xi8>, memref<5x6xi8>, i32, i32) outs(%c : memref<4x6xi32>)
  return
}

// -----

// CHECK: error: expected the zero point of A to be the constant 0; others are not lowered
func.func @unknown_zero_point(%a: memref<4x5xi8>, %b: memref<5x6xi8>, %z: i32, %c: memref<4x6xi32>) {
  linalg.quantized_matmul ins(%a, %b, %z, %z : memref<4x5xi8>, memref<5x6xi8>, i32, i32) outs(%c : memref<4x6xi32>)
  return
}

// -----

// CHECK: error: linalg.generic sums, but is no product of matrices: its body does not add the product of its two inputs to its output
func.func @row_sum(%a: memref<4x5xf32>, %c: memref<4xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%a : memref<4x5xf32>) outs(%c : memref<4xf32>) {
  ^bb0(%x: f32, %z: f32):
    %0 = arith.addf %x, %z : f32
    linalg.yield %0 : f32
  }
  return
}

// -----

// CHECK: error: linalg.generic sums, but is no product of matrices: its body does not
func.func @maximum(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf16>) {
  linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf16>) {
  ^bb0(%x: f16, %y: f16, %z: f16):
    %0 = arith.mulf %x, %y : f16
    %1 = arith.maximumf %0, %z : f16
    linalg.yield %1 : f16
  }
  return
}

// -----

// CHECK: error: linalg.generic sums, but is no product of matrices: expected every dimension to run along a loop of its own, got (d0, d1, d2) -> ((d0 + d2))
func.func @convolution(%a: memref<8xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf16>) {
  linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m + k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<8xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf16>) {
  ^bb0(%x: f16, %y: f16, %z: f16):
    %0 = arith.mulf %x, %y : f16
    %1 = arith.addf %0, %z : f16
    linalg.yield %1 : f16
  }
  return
}

// -----

// CHECK: error: linalg.generic sums, but is no product of matrices: expected every loop of the output along an input
func.func @repeated(%a: memref<5xf16>, %b: memref<5xf16>, %c: memref<4xf16>) {
  linalg.generic {indexing_maps = [affine_map<(m, k) -> (k)>, affine_map<(m, k) -> (k)>, affine_map<(m, k) -> (m)>], iterator_types = ["parallel", "reduction"]}
      ins(%a, %b : memref<5xf16>, memref<5xf16>) outs(%c : memref<4xf16>) {
  ^bb0(%x: f16, %y: f16, %z: f16):
    %0 = arith.mulf %x, %y : f16
    %1 = arith.addf %0, %z : f16
    linalg.yield %1 : f16
  }
  return
}

// -----

// CHECK: error: linalg.generic sums, but is no product of matrices: expected both inputs to share one loop, besides those of the output, that is summed over
func.func @two_sums(%a: memref<4x5x3xf16>, %b: memref<5x3x6xf16>, %c: memref<4x6xf16>) {
  linalg.generic {indexing_maps = [affine_map<(m, n, k, l) -> (m, k, l)>, affine_map<(m, n, k, l) -> (k, l, n)>, affine_map<(m, n, k, l) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b : memref<4x5x3xf16>, memref<5x3x6xf16>) outs(%c : memref<4x6xf16>) {
  ^bb0(%x: f16, %y: f16, %z: f16):
    %0 = arith.mulf %x, %y : f16
    %1 = arith.addf %0, %z : f16
    linalg.yield %1 : f16
  }
  return
}

// -----

// CHECK: error: linalg.mmt4d sums, but is no product of matrices: expected both inputs to share one loop, besides those of the output, that is summed over
func.func @tiles(%a: memref<4x8x16x8xf16>, %b: memref<6x8x16x8xf16>, %c: memref<4x6x16x16xf32>) {
  linalg.mmt4d ins(%a, %b : memref<4x8x16x8xf16>, memref<6x8x16x8xf16>) outs(%c : memref<4x6x16x16xf32>)
  return
}

// -----

// CHECK: error: linalg.batch_reduce_matmul sums, but is no product of matrices: expected both inputs to share one loop
func.func @batch_reduce(%a: memref<2x4x5xf16>, %b: memref<2x5x6xf16>, %c: memref<4x6xf32>) {
  linalg.batch_reduce_matmul ins(%a, %b : memref<2x4x5xf16>, memref<2x5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}
