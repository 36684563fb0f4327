// RUN: warploom-opt %s -p warp-bufferize --split-input-file --verify-diagnostics

func.func @apart(%x: tensor<5x3x8xf16>) -> tensor<10xf16> {
  %part = tensor.extract_slice %x[0, 1, 0] [5, 1, 2] [1, 1, 1] : tensor<5x3x8xf16> to tensor<5x1x2xf16>
  // expected-error @+1 {{tensor.collapse_shape: dimensions [0, 2] of a part of a tensor do not lie together, to become one}}
  %rows = tensor.collapse_shape %part [[0, 1, 2]] : tensor<5x1x2xf16> into tensor<10xf16>
  %e = tensor.empty() : tensor<10xf16>
  %r = linalg.copy ins(%rows : tensor<10xf16>) outs(%e : tensor<10xf16>) -> tensor<10xf16>
  return %r : tensor<10xf16>
}
