// target=sm_90a function=one

func.func private @layer(%x: tensor<8x32xf16>, %w: tensor<32x16xf16>) -> tensor<8x16xf32> {
  %z = arith.constant dense<0.0> : tensor<8x16xf32>
  %r = linalg.matmul ins(%x, %w : tensor<8x32xf16>, tensor<32x16xf16>) outs(%z : tensor<8x16xf32>) -> tensor<8x16xf32>
  return %r : tensor<8x16xf32>
}
func.func @one(%x: tensor<8x32xf16>, %w: tensor<32x16xf16>) -> tensor<8x16xf32> {
  %r = call @layer(%x, %w) : (tensor<8x32xf16>, tensor<32x16xf16>) -> tensor<8x16xf32>
  return %r : tensor<8x16xf32>
}
func.func @two(%x: tensor<8x32xf16>, %v: tensor<32x16xf16>, %w: tensor<32x16xf16>) -> tensor<8x16xf32> {
  %r = call @layer(%x, %v) : (tensor<8x32xf16>, tensor<32x16xf16>) -> tensor<8x16xf32>
  %s = call @layer(%x, %w) : (tensor<8x32xf16>, tensor<32x16xf16>) -> tensor<8x16xf32>
  %e = tensor.empty() : tensor<8x16xf32>
  %t = linalg.sub ins(%r, %s : tensor<8x16xf32>, tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) -> tensor<8x16xf32>
  return %t : tensor<8x16xf32>
}
