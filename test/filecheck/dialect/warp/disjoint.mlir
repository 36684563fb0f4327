// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

// CHECK-LABEL: func.func @views
// CHECK-NEXT:    warp.disjoint %x, %y : memref<?x64xf32, strided<[128, 1]>>, memref<64xf32>
// CHECK-NEXT:    warp.disjoint %x, %y or_same {tag} : memref<?x64xf32, strided<[128, 1]>>, memref<64xf32>
func.func @views(%x: memref<?x64xf32, strided<[128, 1]>>, %y: memref<64xf32>) {
  warp.disjoint %x, %y : memref<?x64xf32, strided<[128, 1]>>, memref<64xf32>
  warp.disjoint %x, %y or_same {tag} : memref<?x64xf32, strided<[128, 1]>>, memref<64xf32>
  return
}
