// C = C + A * B with bf16 inputs and an f32 result, in sizes that are multiples of nothing.
//
// Nothing clears C, so the product is added to what C holds; the edges need no padding by the caller.
//   warploom run examples/matmul_bf16.mlir --device interp --check

func.func @matmul_bf16(%A: memref<100x53xbf16>, %B: memref<53x77xbf16>, %C: memref<100x77xf32>) {
  linalg.matmul ins(%A, %B : memref<100x53xbf16>, memref<53x77xbf16>) outs(%C : memref<100x77xf32>)
  return
}
