// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{warp.window: expected a loop for each dimension of memref<4x3xf16, strided<[1, 1]>>, got (d0) -> (d0)}}
func.func @loops(%x: memref<9xf16>) {
  %0 = warp.window %x affine_map<(i) -> (i)> : memref<9xf16> -> memref<4x3xf16, strided<[1, 1]>>
  return
}

// -----

// expected-error @+2 {{warp.window: expected the result to be memref<4x3xf16, strided<[1, 1]>>, got memref<4x3xf16>}}
func.func @result(%x: memref<9xf16>) {
  %0 = warp.window %x affine_map<(i, j) -> (i + j)> : memref<9xf16> -> memref<4x3xf16>
  return
}

// -----

// expected-error @+2 {{warp.window: loops of 8x3 along (d0, d1) -> ((d0 + d1)) pass the end of dimension 0 of memref<9xf16>}}
func.func @end(%x: memref<9xf16>) {
  %0 = warp.window %x affine_map<(i, j) -> (i + j)> : memref<9xf16> -> memref<8x3xf16, strided<[1, 1]>>
  return
}

// -----

// expected-error @+2 {{warp.window: expected sums of loops times constants, from 0 on or above, for each dimension of memref<9xf16>, got (d0) -> ((d0 + -1))}}
func.func @before(%x: memref<9xf16>) {
  %0 = warp.window %x affine_map<(i) -> (i - 1)> : memref<9xf16> -> memref<8xf16, strided<[1]>>
  return
}

// -----

// expected-error @+2 {{warp.window: loops of 9 along (d0) -> (((d0 * -1) + 7)) pass the end of dimension 0 of memref<9xf16>}}
func.func @backwards(%x: memref<9xf16>) {
  %0 = warp.window %x affine_map<(i) -> (7 - i)> : memref<9xf16> -> memref<9xf16, strided<[-1], offset: 7>>
  return
}

// -----

// expected-error @+2 {{warp.window: expected 1 sizes of memref<?xf16, strided<[1]>>, got 0}}
func.func @sizes(%x: memref<9xf16>) {
  %0 = warp.window %x affine_map<(i) -> (i)> : memref<9xf16> -> memref<?xf16, strided<[1]>>
  return
}
