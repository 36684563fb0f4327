// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

!a8 = !warp.fragment<a, 16x32xi8, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>
!u8 = !warp.fragment<b, 32x8xui8, [r2 r3 c0 c1 c2 | r0 r1 r4]>
!i32 = !warp.fragment<acc, 16x8xi32, [c1 c2 r0 r1 r2 | c0 r3]>
!f32 = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
!f64 = !warp.fragment<acc, 8x8xf64, [c1 c2 r0 r1 r2 | c0]>

// CHECK-LABEL: func.func @saturated
// CHECK: %d = warp.mma m16n8k32 %a, %b, %c {satfinite} : !warp.fragment<a, 16x32xi8, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>, !warp.fragment<b, 32x8xui8, [r2 r3 c0 c1 c2 | r0 r1 r4]>, !warp.fragment<acc, 16x8xi32, [c1 c2 r0 r1 r2 | c0 r3]>
// GENERIC-LABEL: "saturated"
// GENERIC: "warp.mma"(%a, %b, %c) <{shape = "m16n8k32", satfinite, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>}>
func.func @saturated(%a: !a8, %b: !u8, %c: !i32) {
  %d = warp.mma m16n8k32 %a, %b, %c {satfinite} : !a8, !u8, !i32
  return
}

// CHECK-LABEL: func.func @signed_says_the_same
// CHECK: warp.mma m16n8k32 %a, %b, %c {note} : !warp.fragment<a, 16x32xsi8, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>
func.func @signed_says_the_same(%a: !warp.fragment<a, 16x32xsi8, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>, %b: !u8, %c: !i32) {
  %d = warp.mma m16n8k32 %a, %b, %c {note} : !warp.fragment<a, 16x32xsi8, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>, !u8, !i32
  return
}

// CHECK-LABEL: func.func @rounded
// CHECK: %d = warp.mma m8n8k4 %a, %b, %c {rounding = "rz"} : !warp.fragment<a, 8x4xf64, [c0 c1 r0 r1 r2 |]>, !warp.fragment<b, 4x8xf64, [r0 r1 c0 c1 c2 |]>, !warp.fragment<acc, 8x8xf64, [c1 c2 r0 r1 r2 | c0]>
// GENERIC-LABEL: "rounded"
// GENERIC: "warp.mma"(%a, %b, %c) <{shape = "m8n8k4", rounding = "rz", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>}>
func.func @rounded(%a: !warp.fragment<a, 8x4xf64, [c0 c1 r0 r1 r2 |]>, %b: !warp.fragment<b, 4x8xf64, [r0 r1 c0 c1 c2 |]>, %c: !f64) {
  %d = warp.mma m8n8k4 %a, %b, %c {rounding = "rz"} : !warp.fragment<a, 8x4xf64, [c0 c1 r0 r1 r2 |]>, !warp.fragment<b, 4x8xf64, [r0 r1 c0 c1 c2 |]>, !f64
  return
}

// CHECK-LABEL: func.func @bits
// CHECK: %d = warp.mma m16n8k128 %a, %b, %c {bit_op = "and"} : !warp.fragment<a, 16x128xi1,
func.func @bits(%a: !warp.fragment<a, 16x128xi1, [c5 c6 r0 r1 r2 | c0 c1 c2 c3 c4 r3]>, %b: !warp.fragment<b, 128x8xi1, [r5 r6 c0 c1 c2 | r0 r1 r2 r3 r4]>, %c: !i32) {
  %d = warp.mma m16n8k128 %a, %b, %c {bit_op = "and"} : !warp.fragment<a, 16x128xi1, [c5 c6 r0 r1 r2 | c0 c1 c2 c3 c4 r3]>, !warp.fragment<b, 128x8xi1, [r5 r6 c0 c1 c2 | r0 r1 r2 r3 r4]>, !i32
  return
}

// Four products side by side: the axis q. C is f16, D is f32 and has another layout.
// CHECK-LABEL: func.func @four_products
// CHECK: %d = warp.mma m8n8k4 %a, %b, %c {layouts = "col.row"} : !warp.fragment<a, 8x4xf16, [c0 c1 q0 q1 r2 | r0 r1]>, !warp.fragment<b, 4x8xf16, [r0 r1 q0 q1 c2 | c0 c1]>, !warp.fragment<acc, 8x8xf16, [r0 r1 q0 q1 r2 | c0 c1 c2]> -> !warp.fragment<acc, 8x8xf32, [r0 c1 q0 q1 r2 | c0 r1 c2]>
// GENERIC-LABEL: "four_products"
// GENERIC: "warp.mma"(%a, %b, %c) <{shape = "m8n8k4", layouts = "col.row", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>}>
func.func @four_products(%a: !warp.fragment<a, 8x4xf16, [c0 c1 q0 q1 r2 | r0 r1]>, %b: !warp.fragment<b, 4x8xf16, [r0 r1 q0 q1 c2 | c0 c1]>, %c: !warp.fragment<acc, 8x8xf16, [r0 r1 q0 q1 r2 | c0 c1 c2]>) {
  %d = warp.mma m8n8k4 %a, %b, %c {layouts = "col.row"} : !warp.fragment<a, 8x4xf16, [c0 c1 q0 q1 r2 | r0 r1]>, !warp.fragment<b, 4x8xf16, [r0 r1 q0 q1 c2 | c0 c1]>, !warp.fragment<acc, 8x8xf16, [r0 r1 q0 q1 r2 | c0 c1 c2]> -> !warp.fragment<acc, 8x8xf32, [r0 c1 q0 q1 r2 | c0 r1 c2]>
  return
}

