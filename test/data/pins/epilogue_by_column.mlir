// target=sm_90a cta=256,128,64 mma=m64n128k16 ctas=2

#mn = affine_map<(m, n) -> (m, n)>
#n = affine_map<(m, n) -> (n)>
func.func @f(%A: memref<200x16xf16>, %B: memref<200x16xf16>, %D: memref<16x16xbf16>) {
  %T = memref.alloc() : memref<16x16xf32>
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%T : memref<16x16xf32>)
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>] ins(%A, %B : memref<200x16xf16>, memref<200x16xf16>) outs(%T : memref<16x16xf32>)
  linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%T : memref<16x16xf32>) outs(%D : memref<16x16xbf16>) {
  ^bb0(%x: f32, %old: bf16):
    %r = arith.negf %x : f32
    %y = arith.truncf %r : f32 to bf16
    linalg.yield %y : bf16
  }
  return
}
