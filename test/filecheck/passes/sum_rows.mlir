// RUN: warploom-opt %s --split-input-file | warploom-opt --split-input-file | filecheck %s
// RUN: warploom-opt %s -p warp-set-target{arch=sm_90a},warp-outline --split-input-file --verify-diagnostics

#mn = affine_map<(m, n) -> (m, n)>
#apart = affine_map<(m, n) -> (m mod 4, n)>

// CHECK: affine_map<(d0, d1) -> ((d0 mod 4), d1)>
func.func @held(%x: memref<11x300xf32>, %y: memref<11x300xf32>, %s: memref<4x300xf32>) {
  warp.rows %x into %y, %s {indexing_maps = [#mn, #mn, #apart]} : memref<11x300xf32> into memref<11x300xf32>, memref<4x300xf32> {
  ^bb0(%a: f32):
    %0 = warp.reduce add %a : f32 to f32
    %1 = arith.mulf %a, %0 : f32
    warp.yield %1, %a : f32, f32
  }
  return
}

// -----

#mn = affine_map<(m, n) -> (m, n)>
#apart = affine_map<(m, n) -> (m mod 4, n)>

// expected-error @+2 {{rows are summed where they are reduced too, each held by a CTA, of known sizes}}
func.func @short(%x: memref<11x30xf32>, %y: memref<11x30xf32>, %s: memref<4x30xf32>) {
  warp.rows %x into %y, %s {indexing_maps = [#mn, #mn, #apart]} : memref<11x30xf32> into memref<11x30xf32>, memref<4x30xf32> {
  ^bb0(%a: f32):
    %0 = warp.reduce add %a : f32 to f32
    %1 = arith.mulf %a, %0 : f32
    warp.yield %1, %a : f32, f32
  }
  return
}
