// RUN: warploom-opt %s --split-input-file --verify-diagnostics | filecheck %s

// CHECK-LABEL: func.func @both
func.func @both(%a: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %m = warp.map %a : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> (%x: f32) {
    // CHECK: warp.gelu "tanh" %x : f32
    %0 = warp.gelu "tanh" %x : f32
    // CHECK-NEXT: warp.gelu "erf" %{{[0-9]+}} {approximate} : f32
    %1 = warp.gelu "erf" %0 {approximate} : f32
    warp.yield %1 : f32
  }
  return
}

// -----

func.func @neither(%a: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %m = warp.map %a : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> (%x: f32) {
    // expected-error @+1 {{expected a gelu by tanh or erf or silu or erf_gradient, got "sigmoid"}}
    %0 = warp.gelu "sigmoid" %x : f32
    warp.yield %0 : f32
  }
  return
}
