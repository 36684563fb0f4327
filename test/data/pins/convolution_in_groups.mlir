// target=sm_90a in=X=random:1x6x7x8x8 in=W=random:8x8x3x2x8 in=Y=random:1x4x6x8x8

func.func @f(%X: memref<1x6x7x8x8xbf16>, %W: memref<8x8x3x2x8xbf16>, %Y: memref<1x4x6x8x8xf32>) {
  linalg.conv_2d_nhwgc_gfhwc {strides = dense<1> : tensor<2xi64>, dilations = dense<1> : tensor<2xi64>}
      ins(%X, %W : memref<1x6x7x8x8xbf16>, memref<8x8x3x2x8xbf16>) outs(%Y : memref<1x4x6x8x8xf32>)
  return
}
