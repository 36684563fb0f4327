// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

!acc = !warp.fragment<acc, 64x128xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
!half = !warp.fragment<acc, 64x8xf16, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
!sum = !warp.fragment<acc, 64x24xi32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
!a = memref<2x64x64xf16, #warp.swizzle<128>, 3>
!b = memref<2x128x64xf16, #warp.swizzle<128>, 3>
!map = !warp.tensor_map<64x64xf16, swizzle 128>

// CHECK-LABEL: @products
func.func @products(%As: !a, %Bs: !b, %c: !acc, %i: index) {
  // CHECK: warp.fence wgmma
  warp.fence wgmma
  // CHECK-NEXT: %d = warp.wgmma %As[%i, %i, %i], %Bs[%i, %i, %i], %c {overwrite} : memref<2x64x64xf16, #warp.swizzle<128>, 3 : i64>, memref<2x128x64xf16, #warp.swizzle<128>, 3 : i64>, !warp.fragment<acc, 64x128xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  %d = warp.wgmma %As[%i, %i, %i], %Bs[%i, %i, %i], %c {overwrite} : !a, !b, !acc
  // CHECK-NEXT: warp.commit wgmma
  warp.commit wgmma
  // CHECK-NEXT: warp.wait wgmma 1
  warp.wait wgmma 1
  return
}

// CHECK-LABEL: @other_products
func.func @other_products(%A: memref<16x64xbf16, #warp.swizzle<64>, 3>, %B: memref<16x32xbf16, #warp.swizzle<32>, 3>,
    %c: !warp.fragment<acc, 64x32xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %F: memref<64x8xf32, 3>,
    %E: memref<64x32xf8E4M3FN, #warp.swizzle<32>, 3>, %h: !half, %I: memref<64x128xi8, 3>, %s: !sum, %i: index) {
  // CHECK: {mn_major_a, mn_major_b}
  %0 = warp.wgmma %A[%i, %i], %B[%i, %i], %c {mn_major_a, mn_major_b} : memref<16x64xbf16, #warp.swizzle<64>, 3>,
    memref<16x32xbf16, #warp.swizzle<32>, 3>, !warp.fragment<acc, 64x32xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  // CHECK: {negate_a, negate_b}
  %1 = warp.wgmma %F[%i, %i], %F[%i, %i], %c {negate_a, negate_b} : memref<64x8xf32, 3>, memref<64x8xf32, 3>,
    !warp.fragment<acc, 64x32xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  // CHECK: memref<64x32xf8E4M3FN, #warp.swizzle<32>, 3 : i64>
  %2 = warp.wgmma %E[%i, %i], %E[%i, %i], %h : memref<64x32xf8E4M3FN, #warp.swizzle<32>, 3>,
    memref<64x32xf8E4M3FN, #warp.swizzle<32>, 3>, !half
  // CHECK: {satfinite}
  %3 = warp.wgmma %I[%i, %i], %I[%i, %i], %s {satfinite} : memref<64x128xi8, 3>, memref<64x128xi8, 3>, !sum
  return
}

// CHECK-LABEL: @operands
func.func @operands(%a: !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>, %As: !a, %Bs: !b, %c: !acc,
    %e: !warp.fragment<meta, 64x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3 | r4 r5]>, %i: index) {
  // CHECK: %0 = warp.wgmma %a, %Bs[%i, %i, %i], %c {negate_a} : !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>, memref<2x128x64xf16, #warp.swizzle<128>, 3 : i64>, !warp.fragment<acc, 64x128xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  %0 = warp.wgmma %a, %Bs[%i, %i, %i], %c {negate_a} :
    !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>, !b, !acc
  // CHECK-NEXT: %1 = warp.wgmma %As[%i, %i, %i], %Bs[%i, %i, %i], %c sparse %e {selector = 1 : i64} : memref<2x64x64xf16, #warp.swizzle<128>, 3 : i64>, memref<2x128x64xf16, #warp.swizzle<128>, 3 : i64>, !warp.fragment<acc, 64x128xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, !warp.fragment<meta, 64x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3 | r4 r5]>
  %1 = warp.wgmma %As[%i, %i, %i], %Bs[%i, %i, %i], %c sparse %e {selector = 1 : i64} : !a, !b, !acc,
    !warp.fragment<meta, 64x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3 | r4 r5]>
  return
}

