// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{warp.find_group: expected the ends of groups as a vector of i32 of static size, got memref<?xi32>}}
func.func @unknown(%ends: memref<?xi32>, %e: index) {
  %0, %1 = warp.find_group %ends[%e] rows 128 x %e : memref<?xi32>
  return
}

// -----

// expected-error @+2 {{warp.find_group: expected tiles of a row or more, got 0}}
func.func @no_rows(%ends: memref<8xi32>, %e: index) {
  %0, %1 = warp.find_group %ends[%e] rows 0 x %e : memref<8xi32>
  return
}

// -----

// expected-error @+2 {{warp.matrix: expected the first of some rows, and how many, got 1 indices}}
func.func @part(%A: memref<96x32xf16>, %e: index) {
  %0 = warp.matrix %A[row, column] part [%e] : memref<96x32xf16> -> memref<?x32xf16, strided<[32, 1], offset: ?>>
  return
}

// -----

// expected-error @+2 {{warp.matmul: expected B alone to be indexed by d0, the group, got B along (d0, d1, d2, d3) -> (d3, d2)}}
func.func @shared(%ends: memref<8xi32>, %A: memref<96x32xf16>, %B: memref<32x64xf16>, %D: memref<96x64xf32>) {
  warp.matmul f16 x f16 %A, %B init 0.0 : f32 into %D grouped by %ends
    maps [affine_map<(g, m, n, k) -> (m, k)>, affine_map<(g, m, n, k) -> (k, n)>, affine_map<(g, m, n, k) -> (m, n)>]
    : memref<96x32xf16>, memref<32x64xf16>, memref<96x64xf32> grouped memref<8xi32>
  return
}

// -----

// expected-error @+2 {{warp.matmul: expected B and the ends of groups to agree on d0, got 8 and 7}}
func.func @count(%ends: memref<7xi32>, %A: memref<96x32xf16>, %B: memref<8x32x64xf16>, %D: memref<96x64xf32>) {
  warp.matmul f16 x f16 %A, %B init 0.0 : f32 into %D grouped by %ends
    maps [affine_map<(g, m, n, k) -> (m, k)>, affine_map<(g, m, n, k) -> (g, k, n)>, affine_map<(g, m, n, k) -> (m, n)>]
    : memref<96x32xf16>, memref<8x32x64xf16>, memref<96x64xf32> grouped memref<7xi32>
  return
}

// -----

// expected-error @+2 {{warp.matmul: expected one loop over groups, and A and B in memory}}
func.func @loops(%ends: memref<8xi32>, %A: memref<96x32xf16>, %B: memref<32x64xf16>, %D: memref<96x64xf32>) {
  warp.matmul f16 x f16 %A, %B init 0.0 : f32 into %D grouped by %ends : memref<96x32xf16>, memref<32x64xf16>, memref<96x64xf32> grouped memref<8xi32>
  return
}

// -----

// expected-error @+3 {{warp.matmul: expected scales of blocks of both A and B}}
func.func @one(%A: memref<64x256xf8E4M3FN>, %SA: memref<64x2xf32>, %B: memref<256x128xf8E4M3FN>, %D: memref<64x128xf32>) {
  %a = warp.scaled %A, %SA : memref<64x256xf8E4M3FN>, memref<64x2xf32>
  warp.matmul e4m3 x e4m3 %a, %B init 0.0 : f32 into %D : !warp.operand<memref<64x256xf8E4M3FN>>, memref<256x128xf8E4M3FN>, memref<64x128xf32>
  return
}

// -----

// expected-error @+4 {{warp.matmul: expected scales of equal blocks of A, got 3 along 256 elements}}
func.func @blocks(%A: memref<64x256xf8E4M3FN>, %SA: memref<64x3xf32>, %B: memref<256x128xf8E4M3FN>, %SB: memref<1x2xf32>, %D: memref<64x128xf32>) {
  %a = warp.scaled %A, %SA : memref<64x256xf8E4M3FN>, memref<64x3xf32>
  %b = warp.scaled %B, %SB : memref<256x128xf8E4M3FN>, memref<1x2xf32>
  warp.matmul e4m3 x e4m3 %a, %b init 0.0 : f32 into %D : !warp.operand<memref<64x256xf8E4M3FN>>, !warp.operand<memref<256x128xf8E4M3FN>>, memref<64x128xf32>
  return
}
