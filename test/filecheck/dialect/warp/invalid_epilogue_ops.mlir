// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{warp.subfragment: expected only the shape to change}}
func.func @f(%d: !warp.fragment<acc, 32x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %x = warp.subfragment %d[0, 0] : !warp.fragment<acc, 32x16xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error-re @+2 {{warp.subfragment: expected fragments that differ in their rows only, got {{.*}} and}}
func.func @f(%d: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %e: !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %x = warp.subfragment %d, %e[0, 0] : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 32x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error-re @+2 {{warp.subfragment: expected fragments that differ in the columns of 16 rows only, got {{.*}} and}}
func.func @f(%d: !warp.fragment<acc, 32x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %x = warp.subfragment %d, %d[0, 0] : !warp.fragment<acc, 32x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 32x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 32x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.subfragment: expected offsets in whole 16x8 tiles, got (8, 0)}}
func.func @f(%d: !warp.fragment<acc, 32x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %x = warp.subfragment %d[8, 0] : !warp.fragment<acc, 32x16xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error-re @+2 {{warp.subfragment: expected a part of {{.*}}, got {{.*}} at (16, 0)}}
func.func @f(%d: !warp.fragment<acc, 32x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %x = warp.subfragment %d[16, 0] : !warp.fragment<acc, 32x16xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 32x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.load: expected memory of rank 1, or a tile of rank 2 in shared memory, got memref<4x8xf32>}}
func.func @f(%v: memref<4x8xf32>, %i: index) {
  %x = warp.load %v[%i] {along = "columns"} : memref<4x8xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.load: expected memory of the fragment's element type f16, got f32}}
func.func @f(%v: memref<8xf32>, %i: index) {
  %x = warp.load %v[%i] {along = "columns"} : memref<8xf32> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.load: expected a vector along rows or columns, got 'k'}}
func.func @f(%v: memref<8xf32>, %i: index) {
  %x = warp.load %v[%i] {along = "k"} : memref<8xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.map: expected fragments that differ only in their elements}}
func.func @f(%x: !warp.fragment<acc, 32x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %y = warp.map %x : !warp.fragment<acc, 32x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> (%e: f32) {
    warp.yield %e : f32
  }
  return
}

// -----

// expected-error @+2 {{warp.map: expected a region on elements (f32), got (f16)}}
func.func @f(%x: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %y = warp.map %x : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]> (%e: f16) {
    warp.yield %e : f16
  }
  return
}

// -----

// expected-error @+5 {{expected 1 operand types but had 2}}
func.func @f(%x: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %y = warp.map %x, %x : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]> (%e: f16) {
    warp.yield %e : f16
  }
  return
}

// -----

// expected-error @+2 {{warp.load: expected memory of rank 1, or a tile of rank 2 in shared memory, got memref<8x8xf32>}}
func.func @line(%v: memref<8x8xf32>, %i: index) {
  %x = warp.load %v[%i, %i] {along = "columns"} : memref<8x8xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.index: expected a start of the elements of a fragment, and of no other, got !warp.fragment}}
func.func @start() {
  %y = warp.index 1 : !warp.fragment<acc, 16x8xi32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.index: expected a start of the elements of a fragment, and of no other, got i32}}
func.func @step() {
  %y = warp.index 1 {step = 2 : i64} : i32
  return
}

// -----

// expected-error @+3 {{expected the type of scales, which is given}}
func.func @type(%w: memref<5x6xi8>, %s: memref<1x6xf16>) {
  %x = warp.stored %w as s8 times %s : memref<5x6xi8>
  return
}

// -----

// expected-error @+2 {{warp.convert: expected powers of f32 as f8E4M3FN}}
func.func @powers(%s: !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %m: !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]>) {
  %p = warp.convert %s powers %m {factor = 1.0 : f32} : !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]> to !warp.fragment<acc, 16x16xbf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
  return
}

// -----

// expected-error @+2 {{warp.convert: expected the exponents of rows and a factor, or neither}}
func.func @powers(%s: !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3 c3]>) {
  %p = warp.convert %s {factor = 1.0 : f32} : !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3 c3]> to !warp.fragment<acc, 16x16xf8E4M3FN, [c1 c2 r0 r1 r2 | c0 r3 c3]>
  func.return
}

// -----

// expected-error @+2 {{warp.convert: expected f32 for each of 16 rows, got}}
func.func @powers(%s: !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %m: !warp.fragment<acc, 32x1xf32, [x0 x1 r0 r1 r2 | r3]>) {
  %p = warp.convert %s powers %m {factor = 1.0 : f32} : !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<acc, 32x1xf32, [x0 x1 r0 r1 r2 | r3]> to !warp.fragment<acc, 16x16xf8E4M3FN, [c1 c2 r0 r1 r2 | c0 r3 c3]>
  return
}
