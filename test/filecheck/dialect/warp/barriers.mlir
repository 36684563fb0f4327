// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

func.func @barriers(%stage: index, %parity: index) {
  // CHECK: %full = warp.make_barriers {arrivals = 256 : i64} : !warp.barriers<8>
  %full = warp.make_barriers {arrivals = 256 : i64} : !warp.barriers<8>
  // CHECK-NEXT: warp.arrive %full[%stage] : !warp.barriers<8>
  warp.arrive %full[%stage] : !warp.barriers<8>
  // CHECK-NEXT: warp.arrive %full[%stage] {copies} : !warp.barriers<8>
  warp.arrive %full[%stage] {copies} : !warp.barriers<8>
  // CHECK-NEXT: warp.await %full[%stage] parity %parity : !warp.barriers<8>
  warp.await %full[%stage] parity %parity : !warp.barriers<8>
  return
}
