// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s -p convert-warp-to-ptx -t ptx | filecheck %s --check-prefix PTX

!tile = memref<2x64x64xbf16, #warp.swizzle<128>, 3>
!acc = !warp.fragment<acc, 64x32xf32, [c1 c2 r0 r1 r2 | c0 r3 c3 c4 | r4 r5]>

module attributes {warp.target = #warp.target<sm_100a>} {
  gpu.module @kernels {
    // CHECK-LABEL: gpu.func @halves
    // PTX-LABEL: .entry halves
    gpu.func @halves() kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
      %zero = arith.constant 0 : index
      %k = arith.constant 16 : index
      // PTX: tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [{{.*}}], 64;
      // PTX: ld.shared.b32 [[D:%r[0-9]+]],
      %D = memref.alloc() {warp.offset = 8192 : i64} : memref<1x128x32xf32, 6>
      %A = memref.alloc() : memref<1x128x64xbf16, 6>
      %Bs = memref.alloc() {warp.offset = 0 : i64} : memref<2x32x64xbf16, #warp.swizzle<128>, 3>
      // PTX: add.s32 [[A:%r[0-9]+]], [[D]], 32;
      // PTX: tcgen05.st.sync.aligned.16x128b.x8.b32 [{{%r[0-9]+}}], {
      // PTX-NEXT: tcgen05.st.sync.aligned.16x128b.x8.b32 [{{%r[0-9]+}}+1048576], {
      // PTX-NEXT: tcgen05.wait::st.sync.aligned;
      %p = warp.constant 1.000000e+00 : bf16 : !warp.fragment<a, 128x64xbf16, [c1 c2 r0 r1 r2 | c0 r3 r4 c3 c4 c5 | r5 r6]>
      warp.store %p, %A[%zero, %zero, %zero] : !warp.fragment<a, 128x64xbf16, [c1 c2 r0 r1 r2 | c0 r3 r4 c3 c4 c5 | r5 r6]>, memref<1x128x64xbf16, 6>
      // CHECK: warp.tensor_mma %{{.*}}[{{.*}}], %{{.*}}[{{.*}}], %{{.*}}[{{.*}}] : memref<1x128x64xbf16, 6 : i64>
      // PTX: add.s32 [[K:%r[0-9]+]], [[A]], 8;
      // PTX: @{{%p[0-9]+}} tcgen05.mma.cta_group::1.kind::f16 [[[D]]], [[[K]]], {{%rd[0-9]+}}, {{%r[0-9]+}}, 1;
      warp.tensor_mma %A[%zero, %zero, %k], %Bs[%zero, %zero, %k], %D[%zero] : memref<1x128x64xbf16, 6>, memref<2x32x64xbf16, #warp.swizzle<128>, 3>, memref<1x128x32xf32, 6>
      memref.dealloc %D : memref<1x128x32xf32, 6>
      gpu.return
    }

