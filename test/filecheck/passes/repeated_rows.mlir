// RUN: warploom-opt %s --split-input-file | warploom-opt --split-input-file | filecheck %s
// RUN: warploom-opt %s -p warp-set-target{arch=sm_90a},warp-outline --split-input-file --verify-diagnostics

// Inputs of which an element stands for several of a row.

#mn = affine_map<(m, n) -> (m, n)>
#channel = affine_map<(m, n) -> (n floordiv 1024)>

// CHECK: warp.rows %x, %w into %y {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ((d1 floordiv 1024))>, affine_map<(d0, d1) -> (d0, d1)>]}
func.func @channels(%x: memref<11x3072xf32>, %w: memref<3xf32>, %y: memref<11x3072xf32>) {
  warp.rows %x, %w into %y {indexing_maps = [#mn, #channel, #mn]} : memref<11x3072xf32>, memref<3xf32> into memref<11x3072xf32> {
  ^bb0(%a: f32, %b: f32):
    %0 = warp.reduce add %a : f32 to f32
    %1 = arith.mulf %b, %0 : f32
    warp.yield %1 : f32
  }
  return
}

// -----

#mn = affine_map<(m, n) -> (m, n)>
#channel = affine_map<(m, n) -> (n floordiv 96)>

// expected-error @+2 {{expected an element to stand for a multiple of the 1024 that a warp holds, got 96}}
func.func @few(%x: memref<11x3072xf32>, %w: memref<32xf32>, %y: memref<11x3072xf32>) {
  warp.rows %x, %w into %y {indexing_maps = [#mn, #channel, #mn]} : memref<11x3072xf32>, memref<32xf32> into memref<11x3072xf32> {
  ^bb0(%a: f32, %b: f32):
    %0 = warp.reduce add %a : f32 to f32
    %1 = arith.mulf %b, %0 : f32
    warp.yield %1 : f32
  }
  return
}

// -----

#mn = affine_map<(m, n) -> (m, n)>
#channel = affine_map<(m, n) -> (n floordiv 1024)>

// expected-error @+2 {{expected rows to be reduced, elements of whose inputs stand for several of a row}}
func.func @apart(%x: memref<11x3072xf32>, %w: memref<3xf32>, %y: memref<11x3072xf32>) {
  warp.rows %x, %w into %y {indexing_maps = [#mn, #channel, #mn]} : memref<11x3072xf32>, memref<3xf32> into memref<11x3072xf32> {
  ^bb0(%a: f32, %b: f32):
    %1 = arith.mulf %b, %a : f32
    warp.yield %1 : f32
  }
  return
}
