// RUN: warploom-opt %s --split-input-file --verify-diagnostics

func.func @f(%A: memref<64x64xf16, #warp.swizzle<128>, 3>, %B: memref<512x64xf16, #warp.swizzle<128>, 3>, %c: !warp.fragment<acc, 64x264xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{wgmma of f16 x f16 -> f32 has no N of 264; the nearest are 248 and 256}}
  %d = warp.wgmma %A[%i, %i], %B[%i, %i], %c : memref<64x64xf16, #warp.swizzle<128>, 3>, memref<512x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x264xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  return
}

// -----

func.func @f(%A: memref<64x64xi8, #warp.swizzle<64>, 3>, %B: memref<64x64xi8, #warp.swizzle<64>, 3>, %c: !warp.fragment<acc, 64x40xi32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{wgmma of s8 x s8 -> s32 has no N of 40; the nearest are 32 and 48}}
  %d = warp.wgmma %A[%i, %i], %B[%i, %i], %c : memref<64x64xi8, #warp.swizzle<64>, 3>, memref<64x64xi8, #warp.swizzle<64>, 3>, !warp.fragment<acc, 64x40xi32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  return
}

// -----

func.func @f(%A: memref<64x64xf16, #warp.swizzle<128>, 3>, %B: memref<64x64xbf16, #warp.swizzle<128>, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{no wgmma multiplies f16 x bf16 -> f32; there are f16 x f16 -> f16, f16 x f16 -> f32, bf16 x bf16 -> f32}}
  %d = warp.wgmma %A[%i, %i], %B[%i, %i], %c : memref<64x64xf16, #warp.swizzle<128>, 3>, memref<64x64xbf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  return
}

// -----

func.func @f(%A: memref<64x64xf16, #warp.swizzle<128>, 3>, %B: memref<64x64xf16, #warp.swizzle<128>, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{no wgmma multiplies f16 x f16 -> f32 with satfinite; there are}}
  %d = warp.wgmma %A[%i, %i], %B[%i, %i], %c {satfinite} : memref<64x64xf16, #warp.swizzle<128>, 3>, memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  return
}

// -----

func.func @f(%A: memref<64x64xf16, #warp.swizzle<128, skip 1>, 3>, %B: memref<64x64xf16, #warp.swizzle<128>, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{no matrix descriptor expresses the layout of operand A, memref<64x64xf16, #warp.swizzle<128, skip 1>, 3 : i64>; the nearest is #warp.swizzle<128>}}
  %d = warp.wgmma %A[%i, %i], %B[%i, %i], %c : memref<64x64xf16, #warp.swizzle<128, skip 1>, 3>, memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  return
}

// -----

func.func @f(%A: memref<64x64xf16, #warp.swizzle<128>, 3>, %B: memref<64x64xf16, #warp.swizzle<4>, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{no matrix descriptor expresses the layout of operand B, memref<64x64xf16, #warp.swizzle<4>, 3 : i64>; the nearest is #warp.swizzle<16>}}
  %d = warp.wgmma %A[%i, %i], %B[%i, %i], %c : memref<64x64xf16, #warp.swizzle<128>, 3>, memref<64x64xf16, #warp.swizzle<4>, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  return
}

// -----

func.func @f(%A: memref<64x64xf16, strided<[128, 1]>, 3>, %B: memref<64x64xf16, #warp.swizzle<128>, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{no matrix descriptor expresses the layout of operand A, memref<64x64xf16, strided<[128, 1]>, 3 : i64>; expected #warp.swizzle}}
  %d = warp.wgmma %A[%i, %i], %B[%i, %i], %c : memref<64x64xf16, strided<[128, 1]>, 3>, memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  return
}

// -----

func.func @f(%A: memref<64x64xf16>, %B: memref<64x64xf16, #warp.swizzle<128>, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{expected operand A to be a tile in shared memory (space 3), got memref<64x64xf16>}}
  %d = warp.wgmma %A[%i, %i], %B[%i, %i], %c : memref<64x64xf16>, memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  return
}

// -----

func.func @f(%A: memref<64x64xf16, #warp.swizzle<128>, 3>, %B: memref<64x64xf4E2M1FN, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{expected operand B to have elements of whole bytes, got memref<64x64xf4E2M1FN, 3 : i64>}}
  %d = warp.wgmma %A[%i, %i], %B[%i, %i], %c : memref<64x64xf16, #warp.swizzle<128>, 3>, memref<64x64xf4E2M1FN, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  return
}

// -----

func.func @f(%A: memref<64x32xf16, #warp.swizzle<128>, 3>, %B: memref<64x64xf16, #warp.swizzle<128>, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{expected operand A to have lines of whole 128-byte panels, got 64 bytes in memref<64x32xf16}}
  %d = warp.wgmma %A[%i, %i], %B[%i, %i], %c : memref<64x32xf16, #warp.swizzle<128>, 3>, memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  return
}

