// target=sm_90a

func.func @f(%A: memref<2x16x6x7xbf16>, %B: memref<24x16x3x2xbf16>, %C: memref<2x24x4x6xf32>) {
  linalg.conv_2d_nchw_fchw {strides = dense<1> : tensor<2xi64>, dilations = dense<1> : tensor<2xi64>}
      ins(%A, %B : memref<2x16x6x7xbf16>, memref<24x16x3x2xbf16>) outs(%C : memref<2x24x4x6xf32>)
  return
}
