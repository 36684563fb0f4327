// target=sm_90a

func.func @attention(%Q: memref<20x32xf16>, %K: memref<33x32xf16>, %V: memref<33x16xf16>, %S: memref<20x33xf32>, %O: memref<20x16xf16>) {
  %zero = arith.constant 0.0 : f32
  %nothing = arith.constant 0.0 : f16
  %low = arith.constant 0xFF800000 : f32
  %one = arith.constant 1.0 : f32
  %scale = arith.constant 1.767767e-01 : f32
  %t1 = memref.alloc() : memref<20x33xf32>
  linalg.fill ins(%zero : f32) outs(%t1 : memref<20x33xf32>)
  linalg.generic {indexing_maps = [affine_map<(m, n, d) -> (m, d)>, affine_map<(m, n, d) -> (n, d)>, affine_map<(m, n, d) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%Q, %K : memref<20x32xf16>, memref<33x32xf16>) outs(%t1 : memref<20x33xf32>) {
  ^bb0(%x0: f16, %x1: f16, %y: f32):
    %0 = arith.extf %x0 : f16 to f32
    %1 = arith.extf %x1 : f16 to f32
    %2 = arith.mulf %0, %1 : f32
    %r = arith.addf %y, %2 : f32
    linalg.yield %r : f32
  }
  %t2 = memref.alloc() : memref<20x33xf32>
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%t1 : memref<20x33xf32>) outs(%t2 : memref<20x33xf32>) {
  ^bb0(%x0: f32, %y: f32):
    %r = arith.mulf %x0, %scale : f32
    linalg.yield %r : f32
  }
  %t3 = memref.alloc() : memref<20xf32>
  linalg.fill ins(%low : f32) outs(%t3 : memref<20xf32>)
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>], iterator_types = ["parallel", "reduction"]}
      ins(%t2 : memref<20x33xf32>) outs(%t3 : memref<20xf32>) {
  ^bb0(%x0: f32, %y: f32):
    %r = arith.maximumf %x0, %y : f32
    linalg.yield %r : f32
  }
  %t4 = memref.alloc() : memref<20x33xf32>
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%t2, %t3 : memref<20x33xf32>, memref<20xf32>) outs(%t4 : memref<20x33xf32>) {
  ^bb0(%x0: f32, %x1: f32, %y: f32):
    %0 = arith.subf %x0, %x1 : f32
    %r = math.exp %0 : f32
    linalg.yield %r : f32
  }
  %t5 = memref.alloc() : memref<20xf32>
  linalg.fill ins(%zero : f32) outs(%t5 : memref<20xf32>)
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>], iterator_types = ["parallel", "reduction"]}
      ins(%t4 : memref<20x33xf32>) outs(%t5 : memref<20xf32>) {
  ^bb0(%x0: f32, %y: f32):
    %r = arith.addf %x0, %y : f32
    linalg.yield %r : f32
  }
  %t6 = memref.alloc() : memref<20x33xf32>
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%t4, %t5 : memref<20x33xf32>, memref<20xf32>) outs(%t6 : memref<20x33xf32>) {
  ^bb0(%x0: f32, %x1: f32, %y: f32):
    %r = arith.divf %x0, %x1 : f32
    linalg.yield %r : f32
  }
  %t7 = memref.alloc() : memref<20x33xf16>
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%t6 : memref<20x33xf32>) outs(%t7 : memref<20x33xf16>) {
  ^bb0(%x0: f32, %y: f16):
    %r = arith.truncf %x0 : f32 to f16
    linalg.yield %r : f16
  }
  linalg.fill ins(%nothing : f16) outs(%O : memref<20x16xf16>)
  linalg.generic {indexing_maps = [affine_map<(m, e, n) -> (m, n)>, affine_map<(m, e, n) -> (n, e)>, affine_map<(m, e, n) -> (m, e)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%t7, %V : memref<20x33xf16>, memref<33x16xf16>) outs(%O : memref<20x16xf16>) {
  ^bb0(%x0: f16, %x1: f16, %y: f16):
    %0 = arith.mulf %x0, %x1 : f16
    %r = arith.addf %y, %0 : f16
    linalg.yield %r : f16
  }
  linalg.copy ins(%t2 : memref<20x33xf32>) outs(%S : memref<20x33xf32>)
  return
}
