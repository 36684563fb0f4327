// RUN: warploom-opt %s -p warp-bufferize | filecheck %s
// RUN: warploom-opt %s -p "warp-bufferize,warp-raise-matmul,warp-fold-fill" | filecheck %s --check-prefix=RAISED

// A private function is there to be called; its body comes to stand for the call.
// CHECK-NOT: @layer
func.func private @layer(%x: memref<64xf16>, %w: memref<64x16xf16>, %y: memref<16xf32>) {
  linalg.vecmat ins(%x, %w : memref<64xf16>, memref<64x16xf16>) outs(%y : memref<16xf32>)
  return
}

// A vector is a matrix of one row.
// CHECK-LABEL: func.func @caller(
// CHECK:         linalg.vecmat ins(%x, %w :
// CHECK-NEXT:    return
// RAISED-LABEL: func.func @caller(
// RAISED:         %[[X:.*]] = memref.expand_shape %x {{\[\[}}0 : i64, 1 : i64]] output_shape [1, 64] : memref<64xf16> into memref<1x64xf16>
// RAISED:         %[[Y:.*]] = memref.expand_shape %y {{\[\[}}0 : i64, 1 : i64]] output_shape [1, 16] : memref<16xf32> into memref<1x16xf32>
// RAISED:         warp.matmul f16 x f16 %[[X]], %w init 0.000000e+00 : f32 into %[[Y]] :
func.func @caller(%x: memref<64xf16>, %w: memref<64x16xf16>, %y: memref<16xf32>) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%y : memref<16xf32>)
  call @layer(%x, %w, %y) : (memref<64xf16>, memref<64x16xf16>, memref<16xf32>) -> ()
  return
}

// The product goes where its other shape is returned; a part is a view; a constant is a fill.
// CHECK-LABEL: func.func @shapes(%x: memref<2x4x8xf16>, %w: memref<10x6xf16>, %y: memref<2x4x6xf32>)
// CHECK:         %[[A:.*]] = memref.collapse_shape %x {{.*}} : memref<2x4x8xf16> into memref<8x8xf16>
// CHECK:         %[[B:.*]] = memref.subview %w[2, 0] [8, 6] [1, 1] : memref<10x6xf16> to memref<8x6xf16, strided<[6, 1], offset: 12>>
// CHECK:         %[[C:.*]] = memref.collapse_shape %y {{.*}} : memref<2x4x6xf32> into memref<8x6xf32>
// CHECK-NEXT:    linalg.fill {{.*}} outs(%[[C]] :
// CHECK-NEXT:    linalg.matmul ins(%[[A]], %[[B]] : {{.*}}) outs(%[[C]] : memref<8x6xf32>)
// CHECK-NEXT:    return
func.func @shapes(%x: tensor<2x4x8xf16>, %w: tensor<10x6xf16>) -> tensor<2x4x6xf32> {
  %zero = arith.constant dense<0.0> : tensor<8x6xf32>
  %a = tensor.collapse_shape %x [[0, 1], [2]] : tensor<2x4x8xf16> into tensor<8x8xf16>
  %b = tensor.extract_slice %w[2, 0] [8, 6] [1, 1] : tensor<10x6xf16> to tensor<8x6xf16>
  %c = linalg.matmul ins(%a, %b : tensor<8x8xf16>, tensor<8x6xf16>) outs(%zero : tensor<8x6xf32>) -> tensor<8x6xf32>
  %y = tensor.expand_shape %c [[0, 1], [2]] output_shape [2, 4, 6] : tensor<8x6xf32> into tensor<2x4x6xf32>
  return %y : tensor<2x4x6xf32>
}

// CHECK-LABEL: func.func @copies(
// CHECK-NEXT:    linalg.copy ins(%A : memref<4xf32>) outs(%B : memref<4xf32>)
// CHECK-NEXT:    linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%A : memref<4xf32>) outs(%C : memref<3x4xf32>)
func.func @copies(%A: memref<4xf32>, %B: memref<4xf32>, %C: memref<3x4xf32>) {
  memref.copy %A, %B : memref<4xf32> to memref<4xf32>
  linalg.broadcast ins(%A : memref<4xf32>) outs(%C : memref<3x4xf32>) dimensions = [0]
  return
}
