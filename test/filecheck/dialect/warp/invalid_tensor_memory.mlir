// RUN: warploom-opt %s --split-input-file --verify-diagnostics

func.func @not_in_tensor_memory(%A: memref<2x64x64xbf16, #warp.swizzle<128>, 3>, %D: memref<1x64x64xf32>, %i: index) {
  // expected-error@+1 {{expected D to be matrices in tensor memory (space 6), got memref<1x64x64xf32>}}
  warp.tensor_mma %A[%i, %i, %i], %A[%i, %i, %i], %D[%i] : memref<2x64x64xbf16, #warp.swizzle<128>, 3>, memref<2x64x64xbf16, #warp.swizzle<128>, 3>, memref<1x64x64xf32>
  return
}

// -----

func.func @rows(%A: memref<2x64x64xbf16, #warp.swizzle<128>, 3>, %D: memref<1x32x64xf32, 6>, %i: index) {
  // expected-error@+1 {{no product has a D of 32x64xf32 in tensor memory}}
  warp.tensor_mma %A[%i, %i, %i], %A[%i, %i, %i], %D[%i] : memref<2x64x64xbf16, #warp.swizzle<128>, 3>, memref<2x64x64xbf16, #warp.swizzle<128>, 3>, memref<1x32x64xf32, 6>
  return
}

// -----

func.func @no_stage(%A: memref<2x128x256xf4E2M1FN, #warp.swizzle<128>, 3>, %D: memref<1x128x128xf32, 6>, %S: memref<1x128x8xf8E8M0FNU>, %i: index) {
  // expected-error@+1 {{expected scales and metadata to be matrices in tensor memory (space 6), got memref<1x128x8xf8E8M0FNU>}}
  warp.tensor_mma %A[%i, %i, %i], %A[%i, %i, %i], %D[%i] with %S, %S [%i] {kind = "mxf4", step = 0 : i64} : memref<2x128x256xf4E2M1FN, #warp.swizzle<128>, 3>, memref<2x128x256xf4E2M1FN, #warp.swizzle<128>, 3>, memref<1x128x128xf32, 6>, memref<1x128x8xf8E8M0FNU>, memref<1x128x8xf8E8M0FNU>
  return
}

// -----

func.func @rows_of_a(%P: memref<2x64x64xbf16, 6>, %B: memref<2x64x64xbf16, #warp.swizzle<128>, 3>, %D: memref<2x128x64xf32, 6>, %i: index) {
  // expected-error@+1 {{expected A in tensor memory to be 128 rows of 16 bits, and dense, got memref<2x64x64xbf16, 6 : i64>}}
  warp.tensor_mma %P[%i, %i, %i], %B[%i, %i, %i], %D[%i] : memref<2x64x64xbf16, 6>, memref<2x64x64xbf16, #warp.swizzle<128>, 3>, memref<2x128x64xf32, 6>
  return
}

// -----

func.func @along_k(%P: memref<2x128x64xbf16, 6>, %B: memref<2x64x64xbf16, #warp.swizzle<128>, 3>, %D: memref<2x128x64xf32, 6>, %i: index) {
  // expected-error@+1 {{expected A in tensor memory along K, at a matrix, a row and a column of it}}
  warp.tensor_mma %P[%i], %B[%i, %i, %i], %D[%i] : memref<2x128x64xbf16, 6>, memref<2x64x64xbf16, #warp.swizzle<128>, 3>, memref<2x128x64xf32, 6>
  return
}

// -----

func.func @lines(%S: memref<200x8xf8E8M0FNU>, %W: memref<128x16xf8E8M0FNU>, %i: index) {
  // expected-error@+1 {{expected 256 lines of 16 elements or more for 200x8 elements in #warp.blocks<192, 2, r0 r1 r2 r3 r4 | c0 c1 r5 r6>, got 128x16}}
  warp.pack %S to %W share %i {blocks = #warp.blocks<192, 2, r0 r1 r2 r3 r4 | c0 c1 r5 r6>, shares = 1 : i64} : memref<200x8xf8E8M0FNU> to memref<128x16xf8E8M0FNU>
  return
}

// -----

func.func @shares(%A: memref<200x8xbf16>, %W: memref<256x16xbf16>, %i: index) {
  // expected-error@+1 {{expected shares of a matrix that is not in blocks}}
  warp.pack %A to %W share %i : memref<200x8xbf16> to memref<256x16xbf16>
  return
}

// -----

func.func @to_shared(%S: memref<2x64x16xf8E8M0FNU, #warp.swizzle<16>, 3>, %i: index) {
  // expected-error@+1 {{expected a destination in tensor memory (space 6), got memref<2x64x16xf8E8M0FNU}}
  warp.copy %S[%i, %i, %i] to %S[%i] : memref<2x64x16xf8E8M0FNU, #warp.swizzle<16>, 3> to memref<2x64x16xf8E8M0FNU, #warp.swizzle<16>, 3>
  return
}

// -----

module attributes {warp.target = #warp.target<sm_90a>} {
  func.func @target(%A: memref<2x64x64xbf16, #warp.swizzle<128>, 3>, %D: memref<1x64x64xf32, 6>, %i: index) {
    // expected-error@+1 {{the module's target is sm_90a}}
    warp.tensor_mma %A[%i, %i, %i], %A[%i, %i, %i], %D[%i] : memref<2x64x64xbf16, #warp.swizzle<128>, 3>, memref<2x64x64xbf16, #warp.swizzle<128>, 3>, memref<1x64x64xf32, 6>
    return
  }
}
