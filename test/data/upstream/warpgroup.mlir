!mapA = !nvgpu.tensormap.descriptor<tensor = memref<128x64xf16, 3>, swizzle = swizzle_128b, l2promo = none, oob = zero, interleave = none>
!mapB = !nvgpu.tensormap.descriptor<tensor = memref<64x64xf16, 3>, swizzle = swizzle_128b, l2promo = none, oob = zero, interleave = none>
!bar = !nvgpu.mbarrier.group<memorySpace = #gpu.address_space<workgroup>, num_barriers = 2>
!acc = !nvgpu.warpgroup.accumulator<fragmented = vector<128x128xf32>>
!sA = memref<128x64xf16, #gpu.address_space<workgroup>>
!sB = memref<64x128xf16, #gpu.address_space<workgroup>>
gpu.module @m {
  gpu.func @gemm(%mA: !mapA, %mB: !mapB, %D: memref<128x128xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c64 = arith.constant 64 : index
    %bytes = arith.constant 32768 : index
    %offB = arith.constant 32768 : index
    %half = arith.constant 40960 : index
    %stage = arith.constant 16384 : index
    %ticks = arith.constant 10000000 : index
    %dyn = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
    %t = gpu.thread_id x
    %first = arith.cmpi eq, %t, %c0 : index
    %b = nvgpu.mbarrier.create -> !bar
    nvgpu.mbarrier.init %b[%c0], %c1, predicate = %first : !bar
    nvgpu.mbarrier.init %b[%c1], %c1, predicate = %first : !bar
    gpu.barrier
    nvgpu.tma.prefetch.descriptor %mA, predicate = %first : !mapA
    scf.for %s = %c0 to %c2 step %c1 {
      %o = arith.muli %s, %stage : index
      %oB = arith.addi %o, %offB : index
      %c8192 = arith.constant 8192 : index
      %oB2 = arith.addi %oB, %c8192 : index
      %a = memref.view %dyn[%o][] : memref<?xi8, #gpu.address_space<workgroup>> to !sA
      %b0 = memref.view %dyn[%oB][] : memref<?xi8, #gpu.address_space<workgroup>> to memref<64x64xf16, #gpu.address_space<workgroup>>
      %b1 = memref.view %dyn[%oB2][] : memref<?xi8, #gpu.address_space<workgroup>> to memref<64x64xf16, #gpu.address_space<workgroup>>
      nvgpu.mbarrier.arrive.expect_tx %b[%s], %bytes, predicate = %first : !bar
      %k = arith.muli %s, %c64 : index
      nvgpu.tma.async.load %mA[%k, %c0], %b[%s] to %a, predicate = %first : !mapA, !bar -> !sA
      nvgpu.tma.async.load %mB[%c0, %k], %b[%s] to %b0, predicate = %first : !mapB, !bar -> memref<64x64xf16, #gpu.address_space<workgroup>>
      nvgpu.tma.async.load %mB[%c64, %k], %b[%s] to %b1, predicate = %first : !mapB, !bar -> memref<64x64xf16, #gpu.address_space<workgroup>>
    }
    %z = nvgpu.warpgroup.mma.init.accumulator -> !acc
    %false = arith.constant false
    %r = scf.for %s = %c0 to %c2 step %c1 iter_args(%c = %z) -> (!acc) {
      nvgpu.mbarrier.try_wait.parity %b[%s], %false, %ticks : !bar
      %o = arith.muli %s, %stage : index
      %oB = arith.addi %o, %offB : index
      %a = memref.view %dyn[%o][] : memref<?xi8, #gpu.address_space<workgroup>> to !sA
      %bb = memref.view %dyn[%oB][] : memref<?xi8, #gpu.address_space<workgroup>> to !sB
      %dA = nvgpu.warpgroup.generate.descriptor %a, %mA : !sA, !mapA -> !nvgpu.warpgroup.descriptor<tensor = !sA>
      %dB = nvgpu.warpgroup.generate.descriptor %bb, %mB : !sB, !mapB -> !nvgpu.warpgroup.descriptor<tensor = !sB>
      %e = nvgpu.warpgroup.mma %dA, %dB, %c {transposeB, waitGroup = 0 : i64} : !nvgpu.warpgroup.descriptor<tensor = !sA>, !nvgpu.warpgroup.descriptor<tensor = !sB>, !acc -> !acc
      scf.yield %e : !acc
    }
    nvgpu.warpgroup.mma.store %r, %D : !acc to memref<128x128xf32>
    gpu.return
  }
}