// -----

func.func @f(%A: memref<64x64xf16, #warp.swizzle<128>, 3>, %B: memref<64x64xf16, #warp.swizzle<128>, 3>, %c: !warp.fragment<acc, 64x128xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{operand B of m64n128k16 takes 128x16 of a tile, got 64x64}}
  %d = warp.wgmma %A[%i, %i], %B[%i, %i], %c : memref<64x64xf16, #warp.swizzle<128>, 3>, memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x128xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  return
}

// -----

func.func @f(%A: memref<8x64xf16, #warp.swizzle<128>, 3>, %B: memref<64x64xf16, #warp.swizzle<128>, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{operand A of m64n64k16 takes 16x64 of a tile, got 8x64}}
  %d = warp.wgmma %A[%i, %i], %B[%i, %i], %c {mn_major_a} : memref<8x64xf16, #warp.swizzle<128>, 3>, memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  return
}

// -----

func.func @f(%A: memref<64x128xi8, #warp.swizzle<128>, 3>, %B: memref<64x128xi8, #warp.swizzle<128>, 3>, %c: !warp.fragment<acc, 64x64xi32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{operand B of s8 lies along K; only 16 bits do not}}
  %d = warp.wgmma %A[%i, %i], %B[%i, %i], %c {mn_major_b} : memref<64x128xi8, #warp.swizzle<128>, 3>, memref<64x128xi8, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xi32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  return
}

// -----

func.func @f(%A: memref<64x128xi8, #warp.swizzle<128>, 3>, %B: memref<64x128xi8, #warp.swizzle<128>, 3>, %c: !warp.fragment<acc, 64x64xi32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{only floating-point operands can be negated}}
  %d = warp.wgmma %A[%i, %i], %B[%i, %i], %c {negate_a} : memref<64x128xi8, #warp.swizzle<128>, 3>, memref<64x128xi8, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xi32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  return
}

// -----

func.func @f(%a: !warp.fragment<a, 64x16xf16, [c1 c2 r1 r2 r3 | c0 r0 c3 | r4 r5]>, %B: memref<64x64xf16, #warp.swizzle<128>, 3>, %c: !warp.fragment<acc, 64x64xf32, [r1 r2 c0 c1 c2 | r0 c3 | c4 c5]>, %i: index) {
  // expected-error @below {{expected A in registers to be !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>, got !warp.fragment<a, 64x16xf16, [c1 c2 r1 r2 r3 | c0 r0 c3 | r4 r5]>}}
  %d = warp.wgmma %a, %B[%i, %i], %c {transposed} : !warp.fragment<a, 64x16xf16, [c1 c2 r1 r2 r3 | c0 r0 c3 | r4 r5]>, memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xf32, [r1 r2 c0 c1 c2 | r0 c3 | c4 c5]>
  return
}

// -----

func.func @f(%A: memref<64x64xf16, #warp.swizzle<128>, 3>, %B: memref<64x64xf16, #warp.swizzle<128>, 3>, %c: !warp.fragment<acc, 64x64xf32, [r1 r2 c1 c2 c3 | r0 c0 | c4 c5]>, %i: index) {
  // expected-error @below {{expected rows in their order with a tile of A, got C of !warp.fragment<acc, 64x64xf32, [c1 c2 r1 r2 r3 | c0 r0 | r4 r5]>}}
  %d = warp.wgmma %A[%i, %i], %B[%i, %i], %c {transposed} : memref<64x64xf16, #warp.swizzle<128>, 3>, memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xf32, [r1 r2 c1 c2 c3 | r0 c0 | c4 c5]>
  return
}

// -----

func.func @f(%A: memref<64x64xf16, #warp.swizzle<128>, 3>, %B: memref<64x64xf16, #warp.swizzle<128>, 3>, %c: !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %i: index) {
  // expected-error @below {{expected C to be !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, got !warp.fragment<acc, 16x64xf32}}
  %d = warp.wgmma %A[%i, %i], %B[%i, %i], %c : memref<64x64xf16, #warp.swizzle<128>, 3>, memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

func.func @f(%A: memref<64x32768xf16, 3>, %B: memref<65536x16xf16, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{no matrix descriptor expresses memref<65536x16xf16, 3 : i64>: leading: expected a multiple of 16 bytes below 262144, got 1048576}}
  %d = warp.wgmma %A[%i, %i], %B[%i, %i], %c : memref<64x32768xf16, 3>, memref<65536x16xf16, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  return
}

// -----

