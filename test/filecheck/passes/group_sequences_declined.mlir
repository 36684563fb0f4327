// RUN: warploom-opt %s -p 'warp-group' --remarks --split-input-file -o /dev/null 2>&1 | filecheck %s

// Loops over sequences that stay, and why.

// CHECK: the loop over groups stays: expected Q, K, V and O to have the rows of the sequence, got memref<96x64xf16>
#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#v = affine_map<(m, n, d, e) -> (n, e)>
#o = affine_map<(m, n, d, e) -> (m, e)>

func.func @all_keys(%Q: memref<96x64xf16>, %ends: memref<3xi32>, %O: memref<96x64xf16>, %lse: memref<96xf32>) {
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
    warp.attention %q, %Q, %Q into %o {scale = 0.125 : f32, diagonal = 0 : i64, lse_map = affine_map<(m, n, d, e) -> (m)>, indexing_maps = [#q, #k, #v, #o]}
      : memref<?x64xf16, strided<[64, 1], offset: ?>>, memref<96x64xf16>, memref<96x64xf16>, memref<?x64xf16, strided<[64, 1], offset: ?>>
        lse %l : memref<?xf32, strided<[1], offset: ?>>
    scf.yield %stop : index
  }
  return
}

// -----

// CHECK: the loop over groups stays: expected no part of an operand that belongs to one sequence
#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#v = affine_map<(m, n, d, e) -> (n, e)>
#o = affine_map<(m, n, d, e) -> (m, e)>

func.func @keys_of_each(%Q: memref<96x64xf16>, %K: memref<3x96x64xf16>, %ends: memref<3xi32>, %O: memref<96x64xf16>, %lse: memref<96xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %last = scf.for %s = %c0 to %c3 step %c1 iter_args(%start = %c0) -> (index) {
    %end = memref.load %ends[%s] : memref<3xi32>
    %stop = arith.index_cast %end : i32 to index
    %rows = arith.subi %stop, %start : index
    %q = memref.subview %Q[%start, 0] [%rows, 64] [1, 1] : memref<96x64xf16> to memref<?x64xf16, strided<[64, 1], offset: ?>>
    %k = memref.subview %K[%s, %start, 0] [1, %rows, 64] [1, 1, 1] : memref<3x96x64xf16> to memref<?x64xf16, strided<[64, 1], offset: ?>>
    %o = memref.subview %O[%start, 0] [%rows, 64] [1, 1] : memref<96x64xf16> to memref<?x64xf16, strided<[64, 1], offset: ?>>
    %l = memref.subview %lse[%start] [%rows] [1] : memref<96xf32> to memref<?xf32, strided<[1], offset: ?>>
    warp.attention %q, %k, %k into %o {scale = 0.125 : f32, diagonal = 0 : i64, lse_map = affine_map<(m, n, d, e) -> (m)>, indexing_maps = [#q, #k, #v, #o]}
      : memref<?x64xf16, strided<[64, 1], offset: ?>>, memref<?x64xf16, strided<[64, 1], offset: ?>>, memref<?x64xf16, strided<[64, 1], offset: ?>>, memref<?x64xf16, strided<[64, 1], offset: ?>>
        lse %l : memref<?xf32, strided<[1], offset: ?>>
    scf.yield %stop : index
  }
  return
}
