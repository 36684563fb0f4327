// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{warp.store: stmatrix writes shared memory (memory space 3), got memref<32x64xf16>}}
func.func @space(%d: !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, %s: memref<32x64xf16>, %i: index) {
  warp.store %d, %s[%i, %i] {matrices = "x2"} : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<32x64xf16>
  return
}

// -----

// expected-error @+2 {{warp.store: expected one index for each of the 2 dimensions of the memref, got 1}}
func.func @indices(%d: !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, %s: memref<32x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  warp.store %d, %s[%i] {matrices = "x2"} : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<32x64xf16, #warp.swizzle<128>, 3>
  return
}

// -----

// expected-error @+2 {{warp.store: expected memory of the fragment's element type f16, got i8}}
func.func @element(%d: !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, %s: memref<32x64xi8, #warp.swizzle<64>, 3>, %i: index) {
  warp.store %d, %s[%i, %i] {matrices = "x2"} : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<32x64xi8, #warp.swizzle<64>, 3>
  return
}

// -----

// expected-error @+2 {{warp.store: stmatrix stores 1, 2 or 4 matrices, got 3}}
func.func @count(%d: !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, %s: memref<32x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  "warp.store"(%d, %s, %i, %i) <{operandSegmentSizes = array<i32: 1, 1, 2, 0, 0, 0, 0>, matrices = "x3"}> : (!warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<32x64xf16, #warp.swizzle<128>, 3>, index, index) -> ()
  return
}

// -----

// expected-error @+2 {{warp.store: stmatrix with trans moves elements of 8 or 16 bits, got 32}}
func.func @trans_of_words(%d: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %s: memref<32x64xf32, 3>, %i: index) {
  warp.store %d, %s[%i, %i] {matrices = "x2.trans"} : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<32x64xf32, 3>
  return
}

// -----

// expected-error @+2 {{warp.store: stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 takes 8x8 matrices in layout [r1 r2 c0 c1 c2 | r0], the fragment over memory is [c1 c2 r0 r1 r2 | c0 r3]; try without trans}}
func.func @layout(%d: !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, %s: memref<32x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  warp.store %d, %s[%i, %i] {matrices = "x2.trans"} : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<32x64xf16, #warp.swizzle<128>, 3>
  return
}

// -----

// expected-error @+2 {{warp.load: ldmatrix.sync.aligned.m8n8.x2.shared.b16 delivers 8x8 matrices in layout [c1 c2 r0 r1 r2 | c0], the fragment over memory is [r1 r2 c0 c1 c2 | r0 r3]; try with trans, or with swapped if memory holds the transpose of the fragment}}
func.func @transpose_in_memory(%s: memref<64x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  %x = warp.load %s[%i, %i] {matrices = "x2"} : memref<64x64xf16, #warp.swizzle<128>, 3> -> !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>
  return
}

// -----

// expected-error @+3 {{warp.store: stmatrix.sync.aligned.m8n8.x2.shared.b16 needs sm_90 or later, the module's target is sm_80}}
builtin.module attributes {warp.target = #warp.target<sm_80>} {
func.func @target(%d: !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, %s: memref<32x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  warp.store %d, %s[%i, %i] {matrices = "x2"} : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<32x64xf16, #warp.swizzle<128>, 3>
  return
}
}

// -----

// expected-error @+3 {{warp.store: stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 needs sm_100a, sm_101a, sm_120a from PTX 8.7, the sm_100f family from PTX 8.8, the sm_101f family from PTX 8.8, the sm_110f family from PTX 9.0, or the sm_120f family from PTX 8.8, the module's target is sm_90a}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
func.func @bytes_target(%d: !warp.fragment<acc, 16x8xi8, [c1 c2 r0 r1 r2 | c0 r3]>, %s: memref<32x64xi8, #warp.swizzle<64>, 3>, %i: index) {
  warp.store %d, %s[%i, %i] {matrices = "x1.trans", swapped} : !warp.fragment<acc, 16x8xi8, [c1 c2 r0 r1 r2 | c0 r3]>, memref<32x64xi8, #warp.swizzle<64>, 3>
  return
}
}

// -----

// expected-error @+2 {{warp.load: ldmatrix with trans moves elements of 8 or 16 bits, got 32}}
func.func @load_trans_of_words(%s: memref<32x64xf32, 3>, %i: index) {
  %x = warp.load %s[%i, %i] {matrices = "x4.trans"} : memref<32x64xf32, 3> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.load: ldmatrix loads 1 or 2 matrices, got 4}}
