// target=sm_80

func.func @f(%A: memref<2x9x9x5xi8>, %B: memref<3x2x5x3xi8>, %C: memref<2x4x7x5x3xi32>) {
  %z = arith.constant 0 : i32
  linalg.depthwise_conv_2d_nhwc_hwcm_q {strides = dense<[2, 1]> : tensor<2xi64>, dilations = dense<[1, 2]> : tensor<2xi64>} ins(%A, %B, %z, %z : memref<2x9x9x5xi8>, memref<3x2x5x3xi8>, i32, i32) outs(%C : memref<2x4x7x5x3xi32>)
  return
}
