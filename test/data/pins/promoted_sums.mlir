// target=sm_90a promote=f32 cta=128,128,128 mma=m64n128k32

func.func @f(%A: memref<144x400xf8E4M3FN>, %B: memref<208x400xf8E4M3FN>, %C: memref<144x208xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%C : memref<144x208xf32>)
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] ins(%A, %B : memref<144x400xf8E4M3FN>, memref<208x400xf8E4M3FN>) outs(%C : memref<144x208xf32>)
  return
}
