func.func @scores(%q: tensor<2x3x19x16xf16>, %k: tensor<2x3x21x16xf16>) -> tensor<2x3x19x21xf32> {
  %zero = arith.constant 0.0 : f32
  %a = tensor.collapse_shape %q [[0, 1], [2], [3]] : tensor<2x3x19x16xf16> into tensor<6x19x16xf16>
  %wide = tensor.expand_shape %k [[0], [1], [2], [3, 4]] output_shape [2, 3, 21, 16, 1]
      : tensor<2x3x21x16xf16> into tensor<2x3x21x16x1xf16>
  %e = tensor.empty() : tensor<2x3x16x21x1xf16>
  %t = linalg.transpose ins(%wide : tensor<2x3x21x16x1xf16>) outs(%e : tensor<2x3x16x21x1xf16>)
      permutation = [0, 1, 3, 2, 4]
  %b = tensor.collapse_shape %t [[0, 1], [2], [3, 4]] : tensor<2x3x16x21x1xf16> into tensor<6x16x21xf16>
  %tz = tensor.empty() : tensor<6x19x21xf32>
  %z = linalg.fill ins(%zero : f32) outs(%tz : tensor<6x19x21xf32>) -> tensor<6x19x21xf32>
  %p = linalg.batch_matmul ins(%a, %b : tensor<6x19x16xf16>, tensor<6x16x21xf16>) outs(%z : tensor<6x19x21xf32>)
      -> tensor<6x19x21xf32>
  %one = tensor.expand_shape %p [[0, 1], [2], [3, 4]] output_shape [2, 3, 19, 1, 21]
      : tensor<6x19x21xf32> into tensor<2x3x19x1x21xf32>
  %o = tensor.empty() : tensor<2x3x19x21x1xf32>
  %back = linalg.transpose ins(%one : tensor<2x3x19x1x21xf32>) outs(%o : tensor<2x3x19x21x1xf32>)
      permutation = [0, 1, 2, 4, 3]
  %r = tensor.collapse_shape %back [[0], [1], [2], [3, 4]] : tensor<2x3x19x21x1xf32> into tensor<2x3x19x21xf32>
  return %r : tensor<2x3x19x21xf32>
}
