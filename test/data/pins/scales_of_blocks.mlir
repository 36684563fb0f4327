// target=sm_90a

func.func @f(%A: memref<100x256xf8E4M3FN>, %SA: memref<2x100xf32>, %B: memref<256x256xf8E4M3FN>, %SB: memref<2x2xf32>, %D: memref<100x256xf32>) {
  %zero = arith.constant 0.0 : f32
  %a = memref.alloc() : memref<100x256xf32>
  %b = memref.alloc() : memref<256x256xf32>
  linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (k floordiv 128, m)>, affine_map<(m, k) -> (m, k)>], iterator_types = ["parallel", "parallel"]}
      ins(%A, %SA : memref<100x256xf8E4M3FN>, memref<2x100xf32>) outs(%a : memref<100x256xf32>) {
  ^bb0(%q: f8E4M3FN, %s: f32, %o: f32):
    %w = arith.extf %q : f8E4M3FN to f32
    %x = arith.mulf %w, %s : f32
    linalg.yield %x : f32
  }
  linalg.generic {indexing_maps = [affine_map<(n, k) -> (n, k)>, affine_map<(n, k) -> (n floordiv 128, k floordiv 128)>, affine_map<(n, k) -> (n, k)>], iterator_types = ["parallel", "parallel"]}
      ins(%B, %SB : memref<256x256xf8E4M3FN>, memref<2x2xf32>) outs(%b : memref<256x256xf32>) {
  ^bb0(%q: f8E4M3FN, %s: f32, %o: f32):
    %w = arith.extf %q : f8E4M3FN to f32
    %x = arith.mulf %w, %s : f32
    linalg.yield %x : f32
  }
  linalg.fill ins(%zero : f32) outs(%D : memref<100x256xf32>)
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] ins(%a, %b : memref<100x256xf32>, memref<256x256xf32>) outs(%D : memref<100x256xf32>)
  return
}
