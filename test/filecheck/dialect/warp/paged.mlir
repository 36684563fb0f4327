// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule,warp-outline,warp-stage" | filecheck %s --check-prefix=STAGE

#q = affine_map<(b, h, m, n, d, e) -> (b, h, m, d)>
#k = affine_map<(b, h, m, n, d, e) -> (b, n, h, d)>
#v = affine_map<(b, h, m, n, d, e) -> (b, n, h, e)>
#o = affine_map<(b, h, m, n, d, e) -> (b, h, m, e)>
!sequences = memref<2x96x3x64xf16, strided<[18432, 192, 64, 1]>>

// CHECK-LABEL: func.func @pages
// CHECK-NEXT:    %ks = warp.paged %k by %t {along = array<i64: 1, 1, 2, 3>, table_along = array<i64: 0>, page = 0 : i64, slot = 1 : i64} : memref<9x32x3x64xf16>, memref<2x3xi32> -> memref<2x96x3x64xf16, strided<[18432, 192, 64, 1]>>
// CHECK:         warp.attention %q, %ks, %vs into %o {scale = 1.000000e+00 : f32, window = 9 : i64, lengths_map = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0)>, indexing_maps = {{.*}} lengths %l : memref<2xi32>

// The number of the page is read for each tile, of the last page for those behind all.
// STAGE:       gpu.func @pages(%Q: {{.*}}, %K: memref<9x32x3x64xf16>, %V: memref<9x32x3x64xf16>, %pages: memref<2x3xi32>, %lengths: memref<2xi32>, %O: {{.*}})
// STAGE:         [[LENGTH:%[0-9]+]] = memref.load %lengths
// STAGE:         scf.for
// STAGE:           arith.minui
// STAGE-NEXT:      [[PAGE:%[0-9]+]] = memref.load %pages
// STAGE-NEXT:      [[NUMBER:%[0-9]+]] = arith.index_cast [[PAGE]] : i32 to index
// STAGE-NEXT:      [[MATRIX:%[0-9]+]] = warp.matrix %K{{\[}}[[NUMBER]], row, %{{[0-9]+}}, column]
// STAGE-NEXT:      warp.copy [[MATRIX]]{{.*}} until %
// STAGE-NOT:     warp.paged
func.func @pages(%q: memref<2x3x4x64xf16>, %k: memref<9x32x3x64xf16>, %v: memref<9x32x3x64xf16>, %t: memref<2x3xi32>, %l: memref<2xi32>, %o: memref<2x3x4x64xf16>) {
  %ks = warp.paged %k by %t {along = array<i64: 1, 1, 2, 3>, table_along = array<i64: 0>, page = 0 : i64, slot = 1 : i64} : memref<9x32x3x64xf16>, memref<2x3xi32> -> !sequences
  %vs = warp.paged %v by %t {along = array<i64: 1, 1, 2, 3>, table_along = array<i64: 0>, page = 0 : i64, slot = 1 : i64} : memref<9x32x3x64xf16>, memref<2x3xi32> -> !sequences
  warp.attention %q, %ks, %vs into %o {scale = 1.0 : f32, window = 9 : i64, lengths_map = affine_map<(b, h, m, n, d, e) -> (b)>, indexing_maps = [#q, #k, #v, #o]}
    : memref<2x3x4x64xf16>, !sequences, !sequences, memref<2x3x4x64xf16> lengths %l : memref<2xi32>
  return
}

// Without slot a page is one row, and sizes may be unknown.

// CHECK-LABEL: func.func @rows
// CHECK-NEXT:    %named = warp.paged %x by %t {along = array<i64: 0, 1>, table_along = array<i64>, page = 0 : i64} : memref<?x64xf16>, memref<?xi64> -> memref<?x64xf16, strided<[64, 1]>>
// STAGE:       gpu.func @rows(%A: memref<?x64xf16>, %rows: memref<?xi64>, %B: {{.*}}, %C: {{.*}})
// STAGE-NEXT:    [[ROWS:%[0-9]+]] = warp.paged %A by %rows
// STAGE:         warp.copy [[ROWS]]
func.func @rows(%x: memref<?x64xf16>, %t: memref<?xi64>, %b: memref<64x32xf16>, %d: memref<?x32xf32>) {
  %named = warp.paged %x by %t {along = array<i64: 0, 1>, table_along = array<i64>, page = 0 : i64} : memref<?x64xf16>, memref<?xi64> -> memref<?x64xf16, strided<[64, 1]>>
  warp.matmul f16 x f16 %named, %b init 0.0 : f32 into %d : memref<?x64xf16, strided<[64, 1]>>, memref<64x32xf16>, memref<?x32xf32>
  return
}
