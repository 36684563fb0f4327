// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s

module attributes {gpu.container_module} {
  // CHECK: gpu.module @kernels <#gpu.select_object<0>> [#nvvm.target<chip = "sm_90a">] {
  gpu.module @kernels <#gpu.select_object<0>> [#nvvm.target<chip = "sm_90a">] {
    // CHECK-NEXT: gpu.func @k(%x: f32, %lane: i32) kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
    gpu.func @k(%x: f32, %lane: i32) kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
      // CHECK-NEXT: %y, %in = gpu.rotate %x, 3, 16 : f32
      %y, %in = gpu.rotate %x, 3, 16 : f32
      // CHECK-NEXT: gpu.subgroup_broadcast %x, first_active_lane : f32
      %first = gpu.subgroup_broadcast %x, first_active_lane : f32
      // CHECK-NEXT: gpu.subgroup_broadcast %x, specific_lane %lane : f32
      %one = gpu.subgroup_broadcast %x, specific_lane %lane : f32
      gpu.return
    }
  }
  // CHECK: gpu.binary @compiled <#gpu.select_object<1>> [#gpu.object<#nvvm.target, "a\00">, #gpu.object<#nvvm.target, bin = "b">]
  gpu.binary @compiled <#gpu.select_object<1>> [#gpu.object<#nvvm.target, "a\00">,
                                                #gpu.object<#nvvm.target,  bin = "b">]
  // CHECK: memref.global "private" @declared : memref<4xf32, 3 : i64>{{$}}
  memref.global "private" @declared : memref<4xf32, 3 : i64>

  func.func @f(%n: index, %rows: memref<?xindex>, %values: memref<?xf64>, %id: i32) {
    // CHECK: gpu.set_default_device %id
    gpu.set_default_device %id
    %t = gpu.wait async
    // CHECK: %A, %t1 = gpu.create_coo async [%t] %n, %n, %n, %rows, %rows, %values : memref<?xindex>, memref<?xindex>, memref<?xf64>
    %A, %t1 = gpu.create_coo async [%t] %n, %n, %n, %rows, %rows, %values : memref<?xindex>, memref<?xindex>, memref<?xf64>
    // CHECK-NEXT: %x, %t2 = gpu.create_dn_tensor async [%t1] %values, %n : index into memref<?xf64>
    %x, %t2 = gpu.create_dn_tensor async [%t1] %values, %n : index into memref<?xf64>
    // CHECK-NEXT: %bytes, %t3 = gpu.spmv_buffer_size async [%t2] %A, %x, %x into f64
    %bytes, %t3 = gpu.spmv_buffer_size async [%t2] %A, %x, %x into f64
    // CHECK-NEXT: %t4 = gpu.spmv async [%t3] %A {TRANSPOSE}, %x, %x, %values : memref<?xf64> into f64
    %t4 = gpu.spmv async [%t3] %A {TRANSPOSE}, %x, %x, %values : memref<?xf64> into f64
    // CHECK-NEXT: gpu.spmm_buffer_size async [%t4] %A, %x, %x : index, index into f64
    %sizes:2, %t5 = gpu.spmm_buffer_size async [%t4] %A, %x, %x : index, index into f64
    // CHECK-NEXT: %D, %t6 = gpu.spgemm_create_descr async [%t5]
    %D, %t6 = gpu.spgemm_create_descr async [%t5]
    // CHECK-NEXT: gpu.spgemm_work_estimation_or_compute async [%t6] {COMPUTE} %A, %A {TRANSPOSE}, %A, %D, %n, %values : f64 into memref<?xf64>
    %need, %t7 = gpu.spgemm_work_estimation_or_compute async [%t6] {COMPUTE} %A, %A {TRANSPOSE}, %A, %D, %n, %values : f64 into memref<?xf64>
    // CHECK-NEXT: gpu.destroy_sp_mat async [%t7] %A
    %t8 = gpu.destroy_sp_mat async [%t7] %A
    gpu.wait [%t8]
    return
  }
  // CHECK: func.func @lane(%lane: index, %v: vector<4xf32>) {
  func.func @lane(%lane: index, %v: vector<4xf32>) {
    // CHECK: args(%v : vector<4xf32>) -> (vector<1xf32>) {
    %r = gpu.warp_execute_on_lane_0(%lane)[32] args(%v : vector<4xf32>) -> (vector<1xf32>) {
    ^bb0(%all: vector<128xf32>):
      %c = arith.constant dense<1.0> : vector<32xf32>
      gpu.yield %c : vector<32xf32>
    }
    return
  }
}
