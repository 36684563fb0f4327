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

// -----

func.func @f(%A: memref<8x64x64xf16>) {
  // expected-error @below {{expected the matrices of warp.im2col for !warp.tensor_map<64x64xf16, swizzle 128, im2col 3>, got memref<8x64x64xf16>}}
  %m = warp.encode_tensor_map %A [0, 1, 2] : memref<8x64x64xf16> to !warp.tensor_map<64x64xf16, swizzle 128, im2col 3>
  return
}

// -----

func.func @f(%A: memref<64x64xf16>) {
  // expected-error @below {{expected images of known size with 1 to 3 dimensions of pixels, got memref<64x64xf16>}}
  %m = warp.im2col %A taps [] pixels [] steps [] dilations [] low [] : memref<64x64xf16> -> memref<64x64xf16>
  return
}

// -----

func.func @f(%A: memref<8x9x64xf16>) {
  // expected-error @below {{expected 1 taps, pixels, steps, dilations and low}}
  %m = warp.im2col %A taps [3, 3] pixels [7] steps [1] dilations [1] low [0] : memref<8x9x64xf16> -> memref<3x3x56x64xf16>
  return
}

// -----

func.func @f(%A: memref<8x9x64xf16>) {
  // expected-error @below {{expected groups of as many channels each, got 3 of memref<8x9x64xf16>}}
  %m = warp.im2col %A taps [1] pixels [9] steps [1] dilations [1] low [0] {groups = 3 : i64} : memref<8x9x64xf16> -> memref<3x72x21xf16>
  return
}

// -----

func.func @f(%A: memref<8x9x64xf16>) {
  // expected-error @below {{expected the matrix to be memref<3x56x64xf16, strided<[128, 64, 1]>>, got memref<3x54x64xf16>}}
  %m = warp.im2col %A taps [3] pixels [7] steps [1] dilations [2] low [0] : memref<8x9x64xf16> -> memref<3x54x64xf16>
  return
}

// -----

func.func @f(%m: !warp.tensor_map<64x64xf16, swizzle 128, im2col 3>, %t: memref<64x64xf16, #warp.swizzle<128>, 3>, %b: !warp.barriers<1>, %i: index) {
  // expected-error @below {{expected 1 offsets for a box of !warp.tensor_map<64x64xf16, swizzle 128, im2col 3>, got 0}}
  warp.tensor_load %m[%i, %i, %i] to %t[%i, %i], %b[%i] : !warp.tensor_map<64x64xf16, swizzle 128, im2col 3> to memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.barriers<1>
  return
}

// -----

func.func @f(%m: !warp.tensor_map<64x64xf16, swizzle 128>, %i: index) {
  // expected-error @below {{expected 2 coordinates for a box of a tensor, got 3 of !warp.tensor_map<64x64xf16, swizzle 128>}}
  warp.prefetch %m[%i, %i, %i] : !warp.tensor_map<64x64xf16, swizzle 128>
  return
}

// -----

func.func @f(%m: !warp.tensor_map<64x64xf16, swizzle 128>, %i: index) {
  // expected-error @below {{expected a fragment of memory, and none of a tensor map, got !warp.tensor_map<64x64xf16, swizzle 128>}}
  warp.prefetch %m[%i, %i] : !warp.tensor_map<64x64xf16, swizzle 128> as <acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}
