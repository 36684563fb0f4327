// target=sm_80 in=A=random:9x7 in=B=random:7 in=C=random:9

func.func @f(%A: memref<?x?xf16>, %B: memref<?xf16, strided<[1], offset: ?>>, %C: memref<?xf32, strided<[1], offset: ?>>) {
  linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (k)>, affine_map<(m, k) -> (m)>], iterator_types = ["parallel", "reduction"]}
      ins(%A, %B : memref<?x?xf16>, memref<?xf16, strided<[1], offset: ?>>) outs(%C : memref<?xf32, strided<[1], offset: ?>>) {
  ^bb0(%a: f16, %b: f16, %c: f32):
    %x = arith.extf %a : f16 to f32
    %y = arith.extf %b : f16 to f32
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %c, %p : f32
    linalg.yield %s : f32
  }
  return
}
