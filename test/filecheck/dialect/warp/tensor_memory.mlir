// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s -p convert-warp-to-ptx -t ptx | filecheck %s --check-prefix PTX

!tile = memref<2x64x64xbf16, #warp.swizzle<128>, 3>
!acc = !warp.fragment<acc, 64x32xf32, [c1 c2 r0 r1 r2 | c0 r3 c3 c4 | r4 r5]>

module attributes {warp.target = #warp.target<sm_100a>} {
  gpu.module @kernels {
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
  }
}
