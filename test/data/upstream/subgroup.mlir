gpu.module @m {
  gpu.func @wmma(%A: memref<16x16xf16>, %B: memref<16x16xf16>, %D: memref<16x16xf32>, %x: memref<32xf32>, %y: memref<32xf32>, %z: memref<32xi32>) kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
    %c0 = arith.constant 0 : index
    %cst = arith.constant 1 : index
    %f0 = arith.constant 0.0 : f32
    %a = gpu.subgroup_mma_load_matrix %A[%c0, %c0] {leadDimension = 16 : index} : memref<16x16xf16> -> !gpu.mma_matrix<16x16xf16, "AOp">
    %b = gpu.subgroup_mma_load_matrix %B[%c0, %c0] {leadDimension = 16 : index, transpose} : memref<16x16xf16> -> !gpu.mma_matrix<16x16xf16, "BOp">
    %z0 = gpu.subgroup_mma_constant_matrix %f0 : !gpu.mma_matrix<16x16xf32, "COp">
    %q = gpu.subgroup_mma_compute %a, %b, %z0 {b_transpose} : !gpu.mma_matrix<16x16xf16, "AOp">, !gpu.mma_matrix<16x16xf16, "BOp"> -> !gpu.mma_matrix<16x16xf32, "COp">
    %q2 = gpu.subgroup_mma_elementwise mulf %q, %q : (!gpu.mma_matrix<16x16xf32, "COp">, !gpu.mma_matrix<16x16xf32, "COp">) -> !gpu.mma_matrix<16x16xf32, "COp">
    gpu.subgroup_mma_store_matrix %q2, %D[%c0, %c0] {leadDimension = 16 : index} : !gpu.mma_matrix<16x16xf32, "COp">, memref<16x16xf32>
    %t = gpu.lane_id
    %v = memref.load %x[%t] : memref<32xf32>
    %o = arith.constant 3 : i32
    %w = arith.constant 16 : i32
    %s, %ok = gpu.shuffle up %v, %o, %w : f32
    %s1 = arith.select %ok, %s, %f0 : f32
    %sum = gpu.subgroup_reduce add %s1 cluster(size = 8) : (f32) -> f32
    %c = arith.constant 1.5 : f32
    %e = arith.addf %sum, %c : f32
    %l = scf.for %i = %c0 to %t step %cst iter_args(%acc = %e) -> (f32) {
      %n = arith.mulf %acc, %c : f32
      scf.yield %n : f32
    }
    memref.store %l, %y[%t] : memref<32xf32>
    %ti = arith.index_cast %t : index to i32
    %m = gpu.subgroup_reduce maxsi %ti : (i32) -> i32
    memref.store %m, %z[%t] : memref<32xi32>
    gpu.return
  }
}
