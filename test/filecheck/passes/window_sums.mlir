// RUN: warploom-opt %s --split-input-file -p "warp-set-target{arch=sm_80},warp-raise-matmul" | filecheck %s

// Neighbours in memory are of different channels: threads compute several pixels of vectors of channels.
// CHECK-LABEL: func.func @vectors
// CHECK:         linalg.depthwise_conv_2d_nhwc_hwc
// CHECK-SAME:    warp.by_element
func.func @vectors(%I: memref<2x8x9x16xf16>, %K: memref<3x3x16xf16>, %O: memref<2x6x7x16xf16>) {
  linalg.depthwise_conv_2d_nhwc_hwc ins(%I, %K : memref<2x8x9x16xf16>, memref<3x3x16xf16>)
      outs(%O : memref<2x6x7x16xf16>)
  return
}
