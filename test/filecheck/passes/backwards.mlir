// RUN: warploom-opt %s -p warp-set-target,warp-raise-matmul,warp-schedule --verify-diagnostics --split-input-file

#g = affine_map<(n, h, w, c, r, s, f) -> (n, h - r + 2, w - s + 2, f)>
#w = affine_map<(n, h, w, c, r, s, f) -> (f, r, s, c)>
#x = affine_map<(n, h, w, c, r, s, f) -> (n, h, w, c)>

func.func @f(%G: memref<1x6x6x12xbf16>, %W: memref<12x3x3x64xbf16>, %X: memref<1x4x4x64xf32>) {
  // expected-error @below {{A runs backwards: memref<1x4x4x3x3x12xbf16, strided<[432, 72, 12, -72, -12, 1], offset: 168>>; warp-im2col lets tensor copies read it}}
  linalg.generic {indexing_maps = [#g, #w, #x],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%G, %W : memref<1x6x6x12xbf16>, memref<12x3x3x64xbf16>) outs(%X : memref<1x4x4x64xf32>) {
  ^bb0(%x: bf16, %g: bf16, %old: f32):
    %0 = arith.extf %x : bf16 to f32
    %1 = arith.extf %g : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %old, %2 : f32
    linalg.yield %3 : f32
  }
  return
}
