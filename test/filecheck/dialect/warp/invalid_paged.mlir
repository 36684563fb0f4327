// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{warp.paged: expected the result to be memref<2x96x64xf16, strided<[6144, 64, 1]>>, got memref<2x96x64xf16>}}
func.func @result(%k: memref<9x32x64xf16>, %t: memref<2x3xi32>) {
  %0 = warp.paged %k by %t {along = array<i64: 1, 1, 2>, table_along = array<i64: 0>, page = 0 : i64, slot = 1 : i64} : memref<9x32x64xf16>, memref<2x3xi32> -> memref<2x96x64xf16>
  return
}

// -----

// expected-error @+2 {{warp.paged: expected dimensions of the result for those of memref<9x32x64xf16> and of memref<2x3xi32>, got (1, 0, 2)}}
func.func @along(%k: memref<9x32x64xf16>, %t: memref<2x3xi32>) {
  %0 = warp.paged %k by %t {along = array<i64: 1, 0, 2>, table_along = array<i64: 0>, page = 0 : i64, slot = 1 : i64} : memref<9x32x64xf16>, memref<2x3xi32> -> memref<2x96x64xf16>
  return
}

// -----

// expected-error @+2 {{warp.paged: expected known sizes, and a table of i32 or i64, got memref<?x32x64xf16> and memref<2x3xi64>}}
func.func @table(%k: memref<?x32x64xf16>, %t: memref<2x3xi64>) {
  %0 = warp.paged %k by %t {along = array<i64: 1, 1, 2>, table_along = array<i64: 0>, page = 0 : i64, slot = 1 : i64} : memref<?x32x64xf16>, memref<2x3xi64> -> memref<2x96x64xf16>
  return
}

// -----

// expected-error @+2 {{warp.paged: expected known sizes, and a table of i32 or i64, got memref<9x64xf16> and memref<5xf32>}}
func.func @rows(%x: memref<9x64xf16>, %t: memref<5xf32>) {
  %0 = warp.paged %x by %t {along = array<i64: 0, 1>, table_along = array<i64>, page = 0 : i64} : memref<9x64xf16>, memref<5xf32> -> memref<5x64xf16, strided<[64, 1]>>
  return
}
