// target=sm_90a

func.func @gradient(%Q: memref<1x2x50x64xbf16>, %K: memref<1x70x64xbf16>, %V: memref<1x70x64xbf16>, %dO: memref<1x2x50x64xbf16>, %lse: memref<1x2x50xf32>, %delta: memref<1x2x50xf32>, %slopes: memref<2xf32>, %dQ: memref<1x2x50x64xbf16>, %dK: memref<1x70x64xbf16>, %dV: memref<1x70x64xbf16>) {
  %zero_f32 = arith.constant 0.0 : f32
  %zero_bf16 = arith.constant 0.0 : bf16
  %scale = arith.constant 1.250000e-01 : f32
  %low = arith.constant 0xFF800000 : f32
  %right = arith.constant 9 : index
  %left = arith.constant 0 : index
  %cap = arith.constant 2.000000e+00 : f32
  %one = arith.constant 1.0 : f32
  %none = arith.constant 0 : i8
  %S = memref.alloc() : memref<1x2x50x70xf32>
  linalg.fill ins(%zero_f32 : f32) outs(%S : memref<1x2x50x70xf32>)
  linalg.generic {indexing_maps = [affine_map<(b, g, m, n, d) -> (b, g, m, d)>, affine_map<(b, g, m, n, d) -> (b, n, d)>, affine_map<(b, g, m, n, d) -> (b, g, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%Q, %K : memref<1x2x50x64xbf16>, memref<1x70x64xbf16>) outs(%S : memref<1x2x50x70xf32>) {
    ^bb0(%x0: bf16, %x1: bf16, %y: f32):
      %0 = arith.extf %x0 : bf16 to f32
      %1 = arith.extf %x1 : bf16 to f32
      %2 = arith.mulf %0, %1 : f32
      %r = arith.addf %y, %2 : f32
      linalg.yield %r : f32
  }
  %dP = memref.alloc() : memref<1x2x50x70xf32>
  linalg.fill ins(%zero_f32 : f32) outs(%dP : memref<1x2x50x70xf32>)
  linalg.generic {indexing_maps = [affine_map<(b, g, m, n, e) -> (b, g, m, e)>, affine_map<(b, g, m, n, e) -> (b, n, e)>, affine_map<(b, g, m, n, e) -> (b, g, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%dO, %V : memref<1x2x50x64xbf16>, memref<1x70x64xbf16>) outs(%dP : memref<1x2x50x70xf32>) {
    ^bb0(%x0: bf16, %x1: bf16, %y: f32):
      %0 = arith.extf %x0 : bf16 to f32
      %1 = arith.extf %x1 : bf16 to f32
      %2 = arith.mulf %0, %1 : f32
      %r = arith.addf %y, %2 : f32
      linalg.yield %r : f32
  }
  %P = memref.alloc() : memref<1x2x50x70xf32>
  linalg.generic {indexing_maps = [affine_map<(b, g, m, n) -> (b, g, m, n)>, affine_map<(b, g, m, n) -> (b, g, m)>, affine_map<(b, g, m, n) -> (g)>, affine_map<(b, g, m, n) -> (b, g, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%S, %lse, %slopes : memref<1x2x50x70xf32>, memref<1x2x50xf32>, memref<2xf32>) outs(%P : memref<1x2x50x70xf32>) {
    ^bb0(%x0: f32, %x1: f32, %x2: f32, %y: f32):
      %i = linalg.index 2 : index
      %j = linalg.index 3 : index
      %s0 = arith.mulf %x0, %scale : f32
      %t0 = arith.divf %s0, %cap : f32
      %t1 = math.tanh %t0 : f32
      %t2 = arith.mulf %t1, %cap : f32
      %away = arith.subi %j, %i : index
      %a0 = arith.index_cast %away : index to i32
      %a1 = arith.sitofp %a0 : i32 to f32
      %a2 = arith.mulf %a1, %x2 : f32
      %a3 = arith.addf %t2, %a2 : f32
      %e = arith.addi %i, %right : index
      %c = arith.cmpi sgt, %j, %e : index
      %s1 = arith.select %c, %low, %a3 : f32
      %p = arith.subf %s1, %x1 : f32
      %r = math.exp %p : f32
      linalg.yield %r : f32
  }
  %P16 = memref.alloc() : memref<1x2x50x70xbf16>
  linalg.generic {indexing_maps = [affine_map<(b, g, m, n) -> (b, g, m, n)>, affine_map<(b, g, m, n) -> (b, g, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%P : memref<1x2x50x70xf32>) outs(%P16 : memref<1x2x50x70xbf16>) {
    ^bb0(%x0: f32, %y: bf16):
      %r = arith.truncf %x0 : f32 to bf16
      linalg.yield %r : bf16
  }
  %dS = memref.alloc() : memref<1x2x50x70xbf16>
  linalg.generic {indexing_maps = [affine_map<(b, g, m, n) -> (b, g, m, n)>, affine_map<(b, g, m, n) -> (b, g, m, n)>, affine_map<(b, g, m, n) -> (b, g, m)>, affine_map<(b, g, m, n) -> (b, g, m, n)>, affine_map<(b, g, m, n) -> (b, g, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%P, %dP, %delta, %S : memref<1x2x50x70xf32>, memref<1x2x50x70xf32>, memref<1x2x50xf32>, memref<1x2x50x70xf32>) outs(%dS : memref<1x2x50x70xbf16>) {
    ^bb0(%x0: f32, %x1: f32, %x2: f32, %x3: f32, %y: bf16):
      %0 = arith.subf %x1, %x2 : f32
      %1 = arith.mulf %x0, %0 : f32
      %w = arith.mulf %1, %scale : f32
      %3 = arith.mulf %x3, %scale : f32
      %4 = arith.divf %3, %cap : f32
      %5 = math.tanh %4 : f32
      %6 = arith.mulf %5, %5 : f32
      %7 = arith.subf %one, %6 : f32
      %2 = arith.mulf %w, %7 : f32
      %r = arith.truncf %2 : f32 to bf16
      linalg.yield %r : bf16
  }
  linalg.fill ins(%zero_bf16 : bf16) outs(%dQ : memref<1x2x50x64xbf16>)
  linalg.generic {indexing_maps = [affine_map<(b, g, m, n, d) -> (b, g, m, n)>, affine_map<(b, g, m, n, d) -> (b, n, d)>, affine_map<(b, g, m, n, d) -> (b, g, m, d)>], iterator_types = ["parallel", "parallel", "parallel", "reduction", "parallel"]}
      ins(%dS, %K : memref<1x2x50x70xbf16>, memref<1x70x64xbf16>) outs(%dQ : memref<1x2x50x64xbf16>) {
    ^bb0(%x0: bf16, %x1: bf16, %y: bf16):
      %0 = arith.mulf %x0, %x1 : bf16
      %r = arith.addf %y, %0 : bf16
      linalg.yield %r : bf16
  }
  linalg.fill ins(%zero_bf16 : bf16) outs(%dK : memref<1x70x64xbf16>)
  linalg.generic {indexing_maps = [affine_map<(b, g, m, n, d) -> (b, g, m, n)>, affine_map<(b, g, m, n, d) -> (b, g, m, d)>, affine_map<(b, g, m, n, d) -> (b, n, d)>], iterator_types = ["parallel", "reduction", "reduction", "parallel", "parallel"]}
      ins(%dS, %Q : memref<1x2x50x70xbf16>, memref<1x2x50x64xbf16>) outs(%dK : memref<1x70x64xbf16>) {
    ^bb0(%x0: bf16, %x1: bf16, %y: bf16):
      %0 = arith.mulf %x0, %x1 : bf16
      %r = arith.addf %y, %0 : bf16
      linalg.yield %r : bf16
  }
  linalg.fill ins(%zero_bf16 : bf16) outs(%dV : memref<1x70x64xbf16>)
  linalg.generic {indexing_maps = [affine_map<(b, g, m, n, e) -> (b, g, m, n)>, affine_map<(b, g, m, n, e) -> (b, g, m, e)>, affine_map<(b, g, m, n, e) -> (b, n, e)>], iterator_types = ["parallel", "reduction", "reduction", "parallel", "parallel"]}
      ins(%P16, %dO : memref<1x2x50x70xbf16>, memref<1x2x50x64xbf16>) outs(%dV : memref<1x70x64xbf16>) {
    ^bb0(%x0: bf16, %x1: bf16, %y: bf16):
      %0 = arith.mulf %x0, %x1 : bf16
      %r = arith.addf %y, %0 : bf16
      linalg.yield %r : bf16
  }
  return
}
