// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

// CHECK-LABEL: func.func @ops
func.func @ops(%d: !warp.fragment<acc, 32x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %bias: memref<320xf16>, %i: index, %alpha: f32) {
  // CHECK-NEXT: %part = warp.subfragment %d[16, 8] : !warp.fragment<acc, 32x16xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  %part = warp.subfragment %d[16, 8] : !warp.fragment<acc, 32x16xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  // CHECK-NEXT: %b = warp.load %bias[%i] {in_bounds = [true, true], along = "columns"} : memref<320xf16> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
  %b = warp.load %bias[%i] {in_bounds = [true, true], along = "columns"} : memref<320xf16> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
  // CHECK-NEXT: %c = warp.load %bias[%i] {note, along = "rows"} : memref<320xf16> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
  %c = warp.load %bias[%i] {note, along = "rows"} : memref<320xf16> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
  // CHECK-NEXT: %e = warp.map %part, %b, %alpha {note} : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, f32 -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> (%x: f32, %y: f16, %s: f32) {
  // CHECK-NEXT:   %0 = arith.extf %y : f16 to f32
  // CHECK-NEXT:   %1 = math.fma %x, %s, %0 : f32
  // CHECK-NEXT:   warp.yield %1 : f32
  // CHECK-NEXT: }
  %e = warp.map %part, %b, %alpha {note} : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, f32 -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> (%x: f32, %y: f16, %s: f32) {
    %0 = arith.extf %y : f16 to f32
    %1 = math.fma %x, %s, %0 : f32
    warp.yield %1 : f32
  }
  // CHECK-NEXT: %{{.*}} = warp.subfragment %part, %e[0, 0] : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 32x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  %f = warp.subfragment %part, %e[0, 0] : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 32x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// A line of a tile in shared memory, which may lie there as a column.
// CHECK-LABEL: func.func @lines
func.func @lines(%t: memref<8x64xf16, 3>, %i: index) {
  // CHECK-NEXT: warp.load %t[%i, %i] {along = "columns"} : memref<8x64xf16, 3 : i64> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
  %a = warp.load %t[%i, %i] {along = "columns"} : memref<8x64xf16, 3> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
  // CHECK-NEXT: warp.load %t[%i, %i] {in_bounds = [true, true], swapped, along = "columns"} : memref<8x64xf16, 3 : i64> -> !warp.fragment<
  %b = warp.load %t[%i, %i] {in_bounds = [true, true], swapped, along = "columns"} : memref<8x64xf16, 3> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// Powers of two as bytes, in the layout of what they are of.
// CHECK-LABEL: func.func @powers
func.func @powers(%s: !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %m: !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]>) {
  // CHECK-NEXT: %p = warp.convert %s powers %m {factor = 1.250000e-01 : f32} : !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]> to !warp.fragment<acc, 16x16xf8E4M3FN, [c1 c2 r0 r1 r2 | c0 r3 c3]>
  %p = warp.convert %s powers %m {factor = 0.125 : f32} : !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]> to !warp.fragment<acc, 16x16xf8E4M3FN, [c1 c2 r0 r1 r2 | c0 r3 c3]>
  return
}