// CHECK-LABEL: @copies
func.func @copies(%map: !map, %plain: !warp.tensor_map<4x2x8x16xi8>, %As: !a, %T: memref<64x16xi8, 3>,
    %rows: !warp.tensor_map<4x64xbf16>, %R: memref<2x4x64xbf16, strided<[256, 64, 1]>, 3>, %full: !warp.barriers<2>, %i: index) {
  // CHECK: warp.arrive %full[%i] {bytes = 8192 : i64, by = 128 : i64} : !warp.barriers<2>
  warp.arrive %full[%i] {bytes = 8192 : i64, by = 128 : i64} : !warp.barriers<2>
  // CHECK-NEXT: warp.tensor_load %map[%i, %i] to %As[%i, %i, %i], %full[%i] {by = 128 : i64} : !warp.tensor_map<64x64xf16, swizzle 128> to memref<2x64x64xf16, #warp.swizzle<128>, 3 : i64>, !warp.barriers<2>
  warp.tensor_load %map[%i, %i] to %As[%i, %i, %i], %full[%i] {by = 128 : i64} : !map to !a, !warp.barriers<2>
  // CHECK-NEXT: warp.tensor_load %plain[%i, %i, %i, %i] to %T[%i, %i], %full[%i] : !warp.tensor_map<4x2x8x16xi8> to
  warp.tensor_load %plain[%i, %i, %i, %i] to %T[%i, %i], %full[%i] :
    !warp.tensor_map<4x2x8x16xi8> to memref<64x16xi8, 3>, !warp.barriers<2>
  // CHECK: warp.tensor_load %rows[%i, %i] to %R[%i, %i, %i], %full[%i] : !warp.tensor_map<4x64xbf16> to
  warp.tensor_load %rows[%i, %i] to %R[%i, %i, %i], %full[%i] :
    !warp.tensor_map<4x64xbf16> to memref<2x4x64xbf16, strided<[256, 64, 1]>, 3>, !warp.barriers<2>
  // CHECK-NEXT: warp.fence async_proxy
  warp.fence async_proxy
  // CHECK-NEXT: warp.fence arithmetic
  warp.fence arithmetic
  // CHECK-NEXT: warp.tensor_store %As[%i, %i, %i] to %map[%i, %i] : memref<2x64x64xf16, #warp.swizzle<128>, 3 : i64> to !warp.tensor_map<64x64xf16, swizzle 128>
  warp.tensor_store %As[%i, %i, %i] to %map[%i, %i] : !a to !map
  // CHECK-NEXT: warp.prefetch %map[%i, %i] : !warp.tensor_map<64x64xf16, swizzle 128>
  warp.prefetch %map[%i, %i] : !map
  // CHECK-NEXT: warp.commit bulk
  warp.commit bulk
  // CHECK-NEXT: warp.wait bulk 0 {read}
  warp.wait bulk 0 {read}
  // CHECK-NEXT: warp.tensor_load %map[%i, %i] to %As[%i, %i, %i], %full[%i] multicast %i {by = 128 : i64} : !warp.tensor_map
  warp.tensor_load %map[%i, %i] to %As[%i, %i, %i], %full[%i] multicast %i {by = 128 : i64} : !map to !a, !warp.barriers<2>
  return
}

// CHECK-LABEL: @clusters
func.func @clusters(%empty: !warp.barriers<2>, %i: index) {
  // CHECK-NEXT: warp.barrier cluster {arrive}
  warp.barrier cluster {arrive}
  // CHECK-NEXT: warp.barrier cluster {wait}
  warp.barrier cluster {wait}
  // CHECK-NEXT: %rank = gpu.cluster_block_id x
  %rank = gpu.cluster_block_id x
  // CHECK-NEXT: warp.arrive %empty[%i] at %rank : !warp.barriers<2>
  warp.arrive %empty[%i] at %rank : !warp.barriers<2>
  // CHECK-NEXT: warp.barrier cta[%i] {threads = 128 : i64}
  warp.barrier cta[%i] {threads = 128 : i64}
  // CHECK-NEXT: warp.barrier cluster
  warp.barrier cluster
  // CHECK-NEXT: warp.barrier cluster {mbarriers}
  warp.barrier cluster {mbarriers}
  // CHECK-NEXT: warp.barrier cluster {arrive, mbarriers}
  warp.barrier cluster {arrive, mbarriers}
  return
}

// CHECK-LABEL: @counted
func.func @counted(%x: !warp.fragment<acc, 1x1xf32, [x0 x1 x2 x3 x4 |]>, %s: memref<1x32xf32, 3>, %full: !warp.barriers<2>, %i: index) {
  // CHECK-NEXT: warp.store %x, %s[%i, %i] counted %full[%i] : !warp.fragment<acc, 1x1xf32, {{.*}}>, memref<1x32xf32, 3 : i64>, !warp.barriers<2>
  warp.store %x, %s[%i, %i] counted %full[%i] : !warp.fragment<acc, 1x1xf32, [x0 x1 x2 x3 x4 |]>, memref<1x32xf32, 3>, !warp.barriers<2>
  return
}

// CHECK-LABEL: @transposed
func.func @transposed(%a: !warp.fragment<a, 64x16xf16, [c1 c2 r1 r2 r3 | c0 r0 c3 | r4 r5]>, %B: memref<2x96x64xf16, #warp.swizzle<128>, 3>,
    %c: !warp.fragment<acc, 96x64xf32, [r1 r2 c1 c2 c3 | r0 c0 | c4 c5]>, %i: index) {
  // CHECK-NEXT: warp.wgmma %a, %B[%i, %i, %i], %c {transposed} : !warp.fragment<a, 64x16xf16, [c1 c2 r1 r2 r3 | c0 r0 c3 | r4 r5]>, memref<2x96x64xf16, #warp.swizzle<128>, 3 : i64>, !warp.fragment<acc, 96x64xf32, [r1 r2 c1 c2 c3 | r0 c0 | c4 c5]>
  %d = warp.wgmma %a, %B[%i, %i, %i], %c {transposed} : !warp.fragment<a, 64x16xf16, [c1 c2 r1 r2 r3 | c0 r0 c3 | r4 r5]>,
    memref<2x96x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 96x64xf32, [r1 r2 c1 c2 c3 | r0 c0 | c4 c5]>
  return
}
