// target=sm_90a in=X=random:1x5x9x8 in=F=random:2x3x8x16 in=Y=random:1x4x7x16

func.func @f(%X: memref<?x?x?x?xf16>, %F: memref<?x?x?x?xf16>, %Y: memref<?x?x?x?xf32>) {
      linalg.conv_2d_nhwc_hwcf ins(%X, %F : memref<?x?x?x?xf16>, memref<?x?x?x?xf16>) outs(%Y : memref<?x?x?x?xf32>)
      return
    }
