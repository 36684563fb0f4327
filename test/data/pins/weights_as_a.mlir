// target=sm_90a

func.func @f(%A: memref<48x64xi8>, %B: memref<64x21xf16>, %C: memref<48x21xf32, strided<[1, 48]>>) {
  linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>,
                                   affine_map<(m, n, k) -> (m, n)>],
                  iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%A, %B : memref<48x64xi8>, memref<64x21xf16>) outs(%C : memref<48x21xf32, strided<[1, 48]>>) {
  ^bb0(%a: i8, %b: f16, %c: f32):
    %0 = arith.sitofp %a : i8 to f32
    %1 = arith.extf %b : f16 to f32
    %2 = arith.mulf %0, %1 : f32
    %half = arith.constant 0.5 : f32
    %3 = arith.mulf %2, %half : f32
    %4 = arith.subf %c, %3 : f32
    linalg.yield %4 : f32
  }
  return
}
