// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

!acc = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>

func.func @parts(%acc: !acc, %parts: memref<6x256xf32>, %counters: memref<3xi32>, %slot: index) {
  // CHECK: warp.store_part %acc, %parts[%slot] : !warp.fragment<acc, 16x8xf32, {{.*}}>, memref<6x256xf32>
  warp.store_part %acc, %parts[%slot] : !acc, memref<6x256xf32>
  // CHECK-NEXT: %last = warp.arrive_last %counters[%slot] of %slot : memref<3xi32>
  %last = warp.arrive_last %counters[%slot] of %slot : memref<3xi32>
  // CHECK-NEXT: warp.add_parts %acc, %parts[%slot] x %slot : !warp.fragment<{{.*}}>, memref<6x256xf32> -> !warp.fragment<
  %sum = warp.add_parts %acc, %parts[%slot] x %slot : !acc, memref<6x256xf32> -> !acc
  return
}