func.func @four_of_16_rows(%s: memref<32x64xi8, #warp.swizzle<64>, 3>, %i: index) {
  %x = warp.load %s[%i, %i] {matrices = "x4.trans"} : memref<32x64xi8, #warp.swizzle<64>, 3> -> !warp.fragment<b, 32x16xi8, [r2 r3 c0 c1 c2 | r0 r1 r4]>
  return
}

// -----

// expected-error @+2 {{warp.load: ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 delivers 16x16 matrices in layout [r2 r3 c0 c1 c2 | r0 r1 c3], the fragment over memory is [r2 r3 c0 c1 c2 | r0 r1 r4]}}
func.func @half_a_matrix(%s: memref<32x64xi8, #warp.swizzle<64>, 3>, %i: index) {
  %x = warp.load %s[%i, %i] {matrices = "x1.trans"} : memref<32x64xi8, #warp.swizzle<64>, 3> -> !warp.fragment<b, 32x8xi8, [r2 r3 c0 c1 c2 | r0 r1 r4]>
  return
}

// -----

// expected-error @+2 {{warp.load: b4x16_p64 is of elements of 4 bits that get a byte each, got !warp.fragment<a, 16x32xf6E3M2FN,}}
func.func @packed_bits(%s: memref<32x64xi8, #warp.swizzle<64>, 3>, %i: index) {
  %x = warp.load %s[%i, %i] {matrices = "x4.b4x16_p64"} : memref<32x64xi8, #warp.swizzle<64>, 3> -> !warp.fragment<a, 16x32xf6E3M2FN, [c2 c3 r0 r1 r2 | c0 c1 r3 c4], bytes>
  return
}

// -----

// expected-error @+2 {{warp.load: b4x16_p64 is of elements of 4 bits that get a byte each, got !warp.fragment<a, 16x64xf4E2M1FN,}}
func.func @packed_without_bytes(%s: memref<32x64xf4E2M1FN, 3>, %i: index) {
  %x = warp.load %s[%i, %i] {matrices = "x4.b4x16_p64"} : memref<32x64xf4E2M1FN, 3> -> !warp.fragment<a, 16x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>
  return
}

// -----

// expected-error @+2 {{warp.load: expected memory of bytes for e3m2 in b6x16_p32, got f6E3M2FN}}
func.func @packed_memory(%s: memref<32x64xf6E3M2FN, 3>, %i: index) {
  %x = warp.load %s[%i, %i] {matrices = "x4.b6x16_p32"} : memref<32x64xf6E3M2FN, 3> -> !warp.fragment<a, 16x32xf6E3M2FN, [c2 c3 r0 r1 r2 | c0 c1 r3 c4], bytes>
  return
}

// -----

