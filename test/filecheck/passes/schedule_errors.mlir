// RUN: warploom-opt %s -p warp-schedule --split-input-file --verify-diagnostics

// expected-error @+2 {{expected a target on the module; run warp-set-target{arch=sm_90a} first}}
func.func @no_target(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// -----

// expected-error @+3 {{schedule: sm_75 has no mma for bf16 x bf16 accumulated in f32; sm_80 and later have one}}
builtin.module attributes {warp.target = #warp.target<sm_75>} {
func.func @bf16_on_sm_75(%a: memref<4x5xbf16>, %b: memref<5x6xbf16>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xbf16>, memref<5x6xbf16>) outs(%c : memref<4x6xf32>)
  return
}
}

// -----

// expected-error @+3 {{schedule: sm_70 has only mma m8n8k4, which products are not lowered to, for f16 x f16 accumulated in f32; sm_75 and later have one}}
builtin.module attributes {warp.target = #warp.target<sm_70>} {
func.func @sm_70(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}
}

// -----

// expected-error @+3 {{expected A to be a memref, got tensor<4x5xf16>; bufferize tensors first}}
builtin.module attributes {warp.target = #warp.target<sm_80>} {
func.func @tensors(%a: tensor<4x5xf16>, %b: tensor<5x6xf16>, %c: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<4x5xf16>, tensor<5x6xf16>) outs(%c : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %r : tensor<4x6xf32>
}
}

// -----

// expected-error @+4 {{a sparse A and its metadata need a static size along k, got memref<256x?xf16> and memref<16x64xi32>}}
builtin.module attributes {warp.target = #warp.target<sm_80>} {
func.func @sparse(%a: memref<256x?xf16>, %e: memref<16x64xi32>, %b: memref<128x6xf16>, %c: memref<256x6xf32>) {
  %s = warp.sparse %a, %e : memref<256x?xf16>, memref<16x64xi32>
  warp.matmul f16 x f16 %s, %b init 0.0 : f32 into %c : !warp.operand<memref<256x?xf16>>, memref<128x6xf16>, memref<256x6xf32>
  return
}
}

// -----

// expected-error @+3 {{no instruction multiplies f32 x f32 with all bits; to allow tf32, which drops 13 of the 23 bits of each fraction, use warp-raise-matmul{tf32=true}, compile(tf32=True) or run --tf32}}
builtin.module attributes {warp.target = #warp.target<sm_80>} {
func.func @f32(%a: memref<4x5xf32>, %b: memref<5x6xf32>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf32>, memref<5x6xf32>) outs(%c : memref<4x6xf32>)
  return
}
}

// -----

// expected-error @+3 {{no mma multiplies f16 x bf16; f16 is multiplied with f16}}
builtin.module attributes {warp.target = #warp.target<sm_80>} {
func.func @unlike(%a: memref<4x5xf16>, %b: memref<5x6xbf16>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xbf16>) outs(%c : memref<4x6xf32>)
  return
}
}

// -----

// expected-error @+3 {{schedule: sm_80 has no mma for e4m3 x e5m2 accumulated in f32; sm_89 and later have one}}
builtin.module attributes {warp.target = #warp.target<sm_80>} {
func.func @fp8(%a: memref<4x5xf8E4M3FN>, %b: memref<5x6xf8E5M2>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf8E4M3FN>, memref<5x6xf8E5M2>) outs(%c : memref<4x6xf32>)
  return
}
}

// -----

// expected-error @+3 {{C is empty, there is nothing to compute: memref<0x6xf32>}}
builtin.module attributes {warp.target = #warp.target<sm_80>} {
  func.func @empty(%a: memref<0x5xf16>, %b: memref<5x6xf16>, %c: memref<0x6xf32>) {
    warp.matmul f16 x f16 %a, %b plus %c into %c : memref<0x5xf16>, memref<5x6xf16>, memref<0x6xf32> plus memref<0x6xf32>
    return
  }
}
