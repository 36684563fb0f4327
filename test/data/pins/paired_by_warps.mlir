// target=sm_80

#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
#e = affine_map<(m, n) -> (m, n)>
func.func @f(%A: memref<37x40xbf16>, %B1: memref<24x40xbf16>, %B2: memref<24x40xbf16>, %D: memref<37x24xbf16>) {
  %zero = arith.constant 0.0 : f32
  %T = memref.alloc() : memref<37x24xf32>
  linalg.fill ins(%zero : f32) outs(%T : memref<37x24xf32>)
  linalg.matmul indexing_maps = [#a, #b, #c] ins(%A, %B1 : memref<37x40xbf16>, memref<24x40xbf16>) outs(%T : memref<37x24xf32>)
  %U = memref.alloc() : memref<37x24xf32>
  linalg.fill ins(%zero : f32) outs(%U : memref<37x24xf32>)
  linalg.matmul indexing_maps = [#a, #b, #c] ins(%A, %B2 : memref<37x40xbf16>, memref<24x40xbf16>) outs(%U : memref<37x24xf32>)
  linalg.generic {indexing_maps = [#e, #e, #e], iterator_types = ["parallel", "parallel"]} ins(%T, %U : memref<37x24xf32>, memref<37x24xf32>) outs(%D : memref<37x24xbf16>) {
  ^bb0(%x: f32, %y: f32, %o: bf16):
    %one = arith.constant 1.0 : f32
    %n = arith.negf %x : f32
    %e = math.exp %n : f32
    %s = arith.addf %one, %e : f32
    %q = arith.divf %x, %s : f32
    %r = arith.mulf %q, %y : f32
    %u = arith.truncf %r : f32 to bf16
    linalg.yield %u : bf16
  }
  return
}
