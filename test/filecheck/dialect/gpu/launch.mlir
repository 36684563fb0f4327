// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s -p gpu-kernel-outlining | filecheck %s --check-prefix=OUT
func.func @f(%A: memref<32xf32>, %n: index, %s: i32) {
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  // CHECK: gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c32, %sy = %c1, %sz = %c1) dynamic_shared_memory_size %s {
  // OUT: gpu.launch_func @f_kernel::@f_kernel blocks in (%n, %c1, %c1) threads in (%c32, %c1, %c1) dynamic_shared_memory_size %s args(%A : memref<32xf32>)
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c32, %sy = %c1, %sz = %c1) dynamic_shared_memory_size %s {
    %v = memref.load %A[%tx] : memref<32xf32>
    memref.store %v, %A[%tx] : memref<32xf32>
    // CHECK: gpu.terminator
    // OUT: gpu.func @f_kernel(%A: memref<32xf32>) kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
    // OUT: gpu.thread_id x
    // OUT: gpu.return
    gpu.terminator
  }
  return
}