func.func @f(%i: index) {
  // expected-error @below {{expected 0 to 7 groups that may be in flight, got 8}}
  warp.wait wgmma 8
  return
}

// -----

func.func @f(%i: index) {
  // expected-error @below {{expected a number of groups that may be in flight, got -1}}
  warp.wait bulk -1
  return
}

// -----

func.func @f(%b: !warp.barriers<1>, %i: index) {
  // expected-error @below {{expected 0 to 1048575 bytes, got 1048576}}
  warp.arrive %b[%i] {bytes = 1048576 : i64} : !warp.barriers<1>
  return
}

// -----

func.func @f(%m: !warp.tensor_map<64x64xf16, swizzle 128>, %t: memref<32x64xf16, #warp.swizzle<128>, 3>, %b: !warp.barriers<1>, %i: index) {
  // expected-error @below {{a box of 64 rows does not fit a tile of 32 rows}}
  warp.tensor_load %m[%i, %i] to %t[%i, %i], %b[%i] : !warp.tensor_map<64x64xf16, swizzle 128> to memref<32x64xf16, #warp.swizzle<128>, 3>, !warp.barriers<1>
  return
}

// -----

func.func @f(%m: !warp.tensor_map<64x32xf16, swizzle 128>, %t: memref<64x64xf16, #warp.swizzle<128>, 3>, %b: !warp.barriers<1>, %i: index) {
  // expected-error @below {{a box of 32 elements (64 bytes) along the fastest dimension does not fit panels of 128 bytes; 64 elements do}}
  warp.tensor_load %m[%i, %i] to %t[%i, %i], %b[%i] : !warp.tensor_map<64x32xf16, swizzle 128> to memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.barriers<1>
  return
}

// -----

func.func @f(%m: !warp.tensor_map<4x32xbf16>, %t: memref<4x64xbf16, strided<[64, 1]>, 3>, %b: !warp.barriers<1>, %i: index) {
  // expected-error @below {{a box of 32 elements (64 bytes) along the fastest dimension does not fit panels of 128 bytes; 64 elements do}}
  warp.tensor_load %m[%i, %i] to %t[%i, %i], %b[%i] : !warp.tensor_map<4x32xbf16> to memref<4x64xbf16, strided<[64, 1]>, 3>, !warp.barriers<1>
  return
}

// -----

func.func @f(%m: !warp.tensor_map<64x32xf16, swizzle 64>, %t: memref<64x64xf16, #warp.swizzle<128>, 3>, %b: !warp.barriers<1>, %i: index) {
  // expected-error @below {{a copy of !warp.tensor_map<64x32xf16, swizzle 64> writes #warp.swizzle<64>, which is not the layout of memref<64x64xf16, #warp.swizzle<128>, 3 : i64>}}
  warp.tensor_load %m[%i, %i] to %t[%i, %i], %b[%i] : !warp.tensor_map<64x32xf16, swizzle 64> to memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.barriers<1>
  return
}

// -----

func.func @f(%m: !warp.tensor_map<64x64xbf16, swizzle 128>, %t: memref<64x64xf16, #warp.swizzle<128>, 3>, %b: !warp.barriers<1>, %i: index) {
  // expected-error @below {{expected a tile of elements of bf16, got memref<64x64xf16}}
  warp.tensor_load %m[%i, %i] to %t[%i, %i], %b[%i] : !warp.tensor_map<64x64xbf16, swizzle 128> to memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.barriers<1>
  return
}

// -----

func.func @f(%m: !warp.tensor_map<64x64xf16, swizzle 128>, %t: memref<64x64xf16, #warp.swizzle<128>, 3>, %b: !warp.barriers<1>, %i: index) {
  // expected-error @below {{expected 2 coordinates for a box of !warp.tensor_map<64x64xf16, swizzle 128>, got 3}}
  warp.tensor_load %m[%i, %i, %i] to %t[%i, %i], %b[%i] : !warp.tensor_map<64x64xf16, swizzle 128> to memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.barriers<1>
  return
}

// -----

// expected-error @below {{box: expected 1 to 256 along dimension 1, got 512}}
func.func @f(%m: !warp.tensor_map<512x64xf16>) {
  return
}

// -----

// expected-error @below {{expected at most 64 bytes along the fastest dimension, as the swizzle says, got 128; 32 elements fit}}
func.func @f(%m: !warp.tensor_map<64x64xf16, swizzle 64>) {
  return
}

// -----

// expected-error @below {{expected a multiple of 16 bytes along the fastest dimension, got 4 elements of 2 bytes; 8 elements fit}}
func.func @f(%m: !warp.tensor_map<64x4xf16>) {
  return
}

// -----

