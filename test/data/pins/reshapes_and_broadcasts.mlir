// target=sm_90a

func.func @f(%x: tensor<2x16x64xf16>, %w: tensor<80x48xf16>, %b: tensor<48xf32>) -> tensor<2x16x48xf32> {
  %a = tensor.collapse_shape %x [[0, 1], [2]] : tensor<2x16x64xf16> into tensor<32x64xf16>
  %part = tensor.extract_slice %w[8, 0] [64, 48] [1, 1] : tensor<80x48xf16> to tensor<64x48xf16>
  %e = tensor.empty() : tensor<32x48xf32>
  %start = linalg.broadcast ins(%b : tensor<48xf32>) outs(%e : tensor<32x48xf32>) dimensions = [0]
  %r = linalg.matmul ins(%a, %part : tensor<32x64xf16>, tensor<64x48xf16>) outs(%start : tensor<32x48xf32>)
    -> tensor<32x48xf32>
  %y = tensor.expand_shape %r [[0, 1], [2]] output_shape [2, 16, 48] : tensor<32x48xf32> into tensor<2x16x48xf32>
  return %y : tensor<2x16x48xf32>
}
