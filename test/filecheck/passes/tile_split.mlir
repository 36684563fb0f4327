// RUN: warploom-opt %s -p warp-outline,warp-tile,warp-split-k | filecheck %s
// RUN: warploom-opt %s --remarks -p warp-outline,warp-split-k -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

// REMARK: tile_split.mlir:{{[0-9]+}}:3: remark: warp-split-k: K is not cut: it takes a known grid and a loop over a K

builtin.module attributes {warp.target = #warp.target<sm_80>} {

// K is cut by looking at A and B in another shape. Each part of each tile has a row of scratch memory, each tile a
// counter.
// CHECK-LABEL: func.func @few(%A: memref<32x256xf16>, %B: memref<256x64xf16>, %C: memref<32x64xf32>)
// CHECK:         %[[PARTS:\w+]] = memref.alloc() : memref<8x1024xf32>
// CHECK:         %[[COUNTERS:\w+]] = memref.alloc() {warp.zeroed} : memref<2xi32>
// CHECK:         %[[A:\w+]] = memref.expand_shape %A {{.*}} : memref<32x256xf16> into memref<32x4x64xf16>
// CHECK:         %[[B:\w+]] = memref.expand_shape %B {{.*}} : memref<256x64xf16> into memref<4x64x64xf16>
// CHECK:         gpu.launch_func @kernels::@few blocks in ({{.*}}) args(%[[A]] : {{.*}}, %[[B]] : {{.*}}, %C : {{.*}}, %[[PARTS]] : {{.*}}, %[[COUNTERS]] : {{.*}})
// CHECK:         memref.dealloc %[[PARTS]]
// CHECK:         memref.dealloc %[[COUNTERS]]
func.func @few(%A: memref<32x256xf16>, %B: memref<256x64xf16>, %C: memref<32x64xf32>) {
  warp.matmul f16 x f16 %A, %B init 1.0 : f32 into %C
      {warp.schedule = #warp.schedule<cta = 32x32x32, warp = 16x16, mma = m16n8k16, stages = 2, swizzle = 128, group = 8, accumulate = f32, split_k = 4>}
      : memref<32x256xf16>, memref<256x64xf16>, memref<32x64xf32>
  return
}

// CHECK:         gpu.func @few(
// CHECK:         %[[PART:\w+]] = gpu.block_id z
// CHECK:         warp.matrix %A[row, %[[PART]], column] : memref<32x4x64xf16>
// CHECK:         warp.matrix %B[%[[PART]], row, column] : memref<4x64x64xf16>
// CHECK:         %[[TILE:\w+]] = gpu.block_id x
// CHECK:         %[[FIRST:\w+]] = arith.muli %[[TILE]], %{{.*}}
// CHECK:         %[[SLOT:\w+]] = arith.addi %[[FIRST]], %{{.*}}
// CHECK:         warp.constant 0.000000e+00
// CHECK:         %[[SUM:\w+]] = scf.for
// CHECK:         %[[WARP:.*]] = gpu.subgroup_id
// CHECK:         %[[OWN:.*]] = arith.muli %[[WARP]], %{{.*}}
// CHECK:         warp.store %[[SUM]], %parts[%[[SLOT]], %[[OWN]]] {registers = "vectors"} : !warp.fragment<acc, 16x16xf32, {{.*}}>, memref<8x1024xf32>
// CHECK:         %[[LAST:\w+]] = warp.arrive_last %counters[%[[TILE]]] of %{{.*}} : memref<2xi32>
// CHECK:         scf.if %[[LAST]] {
// The last CTA has a part, and reads three; what the product starts from is added once.
// CHECK:           %[[ONE:\w+]] = warp.constant 1.000000e+00
// CHECK:           arith.xori
// CHECK-COUNT-3:   warp.load %parts
// CHECK:           warp.fence arithmetic
// CHECK-NEXT:      warp.elementwise add %[[SUM]], %{{.*}}
// CHECK-COUNT-2:   warp.elementwise add
// CHECK-NEXT:      %[[TOTAL:.*]] = warp.elementwise add %[[ONE]]
// CHECK:           warp.store %[[TOTAL]], %C
// CHECK:         }
}