// expected-error @below {{b4x16_p64: expected a box of 128 elements, of a tensor of a multiple of them, along the fastest dimension, got 64 and 64}}
func.func @f(%m: !warp.tensor_map<64x64xf4E2M1FN>) {
  return
}

// -----

// expected-error @below {{expected a tensor map of elements of whole bytes, got i4}}
func.func @f(%m: !warp.tensor_map<64x64xi4>) {
  return
}

// -----

func.func @f(%a: !warp.fragment<a, 64x8xf16, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %B: memref<64x64xf16, #warp.swizzle<128>, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{expected A in registers to be !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>, got !warp.fragment<a, 64x8xf16, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>}}
  %d = warp.wgmma %a, %B[%i, %i], %c : !warp.fragment<a, 64x8xf16, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  return
}

// -----

func.func @f(%a: !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %B: memref<64x64xf16, #warp.swizzle<128>, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{expected A in registers to be !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>, got !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>}}
  %d = warp.wgmma %a, %B[%i, %i], %c : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  return
}

// -----

func.func @f(%a: !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>, %B: memref<64x64xf16, #warp.swizzle<128>, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{A in registers begins nowhere: expected no indices behind it}}
  %d = warp.wgmma %a[%i, %i], %B[%i, %i], %c : !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>, memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  return
}

// -----

func.func @f(%a: !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>, %B: memref<64x64xf16, #warp.swizzle<128>, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{A in registers lies along K; only a tile does not}}
  %d = warp.wgmma %a, %B[%i, %i], %c {mn_major_a} : !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>, memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  return
}

// -----

func.func @f(%a: !warp.fragment<a, 64x8xf32, [c0 c1 r0 r1 r2 | r3 c2 | r4 r5]>, %B: memref<64x64xf16, #warp.swizzle<128>, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{no wgmma multiplies f32 x f16 -> f32}}
  %d = warp.wgmma %a, %B[%i, %i], %c : !warp.fragment<a, 64x8xf32, [c0 c1 r0 r1 r2 | r3 c2 | r4 r5]>, memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  return
}

// -----

func.func @f(%a: !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>, %B: memref<64x64xf16, #warp.swizzle<128>, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{a sparsity selector is of the metadata of a sparse A, which is not given}}
  %d = warp.wgmma %a, %B[%i, %i], %c {selector = 0 : i64} : !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>, memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  return
}

// -----

func.func @f(%a: !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>, %e: !warp.fragment<meta, 64x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3 | r4 r5]>, %B: memref<64x64xf16, #warp.swizzle<128>, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{expected a sparsity selector of 0 or 1 for wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.f16.f16, got 2}}
  %d = warp.wgmma %a, %B[%i, %i], %c sparse %e {selector = 2 : i64} : !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>, memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, !warp.fragment<meta, 64x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3 | r4 r5]>
  return
}

// -----

func.func @f(%a: !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>, %e: !warp.fragment<meta, 64x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3 | r4 r5]>, %B: memref<64x64xf16, #warp.swizzle<128>, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{expected a sparsity selector of 0 or 1 for wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.f16.f16, got none}}
  %d = warp.wgmma %a, %B[%i, %i], %c sparse %e : !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>, memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, !warp.fragment<meta, 64x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3 | r4 r5]>
  return
}

// -----

func.func @f(%a: !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>, %e: !warp.fragment<meta, 64x16xi4, [r3 c3 r0 r1 r2 | c0 c1 c2 | r4 r5]>, %B: memref<64x64xf16, #warp.swizzle<128>, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{expected the metadata to be !warp.fragment<meta, 64x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3 | r4 r5]>, got !warp.fragment<meta, 64x16xi4, [r3 c3 r0 r1 r2 | c0 c1 c2 | r4 r5]>}}
  %d = warp.wgmma %a, %B[%i, %i], %c sparse %e {selector = 0 : i64} : !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>, memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, !warp.fragment<meta, 64x16xi4, [r3 c3 r0 r1 r2 | c0 c1 c2 | r4 r5]>
  return
}

// -----

func.func @f(%a: !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>, %e: !warp.fragment<meta, 64x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3 | r4 r5]>, %B: memref<64x16xf16, #warp.swizzle<32>, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %i: index) {
  // expected-error @below {{operand B of m64n64k32 takes 64x32 of a tile, got 64x16}}
  %d = warp.wgmma %a, %B[%i, %i], %c sparse %e {selector = 0 : i64} : !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3 | r4 r5]>, memref<64x16xf16, #warp.swizzle<32>, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, !warp.fragment<meta, 64x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3 | r4 r5]>
  return
}

// -----

func.func @f(%i: index) {
  // expected-error @below {{expected whole warps, 32 to 1024 threads, got 48}}
  warp.barrier cta[%i] {threads = 48 : i64}
  return
}
