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
