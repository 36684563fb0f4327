// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{warp.mma: expected A and C to number m alike: the instruction's bits of m are bits 1 2 3 0 in A and 0 1 2 3 in C}}
func.func @rows(%a: !warp.fragment<a, 16x32xi8, [c2 c3 r1 r2 r3 | c0 c1 r0 c4]>, %b: !warp.fragment<b, 32x8xi8, [r2 r3 c0 c1 c2 | r0 r1 r4]>, %c: !warp.fragment<acc, 16x8xi32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.mma m16n8k32 %a, %b, %c : !warp.fragment<a, 16x32xi8, [c2 c3 r1 r2 r3 | c0 c1 r0 c4]>, !warp.fragment<b, 32x8xi8, [r2 r3 c0 c1 c2 | r0 r1 r4]>, !warp.fragment<acc, 16x8xi32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected B and C to number n alike: the instruction's bits of n are bits 1 2 3 in B and 0 1 2 in C}}
func.func @columns(%a: !warp.fragment<a, 16x32xi8, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>, %b: !warp.fragment<b, 32x16xi8, [r2 r3 c1 c2 c3 | r0 r1 r4 c0]>, %c: !warp.fragment<acc, 16x16xi32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.mma m16n8k32 %a, %b, %c : !warp.fragment<a, 16x32xi8, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>, !warp.fragment<b, 32x16xi8, [r2 r3 c1 c2 c3 | r0 r1 r4 c0]>, !warp.fragment<acc, 16x16xi32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected A and B to number k alike: the instruction's bits of k are bits 0 1 2 in A and 1 2 0 in B}}
func.func @sums(%a: !warp.fragment<a, 16x8xf64, [c0 c1 r0 r1 r2 | r3 c2]>, %b: !warp.fragment<b, 8x8xf64, [r1 r2 c0 c1 c2 | r0]>, %c: !warp.fragment<acc, 16x8xf64, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.mma m16n8k8 %a, %b, %c : !warp.fragment<a, 16x8xf64, [c0 c1 r0 r1 r2 | r3 c2]>, !warp.fragment<b, 8x8xf64, [r1 r2 c0 c1 c2 | r0]>, !warp.fragment<acc, 16x8xf64, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected matrix B of m16n8k32 s8 to be 2 x b32 per lane in layout [r2 r3 c0 c1 c2 | r0 r1 r4], got 4 in [r2 r3 c1 c2 c3 | c0 r1 r0 r4]}}
func.func @not_taken_apart(%a: !warp.fragment<a, 16x32xi8, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>, %b: !warp.fragment<b, 32x16xi8, [r2 r3 c1 c2 c3 | c0 r1 r0 r4]>, %c: !warp.fragment<acc, 16x16xi32, [c2 c3 r0 r1 r2 | c1 r3 c0]>) {
  %d = warp.mma m16n8k32 %a, %b, %c : !warp.fragment<a, 16x32xi8, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>, !warp.fragment<b, 32x16xi8, [r2 r3 c1 c2 c3 | c0 r1 r0 r4]>, !warp.fragment<acc, 16x16xi32, [c2 c3 r0 r1 r2 | c1 r3 c0]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected A and the instruction to number m alike: the instruction's bits of m are bits 1 2 3 0 in A and 0 1 2 3 in the instruction}}
func.func @metadata(%a: !warp.fragment<a, 16x16xf16, [c1 c2 r1 r2 r3 | c0 r0 c3]>, %b: !warp.fragment<b, 32x8xf16, [r1 r2 c0 c1 c2 | r0 r3 r4]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r1 r2 r3 | c0 r0]>, %e: !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>) {
  %d = warp.mma m16n8k32 %a, %b, %c sparse %e {ordered, selector = 1 : i64} : !warp.fragment<a, 16x16xf16, [c1 c2 r1 r2 r3 | c0 r0 c3]>, !warp.fragment<b, 32x8xf16, [r1 r2 c0 c1 c2 | r0 r3 r4]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r1 r2 r3 | c0 r0]> sparse !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>
  return
}

// -----

// expected-error @+2 {{warp.load: b16 is for elements of at most 16 bits, unpacked, got 32 bits}}
func.func @words(%s: memref<8x8xtf32, 3>, %i: index) {
  %b = warp.load %s[%i, %i] {matrices = "x2.trans.b16"} : memref<8x8xtf32, 3> -> !warp.fragment<b, 8x8xtf32, [r0 r1 c0 c1 c2 | r2]>
  return
}

// -----

// expected-error @+2 {{warp.convert_layout: expected only the layout and the operand to change, got}}
func.func @element(%x: !warp.fragment<b, 32x8xi8, [r2 r3 c0 c1 c2 | r0 r1 r4]>) {
  %y = warp.convert_layout %x : !warp.fragment<b, 32x8xi8, [r2 r3 c0 c1 c2 | r0 r1 r4]> to !warp.fragment<b, 32x8xui8, [r2 r3 c0 c1 c2 | r0 r1 r4]>
  return
}

// -----

// expected-error @+2 {{warp.load: expected the transpose of a fragment in shared memory, got memref<8x8xf64>}}
func.func @swapped(%s: memref<8x8xf64>, %i: index) {
  %x = warp.load %s[%i, %i] {swapped} : memref<8x8xf64> -> !warp.fragment<b, 8x8xf64, [r0 r1 c0 c1 c2 | r2]>
  return
}

// -----

// expected-error @+2 {{warp.load: a tile in shared memory holds all of a fragment: it has no in_bounds}}
func.func @in_bounds(%s: memref<8x8xf64, 3>, %i: index) {
  %x = warp.load %s[%i, %i] {in_bounds = [true, true]} : memref<8x8xf64, 3> -> !warp.fragment<b, 8x8xf64, [r0 r1 c0 c1 c2 | r2]>
  return
}

// -----

// expected-error @+2 {{warp.load: expected the elements of a byte to lie side by side in memory, there the fragment is [r3 r4 c0 c1 c2 | r0 r1 r2]}}
func.func @pairs(%s: memref<32x8xi4, 3>, %i: index) {
  %x = warp.load %s[%i, %i] : memref<32x8xi4, 3> -> !warp.fragment<b, 32x8xi4, [r3 r4 c0 c1 c2 | r0 r1 r2]>
  return
}

// -----

// expected-error @below {{expected a swizzle to skip 0 to 2 bits of the row, got 3}}
func.func @skip(%x: memref<8x64xi8, #warp.swizzle<64, skip 3>, 3>) {
  return
}