// CHECK-LABEL: func.func @narrow
// CHECK: %d = warp.mma m16n8k32 %a, %b, %c {kind = "f8f6f4"} : !warp.fragment<a, 16x32xf6E3M2FN, [c2 c3 r0 r1 r2 | c0 c1 r3 c4], bytes>, !warp.fragment<b, 32x8xf4E2M1FN, [r2 r3 c0 c1 c2 | r0 r1 r4], bytes>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
// GENERIC-LABEL: "narrow"
// GENERIC: "warp.mma"(%a, %b, %c) <{shape = "m16n8k32", kind = "f8f6f4", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>}>
func.func @narrow(%a: !warp.fragment<a, 16x32xf6E3M2FN, [c2 c3 r0 r1 r2 | c0 c1 r3 c4], bytes>, %b: !warp.fragment<b, 32x8xf4E2M1FN, [r2 r3 c0 c1 c2 | r0 r1 r4], bytes>, %c: !f32) {
  %d = warp.mma m16n8k32 %a, %b, %c {kind = "f8f6f4"} : !warp.fragment<a, 16x32xf6E3M2FN, [c2 c3 r0 r1 r2 | c0 c1 r3 c4], bytes>, !warp.fragment<b, 32x8xf4E2M1FN, [r2 r3 c0 c1 c2 | r0 r1 r4], bytes>, !f32
  return
}

!a4 = !warp.fragment<a, 16x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>
!b4 = !warp.fragment<b, 64x8xf4E2M1FN, [r3 r4 c0 c1 c2 | r0 r1 r2 r5]>
!sa = !warp.fragment<scale, 16x4xf8E4M3FN, [r3 t0 r0 r1 r2 | c0 c1]>
!sb = !warp.fragment<scale, 4x8xf8E4M3FN, [t0 t1 c0 c1 c2 | r0 r1]>

// CHECK-LABEL: func.func @scaled
// CHECK: %d = warp.mma m16n8k64 %a, %b, %c scaled %sa, %sb {kind = "mxf4nvf4", selectors = array<i64: 0, 1, 0, 3>} : !warp.fragment<a, 16x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>, !warp.fragment<b, 64x8xf4E2M1FN, [r3 r4 c0 c1 c2 | r0 r1 r2 r5]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> scaled !warp.fragment<scale, 16x4xf8E4M3FN, [r3 t0 r0 r1 r2 | c0 c1]>, !warp.fragment<scale, 4x8xf8E4M3FN, [t0 t1 c0 c1 c2 | r0 r1]>
// GENERIC-LABEL: "scaled"
// GENERIC: "warp.mma"(%a, %b, %c, %sa, %sb) <{shape = "m16n8k64", kind = "mxf4nvf4", selectors = array<i64: 0, 1, 0, 3>, operandSegmentSizes = array<i32: 1, 1, 1, 0, 2>}>
func.func @scaled(%a: !a4, %b: !b4, %c: !f32, %sa: !sa, %sb: !sb) {
  %d = warp.mma m16n8k64 %a, %b, %c scaled %sa, %sb {kind = "mxf4nvf4", selectors = array<i64: 0, 1, 0, 3>} : !a4, !b4, !f32 scaled !sa, !sb
  return
}

// Scales of four tiles of B, and of two of A, share registers; the thread-ids are those of the first.
!b4x4 = !warp.fragment<b, 64x32xf4E2M1FN, [r3 r4 c0 c1 c2 | r0 r1 r2 r5]>
!a4x2 = !warp.fragment<a, 32x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>
!f32x8 = !warp.fragment<acc, 32x32xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// CHECK-LABEL: func.func @scales_that_share_registers
// CHECK: %d = warp.mma m16n8k64 %a, %b, %c scaled %sa, %sb {kind = "mxf4", selectors = array<i64: 2, 0, 0, 0>} :
// CHECK: %e = warp.mma m16n8k64 %a, %b, %c scaled %sa, %sc {kind = "mxf4", selectors = array<i64: 2, 0, 0, 2>} :
func.func @scales_that_share_registers(%a: !a4x2, %b: !b4x4, %c: !f32x8, %sa: !warp.fragment<scale, 32x2xf8E8M0FNU, [r3 r4 r0 r1 r2 | c0 b0]>, %sb: !warp.fragment<scale, 2x32xf8E8M0FNU, [c3 c4 c0 c1 c2 | r0 b0]>, %sc: !warp.fragment<scale, 2x32xf8E8M0FNU, [c3 t0 c0 c1 c2 | r0 b0]>) {
  %d = warp.mma m16n8k64 %a, %b, %c scaled %sa, %sb {kind = "mxf4", selectors = array<i64: 2, 0, 0, 0>} : !a4x2, !b4x4, !f32x8 scaled !warp.fragment<scale, 32x2xf8E8M0FNU, [r3 r4 r0 r1 r2 | c0 b0]>, !warp.fragment<scale, 2x32xf8E8M0FNU, [c3 c4 c0 c1 c2 | r0 b0]>
  %e = warp.mma m16n8k64 %a, %b, %c scaled %sa, %sc {kind = "mxf4", selectors = array<i64: 2, 0, 0, 2>} : !a4x2, !b4x4, !f32x8 scaled !warp.fragment<scale, 32x2xf8E8M0FNU, [r3 r4 r0 r1 r2 | c0 b0]>, !warp.fragment<scale, 2x32xf8E8M0FNU, [c3 t0 c0 c1 c2 | r0 b0]>
  return
}

