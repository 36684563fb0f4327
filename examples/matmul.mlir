// C = A * B with f16 inputs and an f32 result, as MLIR users write it: clear C, then multiply into it.
//
// The fill is folded into the product, so C is written once and never read.
//   warploom run examples/matmul.mlir --device interp --check

func.func @matmul(%A: memref<256x192xf16>, %B: memref<192x320xf16>, %C: memref<256x320xf32>) {
  %zero = arith.constant 0.000000e+00 : f32
  linalg.fill ins(%zero : f32) outs(%C : memref<256x320xf32>)
  linalg.matmul ins(%A, %B : memref<256x192xf16>, memref<192x320xf16>) outs(%C : memref<256x320xf32>)
  return
}
