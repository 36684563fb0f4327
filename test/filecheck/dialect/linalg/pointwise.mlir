// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s
// RUN: warploom-opt %s -p "warp-bufferize,warp-raise-matmul,warp-fold-fill,warp-fuse-epilogue" | filecheck %s --check-prefix FUSED

// CHECK-LABEL: func.func @f(
// CHECK:         linalg.elementwise kind=#linalg.elementwise_kind<add> indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>] ins(%C, %bias : memref<20x12xf32>, memref<12xf32>) outs(%C : memref<20x12xf32>)
// CHECK-NEXT:    linalg.elementwise kind=#linalg.elementwise_kind<square> ins(%C : memref<20x12xf32>) outs(%C : memref<20x12xf32>)
// CHECK-NEXT:    linalg.map ins(%C : memref<20x12xf32>) outs(%C : memref<20x12xf32>) (%x: f32, %o: f32) {
// CHECK:         linalg.map ins(%C, %D : memref<20x12xf32>, memref<20x12xf32>) outs(%C : memref<20x12xf32>) (%{{.*}}: f32, %{{.*}}: f32, %{{.*}}: f32) {
// CHECK-NEXT:      arith.addf

// All of them are part of the product.
// FUSED-LABEL: func.func @f(
// FUSED:         %[[E:\w+]] = warp.pointwise %bias, %D
// FUSED:         warp.matmul f16 x f16 %A, %B init 0.000000e+00 : f32 into %C through %[[E]]
// FUSED-NOT:     linalg.
// FUSED:       func.func @tensors
func.func @f(%A: memref<20x24xf16>, %B: memref<24x12xf16>, %bias: memref<12xf32>, %C: memref<20x12xf32>, %D: memref<20x12xf32>) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%C : memref<20x12xf32>)
  linalg.matmul ins(%A, %B : memref<20x24xf16>, memref<24x12xf16>) outs(%C : memref<20x12xf32>)
  linalg.elementwise kind=#linalg.elementwise_kind<add> indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>] ins(%C, %bias : memref<20x12xf32>, memref<12xf32>) outs(%C : memref<20x12xf32>)
  linalg.elementwise kind=#linalg.elementwise_kind<square> ins(%C : memref<20x12xf32>) outs(%C : memref<20x12xf32>)
  linalg.map ins(%C : memref<20x12xf32>) outs(%C : memref<20x12xf32>) (%x: f32, %o: f32) {
    %y = arith.maximumf %x, %z : f32
    linalg.yield %y : f32
  }
  linalg.map {arith.addf} ins(%C, %D : memref<20x12xf32>, memref<20x12xf32>) outs(%C : memref<20x12xf32>)
  return
}

// CHECK-LABEL: func.func @tensors
// CHECK-NEXT:    %0 = linalg.map ins(%a : tensor<4xf32>) outs(%b : tensor<4xf32>) (%x: f32, %{{.*}}: f32) {
// CHECK:         %[[r:.*]] = linalg.elementwise kind=#linalg.elementwise_kind<reciprocal> {tag} ins(%0 : tensor<4xf32>) outs(%b : tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT:    %{{.*}} = linalg.elementwise kind=#linalg.elementwise_kind<select> ins(%c, %0, %[[r]] : tensor<4xi1>, tensor<4xf32>, tensor<4xf32>) outs(%b : tensor<4xf32>) -> tensor<4xf32>
func.func @tensors(%a: tensor<4xf32>, %b: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %0 = linalg.map ins(%a : tensor<4xf32>) outs(%b : tensor<4xf32>) (%x: f32) {
    %y = math.absf %x : f32
    linalg.yield %y : f32
  }
  %1 = linalg.elementwise kind=#linalg.elementwise_kind<reciprocal> {tag} ins(%0 : tensor<4xf32>) outs(%b : tensor<4xf32>) -> tensor<4xf32>
  %2 = linalg.elementwise kind=#linalg.elementwise_kind<select> ins(%c, %0, %1 : tensor<4xi1>, tensor<4xf32>, tensor<4xf32>) outs(%b : tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}
