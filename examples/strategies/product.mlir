// Four tiles of 128x64, for three CTAs: one set, and one tile to share.
func.func @product(%A: memref<512x256xf16>, %B: memref<256x64xf16>, %C: memref<512x64xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%C : memref<512x64xf32>)
  linalg.matmul ins(%A, %B : memref<512x256xf16>, memref<256x64xf16>) outs(%C : memref<512x64xf32>)
  return
}
