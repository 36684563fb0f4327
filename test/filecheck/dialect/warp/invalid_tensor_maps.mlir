// RUN: warploom-opt %s --split-input-file --verify-diagnostics

func.func @f(%A: memref<8x64x64xf16>) {
  // expected-error @below {{expected the dimensions of memref<8x64x64xf16>, each once, for a box of !warp.tensor_map<64x64xf16, swizzle 128>}}
  %m = warp.encode_tensor_map %A [0, 1] : memref<8x64x64xf16> to !warp.tensor_map<64x64xf16, swizzle 128>
  return
}

// -----

func.func @f(%A: memref<64x64xf16>) {
  // expected-error @below {{expected a tensor map of elements of f16, got !warp.tensor_map<64x64xbf16, swizzle 128>}}
  %m = warp.encode_tensor_map %A [0, 1] : memref<64x64xf16> to !warp.tensor_map<64x64xbf16, swizzle 128>
  return
}

// -----

func.func @f(%A: memref<64x64xf16>) {
  // expected-error @below {{expected neighbours along dimension 0 of memref<64x64xf16>, the fastest}}
  %m = warp.encode_tensor_map %A [1, 0] : memref<64x64xf16> to !warp.tensor_map<64x64xf16, swizzle 128>
  return
}
