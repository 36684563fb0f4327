// target=sm_90a

#map = affine_map<(g, k, n) -> (g, k, n)>
#scale = affine_map<(g, k, n) -> (g, n)>
func.func @f(%A: memref<18x2x64xf16>, %Q: memref<2x64x40xi4>, %S: memref<2x40xf16>, %C: memref<18x40xf32>) {
  %W = memref.alloc() : memref<2x64x40xf16>
  linalg.generic {indexing_maps = [#map, #scale, #map], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%Q, %S : memref<2x64x40xi4>, memref<2x40xf16>) outs(%W : memref<2x64x40xf16>) {
  ^bb0(%q: i4, %s: f16, %old: f16):
    %0 = arith.uitofp %q : i4 to f16
    %1 = arith.mulf %0, %s : f16
    linalg.yield %1 : f16
  }
  linalg.contract indexing_maps = [
      affine_map<(m, n, g, k) -> (m, g, k)>, affine_map<(m, n, g, k) -> (g, k, n)>, affine_map<(m, n, g, k) -> (m, n)>]
      ins(%A, %W : memref<18x2x64xf16>, memref<2x64x40xf16>) outs(%C : memref<18x40xf32>)
  return
}
