// target=sm_90a

#mn = affine_map<(m, n) -> (m, n)>
#m = affine_map<(m, n) -> (m)>
#n = affine_map<(m, n) -> (n)>
#s = affine_map<(m, n) -> ()>

func.func @f(%A: memref<50x20xf16>, %B: memref<20x34xf16>, %R: memref<50x34xf32>, %D: memref<50x34xf32>) {

  %zero = arith.constant 0.0 : f32
  %T = memref.alloc() : memref<50x34xf32>
  linalg.fill ins(%zero : f32) outs(%T : memref<50x34xf32>)
  linalg.matmul ins(%A, %B : memref<50x20xf16>, memref<20x34xf16>) outs(%T : memref<50x34xf32>)

  linalg.add ins(%T, %R : memref<50x34xf32>, memref<50x34xf32>) outs(%T : memref<50x34xf32>)
  linalg.mul ins(%T, %T : memref<50x34xf32>, memref<50x34xf32>) outs(%T : memref<50x34xf32>)
  linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%T : memref<50x34xf32>) outs(%D : memref<50x34xf32>) {
  ^bb0(%x: f32, %old: f32):

    %c = arith.constant 2.0 : f32
    %0 = arith.subf %x, %c : f32
    %zero_ = arith.constant 0.0 : f32
    %p = arith.cmpf ogt, %0, %zero_ : f32
    %1 = arith.select %p, %0, %zero_ : f32
    %2 = arith.addf %1, %old : f32
    linalg.yield %2 : f32
  }

  return
}