    // CHECK-LABEL: gpu.func @f
    // PTX-LABEL: .entry f
    gpu.func @f(%C: memref<64x32xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
      %zero = arith.constant 0 : index
      %one = arith.constant 1 : index
      // CHECK: memref.alloc() {warp.offset = 32768 : i64} : memref<1x64x32xf32, 6 : i64>
      // PTX: setp.ge.s32 [[OTHERS:%p[0-9]+]], {{%r[0-9]+}}, 32;
      // PTX: @[[OTHERS]] bra [[BEHIND:.*]];
      // PTX: tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [{{.*}}], 32;
      // PTX: tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
      // PTX: [[BEHIND]]:
      // PTX: tcgen05.fence::before_thread_sync;
      // PTX-NEXT: bar.sync 0;
      // PTX-NEXT: tcgen05.fence::after_thread_sync;
      // PTX: ld.shared.b32 [[D:%r[0-9]+]],
      %D = memref.alloc() {warp.offset = 32768 : i64} : memref<1x64x32xf32, 6>
      %As = memref.alloc() {warp.offset = 0 : i64} : !tile
      %Bs = memref.alloc() {warp.offset = 16384 : i64} : memref<2x32x64xbf16, #warp.swizzle<128>, 3>
      %done = warp.make_barriers {warp.offset = 32776 : i64, arrivals = 1 : i64} : !warp.barriers<1>
      gpu.barrier
      %c = warp.constant 0.000000e+00 : f32 : !acc
      // CHECK: warp.store {{.*}}, memref<1x64x32xf32, 6 : i64>
      // PTX: tcgen05.st.sync.aligned.16x256b.x4.b32 [{{%r[0-9]+}}], {
      // PTX-NEXT: tcgen05.wait::st.sync.aligned;
      warp.store %c, %D[%zero, %zero, %zero] : !acc, memref<1x64x32xf32, 6>
      // CHECK: warp.fence before_thread_sync
      warp.fence before_thread_sync
      gpu.barrier
      // CHECK: warp.fence after_thread_sync
      warp.fence after_thread_sync
      // CHECK: warp.tensor_mma %{{.*}}[{{.*}}], %{{.*}}[{{.*}}], %{{.*}}[{{.*}}] adds %{{.*}} : memref<2x64x64xbf16
      // PTX: tcgen05.mma.cta_group::1.kind::f16 [[[D]]], {{%rd[0-9]+}}, {{%rd[0-9]+}}, {{%r[0-9]+}}, 0;
      %no = arith.constant false
      warp.tensor_mma %As[%one, %zero, %zero], %Bs[%one, %zero, %zero], %D[%zero] adds %no : !tile, memref<2x32x64xbf16, #warp.swizzle<128>, 3>, memref<1x64x32xf32, 6>
      // CHECK: warp.tensor_mma %{{.*}}[{{.*}}], %{{.*}}[{{.*}}], %{{.*}}[{{.*}}] : memref<2x64x64xbf16
      // PTX: @{{%p[0-9]+}} tcgen05.mma.cta_group::1.kind::f16 [[[D]]], {{%rd[0-9]+}}, {{%rd[0-9]+}}, {{%r[0-9]+}}, 1;
      warp.tensor_mma %As[%one, %zero, %zero], %Bs[%one, %zero, %zero], %D[%zero] : !tile, memref<2x32x64xbf16, #warp.swizzle<128>, 3>, memref<1x64x32xf32, 6>
      // CHECK: warp.arrive %{{.*}}[%{{.*}}] {products} : !warp.barriers<1>
      // PTX: tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [
      warp.arrive %done[%zero] {products} : !warp.barriers<1>
      warp.await %done[%zero] parity %zero : !warp.barriers<1>
      warp.fence after_thread_sync
      // CHECK: warp.load {{.*}} : memref<1x64x32xf32, 6 : i64> -> !warp.fragment
      // PTX: tcgen05.ld.sync.aligned.16x256b.x4.b32 {
      // PTX-NEXT: tcgen05.wait::ld.sync.aligned;
      %d = warp.load %D[%zero, %zero, %zero] : memref<1x64x32xf32, 6> -> !acc
      warp.store %d, %C[%zero, %zero] {in_bounds = [true, true]} : !acc, memref<64x32xf32>
      // PTX: tcgen05.dealloc.cta_group::1.sync.aligned.b32 [[D]], 32;
      memref.dealloc %D : memref<1x64x32xf32, 6>
      gpu.return
    }

