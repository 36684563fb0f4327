// RUN: warploom-opt %s --split-input-file -p warp-raise-matmul | filecheck %s

// Channels of an odd number are no vectors: each place of the window is a view of the input and one of the kernel; sums of narrow floats are f32.
// CHECK-LABEL: func.func @channels_last
// CHECK:         warp.window %I affine_map<(d0, d1, d2) -> (d0, d1, d2)>
// CHECK:         warp.window %K affine_map<(d0) -> (0, d0)>
// CHECK:         warp.window %I affine_map<(d0, d1, d2) -> (d0, (d1 + 3), d2)>
// CHECK:         warp.window %K affine_map<(d0) -> (1, d0)>
// CHECK:         linalg.generic
// CHECK:           arith.extf %{{.*}} : f16 to f32
// CHECK:           math.fma
// CHECK:           math.fma
// CHECK:           arith.truncf %{{.*}} : f32 to f16
// CHECK-NOT:     linalg.depthwise
func.func @channels_last(%I: memref<2x8x15xf16>, %K: memref<2x15xf16>, %O: memref<2x5x15xf16>) {
  linalg.depthwise_conv_1d_nwc_wc {dilations = dense<3> : tensor<1xi64>}
      ins(%I, %K : memref<2x8x15xf16>, memref<2x15xf16>) outs(%O : memref<2x5x15xf16>)
  return
}

// -----

// Threads compute several pixels of vectors of channels; images are read where they are, not among zeros.
// CHECK-LABEL: func.func @vectors
// CHECK:         linalg.depthwise_conv_2d_nhwc_hwc
// CHECK-SAME:    warp.by_element
func.func @vectors(%I: memref<2x8x9x16xf16>, %K: memref<3x3x16xf16>, %O: memref<2x6x7x16xf16>) {
  linalg.depthwise_conv_2d_nhwc_hwc ins(%I, %K : memref<2x8x9x16xf16>, memref<3x3x16xf16>)
      outs(%O : memref<2x6x7x16xf16>)
  return
}
