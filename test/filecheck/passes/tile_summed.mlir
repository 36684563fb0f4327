// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-raise-matmul,warp-schedule{cta=16,8,16 warp=16,8 stages=2},warp-outline,warp-tile" | filecheck %s
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-raise-matmul,warp-schedule{cta=16,8,16 warp=16,8 stages=2},warp-outline,warp-tile,warp-pipeline,warp-synchronise" | filecheck %s --check-prefix AHEAD

// One loop goes through all K tiles, two for each of the three matrices.
// CHECK:      gpu.func @f
// CHECK:        %[[end:.*]] = arith.constant 96 : index
// CHECK:        scf.for %[[turn:[0-9]+]] = %{{.*}} to %[[end]]
// CHECK-NEXT:     %[[of:.*]] = arith.divui %[[turn]], %[[span:.*]] : index
// CHECK-NEXT:     %[[s:.*]] = arith.minui %[[of]], %{{.*}} : index
// CHECK-NEXT:     %[[before:.*]] = arith.muli %[[s]], %[[span]] : index
// CHECK-NEXT:     %[[k:.*]] = arith.subi %[[turn]], %[[before]] : index
// CHECK-NEXT:     %[[a:.*]] = warp.matrix %A[%[[s]], row, column]
// CHECK-NEXT:     warp.copy %[[a]][%{{.*}}, %[[k]]] to
// CHECK-NEXT:     %[[b:.*]] = warp.matrix %B[%[[s]], row, column]
// CHECK-NEXT:     warp.copy %[[b]][%[[k]], %{{.*}}] to

// Copies that run ahead take the matrix of their own turn.
// AHEAD:      scf.for %[[turn:[0-9]+]] = %
// AHEAD:        %[[ahead:.*]] = arith.addi %[[turn]]
// AHEAD:        arith.divui %[[ahead]], %
// AHEAD:        %[[a:.*]] = warp.matrix %A[
// AHEAD:        warp.copy %[[a]][{{.*}} {async
func.func @f(%a: memref<3x16x20xf16>, %b: memref<3x20x8xf16>, %c: memref<16x8xf32>) {
  linalg.batch_reduce_matmul ins(%a, %b : memref<3x16x20xf16>, memref<3x20x8xf16>) outs(%c : memref<16x8xf32>)
  return
}
