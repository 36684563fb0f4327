// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{warp.copy: expected one index for each of the 2 dimensions of the source, got 1}}
func.func @indices(%g: memref<100x77xf16>, %s: memref<2x32x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  warp.copy %g[%i] to %s[%i] : memref<100x77xf16> to memref<2x32x64xf16, #warp.swizzle<128>, 3>
  return
}

// -----

// expected-error @+2 {{warp.copy: expected the source to have at least 2 dimensions, got memref<100xf16>}}
func.func @source_rank(%g: memref<100xf16>, %s: memref<2x32x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  warp.copy %g[%i] to %s[%i] : memref<100xf16> to memref<2x32x64xf16, #warp.swizzle<128>, 3>
  return
}

// -----

// expected-error @+2 {{warp.copy: expected a destination in shared memory (space 3), got memref<32x64xf16>}}
func.func @destination(%g: memref<100x77xf16>, %s: memref<32x64xf16>, %i: index) {
  warp.copy %g[%i, %i] to %s[] : memref<100x77xf16> to memref<32x64xf16>
  return
}

// -----

// expected-error @+2 {{warp.copy: expected a destination of 0 stage index(es) and a tile, got rank 3}}
func.func @no_stage(%g: memref<100x77xf16>, %s: memref<2x32x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  warp.copy %g[%i, %i] to %s[] : memref<100x77xf16> to memref<2x32x64xf16, #warp.swizzle<128>, 3>
  return
}

// -----

// expected-error @+2 {{warp.copy: expected a destination of 1 stage index(es) and a tile, got rank 2}}
func.func @stage(%g: memref<100x77xf16>, %s: memref<32x64xf16, 3>, %i: index) {
  warp.copy %g[%i, %i] to %s[%i] : memref<100x77xf16> to memref<32x64xf16, 3>
  return
}

// -----

// expected-error @+2 {{warp.copy: expected source and destination of one element type, got bf16 and f16}}
func.func @element(%g: memref<100x77xbf16>, %s: memref<2x32x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  warp.copy %g[%i, %i] to %s[%i] : memref<100x77xbf16> to memref<2x32x64xf16, #warp.swizzle<128>, 3>
  return
}

// -----

// expected-error @+2 {{warp.copy: expected in_bounds for rows and columns, got 0 flags}}
func.func @in_bounds(%g: memref<100x77xf16>, %s: memref<2x32x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  warp.copy %g[%i, %i] to %s[%i] {in_bounds = []} : memref<100x77xf16> to memref<2x32x64xf16, #warp.swizzle<128>, 3>
  return
}

// -----

// expected-error @+2 {{warp.wait: expected a number of groups that may be in flight, got -1}}
func.func @pending() {
  warp.wait cp_async -1
  return
}

// -----

// expected-error @+2 {{Expected integer literal}}
func.func @pending_word() {
  warp.wait cp_async all
  return
}

// -----

// expected-error @+2 {{warp.pack: expected at least one share, got 0}}
func.func @no_share(%a: memref<5x7xf16>, %w: memref<8x8xf16>, %i: index) {
  warp.pack %a to %w share %i {shares = 0 : i64} : memref<5x7xf16> to memref<8x8xf16>
  return
}

// -----

// expected-error @+2 {{warp.pack: expected matrices of one element type, got memref<5x7xf16> and memref<8x8xbf16>}}
func.func @pack_types(%a: memref<5x7xf16>, %w: memref<8x8xbf16>, %i: index) {
  warp.pack %a to %w share %i {shares = 1 : i64} : memref<5x7xf16> to memref<8x8xbf16>
  return
}

// -----

// expected-error @+2 {{warp.pack: expected matrices of rank 2, got memref<7xf16> and memref<8x8xf16>}}
func.func @pack_rank(%a: memref<7xf16>, %w: memref<8x8xf16>, %i: index) {
  warp.pack %a to %w share %i {shares = 1 : i64} : memref<7xf16> to memref<8x8xf16>
  return
}

// -----

// expected-error @+2 {{warp.pack: expected room for all of memref<9x7xf16>, got memref<8x8xf16>}}
func.func @pack_room(%a: memref<9x7xf16>, %w: memref<8x8xf16>, %i: index) {
  warp.pack %a to %w share %i {shares = 1 : i64} : memref<9x7xf16> to memref<8x8xf16>
  return
}

// -----

// expected-error @+2 {{warp.copy: b6x16_p32 is of elements of 6 bits, got memref<32x64xf6E3M2FN> to memref<32x64xi8, #warp.swizzle<64>, 3 : i64>}}
func.func @format(%g: memref<32x64xf6E3M2FN>, %s: memref<32x64xi8, #warp.swizzle<64>, 3>, %i: index) {
  warp.copy %g[%i, %i] to %s[] {packed = "b6x16_p32"} : memref<32x64xf6E3M2FN> to memref<32x64xi8, #warp.swizzle<64>, 3>
  return
}

// -----

// expected-error @+2 {{warp.copy: b4x16_p64 is of elements of 4 bits in a tile of bytes, got memref<32x64xf8E4M3FN> to memref<32x64xi8, #warp.swizzle<64>, 3}}
func.func @packed(%g: memref<32x64xf8E4M3FN>, %s: memref<32x64xi8, #warp.swizzle<64>, 3>, %i: index) {
  warp.copy %g[%i, %i] to %s[] {packed = "b4x16_p64"} : memref<32x64xf8E4M3FN> to memref<32x64xi8, #warp.swizzle<64>, 3>
  return
}

// -----

// expected-error @+2 {{warp.copy: expected padded = [f, r, c, d, n] with four more for each of `at`, got array<i64: 0, 1>}}
func.func @padded(%g: memref<32x64xf16>, %s: memref<32x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  warp.copy %g[%i, %i] to %s[] at[%i] {padded = array<i64: 0, 1>} : memref<32x64xf16> to memref<32x64xf16, #warp.swizzle<128>, 3>
  return
}

// -----

// expected-error @+2 {{warp.copy: expected rows that may be out of bounds with `until`, got in_bounds = [true, ...]}}
func.func @until(%g: memref<32x64xf16>, %s: memref<32x64xf16, #warp.swizzle<128>, 3>, %i: index) {
  warp.copy %g[%i, %i] to %s[] until %i {in_bounds = [true, true]} : memref<32x64xf16> to memref<32x64xf16, #warp.swizzle<128>, 3>
  return
}

// -----

// expected-error @+2 {{warp.copy: expected a part of the rows of memref<9x8xf16, #warp.swizzle<16>, 3 : i64>, got number 1 of 2}}
func.func @part(%g: memref<100x77xf16>, %s: memref<9x8xf16, #warp.swizzle<16>, 3>, %i: index) {
  warp.copy %g[%i, %i] to %s[] {part = array<i64: 1, 2>} : memref<100x77xf16> to memref<9x8xf16, #warp.swizzle<16>, 3>
  return
}

// -----

// expected-error @+2 {{warp.copy: expected a part of the rows of memref<8x8xf16, #warp.swizzle<16>, 3 : i64>, got 2 from number 3 of 4}}
func.func @parts(%g: memref<100x77xf16>, %s: memref<8x8xf16, #warp.swizzle<16>, 3>, %i: index) {
  warp.copy %g[%i, %i] to %s[] {part = array<i64: 3, 4, 0, 2>} : memref<100x77xf16> to memref<8x8xf16, #warp.swizzle<16>, 3>
  return
}
