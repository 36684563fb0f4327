// RUN: warploom-opt %s -p warp-raise-matmul | filecheck %s
// RUN: warploom-opt %s -p warp-raise-matmul | warploom-opt -p warp-raise-matmul | filecheck %s

// CHECK-LABEL: func.func @plain
// CHECK-NEXT:    warp.matmul f16 x f16 %a, %b plus %c into %c : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32> plus memref<4x6xf32>
func.func @plain(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// CHECK-LABEL: func.func @transposed
// CHECK-NEXT:    warp.matmul f16 x f16 %d, %b plus %c into %c maps [affine_map<(d0, d1, d2) -> (d2, d0)>, affine_map<(d0, d1, d2) -> (d2, d1)>, {{.*}}] {tag} :
// CHECK-NEXT:    warp.matmul f16 x f16 %a, %e plus %c into %c maps [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, {{.*}}] :
func.func @transposed(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %d: memref<5x4xf16>, %e: memref<6x5xf16>) {
  linalg.matmul_transpose_a {tag} ins(%d, %b : memref<5x4xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  linalg.matmul_transpose_b ins(%a, %e : memref<4x5xf16>, memref<6x5xf16>) outs(%c : memref<4x6xf32>)
  return
}

// Signless integers are signed unless a cast says otherwise; zero points of zero are none.
// CHECK-LABEL: func.func @integers
// CHECK:         warp.matmul s8 x s8 %a, %b plus %c into %c :
// CHECK-NEXT:    warp.matmul u8 x u8 %a, %b plus %c into %c :
// CHECK-NEXT:    warp.matmul s8 x s8 %a, %b plus %c into %c :
func.func @integers(%a: memref<4x5xi8>, %b: memref<5x6xi8>, %c: memref<4x6xi32>) {
  %z = arith.constant 0 : i32
  linalg.matmul ins(%a, %b : memref<4x5xi8>, memref<5x6xi8>) outs(%c : memref<4x6xi32>)
  linalg.matmul {cast = #linalg.type_fn<cast_unsigned>} ins(%a, %b : memref<4x5xi8>, memref<5x6xi8>) outs(%c : memref<4x6xi32>)
  linalg.quantized_matmul ins(%a, %b, %z, %z : memref<4x5xi8>, memref<5x6xi8>, i32, i32) outs(%c : memref<4x6xi32>)
  return
}
