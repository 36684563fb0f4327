// y = relu(x W) V, as torch-mlir prints two linear layers: on tensors, with sums of f16 rounded once.
#id = affine_map<(i, j) -> (i, j)>
func.func @mlp(%x: tensor<96x64xf16>, %w: tensor<64x80xf16>, %v: tensor<80x48xf16>) -> tensor<96x48xf32> {
  %zero = arith.constant 0.0 : f16
  %start = arith.constant 0.0 : f32
  %h0 = tensor.empty() : tensor<96x80xf16>
  %h1 = linalg.fill ins(%zero : f16) outs(%h0 : tensor<96x80xf16>) -> tensor<96x80xf16>
  %h2 = linalg.matmul ins(%x, %w : tensor<96x64xf16>, tensor<64x80xf16>) outs(%h1 : tensor<96x80xf16>) -> tensor<96x80xf16>
  %h = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%h2 : tensor<96x80xf16>) outs(%h0 : tensor<96x80xf16>) {
  ^bb0(%e: f16, %unused: f16):
    %r = arith.maximumf %e, %zero : f16
    linalg.yield %r : f16
  } -> tensor<96x80xf16>
  %y0 = tensor.empty() : tensor<96x48xf32>
  %y1 = linalg.fill ins(%start : f32) outs(%y0 : tensor<96x48xf32>) -> tensor<96x48xf32>
  %y = linalg.matmul ins(%h, %v : tensor<96x80xf16>, tensor<80x48xf16>) outs(%y1 : tensor<96x48xf32>) -> tensor<96x48xf32>
  return %y : tensor<96x48xf32>
}
