// RUN: warploom-opt %s -p warp-schedule,warp-outline,warp-tile,warp-pipeline,warp-synchronise | filecheck %s
// RUN: warploom-opt %s -p warp-schedule,warp-outline,warp-tile,warp-pipeline | warploom-opt -p warp-pipeline,warp-synchronise | filecheck %s

builtin.module attributes {warp.target = #warp.target<sm_80>} {

func.func @three(%A: memref<32x96xf16>, %B: memref<96x32xf16>, %C: memref<32x32xf32>) {
  linalg.matmul {warp.schedule = #warp.schedule<cta = 32x32x32, warp = 32x32, mma = m16n8k16, stages = 3, swizzle = 128, group = 8, accumulate = f32>}
      ins(%A, %B : memref<32x96xf16>, memref<96x32xf16>) outs(%C : memref<32x32xf32>)
  return
}

func.func @one_step(%A: memref<32x64xf16>, %B: memref<64x32xf16>, %C: memref<32x32xf32>) {
  linalg.matmul {warp.schedule = #warp.schedule<cta = 32x32x16, warp = 32x32, mma = m16n8k16, stages = 2, swizzle = 128, group = 8, accumulate = f32>}
      ins(%A, %B : memref<32x64xf16>, memref<64x32xf16>) outs(%C : memref<32x32xf32>)
  return
}

func.func @plain(%A: memref<32x64xf16>, %B: memref<64x32xf16>, %C: memref<32x32xf32>) {
  linalg.matmul {warp.schedule = #warp.schedule<cta = 32x32x32, warp = 32x32, mma = m16n8k16, stages = 1, swizzle = 128, group = 8, accumulate = f32>}
      ins(%A, %B : memref<32x64xf16>, memref<64x32xf16>) outs(%C : memref<32x32xf32>)
  return
}

// CHECK:      gpu.func @three(
// Three stages: two tiles are on their way before the loop; those that lie inside K are not predicated along it.
// CHECK:      %[[A:\w+]] = memref.alloc() : memref<3x32x32xf16, #warp.swizzle<64>, 3 : i64>
// CHECK-NEXT: %[[B:\w+]] = memref.alloc() : memref<3x32x32xf16, #warp.swizzle<64>, 3 : i64>
// CHECK:      warp.copy %A[{{.*}}] to %[[A]][{{.*}}] {async, in_bounds = [true, true]}
// CHECK-NEXT: warp.copy %B[{{.*}}] to %[[B]][{{.*}}] {async, in_bounds = [true, true]}
// CHECK-NEXT: warp.commit cp_async
// CHECK:      warp.copy %A
// CHECK:      warp.copy %B
// CHECK-NEXT: warp.commit cp_async
// CHECK-NEXT: warp.wait cp_async 1
// CHECK-NEXT: gpu.barrier
// CHECK-NEXT: %[[A0:\w+]] = warp.load %[[A]]{{.*}} {matrices = "x4"}
// CHECK-NEXT: %[[B0:\w+]] = warp.load %[[B]]{{.*}} {matrices = "x4.trans"}
// CHECK:      scf.for %[[K:\w+]] = {{.*}} iter_args(%[[ACC:\w+]] = {{.*}}, %[[FA:\w+]] = %[[A0]], %[[FB:\w+]] = %[[B0]], %[[READ:\w+]] = {{.*}}, %[[WRITE:\w+]] = {{.*}})
// CHECK-NEXT:   %[[AHEAD:\w+]] = arith.addi %[[K]],
// CHECK-NEXT:   %[[A1:\w+]] = warp.load %[[A]][%[[READ]],{{.*}} {matrices = "x4"}
// CHECK-NEXT:   %[[B1:\w+]] = warp.load %[[B]][%[[READ]],{{.*}} {matrices = "x4.trans"}
// CHECK-NEXT:   warp.copy %A[{{.*}}, %[[AHEAD]]] to %[[A]][%[[WRITE]]] {async, in_bounds = [true, false]}
// CHECK-NEXT:   warp.copy %B[%[[AHEAD]], {{.*}}] to %[[B]][%[[WRITE]]] {async, in_bounds = [false, true]}
// CHECK-NEXT:   warp.commit cp_async
// CHECK-NEXT:   %[[D0:\w+]] = warp.mma m16n8k16 %[[FA]], %[[FB]], %[[ACC]]
// CHECK-NEXT:   warp.wait cp_async 1
// CHECK-NEXT:   gpu.barrier
// CHECK-NEXT:   %[[NEXT:\w+]] = arith.addi %[[READ]],
// CHECK-NEXT:   %[[END:\w+]] = arith.cmpi eq, %[[NEXT]],
// CHECK-NEXT:   %[[STAGE:\w+]] = arith.select %[[END]], {{.*}}, %[[NEXT]]
// CHECK-NEXT:   %[[A2:\w+]] = warp.load %[[A]][%[[STAGE]],{{.*}} {matrices = "x4"}
// CHECK-NEXT:   %[[B2:\w+]] = warp.load %[[B]][%[[STAGE]],{{.*}} {matrices = "x4.trans"}
// CHECK-NEXT:   %[[D1:\w+]] = warp.mma m16n8k16 %[[A1]], %[[B1]], %[[D0]]
// CHECK-NEXT:   scf.yield %[[D1]], %[[A2]], %[[B2]], %[[STAGE]], %[[READ]]

// One step per tile: copies go out first, and the next tile's fragments arrive before this one's product.
// CHECK:      gpu.func @one_step(
// CHECK:      warp.wait cp_async 0
// CHECK:      scf.for
// CHECK:        warp.copy %A
// CHECK-NEXT:   warp.copy %B
// CHECK-NEXT:   warp.commit cp_async
// CHECK-NEXT:   warp.wait cp_async 0
// CHECK-NEXT:   gpu.barrier
// CHECK:        warp.load {{.*}}matrices
// CHECK-NEXT:   warp.load {{.*}}matrices
// CHECK-NEXT:   warp.mma
// CHECK-NEXT:   scf.yield

// One stage overlaps nothing and is left alone.
// CHECK:      gpu.func @plain(
// CHECK:      memref.alloc() : memref<32x32xf16, #warp.swizzle<64>, 3 : i64>
// CHECK-NOT:  async
// CHECK:      scf.for
// CHECK-NEXT:   warp.copy
// CHECK-NEXT:   warp.copy
// CHECK-NEXT:   gpu.barrier
// CHECK:        gpu.barrier
// CHECK-NEXT:   scf.yield
}
