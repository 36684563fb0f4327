// RUN: warploom-opt %s -p warp-outline,warp-tile,warp-persist | filecheck %s
// RUN: warploom-opt %s -p warp-outline,warp-tile,warp-persist | warploom-opt -p warp-persist | filecheck %s
// RUN: warploom-opt %s --remarks -p warp-outline,warp-persist 2>&1 | filecheck %s --check-prefix=REMARK

// REMARK: tile_persist.mlir:14:3: remark: warp-persist: there is a CTA for each tile: the kernel has no loop over K

builtin.module attributes {warp.target = #warp.target<sm_80>} {

// 128 tiles for three CTAs.
// CHECK-LABEL: func.func @f
// CHECK:         %[[CTAS:\w+]] = arith.constant 3 : index
// CHECK:         gpu.launch_func @kernels::@f blocks in (%[[CTAS]], {{.*}}) args(%A : {{.*}}, %B : {{.*}}, %C : {{.*}})
func.func @f(%A: memref<512x64xf16>, %B: memref<64x256xf16>, %C: memref<512x256xf32>) {
  warp.matmul f16 x f16 %A, %B init 0.0 : f32 into %C
      {warp.schedule = #warp.schedule<cta = 32x32x32, warp = 16x16, mma = m16n8k16, stages = 2, swizzle = 128, group = 8, accumulate = f32, ctas = 3>}
      : memref<512x64xf16>, memref<64x256xf16>, memref<512x256xf32>
  return
}

// The place of a warp in its tile and the memory that tiles share stand before the loop; the place of a tile, sums and
// stores stand in it.
// CHECK:      gpu.func @f(%A:
// CHECK-NEXT:   %[[CTA:\w+]] = gpu.block_id x
// CHECK:        memref.alloc() : memref<32x32xf16, #warp.swizzle<64>, 3 : i64>
// CHECK:        memref.alloc() : memref<32x32xf16, #warp.swizzle<64>, 3 : i64>
// CHECK:        gpu.subgroup_id
// CHECK:        %[[TILES:\w+]] = arith.constant 128 : index
// CHECK-NEXT:   %[[STEP:\w+]] = arith.constant 3 : index
// CHECK-NEXT:   scf.for %[[TILE:\w+]] = %[[CTA]] to %[[TILES]] step %[[STEP]] {
// CHECK-NEXT:     arith.remui %[[TILE]]
// CHECK:          warp.constant 0.000000e+00
// CHECK:          scf.for
// CHECK:          warp.store
// CHECK-NEXT:     }
// CHECK-NEXT:   gpu.return
}
