// RUN: warploom-opt %s -p warp-bufferize | filecheck %s
// RUN: warploom-opt %s -p "warp-bufferize,warp-raise-matmul,warp-fold-fill" | filecheck %s --check-prefix=FOLDED

// A result is an argument behind the others. C is no result: what it holds is where the sum starts from.
// CHECK:      func.func @added(%A: memref<4x5xf16>, %B: memref<5x6xf16>, %C: memref<4x6xf32>, %r: memref<4x6xf32>) {
// CHECK-NEXT:   linalg.copy ins(%C : memref<4x6xf32>) outs(%r : memref<4x6xf32>)
// CHECK-NEXT:   linalg.matmul ins(%A, %B : memref<4x5xf16>, memref<5x6xf16>) outs(%r : memref<4x6xf32>)
// CHECK-NEXT:   return
// FOLDED:      func.func @added
// FOLDED-NEXT:   warp.matmul f16 x f16 %A, %B plus %C into %r :
func.func @added(%A: tensor<4x5xf16>, %B: tensor<5x6xf16>, %C: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %r = linalg.matmul ins(%A, %B : tensor<4x5xf16>, tensor<5x6xf16>) outs(%C : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %r : tensor<4x6xf32>
}

// What is filled on the way to a result lies where the result does.
// CHECK:      func.func @cleared(%A: memref<4x?xf16>, %B: memref<?x6xf16>, %r: memref<4x6xf32>) {
// CHECK-NOT:    tensor.empty
// CHECK:        linalg.fill ins(%z : f32) outs(%r : memref<4x6xf32>)
// CHECK-NEXT:   linalg.matmul ins(%A, %B : memref<4x?xf16>, memref<?x6xf16>) outs(%r : memref<4x6xf32>)
// FOLDED:      func.func @cleared
// FOLDED:        warp.matmul f16 x f16 %A, %B init 0.000000e+00 : f32 into %r :
func.func @cleared(%A: tensor<4x?xf16>, %B: tensor<?x6xf16>) -> tensor<4x6xf32> {
  %e = tensor.empty() : tensor<4x6xf32>
  %z = arith.constant 0.0 : f32
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<4x6xf32>) -> tensor<4x6xf32>
  %r = linalg.matmul ins(%A, %B : tensor<4x?xf16>, tensor<?x6xf16>) outs(%f : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %r : tensor<4x6xf32>
}

// A part of a tensor keeps its strides and its place in other shapes.
// CHECK:      func.func @reshaped(%x: memref<5x3x8xf16>
// CHECK:        %[[PART:.*]] = memref.subview %x[0, 1, 0] [5, 1, 8] {{.*}} to memref<5x1x8xf16, strided<[24, 8, 1], offset: 8>>
// CHECK:        %[[ROWS:.*]] = memref.collapse_shape %[[PART]] {{.*}} into memref<5x8xf16, strided<[24, 1], offset: 8>>
// CHECK:        memref.expand_shape %[[ROWS]] {{.*}} into memref<5x2x4xf16, strided<[24, 4, 1], offset: 8>>
func.func @reshaped(%x: tensor<5x3x8xf16>) -> tensor<5x2x4xf16> {
  %part = tensor.extract_slice %x[0, 1, 0] [5, 1, 8] [1, 1, 1] : tensor<5x3x8xf16> to tensor<5x1x8xf16>
  %rows = tensor.collapse_shape %part [[0, 1], [2]] : tensor<5x1x8xf16> into tensor<5x8xf16>
  %split = tensor.expand_shape %rows [[0], [1, 2]] output_shape [5, 2, 4] : tensor<5x8xf16> into tensor<5x2x4xf16>
  %e = tensor.empty() : tensor<5x2x4xf16>
  %r = linalg.copy ins(%split : tensor<5x2x4xf16>) outs(%e : tensor<5x2x4xf16>) -> tensor<5x2x4xf16>
  return %r : tensor<5x2x4xf16>
}

// Index 0 of a loop of one turn is its own index, and index 0 where a size is 1 that of its loop: nothing is copied.
// CHECK-LABEL: func.func @read_in_order(%x
// CHECK-NOT:     linalg.generic
// CHECK:         linalg.exp ins(%x
func.func @read_in_order(%x: tensor<1x?x8xf32>) -> tensor<1x?x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %x, %c1 : tensor<1x?x8xf32>
  %e = tensor.empty(%m) : tensor<1x?x8xf32>
  %same = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>],
                          iterator_types = ["parallel", "parallel", "parallel"]} outs(%e : tensor<1x?x8xf32>) {
  ^bb0(%out: f32):
    %j = linalg.index 1 : index
    %k = linalg.index 2 : index
    %one = arith.cmpi eq, %m, %c1 : index
    %at = arith.select %one, %c0, %j : index
    %read = tensor.extract %x[%c0, %at, %k] : tensor<1x?x8xf32>
    linalg.yield %read : f32
  } -> tensor<1x?x8xf32>
  %y = linalg.exp ins(%same : tensor<1x?x8xf32>) outs(%e : tensor<1x?x8xf32>) -> tensor<1x?x8xf32>
  return %y : tensor<1x?x8xf32>
}

// Attributes of arguments stay with them, and those of a result go with the argument that it becomes.
// CHECK:      func.func @attributes(%x: memref<4x8xf32> {jax.buffer_donor = true}, %y: memref<4x8xf32>, %r: memref<4x8xf32> {jax.result_info = "r"}) {
func.func @attributes(%x: tensor<4x8xf32> {jax.buffer_donor = true}, %y: tensor<4x8xf32>)
    -> (tensor<4x8xf32> {jax.result_info = "r"}) {
  %e = tensor.empty() : tensor<4x8xf32>
  %r = linalg.sub ins(%x, %y : tensor<4x8xf32>, tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

// CHECK:      func.func @attributes_of_one(%x: memref<4x8xf32> {iree.abi.output = 0 : index}, %r: memref<4x8xf32>) {
func.func @attributes_of_one(%x: tensor<4x8xf32> {iree.abi.output = 0 : index}) -> tensor<4x8xf32> {
  %e = tensor.empty() : tensor<4x8xf32>
  %r = linalg.exp ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}
