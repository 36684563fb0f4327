// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{warp.constant: expected a value of the element type f32, got i32}}
func.func @constant() {
  %z = warp.constant 0 : i32 : !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.tile_mma: 'f17' is no type of the ISA that B could be multiplied as}}
func.func @type(%A: memref<64x32xf16, 3>, %B: memref<32x64xf16, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %m: index) {
  %d = warp.tile_mma %A, %B, %c part [%m, %m, %m] {types = ["f16", "f17"]} : memref<64x32xf16, 3>, memref<32x64xf16, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.tile_mma: expected a type each for A and B, got 1}}
func.func @types(%A: memref<64x32xf16, 3>, %B: memref<32x64xf16, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %m: index) {
  %d = warp.tile_mma %A, %B, %c part [%m, %m, %m] {types = ["f16"]} : memref<64x32xf16, 3>, memref<32x64xf16, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.tile_mma: expected B to be a tile in shared memory, got memref<32x64xf16>}}
func.func @space(%A: memref<64x32xf16, 3>, %B: memref<32x64xf16>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %m: index) {
  %d = warp.tile_mma %A, %B, %c part [%m, %m, %m] {types = ["f16", "f16"]} : memref<64x32xf16, 3>, memref<32x64xf16>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.tile_mma: A cannot be multiplied as f16, got memref<64x32xf32, 3 : i64>}}
func.func @words(%A: memref<64x32xf32, 3>, %B: memref<32x64xf16, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %m: index) {
  %d = warp.tile_mma %A, %B, %c part [%m, %m, %m] {types = ["f16", "f16"]} : memref<64x32xf32, 3>, memref<32x64xf16, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.tile_mma: expected A and B to agree on k, got memref<64x32xf16, 3 : i64> and memref<64x32xf16, 3 : i64>}}
func.func @k(%A: memref<64x32xf16, 3>, %c: !warp.fragment<acc, 64x32xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %m: index) {
  %d = warp.tile_mma %A, %A, %c part [%m, %m, %m] {types = ["f16", "f16"]} : memref<64x32xf16, 3>, memref<64x32xf16, 3>, !warp.fragment<acc, 64x32xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.tile_mma: expected a warp's `part` [m, n, k] of the tiles, got 1 indices}}
func.func @no_part(%A: memref<64x32xf16, 3>, %c: !warp.fragment<acc, 32x32xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %m: index) {
  %d = warp.tile_mma %A, %A, %c part [%m] {types = ["f16", "f16"], transposed_b} : memref<64x32xf16, 3>, memref<64x32xf16, 3>, !warp.fragment<acc, 32x32xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.tile_mma: expected a fragment of accumulators in parts of 64x64 that fill it, got !warp.fragment<acc, 48x32xf32}}
