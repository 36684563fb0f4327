// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC

func.func @count(%counters: memref<3xi32>, %i: index) {
  // CHECK: %last = warp.arrive_last %counters[%i] of %i : memref<3xi32>
  // GENERIC: %last = "warp.arrive_last"(%counters, %i, %i)
  %last = warp.arrive_last %counters[%i] of %i : memref<3xi32>
  return
}
