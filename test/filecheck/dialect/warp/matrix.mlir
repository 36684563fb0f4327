// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

// CHECK-LABEL: func.func @views
// CHECK-NEXT:    %0 = warp.matrix %A[%b, row, column] : memref<4x16x32xf16> -> memref<16x32xf16, strided<[32, 1], offset: ?>>
// CHECK-NEXT:    %1 = warp.matrix %B[column, row] : memref<16x32xf16, strided<[1, 20]>> -> memref<32x16xf16, strided<[20, 1], offset: ?>>
// CHECK-NEXT:    %2 = warp.matrix %C[row, %b, column] {tag} : memref<?x4x?xf16> -> memref<?x?xf16, strided<[?, 1], offset: ?>>
// CHECK-NEXT:    %3 = warp.matrix %D[column, row] : memref<16x32xf16> -> memref<32x16xf16, strided<[1, 32], offset: ?>>
// CHECK-NEXT:    %4 = warp.matrix %C[%b, column, %b] : memref<?x4x?xf16> -> memref<?x4xf16, strided<[0, ?], offset: ?>>
// CHECK-NEXT:    %5 = warp.matrix %D[row, %b] : memref<16x32xf16> -> memref<16x?xf16, strided<[32, 0], offset: ?>>
// CHECK-NEXT:    %6 = warp.matrix %E[] : memref<f32> -> memref<?x?xf32, strided<[0, 0], offset: ?>>
// CHECK-NEXT:    %7 = warp.matrix %A[all, column, row] : memref<4x16x32xf16> -> memref<4x32x16xf16, strided<[512, 1, 32], offset: ?>>
func.func @views(%A: memref<4x16x32xf16>, %B: memref<16x32xf16, strided<[1, 20]>>, %C: memref<?x4x?xf16>, %D: memref<16x32xf16>, %E: memref<f32>, %b: index) {
  %0 = warp.matrix %A[%b, row, column] : memref<4x16x32xf16> -> memref<16x32xf16, strided<[32, 1], offset: ?>>
  %1 = warp.matrix %B[column, row] : memref<16x32xf16, strided<[1, 20]>> -> memref<32x16xf16, strided<[20, 1], offset: ?>>
  %2 = warp.matrix %C[row, %b, column] {tag} : memref<?x4x?xf16> -> memref<?x?xf16, strided<[?, 1], offset: ?>>
  %3 = warp.matrix %D[column, row] : memref<16x32xf16> -> memref<32x16xf16, strided<[1, 32], offset: ?>>
  %4 = warp.matrix %C[%b, column, %b] : memref<?x4x?xf16> -> memref<?x4xf16, strided<[0, ?], offset: ?>>
  %5 = warp.matrix %D[row, %b] : memref<16x32xf16> -> memref<16x?xf16, strided<[32, 0], offset: ?>>
  %6 = warp.matrix %E[] : memref<f32> -> memref<?x?xf32, strided<[0, 0], offset: ?>>
  %7 = warp.matrix %A[all, column, row] : memref<4x16x32xf16> -> memref<4x32x16xf16, strided<[512, 1, 32], offset: ?>>
  return
}

// CHECK-LABEL: @words
func.func @words(%l: memref<96xi64>) {
  // CHECK-NEXT: warp.matrix %l[row] {high} : memref<96xi64> -> memref<96x?xi32, strided<[2, 0], offset: ?>>
  %0 = warp.matrix %l[row] {high} : memref<96xi64> -> memref<96x?xi32, strided<[2, 0], offset: ?>>
  return
}

// CHECK-LABEL: @pairs
func.func @pairs(%e: memref<8x4xf16, strided<[8, 2]>>) {
  // CHECK-NEXT: warp.matrix %e[row, column] {pairs} : memref<8x4xf16, strided<[8, 2]>> -> memref<8x4xi32, strided<[4, 1], offset: ?>>
  %0 = warp.matrix %e[row, column] {pairs} : memref<8x4xf16, strided<[8, 2]>> -> memref<8x4xi32, strided<[4, 1], offset: ?>>
  return
}
