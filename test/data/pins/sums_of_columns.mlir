// target=sm_80

func.func @f(%A: memref<192x37xbf16>, %D: memref<37xf32>) {
  linalg.generic {indexing_maps = [affine_map<(n, m) -> (m, n)>, affine_map<(n, m) -> (n)>],
      iterator_types = ["parallel", "reduction"]} ins(%A : memref<192x37xbf16>) outs(%D : memref<37xf32>) {
  ^bb0(%a: bf16, %old: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.addf %old, %0 : f32
    linalg.yield %1 : f32
  }
  return
}
