// target=sm_90a

#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#d = affine_map<(m, n, k) -> (m, n)>
#nk = affine_map<(n, k) -> (n, k)>
#mn = affine_map<(m, n) -> (m, n)>
#n = affine_map<(m, n) -> (n)>
func.func @f(%A: memref<20x160xf8E4M3FN>, %Q: memref<72x160xi4>, %S: memref<72xf32>, %D: memref<20x72xf32>) {
  %zero = arith.constant 0.0 : f32
  %b = memref.alloc() : memref<72x160xf8E4M3FN>
  %sums = memref.alloc() : memref<20x72xf32>
  linalg.generic {indexing_maps = [#nk, #nk], iterator_types = ["parallel", "parallel"]}
      ins(%Q : memref<72x160xi4>) outs(%b : memref<72x160xf8E4M3FN>) {
  ^bb0(%q: i4, %old: f8E4M3FN):
    %w = arith.sitofp %q : i4 to f8E4M3FN
    linalg.yield %w : f8E4M3FN
  }
  linalg.fill ins(%zero : f32) outs(%sums : memref<20x72xf32>)
  linalg.matmul indexing_maps = [#a, #b, #d] ins(%A, %b : memref<20x160xf8E4M3FN>, memref<72x160xf8E4M3FN>)
    outs(%sums : memref<20x72xf32>)
  linalg.generic {indexing_maps = [#mn, #n, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%sums, %S : memref<20x72xf32>, memref<72xf32>) outs(%D : memref<20x72xf32>) {
  ^bb0(%x: f32, %s: f32, %old: f32):
    %y = arith.mulf %x, %s : f32
    linalg.yield %y : f32
  }
  return
}
