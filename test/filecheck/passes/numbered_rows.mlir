// RUN: warploom-opt %s --split-input-file | warploom-opt --split-input-file | filecheck %s
// RUN: warploom-opt %s -p warp-set-target{arch=sm_90a},warp-outline --split-input-file --verify-diagnostics

// Inputs whose maps have symbols: numbers of a row that the region yields.

#mn = affine_map<(m, n) -> (m, n)>
#m = affine_map<(m, n) -> (m)>
#tn = affine_map<(m, n)[t] -> (t, n)>

// CHECK: warp.rows %tokens, %table into %y {indexing_maps = [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1)[s0] -> (s0, d1)>, affine_map<(d0, d1) -> (d0, d1)>]}
func.func @table(%tokens: memref<11xi32>, %table: memref<5x300xf32>, %y: memref<11x300xf32>) {
  warp.rows %tokens, %table into %y {indexing_maps = [#m, #tn, #mn]} : memref<11xi32>, memref<5x300xf32> into memref<11x300xf32> {
  ^bb0(%token: i32, %a: f32):
    %0 = warp.reduce add %a : f32 to f32
    %1 = arith.mulf %a, %0 : f32
    warp.yield %1, %token : f32, i32
  }
  return
}

// -----

#mn = affine_map<(m, n) -> (m, n)>
#tn = affine_map<(m, n)[t] -> (t, n)>

// expected-error @+2 {{the number of a row depends on elements of the row}}
func.func @along(%tokens: memref<11x300xi32>, %table: memref<5x300xf32>, %y: memref<11x300xf32>) {
  warp.rows %tokens, %table into %y {indexing_maps = [#mn, #tn, #mn]} : memref<11x300xi32>, memref<5x300xf32> into memref<11x300xf32> {
  ^bb0(%token: i32, %a: f32):
    %0 = warp.reduce add %a : f32 to f32
    warp.yield %0, %token : f32, i32
  }
  return
}

// -----

#m = affine_map<(m, n) -> (m)>
#of_table = affine_map<(m, n)[s] -> (s, n)>
#mn = affine_map<(m, n) -> (m, n)>

// expected-error @+2 {{numbers of rows are computed where rows are reduced, each on its own}}
func.func @elementwise(%tokens: memref<11xi32>, %table: memref<5x300xf32>, %y: memref<11x300xf32>) {
  warp.rows %tokens, %table into %y {indexing_maps = [#m, #of_table, #mn]}
      : memref<11xi32>, memref<5x300xf32> into memref<11x300xf32> {
  ^bb0(%token: i32, %a: f32):
    warp.yield %a, %token : f32, i32
  }
  return
}
