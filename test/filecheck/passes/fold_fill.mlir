// RUN: warploom-opt %s -p warp-fold-fill | filecheck %s
// RUN: warploom-opt %s -p warp-fold-fill | warploom-opt -p warp-fold-fill | filecheck %s

// CHECK-LABEL: func.func @zero
// CHECK-NEXT:    arith.constant
// CHECK-NEXT:    warp.matmul f16 x f16 %a, %b init 0.000000e+00 : f32 into %c
// CHECK-NEXT:    return
func.func @zero(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%c : memref<4x6xf32>)
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// Any constant will do; operations that touch no memory may stand between; maps and attributes stay.
// CHECK-LABEL: func.func @other_constant
// CHECK-NOT:     linalg.fill
// CHECK:         warp.matmul f16 x f16 %a, %b init 1.500000e+00 : f16 into %c maps [{{.*}}] {note} :
func.func @other_constant(%a: memref<4x5xf16>, %b: memref<6x5xf16>, %c: memref<4x6xf16>) {
  %z = arith.constant 1.5 : f16
  linalg.fill ins(%z : f16) outs(%c : memref<4x6xf16>)
  %i = arith.constant 1 : index
  %j = arith.addi %i, %i : index
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] {note}
      ins(%a, %b : memref<4x5xf16>, memref<6x5xf16>) outs(%c : memref<4x6xf16>)
  return
}

// The second product of a row adds to what the first has stored.
// CHECK-LABEL: func.func @two_products
// CHECK-NOT:     linalg.fill
// CHECK:         warp.matmul f16 x f16 %a, %b init 0.000000e+00 : f32 into %c
// CHECK-NEXT:    warp.matmul f16 x f16 %a, %b plus %c into %c
func.func @two_products(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%c : memref<4x6xf32>)
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// CHECK-LABEL: func.func @inside_a_loop
// CHECK:         scf.for
// CHECK-NEXT:      warp.matmul f16 x f16 %a, %b init 0.000000e+00 : f32 into %c
func.func @inside_a_loop(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %n: index) {
  %z = arith.constant 0.0 : f32
  scf.for %i = %n to %n step %n {
    linalg.fill ins(%z : f32) outs(%c : memref<4x6xf32>)
    linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  }
  return
}

// Every fill below stays as it is.

// CHECK-LABEL: func.func @fill_outside_the_loop
// CHECK:         linalg.fill
// CHECK:         warp.matmul f16 x f16 %a, %b plus %c into %c
func.func @fill_outside_the_loop(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %n: index) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%c : memref<4x6xf32>)
  scf.for %i = %n to %n step %n {
    linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  }
  return
}

// CHECK-LABEL: func.func @not_constant
// CHECK:         linalg.fill
// CHECK-NEXT:    warp.matmul f16 x f16 %a, %b plus %c into %c
func.func @not_constant(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %z: f32) {
  linalg.fill ins(%z : f32) outs(%c : memref<4x6xf32>)
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// CHECK-LABEL: func.func @another_memref
// CHECK:         linalg.fill
// CHECK-NEXT:    warp.matmul f16 x f16 %a, %b plus %c into %c
func.func @another_memref(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %d: memref<4x6xf32>) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%d : memref<4x6xf32>)
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// CHECK-LABEL: func.func @store_between
// CHECK:         linalg.fill
// CHECK:         warp.matmul f16 x f16 %a, %b plus %c into %c
func.func @store_between(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %i: index) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%c : memref<4x6xf32>)
  memref.store %z, %c[%i, %i] : memref<4x6xf32>
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// CHECK-LABEL: func.func @call_between
// CHECK:         linalg.fill
// CHECK:         warp.matmul f16 x f16 %a, %b plus %c into %c
func.func @call_between(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%c : memref<4x6xf32>)
  func.call @f() : () -> ()
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}
func.func private @f() -> ()

// The product reads what was filled, perhaps.
// CHECK-LABEL: func.func @output_is_an_input
// CHECK:         linalg.fill
// CHECK-NEXT:    warp.disjoint %c, %x
// CHECK-NEXT:    warp.matmul f16 x f16 %x, %b plus %c into %c
func.func @output_is_an_input(%b: memref<5x5xf16>, %c: memref<5x5xf16>) {
  %zero = arith.constant 0 : index
  %n = memref.dim %b, %zero : memref<5x5xf16>
  %x = memref.subview %c[%n, 0] [5, 5] [1, 1] : memref<5x5xf16> to memref<5x5xf16, strided<[5, 1], offset: ?>>
  %z = arith.constant 0.0 : f16
  linalg.fill ins(%z : f16) outs(%c : memref<5x5xf16>)
  linalg.matmul ins(%x, %b : memref<5x5xf16, strided<[5, 1], offset: ?>>, memref<5x5xf16>) outs(%c : memref<5x5xf16>)
  return
}

// CHECK-LABEL: func.func @nothing_follows
// CHECK:         linalg.fill
// CHECK-NEXT:    return
func.func @nothing_follows(%c: memref<4x6xf32>) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%c : memref<4x6xf32>)
  return
}