func.func @uneven(%A: memref<64x32xf16, 3>, %c: !warp.fragment<acc, 48x32xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %m: index) {
  %d = warp.tile_mma %A, %A, %c part [%m, %m, %m] {types = ["f16", "f16"], transposed_b} : memref<64x32xf16, 3>, memref<64x32xf16, 3>, !warp.fragment<acc, 48x32xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.tile_mma: expected a dense A in registers to be a fragment a of C's rows, got !warp.fragment<a, 16x64xf16}}
func.func @held(%P: !warp.fragment<a, 16x64xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %B: memref<64x64xf16, 3>, %c: !warp.fragment<acc, 32x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %m: index) {
  %d = warp.tile_mma %P, %B, %c part [%m, %m, %m] {types = ["f16", "f16"]} : !warp.fragment<a, 16x64xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, memref<64x64xf16, 3>, !warp.fragment<acc, 32x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+3 {{warp.tile_mma: expected what is read beside A and B to be a tile in shared memory, got memref<4x64xi32>}}
func.func @metadata(%A: memref<64x32xf16, 3>, %E: memref<4x64xi32>, %B: memref<64x64xf16, 3>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %m: index) {
  %a = warp.sparse %A, %E {padded} : memref<64x32xf16, 3>, memref<4x64xi32>
  %d = warp.tile_mma %a, %B, %c part [%m, %m, %m] {types = ["f16", "f16"]} : !warp.operand<memref<64x32xf16, 3>>, memref<64x64xf16, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.epilogue: expected one index for each of the 2 dimensions of D, got 1}}
func.func @place(%c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %D: memref<64x64xf32>, %m: index) {
  warp.epilogue %c into %D[%m] : !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<64x64xf32>
  return
}

// -----

// expected-error @+2 {{warp.epilogue: expected C of the shape of D, got memref<64x32xf32> and memref<64x64xf32>}}
func.func @plus(%c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %C: memref<64x32xf32>, %D: memref<64x64xf32>, %m: index) {
  warp.epilogue %c plus %C into %D[%m, %m] : !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<64x64xf32> plus memref<64x32xf32>
  return
}

// -----

// expected-error @+2 {{warp.pointwise: expected a map of each of 1 operands, got 0}}
func.func @along(%c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %D: memref<64x64xf32>, %m: index) {
  %epilogue = warp.pointwise %D : memref<64x64xf32> (%x: f32, %y: f32) {
    warp.yield %x : f32
  }
  warp.epilogue %c into %D[%m, %m] through %epilogue : !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<64x64xf32>
  return
}

// -----

// expected-error @+5 {{warp.epilogue: expected epilogue operand 0 by rows and columns as D is, got (d0, d1) -> (d1, d0)}}
func.func @diagonal(%c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %D: memref<64x64xf32>, %m: index) {
  %epilogue = warp.pointwise %D maps [affine_map<(m, n) -> (n, m)>] : memref<64x64xf32> (%x: f32, %y: f32) {
    warp.yield %x : f32
  }
  warp.epilogue %c into %D[%m, %m] through %epilogue : !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<64x64xf32>
  return
}

// -----

// expected-error @+5 {{warp.epilogue: expected epilogue operand 0 of rank 1, got memref<64x64xf32>}}
func.func @rank_of_operand(%c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %D: memref<64x64xf32>, %m: index) {
  %epilogue = warp.pointwise %D maps [affine_map<(m, n) -> (m)>] : memref<64x64xf32> (%x: f32, %y: f32) {
    warp.yield %x : f32
  }
  warp.epilogue %c into %D[%m, %m] through %epilogue : !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<64x64xf32>
  return
}

// -----

// expected-error @+2 {{warp.pointwise: expected a function of one element or of two, got 3}}
func.func @arguments(%c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %D: memref<64x64xf32>, %m: index) {
  %epilogue = warp.pointwise (%x: f32, %y: f32, %z: f32) {
    warp.yield %x : f32
  }
  warp.epilogue %c into %D[%m, %m] through %epilogue : !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<64x64xf32>
  return
}

// -----

// expected-error @+6 {{warp.epilogue: expected the index of a loop that elements run along, 0, 1, got 2}}
func.func @index(%c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %D: memref<64x64xi32>, %m: index) {
  %epilogue = warp.pointwise (%x: f32) {
    %k = warp.index 2 : i32
    warp.yield %k : i32
  }
  warp.epilogue %c into %D[%m, %m] through %epilogue : !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<64x64xi32>
  return
}

// -----

// expected-error @+3 {{warp.tile_mma: expected scales of groups of integers with their size, and [k, n] of the tiles}}
func.func @groups(%A: memref<64x64xf16, 3>, %B: memref<64x64xi8, 3>, %S: memref<8x96xf32>, %c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %k: index) {
  %b = warp.stored %B as s8 : memref<64x64xi8, 3>
  %d = warp.tile_mma %A, %b, %c part [%k, %k, %k] {types = ["f16", "f16"]}
    : memref<64x64xf16, 3>, !warp.operand<memref<64x64xi8, 3>>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]> times %S[%k, %k] : memref<8x96xf32>
  return
}
