// RUN: warploom-opt %s -p warp-schedule --split-input-file --verify-diagnostics 2>&1 | filecheck %s

// CHECK: schedule_errors.mlir:5:3: error: expected a target on the module; run warp-set-target{arch=sm_90a} first
func.func @no_target(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// -----

// CHECK: error: schedule: sm_75 has no mma for bf16 x bf16 accumulated in f32; sm_80 and later have one
builtin.module attributes {warp.target = #warp.target<sm_75>} {
func.func @bf16_on_sm_75(%a: memref<4x5xbf16>, %b: memref<5x6xbf16>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xbf16>, memref<5x6xbf16>) outs(%c : memref<4x6xf32>)
  return
}
}

// -----

// CHECK: error: schedule: sm_70 has no mma for f16 x f16 accumulated in f32; sm_75 and later have one
builtin.module attributes {warp.target = #warp.target<sm_70>} {
func.func @sm_70(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}
}

// -----

// CHECK: error: expected A to be a memref, got tensor<4x5xf16>; bufferize tensors first
builtin.module attributes {warp.target = #warp.target<sm_80>} {
func.func @tensors(%a: tensor<4x5xf16>, %b: tensor<5x6xf16>, %c: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<4x5xf16>, tensor<5x6xf16>) outs(%c : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %r : tensor<4x6xf32>
}
}

// -----

// CHECK: error: expected A of static size, got memref<?x5xf16>
builtin.module attributes {warp.target = #warp.target<sm_80>} {
func.func @dynamic_rows(%a: memref<?x5xf16>, %b: memref<5x6xf16>, %c: memref<?x6xf32>) {
  linalg.matmul ins(%a, %b : memref<?x5xf16>, memref<5x6xf16>) outs(%c : memref<?x6xf32>)
  return
}
}

// -----

// CHECK: error: expected B of static size, got memref<5x?xf16>
builtin.module attributes {warp.target = #warp.target<sm_80>} {
func.func @dynamic_columns(%a: memref<4x5xf16>, %b: memref<5x?xf16>, %c: memref<4x?xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x?xf16>) outs(%c : memref<4x?xf32>)
  return
}
}

// -----

// CHECK: error: expected A to be contiguous and row-major, got memref<4x5xf16, strided<[8, 1]>>
builtin.module attributes {warp.target = #warp.target<sm_80>} {
func.func @strided(%a: memref<4x5xf16, strided<[8, 1]>>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16, strided<[8, 1]>>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}
}

// -----

// CHECK: error: expected C to be contiguous and row-major, got memref<4x6xf32, strided<[1, 4]>>
builtin.module attributes {warp.target = #warp.target<sm_80>} {
func.func @column_major(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32, strided<[1, 4]>>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32, strided<[1, 4]>>)
  return
}
}

// -----

// CHECK: error: expected A and B of f16 or bf16, got f32
builtin.module attributes {warp.target = #warp.target<sm_80>} {
func.func @f32(%a: memref<4x5xf32>, %b: memref<5x6xf32>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf32>, memref<5x6xf32>) outs(%c : memref<4x6xf32>)
  return
}
}

// -----

// CHECK: error: expected A of a type that matrix instructions know, got i16
builtin.module attributes {warp.target = #warp.target<sm_80>} {
func.func @integers(%a: memref<4x5xi16>, %b: memref<5x6xi16>, %c: memref<4x6xi16>) {
  linalg.matmul ins(%a, %b : memref<4x5xi16>, memref<5x6xi16>) outs(%c : memref<4x6xi16>)
  return
}
}
