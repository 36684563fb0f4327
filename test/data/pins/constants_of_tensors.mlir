// target=sm_80

#mn = affine_map<(m, n) -> (m, n)>
#n = affine_map<(m, n) -> (n)>
func.func @f(%A: tensor<5x6xf16>) -> (tensor<5x4xf32>, tensor<5x4xf32>) {
  %weights = arith.constant dense<[[-1.75, 5.75, -6.5, -7.625], [7.375, -4.25, -2.625, 1.5], [-0.375, -7.375, 5.125, -6.375], [-4.375, 2.875, -4.0, 0.0], [7.25, -6.125, 3.25, -1.0], [-1.75, -4.125, -4.25, -2.625]]> : tensor<6x4xf16>
  %ones = arith.constant dense<1.5> : tensor<6x4xf16>
  %zero = arith.constant dense<0.0> : tensor<5x4xf32>
  %bias = arith.constant dense<[2.0, -1.5, 0.25, 3.0]> : tensor<4xf32>
  %p = linalg.matmul ins(%A, %weights : tensor<5x6xf16>, tensor<6x4xf16>) outs(%zero : tensor<5x4xf32>) -> tensor<5x4xf32>
  %q = linalg.matmul ins(%A, %ones : tensor<5x6xf16>, tensor<6x4xf16>) outs(%zero : tensor<5x4xf32>) -> tensor<5x4xf32>
  %r = linalg.generic {indexing_maps = [#mn, #n, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%p, %bias : tensor<5x4xf32>, tensor<4xf32>) outs(%zero : tensor<5x4xf32>) {
  ^bb0(%x: f32, %b: f32, %old: f32):
    %y = arith.addf %x, %b : f32
    linalg.yield %y : f32
  } -> tensor<5x4xf32>
  return %r, %q : tensor<5x4xf32>, tensor<5x4xf32>
}
