// target=sm_90a in=A=random:70x45 in=D=random:70x90

#mn = affine_map<(m, n) -> (m, n)>
func.func @f(%A: memref<?x45xf16>, %B: memref<45x90xf16>, %D: memref<?x90xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%D : memref<?x90xf32>)
  linalg.matmul ins(%A, %B : memref<?x45xf16>, memref<45x90xf16>) outs(%D : memref<?x90xf32>)
  linalg.generic {indexing_maps = [#mn], iterator_types = ["parallel", "parallel"]}
      outs(%D : memref<?x90xf32>) {
  ^bb0(%x: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %three = arith.constant 3 : index
    %end = arith.addi %i, %three : index
    %keep = arith.cmpi sle, %j, %end : index
    %wide = arith.index_cast %j : index to i64
    %slope = arith.sitofp %wide : i64 to f32
    %biased = arith.addf %x, %slope : f32
    %none = arith.constant -1.0 : f32
    %y = arith.select %keep, %biased, %none : f32
    linalg.yield %y : f32
  }
  return
}
