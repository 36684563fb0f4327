// target=sm_80

#each = affine_map<(a, b, c, d) -> (a, b, c, d)>
func.func @f(%X: tensor<2x5x7x12xbf16>, %K: tensor<3x3x12xbf16>, %bias: tensor<12xf32>) -> tensor<2x5x4x12xbf16> {
  %low = arith.constant 0.0 : bf16
  %zero = arith.constant 0.0 : f32
  %padded = tensor.pad %X low[0, 1, 1, 0] high[0, 1, 1, 0] {
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %low : bf16
  } : tensor<2x5x7x12xbf16> to tensor<2x7x9x12xbf16>
  %empty = tensor.empty() : tensor<2x5x4x12xf32>
  %filled = linalg.fill ins(%zero : f32) outs(%empty : tensor<2x5x4x12xf32>) -> tensor<2x5x4x12xf32>
  %sums = linalg.depthwise_conv_2d_nhwc_hwc {strides = dense<[1, 2]> : tensor<2xi64>, dilations = dense<1> : tensor<2xi64>}
      ins(%padded, %K : tensor<2x7x9x12xbf16>, tensor<3x3x12xbf16>) outs(%filled : tensor<2x5x4x12xf32>) -> tensor<2x5x4x12xf32>
  %out = tensor.empty() : tensor<2x5x4x12xbf16>
  %y = linalg.generic {indexing_maps = [#each, affine_map<(a, b, c, d) -> (d)>, #each],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%sums, %bias : tensor<2x5x4x12xf32>, tensor<12xf32>) outs(%out : tensor<2x5x4x12xbf16>) {
  ^bb0(%s: f32, %b: f32, %old: bf16):
    %0 = arith.addf %s, %b : f32
    %1 = arith.maximumf %0, %zero : f32
    %2 = arith.truncf %1 : f32 to bf16
    linalg.yield %2 : bf16
  } -> tensor<2x5x4x12xbf16>
  return %y : tensor<2x5x4x12xbf16>
}
