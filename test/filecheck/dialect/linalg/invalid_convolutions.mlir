// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{linalg.conv_1d_nwc_wcf: expected 1 strides of 1 or more, got [1, 1]}}
func.func @rank(%a: memref<2x9x4xf16>, %b: memref<3x4x6xf16>, %c: memref<2x7x6xf32>) {
  linalg.conv_1d_nwc_wcf {strides = dense<1> : tensor<2xi64>} ins(%a, %b : memref<2x9x4xf16>, memref<3x4x6xf16>) outs(%c : memref<2x7x6xf32>)
  return
}

// -----

// expected-error @+2 {{linalg.conv_1d_nwc_wcf: expected 1 dilations of 1 or more, got [0]}}
func.func @zero(%a: memref<2x9x4xf16>, %b: memref<3x4x6xf16>, %c: memref<2x7x6xf32>) {
  linalg.conv_1d_nwc_wcf {dilations = dense<0> : tensor<1xi64>} ins(%a, %b : memref<2x9x4xf16>, memref<3x4x6xf16>) outs(%c : memref<2x7x6xf32>)
  return
}

// -----

// expected-error @+2 {{linalg.conv_1d_nwc_wcf: expected strides to be dense integers, got dense<1.000000e+00> : tensor<1xf32>}}
func.func @floats(%a: memref<2x9x4xf16>, %b: memref<3x4x6xf16>, %c: memref<2x7x6xf32>) {
  linalg.conv_1d_nwc_wcf {strides = dense<1.0> : tensor<1xf32>} ins(%a, %b : memref<2x9x4xf16>, memref<3x4x6xf16>) outs(%c : memref<2x7x6xf32>)
  return
}

// -----

// expected-error @+2 {{linalg.conv_1d_nwc_wcf: inferred input/output operand #0 has shape's dimension #1 to be greater than or equal to 11, but found 9}}
func.func @reach(%a: memref<2x9x4xf16>, %b: memref<3x4x6xf16>, %c: memref<2x7x6xf32>) {
  linalg.conv_1d_nwc_wcf {dilations = dense<2> : tensor<1xi64>} ins(%a, %b : memref<2x9x4xf16>, memref<3x4x6xf16>) outs(%c : memref<2x7x6xf32>)
  return
}

// -----

// expected-error @+2 {{expected 2 operands in ins(...) and one in outs(...), got 1 and 1}}
func.func @operands(%a: memref<2x9x4xf16>, %b: memref<3x4x6xf16>, %c: memref<2x7x6xf32>) {
  linalg.conv_1d_nwc_wcf ins(%a : memref<2x9x4xf16>) outs(%c : memref<2x7x6xf32>)
  return
}

// -----

// expected-error @+2 {{linalg.conv_1d_nwc_wcf: expected one result of the type of outs(...)}}
func.func @result(%a: tensor<2x9x4xf16>, %b: tensor<3x4x6xf16>, %c: tensor<2x7x6xf32>) {
  linalg.conv_1d_nwc_wcf ins(%a, %b : tensor<2x9x4xf16>, tensor<3x4x6xf16>) outs(%c : tensor<2x7x6xf32>)
  return
}
