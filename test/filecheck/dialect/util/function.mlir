// RUN: warploom-opt %s | filecheck %s

// CHECK: func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT: func.return %x : tensor<4xf32>
util.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  util.return %x : tensor<4xf32>
}
