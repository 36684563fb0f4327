// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a}" | filecheck %s
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_75}" | warploom-opt -p "warp-set-target{arch=sm_90a}" | filecheck %s
// RUN: not warploom-opt %s -p "warp-set-target{arch=sm_91}" 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not warploom-opt %s -p "warp-set-target{arch=hopper}" 2>&1 | filecheck %s --check-prefix=WORD
// RUN: warploom-opt %s -p "warp-set-target" | filecheck %s
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-set-target" | filecheck %s --check-prefix=OWN

// CHECK: builtin.module attributes {warp.target = #warp.target<sm_90a>} {
// UNKNOWN: error: unknown target 'sm_91'; known targets: sm_70, {{.*}}sm_90a
// WORD: error: unknown target 'hopper' (a target is written like sm_90a); known targets: sm_70
// OWN: builtin.module attributes {warp.target = #warp.target<sm_80>} {
func.func @f() {
  return
}