// CHECK-LABEL: func.func @load_scales
// CHECK: %a = warp.load %s[%i, %i, %i] : memref<2x64x8xf8E8M0FNU, #warp.swizzle<4>, 3 : i64> -> !warp.fragment<scale, 64x1xf8E8M0FNU, [r3 r4 r0 r1 r2 | b0 b1]>
// GENERIC-LABEL: "load_scales"
// GENERIC: "warp.load"(%s, %i, %i, %i)
func.func @load_scales(%s: memref<2x64x8xf8E8M0FNU, #warp.swizzle<4>, 3>, %i: index) {
  %a = warp.load %s[%i, %i, %i] : memref<2x64x8xf8E8M0FNU, #warp.swizzle<4>, 3> -> !warp.fragment<scale, 64x1xf8E8M0FNU, [r3 r4 r0 r1 r2 | b0 b1]>
  return
}

!half_of_a = !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
!b16 = !warp.fragment<b, 32x8xf16, [r1 r2 c0 c1 c2 | r0 r3 r4]>
!meta = !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>

// CHECK-LABEL: func.func @sparse
// CHECK: %d = warp.mma m16n8k32 %a, %b, %c sparse %e {ordered, selector = 1 : i64} : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 32x8xf16, [r1 r2 c0 c1 c2 | r0 r3 r4]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> sparse !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>
// CHECK: warp.mma m16n8k32 %a, %b, %c sparse %e {note, selector = 0 : i64} :
// GENERIC-LABEL: "sparse"
// GENERIC: "warp.mma"(%a, %b, %c, %e) <{shape = "m16n8k32", ordered, selector = 1 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0>}>
func.func @sparse(%a: !half_of_a, %b: !b16, %c: !f32, %e: !meta) {
  %d = warp.mma m16n8k32 %a, %b, %c sparse %e {ordered, selector = 1 : i64} : !half_of_a, !b16, !f32 sparse !meta
  %f = warp.mma m16n8k32 %a, %b, %c sparse %e {selector = 0 : i64, note} : !half_of_a, !b16, !f32 sparse !meta
  return
}

!as = !warp.fragment<a, 16x32xf4E2M1FN, [c2 c3 r0 r1 r2 | c0 c1 r3 c4], bytes>
!bs = !warp.fragment<b, 64x8xf8E4M3FN, [r2 r3 c0 c1 c2 | r0 r1 r4 r5]>
!es = !warp.fragment<meta, 16x16xi4, [r3 c3 r0 r1 r2 | c0 c1 c2]>
!s1 = !warp.fragment<scale, 16x1xf8E8M0FNU, [r3 t0 r0 r1 r2 | b0 b1]>
!s2 = !warp.fragment<scale, 1x8xf8E8M0FNU, [t0 t1 c0 c1 c2 | b0 b1]>

// CHECK-LABEL: func.func @sparse_and_scaled
// CHECK: %d = warp.mma m16n8k64 %a, %b, %c sparse %e scaled %sa, %sb {ordered, kind = "mxf8f6f4", selector = 0 : i64, selectors = array<i64: 3, 1, 2, 0>} :
// GENERIC-LABEL: "sparse_and_scaled"
// GENERIC: "warp.mma"(%a, %b, %c, %e, %sa, %sb) <{shape = "m16n8k64", ordered, kind = "mxf8f6f4", selector = 0 : i64, selectors = array<i64: 3, 1, 2, 0>, operandSegmentSizes = array<i32: 1, 1, 1, 1, 2>}>
func.func @sparse_and_scaled(%a: !as, %b: !bs, %c: !f32, %e: !es, %sa: !s1, %sb: !s2) {
  %d = warp.mma m16n8k64 %a, %b, %c sparse %e scaled %sa, %sb {ordered, kind = "mxf8f6f4", selector = 0 : i64, selectors = array<i64: 3, 1, 2, 0>} : !as, !bs, !f32 sparse !es scaled !s1, !s2
  return
}
