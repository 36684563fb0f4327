// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

// CHECK-LABEL: func.func @windows
// CHECK-NEXT:    %0 = warp.window %x affine_map<(d0, d1, d2) -> (((d0 * 2) + d1), d2)> : memref<9x16xf16> -> memref<4x3x16xf16, strided<[32, 16, 1]>>
// CHECK-NEXT:    %1 = warp.window %y affine_map<(d0, d1) -> (d1)> sizes(%n) {tag} : memref<16xf16> -> memref<?x16xf16, strided<[0, 1]>>
// CHECK-NEXT:    %2 = warp.window %x affine_map<(d0) -> (d0, d0)> : memref<9x16xf16> -> memref<9xf16, strided<[17]>>
// CHECK-NEXT:    %3 = warp.window %z affine_map<(d0, d1) -> ((d0 + 3), d1)> : memref<?x?xf16> -> memref<4x8xf16, strided<[?, 1], offset: ?>>
func.func @windows(%x: memref<9x16xf16>, %y: memref<16xf16>, %z: memref<?x?xf16>, %n: index) {
  %0 = warp.window %x affine_map<(i, j, k) -> (i * 2 + j, k)> : memref<9x16xf16> -> memref<4x3x16xf16, strided<[32, 16, 1]>>
  %1 = warp.window %y affine_map<(i, j) -> (j)> sizes(%n) {tag} : memref<16xf16> -> memref<?x16xf16, strided<[0, 1]>>
  %2 = warp.window %x affine_map<(i) -> (i, i)> : memref<9x16xf16> -> memref<9xf16, strided<[17]>>
  %3 = warp.window %z affine_map<(i, j) -> (i + 3, j)> : memref<?x?xf16> -> memref<4x8xf16, strided<[?, 1], offset: ?>>
  return
}
