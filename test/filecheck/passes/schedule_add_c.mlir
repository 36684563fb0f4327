// What `add_c` of a schedule changes.
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-schedule{cta=32,16,16 warp=32,16 stages=2},warp-outline,warp-tile" | filecheck %s --check-prefix=FIRST
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-schedule{cta=32,16,16 warp=32,16 stages=2 add_c=last},warp-outline,warp-tile" | filecheck %s --check-prefix=LAST
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-schedule{cta=32,16,16 warp=32,16 stages=2 staging=16},warp-outline,warp-tile" | filecheck %s --check-prefix=LAST
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-schedule{cta=32,16,16 warp=32,16 stages=2 staging=16 add_c=first},warp-outline,warp-tile" | filecheck %s --check-prefix=FIRST

// The loop starts from C; or C is added behind it, which is the default where elements change lanes.
// FIRST-LABEL: gpu.module
// FIRST:       %[[C:.*]] = warp.load %C
// FIRST:       scf.for {{.*}} iter_args(%{{.*}} = %[[C]])
// FIRST-NOT:   warp.load %C
// FIRST:       warp.store
// LAST-LABEL: gpu.module
// LAST:       %[[ZERO:.*]] = warp.constant 0.0
// LAST:       scf.for {{.*}} iter_args(%{{.*}} = %[[ZERO]])
// LAST:       scf.yield
// LAST:       %[[C:.*]] = warp.load %C
// LAST:       warp.elementwise add %[[C]], %
// LAST:       warp.store
func.func @f(%a: memref<40x32xf16>, %b: memref<32x24xf16>, %c: memref<40x24xf32>) {
  linalg.matmul ins(%a, %b : memref<40x32xf16>, memref<32x24xf16>) outs(%c : memref<40x24xf32>)
  return
}
