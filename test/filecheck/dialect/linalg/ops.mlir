// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

// CHECK-LABEL: @f16_to_f32
// CHECK: linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
// GENERIC-LABEL: "f16_to_f32"
// GENERIC:      "linalg.matmul"(%a, %b, %c)
// GENERIC:      ^bb0(%0: f16, %1: f16, %2: f32):
// GENERIC-NEXT:   %3 = "arith.extf"(%0) : (f16) -> f32
// GENERIC-NEXT:   %4 = "arith.extf"(%1) : (f16) -> f32
// GENERIC-NEXT:   %5 = "arith.mulf"(%3, %4)
// GENERIC-NEXT:   %6 = "arith.addf"(%2, %5)
// GENERIC-NEXT:   "linalg.yield"(%6)
func.func @f16_to_f32(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// CHECK-LABEL: @bf16_to_f32
// CHECK: linalg.matmul ins(%a, %b : memref<4x5xbf16>, memref<5x6xbf16>) outs(%c : memref<4x6xf32>)
func.func @bf16_to_f32(%a: memref<4x5xbf16>, %b: memref<5x6xbf16>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xbf16>, memref<5x6xbf16>) outs(%c : memref<4x6xf32>)
  return
}

// CHECK-LABEL: @f16
// CHECK: linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf16>)
func.func @f16(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf16>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf16>)
  return
}

// CHECK-LABEL: @bf16
// CHECK: linalg.matmul ins(%a, %b : memref<4x5xbf16>, memref<5x6xbf16>) outs(%c : memref<4x6xbf16>)
func.func @bf16(%a: memref<4x5xbf16>, %b: memref<5x6xbf16>, %c: memref<4x6xbf16>) {
  linalg.matmul ins(%a, %b : memref<4x5xbf16>, memref<5x6xbf16>) outs(%c : memref<4x6xbf16>)
  return
}

// CHECK-LABEL: @tensors
// CHECK: %r = linalg.matmul ins(%a, %b : tensor<4x5xi8>, tensor<5x6xi8>) outs(%c : tensor<4x6xi32>) -> tensor<4x6xi32>
// GENERIC-LABEL: "tensors"
// GENERIC: "arith.extsi"
// GENERIC: "arith.muli"
// GENERIC: "arith.addi"
func.func @tensors(%a: tensor<4x5xi8>, %b: tensor<5x6xi8>, %c: tensor<4x6xi32>) -> tensor<4x6xi32> {
  %r = linalg.matmul ins(%a, %b : tensor<4x5xi8>, tensor<5x6xi8>) outs(%c : tensor<4x6xi32>) -> tensor<4x6xi32>
  return %r : tensor<4x6xi32>
}

// CHECK-LABEL: @dynamic
// CHECK: linalg.matmul ins(%a, %b : memref<?x5xf16>, memref<?x6xf16>) outs(%c : memref<4x?xf32>)
func.func @dynamic(%a: memref<?x5xf16>, %b: memref<?x6xf16>, %c: memref<4x?xf32>) {
  linalg.matmul ins(%a, %b : memref<?x5xf16>, memref<?x6xf16>) outs(%c : memref<4x?xf32>)
  return
}

