// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

gpu.module @m {
  // CHECK: gpu.func @k(%{{[A-Za-z0-9_]+}}: memref<16x16xf16>, %{{[A-Za-z0-9_]+}}: f32, %{{[A-Za-z0-9_]+}}: index, %{{[A-Za-z0-9_]+}}: i32, %{{[A-Za-z0-9_]+}}: i32, %{{[A-Za-z0-9_]+}}: memref<16x16xf32>) workgroup(%{{[A-Za-z0-9_]+}} : memref<32xf32, #gpu.address_space<workgroup>>, %{{[A-Za-z0-9_]+}} : memref<4xf32, 3 : i64>) private(%{{[A-Za-z0-9_]+}} : memref<4xf32, #gpu.address_space<private>>) kernel {
gpu.func @k(%A: memref<16x16xf16>, %x: f32, %i: index, %o: i32, %w: i32, %D: memref<16x16xf32>) workgroup(%s : memref<32xf32, #gpu.address_space<workgroup>>, %s2 : memref<4xf32, 3>) private(%p : memref<4xf32, #gpu.address_space<private>>) kernel {
  // CHECK: gpu.thread_id x upper_bound 64
  %a = gpu.thread_id x upper_bound 64
  // CHECK: gpu.block_dim y
  %b = gpu.block_dim y
  // CHECK: gpu.grid_dim z
  %c = gpu.grid_dim z
  // CHECK: gpu.global_id x
  %d = gpu.global_id x
  // CHECK: gpu.lane_id upper_bound 32
  %e = gpu.lane_id upper_bound 32
  // CHECK: gpu.num_subgroups : index
  %f = gpu.num_subgroups : index
  // CHECK: gpu.subgroup_size : index
  %g = gpu.subgroup_size : index
  // CHECK: gpu.subgroup_id : index
  %g2 = gpu.subgroup_id : index
  // CHECK: gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
  %h = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
  // CHECK: gpu.shuffle xor %{{[A-Za-z0-9_]+}}, %{{[A-Za-z0-9_]+}}, %{{[A-Za-z0-9_]+}} : f32
  %r, %v = gpu.shuffle xor %x, %o, %w : f32
  // CHECK: gpu.shuffle idx %{{[A-Za-z0-9_]+}}, %{{[A-Za-z0-9_]+}}, %{{[A-Za-z0-9_]+}} : f32
  %r2, %v2 = gpu.shuffle idx %x, %o, %w : f32
  // CHECK: gpu.subgroup_reduce add %{{[A-Za-z0-9_]+}} uniform : (f32) -> f32
  %sum = gpu.subgroup_reduce add %x uniform : (f32) -> f32
  // CHECK: gpu.subgroup_reduce maxsi %{{[A-Za-z0-9_]+}} cluster(size = 4) : (i32) -> i32
  %sum2 = gpu.subgroup_reduce maxsi %o cluster(size = 4) : (i32) -> i32
  // CHECK: gpu.subgroup_reduce maxsi %{{[A-Za-z0-9_]+}} cluster(size = 4, stride = 2) : (i32) -> i32
  %sum3 = gpu.subgroup_reduce maxsi %o cluster(size = 4, stride = 2) : (i32) -> i32
  // CHECK: gpu.printf "x = %f\0A", %{{[A-Za-z0-9_]+}} : f32
  gpu.printf "x = %f\n", %x : f32
  // CHECK: gpu.subgroup_mma_load_matrix %{{[A-Za-z0-9_]+}}[%{{[A-Za-z0-9_]+}}, %{{[A-Za-z0-9_]+}}] {leadDimension = 16 : index, transpose} : memref<16x16xf16> -> !gpu.mma_matrix<16x16xf16, "AOp">
  %m = gpu.subgroup_mma_load_matrix %A[%i, %i] {leadDimension = 16 : index, transpose} : memref<16x16xf16> -> !gpu.mma_matrix<16x16xf16, "AOp">
  // CHECK: gpu.subgroup_mma_load_matrix %{{[A-Za-z0-9_]+}}[%{{[A-Za-z0-9_]+}}, %{{[A-Za-z0-9_]+}}] {leadDimension = 16 : index} : memref<16x16xf16> -> !gpu.mma_matrix<16x16xf16, "BOp">
  %n = gpu.subgroup_mma_load_matrix %A[%i, %i] {leadDimension = 16 : index} : memref<16x16xf16> -> !gpu.mma_matrix<16x16xf16, "BOp">
  // CHECK: gpu.subgroup_mma_constant_matrix %{{[A-Za-z0-9_]+}} : !gpu.mma_matrix<16x16xf32, "COp">
  %z = gpu.subgroup_mma_constant_matrix %x : !gpu.mma_matrix<16x16xf32, "COp">
  // CHECK: gpu.subgroup_mma_compute %{{[A-Za-z0-9_]+}}, %{{[A-Za-z0-9_]+}}, %{{[A-Za-z0-9_]+}} {a_transpose} : !gpu.mma_matrix<16x16xf16, "AOp">, !gpu.mma_matrix<16x16xf16, "BOp"> -> !gpu.mma_matrix<16x16xf32, "COp">
  %q = gpu.subgroup_mma_compute %m, %n, %z {a_transpose} : !gpu.mma_matrix<16x16xf16, "AOp">, !gpu.mma_matrix<16x16xf16, "BOp"> -> !gpu.mma_matrix<16x16xf32, "COp">
  // CHECK: gpu.subgroup_mma_elementwise addf %{{[A-Za-z0-9_]+}}, %{{[A-Za-z0-9_]+}} : (!gpu.mma_matrix<16x16xf32, "COp">, !gpu.mma_matrix<16x16xf32, "COp">) -> !gpu.mma_matrix<16x16xf32, "COp">
  %q2 = gpu.subgroup_mma_elementwise addf %q, %q : (!gpu.mma_matrix<16x16xf32, "COp">, !gpu.mma_matrix<16x16xf32, "COp">) -> !gpu.mma_matrix<16x16xf32, "COp">
  // CHECK: gpu.subgroup_mma_store_matrix %{{[A-Za-z0-9_]+}}, %{{[A-Za-z0-9_]+}}[%{{[A-Za-z0-9_]+}}, %{{[A-Za-z0-9_]+}}] {leadDimension = 16 : index} : !gpu.mma_matrix<16x16xf32, "COp">, memref<16x16xf32>
  gpu.subgroup_mma_store_matrix %q2, %D[%i, %i] {leadDimension = 16 : index} : !gpu.mma_matrix<16x16xf32, "COp">, memref<16x16xf32>
  // CHECK: gpu.barrier
  gpu.barrier
  // CHECK: gpu.all_reduce add %{{[A-Za-z0-9_]+}} uniform {
  %all = gpu.all_reduce add %x uniform {} : (f32) -> f32
  // CHECK: gpu.return
  gpu.return
}
}
