// target=sm_90a in=A=random:13x20

func.func @f(%A: tensor<?x20xf16>, %B: tensor<24x12xf16>) -> tensor<16x12xf32> {
  %c1 = arith.constant 1 : index
  %z = arith.constant 0.0 : f16
  %a = tensor.pad %A low[1, 0] high[5, 4] {
  ^bb0(%i: index, %j: index):
    tensor.yield %z : f16
  } : tensor<?x20xf16> to tensor<?x24xf16>
  %zero = arith.constant dense<0.0> : tensor<16x12xf32>
  %s = tensor.extract_slice %a[%c1, 0] [16, 24] [1, 1] : tensor<?x24xf16> to tensor<16x24xf16>
  %r = linalg.matmul ins(%s, %B : tensor<16x24xf16>, tensor<24x12xf16>) outs(%zero : tensor<16x12xf32>)
    -> tensor<16x12xf32>
  return %r : tensor<16x12xf32>
}
