// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

// CHECK-LABEL: func.func @f(%m: memref<2x?xf32>, %i: index) {
func.func @f(%m: memref<2 x ? x f32>, %i: index) {
  // CHECK-NEXT: %0 = gpu.wait async
  %0 = gpu.wait async
  // CHECK-NEXT: %a, %t = gpu.alloc async [%0] (%i) : memref<?xf32>
  %a, %t = gpu.alloc async [%0] (%i) : memref<?xf32>
  // CHECK-NEXT: %b = gpu.alloc host_shared () : memref<8xf32>
  %b = gpu.alloc host_shared () : memref<8xf32>
  // CHECK-NEXT: %1 = gpu.memcpy async [%0, %t] %a, %b : memref<?xf32>, memref<8xf32>
  %1 = gpu.memcpy async [%0, %t] %a, %b : memref<?xf32>, memref<8xf32>
  // CHECK-NEXT: %c = arith.constant
  %c = arith.constant 0.0 : f32
  // CHECK-NEXT: gpu.memset %a, %c : memref<?xf32>, f32
  gpu.memset %a, %c : memref<?xf32>, f32
  // CHECK-NEXT: gpu.dealloc %a : memref<?xf32>
  gpu.dealloc %a : memref<?xf32>
  // CHECK-NEXT: gpu.wait [%1]
  gpu.wait [%1]
  // CHECK: gpu.launch blocks({{.*}}) in ({{.*}}) threads({{.*}}) in ({{.*}}) module(@m) function(@k) {
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %i, %gy = %i, %gz = %i) threads(%tx, %ty, %tz) in (%sx = %i, %sy = %i, %sz = %i)
      module(@m) function(@k) {
    // CHECK: gpu.cluster_block_id x
    %x = gpu.cluster_block_id x
    gpu.terminator
  }
  return
}
// CHECK: gpu.func @g(%x: f32 {test.a = 1 : i32}, %y: f32) kernel {
gpu.module @n {
  gpu.func @g(%x: f32 {test.a = 1 : i32}, %y: f32) kernel {
    gpu.return
  }
}
