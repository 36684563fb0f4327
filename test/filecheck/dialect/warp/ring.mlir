// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s
// RUN: warploom-opt %s -p warp-synchronise | filecheck %s --check-prefix=BARRIERS

// CHECK-LABEL: @mbarriers
// BARRIERS-LABEL: @mbarriers
func.func @mbarriers(%a: index, %b: index, %s: index, %p: index) {
  // CHECK-NEXT: %ring = warp.make_ring peers(%a, %b) {writers = 1 : i64, readers = 24 : i64} : !warp.ring<4>
  // BARRIERS-NEXT: %full = warp.make_barriers {arrivals = 1 : i64} : !warp.barriers<4>
  // BARRIERS-NEXT: %empty = warp.make_barriers {arrivals = 24 : i64} : !warp.barriers<4>
  %ring = warp.make_ring peers(%a, %b) {writers = 1 : i64, readers = 24 : i64} : !warp.ring<4>
  // CHECK-NEXT: warp.pipeline producer_acquire %ring[%s] parity %p {bytes = 49152 : i64} : !warp.ring<4>
  // BARRIERS-NEXT: warp.await %empty[%s] parity %p : !warp.barriers<4>
  // BARRIERS-NEXT: warp.arrive %full[%s] {bytes = 49152 : i64} : !warp.barriers<4>
  warp.pipeline producer_acquire %ring[%s] parity %p {bytes = 49152 : i64} : !warp.ring<4>
  // CHECK-NEXT: warp.pipeline producer_commit %ring[%s] : !warp.ring<4>
  // BARRIERS-NEXT: warp.arrive %full[%s] {copies} : !warp.barriers<4>
  warp.pipeline producer_commit %ring[%s] : !warp.ring<4>
  // CHECK-NEXT: warp.pipeline consumer_wait %ring[%s] parity %p : !warp.ring<4>
  // BARRIERS-NEXT: warp.await %full[%s] parity %p : !warp.barriers<4>
  warp.pipeline consumer_wait %ring[%s] parity %p : !warp.ring<4>
  // CHECK-NEXT: warp.pipeline consumer_release %ring[%s] : !warp.ring<4>
  // BARRIERS-NEXT: warp.arrive %empty[%s] : !warp.barriers<4>
  // BARRIERS-NEXT: warp.arrive %empty[%s] at %a : !warp.barriers<4>
  // BARRIERS-NEXT: warp.arrive %empty[%s] at %b : !warp.barriers<4>
  warp.pipeline consumer_release %ring[%s] : !warp.ring<4>
  // BARRIERS-NEXT: return
  return
}

// CHECK-LABEL: @warpgroups
// BARRIERS-LABEL: @warpgroups
func.func @warpgroups(%a: index, %s: index) {
  // CHECK-NEXT: %ring = warp.make_ring peers(%a) {writers = 1 : i64, readers = 2 : i64, each_warpgroup} : !warp.ring<4>
  // BARRIERS: %empty = warp.make_barriers {arrivals = 2 : i64} : !warp.barriers<4>
  %ring = warp.make_ring peers(%a) {writers = 1 : i64, readers = 2 : i64, each_warpgroup} : !warp.ring<4>
  // BARRIERS-NEXT: warp.arrive %empty[%s] {by = 0 : i64} : !warp.barriers<4>
  // BARRIERS-NEXT: warp.arrive %empty[%s] at %a {by = 32 : i64} : !warp.barriers<4>
  warp.pipeline consumer_release %ring[%s] : !warp.ring<4>
  return
}

// CHECK-LABEL: @barrier
// BARRIERS-LABEL: @barrier
func.func @barrier() {
  // CHECK-NEXT: %ring = warp.make_ring {ahead = 2 : i64} : !warp.ring<4>
  %ring = warp.make_ring {ahead = 2 : i64} : !warp.ring<4>
  // CHECK-NEXT: warp.pipeline producer_commit %ring : !warp.ring<4>
  // BARRIERS-NEXT: warp.commit cp_async
  warp.pipeline producer_commit %ring : !warp.ring<4>
  // CHECK-NEXT: warp.pipeline consumer_wait %ring : !warp.ring<4>
  // BARRIERS-NEXT: warp.wait cp_async 2
  // BARRIERS-NEXT: gpu.barrier
  warp.pipeline consumer_wait %ring : !warp.ring<4>
  // BARRIERS-NEXT: return
  return
}

