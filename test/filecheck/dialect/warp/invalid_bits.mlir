// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{warp.load_bits: expected a stride for each of 1 indices, got 2}}
func.func @strides(%a: memref<5x7xbf16>, %i: index) {
  %0 = warp.load_bits %a[%i] {strides = array<i64: 14, 1>} : memref<5x7xbf16> -> i32
  return
}

// -----

// expected-error @+2 {{warp.load_bits: expected integers of 8, 16, 32 bits, got i64}}
func.func @width(%a: memref<5x7xbf16>) {
  %0 = warp.load_bits %a[] {strides = array<i64>} : memref<5x7xbf16> -> i64
  return
}

// -----

// expected-error @+2 {{warp.load_bits: expected global memory, got memref<8x16xbf16, 3 : i64>}}
func.func @shared(%a: memref<8x16xbf16, 3>) {
  %0 = warp.load_bits %a[] {strides = array<i64>} : memref<8x16xbf16, 3> -> i32
  return
}

// -----

// expected-error @+2 {{warp.store_bits: expected 1, 2, 4 values, got 3}}
func.func @values(%w: memref<8x16xbf16>, %x: i32) {
  warp.store_bits %x, %x, %x to %w[] {strides = array<i64>} : i32, i32, i32 to memref<8x16xbf16>
  return
}

// -----

// expected-error @+3 {{attribute i32 expected from variable 'Bits', but got i16}}
func.func @different(%w: memref<8x16xbf16>, %x: i32, %y: i16) {
  warp.store_bits %x, %y to %w[] {strides = array<i64>} : i32, i16 to memref<8x16xbf16>
  return
}
