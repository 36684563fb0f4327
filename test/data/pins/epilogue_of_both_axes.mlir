// target=sm_75

#mn = affine_map<(m, n) -> (m, n)>
#m = affine_map<(m, n) -> (m)>
#n = affine_map<(m, n) -> (n)>
#s = affine_map<(m, n) -> ()>

func.func @f(%A: memref<45x24xf16>, %B: memref<24x39xf16>, %row: memref<39xf32>, %column: memref<45xf32>, %R: memref<45x39xf16>, %alpha: f32, %D: memref<45x39xf16>) {

  %zero = arith.constant 0.0 : f32
  %T = memref.alloc() : memref<45x39xf32>
  linalg.fill ins(%zero : f32) outs(%T : memref<45x39xf32>)
  linalg.matmul ins(%A, %B : memref<45x24xf16>, memref<24x39xf16>) outs(%T : memref<45x39xf32>)

  linalg.generic {indexing_maps = [#n, #m, #mn, #s, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%row, %column, %R, %alpha : memref<39xf32>, memref<45xf32>, memref<45x39xf16>, f32) outs(%T : memref<45x39xf32>) {
  ^bb0(%r: f32, %c: f32, %q: f16, %s: f32, %x: f32):

    %rf = arith.negf %r : f32
    %cf = arith.negf %c : f32
    %0 = arith.addf %x, %rf : f32
    %1 = arith.addf %0, %cf : f32
    %2 = arith.mulf %1, %s : f32
    %3 = arith.extf %q : f16 to f32
    %4 = arith.addf %2, %3 : f32
    linalg.yield %4 : f32
  }
  linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%T : memref<45x39xf32>) outs(%D : memref<45x39xf16>) {
  ^bb0(%x: f32, %old: f16):

    %0 = arith.truncf %x : f32 to f16
    linalg.yield %0 : f16
  }

  return
}
