// RUN: warploom-opt %s --remarks -p warp-raise-matmul -o /dev/null 2>&1 | filecheck %s

// What no matrix instruction multiplies stays, with the reason, for a thread for each element.

func.func @zero_point(%a: memref<4x5xi8>, %b: memref<5x6xi8>, %c: memref<4x6xi32>) {
  %z = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  // CHECK: by_element.mlir:[[# @LINE + 1]]:3: remark: warp-raise-matmul: no tensor core multiplies it, a thread adds up an element: the zero point of B is not the constant 0
  linalg.quantized_matmul ins(%a, %b, %z, %one : memref<4x5xi8>, memref<5x6xi8>, i32, i32) outs(%c : memref<4x6xi32>)
  return
}

func.func @unknown_zero_point(%a: memref<4x5xi8>, %b: memref<5x6xi8>, %z: i32, %c: memref<4x6xi32>) {
  // CHECK: by_element.mlir:[[# @LINE + 1]]:3: remark: warp-raise-matmul: no tensor core multiplies it, a thread adds up an element: the zero point of A is not the constant 0
  linalg.quantized_matmul ins(%a, %b, %z, %z : memref<4x5xi8>, memref<5x6xi8>, i32, i32) outs(%c : memref<4x6xi32>)
  return
}

func.func @repeated_rows(%a: memref<2x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf16>) {
  // CHECK: by_element.mlir:[[# @LINE + 1]]:3: remark: warp-raise-matmul: no tensor core multiplies it, a thread adds up an element: expected every dimension of an input along a sum of loops times constants, got (d0, d1, d2) -> ((d0 floordiv 2), d2)
  linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m floordiv 2, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<2x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf16>) {
  ^bb0(%x: f16, %y: f16, %z: f16):
    %0 = arith.mulf %x, %y : f16
    %1 = arith.addf %0, %z : f16
    linalg.yield %1 : f16
  }
  return
}

func.func @spread(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<9xf16>) {
  // CHECK: by_element.mlir:[[# @LINE + 1]]:3: remark: warp-raise-matmul: no tensor core multiplies it, a thread adds up an element: linalg.generic sums, but is no product of matrices: expected every dimension of the output to run along a loop of its own
  linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m + n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<9xf16>) {
  ^bb0(%x: f16, %y: f16, %z: f16):
    %0 = arith.mulf %x, %y : f16
    %1 = arith.addf %0, %z : f16
    linalg.yield %1 : f16
  }
  return
}

func.func @outer(%a: memref<4xf16>, %b: memref<6xf16>, %c: memref<4x6xf32>) {
  // CHECK: by_element.mlir:[[# @LINE + 1]]:3: remark: warp-raise-matmul: no tensor core multiplies it, a thread adds up an element: linalg.contract sums, but is no product of matrices: nothing is summed over, the output has every loop of the inputs
  linalg.contract indexing_maps = [affine_map<(m, n) -> (m)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>]
      ins(%a, %b : memref<4xf16>, memref<6xf16>) outs(%c : memref<4x6xf32>)
  return
}
