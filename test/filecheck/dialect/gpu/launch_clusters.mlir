// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s

// CHECK-LABEL: func.func @clusters(
func.func @clusters(%A: memref<32xf32>) {
  %c1 = arith.constant 1 : index
  // CHECK: gpu.launch clusters(%cx, %cy, %cz) in (%kx = %c1, %ky = %c1, %kz = %c1) blocks(
  // CHECK-SAME: workgroup(%w : memref<32xf32, 3 : i64>) private(%p : memref<4xf32, 5 : i64>) {
  gpu.launch clusters(%cx, %cy, %cz) in (%kx = %c1, %ky = %c1, %kz = %c1) blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) workgroup(%w : memref<32xf32, 3>) private(%p : memref<4xf32, 5>) {
    gpu.terminator
  }
  return
}
