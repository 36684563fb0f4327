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
