// RUN: warploom-opt %s -p convert-warp-to-ptx -t ptx | filecheck %s

!acc = !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
!tile = memref<2x64x64xf16, #warp.swizzle<128>, 3>
!map3 = !warp.tensor_map<2x16x64xbf16, swizzle 128>
!map = !warp.tensor_map<64x64xf16, swizzle 128>

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = (!map, !map, memref<64x64xf32>) -> (), kernel}> ({
^bb0(%A: !map, %B: !map, %C: memref<64x64xf32>):
  // CHECK: .param .align 64 .b8 k_A[128]
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %k16 = arith.constant 16 : index
  %k32 = arith.constant 32 : index
  %k48 = arith.constant 48 : index
  %depth = arith.constant 64 : index
  %end = arith.constant 256 : index
  %As = memref.alloc() : !tile
  %Bs = memref.alloc() : !tile
  %full = warp.make_barriers {arrivals = 1 : i64} : !warp.barriers<2>
  warp.fence async_proxy
  "gpu.barrier"() : () -> ()
  // CHECK-COUNT-2: mbarrier.init.shared.b64
  // CHECK: fence.proxy.async.shared::cta;
  // CHECK-NEXT: bar.sync 0;
  // CHECK: bfe.u32 [[UNITS:%r[0-9]+]], [[BASE:%r[0-9]+]], 4, 14;
  // CHECK-NEXT: cvt.u64.u32 [[WIDE:%rd[0-9]+]], [[UNITS]];
  // CHECK-NEXT: add.s64 [[A0:%rd[0-9]+]], [[WIDE]], 0x4000004000010000;
  // CHECK-NEXT: add.s64 [[B0:%rd[0-9]+]], [[WIDE]], 0x4000004000010400;
  // CHECK-NEXT: add.s64 [[A1:%rd[0-9]+]], [[WIDE]], 0x4000004000010002;
  %start = warp.constant 0.0 : f32 : !acc
  %sum = scf.for %k = %zero to %end step %depth iter_args(%c = %start) -> (!acc) {
    // CHECK: setp.eq.s32 [[FIRST:%p[0-9]+]], [[TID:%r[0-9]+]], 0;
    // CHECK-NEXT: @[[FIRST]] mbarrier.arrive.expect_tx.shared::cta.b64 _, [[[BASE]]+32768], 16384;
    warp.arrive %full[%zero] {bytes = 16384 : i64} : !warp.barriers<2>
    // CHECK: // warp.tensor_load: !warp.tensor_map<64x64xf16, swizzle 128>
    // CHECK-NEXT: @[[FIRST]] cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [[[BASE]]], [%rd{{[0-9]+}}, {%r{{[0-9]+}}, 0}], [[[BASE]]+32768];
    warp.tensor_load %A[%zero, %k] to %As[%zero, %zero, %zero], %full[%zero] : !map to !tile, !warp.barriers<2>
    warp.tensor_load %B[%zero, %k] to %Bs[%zero, %zero, %zero], %full[%zero] : !map to !tile, !warp.barriers<2>
    %turn = arith.divui %k, %depth : index
    %two = arith.constant 2 : index
    %parity = arith.remui %turn, %two : index
    warp.await %full[%zero] parity %parity : !warp.barriers<2>
    // CHECK: wgmma.fence.sync.aligned;
    warp.fence wgmma
    // CHECK: // warp.wgmma: m64n64k16 of shared memory
    // CHECK-NEXT: wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%f0, {{.*}}%f31}, [[A0]], [[B0]], 1, 1, 1, 0, 0;
    %d0 = warp.wgmma %As[%zero, %zero, %zero], %Bs[%zero, %zero, %zero], %c : !tile, !tile, !acc
    %d1 = warp.wgmma %As[%zero, %zero, %k16], %Bs[%zero, %zero, %k16], %d0 : !tile, !tile, !acc
    %d2 = warp.wgmma %As[%zero, %zero, %k32], %Bs[%zero, %zero, %k32], %d1 : !tile, !tile, !acc
    %d3 = warp.wgmma %As[%zero, %zero, %k48], %Bs[%zero, %zero, %k48], %d2 : !tile, !tile, !acc
    // CHECK: wgmma.commit_group.sync.aligned;
    warp.commit wgmma
    // CHECK-NEXT: wgmma.wait_group.sync.aligned 0;
    warp.wait wgmma 0
    "gpu.barrier"() : () -> ()
    scf.yield %d3 : !acc
  }
  warp.store %sum, %C[%zero, %zero] {in_bounds = [true, true]} : !acc, memref<64x64xf32>
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 128, 1, 1>} : () -> ()
"gpu.func"() <{function_type = (!map3, memref<64x16xbf16>, memref<4x32xi32>) -> (), kernel}> ({
^bb0(%M: !map3, %G: memref<64x16xbf16>, %E: memref<4x32xi32>):
  %zero = arith.constant 0 : index
  %n64 = arith.constant 64 : index
  %k16 = arith.constant 16 : index
  %A = memref.alloc() : memref<32x128xbf16, #warp.swizzle<128>, 3>
  %B = memref.alloc() : memref<64x32xbf16, 3>
  // CHECK: .reqnctapercluster 2, 1, 1
  // CHECK: .minnctapersm 1
  // CHECK: setmaxnreg.inc.sync.aligned.u32 240;
  nvvm.setmaxregister increase 240
  // CHECK-NEXT: setmaxnreg.dec.sync.aligned.u32 40;
  nvvm.setmaxregister decrease 40
  %c = warp.constant 0.0 : f32 : !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  // M-major: 4096 bytes to the next 64 of M, and from k 16 on, 64 of M further; K-major without a swizzle: 1024 bytes
  // to the next 16 bytes of K, 128 to the next 8 rows.
  // CHECK: add.s64 [[A:%rd[0-9]+]], %rd{{[0-9]+}}, 0x4000004001000180;
  // CHECK: add.s64 [[B:%rd[0-9]+]], %rd{{[0-9]+}}, 0x800400280;
  // CHECK: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{.*}}, [[A]], [[B]], 0, -1, 1, 1, 0;
  %d = warp.wgmma %A[%k16, %n64], %B[%zero, %k16], %c {overwrite, negate_a, mn_major_a} :
    memref<32x128xbf16, #warp.swizzle<128>, 3>, memref<64x32xbf16, 3>,
    !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  %a = warp.load %G[%zero, %zero] {in_bounds = [true, true]} : memref<64x16xbf16> -> !warp.fragment<a, 64x16xbf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>
  %n32 = arith.constant 32 : index
  %thread = gpu.thread_id x
  %warp = arith.divui %thread, %n32 : index
  %e = warp.load %E[%warp, %zero] {registers = "vectors"} : memref<4x32xi32> -> !warp.fragment<meta, 64x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3 | r4 r5]>
  // CHECK: // warp.wgmma: m64n64k32 of registers and shared memory
  // CHECK-NEXT: wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.bf16.bf16 {{.*}}, {%r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}}}, %rd{{[0-9]+}}, {{%r[0-9]+}}, 1, 1, 1, 1, 0;
  %d2 = warp.wgmma %a, %B[%zero, %zero], %d sparse %e {selector = 1 : i64} :
    !warp.fragment<a, 64x16xbf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>, memref<64x32xbf16, 3>,
    !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, !warp.fragment<meta, 64x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3 | r4 r5]>
  // CHECK: @%p{{[0-9]+}} cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%rd{{[0-9]+}}, {64, 16, 0}], [%r{{[0-9]+}}+4096];
  warp.tensor_store %A[%zero, %n64] to %M[%zero, %k16, %n64] {by = 32 : i64} :
    memref<32x128xbf16, #warp.swizzle<128>, 3> to !map3
  // CHECK: setp.eq.s32 [[FIRST:%p[0-9]+]], %r0, 0;
  // CHECK-NEXT: @[[FIRST]] cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%rd{{[0-9]+}}, {64, 16, 0}];
  warp.prefetch %M[%zero, %k16, %n64] : !map3
  // CHECK: cp.async.bulk.commit_group;
  warp.commit bulk {by = 32 : i64}
  // CHECK: cp.async.bulk.wait_group.read 1;
  warp.wait bulk 1 {read, by = 32 : i64}
  // CHECK: barrier.cluster.arrive.aligned;
  // CHECK-NEXT: barrier.cluster.wait.aligned;
  warp.barrier cluster
  // CHECK-NEXT: fence.mbarrier_init.release.cluster;
  // CHECK-NEXT: barrier.cluster.arrive.relaxed.aligned;
  // CHECK-NEXT: barrier.cluster.wait.aligned;
  warp.barrier cluster {mbarriers}
  // CHECK-NEXT: mov.u32 [[RANK:%r[0-9]+]], %cluster_ctarank;
  %rank = gpu.cluster_block_id x
  %one = arith.constant 1 : index
  %three = arith.constant 3 : index
  %empty = warp.make_barriers {arrivals = 1 : i64} : !warp.barriers<2>
  // CHECK: barrier.cluster.arrive.aligned;
  warp.barrier cluster {arrive}
  // CHECK-NEXT: barrier.cluster.wait.aligned;
  warp.barrier cluster {wait}
  // CHECK-NEXT: bar.sync 3, 128;
  warp.barrier cta[%three] {threads = 128 : i64}
  // CHECK-NEXT: bar.sync [[RANK]], 64;
  warp.barrier cta[%rank] {threads = 64 : i64}
  // CHECK: mapa.shared::cluster.u32 [[THERE:%r[0-9]+]], [[BASE:%r[0-9]+]], [[RANK]];
  // CHECK: @%p{{[0-9]+}} mbarrier.arrive.shared::cluster.b64 _, [[[THERE]]+{{[0-9]+}}];
  warp.arrive %empty[%one] at %rank : !warp.barriers<2>
  // CHECK: mov.b16 [[MASK:%h[0-9]+]], 3;
  // CHECK: cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [{{.*}}], [%rd{{[0-9]+}}, {0, 0, 0}], [{{.*}}], [[MASK]];
  warp.tensor_load %M[%zero, %zero, %zero] to %A[%zero, %zero], %empty[%zero] multicast %three :
    !map3 to memref<32x128xbf16, #warp.swizzle<128>, 3>, !warp.barriers<2>
  "gpu.return"() : () -> ()
}) {sym_name = "others", gpu.known_block_size = array<i32: 256, 1, 1>, gpu.known_cluster_size = array<i32: 2, 1, 1>} :
  () -> ()
}) : () -> ()
}
