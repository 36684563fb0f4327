// RUN: warploom-opt %s -p 'warp-group' | filecheck %s
// RUN: warploom-opt %s -p 'warp-group' | warploom-opt | filecheck %s

// A loop over sequences, of which each begins where the one before ends, is one attention, with no operation of a turn left.

// CHECK:      func.func @sequences(%Q: memref<96x64xf16>, %ends: memref<3xi32>, %O: memref<96x64xf16>, %lse: memref<96xf32>) {
// CHECK-NOT:  scf.for
// CHECK:      warp.attention %Q, %Q, %Q into %O {scale = 1.250000e-01 : f32, diagonal = 0 : i64, indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d2)>, affine_map<(d0, d1, d2, d3) -> (d1, d2)>, affine_map<(d0, d1, d2, d3) -> (d1, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d3)>], lse_map = affine_map<(d0, d1, d2, d3) -> (d0)>} : memref<96x64xf16>, memref<96x64xf16>, memref<96x64xf16>, memref<96x64xf16> lse %lse : memref<96xf32> grouped %ends : memref<3xi32>
#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#v = affine_map<(m, n, d, e) -> (n, e)>
#o = affine_map<(m, n, d, e) -> (m, e)>

func.func @sequences(%Q: memref<96x64xf16>, %ends: memref<3xi32>, %O: memref<96x64xf16>, %lse: memref<96xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %last = scf.for %s = %c0 to %c3 step %c1 iter_args(%start = %c0) -> (index) {
    %end = memref.load %ends[%s] : memref<3xi32>
    %stop = arith.index_cast %end : i32 to index
    %rows = arith.subi %stop, %start : index
    %q = memref.subview %Q[%start, 0] [%rows, 64] [1, 1] : memref<96x64xf16> to memref<?x64xf16, strided<[64, 1], offset: ?>>
    %o = memref.subview %O[%start, 0] [%rows, 64] [1, 1] : memref<96x64xf16> to memref<?x64xf16, strided<[64, 1], offset: ?>>
    %l = memref.subview %lse[%start] [%rows] [1] : memref<96xf32> to memref<?xf32, strided<[1], offset: ?>>
    warp.attention %q, %q, %q into %o {scale = 0.125 : f32, diagonal = 0 : i64, lse_map = affine_map<(m, n, d, e) -> (m)>, indexing_maps = [#q, #k, #v, #o]}
      : memref<?x64xf16, strided<[64, 1], offset: ?>>, memref<?x64xf16, strided<[64, 1], offset: ?>>, memref<?x64xf16, strided<[64, 1], offset: ?>>, memref<?x64xf16, strided<[64, 1], offset: ?>>
        lse %l : memref<?xf32, strided<[1], offset: ?>>
    scf.yield %stop : index
  }
  return
}
