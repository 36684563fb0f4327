// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

// CHECK-LABEL: func.func @rows
// CHECK-NEXT:    %{{.*}} = warp.is_divisible %x by 8 {tag} : memref<?x?xbf16>
func.func @rows(%x: memref<?x?xbf16>) {
  %0 = warp.is_divisible %x by 8 {tag} : memref<?x?xbf16>
  return
}
