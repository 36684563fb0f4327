// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{warp.load: expected x1, x2 or x4 matrices, then .trans, .b16 or .b6x16_p32, .b4x16_p64, got 'four'}}
func.func @number_of_matrices(%s: memref<2x32x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  %x = warp.load %s[%i, %i, %i] {matrices = "four"} : memref<2x32x64xf16, #warp.swizzle<128>, 3> -> !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
  return
}

// -----

// expected-error @+2 {{warp.load: ldmatrix loads 1, 2 or 4 matrices, got 3}}
func.func @number_of_matrices_generic(%s: memref<2x32x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  %x = "warp.load"(%s, %i, %i, %i) <{matrices = "x3"}> : (memref<2x32x64xf16, #warp.swizzle<128>, 3>, index, index, index) -> !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
  return
}

// -----

// expected-error @+2 {{warp.load: expected one index for each of the 3 dimensions of the memref, got 2}}
func.func @indices(%s: memref<2x32x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  %x = warp.load %s[%i, %i] {matrices = "x4"} : memref<2x32x64xf16, #warp.swizzle<128>, 3> -> !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
  return
}

// -----

// expected-error @+2 {{warp.load: expected the memref to have at least 2 dimensions, got memref<64xf16, 3 : i64>}}
func.func @rank(%s: memref<64xf16, 3>, %i: index) {
  %x = warp.load %s[%i] {matrices = "x4"} : memref<64xf16, 3> -> !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
  return
}

// -----

// expected-error @+2 {{warp.load: expected memory of the fragment's element type bf16, got f16}}
func.func @element(%s: memref<2x32x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  %x = warp.load %s[%i, %i, %i] {matrices = "x4"} : memref<2x32x64xf16, #warp.swizzle<128>, 3> -> !warp.fragment<a, 16x16xbf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
  return
}

// -----

// expected-error @+2 {{warp.load: ldmatrix reads shared memory (memory space 3), got memref<32x64xf16>}}
func.func @global(%s: memref<32x64xf16>, %i: index) {
  %x = warp.load %s[%i, %i] {matrices = "x4"} : memref<32x64xf16> -> !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
  return
}

// -----

// expected-error @+2 {{warp.load: ldmatrix reads shared memory (memory space 3), got memref<32x64xf16, 1 : i64>}}
func.func @other_space(%s: memref<32x64xf16, 1>, %i: index) {
  %x = warp.load %s[%i, %i] {matrices = "x4"} : memref<32x64xf16, 1> -> !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
  return
}

// -----

// expected-error @+2 {{warp.load: ldmatrix.sync.aligned.m8n8.x4.shared.b16 delivers 8x4 matrices in layout [c0 c1 r0 r1 r2 |], the fragment over memory is [c1 c2 r0 r1 r2 | c0 r3]}}
func.func @width(%s: memref<32x64xf32, 3>, %i: index) {
  %x = warp.load %s[%i, %i] {matrices = "x4"} : memref<32x64xf32, 3> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.load: ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 delivers 8x8 matrices in layout [r1 r2 c0 c1 c2 | r0], the fragment over memory is [c1 c2 r0 r1 r2 | c0 r3 c3]; try without trans}}
func.func @with_trans(%s: memref<2x32x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  %x = warp.load %s[%i, %i, %i] {matrices = "x4.trans"} : memref<2x32x64xf16, #warp.swizzle<128>, 3> -> !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
  return
}

// -----

// expected-error @+2 {{warp.load: ldmatrix.sync.aligned.m8n8.x2.shared.b16 delivers 8x8 matrices in layout [c1 c2 r0 r1 r2 | c0], the fragment over memory is [r1 r2 c0 c1 c2 | r0 r3]; try with trans}}
func.func @without_trans(%s: memref<2x32x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  %x = warp.load %s[%i, %i, %i] {matrices = "x2"} : memref<2x32x64xf16, #warp.swizzle<128>, 3> -> !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.load: ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 delivers 8x8 matrices in layout [r1 r2 c0 c1 c2 | r0], the fragment over memory is [c1 c2 r0 r1 r2 | c0 c3]; try without trans}}
func.func @swapped_with_trans(%s: memref<2x32x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  %x = warp.load %s[%i, %i, %i] {matrices = "x2.trans", swapped} : memref<2x32x64xf16, #warp.swizzle<128>, 3> -> !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>
  return
}

// -----

// expected-error @+3 {{warp.load: ldmatrix.sync.aligned.m8n8.x4.shared.b16 needs sm_75 or later, the module's target is sm_70}}
builtin.module attributes {warp.target = #warp.target<sm_70>} {
func.func @target(%s: memref<2x32x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  %x = warp.load %s[%i, %i, %i] {matrices = "x4"} : memref<2x32x64xf16, #warp.swizzle<128>, 3> -> !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
  return
}
}

// -----

// expected-error-re @+2 {{warp.load: operand {{.*}} at position 0 does not verify}}
func.func @memref(%s: f16, %i: index) {
  %x = "warp.load"(%s, %i, %i) <{matrices = "x4"}> : (f16, index, index) -> !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
  return
}
