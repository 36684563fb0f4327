// RUN: warploom-opt %s --split-input-file --verify-diagnostics 2>&1 | filecheck %s

// CHECK: error: warp.atomic_inc: expected counters of i32, got memref<3xi64>
func.func @wide(%counters: memref<3xi64>, %i: index, %p: i1) {
  %seen = warp.atomic_inc %counters[%i] to %i if %p : memref<3xi64>
  return
}

// -----

// CHECK: error: warp.atomic_inc: expected counters in global memory, of 1 known dimension, got memref<3xi32, 3 : i64>
func.func @shared(%counters: memref<3xi32, 3>, %i: index, %p: i1) {
  %seen = warp.atomic_inc %counters[%i] to %i if %p : memref<3xi32, 3>
  return
}
