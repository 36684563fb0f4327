// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90},warp-schedule" | filecheck %s --check-prefix=CHECK
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule" | filecheck %s --check-prefix=SM80
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_120a},warp-schedule{cta=64,64,32 warp=32,16 mma=m16n8k8 stages=2 swizzle=32 group=4 accumulate=f32}" | filecheck %s --check-prefix=ALL
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90},warp-schedule{cta=128,64,32}" | filecheck %s --check-prefix=WARP
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90},warp-schedule{cta=48,40,16}" | filecheck %s --check-prefix=FITTING
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90},warp-schedule{stages=1}" | filecheck %s --check-prefix=STAGES
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90},warp-schedule{stages=2},warp-schedule{stages=3}" | filecheck %s --check-prefix=ONCE

// Big tiles where there are enough of them, small ones where there are not.
// CHECK-LABEL: func.func @large
// CHECK: warp.matmul f16 x f16 %a, %b plus %c into %c {warp.schedule = #warp.schedule<cta = {{128x256|256x128}}x{{32|64}}, warp = 64x64, mma = m16n8k16, stages = 8, swizzle = 128, group = 8, accumulate = f32, sync = mbarrier, prefetch = 5, unroll = 8, ctas = 128, staging = 16>}
// SM80-LABEL: func.func @large
// SM80: warp = 64x64, mma = m16n8k16, stages = {{[345678]}}, swizzle = 128, group = 8, accumulate = f32, sync = mbarrier, prefetch = {{[2345]}},{{.*}} ctas = 103, staging = 16>}
// ALL-LABEL: func.func @large
// ALL: #warp.schedule<cta = 64x64x32, warp = 32x16, mma = m16n8k8, stages = 2, swizzle = 32, group = 4, accumulate = f32>
// WARP-LABEL: func.func @large
// WARP: #warp.schedule<cta = 128x64x32, warp = 64x32,
// FITTING-LABEL: func.func @large
// FITTING: #warp.schedule<cta = 48x40x16, warp = 16x8,
// STAGES-LABEL: func.func @large
// One stage takes neither mbarriers nor copies that run ahead; what it does not contradict stays.
// STAGES: warp = 64x64, mma = m16n8k16, stages = 1, swizzle = 128, group = 8, accumulate = f32, unroll = 8, ctas = 128, staging = 16>
// ONCE-LABEL: func.func @large
// ONCE: stages = 2,
func.func @large(%a: memref<4096x4096xf16>, %b: memref<4096x4096xf16>, %c: memref<4096x4096xf32>) {
  linalg.matmul ins(%a, %b : memref<4096x4096xf16>, memref<4096x4096xf16>) outs(%c : memref<4096x4096xf32>)
  return
}

// One K tile is loaded as the first of two, without waiting for each part of it.
// CHECK-LABEL: func.func @small
// CHECK: #warp.schedule<cta = 16x8x16, warp = 16x8, mma = m16n8k16, stages = 2, swizzle = 128, group = 8, accumulate = f32>
func.func @small(%a: memref<1x1xbf16>, %b: memref<1x1xbf16>, %c: memref<1x1xf32>) {
  linalg.matmul ins(%a, %b : memref<1x1xbf16>, memref<1x1xbf16>) outs(%c : memref<1x1xf32>)
  return
}

// What is wider than the schedule's choice of K is as deep as K needs.
// CHECK-LABEL: func.func @shallow
// CHECK: #warp.schedule<cta = {{.*}}x32, warp = {{.*}}, stages = 2,
func.func @shallow(%a: memref<256x24xf16>, %b: memref<24x256xf16>, %c: memref<256x256xf16>) {
  linalg.matmul ins(%a, %b : memref<256x24xf16>, memref<24x256xf16>) outs(%c : memref<256x256xf16>)
  return
}

// A schedule written by hand stays.
// CHECK-LABEL: func.func @given
// CHECK: {warp.schedule = #warp.schedule<cta = 32x32x16, warp = 16x16, mma = m16n8k16, stages = 2, swizzle = 16, group = 1, accumulate = f16>}
// ALL-LABEL: func.func @given
// ALL: cta = 32x32x16, warp = 16x16,
func.func @given(%a: memref<64x64xf16>, %b: memref<64x64xf16>, %c: memref<64x64xf16>) {
  linalg.matmul {warp.schedule = #warp.schedule<cta = 32x32x16, warp = 16x16, mma = m16n8k16, stages = 2, swizzle = 16, group = 1, accumulate = f16>}
      ins(%a, %b : memref<64x64xf16>, memref<64x64xf16>) outs(%c : memref<64x64xf16>)
  return
}
