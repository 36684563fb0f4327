// target=sm_90a

#w = affine_map<(k, n) -> (k, n)>
#s = affine_map<(k, n) -> (k floordiv 64, n)>
func.func @f(%A: memref<18x192xf16>, %Q: memref<192x56xi8>, %S: memref<3x56xf16>, %C: memref<18x56xf32>) {
  %zero = arith.constant 0.0 : f32
  %W = memref.alloc() : memref<192x56xf16>
  linalg.generic {indexing_maps = [#w, #s, #w], iterator_types = ["parallel", "parallel"]}
      ins(%Q, %S : memref<192x56xi8>, memref<3x56xf16>) outs(%W : memref<192x56xf16>) {
  ^bb0(%q: i8, %s: f16, %old: f16):
    %0 = arith.sitofp %q : i8 to f16
    %1 = arith.mulf %0, %s fastmath<contract> : f16
    %half = arith.constant 0.5 : f16
    %w = arith.mulf %1, %half fastmath<contract> : f16
    linalg.yield %w : f16
  }
  
  linalg.fill ins(%zero : f32) outs(%C : memref<18x56xf32>)
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>,
                                 affine_map<(m, n, k) -> (m, n)>]
      ins(%A, %W : memref<18x192xf16>, memref<192x56xf16>) outs(%C : memref<18x56xf32>)
  memref.dealloc %W : memref<192x56xf16>
  return
}
