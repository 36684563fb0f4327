// RUN: xdsl-opt %s -p "warp-set-target{arch=sm_80}" | filecheck %s
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80}" | filecheck %s

// The dialects, passes and target reach xDSL's own driver through the entry-point group xdsl.universe.

// CHECK:      builtin.module attributes {warp.target = #warp.target<sm_80>} {
// CHECK-NEXT:   func.func @f()
func.func @f() {
  return
}
