// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

builtin.module attributes {gpu.container_module} {
// CHECK: gpu.module @kernels {
gpu.module @kernels {
  // CHECK-NEXT: gpu.func @kernel(%A: memref<16x16xf16>, %n: index) kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
  gpu.func @kernel(%A: memref<16x16xf16>, %n: index) kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
    // CHECK-NEXT: %x = gpu.block_id x
    // CHECK-NEXT: %z = gpu.block_id z
    // CHECK-NEXT: %t = gpu.thread_id x
    // CHECK-NEXT: %w = gpu.subgroup_id : index
    // CHECK-NEXT: gpu.barrier
    // CHECK-NEXT: gpu.return
    %x = gpu.block_id x
    %z = gpu.block_id z
    %t = gpu.thread_id x
    %w = gpu.subgroup_id : index
    gpu.barrier
    gpu.return
  }
  // CHECK: gpu.func @plain(%a: i32) -> (i32, i32) {
  gpu.func @plain(%a: i32) -> (i32, i32) {
    // CHECK-NEXT: gpu.return {unused} %a, %a : i32, i32
    gpu.return {unused} %a, %a : i32, i32
  }
  // CHECK: gpu.func @one() -> (f32) {
  gpu.func @one() -> f32 {
    %a = arith.constant 1.0 : f32
    gpu.return %a : f32
  }
}

// CHECK: func.func @host
func.func @host(%A: memref<16x16xf16>, %n: index, %bytes: i32, %l: i64) {
  // CHECK-NEXT: gpu.launch_func @kernels::@kernel blocks in (%n, %n, %n) threads in (%n, %n, %n) args(%A : memref<16x16xf16>, %n : index)
  gpu.launch_func @kernels::@kernel blocks in (%n, %n, %n) threads in (%n, %n, %n) args(%A : memref<16x16xf16>, %n : index)
  // CHECK-NEXT: gpu.launch_func @kernels::@kernel clusters in (%n, %n, %n) blocks in (%n, %n, %n) threads in (%n, %n, %n) dynamic_shared_memory_size %bytes args(%A : memref<16x16xf16>, %n : index) {first}
  gpu.launch_func @kernels::@kernel clusters in (%n, %n, %n) blocks in (%n, %n, %n) threads in (%n, %n, %n) dynamic_shared_memory_size %bytes args(%A : memref<16x16xf16>, %n : index) {first}
  // CHECK-NEXT: %token = gpu.launch_func async @kernels::@plain blocks in (%l, %l, %l) threads in (%l, %l, %l) : i64
  %token = gpu.launch_func async @kernels::@plain blocks in (%l, %l, %l) threads in (%l, %l, %l) : i64
  // CHECK-NEXT: %last = gpu.launch_func async [%token] <%l : i64> @kernels::@plain blocks in (%l, %l, %l) threads in (%l, %l, %l) : i64
  %last = gpu.launch_func async [%token] <%l : i64> @kernels::@plain blocks in (%l, %l, %l) threads in (%l, %l, %l) : i64
  return
}
}
