// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC

func.func @count(%counters: memref<3xi32>, %i: index, %p: i1) {
  // CHECK: %seen = warp.atomic_inc %counters[%i] to %i if %p : memref<3xi32>
  // GENERIC: %seen = "warp.atomic_inc"(%counters, %i, %i, %p)
  %seen = warp.atomic_inc %counters[%i] to %i if %p : memref<3xi32>
  // CHECK-NEXT: %any = warp.barrier cta any %p -> i1
  // GENERIC: %any = "warp.barrier"(%p)
  %any = warp.barrier cta any %p -> i1
  // CHECK-NEXT: %some = warp.barrier cta[%i] any %p -> i1 {threads = 256 : i64}
  %some = warp.barrier cta[%i] any %p -> i1 {threads = 256 : i64}
  // CHECK-NEXT: %chosen = warp.elect
  // GENERIC: %chosen = "warp.elect"() : () -> i1
  %chosen = warp.elect
  return
}
