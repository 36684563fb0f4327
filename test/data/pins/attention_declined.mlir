// target=sm_80 in=Q=random:2x9x16 in=K=random:2x17x16 in=V=random:2x17x16 in=O=random:2x9x16

func.func @attention(%Q: memref<?x?x16xf16>, %K: memref<?x?x16xf16>, %V: memref<?x?x16xf16>, %O: memref<?x?x16xf16>) {
  %zero = arith.constant 0.0 : f32
  %nothing = arith.constant 0.0 : f16
  %low = arith.constant 0xFF800000 : f32
  %one = arith.constant 1.0 : f32
  %scale = arith.constant 2.500000e-01 : f32
  %at_b0 = arith.constant 0 : index
  %size_b0 = memref.dim %Q, %at_b0 : memref<?x?x16xf16>
  %at_m = arith.constant 1 : index
  %size_m = memref.dim %Q, %at_m : memref<?x?x16xf16>
  %at_n = arith.constant 1 : index
  %size_n = memref.dim %K, %at_n : memref<?x?x16xf16>
  %t1 = memref.alloc(%size_b0, %size_m, %size_n) : memref<?x?x?xf32>
  linalg.fill ins(%zero : f32) outs(%t1 : memref<?x?x?xf32>)
  linalg.generic {indexing_maps = [affine_map<(b0, m, n, d) -> (b0, m, d)>, affine_map<(b0, m, n, d) -> (b0, n, d)>, affine_map<(b0, m, n, d) -> (b0, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%Q, %K : memref<?x?x16xf16>, memref<?x?x16xf16>) outs(%t1 : memref<?x?x?xf32>) {
  ^bb0(%x0: f16, %x1: f16, %y: f32):
    %0 = arith.extf %x0 : f16 to f32
    %1 = arith.extf %x1 : f16 to f32
    %2 = arith.mulf %0, %1 : f32
    %r = arith.addf %y, %2 : f32
    linalg.yield %r : f32
  }
  %t2 = memref.alloc(%size_b0, %size_m, %size_n) : memref<?x?x?xf32>
  linalg.generic {indexing_maps = [affine_map<(b0, m, n) -> (b0, m, n)>, affine_map<(b0, m, n) -> (b0, m, n)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%t1 : memref<?x?x?xf32>) outs(%t2 : memref<?x?x?xf32>) {
  ^bb0(%x0: f32, %y: f32):
    %r = arith.mulf %x0, %scale : f32
    linalg.yield %r : f32
  }
  %t3 = memref.alloc(%size_b0, %size_m, %size_n) : memref<?x?x?xf32>
  linalg.softmax dimension(2) ins(%t2 : memref<?x?x?xf32>) outs(%t3 : memref<?x?x?xf32>)
  %t4 = memref.alloc(%size_b0, %size_m, %size_n) : memref<?x?x?xf16>
  linalg.generic {indexing_maps = [affine_map<(b0, m, n) -> (b0, m, n)>, affine_map<(b0, m, n) -> (b0, m, n)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%t3 : memref<?x?x?xf32>) outs(%t4 : memref<?x?x?xf16>) {
  ^bb0(%x0: f32, %y: f16):
    %r = arith.truncf %x0 : f32 to f16
    linalg.yield %r : f16
  }
  linalg.fill ins(%nothing : f16) outs(%O : memref<?x?x16xf16>)
  linalg.generic {indexing_maps = [affine_map<(b0, m, e, n) -> (b0, m, n)>, affine_map<(b0, m, e, n) -> (b0, n, e)>, affine_map<(b0, m, e, n) -> (b0, m, e)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%t4, %V : memref<?x?x?xf16>, memref<?x?x16xf16>) outs(%O : memref<?x?x16xf16>) {
  ^bb0(%x0: f16, %x1: f16, %y: f16):
    %0 = arith.mulf %x0, %x1 : f16
    %r = arith.addf %y, %0 : f16
    linalg.yield %r : f16
  }
  return
}
