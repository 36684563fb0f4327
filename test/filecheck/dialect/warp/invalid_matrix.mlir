// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{warp.matrix: expected the matrix to be memref<16x32xf16, strided<[32, 1], offset: ?>>, got memref<16x32xf16>}}
func.func @result(%A: memref<4x16x32xf16>, %b: index) {
  %0 = warp.matrix %A[%b, row, column] : memref<4x16x32xf16> -> memref<16x32xf16>
  return
}

// -----

// expected-error @+2 {{warp.matrix: expected 1 indices besides row and column, got 0}}
func.func @indices(%A: memref<4x16x32xf16>, %b: index) {
  %0 = warp.matrix %A[row, column] : memref<4x16x32xf16> -> memref<16x32xf16, strided<[32, 1], offset: ?>>
  return
}

// -----

// expected-error @+2 {{warp.matrix: expected the matrix to be memref<?x32xf16, strided<[0, 1], offset: ?>>, got memref<16x32xf16, strided<[32, 1], offset: ?>>}}
func.func @repeated(%A: memref<16x32xf16>, %b: index) {
  %0 = warp.matrix %A[%b, column] : memref<16x32xf16> -> memref<16x32xf16, strided<[32, 1], offset: ?>>
  return
}

// -----

// expected-error @+2 {{expected 'row' at most once among the indices}}
func.func @words(%A: memref<16x32xf16>) {
  %0 = warp.matrix %A[row, row] : memref<16x32xf16> -> memref<16x32xf16, strided<[32, 1], offset: ?>>
  return
}

// -----

// expected-error @+2 {{warp.matrix: expected dimensions of 2 as rows and columns, not one as both, got 0 and 2}}
func.func @dimensions(%A: memref<16x32xf16>) {
  %0 = "warp.matrix"(%A) <{row = 0 : i64, column = 2 : i64, operandSegmentSizes = array<i32: 1, 0, 0>}> : (memref<16x32xf16>) -> memref<16x32xf16, strided<[32, 1], offset: ?>>
  return
}

// -----

// expected-error @+2 {{warp.matmul: expected D to be indexed by the first loops, those of the batch, got (d0, d1, d2, d3, d4) -> (d1, d2, d3)}}
func.func @batch_of_d(%a: memref<3x2x4x5xf16>, %b: memref<3x2x5x6xf16>, %c: memref<2x4x6xf32>) {
  warp.matmul f16 x f16 %a, %b init 0.0 : f32 into %c maps [affine_map<(s, b, m, n, k) -> (s, b, m, k)>, affine_map<(s, b, m, n, k) -> (s, b, k, n)>, affine_map<(s, b, m, n, k) -> (b, m, n)>] : memref<3x2x4x5xf16>, memref<3x2x5x6xf16>, memref<2x4x6xf32>
  return
}

// -----

// expected-error @+2 {{warp.matmul: expected A to be indexed by d0, which D is not, got (d0, d1, d2, d3) -> (d1, d3)}}
func.func @summed_of_a(%a: memref<4x5xf16>, %b: memref<2x5x6xf16>, %c: memref<4x6xf32>) {
  warp.matmul f16 x f16 %a, %b init 0.0 : f32 into %c maps [affine_map<(b, m, n, k) -> (m, k)>, affine_map<(b, m, n, k) -> (b, k, n)>, affine_map<(b, m, n, k) -> (m, n)>] : memref<4x5xf16>, memref<2x5x6xf16>, memref<4x6xf32>
  return
}

// -----

// expected-error @+2 {{warp.matmul: expected A and B to agree on d0, got 2 and 3}}
func.func @batch_sizes(%a: memref<2x4x5xf16>, %b: memref<3x5x6xf16>, %c: memref<2x4x6xf32>) {
  warp.matmul f16 x f16 %a, %b init 0.0 : f32 into %c maps [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (b, k, n)>, affine_map<(b, m, n, k) -> (b, m, n)>] : memref<2x4x5xf16>, memref<3x5x6xf16>, memref<2x4x6xf32>
  return
}

// -----

// expected-error @+2 {{warp.matmul: expected A of rank 3, got memref<4x5xf16>}}
func.func @rank(%a: memref<4x5xf16>, %b: memref<3x5x6xf16>, %c: memref<2x4x6xf32>) {
  warp.matmul f16 x f16 %a, %b init 0.0 : f32 into %c maps [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (b, k, n)>, affine_map<(b, m, n, k) -> (b, m, n)>] : memref<4x5xf16>, memref<3x5x6xf16>, memref<2x4x6xf32>
  return
}

// -----

// expected-error @+2 {{warp.matrix: only integers of 64 bits have high words, got memref<96xi32>}}
func.func @words(%l: memref<96xi32>) {
  %0 = warp.matrix %l[row] {high} : memref<96xi32> -> memref<96x?xi32, strided<[1, 0], offset: ?>>
  return
}

// -----

// expected-error @+2 {{warp.matrix: expected every second element of 16 bits in whole words, got memref<8x4xf16, strided<[8, 2], offset: 1>>}}
func.func @pairs(%e: memref<8x4xf16, strided<[8, 2], offset: 1>>) {
  %0 = warp.matrix %e[row, column] {pairs} : memref<8x4xf16, strided<[8, 2], offset: 1>> -> memref<8x4xi32, strided<[4, 1], offset: ?>>
  return
}
