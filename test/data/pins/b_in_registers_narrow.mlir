// target=sm_90a cta=32,128,128 mma=m64n32k16 in_registers=b

#mn = affine_map<(m, n) -> (m, n)>
#n = affine_map<(m, n) -> (n)>
#m = affine_map<(m, n) -> (m)>
func.func @f(%A: memref<45x224xf16>, %B: memref<136x224xi4>, %bias: memref<136xf16>, %scales: memref<45xf32>, %D: memref<45x136xf16>) {
  %T = memref.alloc() : memref<45x136xf32>
  %W = warp.stored %B as u4 minus 9 : memref<136x224xi4>
  warp.matmul f16 x f16 %A, %W init 0.0 : f32 into %T
      maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      : memref<45x224xf16>, !warp.operand<memref<136x224xi4>>, memref<45x136xf32>
  
  linalg.generic {indexing_maps = [#mn, #n, #m, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%T, %bias, %scales : memref<45x136xf32>, memref<136xf16>, memref<45xf32>) outs(%D : memref<45x136xf16>) {
  ^bb0(%x: f32, %b: f16, %s: f32, %r: f16):
    %wide = arith.extf %b : f16 to f32
    %0 = arith.addf %x, %wide : f32
    %1 = arith.mulf %0, %s : f32
    %old = arith.extf %r : f16 to f32
    %2 = arith.addf %1, %old : f32
    %y = arith.truncf %2 : f32 to f16
    linalg.yield %y : f16
  }
  return
}
