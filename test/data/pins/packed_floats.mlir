// target=sm_90a

#q = affine_map<(n, w, h, r, b, g, s, c, q, e) -> (n, b, w, r, q, g, s, e, c, h)>
#s = affine_map<(n, w, h, r, b, g, s, c, q, e) -> (b, g, n, w, h, r)>
#w = affine_map<(n, w, h, r, b, g, s, c, q, e) -> (n, w, h, r, b, g, s, c, q, e)>
func.func @f(%A: memref<20x128xbf16>, %Q: memref<1x2x4x8x4x2x2x2x2x2xf4E2M1FN>, %S: memref<2x2x1x4x2x8xf8E8M0FNU>, %D: memref<20x64xf32>) {
  %zero = arith.constant 0.0 : f32
  %W = memref.alloc() : memref<1x4x2x8x2x2x2x2x4x2xbf16>
  linalg.generic {indexing_maps = [#q, #s, #w],
                  iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "parallel"]}
      ins(%Q, %S : memref<1x2x4x8x4x2x2x2x2x2xf4E2M1FN>, memref<2x2x1x4x2x8xf8E8M0FNU>) outs(%W : memref<1x4x2x8x2x2x2x2x4x2xbf16>) {
  ^bb0(%q: f4E2M1FN, %s: f8E8M0FNU, %old: bf16):
    %0 = arith.extf %q : f4E2M1FN to bf16
    %e = arith.extf %s : f8E8M0FNU to bf16
    %2 = arith.mulf %0, %e : bf16
    linalg.yield %2 : bf16
  }
  %B = memref.collapse_shape %W [[0, 1, 2, 3], [4, 5, 6, 7, 8, 9]] : memref<1x4x2x8x2x2x2x2x4x2xbf16> into memref<64x128xbf16>
  linalg.fill ins(%zero : f32) outs(%D : memref<20x64xf32>)
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
                                 affine_map<(m, n, k) -> (m, n)>]
      ins(%A, %B : memref<20x128xbf16>, memref<64x128xbf16>) outs(%D : memref<20x64xf32>)
  return
}
