// RUN: warploom-opt %s -p warp-outline,warp-tile --split-input-file --verify-diagnostics

// expected-error @+2 {{expected a schedule on warp.matmul; run warp-schedule first}}
func.func @no_schedule(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// -----

// expected-error @+2 {{expected a schedule on warp.matmul; run warp-schedule first}}
func.func @schedule_of_another_kind(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul {warp.schedule = "fast"} ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// -----

// expected-error @+3 {{expected the product in a func.func, or in scf.for and scf.if that carry no values, got it in scf.for}}
func.func @in_a_loop(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %n: index) {
  %r = scf.for %i = %n to %n step %n iter_args(%x = %n) -> (index) {
    linalg.matmul {warp.schedule = #warp.schedule<cta = 16x8x16, warp = 16x8, mma = m16n8k16, stages = 1, swizzle = 128, group = 1, accumulate = f32>}
      ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
    scf.yield %x : index
  }
  return
}

// -----

// expected-error @+2 {{the ISA has no mma m16n8k64 for f16}}
func.func @instruction(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul {warp.schedule = #warp.schedule<cta = 16x8x64, warp = 16x8, mma = m16n8k64, stages = 1, swizzle = 128, group = 1, accumulate = f32>}
    ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// -----

// expected-error @+2 {{expected A to be a memref, got tensor<4x5xf16>; bufferize tensors first}}
func.func @tensors(%a: tensor<4x5xf16>, %b: tensor<5x6xf16>, %c: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %r = linalg.matmul {warp.schedule = #warp.schedule<cta = 16x8x16, warp = 16x8, mma = m16n8k16, stages = 1, swizzle = 128, group = 1, accumulate = f32>}
    ins(%a, %b : tensor<4x5xf16>, tensor<5x6xf16>) outs(%c : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %r : tensor<4x6xf32>
}
