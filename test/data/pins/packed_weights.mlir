// target=sm_90a

#q = affine_map<(n, w, h, r, g, b, s, c, q, e) -> (n, g, b, w, r, q, s, e, c, h)>
#s = affine_map<(n, w, h, r, g, b, s, c, q, e) -> (g, n, w, h, r)>
#w = affine_map<(n, w, h, r, g, b, s, c, q, e) -> (n, w, h, r, g, b, s, c, q, e)>
func.func @f(%A: memref<12x256xbf16>, %Q: memref<1x4x1x4x8x4x4x2x2x2xi4>, %S: memref<4x1x4x2x8xbf16>, %Z: memref<4x1x4x2x8xbf16>, %D: memref<12x64xbf16>) {
  %zero = arith.constant 0.0 : bf16
  %W = memref.alloc() : memref<1x4x2x8x4x1x4x2x4x2xbf16>
  linalg.generic {indexing_maps = [#q, #s, #s, #w],
                  iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "parallel"]}
      ins(%Q, %S, %Z : memref<1x4x1x4x8x4x4x2x2x2xi4>, memref<4x1x4x2x8xbf16>, memref<4x1x4x2x8xbf16>) outs(%W : memref<1x4x2x8x4x1x4x2x4x2xbf16>) {
  ^bb0(%q: i4, %s: bf16, %z: bf16, %old: bf16):
    %0 = arith.uitofp %q : i4 to bf16
    %1 = arith.subf %0, %z : bf16
    %2 = arith.mulf %1, %s : bf16
    linalg.yield %2 : bf16
  }
  %B = memref.collapse_shape %W [[0, 1, 2, 3], [4, 5, 6, 7, 8, 9]] : memref<1x4x2x8x4x1x4x2x4x2xbf16> into memref<64x256xbf16>
  linalg.fill ins(%zero : bf16) outs(%D : memref<12x64xbf16>)
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
                                 affine_map<(m, n, k) -> (m, n)>]
      ins(%A, %B : memref<12x256xbf16>, memref<64x256xbf16>) outs(%D : memref<12x64xbf16>)
  return
}