// CHECK-LABEL: @strided
// CHECK: linalg.matmul ins(%a, %b : memref<4x5xf16, strided<[8, 1]>>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
func.func @strided(%a: memref<4x5xf16, strided<[8, 1]>>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16, strided<[8, 1]>>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// The maps and the attributes stand in front, maps first; the default maps are not printed.

// CHECK-LABEL: @transposed_b
// CHECK: linalg.matmul indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] {tag = "x"} ins(%a, %b : memref<4x5xf16>, memref<6x5xf16>) outs(%c : memref<4x6xf32>)
func.func @transposed_b(%a: memref<4x5xf16>, %b: memref<6x5xf16>, %c: memref<4x6xf32>) {
  linalg.matmul
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      {tag = "x"}
      ins(%a, %b : memref<4x5xf16>, memref<6x5xf16>) outs(%c : memref<4x6xf32>)
  return
}

// CHECK-LABEL: @transposed_a
// CHECK: linalg.matmul indexing_maps = [affine_map<(d0, d1, d2) -> (d2, d0)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%a, %b : memref<5x4xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
func.func @transposed_a(%a: memref<5x4xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul
      indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : memref<5x4xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// CHECK-LABEL: @default_maps
// CHECK: linalg.matmul {tag} ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
func.func @default_maps(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
      {tag} ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// MLIR's own generic form: the terms of the body in either order.

// CHECK-LABEL: @generic
// CHECK: linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
func.func @generic(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  "linalg.matmul"(%a, %b, %c) <{
    indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>],
    operandSegmentSizes = array<i32: 2, 1>}> ({
  ^bb0(%x: f16, %y: f16, %z: f32):
    %0 = "arith.extf"(%x) : (f16) -> f32
    %1 = "arith.extf"(%y) : (f16) -> f32
    %2 = "arith.mulf"(%1, %0) : (f32, f32) -> f32
    %3 = "arith.addf"(%2, %z) : (f32, f32) -> f32
    "linalg.yield"(%3) : (f32) -> ()
  }) : (memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>) -> ()
  return
}

// Unsigned integers.

// CHECK-LABEL: @unsigned
// CHECK: linalg.matmul {cast = #linalg.type_fn<cast_unsigned>} ins(%a, %b : memref<4x5xi8>, memref<5x6xi8>) outs(%c : memref<4x6xi32>)
// GENERIC-LABEL: "unsigned"
// GENERIC: "linalg.matmul"(%a, %b, %c) <{{{.*}}cast = #linalg.type_fn<cast_unsigned>
// GENERIC: "arith.extui"
// GENERIC: "arith.extui"
func.func @unsigned(%a: memref<4x5xi8>, %b: memref<5x6xi8>, %c: memref<4x6xi32>) {
  linalg.matmul {cast = #linalg.type_fn<cast_unsigned>} ins(%a, %b : memref<4x5xi8>, memref<5x6xi8>) outs(%c : memref<4x6xi32>)
  return
}

// Other named products.

// CHECK-LABEL: @transpose_a
// CHECK: linalg.matmul_transpose_a ins(%a, %b : memref<5x4xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
func.func @transpose_a(%a: memref<5x4xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul_transpose_a ins(%a, %b : memref<5x4xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// CHECK-LABEL: @transpose_b
// CHECK: %r = linalg.matmul_transpose_b {tag} ins(%a, %b : tensor<4x5xf16>, tensor<6x5xf16>) outs(%c : tensor<4x6xf32>) -> tensor<4x6xf32>
func.func @transpose_b(%a: tensor<4x5xf16>, %b: tensor<6x5xf16>, %c: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %r = linalg.matmul_transpose_b {tag} ins(%a, %b : tensor<4x5xf16>, tensor<6x5xf16>) outs(%c : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %r : tensor<4x6xf32>
}

// CHECK-LABEL: @batch
// CHECK: linalg.batch_matmul ins(%a, %b : memref<2x4x5xf16>, memref<2x5x6xf16>) outs(%c : memref<2x4x6xf32>)
// CHECK: linalg.batch_matmul_transpose_a ins(%d, %b : memref<2x5x4xf16>, memref<2x5x6xf16>) outs(%c : memref<2x4x6xf32>)
// CHECK: linalg.batch_matmul_transpose_b ins(%a, %e : memref<2x4x5xf16>, memref<2x6x5xf16>) outs(%c : memref<2x4x6xf32>)
func.func @batch(%a: memref<2x4x5xf16>, %b: memref<2x5x6xf16>, %c: memref<2x4x6xf32>, %d: memref<2x5x4xf16>, %e: memref<2x6x5xf16>) {
  linalg.batch_matmul ins(%a, %b : memref<2x4x5xf16>, memref<2x5x6xf16>) outs(%c : memref<2x4x6xf32>)
  linalg.batch_matmul_transpose_a ins(%d, %b : memref<2x5x4xf16>, memref<2x5x6xf16>) outs(%c : memref<2x4x6xf32>)
  linalg.batch_matmul_transpose_b ins(%a, %e : memref<2x4x5xf16>, memref<2x6x5xf16>) outs(%c : memref<2x4x6xf32>)
  return
}

// One B for all of the batch, and each of them transposed.
// CHECK-LABEL: @broadcast
// CHECK: linalg.batch_matmul indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>, affine_map<(d0, d1, d2, d3) -> (d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>] ins(
func.func @broadcast(%a: memref<2x4x5xf16>, %b: memref<6x5xf16>, %c: memref<2x4x6xf32>) {
  linalg.batch_matmul
      indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (n, k)>, affine_map<(b, m, n, k) -> (b, m, n)>]
      ins(%a, %b : memref<2x4x5xf16>, memref<6x5xf16>) outs(%c : memref<2x4x6xf32>)
  return
}

// The rest of the dialect is xDSL's.

// CHECK-LABEL: @fill
// CHECK: linalg.fill ins(%v : f32) outs(%c : memref<4x6xf32>)
func.func @fill(%v: f32, %c: memref<4x6xf32>) {
  linalg.fill ins(%v : f32) outs(%c : memref<4x6xf32>)
  return
}
