// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

// CHECK-LABEL: func.func @defaults
// CHECK-NEXT:    linalg.conv_1d_nwc_wcf ins(%a, %b : memref<2x9x4xf16>, memref<3x4x6xf16>) outs(%c : memref<2x7x6xf32>)
func.func @defaults(%a: memref<2x9x4xf16>, %b: memref<3x4x6xf16>, %c: memref<2x7x6xf32>) {
  linalg.conv_1d_nwc_wcf ins(%a, %b : memref<2x9x4xf16>, memref<3x4x6xf16>) outs(%c : memref<2x7x6xf32>)
  return
}

// CHECK-LABEL: func.func @tensors
// CHECK-NEXT:    %0 = linalg.conv_2d_nchw_fchw {tag, dilations = dense<1> : tensor<2xi64>, strides = dense<[2, 1]> : tensor<2xi64>} ins(%a, %b : tensor<1x4x9x8xf32>, tensor<6x4x3x2xf32>) outs(%c : tensor<1x6x4x7xf32>) -> tensor<1x6x4x7xf32>
func.func @tensors(%a: tensor<1x4x9x8xf32>, %b: tensor<6x4x3x2xf32>, %c: tensor<1x6x4x7xf32>) -> tensor<1x6x4x7xf32> {
  %0 = linalg.conv_2d_nchw_fchw {dilations = dense<1> : tensor<2xi64>, strides = dense<[2, 1]> : tensor<2xi64>, tag} ins(%a, %b : tensor<1x4x9x8xf32>, tensor<6x4x3x2xf32>) outs(%c : tensor<1x6x4x7xf32>) -> tensor<1x6x4x7xf32>
  return %0 : tensor<1x6x4x7xf32>
}
