// RUN: warploom-opt %s -p warp-outline,warp-stage | filecheck %s --check-prefix=STAGE
// RUN: warploom-opt %s -p warp-outline,warp-stage | warploom-opt -p warp-fragments | filecheck %s --check-prefix=FRAGMENTS
// RUN: warploom-opt %s -p warp-outline,warp-stage,warp-fragments | warploom-opt -p warp-epilogue | filecheck %s --check-prefix=EPILOGUE
// RUN: warploom-opt %s -p warp-outline,warp-stage,warp-epilogue,warp-fragments,warp-expand,convert-warp-to-ptx -t ptx > %t.one
// RUN: warploom-opt %s -p warp-outline,warp-tile,warp-expand,convert-warp-to-ptx -t ptx > %t.two
// RUN: diff %t.one %t.two

// From a product of one CTA to fragments in three steps, each of which can be printed, read again, and left out.

#slices = #warp.schedule<cta = 32x64x32, warp = 32x32, mma = m16n8k16, stages = 1, swizzle = 128, group = 1, accumulate = f32, sliced_k = 2>

builtin.module attributes {warp.target = #warp.target<sm_80>} {
  func.func @added(%A: memref<64x64xf16>, %B: memref<128x64xf16>, %C: memref<64x128xf16>, %bias: memref<128xf32>, %D: memref<64x128xf32>) {
    %epilogue = warp.pointwise %bias maps [affine_map<(m, n, k) -> (n)>] : memref<128xf32> (%x: f32, %b: f32) {
      %y = arith.addf %x, %b : f32
      warp.yield %y : f32
    }
    warp.matmul f16 x f16 %A, %B plus %C into %D through %epilogue maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] {warp.schedule = #slices}
      : memref<64x64xf16>, memref<128x64xf16>, memref<64x128xf32> plus memref<64x128xf16>
    return
  }
}

// What the CTA copies, and what of it its warps multiply: four of them, two for each slice of K, whose sums meet behind
// the loop, where C is added.
// STAGE:      %[[A:\w+]] = memref.alloc() : memref<32x32xf16, #warp.swizzle<64>, 3 : i64>
// STAGE-NEXT: %[[B:\w+]] = memref.alloc() : memref<64x32xf16, #warp.swizzle<64>, 3 : i64>
// STAGE:      gpu.subgroup_id
// STAGE:      %[[Z:\w+]] = warp.constant 0.000000e+00 : f32 : !warp.fragment<acc, 32x32xf32, [c1 c2 r0 r1 r2 | c0 r3]>
// STAGE:      %[[D:\w+]] = scf.for %[[K:\w+]] = {{.*}} iter_args(%[[ACC:\w+]] = %[[Z]]) -> (!warp.fragment<acc, 32x32xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
// STAGE-NEXT:   warp.copy %A[%{{.*}}, %[[K]]] to %[[A]]
// STAGE-NEXT:   warp.copy %B[%{{.*}}, %[[K]]] to %[[B]]
// STAGE-NEXT:   gpu.barrier
// STAGE-NEXT:   %[[NEXT:\w+]] = warp.tile_mma %[[A]], %[[B]], %[[ACC]] part[%{{.*}}, %{{.*}}, %{{.*}}] {{{.*}}transposed_b}
// STAGE-NEXT:   gpu.barrier
// STAGE-NEXT:   scf.yield %[[NEXT]]
// STAGE:      %epilogue = warp.pointwise %X0 maps [affine_map<(d0, d1) -> (d1)>] : memref<128xf32> (%x: f32, %b: f32) {
// STAGE:      %[[UPPER:\w+]] = warp.subfragment %[[D]][0, 0]
// STAGE:      %[[LOWER:\w+]] = warp.subfragment %[[D]][16, 0]
// STAGE:      warp.store %[[UPPER]], %[[S:\w+]][%{{.*}}] if %{{.*}} {registers = "vectors"}
// STAGE:      warp.store %[[LOWER]], %[[S]][%{{.*}}] if %{{.*}} {registers = "vectors"}
// STAGE-NEXT: gpu.barrier
// STAGE:      %[[OWN:\w+]] = arith.select %{{.*}}, %[[LOWER]], %[[UPPER]]
// STAGE:      %[[GOT:\w+]] = warp.load %[[S]]
// STAGE-NEXT: %[[SUM:\w+]] = warp.elementwise add %[[OWN]], %[[GOT]] {warp.of_slices}
// STAGE:      %[[C:\w+]] = warp.load %C
// STAGE-NEXT: %[[WIDE:\w+]] = warp.convert %[[C]]
// STAGE-NEXT: %[[ALL:\w+]] = warp.elementwise add %[[WIDE]], %[[SUM]] : !warp.fragment<acc, 16x32xf32
// STAGE-NEXT: warp.epilogue %[[ALL]] into %D[{{.*}}] through %epilogue {{{.*}}in_bounds = [true, true]}

// The instructions.
// FRAGMENTS-NOT:     warp.tile_mma
// FRAGMENTS:         scf.for {{.*}} iter_args(%[[ACC:\w+]] =
// FRAGMENTS:           gpu.barrier
// FRAGMENTS-NEXT:      %[[A:\w+]] = warp.load {{.*}}matrices = "x4"
// FRAGMENTS-NEXT:      %[[B:\w+]] = warp.load {{.*}}matrices = "x4"
// FRAGMENTS-NEXT:      %[[D:\w+]] = warp.mma m16n8k16 %[[A]], %[[B]], %[[ACC]]
// FRAGMENTS-NEXT:      gpu.barrier
// FRAGMENTS-NEXT:      scf.yield %[[D]]
// FRAGMENTS:         warp.epilogue

// EPILOGUE-NOT:      warp.epilogue
// EPILOGUE-NOT:      warp.pointwise
// EPILOGUE:          warp.elementwise add {{.*}} {warp.of_slices}
// EPILOGUE:          %[[BIAS:\w+]] = warp.load %X0
// EPILOGUE:          %[[Y:\w+]] = warp.map %{{.*}}, %[[BIAS]]
// EPILOGUE:          warp.store %[[Y]], %D
