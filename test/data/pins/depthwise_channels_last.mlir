// target=sm_80

func.func @f(%A: memref<2x14x5xf16>, %B: memref<2x5xf16>, %C: memref<2x7x5xf32>) {
  %z = arith.constant 0 : i32
  linalg.depthwise_conv_1d_nwc_wc {strides = dense<[2]> : tensor<1xi64>, dilations = dense<[1]> : tensor<1xi64>} ins(%A, %B : memref<2x14x5xf16>, memref<2x5xf16>) outs(%C : memref<2x7x5xf32>)
  return
}
