// RUN: warploom-opt %s -p warp-schedule,warp-outline,warp-tile,warp-persist,warp-pipeline,warp-synchronise | filecheck %s

builtin.module attributes {warp.target = #warp.target<sm_80>} {

func.func @tiles(%A: memref<96x96xf16>, %B: memref<96x64xf16>, %C: memref<96x64xf32>) {
  linalg.matmul {warp.schedule = #warp.schedule<cta = 32x32x32, warp = 32x32, mma = m16n8k16, stages = 3, swizzle = 128, group = 8, accumulate = f32, sync = mbarrier, prefetch = 2, ctas = 4>}
      ins(%A, %B : memref<96x96xf16>, memref<96x64xf16>) outs(%C : memref<96x64xf32>)
  return
}

func.func @unrolled(%A: memref<32x192xf16>, %B: memref<192x32xf16>, %C: memref<32x32xf32>) {
  linalg.matmul {warp.schedule = #warp.schedule<cta = 32x32x32, warp = 32x32, mma = m16n8k16, stages = 3, swizzle = 128, group = 8, accumulate = f32, sync = mbarrier, prefetch = 2, unroll = 3>}
      ins(%A, %B : memref<32x192xf16>, memref<192x32xf16>) outs(%C : memref<32x32xf32>)
  return
}

// Six tiles for four CTAs. The barriers are made once; the first tile's copies start before the loop over tiles.
// CHECK-LABEL: @kernels
// CHECK:      %full = warp.make_barriers {arrivals = 32 : i64} : !warp.barriers<3>
// CHECK-NEXT: %empty = warp.make_barriers {arrivals = 1 : i64} : !warp.barriers<3>
// CHECK-NEXT: gpu.barrier
// CHECK:      warp.copy %A
// CHECK-NEXT: warp.copy %B
// CHECK-NEXT: warp.arrive %full{{.*}} {copies}
// CHECK:      warp.copy %A
// CHECK-NEXT: warp.copy %B
// CHECK-NEXT: warp.arrive %full{{.*}} {copies}
// CHECK:      warp.await %full[%[[ZERO:\w+]]] parity %[[ZERO]] : !warp.barriers<3>
// CHECK-NEXT: warp.load {{.*}}matrices = "x4"
// CHECK-NEXT: warp.load {{.*}}matrices = "x4.trans"
// CHECK:      scf.for %[[TILE:\w+]] =
// The last K tile but two copies the last one; nothing of it is predicated.
// CHECK:        warp.load %C
// CHECK-NEXT:   scf.for
// CHECK-NOT:    gpu.barrier
// CHECK:          warp.mma
// CHECK:          warp.await %empty[
// CHECK:          warp.copy %A{{.*}} {async, in_bounds = [true, true]}
// CHECK:          warp.arrive %full{{.*}} {copies}
// CHECK-NEXT:     warp.arrive %empty
// CHECK:          warp.await %full
// CHECK:          warp.load {{.*}}matrices = "x4"
// CHECK:          warp.mma
// CHECK-NEXT:     scf.yield
// The tile after this one, or this one again.
// CHECK:        %[[NEXT:\w+]] = arith.addi %[[TILE]],
// CHECK-NEXT:   %[[IS:\w+]] = arith.cmpi slt, %[[NEXT]],
// CHECK-NEXT:   %[[COPIED:\w+]] = arith.select %[[IS]], %[[NEXT]], %[[TILE]] : index
// CHECK:        scf.for
// CHECK:          warp.copy %A{{.*}} {async, in_bounds = [true, true]}
// CHECK:          scf.yield
// CHECK:        warp.store
// CHECK-NEXT:   scf.yield
// CHECK:      warp.commit cp_async
// CHECK-NEXT: warp.wait cp_async 0
// CHECK-NEXT: gpu.return

// Two turns of three K tiles: one in the loop, the other behind it, whose last two K tiles copy nothing.
// CHECK:      warp.make_barriers
// CHECK:      scf.for
// CHECK-COUNT-6: warp.copy
// CHECK:        scf.yield
// CHECK:      warp.await %empty
// CHECK:      warp.copy %A
// CHECK-NEXT: warp.copy %B
// CHECK-NEXT: warp.arrive %full{{.*}} {copies}
// CHECK-NOT:  warp.copy %
// CHECK:      warp.commit cp_async
// CHECK-NEXT: warp.wait cp_async 0
// CHECK-NEXT: warp.store
}
