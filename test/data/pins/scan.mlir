// target=sm_90a
#mn = affine_map<(m, n) -> (m, n)>
#m = affine_map<(m, n) -> (m)>
func.func @f(%x: memref<3x2100xbf16>, %y: memref<3x2100xbf16>, %last: memref<3xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%last : memref<3xf32>)
  linalg.generic {indexing_maps = [#mn, #mn, #m], iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<3x2100xbf16>) outs(%y, %last : memref<3x2100xbf16>, memref<3xf32>) {
  ^bb0(%a: bf16, %old: bf16, %before: f32):
    %e = arith.extf %a : bf16 to f32
    %s = arith.addf %before, %e : f32
    %r = arith.truncf %s : f32 to bf16
    linalg.yield %r, %s : bf16, f32
  }
  return
}
