// target=sm_90a

#map = affine_map<(d0, d1, d2) -> (d0, d1 floordiv 8 + d2 floordiv 12, d1 mod 8 + (d2 mod 12) floordiv 4, d2 mod 4)>
#map1 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d3, d2)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
func.func @f(%arg0: tensor<2x9x10x4xf16>, %arg1: tensor<3x3x4x6xf16>) -> tensor<2x7x8x6xf16> {
  %cst = arith.constant 0.000000e+00 : f16
  %0 = tensor.empty() : tensor<2x7x8x6xf16>
  %collapsed = tensor.collapse_shape %arg1 [[0, 1, 2], [3]] : tensor<3x3x4x6xf16> into tensor<36x6xf16>
  %collapsed_0 = tensor.collapse_shape %0 [[0], [1, 2], [3]] : tensor<2x7x8x6xf16> into tensor<2x56x6xf16>
  %1 = linalg.fill ins(%cst : f16) outs(%collapsed_0 : tensor<2x56x6xf16>) -> tensor<2x56x6xf16>
  %2 = tensor.empty() : tensor<2x56x36xf16>
  %3 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%arg0 : tensor<2x9x10x4xf16>) outs(%2 : tensor<2x56x36xf16>) {
  ^bb0(%in: f16, %out: f16):
    linalg.yield %in : f16
  } -> tensor<2x56x36xf16>
  %4 = linalg.generic {indexing_maps = [#map2, #map3, #map4],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%3, %collapsed : tensor<2x56x36xf16>, tensor<36x6xf16>) outs(%1 : tensor<2x56x6xf16>) {
  ^bb0(%in: f16, %in_1: f16, %out: f16):
    %5 = arith.mulf %in, %in_1 : f16
    %6 = arith.addf %5, %out : f16
    linalg.yield %6 : f16
  } -> tensor<2x56x6xf16>
  %expanded = tensor.expand_shape %4 [[0], [1, 2], [3]] output_shape [2, 7, 8, 6]
      : tensor<2x56x6xf16> into tensor<2x7x8x6xf16>
  return %expanded : tensor<2x7x8x6xf16>
}
