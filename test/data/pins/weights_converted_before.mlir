// target=sm_90a

#w = affine_map<(g, k, n) -> (g, k, n)>
#s = affine_map<(g, k, n) -> (g, n)>
func.func @f(%A: memref<18x192xf16>, %Q: memref<3x64x50xi4>, %S: memref<3x50xf16>, %Z: memref<3x50xi4>,
             %C: memref<18x50xf32>) {
  %zero = arith.constant 0.0 : f32
  %M = memref.alloc() : memref<3x64x50xf16>
  linalg.generic {indexing_maps = [#w, #s, #s, #w], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%Q, %S, %Z : memref<3x64x50xi4>, memref<3x50xf16>, memref<3x50xi4>) outs(%M : memref<3x64x50xf16>) {
  ^bb0(%q: i4, %s: f16, %z: i4, %old: f16):
    %0 = arith.uitofp %q : i4 to f16
    %zf = arith.uitofp %z : i4 to f16
    %1 = arith.subf %0, %zf : f16
    %w = arith.mulf %1, %s : f16
    linalg.yield %w : f16
  }
  %W = memref.collapse_shape %M [[0, 1], [2]] : memref<3x64x50xf16> into memref<192x50xf16>
  linalg.fill ins(%zero : f32) outs(%C : memref<18x50xf32>)
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>,
                                 affine_map<(m, n, k) -> (m, n)>]
      ins(%A, %W : memref<18x192xf16>, memref<192x50xf16>) outs(%C : memref<18x50xf32>)
  memref.dealloc %M : memref<3x64x50xf16>
  return
}
