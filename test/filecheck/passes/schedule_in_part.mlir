// A schedule given in part is completed; what it says comes before the options of the pass. Nothing else lowers it.
// RUN: warploom-opt %s -p "warploom-schedule{target=sm_80 stages=2 prefetch=1}" | filecheck %s
// RUN: warploom-opt %s -p "warploom-schedule{target=sm_90a}" | filecheck %s --check-prefix=GROUPS
// RUN: not warploom-opt %s -p "warp-set-target{arch=sm_80},warp-raise-matmul,warp-outline" 2>&1 | filecheck %s --check-prefix=NONE

// CHECK: #warp.schedule<cta = 32x32x64, warp = {{[0-9]+x[0-9]+}}, mma = m16n8k16, stages = 3, {{.*}}, prefetch = 1>
// NONE: schedule_in_part.mlir:[[# @LINE + 2]]:3: error: expected a schedule on warp.matmul; run warp-schedule first
func.func @part(%a: memref<64x256xf16>, %b: memref<256x64xf16>, %c: memref<64x64xf32>) {
  linalg.matmul {warp.schedule = #warp.schedule<stages = 3, cta = 32x32x64>} ins(%a, %b : memref<64x256xf16>, memref<256x64xf16>) outs(%c : memref<64x64xf32>)
  return
}

// A tile of a CTA alone says nothing of who multiplies: warpgroups do where the default leaves it to them.
// GROUPS: #warp.schedule<cta = 128x96x128, warp = 64x96, mma = m64n96k16, {{.*}}, sync = mbarrier
func.func @large(%a: memref<4096x4096xf16>, %b: memref<4096x4096xf16>, %c: memref<4096x4096xf32>) {
  linalg.matmul {warp.schedule = #warp.schedule<cta = 128x96x128>} ins(%a, %b : memref<4096x4096xf16>, memref<4096x4096xf16>) outs(%c : memref<4096x4096xf32>)
  return
}
