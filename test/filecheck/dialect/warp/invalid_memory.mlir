// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{warp.load: expected one index for each of the 2 dimensions of the memref, got 1}}
func.func @load_indices(%s: memref<100x77xf32>, %i: index) {
  %x = warp.load %s[%i] : memref<100x77xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.load: expected the memref to have at least 2 dimensions, got memref<100xf32>}}
func.func @load_rank(%s: memref<100xf32>, %i: index) {
  %x = warp.load %s[%i] : memref<100xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.load: expected memory of the fragment's element type f16, got f32}}
func.func @load_element(%s: memref<100x77xf32>, %i: index) {
  %x = warp.load %s[%i, %i] : memref<100x77xf32> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.load: expected in_bounds for rows and columns, got 1 flags}}
func.func @load_in_bounds(%s: memref<100x77xf32>, %i: index) {
  %x = warp.load %s[%i, %i] {in_bounds = [true]} : memref<100x77xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.load: Expected attribute i1 but got i32}}
func.func @load_in_bounds_numbers(%s: memref<100x77xf32>, %i: index) {
  %x = warp.load %s[%i, %i] {in_bounds = [1 : i32, 2 : i32]} : memref<100x77xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.store: expected one index for each of the 2 dimensions of the memref, got 3}}
func.func @store_indices(%s: memref<100x77xf32>, %i: index, %x: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  warp.store %x, %s[%i, %i, %i] : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<100x77xf32>
  return
}

// -----

// expected-error @+2 {{warp.store: expected the memref to have at least 2 dimensions, got memref<f32>}}
func.func @store_rank(%s: memref<f32>, %i: index, %x: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  warp.store %x, %s[] : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<f32>
  return
}

// -----

// expected-error @+2 {{warp.store: expected memory of the fragment's element type f16, got f32}}
func.func @store_element(%s: memref<100x77xf32>, %i: index, %x: !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>) {
  warp.store %x, %s[%i, %i] : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<100x77xf32>
  return
}

// -----

// expected-error @+2 {{warp.store: elements are stored within the columns of a matrix in global memory; got memref<16x8xf32, 3 : i64>}}
func.func @store_within(%s: memref<16x8xf32, 3>, %i: index, %x: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  warp.store %x, %s[%i, %i] {within} : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf32, 3>
  return
}

// -----

// expected-error @+2 {{warp.store: expected in_bounds for rows and columns, got 3 flags}}
func.func @store_in_bounds(%s: memref<100x77xf32>, %i: index, %x: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  warp.store %x, %s[%i, %i] {in_bounds = [true, true, true]} : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<100x77xf32>
  return
}

// -----

// expected-error @+2 {{vector<8xf32> should be of base attribute warp.fragment}}
func.func @load_vector(%s: memref<100x77xf32>, %i: index) {
  %x = warp.load %s[%i, %i] : memref<100x77xf32> -> vector<8xf32>
  return
}

// -----

// expected-error-re @+2 {{warp.store: operand {{.*}} at position 1 does not verify:}}
func.func @store_tensor(%s: tensor<100x77xf32>, %i: index, %x: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  "warp.store"(%x, %s, %i, %i) <{operandSegmentSizes = array<i32: 1, 1, 2, 0, 0, 0, 0>}> : (!warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, tensor<100x77xf32>, index, index) -> ()
  return
}

// -----

// expected-error @+2 {{warp.prefetch: expected global memory, got memref<128x64xf16, 3 : i64>}}
func.func @prefetch_shared(%s: memref<128x64xf16, 3>, %i: index) {
  warp.prefetch %s[%i, %i] : memref<128x64xf16, 3> as <acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.prefetch: expected memory of the fragment's element type f16, got f32}}
func.func @prefetch_element(%s: memref<100x77xf32>, %i: index) {
  warp.prefetch %s[%i, %i] : memref<100x77xf32> as <acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.prefetch: expected one index for each of the 2 dimensions of the memref, got 1}}
func.func @prefetch_indices(%s: memref<100x77xf32>, %i: index) {
  warp.prefetch %s[%i] : memref<100x77xf32> as <acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.store: another CTA's memory is shared, and each lane writes its elements; got memref<100x77xf32>}}
func.func @store_at(%x: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %s: memref<100x77xf32>, %i: index) {
  warp.store %x, %s[%i, %i] at %i : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<100x77xf32>
  return
}

// -----

// expected-error @+2 {{warp.store: one element is sent to all CTAs, and counted there; got !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>}}
func.func @counted(%x: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %s: memref<16x8xf32, 3>, %i: index, %full: !warp.barriers<2>) {
  warp.store %x, %s[%i, %i] counted %full[%i] : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf32, 3>, !warp.barriers<2>
  return
}