    // The scales of both operands have the columns behind the sums; each step takes its word and its bytes of that.
    // CHECK-LABEL: gpu.func @scaled
    // PTX-LABEL: .entry scaled
    gpu.func @scaled(%C: memref<128x64xf32>) kernel attributes {gpu.known_block_size = array<i32: 128, 1, 1>} {
      %zero = arith.constant 0 : index
      %one = arith.constant 1 : index
      // PTX: tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [{{.*}}], 128;
      // PTX: ld.shared.b32 [[D:%r[0-9]+]],
      // PTX: add.s32 [[SA:%r[0-9]+]], [[D]], 64;
      // PTX: add.s32 [[SB:%r[0-9]+]], [[D]], 80;
      // PTX-NOT: tcgen05.alloc
      %D = memref.alloc() : memref<1x128x64xf32, 6>
      %SA = memref.alloc() : memref<2x128x8xf8E8M0FNU, 6>
      %SB = memref.alloc() : memref<2x128x8xf8E8M0FNU, 6>
      %As = memref.alloc() : memref<2x128x256xf4E2M1FN, #warp.swizzle<128>, 3>
      %Bs = memref.alloc() : memref<2x64x256xf4E2M1FN, #warp.swizzle<128>, 3>
      %SAs = memref.alloc() : memref<2x64x16xf8E8M0FNU, #warp.swizzle<16>, 3>
      // CHECK: warp.copy %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}] to %{{.*}}[%{{.*}}] : memref<2x64x16xf8E8M0FNU, #warp.swizzle<16>, 3 : i64> to memref<2x128x8xf8E8M0FNU, 6 : i64>
      // PTX: add.s32 [[STAGE:%r[0-9]+]], [[SA]], 8;
      // PTX: tcgen05.cp.cta_group::1.32x128b.warpx4 [[[STAGE]]], %rd
      // PTX: add.s32 [[NEXT:%r[0-9]+]], [[STAGE]], 4;
      // PTX: tcgen05.cp.cta_group::1.32x128b.warpx4 [[[NEXT]]], %rd
      warp.copy %SAs[%one, %zero, %zero] to %SA[%one] : memref<2x64x16xf8E8M0FNU, #warp.swizzle<16>, 3> to memref<2x128x8xf8E8M0FNU, 6>
      warp.copy %SAs[%one, %zero, %zero] to %SB[%one] : memref<2x64x16xf8E8M0FNU, #warp.swizzle<16>, 3> to memref<2x128x8xf8E8M0FNU, 6>
      // CHECK: warp.tensor_mma %{{.*}} with %{{.*}}, %{{.*}}[%{{.*}}] {kind = "mxf4", step = 3 : i64} : {{.*}}, memref<1x128x64xf32, 6 : i64>, memref<2x128x8xf8E8M0FNU, 6 : i64>, memref
      // PTX: mov.b32 {{%r[0-9]+}}, 0x489004a0;
      // PTX: tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32 [[[D]]], %rd{{[0-9]+}}, %rd{{[0-9]+}}, {{%r[0-9]+}}, [[[NEXT]]], [{{%r[0-9]+}}], 1;
      warp.tensor_mma %As[%one, %zero, %zero], %Bs[%one, %zero, %zero], %D[%zero] with %SA, %SB[%one] {kind = "mxf4", step = 3 : i64} : memref<2x128x256xf4E2M1FN, #warp.swizzle<128>, 3>, memref<2x64x256xf4E2M1FN, #warp.swizzle<128>, 3>, memref<1x128x64xf32, 6>, memref<2x128x8xf8E8M0FNU, 6>, memref<2x128x8xf8E8M0FNU, 6>
      memref.dealloc %D : memref<1x128x64xf32, 6>
      gpu.return
    }

    // CHECK-LABEL: gpu.func @pack
    // PTX-LABEL: .entry pack
    gpu.func @pack(%S: memref<200x8xf8E8M0FNU>, %W: memref<256x16xf8E8M0FNU>) kernel attributes {gpu.known_block_size = array<i32: 256, 1, 1>} {
      %zero = arith.constant 0 : index
      // CHECK: warp.pack %S to %W share %{{.*}} {blocks = #warp.blocks<192, 2, r0 r1 r2 r3 r4 | c0 c1 r5 r6>, shares = 1 : i64}
      // PTX-COUNT-4: ld.global.b32
      // PTX: st.global.v4.b32
      warp.pack %S to %W share %zero {blocks = #warp.blocks<192, 2, r0 r1 r2 r3 r4 | c0 c1 r5 r6>, shares = 1 : i64} : memref<200x8xf8E8M0FNU> to memref<256x16xf8E8M0FNU>
      gpu.return
    }

    // PTX-LABEL: pack_rows
    gpu.func @pack_rows(%S: memref<?x8xf8E8M0FNU>, %W: memref<?x16xf8E8M0FNU>) kernel attributes {gpu.known_block_size = array<i32: 256, 1, 1>} {
      %cta = gpu.block_id x
      // CHECK: warp.pack %S to %W share %{{.*}} {blocks = #warp.blocks<192, 2, r0 r1 r2 r3 r4 | c0 c1 r5 r6>} : memref<?x8xf8E8M0FNU> to memref<?x16xf8E8M0FNU>
      // PTX: mov.u32 %r{{[0-9]+}}, %ctaid.x
      // PTX-COUNT-4: ld.global.b32
      // PTX: st.global.v4.b32
      warp.pack %S to %W share %cta {blocks = #warp.blocks<192, 2, r0 r1 r2 r3 r4 | c0 c1 r5 r6>} : memref<?x8xf8E8M0FNU> to memref<?x16xf8E8M0FNU>
      gpu.return
    }
  }
}