// expected-error @+2 {{warp.load: expected x1, x2 or x4 matrices, then .trans, .b16 or .b6x16_p32, .b4x16_p64, got 'x4.b5'}}
func.func @packed_format(%s: memref<32x64xi8, #warp.swizzle<64>, 3>, %i: index) {
  %x = "warp.load"(%s, %i, %i) <{matrices = "x4.b5"}> : (memref<32x64xi8, #warp.swizzle<64>, 3>, index, index) -> !warp.fragment<a, 16x32xf6E3M2FN, [c2 c3 r0 r1 r2 | c0 c1 r3 c4], bytes>
  return
}

// -----

// expected-error @+2 {{warp.load: expected memory of 32-bit words, 32 in a row, got memref<4x32xf16, 3 : i64>}}
func.func @words_of_halves(%m: memref<4x32xf16, 3>, %i: index) {
  %e = warp.load %m[%i, %i] {registers = "tiles"} : memref<4x32xf16, 3> -> !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>
  return
}

// -----

// expected-error @+2 {{warp.load: expected one index for each of the 2 dimensions of the memref, got 1}}
func.func @words_indices(%m: memref<4x64xi32>, %i: index) {
  %e = warp.load %m[%i] {registers = "vectors"} : memref<4x64xi32> -> !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>
  return
}

// -----

// expected-error @+2 {{warp.load: expected scales in shared memory (memory space 3), got memref<32x4xf8E8M0FNU>}}
func.func @scales_space(%s: memref<32x4xf8E8M0FNU>, %i: index) {
  %x = warp.load %s[%i, %i] : memref<32x4xf8E8M0FNU> -> !warp.fragment<scale, 32x1xf8E8M0FNU, [r3 r4 r0 r1 r2 | b0 b1]>
  return
}

// -----

// expected-error @+2 {{warp.load: expected memory of f8E8M0FNU, got memref<32x4xf8E4M3FN, 3}}
func.func @scales_type(%s: memref<32x4xf8E4M3FN, 3>, %i: index) {
  %x = warp.load %s[%i, %i] : memref<32x4xf8E4M3FN, 3> -> !warp.fragment<scale, 32x1xf8E8M0FNU, [r3 r4 r0 r1 r2 | b0 b1]>
  return
}

// -----

// expected-error @+2 {{warp.load: expected rows of whole words of 4 scales, got 6 in memref<32x6xf8E8M0FNU, 3}}
func.func @scales_words(%s: memref<32x6xf8E8M0FNU, 3>, %i: index) {
  %x = warp.load %s[%i, %i] : memref<32x6xf8E8M0FNU, 3> -> !warp.fragment<scale, 32x1xf8E8M0FNU, [r3 r4 r0 r1 r2 | b0 b1]>
  return
}

// -----

// expected-error @+2 {{warp.load: expected a fragment of scales, one base tile deep, got !warp.fragment<scale, 32x2xf8E8M0FNU, [r3 r4 r0 r1 r2 | b0 b1]>}}
func.func @scales_deep(%s: memref<32x4xf8E8M0FNU, 3>, %i: index) {
  %x = warp.load %s[%i, %i] : memref<32x4xf8E8M0FNU, 3> -> !warp.fragment<scale, 32x2xf8E8M0FNU, [r3 r4 r0 r1 r2 | b0 b1]>
  return
}

// -----

// expected-error @+2 {{warp.load: expected metadata of 16 rows for each warp, got !warp.fragment<meta, 16x64xi4, [c2 r0 r1 r2 c3 | c0 c1 r3 | c4 c5]>}}
func.func @metadata_of_warps_along_k(%s: memref<4x8x128xi32, 3>, %i: index) {
  %x = warp.load %s[%i, %i, %i] {registers = "tiles"} : memref<4x8x128xi32, 3> -> !warp.fragment<meta, 16x64xi4, [c2 r0 r1 r2 c3 | c0 c1 r3 | c4 c5]>
  return
}

// -----

// expected-error @+2 {{warp.load: expected scales that one warp holds, got that of 4 warps !warp.fragment<scale, 128x1xf8E8M0FNU, [r3 r4 r0 r1 r2 | b0 b1 | r5 r6]>}}
func.func @scales_of_a_warpgroup(%s: memref<128x4xf8E8M0FNU, 3>, %i: index) {
  %x = warp.load %s[%i, %i] : memref<128x4xf8E8M0FNU, 3> -> !warp.fragment<scale, 128x1xf8E8M0FNU, [r3 r4 r0 r1 r2 | b0 b1 | r5 r6]>
  return
}

// -----

// expected-error @+2 {{warp.convert_layout: expected the warps to keep their rows, got}}
func.func @layout_of_a_warpgroup(%c: !warp.fragment<acc, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>) {
  %x = warp.convert_layout %c : !warp.fragment<acc, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]> to !warp.fragment<acc, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.store: expected matrices where memory gets the transpose of a fragment}}
func.func @swapped_elements(%d: !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, %s: memref<32x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  warp.store %d, %s[%i, %i] {swapped} : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<32x64xf16, #warp.swizzle<128>, 3>
  return
}

// -----

// expected-error @+2 {{warp.store: matrices go to shared memory: no in_bounds, no registers, no condition}}
func.func @matrices_in_bounds(%d: !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, %s: memref<32x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  warp.store %d, %s[%i, %i] {matrices = "x2", in_bounds = [true, true]} : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<32x64xf16, #warp.swizzle<128>, 3>
  return
}

// -----

// expected-error @+2 {{warp.store: stmatrix has no b16: it stores elements as they are}}
func.func @pieces(%d: !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, %s: memref<32x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  warp.store %d, %s[%i, %i] {matrices = "x2.trans.b16"} : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<32x64xf16, #warp.swizzle<128>, 3>
  return
}

// -----

// expected-error @+2 {{warp.load: matrices lie in shared memory: they have no in_bounds and no registers}}
func.func @loaded_in_bounds(%s: memref<32x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  %x = warp.load %s[%i, %i] {matrices = "x4", in_bounds = [true, true]} : memref<32x64xf16, #warp.swizzle<128>, 3> -> !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
  return
}
