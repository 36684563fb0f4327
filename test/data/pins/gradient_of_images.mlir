// target=sm_90a in=G=random:1x7x6x40 in=W=random:40x3x2x64 in=X=random:1x5x5x64

#g = affine_map<(n, h, w, c, r, s, f) -> (n, h - r + 2, w - s + 1, f)>
#w = affine_map<(n, h, w, c, r, s, f) -> (f, r, s, c)>
#x = affine_map<(n, h, w, c, r, s, f) -> (n, h, w, c)>
func.func @f(%G: memref<1x7x6x40xbf16>, %W: memref<40x3x2x64xbf16>, %X: memref<1x5x5x64xf32>) {
  linalg.generic {indexing_maps = [#g, #w, #x],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%G, %W : memref<1x7x6x40xbf16>, memref<40x3x2x64xbf16>) outs(%X : memref<1x5x5x64xf32>) {
  ^bb0(%g: bf16, %w: bf16, %old: f32):
    %0 = arith.extf %g : bf16 to f32
    %1 = arith.extf %w : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %old, %2 : f32
    linalg.yield %3 : f32
  }
  return
}