// Steps without a stage are at the next one of their side, which loops carry; a stage is released late, once.
// CHECK-LABEL: @stages
// BARRIERS-LABEL: @stages
func.func @stages(%n: index, %lb: index, %ub: index, %by: index) {
  // BARRIERS: %full = warp.make_barriers
  %ring = warp.make_ring {writers = 1 : i64, readers = 8 : i64} : !warp.ring<4>
  // BARRIERS: scf.for {{.*}} iter_args([[STAGE:%s]] = %{{[0-9]+}}, [[PARITY:%[0-9]+]] = %{{[0-9]+}}) -> (index, index)
  scf.for %i = %lb to %ub step %by {
    // CHECK: = warp.pipeline producer_acquire %{{.*}} {bytes = 16 : i64} : !warp.ring<4> -> index
    // BARRIERS-NEXT: warp.await %empty[[[STAGE]]] parity [[PARITY]]
    // BARRIERS-NEXT: warp.arrive %full[[[STAGE]]] {bytes = 16 : i64}
    %s = warp.pipeline producer_acquire %ring {bytes = 16 : i64} : !warp.ring<4> -> index
    // CHECK-NEXT: warp.pipeline producer_advance
    warp.pipeline producer_advance %ring : !warp.ring<4>
  }
  // BARRIERS: scf.for {{.*}} iter_args([[STAGE:%[0-9]+]] = %{{[0-9]+}}, [[PARITY:%[0-9]+]] = %{{[0-9]+}}, [[LAST:%[0-9]+]] = %{{[0-9]+}})
  scf.for %i = %lb to %ub step %by {
    // BARRIERS-NEXT: warp.await %full[[[STAGE]]] parity [[PARITY]]
    warp.pipeline consumer_wait %ring : !warp.ring<4>
    // BARRIERS-NEXT: [[SOME:%[0-9]+]] = arith.cmpi ne, [[LAST]], %
    // BARRIERS-NEXT: scf.if [[SOME]] {
    // BARRIERS-NEXT: warp.arrive %empty[[[LAST]]]
    // CHECK: warp.pipeline consumer_release %{{.*}} {late}
    warp.pipeline consumer_release %ring {late} : !warp.ring<4>
    // CHECK: warp.pipeline consumer_advance %{{.*}} {late}
    warp.pipeline consumer_advance %ring {late} : !warp.ring<4>
    // BARRIERS: scf.yield %{{[0-9]+}}, %{{[0-9]+}}, [[STAGE]]
  }
  // BARRIERS: scf.if
  warp.pipeline consumer_release %ring {late} : !warp.ring<4>
  // A stage that is released where it is read is not left to the loop's next turn.
  // BARRIERS: scf.for {{.*}} iter_args(%{{[a-z_0-9]+}} = %{{[0-9]+}}, %{{[0-9]+}} = %{{[0-9]+}}) -> (index, index)
  scf.for %i = %lb to %ub step %by {
    warp.pipeline consumer_release %ring {late} : !warp.ring<4>
    %s = warp.pipeline consumer_wait %ring : !warp.ring<4> -> index
    warp.pipeline consumer_advance %ring : !warp.ring<4>
    // BARRIERS: scf.if
    // BARRIERS: warp.await %full
    // BARRIERS: warp.arrive %empty
    // BARRIERS: scf.yield %{{[0-9]+}}, %{{[0-9]+}} : index, index
    warp.pipeline consumer_release %ring[%s] : !warp.ring<4>
  }
  // CHECK: warp.pipeline consumer_advance %{{.*}} by %n
  // BARRIERS: arith.remui
  warp.pipeline consumer_advance %ring by %n : !warp.ring<4>
  // BARRIERS: warp.arrive %empty
  warp.pipeline consumer_release %ring : !warp.ring<4>
  return
}
