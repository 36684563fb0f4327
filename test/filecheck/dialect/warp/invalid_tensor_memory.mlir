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

module attributes {warp.target = #warp.target<sm_90a>} {
  func.func @target(%A: memref<2x64x64xbf16, #warp.swizzle<128>, 3>, %D: memref<1x64x64xf32, 6>, %i: index) {
    // expected-error@+1 {{the module's target is sm_90a}}
    warp.tensor_mma %A[%i, %i, %i], %A[%i, %i, %i], %D[%i] : memref<2x64x64xbf16, #warp.swizzle<128>, 3>, memref<2x64x64xbf16, #warp.swizzle<128>, 3>, memref<1x64x64xf32, 6>
    return
  }
}
