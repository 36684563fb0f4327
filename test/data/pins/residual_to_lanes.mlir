// target=sm_90a cta=64,128,64 mma=m64n128k16

#mn = affine_map<(m, n) -> (m, n)>
#n = affine_map<(m, n) -> (n)>
func.func @f(%A: memref<64x64xf16>, %B: memref<64x128xf16>, %E: memref<64x128xbf16>, %D: memref<64x128xbf16>) {
  %T = memref.alloc() : memref<64x128xf32>
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%T : memref<64x128xf32>)
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>] ins(%A, %B : memref<64x64xf16>, memref<64x128xf16>) outs(%T : memref<64x128xf32>)
  linalg.generic {indexing_maps = [#mn, #mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%T, %E : memref<64x128xf32>, memref<64x128xbf16>) outs(%D : memref<64x128xbf16>) {
  ^bb0(%x: f32, %e: bf16, %old: bf16):
    %wide = arith.extf %e : bf16 to f32
    %r = arith.addf %x, %wide : f32
    %y = arith.truncf %r : f32 to bf16
    linalg.yield %y : bf16
  }
  return
}
