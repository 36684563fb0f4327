// target=sm_90a in=X=random:2x5x6x64 in=W=random:3x3x64x40 in=Y=random:2x5x3x40

func.func @f(%X: memref<2x5x6x64xbf16>, %W: memref<3x3x64x40xbf16>, %Y: memref<2x5x3x40xf32>) {
  %z = arith.constant 0.0 : bf16
  %P = memref.alloc() : memref<2x7x8x64xbf16>
  linalg.fill ins(%z : bf16) outs(%P : memref<2x7x8x64xbf16>)
  %S = memref.subview %P[0, 1, 1, 0] [2, 5, 6, 64] [1, 1, 1, 1] : memref<2x7x8x64xbf16> to memref<2x5x6x64xbf16, strided<[3584, 512, 64, 1], offset: 576>>
  linalg.copy ins(%X : memref<2x5x6x64xbf16>) outs(%S : memref<2x5x6x64xbf16, strided<[3584, 512, 64, 1], offset: 576>>)
  linalg.conv_2d_nhwc_hwcf {strides = dense<[1, 2]> : tensor<2xi64>, dilations = dense<1> : tensor<2xi64>}
      ins(%P, %W : memref<2x7x8x64xbf16>, memref<3x3x64x40xbf16>) outs(%Y : memref<2x5x3x40xf32>)
  return
}
