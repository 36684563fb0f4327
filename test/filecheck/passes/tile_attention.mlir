// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule{cta=32,16,32 stages=2},warp-outline,warp-tile" | filecheck %s
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule{cta=32,16,32 stages=2},warp-outline,warp-tile" | warploom-opt | filecheck %s
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule{cta=32,16,32 stages=2},warp-outline" | filecheck %s --check-prefix=OUTLINE
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule{cta=32,16,32 stages=2},warp-outline,warp-stage" | filecheck %s --check-prefix=STAGE
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule{cta=32,16,32 stages=2},warp-outline,warp-tile,warp-pipeline,warp-synchronise" | filecheck %s --check-prefix=AHEAD

// Q comes with the first tiles of K and V; one wait is for all, before the first fragment is loaded.
// AHEAD:         warp.copy %Q[{{.*}}async
// AHEAD-NOT:     gpu.barrier
// AHEAD:         warp.copy %K[{{.*}}async
// AHEAD:         warp.copy %V[{{.*}}async
// AHEAD-NEXT:    warp.commit cp_async
// AHEAD-NEXT:    warp.wait cp_async 0
// AHEAD-NEXT:    gpu.barrier
// AHEAD-NOT:     gpu.barrier
// AHEAD:         warp.load {{.*}}matrices
// AHEAD-NOT:     gpu.barrier
// AHEAD:         scf.for

// The products of tiles are those that products have; A of the second is in registers.
// STAGE:         warp.copy %Q[
// STAGE-NEXT:    gpu.barrier
// STAGE:         scf.for
// STAGE:           warp.tile_mma %{{.*}}, %{{.*}}, %{{.*}} part[%{{.*}}, %{{.*}}, %{{.*}}] {{{.*}}cta = 32x16x32,{{.*}}transposed_b} : memref<32x32xf16, #warp.swizzle<64>, 3 : i64>, memref<16x32xf16, #warp.swizzle<64>, 3 : i64>, !warp.fragment<acc, 32x16xf32
// STAGE:           warp.tile_mma %{{.*}}, %{{.*}}, %{{.*}} part[%{{.*}}, %{{.*}}, %{{.*}}] {{{.*}}cta = 32x32x16,{{.*}}} : !warp.fragment<a, 32x16xf16, {{.*}}>, memref<16x32xf16, #warp.swizzle<64>, 3 : i64>, !warp.fragment<acc, 32x32xf32
// STAGE:         warp.epilogue

// One CTA of one warp for 32 rows of O; those that see most keys come first.
// OUTLINE:       gpu.launch_func @kernels::@f blocks in (%[[TILES:.*]], %
// OUTLINE:       %[[ID:.*]] = gpu.block_id x
// OUTLINE:       %[[LAST:.*]] = arith.subi
// OUTLINE-NEXT:  %[[TILE:.*]] = arith.subi %[[LAST]], %[[ID]] : index
// OUTLINE:       %[[ROW:.*]] = arith.muli %[[TILE]], %
// OUTLINE:       warp.attention %Q, %K, %V into %O tile %[[ROW]] {{{.*}}scale = 1.000000e+00 : f32, diagonal = 7 : i64

// Q stays in registers. The loop goes up to the last key that counts for a row of the tile.
// CHECK:         warp.copy %Q[
// CHECK-NEXT:    gpu.barrier
// CHECK:         %[[END:.*]] = arith.minsi %{{.*}}, %{{.*}} : index
// CHECK-COUNT-2: warp.load {{.*}}matrices
// CHECK:         scf.for %[[AT:.*]] = %{{.*}} to %[[END]] step %{{.*}} iter_args(%[[M:.*]] = %{{.*}}, %[[L:.*]] = %{{.*}}, %[[O:.*]] = %{{.*}}) -> (!warp.fragment<acc, 32x1xf32, [x0 x1 r0 r1 r2 | r3]>, !warp.fragment<acc, 32x4xf32, [c0 c1 r0 r1 r2 | r3]>, !warp.fragment<acc, 32x32xf32, [c1 c2 r0 r1 r2 | c0 r3]>)
// CHECK-NEXT:      warp.copy %K[%[[AT]],
// CHECK-NEXT:      warp.copy %V[%[[AT]],
// CHECK-NEXT:      gpu.barrier
// CHECK:           warp.mma
// CHECK:           %[[S:.*]] = warp.mma
// Keys behind the last one, and those right of the diagonal, count in few tiles.
// CHECK:           %[[EDGE:.*]] = arith.ori
// CHECK-NEXT:      %[[X:.*]] = scf.if %[[EDGE]]
// CHECK-NEXT:        arith.subi %[[AT]],
// CHECK-NEXT:        %[[J:.*]] = warp.index 1 from
// CHECK-NEXT:        warp.map %[[S]], %[[J]]
// CHECK:             warp.index 1 from
// CHECK-NEXT:        warp.index 0 from
// CHECK:           } else {
// CHECK-NEXT:        scf.yield %[[S]]
// The softmax of what is known so far; sums stay in parts, one for each lane of a row.
// CHECK:           %[[NEW:.*]] = warp.reduce max %[[X]] : !warp.fragment<acc, 32x16xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 32x1xf32, [x0 x1 r0 r1 r2 | r3]>
// CHECK-NEXT:      %[[LARGEST:.*]] = warp.map %[[M]], %[[NEW]]
// CHECK:           math.exp2 %{{.*}} fastmath<afn> : f32
// CHECK:           %[[P:.*]] = warp.map %[[X]], %
// CHECK:           math.fma
// CHECK-NEXT:      math.exp2
// CHECK:           warp.reduce add %[[P]] : !warp.fragment<acc, 32x16xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 32x4xf32, [c0 c1 r0 r1 r2 | r3]>
// CHECK:           %[[SUMS:.*]] = warp.map %[[L]], %
// P becomes operand A of the second product without leaving the registers.
// CHECK:           %[[HALF:.*]] = warp.convert %[[P]]
// CHECK-NEXT:      %[[A:.*]] = warp.convert_layout %[[HALF]] : !warp.fragment<acc, 32x16xf16, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<a, 32x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
// CHECK:           %[[NEXT:.*]] = warp.mma
// CHECK-NEXT:      gpu.barrier
// CHECK-NEXT:      scf.yield %[[LARGEST]], %[[SUMS]], %[[NEXT]]
// CHECK:         warp.reduce add %{{.*}} : !warp.fragment<acc, 32x4xf32, [c0 c1 r0 r1 r2 | r3]> to !warp.fragment<acc, 32x1xf32, [x0 x1 r0 r1 r2 | r3]>
// CHECK:         arith.divf
// CHECK:         warp.store %{{.*}}, %O[
// CHECK-NOT:     warp.attention

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#v = affine_map<(m, n, d, e) -> (n, e)>
#o = affine_map<(m, n, d, e) -> (m, e)>

func.func @f(%q: memref<100x32xf16>, %k: memref<50x32xf16>, %v: memref<50x32xf16>, %o: memref<100x32xf16>) {
  warp.attention %q, %k, %v into %o {scale = 1.0 : f32, diagonal = 7 : i64, indexing_maps = [#q, #k, #v, #o]}
    : memref<100x32xf16>, memref<50x32xf16>, memref<50x32xf16>, memref<100x32xf16>
  return
}
