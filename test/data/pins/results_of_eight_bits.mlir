// target=sm_90a

#mn = affine_map<(m, n) -> (m, n)>
#n = affine_map<(m, n) -> (n)>
#bmn = affine_map<(b, m, n) -> (b, m, n)>
#b_n = affine_map<(b, m, n) -> (n)>
#b_m = affine_map<(b, m, n) -> (m)>
func.func @f(%A: memref<20x32xf16>, %B: memref<32x24xf16>, %s: f32, %D: memref<20x24xf8E4M3FN>) {
  %z = arith.constant 0.0 : f32
  %T = memref.alloc() : memref<20x24xf32>
  linalg.fill ins(%z : f32) outs(%T : memref<20x24xf32>)
  linalg.matmul ins(%A, %B : memref<20x32xf16>, memref<32x24xf16>) outs(%T : memref<20x24xf32>)
  linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%T : memref<20x24xf32>) outs(%D : memref<20x24xf8E4M3FN>) {
  ^bb0(%x: f32, %old: f8E4M3FN):
    %0 = arith.mulf %x, %s : f32
    %1 = arith.truncf %0 : f32 to f8E4M3FN
    linalg.yield %1 : f8E4M3FN
  }
  return
}
