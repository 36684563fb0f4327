#b = affine_map<(b, m, n) -> (b, m, n)>
#b_mn = affine_map<(b, m, n) -> (m, n)>
func.func @shared(%x: tensor<2x19x24xf16>, %w: tensor<24x13xf16>) -> tensor<2x19x13xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x24x13xf16>
  %b = linalg.generic {indexing_maps = [#b_mn, #b], iterator_types = ["parallel", "parallel", "parallel"]} ins(%w : tensor<24x13xf16>) outs(%e : tensor<2x24x13xf16>) {
  ^bb0(%i: f16, %o: f16):
    linalg.yield %i : f16
  } -> tensor<2x24x13xf16>
  %tz = tensor.empty() : tensor<2x19x13xf32>
  %z = linalg.fill ins(%zero : f32) outs(%tz : tensor<2x19x13xf32>) -> tensor<2x19x13xf32>
  %p = linalg.batch_matmul ins(%x, %b : tensor<2x19x24xf16>, tensor<2x24x13xf16>) outs(%z : tensor<2x19x13xf32>)
      -> tensor<2x19x13xf32>
  return %p : tensor<2x19x13xf32>
}
