// target=sm_80

func.func @forward(%Q: memref<1x2x40x32xbf16>, %K: memref<1x24x32xbf16>, %V: memref<1x24x32xbf16>, %O: memref<1x2x40x32xbf16>, %lse: memref<1x2x40xf32>) {
  %zero_f32 = arith.constant 0.0 : f32
  %zero_bf16 = arith.constant 0.0 : bf16
  %scale = arith.constant 1.767767e-01 : f32
  %low = arith.constant 0xFF800000 : f32
  %right = arith.constant 0 : index
  %left = arith.constant 0 : index
  %S = memref.alloc() : memref<1x2x40x24xf32>
  linalg.fill ins(%zero_f32 : f32) outs(%S : memref<1x2x40x24xf32>)
  linalg.generic {indexing_maps = [affine_map<(b, g, m, n, d) -> (b, g, m, d)>, affine_map<(b, g, m, n, d) -> (b, n, d)>, affine_map<(b, g, m, n, d) -> (b, g, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%Q, %K : memref<1x2x40x32xbf16>, memref<1x24x32xbf16>) outs(%S : memref<1x2x40x24xf32>) {
    ^bb0(%x0: bf16, %x1: bf16, %y: f32):
      %0 = arith.extf %x0 : bf16 to f32
      %1 = arith.extf %x1 : bf16 to f32
      %2 = arith.mulf %0, %1 : f32
      %r = arith.addf %y, %2 : f32
      linalg.yield %r : f32
  }
  %X = memref.alloc() : memref<1x2x40x24xf32>
  linalg.generic {indexing_maps = [affine_map<(b, g, m, n) -> (b, g, m, n)>, affine_map<(b, g, m, n) -> (b, g, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%S : memref<1x2x40x24xf32>) outs(%X : memref<1x2x40x24xf32>) {
    ^bb0(%x0: f32, %y: f32):
      %i = linalg.index 2 : index
      %j = linalg.index 3 : index
      %s0 = arith.mulf %x0, %scale : f32
      %e = arith.addi %i, %right : index
      %c = arith.cmpi sgt, %j, %e : index
      %r = arith.select %c, %low, %s0 : f32
      linalg.yield %r : f32
  }
  %M = memref.alloc() : memref<1x2x40xf32>
  linalg.fill ins(%low : f32) outs(%M : memref<1x2x40xf32>)
  linalg.generic {indexing_maps = [affine_map<(b, g, m, n) -> (b, g, m, n)>, affine_map<(b, g, m, n) -> (b, g, m)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%X : memref<1x2x40x24xf32>) outs(%M : memref<1x2x40xf32>) {
    ^bb0(%x0: f32, %y: f32):
      %r = arith.maximumf %y, %x0 : f32
      linalg.yield %r : f32
  }
  %E = memref.alloc() : memref<1x2x40x24xf32>
  linalg.generic {indexing_maps = [affine_map<(b, g, m, n) -> (b, g, m, n)>, affine_map<(b, g, m, n) -> (b, g, m)>, affine_map<(b, g, m, n) -> (b, g, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%X, %M : memref<1x2x40x24xf32>, memref<1x2x40xf32>) outs(%E : memref<1x2x40x24xf32>) {
    ^bb0(%x0: f32, %x1: f32, %y: f32):
      %0 = arith.subf %x0, %x1 : f32
      %r = math.exp %0 : f32
      linalg.yield %r : f32
  }
  %L = memref.alloc() : memref<1x2x40xf32>
  linalg.fill ins(%zero_f32 : f32) outs(%L : memref<1x2x40xf32>)
  linalg.generic {indexing_maps = [affine_map<(b, g, m, n) -> (b, g, m, n)>, affine_map<(b, g, m, n) -> (b, g, m)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%E : memref<1x2x40x24xf32>) outs(%L : memref<1x2x40xf32>) {
    ^bb0(%x0: f32, %y: f32):
      %r = arith.addf %y, %x0 : f32
      linalg.yield %r : f32
  }
  %P16 = memref.alloc() : memref<1x2x40x24xbf16>
  linalg.generic {indexing_maps = [affine_map<(b, g, m, n) -> (b, g, m, n)>, affine_map<(b, g, m, n) -> (b, g, m)>, affine_map<(b, g, m, n) -> (b, g, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%E, %L : memref<1x2x40x24xf32>, memref<1x2x40xf32>) outs(%P16 : memref<1x2x40x24xbf16>) {
    ^bb0(%x0: f32, %x1: f32, %y: bf16):
      %0 = arith.divf %x0, %x1 : f32
      %r = arith.truncf %0 : f32 to bf16
      linalg.yield %r : bf16
  }
  linalg.fill ins(%zero_bf16 : bf16) outs(%O : memref<1x2x40x32xbf16>)
  linalg.generic {indexing_maps = [affine_map<(b, g, m, n, e) -> (b, g, m, n)>, affine_map<(b, g, m, n, e) -> (b, n, e)>, affine_map<(b, g, m, n, e) -> (b, g, m, e)>], iterator_types = ["parallel", "parallel", "parallel", "reduction", "parallel"]}
      ins(%P16, %V : memref<1x2x40x24xbf16>, memref<1x24x32xbf16>) outs(%O : memref<1x2x40x32xbf16>) {
    ^bb0(%x0: bf16, %x1: bf16, %y: bf16):
      %0 = arith.mulf %x0, %x1 : bf16
      %r = arith.addf %y, %0 : bf16
      linalg.yield %r : bf16
  }
  linalg.generic {indexing_maps = [affine_map<(b, g, m) -> (b, g, m)>, affine_map<(b, g, m) -> (b, g, m)>, affine_map<(b, g, m) -> (b, g, m)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%M, %L : memref<1x2x40xf32>, memref<1x2x40xf32>) outs(%lse : memref<1x2x40xf32>) {
    ^bb0(%x0: f32, %x1: f32, %y: f32):
      %0 = math.log %x1 : f32
      %r = arith.addf %x0, %0 : f32
      linalg.yield %r : f32
  }
  return
}
