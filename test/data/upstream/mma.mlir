module attributes {gpu.container_module} {
gpu.module @m {
  gpu.func @mma(%A: memref<16x16xf16>, %B: memref<16x8xf16>, %D: memref<16x8xf32>) workgroup(%sA: memref<16x16xf16, #gpu.address_space<workgroup>>) kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    %c8 = arith.constant 8 : index
    %c9 = arith.constant 9 : index
    %c16 = arith.constant 16 : index
    %t = gpu.thread_id x
    %row = arith.divui %t, %c2 : index
    %half = arith.remui %t, %c2 : index
    %col = arith.muli %half, %c8 : index
    %tok = nvgpu.device_async_copy %A[%row, %col], %sA[%row, %col], 8 {bypassL1} : memref<16x16xf16> to memref<16x16xf16, #gpu.address_space<workgroup>>
    %g = nvgpu.device_async_create_group %tok
    nvgpu.device_async_wait %g
    gpu.barrier
    %lr = arith.remui %t, %c16 : index
    %lc = arith.divui %t, %c16 : index
    %lc8 = arith.muli %lc, %c8 : index
    %a = nvgpu.ldmatrix %sA[%lr, %lc8] {transpose = false, numTiles = 4 : i32} : memref<16x16xf16, #gpu.address_space<workgroup>> -> vector<4x2xf16>
    %gid = arith.divui %t, %c4 : index
    %tig = arith.remui %t, %c4 : index
    %k0 = arith.muli %tig, %c2 : index
    %k1 = arith.addi %k0, %c1 : index
    %k8 = arith.addi %k0, %c8 : index
    %k9 = arith.addi %k0, %c9 : index
    %b0 = memref.load %B[%k0, %gid] : memref<16x8xf16>
    %b1 = memref.load %B[%k1, %gid] : memref<16x8xf16>
    %b2 = memref.load %B[%k8, %gid] : memref<16x8xf16>
    %b3 = memref.load %B[%k9, %gid] : memref<16x8xf16>
    %z = arith.constant dense<0.0> : vector<2x2xf16>
    %v0 = vector.insert %b0, %z[0, 0] : f16 into vector<2x2xf16>
    %v1 = vector.insert %b1, %v0[0, 1] : f16 into vector<2x2xf16>
    %v2 = vector.insert %b2, %v1[1, 0] : f16 into vector<2x2xf16>
    %b = vector.insert %b3, %v2[1, 1] : f16 into vector<2x2xf16>
    %c = arith.constant dense<0.0> : vector<2x2xf32>
    %d = nvgpu.mma.sync(%a, %b, %c) {mmaShape = [16, 8, 16]} : (vector<4x2xf16>, vector<2x2xf16>, vector<2x2xf32>) -> vector<2x2xf32>
    %d0 = vector.extract %d[0] : vector<2xf32> from vector<2x2xf32>
    %d1 = vector.extract %d[1] : vector<2xf32> from vector<2x2xf32>
    vector.store %d0, %D[%gid, %k0] : memref<16x8xf32>, vector<2xf32>
    %gid8 = arith.addi %gid, %c8 : index
    %e0 = vector.extract %d1[0] : f32 from vector<2xf32>
    %e1 = vector.extract %d1[1] : f32 from vector<2xf32>
    memref.store %e0, %D[%gid8, %k0] : memref<16x8xf32>
    memref.store %e1, %D[%gid8, %k1] : memref<16x8xf32>
    gpu.return
  }
}
}
