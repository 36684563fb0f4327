// target=sm_90a

func.func @f(%A: memref<13x4xf32>, %B: memref<5x12xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> ((i floordiv 4) * 4 + j, i mod 4)>, affine_map<(i, j) -> (j, i)>],
                   iterator_types = ["parallel", "parallel"]} ins(%A : memref<13x4xf32>) outs(%B : memref<5x12xf32>) {
  ^bb0(%x: f32, %o: f32):
    linalg.yield %x : f32
  }
  return
}
